"""One scheduling cycle: which waiting jobs start now, and where (docs/policies/capacity-queues.md).

Claims first: a job that fits within its queue's guarantee starts before any that borrows, the queue with the lowest
used/guaranteed in front. What is left is lent by hierarchical weighted DRF: from the root down, the child with the
smallest dominant share divided by its weight. Inside a queue first in, first out. Gangs start whole.
"""

from __future__ import annotations

import heapq

from ..model.jobs import Job
from ..model.resources import GPU, WHOLE_GPU, gpu_of_type
from .decisions import Decision, Snapshot, Start
from .lacking import lacking_for
from .pending import Cursor
from .placement import place_gang
from .tree import Queue, QueueTree
from .trial import Trial


def decide(snapshot: Snapshot, now_us: int) -> list[Decision]:
    """What to do now, in this order. The snapshot is as before when this returns.

    `now_us` (microseconds since the epoch) is there for policies whose rules know of time; this one's do not.
    """
    with Trial(snapshot.tree, snapshot.space) as trial:
        return _Cycle(snapshot, trial).run()


def type_limits(tree: QueueTree, queue: str, gpu_types: tuple[str, ...]) -> dict[str, int]:
    """How many GPUs of each type the queue may still take, for the types that have a maximum on its path."""
    limits: dict[str, int] = {}
    for gpu_type in gpu_types:
        room = tree.headroom(queue, gpu_of_type(gpu_type))
        if room is not None:
            limits[gpu_type] = max(0, room) // WHOLE_GPU
    return limits


class _Cycle:
    def __init__(self, snapshot: Snapshot, trial: Trial) -> None:
        self._tree = snapshot.tree
        self._space = snapshot.space
        self._trial = trial
        self._decisions: list[Decision] = []
        self._all_cursors = {
            name: pending.cursor(self._space.gpu_types)
            for name, pending in snapshot.pending.items()
            if len(pending)
        }
        self._cursors: dict[str, Cursor] = {}  # those that still have a job to look at in this pass
        #: By queue name: how many leaves at or below it still have a job to look at.
        self._live: dict[str, int] = {}
        self._order = {name: index for index, name in enumerate(self._tree.queues)}
        #: Leaves whose head is a claim, by how full their guarantee was when they were put in (use only grows here).
        self._claims: list[tuple[float, int, str]] = []

    def run(self) -> list[Decision]:
        """Passes until one starts nothing: what a job in front lacks may have changed by what started after it.

        So the result is stable: deciding again on it starts nothing more.
        """
        while True:
            before = len(self._decisions)
            self._pass()
            if len(self._decisions) == before:
                return self._decisions

    def _pass(self) -> None:
        for name, cursor in self._all_cursors.items():
            cursor.restart()
            self._cursors[name] = cursor
            for queue in self._tree[name].path():
                self._live[queue.name] = self._live.get(queue.name, 0) + 1
            self._offer(name)
        while self._cursors:
            claimant = self._next_claim()
            leaf = claimant or self._next_borrower()
            self._try_head(leaf, borrowed=claimant is None)

    # ---- whose turn it is

    def _offer(self, leaf: str) -> None:
        """The leaf has a (new) head: note it if that is a claim; take the leaf out if it has none."""
        job = self._cursors[leaf].head()
        if job is None:
            del self._cursors[leaf]
            for queue in self._tree[leaf].path():
                self._live[queue.name] -= 1
        elif self._is_claim(job):
            heapq.heappush(self._claims, (self._tree.used_over_guaranteed(leaf), self._order[leaf], leaf))

    def _is_claim(self, job: Job) -> bool:
        return job.spec.tier < 2 and self._tree.is_within_guarantee(job.spec.queue, job.spec.request())

    def _next_claim(self) -> str | None:
        """The claim of the queue whose guarantee is least used. Entries that others' starts made stale are renewed."""
        while self._claims:
            fullness, order, leaf = heapq.heappop(self._claims)
            job = self._cursors[leaf].head() if leaf in self._cursors else None
            if job is None or not self._is_claim(job):
                continue
            present = self._tree.used_over_guaranteed(leaf)
            if present == fullness:
                return leaf
            heapq.heappush(self._claims, (present, order, leaf))
        return None

    def _next_borrower(self) -> str:
        """Down from the root, always to the live child with the smallest weighted dominant share."""
        queue: Queue = self._tree.root
        while not queue.is_leaf:
            live = [child for child in queue.children if self._live.get(child.name)]
            queue = min(live, key=self._tree.weighted_share)
        return queue.name

    # ---- trying it

    def _try_head(self, leaf: str, borrowed: bool) -> None:
        cursor = self._cursors[leaf]
        job = cursor.head()
        assert job is not None  # leaves without a head are taken out
        excesses = self._tree.over_max(leaf, job.spec.request())
        if excesses:
            cursor.blocked({excess.resource for excess in excesses})
            self._offer(leaf)
            return
        limits = type_limits(self._tree, leaf, self._space.gpu_types)
        barred_types = cursor.barred_types
        placements = place_gang(
            self._space, job.spec.roles, avoid=job.avoid_nodes, limits=limits, barred_types=barred_types
        )
        if placements is None:
            lack = lacking_for(self._space, job.spec.roles, limits, barred_types)
            cursor.blocked(lack.resources or {GPU})
        else:
            self._trial.take(leaf, job.id, placements)
            self._decisions.append(Start(job.id, tuple(placements), borrowed))
            cursor.started()
        self._offer(leaf)
