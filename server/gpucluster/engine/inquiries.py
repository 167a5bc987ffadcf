"""Questions about the engine's state: may this be submitted, why does it wait, where would it go. Nothing is changed."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..model.jobs import Job, JobSpec, JobState, Program, ProgramKind, TaskPlacement, TaskState
from ..model.principals import Principal
from ..policy import admission
from ..policy.cycle import decide
from ..policy.decisions import Start
from ..policy.explain import Why, explain_waiting
from ..policy.words import amount_text, counted, duration_text, joined
from .state import ClusterState

_DRY_RUN_ID = "dry-run"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DryRunPlan:
    """What a submission would lead to now. `placement` is empty unless it `starts_now`; `why` says why it would wait."""

    starts_now: bool
    sentence: str
    placement: tuple[TaskPlacement, ...] = ()
    borrowed: bool = False
    position: int | None = None
    why: Why | None = None


def check_admission(state: ClusterState, spec: JobSpec, owner: Principal) -> None:
    admission.check_admission(state.tree, state.space, spec, owner)


def position(state: ClusterState, job_id: str) -> int | None:
    job = state.jobs.get(job_id)
    return state.pending[job.spec.queue].position(job.number) if job is not None else None


# ---- why


def why(state: ClusterState, job: Job, now_us: int) -> Why:
    if job.state is JobState.PENDING:
        return _why_waiting(state, job, now_us)
    if job.state is JobState.STARTING:
        return _why_starting(job)
    if job.state is JobState.STOPPING:
        cause = job.stop_cause.label if job.stop_cause is not None else "stop"
        left = [task for task in job.attempt.tasks if task.exit is None] if job.attempt else []
        sentence = (
            f"The job is being stopped ({job.reason or cause}): {counted(len(left), 'task')} still to end."
        )
        return Why(
            job_id=job.id, verdict="stopping", code=cause, sentence=sentence, facts={"tasks_left": len(left)}
        )
    nodes = sorted({placement.node for placement in job.attempt.placements}) if job.attempt else []
    sentence = (
        f"The job runs on {joined(nodes)}." if job.state is JobState.RUNNING else "The job is suspended."
    )
    return Why(
        job_id=job.id, verdict="running", code=job.state.value, sentence=sentence, facts={"nodes": nodes}
    )


def _why_waiting(state: ClusterState, job: Job, now_us: int) -> Why:
    unmet = state.unmet.get(job.id)
    if unmet:
        others = sorted((state.jobs[job_id] for job_id in unmet), key=lambda other: other.number)
        named = joined([f"job {other.number} ({other.state.value})" for other in others[:5]])
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        waits_for: dict[str, Any] = {"waits_for": [other.number for other in others]}
        sentence = f"Waits for {named}{more} to succeed."
        return Why(
            job_id=job.id, verdict="starts_when", code="dependency", sentence=sentence, facts=waits_for
        )
    if not state.is_ready(job):
        left_s = max(0.0, (job.not_before_us - now_us) / 1e6)
        cause = f" ({job.reason})" if job.reason else ""
        sentence = f"Its last attempt did not succeed{cause}; it is tried again in {duration_text(left_s)}."
        facts = {"not_before_us": job.not_before_us, "attempts_made": job.attempts_made}
        return Why(job_id=job.id, verdict="starts_when", code="back_off", sentence=sentence, facts=facts)
    return explain_waiting(state.snapshot(), job, state.reasons)


def _why_starting(job: Job) -> Why:
    tasks = job.attempt.tasks if job.attempt else []
    up = sum(task.state is not TaskState.STARTING for task in tasks)
    sentence = f"The job has its place and is starting: {up} of {counted(len(tasks), 'task')} up."
    return Why(
        job_id=job.id,
        verdict="starting",
        code="starting",
        sentence=sentence,
        facts={"up": up, "tasks": len(tasks)},
    )


# ---- dry run


def dry_run(state: ClusterState, spec: JobSpec, owner: Principal, now_us: int, number: int) -> DryRunPlan:
    """Raises as `check_admission` does. The job is put into its queue for one trial cycle and taken out again."""
    check_admission(state, spec, owner)
    waits_for = [state.jobs[job_id].number for job_id in spec.after if job_id in state.jobs]
    if waits_for:
        named = joined([f"job {other}" for other in waits_for])
        return DryRunPlan(starts_now=False, sentence=f"The job would wait for {named} to succeed.")
    job = Job(
        id=_DRY_RUN_ID,
        number=number,
        owner=owner,
        spec=spec,
        program=Program(kind=ProgramKind.COMMAND, source=""),
        submitted_us=now_us,
        queued_us=now_us,
    )
    pending = state.pending[spec.queue]
    pending.add(job)
    try:
        return _plan(state, job, now_us)
    finally:
        pending.remove(job)


def _plan(state: ClusterState, job: Job, now_us: int) -> DryRunPlan:
    snapshot = state.snapshot()
    for decision in decide(snapshot, now_us):
        if decision.job_id == job.id and isinstance(decision, Start):
            nodes = sorted({placement.node for placement in decision.placements})
            lent = ", on capacity that its queue borrows" if decision.borrowed else ""
            amounts = joined([amount_text(name, amount) for name, amount in job.spec.request().items()])
            return DryRunPlan(
                starts_now=True,
                sentence=f"The job would start now on {joined(nodes)} with {amounts}{lent}.",
                placement=decision.placements,
                borrowed=decision.borrowed,
                position=1,
            )
    reason = explain_waiting(snapshot, job, {})
    sentence = f"The job would wait. {reason.sentence}"
    return DryRunPlan(starts_now=False, sentence=sentence, position=reason.position, why=reason)
