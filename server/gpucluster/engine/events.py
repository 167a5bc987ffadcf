"""What happens to the engine: typed events in. One small dataclass each; no I/O, no clock (after dask's worker state machine)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..model.jobs import Job, JobState, Progress, Share, StopCause, TaskExit
from ..model.topology import Node, NodeHealth


@dataclasses.dataclass(frozen=True, slots=True)
class EngineEvent:
    """Base. The time of an event is the time of the step that handles it."""


@dataclasses.dataclass(frozen=True, slots=True)
class JobSubmitted(EngineEvent):
    """`job` is complete, normalised and checked; its state is pending.

    `verbatim` is the submission as it came (JSON, without blobs and secrets), kept beside the normalised one.
    `ended_dependencies` maps the jobs of `spec.after` that ended before to their end state, `dependency_numbers` to their
    short numbers, for people.
    """

    job: Job
    verbatim: bytes = b"{}"
    ended_dependencies: Mapping[str, JobState] = dataclasses.field(default_factory=dict)
    dependency_numbers: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class StopRequested(EngineEvent):
    """Cancel, evict, drain, time limit, migrate: `cause` says which. `actor` is a principal id."""

    job_id: str
    cause: StopCause
    actor: str
    reason: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ShareChanged(EngineEvent):
    job_id: str
    share: Share
    actor: str


@dataclasses.dataclass(frozen=True, slots=True)
class TaskStarted(EngineEvent):
    """The supervisor says that the task's program is up."""

    attempt_id: str
    rank: int


@dataclasses.dataclass(frozen=True, slots=True)
class TaskStartFailed(EngineEvent):
    """The task never ran. `retry` = worth another node or another try; else the job fails with `reason`."""

    attempt_id: str
    rank: int
    reason: str
    retry: bool


@dataclasses.dataclass(frozen=True, slots=True)
class TaskEnded(EngineEvent):
    attempt_id: str
    rank: int
    exit: TaskExit


@dataclasses.dataclass(frozen=True, slots=True)
class TaskLost(EngineEvent):
    """The task is surely over and nobody knows how it ended (dead supervisor, node gone and its lease over)."""

    attempt_id: str
    rank: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class StepReported(EngineEvent):
    attempt_id: str
    progress: Progress


@dataclasses.dataclass(frozen=True, slots=True)
class EndedJobShared(EngineEvent):
    """The store has changed who may read a job that has ended: followers are told. `job` as it is now."""

    job: Job
    was: Share


@dataclasses.dataclass(frozen=True, slots=True)
class NodeChanged(EngineEvent):
    """A node joined, came back, or its health or inventory changed. A lost one has health `lost`.

    As its agent sees it: what an administrator set (NodeHealthSet) is laid over it by the engine.
    """

    node: Node


@dataclasses.dataclass(frozen=True, slots=True)
class NodeHealthSet(EngineEvent):
    """An administrator sets a node's health. It holds until one sets something else; `ready` leaves it to the agent.

    `actor` is a principal id, `actor_name` their name for people.
    """

    node: str
    health: NodeHealth
    actor: str
    actor_name: str
    reason: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TimerFired(EngineEvent):
    """Time has passed (time limits, back-off): nothing but a reason to run a cycle."""
