"""Jobs, attempts, tasks and placements (DESIGN sections 1 and 5)."""

from __future__ import annotations

import enum

import msgspec

from .principals import Principal
from .resources import CPU, GPU, MEMORY, Resources


class JobState(str, enum.Enum):
    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED_STATES = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
#: States in which an attempt of the job holds its GPUs.
HOLDING_STATES = frozenset({JobState.STARTING, JobState.RUNNING, JobState.SUSPENDED, JobState.STOPPING})


class StopCause(enum.Enum):
    """Why an attempt is being stopped, weakest first: a later cause replaces an earlier one only if it is stronger.

    The order follows where the job ends (DESIGN section 5): back to pending, failed, cancelled. So a cancel during an
    eviction ends in cancelled, and an eviction during a cancel changes nothing. What is stored and shown is the label:
    a cause that is added in between later changes no row.
    """

    MIGRATE = "migrate"
    EVICT = "evict"
    DRAIN = "drain"
    LOST = "lost"  # a task of the gang was lost, the rest is ended
    START_FAILED = "start_failed"  # a task could not start
    TASK_FAILED = "task_failed"  # a task ended badly, the rest is ended
    TIME_LIMIT = "time_limit"
    CANCEL = "cancel"

    @property
    def label(self) -> str:
        return self.value

    @property
    def rank(self) -> int:
        """How strong the cause is, 1 = weakest. Of this version only: never stored."""
        return _STOP_RANKS[self]

    def __lt__(self, other: StopCause) -> bool:
        return self.rank < other.rank

    def __le__(self, other: StopCause) -> bool:
        return self.rank <= other.rank


_STOP_RANKS = {cause: rank for rank, cause in enumerate(StopCause, 1)}


class Requeue(str, enum.Enum):
    """What happens when an attempt is lost or evicted through no fault of the job's own."""

    ALWAYS = "always"
    NEVER = "never"


class Share(str, enum.Enum):
    """Who may read the job's code, logs and outputs beside its owner."""

    OWNER = "owner"
    QUEUE = "queue"
    EVERYONE = "everyone"


class TaskRole(msgspec.Struct, frozen=True, kw_only=True):
    """A group of equal tasks. `gpus` and `cpus` in thousandths, `memory` in bytes, each of one task."""

    name: str = "worker"
    count: int = 1
    gpus: int = 1000
    cpus: int = 1000
    memory: int = 0
    gpu_types: tuple[str, ...] = ()  # acceptable types in order of preference; empty = any

    def request(self) -> Resources:
        """The resource vector of one task. The GPU type is settled by placement, so only the untyped amount stands here."""
        return Resources({GPU: self.gpus, CPU: self.cpus, MEMORY: self.memory})


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the policy sees it: normalised, with every default filled in. What it runs is a `Program`."""

    name: str
    queue: str
    roles: tuple[TaskRole, ...]
    tier: int = 1
    priority: int = 0
    time_limit_s: float | None = None
    grace_s: float = 10.0
    retries: int = 0
    requeue: Requeue = Requeue.ALWAYS
    after: tuple[str, ...] = ()  # long ids of jobs that must succeed first
    share: Share = Share.OWNER

    @property
    def task_count(self) -> int:
        return sum(role.count for role in self.roles)

    def request(self) -> Resources:
        """The resource vector of the whole gang (GPUs untyped)."""
        total = Resources()
        for role in self.roles:
            total = total + role.request() * role.count
        return total


class ProgramKind(str, enum.Enum):
    CELL = "cell"
    FUNCTION = "function"
    COMMAND = "command"


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What a task runs, and its environment (DESIGN section 4). Opaque to the policy.

    `inputs` and `results` speak of blobs by SHA-256. `env` never holds secrets: those travel beside the job and are
    named in `secret_env` only.
    """

    kind: ProgramKind
    source: str  # the cell's text, the command line, or the display text of a function call
    command: tuple[str, ...] = ()  # for kind=command: argv
    interpreter: str | None = None  # path of the Python that runs the cell; None = the scheduler's own
    cwd: str | None = None
    sys_path: tuple[str, ...] = ()
    env: dict[str, str] = {}
    secret_env: tuple[str, ...] = ()
    inputs: InputManifest | None = None
    outputs: tuple[str, ...] = ()  # names that the cell assigns and that come back
    mutable_inputs: tuple[str, ...] = ()  # names of inputs that are compared by digest before and after
    digest_budget_bytes: int = 256 << 20
    notebook_path: str | None = None
    cell_id: str | None = None
    execution_count: int | None = None  # the notebook's number of this run of the cell, as in In [7]
    fills_cell: bool = False  # the cell waits and shows nothing but the job
    git_commit: str | None = None


class InputManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The pickled names of the notebook: one in-band pickle and its out-of-band buffers, all of them blobs.

    `pickle` unpickles (protocol 5, `buffers` in this order) to a dict from name to value.
    """

    pickle: str
    buffers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    total_bytes: int = 0


class TaskPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """Where one task runs. `rank` counts over the whole gang, `local_rank` within the node."""

    role: str
    rank: int
    local_rank: int
    node: str
    gpus: tuple[str, ...]  # UUIDs
    resources: Resources  # with GPU types


class TaskState(str, enum.Enum):
    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"


TASK_ENDED = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.LOST})


class TaskExit(msgspec.Struct, frozen=True, kw_only=True):
    """How one task ended. `code` as of a shell (128 + signal for a signal); `reason` is one sentence for people."""

    code: int
    signal: int | None = None
    oom: bool = False
    reason: str | None = None
    error_name: str | None = None  # exception class of the cell, when it raised
    error_value: str | None = None
    ended_us: int = 0  # microseconds since the epoch
    #: The stop that the task had been given notice of before it ended: label of a StopCause, or "signal" (a SIGTERM to
    #: its supervisor); None when it ended by itself. Its supervisor knows, so nobody need compare clocks.
    stop_cause: str | None = None
    result: ResultManifest | None = None


class ResultManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of a cell: names that are in `pickle` (a dict), the value of its last expression, what did not come.

    Same blob layout as InputManifest. `has_value` tells whether key `value_key` of the dict is the last expression's
    value (its name cannot be that of a variable). `missing` maps a name to the reason why it stays unbound.
    """

    pickle: str | None = None
    buffers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()  # inputs changed in place, also in `names`
    deleted: tuple[str, ...] = ()  # inputs that the cell deleted
    has_value: bool = False
    value_key: str = "<value>"
    missing: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    total_bytes: int = 0


class Task(msgspec.Struct, kw_only=True):
    """One task of an attempt: the mutable record that the engine keeps."""

    placement: TaskPlacement
    state: TaskState = TaskState.STARTING
    exit: TaskExit | None = None

    @property
    def rank(self) -> int:
        return self.placement.rank


class AttemptState(str, enum.Enum):
    ACTIVE = "active"
    ENDED = "ended"
    LOST = "lost"


class Attempt(msgspec.Struct, kw_only=True):
    """One try at running a job. It holds its GPUs from creation until `ended_us` is set."""

    id: str
    job_id: str
    number: int  # 1, 2, …
    tasks: list[Task]
    state: AttemptState = AttemptState.ACTIVE
    created_us: int = 0
    started_us: int | None = None  # all tasks up
    ended_us: int | None = None
    outcome: str | None = None  # succeeded | failed | lost | a StopCause label
    reason: str | None = None

    @property
    def placements(self) -> list[TaskPlacement]:
        return [task.placement for task in self.tasks]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The newest step report of rank 0 (or of the rank that reports)."""

    step: int
    total: int | None = None
    metrics: dict[str, float] = {}
    time_us: int = 0
    rank: int = 0
    source: str = "report"  # report | tqdm | …
    description: str | None = None


class Job(msgspec.Struct, kw_only=True):
    """The mutable record of a job that the engine keeps. `attempt` is the current or last one."""

    id: str
    number: int
    owner: Principal
    spec: JobSpec
    program: Program
    state: JobState = JobState.PENDING
    submitted_us: int = 0
    queued_us: int = 0  # last time it became pending
    first_started_us: int | None = None
    first_feedback_us: int | None = None
    ended_us: int | None = None
    attempt: Attempt | None = None
    attempts_made: int = 0
    failures: int = 0  # attempts that failed through the job's own fault
    losses: int = 0  # attempts lost or evicted
    start_failures: int = 0  # attempts in a row of which a task could not start
    not_before_us: int = 0  # back-off: not placed before this time
    avoid_nodes: tuple[str, ...] = ()  # nodes on which a start failed lately
    stop_cause: StopCause | None = None
    stop_actor: str | None = None
    reason: str | None = None  # why it is in this state, for people
    progress: Progress | None = None
    idempotency_key: str | None = None

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED_STATES
