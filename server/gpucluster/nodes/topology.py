"""Topology of a node from what the hardware says about pairs of GPUs, and the tree of topology cells. Pure.

A switch (a topology cell) holds GPUs that reach each other through PCIe switches alone; a socket those of one NUMA node; an
NVLink island those that are connected by NVLink, directly, over other GPUs, or over an NVSwitch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ..model.topology import DEFAULT_LEVELS, Gpu, Node


class TopologyCell(NamedTuple):
    """`id` is a path from the rack down, e.g. ``rack-0/node-1/socket-0/switch-1``; `parent` is None for the cluster."""

    level: str
    id: str
    parent: str | None
    gpus: tuple[str, ...]  # UUIDs


def components(count: int, is_linked: Callable[[int, int], bool]) -> list[int]:
    """For each of `count` things the number of its connected component; numbered densely, by their first member."""
    found: list[int | None] = [None] * count
    number = 0
    for first in range(count):
        if found[first] is not None:
            continue
        reached = [first]
        while reached:
            here = reached.pop()
            if found[here] is None:
                found[here] = number
                reached += [
                    there for there in range(count) if found[there] is None and is_linked(here, there)
                ]
        number += 1
    return [component for component in found if component is not None]


def dense(keys: Sequence[object]) -> list[int]:
    """Numbers 0, 1, … in place of keys, by first appearance."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def islands(count: int, links: Iterable[tuple[int, int]], on_switch: Iterable[int]) -> list[int | None]:
    """The NVLink island of each GPU; None for one without NVLink. `on_switch`: GPUs with a link to an NVSwitch.

    One node has one NVSwitch fabric, so all that hang on a switch reach each other.
    """
    pairs = {frozenset(link) for link in links}
    switched = set(on_switch)

    def is_linked(one: int, other: int) -> bool:
        return frozenset((one, other)) in pairs or (one in switched and other in switched)

    linked = switched | {gpu for pair in pairs for gpu in pair}
    numbers = components(count, is_linked)
    order = dense([numbers[gpu] for gpu in range(count) if gpu in linked])
    by_gpu = dict(zip(sorted(linked), order, strict=True))
    return [by_gpu.get(gpu) for gpu in range(count)]


def topology_cells(nodes: Iterable[Node], levels: Sequence[str] = DEFAULT_LEVELS) -> list[TopologyCell]:
    """Every topology cell of the cluster, from the cluster down to single GPUs, parents first. `levels`: smallest first."""
    gpu_level, switch_level, socket_level, node_level, rack_level, cluster_level = levels
    nodes = list(nodes)
    found = [TopologyCell(cluster_level, "cluster", None, _uuids(gpu for node in nodes for gpu in node.gpus))]
    for rack in dict.fromkeys(node.rack for node in nodes):
        inside = [node for node in nodes if node.rack == rack]
        found.append(
            TopologyCell(rack_level, rack, "cluster", _uuids(gpu for node in inside for gpu in node.gpus))
        )
        for node in inside:
            node_id = f"{rack}/{node.name}"
            found.append(TopologyCell(node_level, node_id, rack, _uuids(node.gpus)))
            found += _below(node, node_id, socket_level, switch_level, gpu_level)
    return found


def _below(
    node: Node, node_id: str, socket_level: str, switch_level: str, gpu_level: str
) -> list[TopologyCell]:
    found = []
    for socket in sorted({gpu.socket for gpu in node.gpus}):
        in_socket = [gpu for gpu in node.gpus if gpu.socket == socket]
        socket_id = f"{node_id}/{socket_level}-{socket}"
        found.append(TopologyCell(socket_level, socket_id, node_id, _uuids(in_socket)))
        for switch in sorted({gpu.switch for gpu in in_socket}):
            in_switch = [gpu for gpu in in_socket if gpu.switch == switch]
            switch_id = f"{socket_id}/{switch_level}-{switch}"
            found.append(TopologyCell(switch_level, switch_id, socket_id, _uuids(in_switch)))
            found += [
                TopologyCell(gpu_level, f"{switch_id}/{gpu_level}-{gpu.index}", switch_id, (gpu.uuid,))
                for gpu in in_switch
            ]
    return found


def _uuids(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    return tuple(gpu.uuid for gpu in gpus)
