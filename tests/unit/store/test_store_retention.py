from __future__ import annotations

from support.store_samples import (
    ANNA,
    ManualClock,
    ended,
    sample_attempt,
    sample_job,
    started,
    submitted,
)

from gpucluster.engine.protocols import ChangeSet
from gpucluster.model.events import PublishedEvent
from gpucluster.model.jobs import Attempt, InputManifest, Job, Progress, ResultManifest, TaskExit
from gpucluster.store import Store
from gpucluster.store.blobs import GRACE_S
from gpucluster.store.retention import Retention, RetentionPolicy

NOTHING = dict.fromkeys(RetentionPolicy.__struct_fields__)
DAY_S = 24 * 3600.0


class Files:
    """The files of attempts, as a backend would keep them."""

    def __init__(self, size: int = 100) -> None:
        self.size = size
        self.discarded: list[str] = []
        self.stuck: set[str] = set()

    def discard(self, attempt_id: str) -> None:
        if attempt_id in self.stuck:
            raise PermissionError("stuck")
        self.discarded.append(attempt_id)

    def measure(self, attempt_id: str) -> int:
        return self.size


def retention(store: Store, files: Files | None = None, **caps: object) -> Retention:
    files = files or Files()
    policy = RetentionPolicy(**{**NOTHING, **caps})
    return store.retention(policy, discard=files.discard, measure=files.measure)


def run(
    store: Store, number: int, clock: ManualClock, *, end: bool = True, steps: int = 0
) -> tuple[Job, Attempt]:
    job = sample_job(number)
    attempt = sample_attempt(job)
    store.commit(submitted(job))
    store.commit(started(job, attempt))
    if steps:
        store.commit(ChangeSet(steps=[(job.id, attempt.id, Progress(step=step)) for step in range(steps)]))
    if end:
        store.commit(ended(job, clock.now))
    return job, attempt


def until_done(sweeper: Retention, clock: ManualClock) -> None:
    while sweeper.run_slice(clock.now).more:
        pass


def test_without_caps_nothing_goes(store: Store, clock: ManualClock) -> None:
    files = Files()
    job, _ = run(store, 1, clock, steps=10)
    clock.advance(10_000 * DAY_S)
    until_done(retention(store, files), clock)
    assert len(store.steps(job.id)) == 10
    assert store.events(0).oldest_seq == 1
    assert files.discarded == []


def add_events(store: Store, clock: ManualClock, first: int, last: int, text: str = "") -> None:
    events = [
        PublishedEvent(seq=seq, time_us=clock.now, kind="x", data={"t": text})
        for seq in range(first, last + 1)
    ]
    store.commit(ChangeSet(events=events))


def stored_event_bytes(store: Store) -> int:
    with store.database.reading() as connection:
        rows = connection.exec_driver_sql("SELECT data FROM events").scalars().all()
    return sum(len(data.encode()) for data in rows)


def test_events_beyond_the_size_go_oldest_first(store: Store, clock: ManualClock) -> None:
    add_events(store, clock, 1, 5000)
    row_bytes = len('{"t":""}') + 100
    until_done(retention(store, events_max_bytes=100 * row_bytes), clock)
    page = store.events(4950)
    assert (page.oldest_seq, page.last_seq, len(page.events), page.resync) == (4901, 5000, 50, False)
    assert store.events(4899).resync


def test_large_events_count_by_their_bytes(store: Store, clock: ManualClock) -> None:
    """Two bytes of UTF-8 a character: a row is far more than its number of characters, or than any usual row."""
    sweeper = retention(store, events_max_bytes=1_000_000)
    for first in range(1, 200, 20):
        add_events(store, clock, first, first + 19, "\u00e9" * 20_000)
        until_done(sweeper, clock)
        assert stored_event_bytes(store) <= 1_000_000
    assert store.events(0).oldest_seq == 177  # 24 of 40 kB
    add_events(store, clock, 201, 5000)
    until_done(sweeper, clock)
    assert 500_000 < stored_event_bytes(store) <= 1_000_000
    assert stored_event_bytes(store) + 100 * len(store.events(0, 10_000).events) <= 1_000_000


def test_events_beyond_the_age_go_and_the_sequence_goes_on(store: Store, clock: ManualClock) -> None:
    store.commit(
        ChangeSet(
            events=[PublishedEvent(seq=seq, time_us=clock.now, kind="x", data={}) for seq in range(1, 11)]
        )
    )
    clock.advance(2 * DAY_S)
    until_done(retention(store, events_max_age_s=DAY_S), clock)
    page = store.events(10)
    assert (page.oldest_seq, page.last_seq, page.resync) == (11, 10, False)
    assert store.recover().last_seq == 10
    assert store.events(3).resync


def test_old_attempts_keep_first_and_last_step(store: Store, clock: ManualClock) -> None:
    old, _ = run(store, 1, clock, steps=50)
    clock.advance(2 * DAY_S)
    new, _ = run(store, 2, clock, steps=50)
    until_done(retention(store, steps_max_age_s=DAY_S), clock)
    assert [progress.step for progress in store.steps(old.id)] == [0, 49]
    assert len(store.steps(new.id)) == 50


def test_only_so_many_ended_attempts_keep_their_whole_curve(store: Store, clock: ManualClock) -> None:
    jobs = []
    for number in range(1, 6):
        jobs.append(run(store, number, clock, steps=5)[0])
        clock.advance(1)
    until_done(retention(store, steps_max_attempts=2), clock)
    assert [len(store.steps(job.id)) for job in jobs] == [2, 2, 2, 5, 5]


