"""The engine's memory: jobs that have not ended, the queue tree and the nodes with their books, and the indexes on them.

`take` and `release` are the only ways to change the books, `add`, `move` and `remove` the only ways to change which jobs
are where. Everything derived is kept here and can be recounted from the jobs (engine/audit.py does).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

from ..model.errors import InvalidRequest, NotFound
from ..model.jobs import HOLDING_STATES, TASK_ENDED, Attempt, Job, JobState
from ..model.queues import QueueSpec
from ..model.resources import Resources, sum_resources
from ..model.topology import HealthSetting, Node, NodeHealth, under
from ..policy.decisions import Snapshot
from ..policy.explain import Known
from ..policy.pending import PendingQueue
from ..policy.space import ClusterSpace
from ..policy.tree import QueueTree
from .protocols import HistoryEntry

#: Transitions of one job that are kept in memory, for error texts.
STORY_LENGTH = 50
#: End states kept for submissions that name a job which ended a moment ago.
RECENTLY_ENDED = 4096
_NOTHING = Resources()


class OwnerBooks:
    """What one principal has in memory: jobs that have not ended, how many wait and hold, and what they hold by queue."""

    __slots__ = ("holding", "jobs", "used", "waiting")

    def __init__(self) -> None:
        self.jobs: dict[str, None] = {}  # ids, in the order of submission
        self.waiting = 0
        self.holding = 0
        self.used: dict[str, Resources] = {}  # at or below a queue; queues without any are not there


class ClusterState:
    """Read it freely; only the engine writes it."""

    def __init__(self, queues: Sequence[QueueSpec], nodes: Iterable[Node] = ()) -> None:
        #: The nodes as their agents see them, and what an administrator set; `nodes` has both together.
        self.reported: dict[str, Node] = {node.name: node for node in nodes}
        self.settings: dict[str, HealthSetting] = {}
        self.space = ClusterSpace(self.reported.values())
        self.tree = QueueTree(queues, self.space.capacity())
        self.jobs: dict[str, Job] = {}
        self.by_number: dict[int, str] = {}
        self.by_key: dict[tuple[str, str], str] = {}  # (owner id, idempotency key) -> job id
        self.by_attempt: dict[str, str] = {}  # active attempts -> job id
        self.pending: dict[str, PendingQueue] = {queue.name: PendingQueue() for queue in self.tree.leaves()}
        self.waiting: dict[str, int] = {}  # pending jobs at or below a queue, ready or not
        self.holding: dict[str, int] = {}  # jobs at or below a queue that hold resources
        self.owners: dict[str, OwnerBooks] = {}  # by principal id: those with jobs that have not ended
        self.unmet: dict[str, set[str]] = {}  # waiting job -> jobs that it still waits for
        self.dependents: dict[str, list[str]] = {}  # job -> jobs that wait for it
        self.recently_ended: OrderedDict[str, JobState] = OrderedDict()
        #: What was worked out about waiting jobs since the last step (policy/explain.py); the engine empties it.
        self.reasons: Known = {}
        self._stories: dict[str, deque[HistoryEntry]] = {}

    # ---- looking

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes that have reported, by name. To be read only."""
        return self.space.nodes

    def snapshot(self) -> Snapshot:
        """What the policy decides on: the books themselves, not a copy."""
        return Snapshot(self.tree, self.space, self.pending)

    def job(self, job_id: str) -> Job:
        """Raises NotFound for a job that is unknown or has ended."""
        try:
            return self.jobs[job_id]
        except KeyError:
            raise NotFound(f"no job {job_id!r} waits or runs") from None

    def job_of_attempt(self, attempt_id: str) -> Job | None:
        """The job whose active attempt this is."""
        job_id = self.by_attempt.get(attempt_id)
        return self.jobs[job_id] if job_id is not None else None

    def holder_of(self, node: str, gpu_uuid: str) -> Job | None:
        """The job that holds a GPU."""
        attempt_id = self.space[node].held.get(gpu_uuid) if node in self.space else None
        return self.job_of_attempt(attempt_id) if attempt_id is not None else None

    def is_ready(self, job: Job) -> bool:
        """Pending, and held up by nothing but its turn and the resources."""
        return job.number in self.pending[job.spec.queue]

    def story(self, job_id: str) -> Sequence[HistoryEntry]:
        """The last transitions of a job since this engine knows it."""
        return tuple(self._stories.get(job_id, ()))

    # ---- jobs

    def add(self, job: Job) -> None:
        """A job that has not ended is known from now on. It is not ready yet, and holds nothing yet."""
        self.jobs[job.id] = job
        self.by_number[job.number] = job.id
        if job.idempotency_key is not None:
            self.by_key[job.owner.id, job.idempotency_key] = job.id
        self._stories[job.id] = deque(maxlen=STORY_LENGTH)
        self.owners.setdefault(job.owner.id, OwnerBooks()).jobs[job.id] = None
        self._count(job, +1)

    def wait_for(self, job: Job, dependencies: Iterable[str]) -> None:
        """The job waits for these others, all of them known here."""
        unmet = set(dependencies)
        if not unmet:
            return
        self.unmet[job.id] = unmet
        for dependency in unmet:
            self.dependents.setdefault(dependency, []).append(job.id)

    def met(self, job: Job, dependency: str) -> bool:
        """One dependency less. True when it was the last."""
        unmet = self.unmet[job.id]
        unmet.discard(dependency)
        if unmet:
            return False
        del self.unmet[job.id]
        return True

    def make_ready(self, job: Job) -> None:
        """A pending job may start from now on."""
        self.pending[job.spec.queue].add(job)

    def move(self, job: Job, to: JobState) -> None:
        """Change the job's state, and with it where it is indexed. Whether it may is checked elsewhere."""
        if job.state is JobState.PENDING and self.is_ready(job):
            self.pending[job.spec.queue].remove(job)
        self._count(job, -1)
        job.state = to
        self._count(job, +1)

    def remember(self, entry: HistoryEntry) -> None:
        """Part of the job's story."""
        if entry.job_id in self._stories:
            self._stories[entry.job_id].append(entry)

    def remove(self, job: Job) -> None:
        """An ended job leaves memory."""
        del self.jobs[job.id]
        del self.by_number[job.number]
        owner = self.owners[job.owner.id]
        del owner.jobs[job.id]
        if not owner.jobs:
            del self.owners[job.owner.id]
        if job.idempotency_key is not None:
            self.by_key.pop((job.owner.id, job.idempotency_key), None)
        for dependency in self.unmet.pop(job.id, ()):
            self.dependents[dependency].remove(job.id)
            if not self.dependents[dependency]:
                del self.dependents[dependency]
        self._stories.pop(job.id, None)
        self.recently_ended[job.id] = job.state
        if len(self.recently_ended) > RECENTLY_ENDED:
            self.recently_ended.popitem(last=False)

    def _count(self, job: Job, sign: int) -> None:
        owner = self.owners[job.owner.id]
        if job.state is JobState.PENDING:
            counts = self.waiting
            owner.waiting += sign
        elif job.state in HOLDING_STATES:
            counts = self.holding
            owner.holding += sign
        else:
            return
        for queue in self.tree[job.spec.queue].path():
            counts[queue.name] = counts.get(queue.name, 0) + sign

    # ---- the books

    def take(self, job: Job, attempt: Attempt) -> None:
        """The attempt holds its placements from now: GPUs, CPU and memory of nodes, use of the queue."""
        self.space.take(attempt.id, attempt.placements)
        held = held_by(attempt)
        self.tree.take(job.spec.queue, held)
        self._add_use(job, held)
        self.by_attempt[attempt.id] = job.id

    def release(self, job: Job, attempt: Attempt) -> None:
        """The reverse of `take`, once every task of the attempt is over."""
        del self.by_attempt[attempt.id]
        held = held_by(attempt)
        self.tree.release(job.spec.queue, held)
        self._add_use(job, held * -1)
        self.space.release(attempt.id, attempt.placements)

    def _add_use(self, job: Job, amounts: Resources) -> None:
        """To the books of the job's owner."""
        used = self.owners[job.owner.id].used
        for queue in self.tree[job.spec.queue].path():
            total = used.get(queue.name, _NOTHING) + amounts
            if total:
                used[queue.name] = total
            else:
                used.pop(queue.name, None)

    def set_node(self, node: Node) -> None:
        """A node joined or its agent sees it otherwise than before; guarantees and shares are measured anew."""
        self.reported[node.name] = node
        effective = under(node, self.settings.get(node.name))
        if effective != self.nodes.get(node.name):
            self.space.set_node(effective)
            self.tree.set_capacity(self.space.capacity())

    def set_health(self, setting: HealthSetting) -> None:
        """An administrator's setting; of a node that has not reported yet it counts from when it does."""
        self.settings[setting.node] = setting
        if setting.node in self.reported:
            self.set_node(self.reported[setting.node])

    def given_up(self, node: str) -> HealthSetting | None:
        """The setting by which an administrator gave the node up; None when it is not given up."""
        setting = self.settings.get(node)
        return setting if setting is not None and setting.health is NodeHealth.LOST else None

    def has_tasks(self, node: str) -> bool:
        """Whether any task there is not known to be over. Cost: a walk over the active attempts."""
        return any(
            task.placement.node == node and task.state not in TASK_ENDED
            for job_id in self.by_attempt.values()
            for attempt in (self.jobs[job_id].attempt,)
            if attempt is not None
            for task in attempt.tasks
        )

    def keep_queue(self, name: str) -> None:
        """Jobs of a queue that was removed keep a queue of that name: guaranteed nothing, open to nobody."""
        if name in self.tree and self.tree[name].is_leaf and self.tree[name].parent is not None:
            return
        if name in self.tree:
            reason = f"queue {name!r} has jobs in it that have not ended, so it cannot be given children"
            raise InvalidRequest("queues", reason, "Let them end first, or give the children another parent.")
        self.tree.add(QueueSpec(name=name, guaranteed={}, submit_users=(), description="removed"))
        self.tree.set_capacity(self.space.capacity())
        self.pending[name] = PendingQueue()


def held_by(attempt: Attempt) -> Resources:
    """The resource vector of all tasks of an attempt."""
    return sum_resources(placement.resources for placement in attempt.placements)
