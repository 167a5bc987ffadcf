"""What one step of the engine brings about, gathered while it happens: rows, history, published events, instructions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from ..model.errors import GpuclusterError
from ..model.events import PublishedEvent
from ..model.jobs import Attempt, Job, Progress
from ..model.topology import HealthSetting
from .events import EngineEvent
from .instructions import Instruction
from .protocols import ChangeSet, HistoryEntry


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """`changes` refer to the engine's own records: write them before the next step.

    `instructions` may be carried out, and `refused` answered, only when the changes are in the store. `wake_at_us`: when
    a step is due even if nothing happens. `ended_jobs` have left the engine's memory.
    """

    changes: ChangeSet
    instructions: list[Instruction]
    wake_at_us: int | None
    ended_jobs: list[Job]
    refused: list[tuple[EngineEvent, GpuclusterError]]


class StepRecord:
    """One step's outcome in the making. Each record of a job or attempt goes out at most once, as it is at the end."""

    def __init__(self, now_us: int, last_seq: int) -> None:
        self.now_us = now_us
        self.last_seq = last_seq
        self.has_moved = False  # an event tells of more than a step report
        self.instructions: list[Instruction] = []
        self.ended_jobs: list[Job] = []
        self.refused: list[tuple[EngineEvent, GpuclusterError]] = []
        self.touched_queues: dict[str, None] = {}
        self._new_jobs: dict[str, Job] = {}
        self._submissions: dict[str, bytes] = {}
        self._jobs: dict[str, Job] = {}
        self._attempts: dict[str, Attempt] = {}
        self._history: list[HistoryEntry] = []
        self._steps: list[tuple[str, str, Progress]] = []
        self._events: list[PublishedEvent] = []
        self._health_settings: dict[str, HealthSetting] = {}

    def new_job(self, job: Job, verbatim: bytes) -> None:
        self._new_jobs[job.id] = job
        self._submissions[job.id] = verbatim

    def job_changed(self, job: Job) -> None:
        if job.id not in self._new_jobs:
            self._jobs[job.id] = job

    def attempt_changed(self, attempt: Attempt) -> None:
        self._attempts[attempt.id] = attempt

    def queue_changed(self, name: str) -> None:
        """The queue's use or its counts of jobs changed; one event tells of it at the end of the step."""
        self.touched_queues[name] = None

    def history(self, entry: HistoryEntry) -> None:
        self._history.append(entry)

    def step_report(self, job: Job, attempt: Attempt, progress: Progress) -> None:
        self._steps.append((job.id, attempt.id, progress))

    def health_set(self, setting: HealthSetting) -> None:
        self._health_settings[setting.node] = setting

    def instruct(self, instructions: Iterable[Instruction]) -> None:
        self.instructions.extend(instructions)

    def refuse(self, event: EngineEvent, error: GpuclusterError) -> None:
        self.refused.append((event, error))

    def publish(
        self, kind: str, data: dict[str, Any], *, job: Job | None = None, queue: str | None = None
    ) -> None:
        """The next event of the cluster's sequence. Whose it is decides who may see it."""
        self.last_seq += 1
        self.has_moved |= kind != "job.progress"
        self._events.append(
            PublishedEvent(
                seq=self.last_seq,
                time_us=self.now_us,
                kind=kind,
                data=data,
                job_id=job.id if job else None,
                owner=job.owner.id if job else None,
                queue=job.spec.queue if job else queue,
            )
        )

    def result(self, wake_at_us: int | None) -> StepResult:
        changes = ChangeSet(
            time_us=self.now_us,
            new_jobs=list(self._new_jobs.values()),
            submissions=self._submissions,
            jobs=list(self._jobs.values()),
            attempts=list(self._attempts.values()),
            history=self._history,
            steps=self._steps,
            events=self._events,
            health_settings=list(self._health_settings.values()),
        )
        return StepResult(
            changes=changes,
            instructions=self.instructions,
            wake_at_us=wake_at_us,
            ended_jobs=self.ended_jobs,
            refused=self.refused,
        )
