from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.store_samples import (
    ANNA,
    BEN,
    ManualClock,
    ended,
    new_id,
    sample_attempt,
    sample_job,
    sha256,
    started,
    submitted,
)

from gpucluster.engine.protocols import ChangeSet, HistoryEntry
from gpucluster.model.errors import NotFound, Unavailable
from gpucluster.model.events import PublishedEvent
from gpucluster.model.jobs import (
    ENDED_STATES,
    Attempt,
    AttemptState,
    InputManifest,
    Job,
    JobSpec,
    JobState,
    Program,
    ProgramKind,
    Progress,
    Requeue,
    ResultManifest,
    Share,
    StopCause,
    Task,
    TaskExit,
    TaskPlacement,
    TaskRole,
    TaskState,
)
from gpucluster.model.principals import Principal
from gpucluster.model.queues import Ordering, QueueSpec
from gpucluster.model.resources import Resources
from gpucluster.model.topology import HealthSetting, NodeHealth
from gpucluster.store import Store
from gpucluster.store.database import Superseded

# ---- strategies: every field of every struct that is stored

TEXT = st.text(max_size=20)
TIMES = st.integers(0, 2**52)
MAYBE_TIME = st.none() | TIMES
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
HASH = st.binary(min_size=1, max_size=4).map(sha256)
HASHES = st.lists(HASH, max_size=3).map(tuple)
RESOURCES = st.dictionaries(TEXT, st.integers(0, 2**60), max_size=3).map(Resources)
PRINCIPALS = st.builds(Principal, issuer=TEXT, subject=TEXT, name=TEXT, groups=TEXTS, is_admin=st.booleans())
ROLES = st.builds(
    TaskRole, name=TEXT, count=st.integers(1, 1000), gpus=st.integers(0, 10**6), cpus=st.integers(0, 10**6),
    memory=st.integers(0, 2**45), gpu_types=TEXTS,
)  # fmt: skip
SPECS = st.builds(
    JobSpec, name=TEXT, queue=TEXT, roles=st.lists(ROLES, min_size=1, max_size=3).map(tuple), tier=st.integers(0, 2),
    priority=st.integers(-(2**31), 2**31), time_limit_s=st.none() | st.floats(0.1, 1e9), grace_s=st.floats(0, 1e6),
    retries=st.integers(0, 99), requeue=st.sampled_from(Requeue), after=TEXTS, share=st.sampled_from(Share),
)  # fmt: skip
INPUTS = st.builds(InputManifest, pickle=HASH, buffers=HASHES, names=TEXTS, total_bytes=st.integers(0, 2**60))
PROGRAMS = st.builds(
    Program, kind=st.sampled_from(ProgramKind), source=TEXT, command=TEXTS, interpreter=st.none() | TEXT,
    cwd=st.none() | TEXT, sys_path=TEXTS, env=st.dictionaries(TEXT, TEXT, max_size=3), secret_env=TEXTS,
    inputs=st.none() | INPUTS, outputs=TEXTS, mutable_inputs=TEXTS, digest_budget_bytes=st.integers(0, 2**60),
    notebook_path=st.none() | TEXT, cell_id=st.none() | TEXT, git_commit=st.none() | TEXT,
    execution_count=st.none() | st.integers(0, 10**9), fills_cell=st.booleans(),
)  # fmt: skip
RESULTS = st.builds(
    ResultManifest, pickle=st.none() | HASH, buffers=HASHES, names=TEXTS, changed=TEXTS, has_value=st.booleans(),
    value_key=TEXT, missing=st.dictionaries(TEXT, TEXT, max_size=3), notes=TEXTS, total_bytes=st.integers(0, 2**60),
)  # fmt: skip
EXITS = st.builds(
    TaskExit, code=st.integers(-1, 255), signal=st.none() | st.integers(1, 64), oom=st.booleans(), reason=st.none() | TEXT,
    error_name=st.none() | TEXT, error_value=st.none() | TEXT, ended_us=TIMES, result=st.none() | RESULTS,
)  # fmt: skip
NUMBERS = st.floats(allow_nan=False)
PROGRESS = st.builds(
    Progress, step=st.integers(0, 2**53), total=st.none() | st.integers(0, 2**53),
    metrics=st.dictionaries(TEXT, NUMBERS, max_size=3), time_us=TIMES, rank=st.integers(0, 9999), source=TEXT,
    description=st.none() | TEXT,
)  # fmt: skip


