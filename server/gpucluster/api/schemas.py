"""What goes over the wire. Unknown fields of a request are refused; times are microseconds since the epoch (UTC).

Bytes are base64 in JSON. Amounts keep the units of model/resources.py in views; a submission uses the units that
people write (GPUs and CPU cores as numbers, memory in bytes, seconds).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..model.jobs import InputManifest as InputManifest
from ..model.jobs import Progress as Progress
from ..model.jobs import ResultManifest as ResultManifest

API_PREFIX = "/v1"
PROTOCOL_MIN = 1
PROTOCOL_MAX = 1
#: Largest sum of blobs that may travel inside a submission; bigger ones are uploaded first.
INLINE_LIMIT_BYTES = 1 << 20
#: Default budget of all inputs of a job.
INPUT_LIMIT_BYTES = 4 << 30
#: One upload request carries at most this much of a blob.
CHUNK_BYTES = 8 << 20


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Base of request bodies."""


class RoleSubmission(Request, frozen=True):
    """A group of equal tasks; amounts are of one task. None = the cluster's default."""

    name: str = "worker"
    count: int = 1
    gpus: float = 1
    gpu_types: list[str] = []
    cpus: float | None = None
    memory_bytes: int | None = None


class JobSubmission(Request, frozen=True):
    """`POST /v1/jobs`. `idempotency_key`: a repeated request with the same key gives the same job (and 200, not 201)."""

    kind: Literal["cell", "function", "command"]
    source: str
    idempotency_key: str
    protocol: int = PROTOCOL_MAX
    roles: list[RoleSubmission] = msgspec.field(default_factory=lambda: [RoleSubmission()])
    command: list[str] = []
    name: str | None = None
    queue: str | None = None
    tier: int = 1
    priority: int = 0
    time_limit_s: float | None = None
    grace_s: float | None = None
    retries: int = 0
    requeue: Literal["always", "never"] = "always"
    after: list[str] = []
    share: Literal["owner", "queue", "everyone"] = "owner"
    interpreter: str | None = None
    cwd: str | None = None
    sys_path: list[str] = []
    env: dict[str, str] = {}
    secret_env: dict[str, str] = {}
    inputs: InputManifest | None = None
    outputs: list[str] = []
    mutable_inputs: list[str] = []
    digest_budget_bytes: int = 256 << 20
    notebook_path: str | None = None
    cell_id: str | None = None
    execution_count: int | None = None  # the notebook's number of this run of the cell, as in In [7]
    fills_cell: bool = False  # the cell waits and shows nothing but the job
    git_commit: str | None = None
    inline_blobs: dict[str, bytes] = {}


class CancelRequest(Request, frozen=True):
    reason: str | None = None


class ShareRequest(Request, frozen=True):
    share: Literal["owner", "queue", "everyone"]


class WarmRequest(Request, frozen=True):
    """`POST /v1/warm`: have a fork server ready for this interpreter and environment. A hint."""

    interpreter: str | None = None
    env: dict[str, str] = {}
    cwd: str | None = None
    sys_path: list[str] = []


class MissingRequest(Request, frozen=True):
    """`POST /v1/blobs/missing`: which of these blobs (SHA-256) the caller still has to upload."""

    hashes: list[str]


class NodeRequest(Request, frozen=True):
    """`POST /v1/nodes/{name}`: an administrator cordons a node, gives it up or puts it back. It holds over restarts.

    `lost` ends what runs there at once: those jobs run elsewhere, or fail with requeue never.
    """

    health: Literal["ready", "cordoned", "lost"]
    reason: str | None = None


# ---- answers


class ErrorBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    code: str
    reason: str
    field: str | None = None
    hint: str | None = None


class ErrorAnswer(msgspec.Struct, kw_only=True):
    error: ErrorBody


class Hello(msgspec.Struct, kw_only=True):
    version: str
    protocol: tuple[int, int]
    cluster: str
    principal: str  # id of the caller
    principal_name: str
    simulated: bool  # True when any GPU is declared rather than found
    default_queue: str
    boot_id: str
    pid: int


class TaskView(msgspec.Struct, kw_only=True):
    role: str
    rank: int
    node: str
    gpus: list[str]
    gpu_indices: list[int]
    state: str
    exit_code: int | None = None
    reason: str | None = None
    cpu_percent: float | None = (
        None  # of one core, over the last seconds; None = not running or not measured yet
    )
    memory_bytes: int | None = None  # resident memory of all its processes, shared pages counted in each
    note: str | None = None  # what its owner should know while it runs
    ended_us: int | None = None
    stop_cause: str | None = (
        None  # the stop it had notice of before it ended; None = it ended by itself, or runs
    )


