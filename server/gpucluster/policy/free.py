"""How many idle GPUs a queue could take at this moment: two numbers, since not all that is free is free for good.

*For good*: within what is guaranteed at every level, so nobody can claim them back. *Until reclaimed*: beyond that, up to
every maximum on the queue's path; they are lent until their owner claims them. Both look at amounts alone: whether a job
finds its GPUs on one node is for placement to say. What a queue is guaranteed and finds neither in use nor idle is *lent out*.

A GPU counts as "gpu" and under its type ("gpu/A100"), and a limit on either holds. Any state is tolerated: guarantees above
the cluster, use above a maximum, maxima below guarantees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..model.resources import GPU, WHOLE_GPU, gpu_of_type
from .space import ClusterSpace
from .tree import Queue, QueueTree


@dataclasses.dataclass(frozen=True, slots=True)
class FreeGpus:
    """Of one queue, by resource ("gpu" and each "gpu/TYPE" of the cluster), in thousandths."""

    for_good: dict[str, int]
    until_reclaimed: dict[str, int]
    lent_out: dict[str, int]


def idle_gpus(space: ClusterSpace) -> dict[str, int]:
    """Healthy GPUs that nobody holds on nodes that take tasks, by typed resource, in thousandths; 0 of a type that has none."""
    return {gpu_of_type(gpu_type): space.free_gpus(gpu_type) * WHOLE_GPU for gpu_type in space.gpu_types}


def free_gpus(tree: QueueTree, idle: Mapping[str, int]) -> dict[str, FreeGpus]:
    """For every queue by name. `idle`: by typed resource, as `idle_gpus` gives it."""
    all_idle = {GPU: sum(idle.values()), **idle}
    promised = [resource for resource in all_idle if _is_promised(tree, resource)]
    return {
        name: FreeGpus(*_takeable(tree, queue, idle, promised), lent_out=_lent_out(tree, queue, all_idle))
        for name, queue in tree.queues.items()
    }


def _is_promised(tree: QueueTree, resource: str) -> bool:
    """Whether any queue below the root is guaranteed some of it, so that it could claim it."""
    return any(queue.guaranteed_amount(resource) > 0 for queue in tree.queues.values() if queue.parent)


def _takeable(
    tree: QueueTree, queue: Queue, idle: Mapping[str, int], promised: list[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """For good, and until reclaimed."""
    rooms = {r: _room_under_max(queue, r) for r in (GPU, *idle)}
    whole = _limited(idle, rooms)
    within = {r: _room_in_guarantee(tree, queue, r, r in promised) for r in (GPU, *idle)}
    for_good = _limited(idle, {r: _least(within[r], rooms[r]) for r in within})
    return for_good, {r: whole[r] - for_good[r] for r in whole}


def _limited(idle: Mapping[str, int], limits: Mapping[str, int | None]) -> dict[str, int]:
    """What of the idle GPUs may be taken under these limits (None = no limit), of each type and in all."""
    most = limits[GPU]
    typed = {r: max(0, _least(_least(amount, limits[r]), most) or 0) for r, amount in idle.items()}
    return {GPU: max(0, _least(sum(typed.values()), most) or 0), **typed}


def _least(one: int | None, other: int | None) -> int | None:
    """The tighter of two limits; None = no limit."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _room_under_max(queue: Queue, resource: str) -> int | None:
    """Up to the tightest maximum on the path; below 0 where use is above one. None = there is no maximum."""
    room: int | None = None
    for level in queue.path():
        limit = level.maximum.get(resource)
        if limit is not None:
            room = _least(room, limit - level.used.get(resource, 0))
    return room


def _room_in_guarantee(tree: QueueTree, queue: Queue, resource: str, is_promised: bool) -> int:
    """Up to what is guaranteed at every level that states a guarantee; the root's is the cluster.

    A queue that stands on the root's guarantee alone is promised nothing: it lives on what is lent. But where no queue is
    guaranteed any of the resource, nobody could claim it back either.
    """
    if is_promised and queue.parent is not None and tree.stands_on(queue.name) is None:
        return 0
    return min(
        level.guaranteed_amount(resource) - level.used.get(resource, 0)
        for level in queue.path()
        if level.guarantee is not None
    )


def _lent_out(tree: QueueTree, queue: Queue, all_idle: Mapping[str, int]) -> dict[str, int]:
    """Never more than what the others use: a guarantee may also lie idle on a node that is lost or closed."""
    lent: dict[str, int] = {}
    for resource, amount in all_idle.items():
        used = queue.used.get(resource, 0)
        by_others = tree.root.used.get(resource, 0) - used
        lent[resource] = max(0, min(_effective_guarantee(queue, resource) - used - amount, by_others))
    return lent


def _effective_guarantee(queue: Queue, resource: str) -> int:
    """The queue's own guarantee, as far as its ancestors' reach (0 when it has none of its own)."""
    if queue.guarantee is None:
        return 0
    return min(level.guaranteed_amount(resource) for level in queue.path() if level.guarantee is not None)
