"""Where a job goes when its attempt is over, and why. A pure function of the job and its tasks.

The rules in order (DESIGN section 5; a later cause never weakens an earlier one):

1. Every task ended well, and did so before any stop was asked for: succeeded. What was done first counts.
2. Cancelled, then time limit: the strongest causes, whatever else happened.
3. A task that can never start: failed.
4. A task was lost: the attempt is lost, even if other tasks failed (their peer was gone). Back to pending, or failed
   with requeue never.
5. A task failed: pending while retries are left, else failed.
6. A task could not start: pending, else failed when that happened too often in a row.
7. Evicted, drained: pending, or failed with requeue never. Migrated: pending.
"""

from __future__ import annotations

from typing import NamedTuple

from ..model.jobs import Attempt, Job, JobState, Requeue, StopCause, Task, TaskExit, TaskState
from .options import EngineOptions

#: Marks the exit of a task that never ran; its code says whether another try makes sense.
NEVER_RAN = "TaskStartFailed"
WORTH_A_RETRY = 75  # EX_TEMPFAIL
HOPELESS = 126  # cannot execute


class Outcome(NamedTuple):
    """`delay_us`: back-off before the job may be placed again (0 = at once). `fault`: which counter goes up."""

    target: JobState
    label: str  # of the attempt: succeeded | failed | lost | a StopCause label
    reason: str | None
    delay_us: int = 0
    fault: str | None = None  # failures | losses | start_failures


def start_failure(reason: str, retry: bool, now_us: int) -> TaskExit:
    """The exit of a task that never ran."""
    code = WORTH_A_RETRY if retry else HOPELESS
    return TaskExit(code=code, reason=reason, error_name=NEVER_RAN, ended_us=now_us)


def could_not_start(task: Task) -> bool:
    return task.exit is not None and task.exit.error_name == NEVER_RAN


def outcome_of(job: Job, attempt: Attempt, options: EngineOptions, *, start_counts: bool = True) -> Outcome:
    """`start_counts` False: tasks that did not start are no fault of job or node (the scheduler was away)."""
    tasks, cause = attempt.tasks, job.stop_cause
    if all(task.state is TaskState.SUCCEEDED and not was_told_to_stop(task) for task in tasks):
        return Outcome(JobState.SUCCEEDED, "succeeded", None)
    if cause is StopCause.CANCEL:
        return Outcome(JobState.CANCELLED, cause.label, job.reason)
    if cause is StopCause.TIME_LIMIT:
        return Outcome(JobState.FAILED, cause.label, job.reason)
    hopeless = [task for task in tasks if could_not_start(task) and task.exit and task.exit.code == HOPELESS]
    if hopeless:
        return Outcome(JobState.FAILED, "failed", tell_task(hopeless[0], tasks), fault="start_failures")
    if any(task.state is TaskState.LOST for task in tasks):
        return _lost(job, options)
    if cause is StopCause.TASK_FAILED:
        return _failed(job, options)
    if cause is StopCause.START_FAILED:
        return _not_started(job, options, start_counts)
    return _evicted(job, cause)


def was_told_to_stop(task: Task) -> bool:
    """Whether its supervisor had given notice before it ended. The supervisor knows; no clocks are compared."""
    return task.exit is not None and task.exit.stop_cause is not None


def _lost(job: Job, options: EngineOptions) -> Outcome:
    if job.spec.requeue is Requeue.NEVER:
        reason = f"{job.reason}; not tried again, as asked (requeue never)"
        return Outcome(JobState.FAILED, "lost", reason, fault="losses")
    # The first loss is taken for bad luck of a node: the job goes back at once.
    delay_us = options.backoff_us(job.losses) if job.losses else 0
    return Outcome(JobState.PENDING, "lost", job.reason, delay_us, "losses")


def _failed(job: Job, options: EngineOptions) -> Outcome:
    failures = job.failures + 1
    if failures <= job.spec.retries:
        return Outcome(JobState.PENDING, "failed", job.reason, options.backoff_us(failures), "failures")
    reason = job.reason if failures == 1 else f"failed {failures} times, the last time: {job.reason}"
    return Outcome(JobState.FAILED, "failed", reason, fault="failures")


def _not_started(job: Job, options: EngineOptions, start_counts: bool) -> Outcome:
    if not start_counts:
        return Outcome(JobState.PENDING, "start_failed", job.reason)
    times = job.start_failures + 1
    if times >= options.start_failures:
        reason = f"{job.reason} ({times} times in a row)"
        return Outcome(JobState.FAILED, "start_failed", reason, fault="start_failures")
    return Outcome(JobState.PENDING, "start_failed", job.reason, options.backoff_us(times), "start_failures")


def _evicted(job: Job, cause: StopCause | None) -> Outcome:
    label = cause.label if cause is not None else "failed"
    if job.spec.requeue is Requeue.NEVER and cause is not StopCause.MIGRATE:
        reason = f"{job.reason}; not tried again, as asked (requeue never)"
        return Outcome(JobState.FAILED, label, reason, fault="losses")
    return Outcome(JobState.PENDING, label, job.reason, fault="losses")


def tell_task(task: Task, tasks: list[Task]) -> str:
    """How a task ended, in words; it is named when the gang has more than one."""
    if task.state is TaskState.LOST:
        what = task.exit.reason if task.exit and task.exit.reason else "was lost"
    elif could_not_start(task):
        what = f"could not start: {task.exit.reason if task.exit else 'unknown'}"
    else:
        what = tell_exit(task.exit) if task.exit else "has not ended"
    return f"rank {task.rank} on {task.placement.node}: {what}" if len(tasks) > 1 else what


def tell_exit(task_exit: TaskExit) -> str:
    """An exit in words, for people."""
    if task_exit.reason:
        return task_exit.reason
    if task_exit.oom:
        return "ran out of memory"
    if task_exit.error_name:
        value = f": {task_exit.error_value}" if task_exit.error_value else ""
        return f"{task_exit.error_name}{value}"
    if task_exit.signal is not None:
        return f"ended by signal {task_exit.signal}"
    return f"ended with exit code {task_exit.code}"
