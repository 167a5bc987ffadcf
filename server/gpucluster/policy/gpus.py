"""Which GPUs of one node a task gets: as close together as can be, from the smallest topology cell that will do.

Buddy allocation on the node's topology cells (switch ⊂ socket ⊂ node): take from the fullest one that still fits, so
that large free ones stay whole for large tasks (HiveD's packing, within a node).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..model.topology import Gpu
from .space import TopologyCell, topology_cell_counts


class Spread(NamedTuple):
    """How good a choice of GPUs is, smaller is better: 0 within one switch, 1 within one socket, 2 across sockets; then
    the size of the largest topology cell that was wholly free and is now partly used.
    """

    level: int
    broken: int


def choose_gpus(free: Sequence[Gpu], count: int) -> list[Gpu]:
    """The best `count` of these free GPUs of one node (`count` <= len(free)): same switch, else same socket, else fewest."""
    if count == len(free):
        return list(free)
    inside: dict[TopologyCell, list[Gpu]] = {}
    for gpu in free:
        for place in ((gpu.socket, gpu.switch), (gpu.socket,)):
            inside.setdefault(place, []).append(gpu)
    for depth in (2, 1):
        fitting = [gpus for place, gpus in inside.items() if len(place) == depth and len(gpus) >= count]
        if fitting:
            # The fullest one; between equals, the one whose socket has fewer left.
            chosen = min(fitting, key=lambda gpus: (len(gpus), len(inside[(gpus[0].socket,)])))
            return chosen[:count] if depth == 2 else _from_few_places(chosen, count, 2)
    return _from_few_places(free, count, 1)


def _from_few_places(free: Sequence[Gpu], count: int, depth: int) -> list[Gpu]:
    """Whole topology cells of this depth, the largest first; then the smallest that holds the rest."""
    inside: dict[TopologyCell, list[Gpu]] = {}
    for gpu in free:
        inside.setdefault((gpu.socket, gpu.switch)[:depth], []).append(gpu)
    chosen: list[Gpu] = []
    rest = list(inside.values())
    while len(chosen) < count:
        missing = count - len(chosen)
        enough = [gpus for gpus in rest if len(gpus) >= missing]
        taken = min(enough, key=len) if enough else max(rest, key=len)
        rest.remove(taken)
        chosen += taken if len(taken) <= missing else choose_gpus(taken, missing)
    return chosen


def spread_of(chosen: Sequence[Gpu], free: Sequence[Gpu], sizes: Mapping[TopologyCell, int]) -> Spread:
    """How good it is to take `chosen` of a node. `free`: all its free GPUs; `sizes`: its healthy ones by topology cell."""
    taken, available = topology_cell_counts(chosen), topology_cell_counts(free)
    switches = sum(1 for place in taken if len(place) == 2)
    sockets = sum(1 for place in taken if len(place) == 1)
    level = 0 if switches <= 1 else 1 if sockets <= 1 else 2
    broken = max(
        (size for place, count in taken.items() if available[place] == (size := sizes[place]) > count),
        default=0,
    )
    return Spread(level, broken)


def split_among_tasks(chosen: Sequence[Gpu], tasks: int) -> list[list[Gpu]]:
    """Share GPUs out to equal tasks, each task's as close together as can be."""
    if not chosen:
        return [[] for _ in range(tasks)]
    each = len(chosen) // tasks
    rest = sorted(chosen, key=lambda gpu: (gpu.socket, gpu.switch, gpu.index))
    shares = []
    for _ in range(tasks):
        share = choose_gpus(rest, each)
        rest = [gpu for gpu in rest if gpu not in share]
        shares.append(sorted(share, key=lambda gpu: gpu.index))
    return shares
