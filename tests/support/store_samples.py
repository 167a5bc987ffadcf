"""Sample jobs, attempts and change sets for tests of the store."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from pathlib import Path
from typing import Any

from gpucluster.engine.protocols import ChangeSet, HistoryEntry
from gpucluster.model.events import PublishedEvent
from gpucluster.model.ids import make_id
from gpucluster.model.jobs import (
    Attempt,
    InputManifest,
    Job,
    JobSpec,
    JobState,
    Program,
    ProgramKind,
    Task,
    TaskPlacement,
    TaskRole,
)
from gpucluster.model.principals import Principal
from gpucluster.model.resources import Resources

ANNA = Principal(issuer="unix", subject="1000", name="anna", groups=("vision", "staff"))
BEN = Principal(issuer="unix", subject="1001", name="ben")
HOUR_US = 3_600_000_000


class ManualClock:
    """A clock that stands until it is moved."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self.now = now_us

    def now_us(self) -> int:
        return self.now

    def boot_s(self) -> float:
        return self.now / 1e6

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1e6)


def damage(database: Path) -> list[str]:
    """What SQLite's own check of a database finds; reads all of it."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        found = [row[0] for row in connection.execute("PRAGMA quick_check(20)") if row[0] != "ok"]
        missing = connection.execute("PRAGMA foreign_key_check").fetchmany(20)
    return found + [
        f"{table}: row {row} refers to a missing row of {other}" for table, row, other, _ in missing
    ]


def new_id(time_us: int = 1_700_000_000_000_000) -> str:
    return make_id(time_us, os.urandom(10))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sample_job(
    number: int, *, owner: Principal = ANNA, inputs: InputManifest | None = None, **changes: Any
) -> Job:
    spec = JobSpec(name=f"job {number}", queue=changes.pop("queue", "vision"), roles=(TaskRole(count=2, gpus=2000),),
                   after=changes.pop("after", ()))  # fmt: skip
    program = Program(
        kind=ProgramKind.CELL, source="print(1)", inputs=inputs, notebook_path="a/b.ipynb", cell_id="c-1"
    )
    return Job(
        id=changes.pop("id", new_id()), number=number, owner=owner, spec=spec, program=program,
        submitted_us=1_700_000_000_000_000 + number, **changes,
    )  # fmt: skip


def sample_attempt(job: Job, number: int = 1, tasks: int = 2, **changes: Any) -> Attempt:
    placements = [
        TaskPlacement(role="worker", rank=rank, local_rank=0, node=f"node-{rank}", gpus=(f"GPU-{rank}-0", f"GPU-{rank}-1"),
                      resources=Resources({"gpu": 2000, "gpu/A100": 2000, "cpu": 1000}))
        for rank in range(tasks)
    ]  # fmt: skip
    return Attempt(
        id=new_id(), job_id=job.id, number=number, tasks=[Task(placement=p) for p in placements], **changes
    )


def submitted(*jobs: Job, first_seq: int | None = None) -> ChangeSet:
    """As the engine commits submissions."""
    first = first_seq if first_seq is not None else jobs[0].number
    return ChangeSet(
        time_us=jobs[0].submitted_us,
        new_jobs=list(jobs),
        submissions={job.id: b'{"source": "print(1)"}' for job in jobs},
        history=[
            HistoryEntry(job_id=job.id, time_us=job.submitted_us, from_state=None, to_state="pending", cause="submitted",
                         actor=job.owner.id)
            for job in jobs
        ],
        events=[
            PublishedEvent(seq=seq, time_us=job.submitted_us, kind="job.state", data={"state": "pending"}, job_id=job.id,
                           owner=job.owner.id, queue=job.spec.queue)
            for seq, job in enumerate(jobs, first)
        ],
    )  # fmt: skip


def started(job: Job, attempt: Attempt) -> ChangeSet:
    """The job's attempt begins; changes the job."""
    job.state = JobState.STARTING
    job.attempt = attempt
    job.attempts_made += 1
    return ChangeSet(time_us=attempt.created_us, jobs=[job], attempts=[attempt])


def ended(job: Job, time_us: int, state: JobState = JobState.SUCCEEDED) -> ChangeSet:
    """The job and its attempt end; changes both."""
    job.state = state
    job.ended_us = time_us
    if job.attempt is not None:
        job.attempt.ended_us = time_us
    return ChangeSet(time_us=time_us, jobs=[job], attempts=[job.attempt] if job.attempt else [])
