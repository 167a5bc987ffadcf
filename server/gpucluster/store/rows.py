"""Model structs to rows and back. One place that knows which field of a struct stands in which column."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import RowMapping

from ..engine.protocols import HistoryEntry
from ..model.events import PublishedEvent
from ..model.jobs import (
    Attempt,
    AttemptState,
    Job,
    JobSpec,
    JobState,
    Program,
    Task,
    TaskExit,
    TaskPlacement,
    TaskState,
)
from ..model.principals import Principal
from ..model.queues import QueueSpec
from ..model.resources import GPU
from ..model.topology import HealthSetting, NodeHealth
from .codec import (
    as_rest,
    column_text,
    decode_progress,
    decoder,
    encode,
    encode_progress,
    fields_of,
    rest_of,
)

Row = RowMapping

#: Fields of Job whose columns hold the value itself.
_JOB_VALUES = (
    "id", "number", "submitted_us", "queued_us", "first_started_us", "first_feedback_us", "ended_us", "idempotency_key",
)  # fmt: skip
JobRest = rest_of(Job, (*_JOB_VALUES, "owner", "spec", "program", "state", "attempt", "progress"))
_ATTEMPT_VALUES = ("id", "job_id", "number", "created_us", "started_us", "ended_us", "outcome")
AttemptRest = rest_of(Attempt, (*_ATTEMPT_VALUES, "state", "tasks"))

_decode_owner = decoder(Principal).decode
_decode_spec = decoder(JobSpec).decode
_decode_program = decoder(Program).decode
_decode_job_rest = decoder(JobRest).decode
_decode_attempt_rest = decoder(AttemptRest).decode
_decode_placement = decoder(TaskPlacement).decode
_decode_exit = decoder(TaskExit).decode
_decode_queue = decoder(QueueSpec).decode
_decode_data = msgspec.json.Decoder(dict[str, Any]).decode

#: Columns of `jobs` that a changed job may change; the others are settled at submission.
JOB_CHANGES = (
    "visibility", "queue", "state", "tier", "priority", "queued_us", "first_started_us", "first_feedback_us",
    "ended_us", "attempt_id", "progress", "spec", "rest",
)  # fmt: skip
ATTEMPT_CHANGES = ("state", "created_us", "started_us", "ended_us", "outcome", "rest")
SETTING_CHANGES = ("health", "actor", "actor_name", "reason", "time_us")
TASK_CHANGES = (
    "role", "node", "gpus", "gpu_uuids", "resources", "state", "exit_code", "ended_us", "placement", "exit",
)  # fmt: skip


def job_changes(job: Job) -> dict[str, Any]:
    """Values of JOB_CHANGES."""
    return {
        "visibility": job.spec.share.value,
        "queue": job.spec.queue,
        "state": job.state.value,
        "tier": job.spec.tier,
        "priority": job.spec.priority,
        "queued_us": job.queued_us,
        "first_started_us": job.first_started_us,
        "first_feedback_us": job.first_feedback_us,
        "ended_us": job.ended_us,
        "attempt_id": job.attempt.id if job.attempt else None,
        "progress": encode_progress(job.progress) if job.progress else None,
        "spec": encode(job.spec),
        "rest": encode(as_rest(JobRest, job)),
    }


def job_row(job: Job) -> dict[str, Any]:
    request = job.spec.request()
    return {
        **{name: getattr(job, name) for name in _JOB_VALUES},
        **job_changes(job),
        "owner_id": job.owner.id,
        "owner_name": column_text(job.owner.name),
        "owner": encode(job.owner),
        "name": column_text(job.spec.name),
        "gpus": request[GPU],
        "request": encode(request),
        "tasks": job.spec.task_count,
        "notebook_path": column_text(job.program.notebook_path),
        "cell_id": column_text(job.program.cell_id),
        "git_commit": column_text(job.program.git_commit),
    }


def program_row(job: Job, submission: bytes) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "kind": job.program.kind.value,
        "source": column_text(job.program.source),
        "program": encode(job.program),
        "submission": submission,
    }


def job_of(row: Row, attempt: Attempt | None) -> Job:
    """The job of a row of `jobs` with the column `program` beside it."""
    return Job(
        **{name: row[name] for name in _JOB_VALUES},
        **fields_of(_decode_job_rest(row["rest"])),
        owner=_decode_owner(row["owner"]),
        spec=_decode_spec(row["spec"]),
        program=_decode_program(row["program"]),
        state=JobState(row["state"]),
        attempt=attempt,
        progress=decode_progress(row["progress"]) if row["progress"] else None,
    )


def attempt_row(attempt: Attempt) -> dict[str, Any]:
    return {
        **{name: getattr(attempt, name) for name in _ATTEMPT_VALUES},
        "state": attempt.state.value,
        "rest": encode(as_rest(AttemptRest, attempt)),
    }


def attempt_of(row: Row, tasks: list[Task]) -> Attempt:
    return Attempt(
        **{name: row[name] for name in _ATTEMPT_VALUES},
        **fields_of(_decode_attempt_rest(row["rest"])),
        state=AttemptState(row["state"]),
        tasks=tasks,
    )


def task_row(attempt_id: str, task: Task) -> dict[str, Any]:
    placement, ended = task.placement, task.exit
    return {
        "attempt_id": attempt_id,
        "rank": placement.rank,
        "role": placement.role,
        "node": placement.node,
        "gpus": placement.resources[GPU],
        "gpu_uuids": encode(placement.gpus),
        "resources": encode(placement.resources),
        "state": task.state.value,
        "exit_code": ended.code if ended else None,
        "ended_us": ended.ended_us if ended else None,
        "placement": encode(placement),
        "exit": encode(ended) if ended else None,
    }


def task_of(row: Row) -> Task:
    return Task(
        placement=_decode_placement(row["placement"]),
        state=TaskState(row["state"]),
        exit=_decode_exit(row["exit"]) if row["exit"] else None,
    )


def history_row(entry: HistoryEntry) -> dict[str, Any]:
    row = msgspec.structs.asdict(entry)
    for name in ("cause", "actor", "detail"):
        row[name] = column_text(row[name])
    return row


def history_of(row: Row) -> HistoryEntry:
    return HistoryEntry(**{name: row[name] for name in HistoryEntry.__struct_fields__})


def event_row(event: PublishedEvent) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "time_us": event.time_us,
        "kind": event.kind,
        "version": event.version,
        "job_id": event.job_id,
        "owner": event.owner,
        "queue": event.queue,
        "data": encode(event.data),
    }


def event_of(row: Row) -> PublishedEvent:
    return PublishedEvent(**{**row, "data": _decode_data(row["data"])})


def setting_row(setting: HealthSetting) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(setting),
        "health": setting.health.value,
        "actor_name": column_text(setting.actor_name),
        "reason": column_text(setting.reason),
    }


def setting_of(row: Row) -> HealthSetting:
    return HealthSetting(**{**row, "health": NodeHealth(row["health"])})


def queue_row(position: int, queue: QueueSpec) -> dict[str, Any]:
    return {
        "name": queue.name,
        "position": position,
        "parent": queue.parent,
        "guaranteed": None if queue.guaranteed is None else encode(queue.guaranteed),
        "maximum": None if queue.max is None else encode(queue.max),
        "spec": encode(queue),
    }


def queue_of(row: Row) -> QueueSpec:
    return _decode_queue(row["spec"])
