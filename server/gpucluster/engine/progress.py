"""Step reports: the newest stands in the job, all go to the store, and few enough are published.

Per job at most one event in the interval; always the first; one that is held back goes out when the interval is over, or
before the attempt ends, so that the last is never missing.
"""

from __future__ import annotations

from ..model.jobs import Attempt, Job, Progress
from .options import EngineOptions
from .record import StepRecord
from .timers import Timers
from .views import progress_event

PROGRESS = "progress"


class ProgressFeed:
    def __init__(self, timers: Timers[tuple[str, str]], options: EngineOptions) -> None:
        self._timers = timers
        self._interval_us = round(options.progress_interval_s * 1e6)
        self._published_us: dict[str, int] = {}
        self._held: dict[str, Progress] = {}

    def report(self, job: Job, attempt: Attempt, progress: Progress, record: StepRecord) -> None:
        """One report of the job's active attempt."""
        record.step_report(job, attempt, progress)
        if job.first_feedback_us is None:
            job.first_feedback_us = record.now_us
        if not _replaces(progress, job.progress):
            return
        job.progress = progress
        due_us = self._published_us.get(job.id, -self._interval_us) + self._interval_us
        if job.id not in self._published_us or record.now_us >= due_us:
            self._publish(job, progress, record)
        else:
            self._held[job.id] = progress
            self._timers.set((PROGRESS, job.id), due_us)

    def flush(self, job: Job, record: StepRecord) -> None:
        """Publish what is held back."""
        progress = self._held.get(job.id)
        if progress is not None:
            self._publish(job, progress, record)

    def forget(self, job_id: str) -> None:
        """The job has ended."""
        self._published_us.pop(job_id, None)
        self._held.pop(job_id, None)
        self._timers.clear((PROGRESS, job_id))

    def _publish(self, job: Job, progress: Progress, record: StepRecord) -> None:
        self._held.pop(job.id, None)
        self._timers.clear((PROGRESS, job.id))
        self._published_us[job.id] = record.now_us
        record.job_changed(job)  # so the stored record is about as fresh as what followers saw
        record.publish("job.progress", progress_event(job, progress), job=job)


def _replaces(new: Progress, present: Progress | None) -> bool:
    """The lowest rank that reports speaks for the job; an older report never replaces a newer one."""
    if present is None or new.rank < present.rank:
        return True
    return new.rank == present.rank and new.time_us >= present.time_us