@st.composite
def tasks(draw: st.DrawFn) -> list[Task]:
    return [
        Task(
            placement=TaskPlacement(
                role=draw(TEXT), rank=rank, local_rank=draw(st.integers(0, 15)), node=draw(TEXT), gpus=draw(TEXTS),
                resources=draw(RESOURCES),
            ),
            state=draw(st.sampled_from(TaskState)),
            exit=draw(st.none() | EXITS),
        )
        for rank in range(draw(st.integers(0, 3)))
    ]  # fmt: skip


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any job that has not ended: those are what recovery gives back."""
    job = Job(
        id=new_id(), number=1, owner=draw(PRINCIPALS), spec=draw(SPECS), program=draw(PROGRAMS),
        state=draw(st.sampled_from(sorted(set(JobState) - ENDED_STATES))),
        submitted_us=draw(TIMES), queued_us=draw(TIMES), first_started_us=draw(MAYBE_TIME), first_feedback_us=draw(MAYBE_TIME),
        ended_us=draw(MAYBE_TIME), attempts_made=draw(st.integers(0, 99)), failures=draw(st.integers(0, 99)),
        losses=draw(st.integers(0, 99)), not_before_us=draw(TIMES), avoid_nodes=draw(TEXTS),
        stop_cause=draw(st.none() | st.sampled_from(StopCause)), stop_actor=draw(st.none() | TEXT), reason=draw(st.none() | TEXT),
        progress=draw(st.none() | PROGRESS), idempotency_key=draw(st.none() | TEXT),
    )  # fmt: skip
    if draw(st.booleans()):
        job.attempt = Attempt(
            id=new_id(), job_id=job.id, number=draw(st.integers(1, 99)), tasks=draw(tasks()),
            state=draw(st.sampled_from(AttemptState)), created_us=draw(TIMES), started_us=draw(MAYBE_TIME),
            ended_us=draw(MAYBE_TIME), outcome=draw(st.none() | TEXT), reason=draw(st.none() | TEXT),
        )  # fmt: skip
    return job


def test_stop_causes_are_stored_by_name(store: Store) -> None:
    """Pinned: a cause that a later version inserts must not rename what is stored."""
    for number, cause in enumerate(StopCause, 1):
        job = sample_job(number, state=JobState.STOPPING, stop_cause=cause)
        store.commit(submitted(job))
    with store.database.reading() as connection:
        rests = connection.exec_driver_sql("SELECT rest FROM jobs ORDER BY number").scalars().all()
    assert rests == [
        f'{{"stop_cause":"{name}"}}'
        for name in (
            "migrate", "evict", "drain", "lost", "start_failed", "task_failed", "time_limit", "cancel",
        )
    ]  # fmt: skip


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(before=jobs(), after=jobs())
def test_any_job_comes_back_from_the_store_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, before: Job, after: Job
) -> None:
    store = Store.open(tmp_path_factory.mktemp("data"), ManualClock())
    try:
        store.commit(ChangeSet(new_jobs=[before], attempts=[before.attempt] if before.attempt else []))
        assert store.recover().jobs == [before]
        # The same job, later: everything that may change has changed.
        after.id, after.number, after.owner = before.id, before.number, before.owner
        after.program, after.submitted_us, after.idempotency_key = (
            before.program,
            before.submitted_us,
            before.idempotency_key,
        )
        attempts = [after.attempt] if after.attempt else []
        for attempt in attempts:
            attempt.job_id = before.id
            attempt.number = before.attempt.number + 1 if before.attempt else 1
        store.commit(ChangeSet(jobs=[after], attempts=attempts))
        assert store.recover().jobs == [after]
        assert store.get_job(after.id) == after
    finally:
        store.close()


def test_a_diverging_loss_is_kept(store: Store) -> None:
    job = sample_job(1)
    attempt = sample_attempt(job)
    job.progress = Progress(step=3, metrics={"loss": math.nan, "grad": math.inf, "lr": 0.1})
    store.commit(submitted(job))
    store.commit(started(job, attempt))
    store.commit(ChangeSet(steps=[(job.id, attempt.id, job.progress)]))
    for progress in (store.get_job(1).progress, *store.steps(job.id)):
        assert progress is not None
        assert math.isnan(progress.metrics["loss"])
        assert progress.metrics["grad"] == math.inf
        assert progress.metrics["lr"] == 0.1


def test_text_that_is_no_unicode_does_not_stop_the_commit(store: Store) -> None:
    job = sample_job(1, reason="cannot open /data/\udcff.bin\0")
    store.commit(submitted(job))
    assert store.get_job(1).reason == "cannot open /data/\ufffd.bin\0"


def test_state_survives_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    store = Store.open(tmp_path, clock)
    waiting, running, done = sample_job(1), sample_job(2), sample_job(3)
    store.commit(submitted(waiting, running, done))
    store.commit(started(running, sample_attempt(running)))
    store.commit(ended(done, clock.now))
    store.close()
    recovered = Store.open(tmp_path, clock).recover()
    assert recovered.jobs == [waiting, running]
    assert (recovered.last_seq, recovered.last_job_number) == (3, 3)


def test_recovery_tells_the_end_of_jobs_that_others_wait_for(store: Store, clock: ManualClock) -> None:
    good, bad, open_ = sample_job(1), sample_job(2), sample_job(3)
    waiting = sample_job(4, after=(good.id, bad.id, open_.id))
    store.commit(submitted(good, bad, open_, waiting))
    store.commit(ended(good, clock.now))
    store.commit(ended(bad, clock.now, JobState.FAILED))
    assert store.recover().ended_states == {good.id: "succeeded", bad.id: "failed"}


def test_counters_survive_although_events_are_gone(store: Store, clock: ManualClock) -> None:
    store.commit(submitted(sample_job(7), first_seq=100))
    store.commit(ChangeSet(events=[PublishedEvent(seq=101, time_us=1, kind="x", data={})]))
    recovered = store.recover()
    assert (recovered.last_seq, recovered.last_job_number) == (101, 7)


def test_only_the_last_attempt_is_in_the_job_and_all_are_listed(store: Store) -> None:
    job = sample_job(1)
    store.commit(submitted(job))
    first, second = sample_attempt(job, 1), sample_attempt(job, 2)
    store.commit(started(job, first))
    first.state, first.ended_us, first.outcome = AttemptState.LOST, 5, "lost"
    store.commit(ChangeSet(attempts=[first]))
    store.commit(started(job, second))
    assert store.get_job(1).attempt == second
    assert store.attempts(job.id) == [first, second]


def test_changes_of_single_tasks_are_stored(store: Store) -> None:
    job = sample_job(1)
    attempt = sample_attempt(job, tasks=50)
    store.commit(submitted(job))
    store.commit(started(job, attempt))
    for rank in (0, 17, 49):
        attempt.tasks[rank].state = TaskState.RUNNING
        store.commit(ChangeSet(attempts=[attempt]))
        assert store.attempts(job.id) == [attempt]
    attempt.tasks[17].state = TaskState.FAILED
    attempt.tasks[17].exit = TaskExit(code=1, reason="boom")
    store.recover()  # forgets what it knew of the stored tasks
    store.commit(ChangeSet(attempts=[attempt]))
    assert store.attempts(job.id) == [attempt]


def test_a_job_may_be_new_and_changed_in_one_step(store: Store) -> None:
    job = sample_job(1)
    attempt = sample_attempt(job)
    changes = submitted(job)
    changes.jobs = [job]
    changes.attempts = [attempt]
    job.state, job.attempt = JobState.STARTING, attempt
    store.commit(changes)
    assert store.get_job(1) == job


def test_a_commit_that_contradicts_the_store_writes_nothing(store: Store) -> None:
    store.commit(submitted(sample_job(1, idempotency_key="k")))
    twice = submitted(sample_job(2), sample_job(3, idempotency_key="k"), first_seq=2)
    with pytest.raises(Unavailable, match="Nothing was written"):
        store.commit(twice)
    with pytest.raises(NotFound):
        store.get_job(2)
    assert store.events(0).last_seq == 1
    store.commit(submitted(sample_job(2)))  # and goes on
    assert store.get_job(2).number == 2


def test_a_change_of_a_job_that_was_never_stored_is_refused(store: Store) -> None:
    with pytest.raises(Unavailable, match="not in the store"):
        store.commit(ChangeSet(jobs=[sample_job(1)]))


def test_same_idempotency_key_of_two_owners_are_two_jobs(store: Store) -> None:
    store.commit(submitted(sample_job(1, idempotency_key="k"), sample_job(2, owner=BEN, idempotency_key="k")))
    found = store.find_idempotent(BEN.id, "k")
    assert found is not None
    assert found.number == 2
    assert store.find_idempotent(ANNA.id, "other") is None


def test_queues_are_replaced_as_a_whole(store: Store) -> None:
    first = [QueueSpec(name="root", parent=None), QueueSpec(name="b", guaranteed={"gpu": 8000}, max={})]
    store.keep_queues(first)
    assert store.queues() == first
    second = [
        QueueSpec(name="root", parent=None),
        QueueSpec(name="a", ordering=Ordering.FIFO, user_limit_factor=0.5),
    ]
    store.keep_queues(second)
    store.keep_queues(second)
    assert store.queues() == second


def test_history_is_kept_in_order(store: Store) -> None:
    job = sample_job(1)
    store.commit(submitted(job))
    entry = HistoryEntry(job_id=job.id, time_us=9, from_state="pending", to_state="starting", cause="placed",
                         actor="system:scheduler", attempt=1, detail="node-0")  # fmt: skip
    store.commit(ChangeSet(history=[entry]))
    assert [item.to_state for item in store.history(job.id)] == ["pending", "starting"]
    assert store.history(job.id)[1] == entry


def test_an_older_scheduler_on_the_same_folder_no_longer_writes(tmp_path: Path, clock: ManualClock) -> None:
    old = Store.open(tmp_path, clock)
    old.commit(submitted(sample_job(1)))
    new = Store.open(tmp_path, clock)
    with pytest.raises(Superseded, match="Another scheduler"):
        old.commit(submitted(sample_job(2)))
    with pytest.raises(Superseded):
        old.blobs.put_bytes(b"x", ANNA.id)
    new.commit(submitted(sample_job(2)))
    assert new.recover().last_job_number == 2


def test_a_reader_beside_the_scheduler_takes_nothing_over_and_cannot_write(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = Store.open(tmp_path, clock)
    store.commit(submitted(sample_job(1)))
    reader = Store.open(tmp_path, clock, read_only=True)
    assert reader.get_job(1).number == 1
    with pytest.raises(Unavailable, match="reading only"):
        reader.commit(submitted(sample_job(2)))
    store.commit(submitted(sample_job(2)))
    assert reader.get_job(2).number == 2


def test_reading_where_no_store_is_makes_none(tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(Unavailable, match="no database"):
        Store.open(tmp_path / "none", clock, read_only=True)
    assert not (tmp_path / "none").exists()


def test_what_an_administrator_set_for_a_node_is_read_back_and_the_newest_counts(store: Store) -> None:
    first = HealthSetting(
        node="n1", health=NodeHealth.CORDONED, actor="unix:0", actor_name="root", reason="new fan", time_us=7
    )
    other = HealthSetting(node="n0", health=NodeHealth.READY, actor="unix:1", actor_name="ada", time_us=8)
    store.commit(ChangeSet(health_settings=[first, other]))
    assert store.recover().health_settings == [other, first]
    again = HealthSetting(node="n1", health=NodeHealth.LOST, actor="unix:1", actor_name="ada", time_us=9)
    store.commit(ChangeSet(health_settings=[again]))
    assert store.recover().health_settings == [other, again]
