"""The states of a job as data (DESIGN section 5): from where, on what, to where, and what becomes of its GPUs.

Every change of a job's state goes through `check`; what is not in the table does not happen. Beyond the table of the
design it says that a job of one task goes straight from running to where its failure leads (there is no rest to stop),
and that an attempt whose tasks all ended well before the stop was asked for has succeeded: its end came first.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

from ..model.errors import GpuclusterError
from ..model.jobs import Job, JobState
from .protocols import HistoryEntry

PENDING, STARTING, RUNNING = JobState.PENDING, JobState.STARTING, JobState.RUNNING
SUSPENDED, STOPPING = JobState.SUSPENDED, JobState.STOPPING
SUCCEEDED, FAILED, CANCELLED = JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED


class Trigger(str, enum.Enum):
    """What moves a job from one state to another; the `cause` of its history."""

    SUBMITTED = "submitted"
    PLACED = "placed"
    ALL_UP = "all_tasks_up"
    ENDED_WELL = "all_tasks_ended_well"
    START_FAILED = "task_could_not_start"
    TASK_FAILED = "task_failed"
    LOST = "lost"
    STOP = "stop"
    ATTEMPT_OVER = "attempt_over"
    CANCEL = "cancel"
    DEPENDENCY_FAILED = "dependency_failed"
    SUSPEND = "suspend"
    RESUME = "resume"


class GpuFate(str, enum.Enum):
    """What a transition means for the GPUs of the attempt."""

    NONE = "none"  # there are none
    TAKEN = "taken"  # held from here
    HELD = "held"
    FREED = "freed"


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    source: JobState | None  # None: the job is new
    trigger: Trigger
    target: JobState
    gpus: GpuFate


def _rules() -> Iterable[Rule]:
    yield Rule(None, Trigger.SUBMITTED, PENDING, GpuFate.NONE)
    yield Rule(PENDING, Trigger.PLACED, STARTING, GpuFate.TAKEN)
    yield Rule(PENDING, Trigger.CANCEL, CANCELLED, GpuFate.NONE)
    yield Rule(PENDING, Trigger.DEPENDENCY_FAILED, FAILED, GpuFate.NONE)
    yield Rule(STARTING, Trigger.ALL_UP, RUNNING, GpuFate.HELD)
    yield Rule(RUNNING, Trigger.ENDED_WELL, SUCCEEDED, GpuFate.FREED)
    yield Rule(SUSPENDED, Trigger.ENDED_WELL, SUCCEEDED, GpuFate.FREED)
    yield Rule(STOPPING, Trigger.ENDED_WELL, SUCCEEDED, GpuFate.FREED)
    yield Rule(RUNNING, Trigger.SUSPEND, SUSPENDED, GpuFate.HELD)
    yield Rule(SUSPENDED, Trigger.RESUME, RUNNING, GpuFate.HELD)
    for source in (STARTING, RUNNING, SUSPENDED):
        for trigger in (Trigger.STOP, Trigger.START_FAILED, Trigger.TASK_FAILED, Trigger.LOST):
            yield Rule(source, trigger, STOPPING, GpuFate.HELD)
        for trigger in (Trigger.START_FAILED, Trigger.TASK_FAILED, Trigger.LOST):
            yield Rule(source, trigger, PENDING, GpuFate.FREED)
            yield Rule(source, trigger, FAILED, GpuFate.FREED)
    yield Rule(STOPPING, Trigger.STOP, STOPPING, GpuFate.HELD)  # a stronger cause
    for target in (PENDING, FAILED, CANCELLED):
        yield Rule(STOPPING, Trigger.ATTEMPT_OVER, target, GpuFate.FREED)


TABLE: dict[tuple[JobState | None, Trigger, JobState], Rule] = {
    (rule.source, rule.trigger, rule.target): rule for rule in _rules()
}


class InvalidTransition(GpuclusterError):
    """A transition that the table does not have: a fault of the program. Carries the job's story so far."""

    code = "invalid_transition"

    def __init__(self, job: Job, trigger: Trigger, target: JobState, story: Iterable[HistoryEntry]) -> None:
        self.story = tuple(story)
        lines = [f"  {tell(entry)}" for entry in self.story] or ["  (nothing known)"]
        super().__init__(
            f"job #{job.number} ({job.id}) cannot go from {job.state.value} to {target.value} on {trigger.value}; its story:\n"
            + "\n".join(lines)
        )


def check(job: Job, trigger: Trigger, target: JobState, story: Iterable[HistoryEntry] = ()) -> Rule:
    """The rule for this transition. Raises InvalidTransition when there is none."""
    rule = TABLE.get((job.state, trigger, target))
    if rule is None:
        raise InvalidTransition(job, trigger, target, story)
    return rule


def tell(entry: HistoryEntry) -> str:
    """One line of a job's story."""
    attempt = f" attempt {entry.attempt}" if entry.attempt is not None else ""
    detail = f": {entry.detail}" if entry.detail else ""
    return f"{entry.time_us} {entry.from_state} -> {entry.to_state} ({entry.cause} by {entry.actor}){attempt}{detail}"