class AttemptView(msgspec.Struct, kw_only=True):
    id: str
    number: int
    state: str
    created_us: int
    started_us: int | None
    ended_us: int | None
    outcome: str | None
    reason: str | None
    tasks: list[TaskView]  # in a list of jobs the first ones alone
    tasks_left_out: int = 0


class JobView(msgspec.Struct, kw_only=True):
    """A job as the caller may see it. `full` is False for a stranger's job: then code and outputs are left out."""

    id: str
    number: int
    name: str
    owner: str
    owner_name: str
    mine: bool
    queue: str
    state: str
    reason: str | None
    waits: str | None  # one sentence while pending
    position: int | None  # place in the queue, 1 = next
    tier: int
    priority: int
    gpus: float  # of the whole gang
    gpu_types: list[str]
    tasks: int
    cpus: float
    memory_bytes: int
    time_limit_s: float | None
    submitted_us: int
    started_us: int | None
    ended_us: int | None
    first_feedback_us: int | None
    attempts_made: int
    attempt: AttemptView | None
    progress: Progress | None
    share: str
    notebook_path: str | None
    cell_id: str | None
    can_control: bool
    can_read: bool
    seq: int  # of the last event that is in this view
    execution_count: int | None = None  # of the cell, for readers: its In [7]
    fills_cell: bool = False  # for readers: the cell waits and shows nothing but the job


class JobList(msgspec.Struct, kw_only=True):
    """A page of jobs, newest first. To stay small it has of each job the first tasks and the beginning of long reasons."""

    jobs: list[JobView]
    next_before: str | None = None  # pass as ?before= for the next page
    seq: int = 0


class HistoryView(msgspec.Struct, kw_only=True):
    time_us: int
    from_state: str | None
    to_state: str
    cause: str
    actor: str
    attempt: int | None
    detail: str | None


class WhyView(msgspec.Struct, kw_only=True):
    """Why a job is where it is. `verdict`: starts_when | never | starting | running | ended."""

    job_id: str
    verdict: str
    code: str  # typed reason, e.g. queue_max, no_gpus_free, dependency, back_off, behind, node_lost
    sentence: str
    facts: dict[str, Any] = {}
    position: int | None = None


class DryRun(msgspec.Struct, kw_only=True):
    """What a submission would do; nothing was submitted."""

    queue: str
    roles: list[dict[str, Any]]
    starts_now: bool
    sentence: str
    placement: list[TaskView] = []
    uploads_bytes: int = 0


class QueueView(msgspec.Struct, kw_only=True):
    name: str
    parent: str | None
    is_leaf: bool
    guaranteed: dict[str, int]
    max: dict[str, int]
    used: dict[str, int]
    borrowed: dict[str, int]
    mine: dict[str, int]
    waiting: int
    running: int
    weight: int
    ordering: str
    may_submit: bool
    description: str = ""
    #: Idle healthy GPUs that the queue could take now, by resource name as in `used` ("gpu", "gpu/A100"), in thousandths:
    #: within its guarantee at every level (nobody can claim them back) …
    free_for_good: dict[str, int] = {}
    #: … and beyond it, up to every maximum on its path: lent until their owner claims them.
    free_until_reclaimed: dict[str, int] = {}
    #: Of the guarantee, what is neither used by the queue nor idle: lent to others at present.
    lent_out: dict[str, int] = {}


class GpuView(msgspec.Struct, kw_only=True):
    uuid: str
    index: int
    type: str
    memory_bytes: int
    socket: int
    switch: int
    nvlink_island: int | None
    health: str
    note: str | None
    simulated: bool
    job_number: int | None = None  # of the job on it, when the caller may know it
    job_name: str | None = None
    job_id: str | None = None
    occupied: bool = False
    mine: bool = False
    utilization_percent: int | None = None
    memory_used_bytes: int | None = None


class NodeView(msgspec.Struct, kw_only=True):
    name: str
    rack: str
    health: str
    simulated: bool
    capacity: dict[str, int]
    used: dict[str, int]
    gpus: list[GpuView]
    notes: list[str] = []  # sentences that say the next three fields, and more
    set_by: str | None = None  # the administrator who set it cordoned or lost; None = its agent sees it so
    set_reason: str | None = None
    set_us: int | None = None


class TopologyView(msgspec.Struct, kw_only=True):
    cluster: str
    levels: list[str]
    nodes: list[NodeView]
    seq: int = 0


class StatusView(msgspec.Struct, kw_only=True):
    cluster: str
    version: str
    pid: int
    started_us: int
    data_dir: str
    address: str
    simulated: bool
    nodes: int
    gpus: int
    gpus_used: int
    gpus_healthy: int
    jobs: dict[str, int]  # by state
    notes: list[str] = []
    seq: int = 0


class StreamItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of `GET /v1/jobs/{id}/output` (NDJSON): what a notebook needs to redraw and follow a job.

    type = "job": a state view (`job`), sent first and at each change of state, reason or progress.
    type = "record": one log record of the asked rank (`attempt`, `kind` as frames.Kind name in lower case, `sequence`,
    `offset`, `time_us`, `payload` bytes as in the frame).
    type = "attempt": a new attempt's records follow from `offset` on (the earlier ones stay); `nodes`: where it runs or ran.
    type = "gone": the log of `attempt` is not there (any more) from `offset` on: it was removed at `time_us` by `reason` ("the
    retention of 30 days"), or by somebody else (then both are unset). Nothing more of that attempt follows.
    type = "end": the job has ended and everything was sent.
    type = "alive": nothing new for some seconds.
    """

    type: str
    job: JobView | None = None
    attempt: int = 0
    kind: str | None = None
    sequence: int = 0
    offset: int = 0
    time_us: int = 0
    payload: bytes | None = None
    reason: str | None = None
    nodes: list[str] = []  # each once, by rank


class ResultView(msgspec.Struct, kw_only=True):
    """`GET /v1/jobs/{id}/result?rank=0`: blobs to fetch, and how the task ended."""

    job_id: str
    rank: int
    state: str
    result: ResultManifest | None
    exit_code: int | None
    reason: str | None
    error_name: str | None = None
    error_value: str | None = None


class BlobStatus(msgspec.Struct, kw_only=True):
    """How much of an upload is there; `complete` once its hash was checked."""

    hash: str
    received_bytes: int
    complete: bool


class Missing(msgspec.Struct, kw_only=True):
    missing: list[str]


class StepsView(msgspec.Struct, kw_only=True):
    job_id: str
    steps: list[Progress]


class EventView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of `GET /v1/events?after=SEQ` and one message of its WebSocket.

    kind = "resync" tells that `after` is too old (or of another cluster): fetch a snapshot and follow from its seq.
    kind = "alive" carries only the seq that the follower has passed.
    """

    seq: int
    kind: str
    time_us: int = 0
    version: int = 1
    data: dict[str, Any] = {}


#: What a page can follow: `status` (figures of the whole cluster), `queues`, `nodes` (the topology), `jobs` (all that the
#: caller may see) or `mine` (the caller's own).
Topic = Literal["status", "queues", "nodes", "jobs", "mine"]
TOPICS: tuple[Topic, ...] = ("status", "queues", "nodes", "jobs", "mine")


class LiveStatus(msgspec.Struct, kw_only=True):
    """The cluster in a few figures, all from memory."""

    cluster: str
    simulated: bool  # any GPU is declared rather than found
    principal: str  # id of the caller
    principal_name: str
    is_admin: bool
    levels: list[str]  # of the topology, from the largest cell to the smallest
    nodes: int
    gpus: int
    gpus_healthy: int
    gpus_used: int
    running: int  # jobs that hold GPUs or other resources
    waiting: int
    my_running: int
    my_waiting: int
    notes: list[str] = []


class LiveProgress(msgspec.Struct, kw_only=True):
    """A step report of a job whose view did not change otherwise."""

    job_id: str
    progress: Progress
    first_feedback_us: int | None = None


class LiveUpdate(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of `GET /v1/live`: what changed of what a page follows, as it is now (`api/live.py`).

    `seq`: of the newest event that is in it; a page that was cut off asks again with `after=seq` and gets what changed since.
    `full`: topics of which this line has everything: they replace what the page had. Of the others it has what changed, each
    thing whole (a job's or node's or queue's newest view), to be put in place of the one before.
    type = "update" | "alive" (nothing changed for some seconds: only `seq` and `time_us`).
    """

    type: Literal["update", "alive"]
    seq: int
    time_us: int
    full: list[Topic] = []
    status: LiveStatus | None = None
    queues: list[QueueView] = []
    nodes: list[NodeView] = []
    nodes_gone: list[str] = []
    jobs: list[
        JobView
    ] = []  # newest first; why they wait is told of the first 100 that wait, and of watched ones
    jobs_gone: list[str] = []  # ids: not to be seen (any more), or removed
    jobs_left_out: int = 0  # with `full`: older ones that did not fit in, as far as they were counted
    progress: list[LiveProgress] = []


class SourceView(msgspec.Struct, kw_only=True):
    """`GET /v1/jobs/{id}/source`: the code of the job, for its readers."""

    job_id: str
    kind: str
    source: str
    command: list[str]


class Done(msgspec.Struct, kw_only=True):
    """The answer of requests that have nothing else to tell (`/warm`, `/stop`)."""

    ok: bool = True
