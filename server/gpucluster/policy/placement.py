"""Where a gang goes: all of its tasks at once, or nowhere (docs/policies/placement.md, gang.md).

Order of preference: one node; else the fewest nodes; of these, one rack. On one node the closest GPUs win, then the
choice that breaks the smallest free topology cell, then the fullest node. All tasks of a role get GPUs of one type.
A node on which a start of this job failed lately is used only when nothing else will do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ..model.jobs import TaskPlacement, TaskRole
from ..model.resources import CPU, GPU, MEMORY, WHOLE_GPU, Resources, gpu_of_type
from ..model.topology import Gpu
from .gpus import Spread, choose_gpus, split_among_tasks, spread_of
from .space import ClusterSpace, NodeSpace

#: GPUs of a type that may be taken: what a queue's maximum leaves. A type that is not named is unlimited.
TypeLimits = Mapping[str, int]
NO_LIMITS: TypeLimits = MappingProxyType({})


class Group(NamedTuple):
    """Equal tasks of one role with the GPU type settled; `gpus` is a number of whole GPUs of one task."""

    role: int  # index into the roles
    size: int  # how many tasks
    gpus: int
    gpu_type: str | None
    cpus: int
    memory: int


class Share(NamedTuple):
    """So many tasks of a group on a node."""

    node: NodeSpace
    group: Group
    tasks: int


def place_gang(
    space: ClusterSpace,
    roles: Sequence[TaskRole],
    *,
    avoid: Collection[str] = (),
    limits: TypeLimits = NO_LIMITS,
    barred_types: Collection[str] = (),
) -> list[TaskPlacement] | None:
    """A place for every task, by rank, or None when there is none for all of them at once.

    `avoid`: nodes of last resort. `limits`: how many GPUs of a type the queue may still take. `barred_types`: types
    that others have to get first.
    """
    nodes = space.open_nodes()
    liked = [node for node in nodes if node.name not in avoid] if avoid else nodes
    for candidates in (liked, nodes) if len(liked) < len(nodes) else (nodes,):
        placed = _try_types(space, candidates, roles, (), limits, barred_types)
        if placed is not None:
            return placed
    return None


def acceptable_types(
    space: ClusterSpace, role: TaskRole, barred_types: Collection[str] = ()
) -> tuple[str | None, ...]:
    """GPU types for a role, best first: as the job prefers, or else those of which most are free. (None,) without GPUs."""
    if not role.gpus:
        return (None,)
    if role.gpu_types:
        return tuple(gpu_type for gpu_type in role.gpu_types if gpu_type not in barred_types)
    open_types = [gpu_type for gpu_type in space.gpu_types if gpu_type not in barred_types]
    return tuple(sorted(open_types, key=lambda gpu_type: -space.free_gpus(gpu_type)))


def _try_types(
    space: ClusterSpace,
    nodes: Sequence[NodeSpace],
    roles: Sequence[TaskRole],
    chosen: tuple[str | None, ...],
    limits: TypeLimits,
    barred_types: Collection[str],
) -> list[TaskPlacement] | None:
    """Settle one role's type after the other, best first, until the whole gang has a place."""
    if len(chosen) == len(roles):
        return _place_groups(nodes, roles, _groups(roles, chosen))
    for gpu_type in acceptable_types(space, roles[len(chosen)], barred_types):
        types = (*chosen, gpu_type)
        if _is_enough(space, roles, types, limits):
            placed = _try_types(space, nodes, roles, types, limits, barred_types)
            if placed is not None:
                return placed
    return None