def test_old_logs_are_discarded_once(store: Store, clock: ManualClock) -> None:
    files = Files()
    _, old = run(store, 1, clock)
    clock.advance(2 * DAY_S)
    run(store, 2, clock)
    sweeper = retention(store, files, logs_max_age_s=DAY_S)
    until_done(sweeper, clock)
    until_done(sweeper, clock)
    assert files.discarded == [old.id]


def test_logs_beyond_the_size_go_oldest_first_until_the_rest_fits(store: Store, clock: ManualClock) -> None:
    files = Files(size=100)
    attempts = []
    for number in range(1, 121):
        attempts.append(run(store, number, clock)[1].id)
        clock.advance(1)
    until_done(retention(store, files, logs_max_bytes=1050), clock)
    assert files.discarded == attempts[:110]


def test_what_has_not_ended_is_never_touched(store: Store, clock: ManualClock) -> None:
    files = Files(size=10**9)
    running, _ = run(store, 1, clock, end=False, steps=20)
    # A job that waits for its second attempt: the first has ended, the job has not.
    waiting, first = run(store, 2, clock, end=False, steps=20)
    first.ended_us = clock.now
    store.commit(ChangeSet(attempts=[first]))
    clock.advance(1000 * DAY_S)
    sweeper = retention(
        store,
        files,
        steps_max_age_s=1,
        steps_max_attempts=0,
        logs_max_age_s=1,
        logs_max_bytes=0,
        inputs_max_age_s=1,
    )
    until_done(sweeper, clock)
    assert files.discarded == []
    assert len(store.steps(running.id)) == len(store.steps(waiting.id)) == 20


def test_files_that_cannot_be_removed_do_not_keep_the_others(store: Store, clock: ManualClock) -> None:
    files = Files()
    _, stuck = run(store, 1, clock)
    _, other = run(store, 2, clock)
    files.stuck.add(stuck.id)
    clock.advance(2 * DAY_S)
    sweeper = retention(store, files, logs_max_age_s=DAY_S)
    until_done(sweeper, clock)
    assert files.discarded == [other.id]
    files.stuck.clear()
    until_done(retention(store, files, logs_max_age_s=DAY_S), clock)
    assert files.discarded == [other.id, stuck.id]


def test_many_files_that_cannot_be_removed_do_not_keep_the_others(store: Store, clock: ManualClock) -> None:
    """More of them than are looked at at once, and all older than the others; tried again after some hours."""
    files = Files(size=100)
    stuck = [run(store, number, clock)[1].id for number in range(1, 121)]
    clock.advance(1)
    others = [run(store, number, clock)[1].id for number in range(121, 131)]
    files.stuck.update(stuck)
    clock.advance(2 * DAY_S)
    sweeper = retention(store, files, logs_max_age_s=DAY_S, logs_max_bytes=0)
    for _ in range(10):
        sweeper.run_slice(clock.now)
    assert sorted(files.discarded) == sorted(others)
    files.stuck.clear()
    sweeper.run_slice(clock.now)
    assert len(files.discarded) == len(others)
    clock.advance(7 * 3600)
    until_done(sweeper, clock)
    assert sorted(files.discarded) == sorted([*others, *stuck])


def test_files_that_cannot_be_removed_cost_no_other_its_files(store: Store, clock: ManualClock) -> None:
    files = Files(size=1000)
    files.stuck.add(run(store, 1, clock)[1].id)
    clock.advance(1)
    run(store, 2, clock)
    sweeper = retention(store, files, logs_max_bytes=1500)
    for _ in range(3):
        sweeper.run_slice(clock.now)
    assert files.discarded == []


def test_removal_is_noted_with_time_and_reason(store: Store, clock: ManualClock) -> None:
    _, old = run(store, 1, clock)
    clock.advance(31 * DAY_S)
    _, large = run(store, 2, clock)
    until_done(retention(store, logs_max_age_s=30 * DAY_S, logs_max_bytes=200), clock)
    assert store.files_discarded(old.id) == (clock.now, "the retention of 30 days")
    assert store.files_discarded(large.id) is None
    until_done(retention(store, logs_max_bytes=0), clock)
    noted = store.files_discarded(large.id)
    assert noted == (clock.now, "the limit of 0 GiB for the files of jobs that have ended")


def test_blobs_of_ended_jobs_are_let_go_and_those_of_others_stay(store: Store, clock: ManualClock) -> None:
    shared = store.blobs.put_bytes(b"shared", ANNA.id)
    own = store.blobs.put_bytes(b"own", ANNA.id)
    result = store.blobs.put_bytes(b"result", ANNA.id)
    done = sample_job(1, inputs=InputManifest(pickle=shared, buffers=(own,)))
    open_ = sample_job(2, inputs=InputManifest(pickle=shared))
    store.commit(submitted(done, open_))
    attempt = sample_attempt(done)
    attempt.tasks[0].exit = TaskExit(code=0, result=ResultManifest(pickle=result))
    store.commit(started(done, attempt))
    store.commit(ended(done, clock.now))
    clock.advance(8 * DAY_S)
    sweeper = retention(store, inputs_max_age_s=7 * DAY_S, results_max_age_s=90 * DAY_S)
    until_done(sweeper, clock)
    assert store.blobs.missing([shared, own, result], ANNA.id) == [own]
    clock.advance(90 * DAY_S + GRACE_S)
    until_done(sweeper, clock)
    assert store.blobs.missing([shared, result], ANNA.id) == [result]


def test_jobs_and_their_history_stay(store: Store, clock: ManualClock) -> None:
    job, attempt = run(store, 1, clock)
    clock.advance(10_000 * DAY_S)
    until_done(store.retention(RetentionPolicy(), discard=Files().discard, measure=Files().measure), clock)
    assert store.get_job(1) == job
    assert store.history(job.id)
    assert store.attempts(job.id) == [attempt]
