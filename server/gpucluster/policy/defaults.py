"""What a task gets when it does not say: the node's share of its GPUs; without GPUs a core and a fair small memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..model.resources import WHOLE_CPU, WHOLE_GPU
from ..model.topology import Node

_MIB = 1 << 20
#: A task without GPUs gets at most this much memory by default.
SMALL_MEMORY = 4 << 30


class TaskDefaults(NamedTuple):
    """`cpus` in thousandths of a core, `memory` in bytes."""

    cpus: int
    memory: int


def fill_defaults(nodes: Iterable[Node], gpus: int, gpu_types: Sequence[str] = ()) -> TaskDefaults:
    """Defaults of one task with so many GPUs (thousandths) of these types (empty = any).

    Of all nodes that could hold the task the leanest counts, so that a node is filled by its GPUs and never runs out
    of CPU or memory first, and the default does not depend on where the task will land.
    """
    nodes = list(nodes)
    if not gpus:
        return _without_gpus(nodes)
    shares = [_share(node, gpus) for node in nodes if _gpu_count(node, gpu_types) * WHOLE_GPU >= gpus]
    if not shares:
        return _without_gpus(nodes)
    return TaskDefaults(min(share.cpus for share in shares), min(share.memory for share in shares))


def _gpu_count(node: Node, gpu_types: Sequence[str]) -> int:
    return sum(1 for gpu in node.gpus if not gpu_types or gpu.type in gpu_types)


def _share(node: Node, gpus: int) -> TaskDefaults:
    whole = len(node.gpus) * WHOLE_GPU
    return TaskDefaults(max(1, node.cpu * gpus // whole), node.memory * gpus // whole // _MIB * _MIB)


def _without_gpus(nodes: Sequence[Node]) -> TaskDefaults:
    """One core, and the memory that a node has per core, at most SMALL_MEMORY."""
    cpus = min((node.cpu for node in nodes), default=WHOLE_CPU)
    per_core = min(
        (node.memory * WHOLE_CPU // max(node.cpu, WHOLE_CPU) for node in nodes), default=SMALL_MEMORY
    )
    return TaskDefaults(max(1, min(WHOLE_CPU, cpus)), min(SMALL_MEMORY, per_core) // _MIB * _MIB)
