"""What the engine needs of the world, as small protocols. Live service and simulator differ only in who implements them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from ..model.events import PublishedEvent
from ..model.jobs import Attempt, Job, Program, Progress, TaskPlacement
from ..model.topology import HealthSetting, Node
from .events import EngineEvent
from .instructions import StartTask, StopTask


class Clock(Protocol):
    """`now_us`: microseconds since the epoch, for people and rows. `boot_s`: seconds of the boot-time clock, for durations."""

    def now_us(self) -> int: ...
    def boot_s(self) -> float: ...


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One transition of a job: cause, time, actor (DESIGN section 5)."""

    job_id: str
    time_us: int
    from_state: str | None
    to_state: str
    cause: str
    actor: str
    attempt: int | None = None
    detail: str | None = None


class ChangeSet(msgspec.Struct, kw_only=True):
    """All that one engine step changes: written in one transaction, before anything of it is acted on or acknowledged."""

    time_us: int = 0
    new_jobs: list[Job] = []
    submissions: dict[str, bytes] = {}  # of the new jobs: what was submitted, verbatim, by job id
    jobs: list[Job] = []  # changed ones (the whole record; each at most once)
    attempts: list[Attempt] = []  # new or changed
    history: list[HistoryEntry] = []
    steps: list[tuple[str, str, Progress]] = []  # (job id, attempt id, report)
    events: list[PublishedEvent] = []
    health_settings: list[HealthSetting] = []  # new ones; each replaces the node's earlier one

    @property
    def is_empty(self) -> bool:
        return not (
            self.new_jobs
            or self.jobs
            or self.attempts
            or self.history
            or self.steps
            or self.events
            or self.health_settings
        )


class Recovered(msgspec.Struct, kw_only=True):
    """What a restarted engine reads: every job that has not ended (with its active attempt), and where the counters stand."""

    jobs: list[Job]
    last_seq: int
    last_job_number: int
    ended_states: dict[str, str] = {}  # state of ended jobs that a waiting one depends on (`after`), by id
    health_settings: list[HealthSetting] = []  # the newest of each node


class Journal(Protocol):
    """The part of the store that the engine writes. Blocking; the live driver calls it on a thread of its own."""

    def commit(self, changes: ChangeSet) -> None:
        """Durable when it returns. Raises Unavailable (disk full, locked) and then nothing of it is written."""
        ...

    def recover(self) -> Recovered: ...


class TaskOrder(msgspec.Struct, frozen=True, kw_only=True):
    """All that a backend needs to run one task."""

    job_id: str
    job_number: int
    job_name: str
    attempt_id: str
    attempt_number: int
    owner: str  # principal id
    owner_name: str
    queue: str
    placement: TaskPlacement
    world_size: int
    local_world_size: int = 1  # tasks of the gang on this task's node
    master_addr: str
    master_port: int
    program: Program
    secret_env: dict[str, str] = {}
    grace_s: float = 10.0


class TaskAdoption(msgspec.Struct, frozen=True, kw_only=True):
    """A task that the store says is on a node, asked after by a restarted scheduler.

    `reported_us`: step reports of this task up to this time (microseconds since the epoch) are in the store; the
    backend reports the later ones again, so that none is lost.
    """

    job_id: str
    attempt_id: str
    placement: TaskPlacement
    reported_us: int = 0


Emit = Callable[
    [EngineEvent], None
]  #: how a backend tells the engine; safe to call from its own event loop only


class BlobAccess(Protocol):
    """What a backend needs of the blob store. Blocking; called on threads."""

    def place(self, blob_hash: str, path: str) -> None:
        """Make the blob's content appear as the file `path`, for a task that may do with it what it likes. Raises NotFound."""
        ...

    def take(self, path: str, blob_hash: str) -> None:
        """Take a file of a task in as a blob, by a copy. Raises NotFound, InvalidRequest (no file, another SHA-256),
        TooLarge; Unavailable when it is worth another try.
        """
        ...


class Backend(Protocol):
    """Where tasks run. All methods return fast; what comes of them arrives as events through `emit`.

    Exactly-once: `start` of the same (attempt, rank) twice runs it at most once. After `adopt`, each task named there
    ends in exactly one of TaskStarted (it runs), TaskEnded, TaskStartFailed(retry=True) (it surely never ran and never
    will) or TaskLost (it ran and is surely over).
    """

    async def open(self, emit: Emit) -> Sequence[Node]:
        """Bring the agents up; returns the nodes. Later changes arrive as NodeChanged."""
        ...

    async def adopt(self, tasks: Iterable[TaskAdoption]) -> None: ...
    async def start(self, order: TaskOrder) -> None: ...
    async def stop(self, instruction: StopTask) -> None: ...
    async def give_up(self, node: str) -> None:
        """An administrator has given this node up: end what runs there, without grace, and report TaskLost for each of
        its tasks once that one is surely over. A task that ended before it was reached is told as it ended, one that
        never ran as TaskStartFailed(retry=True): one event for each task, also when this is asked again.

        What *surely over* takes is the backend's to know. Where the tasks share the scheduler's machine (local), their
        trees are killed and seen to be gone. Over several machines, an agent that can be reached does the same; where
        it cannot, the report waits until the leases of the node's tasks have surely run out: then their supervisors
        have ended them by themselves, and the fencing token makes worthless what an old attempt still sends.

        The node gets no new task before it is set ready again; that is not told, `start` names it again then.
        """
        ...

    def meeting_point(self, placements: Sequence[TaskPlacement]) -> tuple[str, int]:
        """Address and TCP port at which the tasks of a gang find each other (MASTER_ADDR, MASTER_PORT): on the node of its
        rank 0, reachable from the nodes of the others, and free at this moment. Asked once for each attempt.
        """
        ...

    def task_notes(self) -> Mapping[tuple[str, int], str]:
        """What a person should know about running tasks, by (attempt id, rank): those that go on with less than the
        usual care, say. Most have none.
        """
        ...

    async def warm(self, program: Program, owner: str) -> None:
        """Prepare (a fork server, an image) for programs like this one. A hint; never an error."""
        ...

    def log_reader(self, attempt_id: str, placement: TaskPlacement) -> LogReader: ...
    async def discard(self, attempt_id: str) -> None:
        """Forget an ended attempt's files (retention)."""
        ...

    async def close(self) -> None:
        """Let go without ending tasks: supervisors keep them."""
        ...


class LogReader(Protocol):
    """One attempt's log of one rank: framed records (worker/frames.py) at byte offsets."""

    def size(self) -> int: ...
    def read(self, offset: int, max_bytes: int) -> bytes:
        """Raw bytes of whole frames from `offset`; empty at the end of what is written so far."""
        ...

    def wait(self, offset: int) -> Awaitable[None]:
        """Returns when the log may have grown beyond `offset`, or will not grow any more."""
        ...


class OrderFactory(Protocol):
    """Turns an instruction into all that the backend needs (adds secrets, master address, program)."""

    def __call__(self, instruction: StartTask) -> TaskOrder: ...
