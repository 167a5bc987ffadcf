"""The life of a job: what submissions, decisions, and the news of tasks do to it. Every transition is in transitions.py.

All methods work on the engine's state and write what they did into the present step's record. What comes from the world
may come late, twice or in odd order: news of an attempt that is over, or of a task that has ended, is counted and left.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ..model.errors import Conflict, InvalidRequest, NotFound
from ..model.jobs import (
    HOLDING_STATES,
    TASK_ENDED,
    Attempt,
    AttemptState,
    Job,
    JobState,
    Share,
    StopCause,
    Task,
    TaskExit,
    TaskState,
)
from ..model.principals import SYSTEM
from ..model.topology import HealthSetting
from ..policy.decisions import Start, Stop
from ..policy.words import ENDED_WORDS
from . import transitions
from .events import (
    JobSubmitted,
    ShareChanged,
    StopRequested,
    TaskEnded,
    TaskLost,
    TaskStarted,
    TaskStartFailed,
)
from .instructions import StartTask, StopTask
from .options import EngineOptions
from .outcome import Outcome, outcome_of, start_failure, tell_task
from .progress import ProgressFeed
from .protocols import HistoryEntry
from .record import StepRecord
from .state import ClusterState
from .timers import Timers
from .transitions import Trigger
from .views import job_event

#: Causes that may be asked for from outside; the others come from what tasks do.
ASKABLE = frozenset(
    {StopCause.CANCEL, StopCause.TIME_LIMIT, StopCause.DRAIN, StopCause.EVICT, StopCause.MIGRATE}
)
#: Timers are keyed by what they are for and the job's id; GIVE_UP by a node's name.
TimerKey = tuple[str, str]
LIMIT, STOP, BACK_OFF, GIVE_UP = "limit", "stop", "back_off", "give_up"

_STOP_WORDS = {
    StopCause.CANCEL: "cancelled",
    StopCause.TIME_LIMIT: "reached its time limit",
    StopCause.DRAIN: "its node is being emptied",
    StopCause.EVICT: "evicted",
    StopCause.MIGRATE: "moved to another place",
}
_NO_NUMBERS: Mapping[str, int] = {}


class Lifecycle:
    """`record` is the present step's and is set by the engine before anything else is called."""

    def __init__(
        self,
        state: ClusterState,
        timers: Timers[TimerKey],
        options: EngineOptions,
        new_id: Callable[[int], str],
        progress: ProgressFeed,
    ) -> None:
        self.record = StepRecord(0, 0)
        self.last_job_number = 0
        #: News that came for an attempt or task that was over already, by kind of event.
        self.late_events: Counter[str] = Counter()
        #: After a restart: tasks of which it is not known whether they ever ran.
        self.unsure: set[tuple[str, int]] = set()
        self._state = state
        self._timers = timers
        self._options = options
        self._new_id = new_id
        self._progress = progress
        self._ended: deque[Job] = deque()  # whose dependents are still to be told

    @property
    def _now_us(self) -> int:
        return self.record.now_us

    # ---- submission

    def submit(self, event: JobSubmitted) -> None:
        """Raises Conflict (known id or key), InvalidRequest or NotFound (queue, dependency), and then changes nothing."""
        job = event.job
        self._check_submission(job)
        states = {
            dependency: self._dependency_state(dependency, event)
            for dependency in dict.fromkeys(job.spec.after)
        }
        self.last_job_number += 1
        job.number = self.last_job_number
        job.state = JobState.PENDING
        job.submitted_us = job.submitted_us or self._now_us
        job.queued_us = self._now_us
        self._state.add(job)
        self.record.new_job(job, event.verbatim)
        self._told(job, None, Trigger.SUBMITTED.value, job.owner.id, None)
        self.settle_dependencies(job, states, event.dependency_numbers)

    def _check_submission(self, job: Job) -> None:
        if job.id in self._state.jobs or job.id in self._state.recently_ended:
            raise Conflict(f"there is already a job {job.id}")
        key = job.idempotency_key
        if key is not None and (job.owner.id, key) in self._state.by_key:
            raise Conflict("a job with this idempotency key was submitted already", field="idempotency_key")
        if not self._state.tree[job.spec.queue].is_leaf or job.spec.queue not in self._state.pending:
            raise InvalidRequest("queue", f"{job.spec.queue!r} takes no jobs itself")
        if not job.spec.task_count:
            raise InvalidRequest("tasks", "a job has at least one task")

    def _dependency_state(self, dependency: str, event: JobSubmitted) -> JobState | None:
        """None while it has not ended."""
        if dependency in self._state.jobs:
            return None
        state = event.ended_dependencies.get(dependency) or self._state.recently_ended.get(dependency)
        if state is None:
            raise NotFound(f"there is no job {dependency!r}", field="after")
        return state

    def settle_dependencies(
        self, job: Job, states: dict[str, JobState | None], numbers: Mapping[str, int] = _NO_NUMBERS
    ) -> None:
        """Wait for those that have not ended (None); fail at once if one did not succeed. `numbers`: to name them by."""
        for dependency, state in states.items():
            if state is not None and state is not JobState.SUCCEEDED:
                self._dependency_failed(job, dependency, numbers.get(dependency), state)
                return
        self._state.wait_for(job, (dependency for dependency, state in states.items() if state is None))
        self._ready_if_nothing_holds(job)

    def _dependency_failed(self, job: Job, dependency: str, number: int | None, state: JobState) -> None:
        name = number if number is not None else dependency
        job.reason = f"waited for job {name}, which has {ENDED_WORDS[state]}"
        self._end(job, JobState.FAILED, Trigger.DEPENDENCY_FAILED, SYSTEM.id)

    def _ready_if_nothing_holds(self, job: Job) -> None:
        if job.id in self._state.unmet or (BACK_OFF, job.id) in self._timers:
            return
        if job.not_before_us > self._now_us:
            self._timers.set((BACK_OFF, job.id), job.not_before_us)
            return
        self._state.make_ready(job)

    def back_off_is_over(self, job_id: str) -> None:
        self._ready_if_nothing_holds(self._state.jobs[job_id])

    # ---- starting

    def start(self, decision: Start) -> None:
        """A new attempt, which holds its GPUs from here."""
        job = self._state.job(decision.job_id)
        job.attempts_made += 1
        attempt = Attempt(
            id=self._new_id(self._now_us),
            job_id=job.id,
            number=job.attempts_made,
            tasks=[Task(placement=placement) for placement in decision.placements],
            created_us=self._now_us,
        )
        job.attempt, job.reason, job.progress = attempt, None, None
        self._state.take(job, attempt)
        self.record.attempt_changed(attempt)
        self._transition(job, JobState.STARTING, Trigger.PLACED, SYSTEM.id)
        self.record.instruct(
            StartTask(job_id=job.id, attempt_id=attempt.id, placement=placement)
            for placement in attempt.placements
        )

    def task_started(self, event: TaskStarted) -> None:
        found = self._task(event.attempt_id, event.rank, "TaskStarted")
        if found is None:
            return
        job, attempt, task = found
        self.unsure.discard((attempt.id, task.rank))
        if job.state is JobState.STOPPING:
            self._ask_to_stop(
                job, [task]
            )  # the stop may have come before the task was up, or before a restart
        if task.state is TaskState.STARTING:
            task.state = TaskState.RUNNING
            self.record.attempt_changed(attempt)
            self._running_if_all_up(job, attempt)

    def _running_if_all_up(self, job: Job, attempt: Attempt) -> None:
        if job.state is not JobState.STARTING or any(
            task.state is TaskState.STARTING for task in attempt.tasks
        ):
            return
        attempt.started_us = self._now_us
        job.first_started_us = job.first_started_us or self._now_us
        job.start_failures, job.avoid_nodes = 0, ()
        self.record.attempt_changed(attempt)
        self._transition(job, JobState.RUNNING, Trigger.ALL_UP, SYSTEM.id)
        self.set_time_limit(job)

    def set_time_limit(self, job: Job) -> None:
        """Running time counts, from when all tasks were up."""
        if job.spec.time_limit_s is not None and job.attempt and job.attempt.started_us is not None:
            self._timers.set((LIMIT, job.id), job.attempt.started_us + round(job.spec.time_limit_s * 1e6))

    # ---- the ends of tasks

    def task_start_failed(self, event: TaskStartFailed) -> None:
        found = self._task(event.attempt_id, event.rank, "TaskStartFailed")
        if found is None:
            return
        job, attempt, task = found
        if event.retry and (attempt.id, task.rank) not in self.unsure:
            node = task.placement.node
            job.avoid_nodes = (*(name for name in job.avoid_nodes if name != node), node)
        task_exit = start_failure(event.reason, event.retry, self._now_us)
        self._task_over(job, attempt, task, TaskState.FAILED, task_exit)
        self._consequence(job, attempt, task, StopCause.START_FAILED, Trigger.START_FAILED)

    def task_ended(self, event: TaskEnded) -> None:
        found = self._task(event.attempt_id, event.rank, "TaskEnded")
        if found is None:
            return
        job, attempt, task = found
        if event.exit.stop_cause is not None and job.stop_cause is None:
            self._ended_from_outside(job, attempt, task, event.exit)
            return
        ended_well = event.exit.code == 0
        state = TaskState.SUCCEEDED if ended_well else TaskState.FAILED
        self._task_over(job, attempt, task, state, event.exit)
        if not ended_well:
            self._consequence(job, attempt, task, StopCause.TASK_FAILED, Trigger.TASK_FAILED)
            return
        self._running_if_all_up(job, attempt)
        self._finish_if_over(job, attempt, Trigger.ENDED_WELL)

    def task_lost(self, event: TaskLost) -> None:
        found = self._task(event.attempt_id, event.rank, "TaskLost")
        if found is None:
            return
        job, attempt, task = found
        reason = _given_up_words(self._state.given_up(task.placement.node)) or event.reason
        task_exit = TaskExit(code=137, signal=9, reason=reason, ended_us=self._now_us)
        self._task_over(job, attempt, task, TaskState.LOST, task_exit)
        self._consequence(job, attempt, task, StopCause.LOST, Trigger.LOST)

    def _ended_from_outside(self, job: Job, attempt: Attempt, task: Task, task_exit: TaskExit) -> None:
        """Somebody else told its supervisor to end (a machine that shuts down): neither the job's fault nor its success."""
        reason = f"told to end from outside the scheduler ({task_exit.stop_cause} to its supervisor)"
        self._task_over(job, attempt, task, TaskState.LOST, msgspec.structs.replace(task_exit, reason=reason))
        self._consequence(job, attempt, task, StopCause.LOST, Trigger.LOST)

    def _task_over(
        self, job: Job, attempt: Attempt, task: Task, state: TaskState, task_exit: TaskExit
    ) -> None:
        task.state, task.exit = state, task_exit
        self.record.attempt_changed(attempt)

    def _consequence(
        self, job: Job, attempt: Attempt, task: Task, cause: StopCause, trigger: Trigger
    ) -> None:
        """A task ended badly: unless the job is being stopped already, its other tasks are stopped."""
        if job.state is not JobState.STOPPING:
            job.stop_cause, job.stop_actor = cause, SYSTEM.id
            job.reason = tell_task(task, attempt.tasks)
            rest = _not_over(attempt)
            if rest:
                self._transition(job, JobState.STOPPING, trigger, SYSTEM.id)
                self._ask_to_stop(job, rest)
        elif cause is StopCause.LOST and job.stop_cause is not None and job.stop_cause < StopCause.TIME_LIMIT:
            job.reason = tell_task(task, attempt.tasks)  # the loss explains the failures before it
            self.record.job_changed(job)
        self._finish_if_over(job, attempt, trigger)

    def _task(self, attempt_id: str, rank: int, kind: str) -> tuple[Job, Attempt, Task] | None:
        """The task that the news is about, if it has not ended; else the news is late and only counted."""
        job = self._state.job_of_attempt(attempt_id)
        attempt = job.attempt if job else None
        if job is None or attempt is None or not 0 <= rank < len(attempt.tasks):
            self.late_events[kind] += 1
            return None
        task = attempt.tasks[rank]
        if task.state in TASK_ENDED:
            self.late_events[kind] += 1
            return None
        return job, attempt, task

    # ---- stopping

    def stop(self, event: StopRequested) -> None:
        """Raises Conflict when there is nothing to stop, InvalidRequest for a cause that cannot be asked for."""
        if event.cause not in ASKABLE:
            raise InvalidRequest("cause", f"{event.cause.label} is not something that can be asked for")
        job = self._state.jobs.get(event.job_id)
        if job is None:
            raise Conflict("the job has ended already; there is nothing to stop")
        reason = event.reason or _STOP_WORDS[event.cause]
        if job.state is JobState.PENDING:
            if event.cause is not StopCause.CANCEL:
                raise Conflict(f"job {job.number} is waiting; there is no attempt to stop")
            job.reason, job.stop_actor = reason, event.actor
            self._end(job, JobState.CANCELLED, Trigger.CANCEL, event.actor)
            return
        self._stop_attempt(job, event.cause, event.actor, reason)

    def stop_by_policy(self, decision: Stop) -> None:
        """A decision of the policy; nothing happens if the attempt is over by now."""
        job = self._state.jobs.get(decision.job_id)
        if job is not None and job.state in HOLDING_STATES:
            self._stop_attempt(job, decision.cause, SYSTEM.id, decision.reason)

    def _stop_attempt(self, job: Job, cause: StopCause, actor: str, reason: str) -> None:
        """Two signals act as one; a stronger cause replaces a weaker one and is passed on to the tasks."""
        if job.stop_cause is not None and cause <= job.stop_cause:
            return
        job.stop_cause, job.stop_actor, job.reason = cause, actor, reason
        self._transition(job, JobState.STOPPING, Trigger.STOP, actor, told_cause=cause.label)
        self._ask_to_stop(job, _not_over(job.attempt) if job.attempt else [])

    def _ask_to_stop(self, job: Job, tasks: Iterable[Task]) -> None:
        cause, attempt = job.stop_cause, job.attempt
        if cause is None or attempt is None:
            return
        self.record.instruct(
            StopTask(
                attempt_id=attempt.id,
                rank=task.rank,
                node=task.placement.node,
                cause=cause,
                grace_s=job.spec.grace_s,
            )
            for task in tasks
        )
        again_us = self._now_us + round((job.spec.grace_s + self._options.stop_again_s) * 1e6)
        self._timers.set((STOP, job.id), again_us)

    def stop_again(self, job_id: str) -> None:
        """The grace period is long over and tasks are still there: ask once more."""
        job = self._state.jobs[job_id]
        if job.attempt is not None:
            self._ask_to_stop(job, _not_over(job.attempt))

    def time_is_up(self, job_id: str) -> None:
        job = self._state.jobs[job_id]
        limit_s = job.spec.time_limit_s or 0.0
        self._stop_attempt(job, StopCause.TIME_LIMIT, SYSTEM.id, f"reached its time limit of {limit_s:g} s")

    # ---- the end of an attempt, and of a job

    def _finish_if_over(self, job: Job, attempt: Attempt, trigger: Trigger) -> None:
        if _not_over(attempt):
            return
        start_counts = not any((attempt.id, task.rank) in self.unsure for task in attempt.tasks)
        outcome = outcome_of(job, attempt, self._options, start_counts=start_counts)
        self._progress.flush(job, self.record)
        if outcome.target is JobState.PENDING:
            _forget_results(attempt)
        self._close_attempt(job, attempt, outcome.label, outcome.reason)
        if outcome.fault is not None:
            setattr(job, outcome.fault, getattr(job, outcome.fault) + 1)
        job.reason = outcome.reason
        if outcome.target is JobState.SUCCEEDED:
            trigger = Trigger.ENDED_WELL
        elif job.state is JobState.STOPPING:
            trigger = Trigger.ATTEMPT_OVER
        actor = (job.stop_actor or SYSTEM.id) if outcome.target is not JobState.SUCCEEDED else SYSTEM.id
        if outcome.target is JobState.PENDING:
            self._back_to_pending(job, trigger, actor, outcome)
        else:
            self._end(job, outcome.target, trigger, actor, told_cause=outcome.label)

    def _close_attempt(self, job: Job, attempt: Attempt, label: str, reason: str | None) -> None:
        """Frees what the attempt held."""
        attempt.state = AttemptState.LOST if label == "lost" else AttemptState.ENDED
        attempt.ended_us, attempt.outcome, attempt.reason = self._now_us, label, reason
        self.record.attempt_changed(attempt)
        self._state.release(job, attempt)
        self.unsure.difference_update((attempt.id, task.rank) for task in attempt.tasks)
        self._timers.clear((LIMIT, job.id))
        self._timers.clear((STOP, job.id))

    def _back_to_pending(self, job: Job, trigger: Trigger, actor: str, outcome: Outcome) -> None:
        job.stop_cause = job.stop_actor = None
        job.queued_us = self._now_us
        job.not_before_us = self._now_us + outcome.delay_us if outcome.delay_us else 0
        self._transition(job, JobState.PENDING, trigger, actor, told_cause=outcome.label)
        self._ready_if_nothing_holds(job)

    def _end(
        self, job: Job, target: JobState, trigger: Trigger, actor: str, *, told_cause: str | None = None
    ) -> None:
        job.ended_us = self._now_us
        self._timers.clear((BACK_OFF, job.id))
        self._transition(job, target, trigger, actor, told_cause=told_cause)
        self._progress.forget(job.id)
        self._state.remove(job)
        self.record.ended_jobs.append(job)
        self._ended.append(job)
        if len(self._ended) == 1:
            self._tell_dependents()

    def _tell_dependents(self) -> None:
        """Of every job that has ended; those that fail by it join the line (no recursion: chains may be long)."""
        while self._ended:
            ended = self._ended[0]
            for job_id in self._state.dependents.pop(ended.id, ()):
                job = self._state.jobs[job_id]
                last = self._state.met(job, ended.id)
                if ended.state is not JobState.SUCCEEDED:
                    self._dependency_failed(job, ended.id, ended.number, ended.state)
                elif last:
                    self._ready_if_nothing_holds(job)
            self._ended.popleft()

    # ---- other

    def share(self, event: ShareChanged) -> None:
        """Raises Conflict for a job that has ended (its record is the store's to change)."""
        job = self._state.jobs.get(event.job_id)
        if job is None:
            raise Conflict("the job has ended already")
        was = job.spec.share
        if was is not event.share:
            job.spec = msgspec.structs.replace(job.spec, share=event.share)
            self.record.job_changed(job)
            self.shared(job, was)

    def shared(self, job: Job, was: Share) -> None:
        """Who may read the job has changed."""
        data = {"number": job.number, "share": job.spec.share.value, "was": was.value}
        self.record.publish("job.share", data, job=job)

    # ---- transitions

    def _transition(
        self, job: Job, to: JobState, trigger: Trigger, actor: str, *, told_cause: str | None = None
    ) -> None:
        """`told_cause`: what the history says instead of the trigger's name."""
        transitions.check(job, trigger, to, self._state.story(job.id))
        source = job.state
        self._state.move(job, to)
        self.record.job_changed(job)
        self._told(job, source, told_cause or trigger.value, actor, job.reason)

    def _told(self, job: Job, source: JobState | None, cause: str, actor: str, detail: str | None) -> None:
        """Into the history and out to followers."""
        in_attempt = source in HOLDING_STATES or job.state in HOLDING_STATES
        entry = HistoryEntry(
            job_id=job.id,
            time_us=self._now_us,
            from_state=source.value if source else None,
            to_state=job.state.value,
            cause=cause,
            actor=actor,
            attempt=job.attempt.number if job.attempt and in_attempt else None,
            detail=detail,
        )
        self._state.remember(entry)
        self.record.history(entry)
        self.record.queue_changed(job.spec.queue)
        self.record.publish("job.state", job_event(job, source, cause, actor), job=job)


def _given_up_words(setting: HealthSetting | None) -> str | None:
    """The reason of a task that was lost with a node which an administrator gave up."""
    if setting is None:
        return None
    reason = f": {setting.reason}" if setting.reason else ""
    return f"{setting.node} was set lost by {setting.actor_name}{reason}"


def _forget_results(attempt: Attempt) -> None:
    """What an attempt gave back that is not the job's last is asked for by nobody: its blobs need not be kept."""
    for task in attempt.tasks:
        if task.exit is not None and task.exit.result is not None:
            task.exit = msgspec.structs.replace(task.exit, result=None)


def _not_over(attempt: Attempt) -> list[Task]:
    return [task for task in attempt.tasks if task.state not in TASK_ENDED]