def _is_enough(
    space: ClusterSpace, roles: Sequence[TaskRole], types: Sequence[str | None], limits: TypeLimits
) -> bool:
    """Are there as many GPUs of each type, free and allowed, as the roles settled so far need?"""
    needed: dict[str, int] = {}
    for role, gpu_type in zip(roles, types, strict=False):
        if gpu_type is not None:
            needed[gpu_type] = needed.get(gpu_type, 0) + role.count * (role.gpus // WHOLE_GPU)
    return all(
        count <= min(space.free_gpus(gpu_type), limits.get(gpu_type, count))
        for gpu_type, count in needed.items()
    )


def _groups(roles: Sequence[TaskRole], types: Sequence[str | None]) -> list[Group]:
    return [
        Group(index, role.count, role.gpus // WHOLE_GPU, gpu_type, role.cpus, role.memory)
        for index, (role, gpu_type) in enumerate(zip(roles, types, strict=True))
    ]


def _place_groups(
    nodes: Sequence[NodeSpace], roles: Sequence[TaskRole], groups: Sequence[Group]
) -> list[TaskPlacement] | None:
    shares = _on_one_node(nodes, groups) or _on_few_nodes(nodes, groups)
    return _settle(roles, shares) if shares is not None else None


# ---- one node


def _on_one_node(nodes: Iterable[NodeSpace], groups: Sequence[Group]) -> list[Share] | None:
    """The best node that takes the whole gang."""
    cpus = sum(group.size * group.cpus for group in groups)
    memory = sum(group.size * group.memory for group in groups)
    gpus = _gpus_by_type(groups)
    spreads: dict[object, Spread] = {}
    best: NodeSpace | None = None
    best_score: tuple[Spread, int, int] | None = None
    for node in nodes:
        if cpus > node.cpu_free or memory > node.memory_free:
            continue
        if any(count > len(node.free_gpus(gpu_type)) for gpu_type, count in gpus.items()):
            continue
        score = (_spread_on(node, gpus, spreads), node.free_gpu_count, node.cpu_free)
        if best_score is None or score < best_score:
            best, best_score = node, score
    return [Share(best, group, group.size) for group in groups] if best is not None else None


def _gpus_by_type(groups: Iterable[Group]) -> dict[str, int]:
    gpus: dict[str, int] = {}
    for group in groups:
        if group.gpu_type is not None:
            gpus[group.gpu_type] = gpus.get(group.gpu_type, 0) + group.size * group.gpus
    return gpus


def _spread_on(node: NodeSpace, gpus: Mapping[str, int], known: dict[object, Spread]) -> Spread:
    """How close the GPUs would lie; worked out once for nodes that look the same."""
    if not gpus:
        return Spread(0, 0)
    pattern = tuple(node.free_pattern(gpu_type) for gpu_type in gpus)
    if pattern not in known:
        chosen = [
            gpu for gpu_type, count in gpus.items() for gpu in choose_gpus(node.free_gpus(gpu_type), count)
        ]
        known[pattern] = spread_of(chosen, node.all_free_gpus(), node.topology_cell_sizes)
    return known[pattern]


# ---- several nodes


class _Rest:
    """What is left of a node while a gang is being spread over several: an overlay, the books are not touched."""

    __slots__ = ("cpu", "gpus", "memory", "node", "order", "used")

    def __init__(self, node: NodeSpace, order: int) -> None:
        self.node = node
        self.order = order
        self.cpu = node.cpu_free
        self.memory = node.memory_free
        self.gpus: dict[str, int] = {}
        self.used = False

    def fits(self, group: Group) -> int:
        """How many tasks of the group fit here."""
        counts = [group.size]
        if group.gpu_type is not None and group.gpus:
            counts.append(self._free(group.gpu_type) // group.gpus)
        if group.cpus:
            counts.append(self.cpu // group.cpus)
        if group.memory:
            counts.append(self.memory // group.memory)
        return max(0, min(counts))

    def take(self, group: Group, tasks: int) -> Share:
        self.used = True
        self.cpu -= tasks * group.cpus
        self.memory -= tasks * group.memory
        if group.gpu_type is not None:
            self.gpus[group.gpu_type] = self._free(group.gpu_type) - tasks * group.gpus
        return Share(self.node, group, tasks)

    def _free(self, gpu_type: str) -> int:
        return self.gpus.get(gpu_type, len(self.node.free_gpus(gpu_type)))


def _on_few_nodes(nodes: Sequence[NodeSpace], groups: Sequence[Group]) -> list[Share] | None:
    """Fewest nodes over the whole cluster; one rack if one does with as few (the fullest such rack)."""
    anywhere = _fill(nodes, groups)
    if anywhere is None:
        return None
    fewest = _node_count(anywhere)
    racks: dict[str, list[NodeSpace]] = {}
    for node in nodes:
        racks.setdefault(node.rack, []).append(node)
    if len(racks) == 1:
        return anywhere
    by_fullness = sorted(racks.values(), key=lambda rack: sum(node.free_gpu_count for node in rack))
    for rack in by_fullness:
        if len(rack) < fewest:
            continue
        within = _fill(rack, groups)
        if within is not None and _node_count(within) <= fewest:
            return within
    return anywhere


def _node_count(shares: Iterable[Share]) -> int:
    return len({share.node.name for share in shares})


def _fill(nodes: Sequence[NodeSpace], groups: Sequence[Group]) -> list[Share] | None:
    """Group after group, the hardest first, onto nodes already used, then onto those that take most tasks.

    For a gang of equal tasks this gives the fewest nodes. For several groups it is a good guess: a gang of unequal tasks
    may be refused a place that an exhaustive search would find.
    """
    rests = [_Rest(node, order) for order, node in enumerate(nodes)]
    shares: list[Share] = []
    for group in sorted(groups, key=lambda group: (-group.gpus, -group.cpus, -group.memory, group.role)):
        taken = _fill_group(rests, group)
        if taken is None:
            return None
        shares += taken
    return shares


def _fill_group(rests: Sequence[_Rest], group: Group) -> list[Share] | None:
    room = [(rest, fits) for rest in rests if (fits := rest.fits(group)) > 0]
    if sum(fits for _, fits in room) < group.size:
        return None
    room.sort(key=lambda entry: (not entry[0].used, -entry[1], entry[0].node.free_gpu_count, entry[0].order))
    shares: list[Share] = []
    missing = group.size
    while missing:
        rest, fits = room[0]
        if fits >= missing and not rest.used:
            # The last node: the one that the remaining tasks fill best.
            rest, fits = min(
                (entry for entry in room if entry[1] >= missing),
                key=lambda entry: (entry[1], entry[0].node.free_gpu_count, entry[0].order),
            )
        room.remove((rest, fits))
        tasks = min(fits, missing)
        shares.append(rest.take(group, tasks))
        missing -= tasks
    return shares


# ---- from numbers of tasks to ranks and GPUs


def _settle(roles: Sequence[TaskRole], shares: Sequence[Share]) -> list[TaskPlacement]:
    """Give every task its rank and its GPUs. Ranks follow the roles, and within a role the nodes in order of use."""
    gpus = _gpus_of_shares(shares)
    local_ranks: dict[str, int] = {}
    placements: list[TaskPlacement] = []
    for share in sorted(shares, key=lambda share: share.group.role):
        role = roles[share.group.role]
        for task_gpus in gpus[share.node.name, share.group.role]:
            local_rank = local_ranks.get(share.node.name, 0)
            local_ranks[share.node.name] = local_rank + 1
            placements.append(
                TaskPlacement(
                    role=role.name,
                    rank=len(placements),
                    local_rank=local_rank,
                    node=share.node.name,
                    gpus=tuple(gpu.uuid for gpu in task_gpus),
                    resources=task_resources(role, share.group.gpu_type),
                )
            )
    return placements


def _gpus_of_shares(shares: Sequence[Share]) -> dict[tuple[str, int], list[list[Gpu]]]:
    """For each node and role the GPUs of its tasks there: chosen together, so that they lie close, then shared out."""
    given: dict[tuple[str, int], list[list[Gpu]]] = {}
    taken: set[str] = set()
    for share in shares:
        chosen: list[Gpu] = []
        if share.group.gpu_type is not None:
            free = [gpu for gpu in share.node.free_gpus(share.group.gpu_type) if gpu.uuid not in taken]
            chosen = choose_gpus(free, share.tasks * share.group.gpus)
            taken.update(gpu.uuid for gpu in chosen)
        given[share.node.name, share.group.role] = split_among_tasks(chosen, share.tasks)
    return given


def task_resources(role: TaskRole, gpu_type: str | None) -> Resources:
    """The vector of one task with its GPU type."""
    amounts = {GPU: role.gpus, CPU: role.cpus, MEMORY: role.memory}
    if gpu_type is not None:
        amounts[gpu_of_type(gpu_type)] = role.gpus
    return Resources(amounts)
