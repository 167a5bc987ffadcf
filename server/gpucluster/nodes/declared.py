"""Declared nodes: GPUs that stand for no hardware. The jobs on them are real processes; every view says "simulated"."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.topology import Gpu, Node
from .settings import NodeDeclaration


def declared_node(declaration: NodeDeclaration) -> Node:
    """The node of one declaration. UUIDs follow from its name alone, so they survive a restart."""
    return Node(
        name=declaration.name,
        gpus=tuple(_gpu(declaration, index) for index in range(declaration.gpus)),
        cpu=declaration.cpus * 1000,
        memory=declaration.memory_bytes,
        rack=declaration.rack,
        extra=dict(declaration.extra),
        labels=dict(declaration.labels),
        simulated=True,
    )


def declared_nodes(declarations: Iterable[NodeDeclaration]) -> list[Node]:
    return [declared_node(declaration) for declaration in declarations]


def _gpu(declaration: NodeDeclaration, index: int) -> Gpu:
    switch = _switch_of(declaration, index)
    return Gpu(
        # "GPU-" is how CUDA_VISIBLE_DEVICES tells a UUID from an index: a program sees "no such GPU", never a wrong one.
        uuid=f"GPU-sim-{declaration.name}-{index}",
        index=index,
        type=declaration.gpu_type,
        memory_bytes=declaration.gpu_memory_bytes,
        socket=switch // declaration.switches_per_socket,
        switch=switch,
        nvlink_island=_island_of(declaration, index),
        simulated=True,
    )


def _switch_of(declaration: NodeDeclaration, index: int) -> int:
    """GPUs spread over the switches evenly and in order; fewer GPUs than switches leave some switches empty."""
    return index * declaration.sockets * declaration.switches_per_socket // declaration.gpus


def _island_of(declaration: NodeDeclaration, index: int) -> int | None:
    if declaration.nvlink is None:
        return 0 if declaration.gpus > 1 else None
    for number, island in enumerate(declaration.nvlink):
        if index in island:
            return number
    return None
