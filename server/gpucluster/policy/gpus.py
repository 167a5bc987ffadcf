"""Which GPUs of one node a task gets: as close together as can be, from the smallest topology cell that will do.

Buddy allocation on the node's cells (switch ⊂ socket ⊂ node): take from the fullest cell that still fits, so that
large free cells stay whole for large tasks (HiveD's packing, within a node).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..model.topology import Gpu
from .space import cell_counts

Cell = tuple[int, ...]  #: (socket, switch), (socket,), or () for the node


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
    by_cell: dict[Cell, list[Gpu]] = {}
    for gpu in free:
        for cell in ((gpu.socket, gpu.switch), (gpu.socket,)):
            by_cell.setdefault(cell, []).append(gpu)
    for depth in (2, 1):
        fitting = [gpus for cell, gpus in by_cell.items() if len(cell) == depth and len(gpus) >= count]
        if fitting:
            # The fullest one; between equals, the one whose socket has fewer left.
            chosen = min(fitting, key=lambda gpus: (len(gpus), len(by_cell[(gpus[0].socket,)])))
            return chosen[:count] if depth == 2 else _from_few_cells(chosen, count, 2)
    return _from_few_cells(free, count, 1)


def _from_few_cells(free: Sequence[Gpu], count: int, depth: int) -> list[Gpu]:
    """Whole cells of this depth, the largest first; then the smallest cell that holds the rest."""
    cells: dict[Cell, list[Gpu]] = {}
    for gpu in free:
        cells.setdefault((gpu.socket, gpu.switch)[:depth], []).append(gpu)
    chosen: list[Gpu] = []
    rest = list(cells.values())
    while len(chosen) < count:
        missing = count - len(chosen)
        enough = [gpus for gpus in rest if len(gpus) >= missing]
        cell = min(enough, key=len) if enough else max(rest, key=len)
        rest.remove(cell)
        chosen += cell if len(cell) <= missing else choose_gpus(cell, missing)
    return chosen


def spread_of(chosen: Sequence[Gpu], free: Sequence[Gpu], cell_sizes: Mapping[Cell, int]) -> Spread:
    """How good it is to take `chosen` of a node. `free`: all its free GPUs; `cell_sizes`: its healthy ones by cell."""
    taken, available = cell_counts(chosen), cell_counts(free)
    switches = sum(1 for cell in taken if len(cell) == 2)
    sockets = sum(1 for cell in taken if len(cell) == 1)
    level = 0 if switches <= 1 else 1 if sockets <= 1 else 2
    broken = max(
        (size for cell, count in taken.items() if available[cell] == (size := cell_sizes[cell]) > count),
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
