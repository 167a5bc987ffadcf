from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from support.store_samples import (
    ANNA,
    BEN,
    ManualClock,
    ended,
    sample_attempt,
    sample_job,
    started,
    submitted,
)

from gpucluster.engine.protocols import ChangeSet
from gpucluster.model.errors import NotFound
from gpucluster.model.events import PublishedEvent
from gpucluster.model.jobs import JobState, Progress, Share
from gpucluster.store import Store
from gpucluster.store.journal import STEPS_KEPT


def test_a_job_is_found_by_number_and_by_id(store: Store) -> None:
    job = sample_job(12)
    store.commit(submitted(job))
    assert store.get_job(12) == store.get_job("12") == store.get_job(job.id) == job


@pytest.mark.parametrize("reference", [99, "99", "no-such-job", "9" * 40, ""])
def test_an_unknown_job_is_not_found(store: Store, reference: str | int) -> None:
    with pytest.raises(NotFound):
        store.get_job(reference)


def test_jobs_are_listed_newest_first_page_by_page(store: Store) -> None:
    store.commit(submitted(*(sample_job(number) for number in range(1, 8))))
    first = store.list_jobs(limit=3)
    assert [job.number for job in first] == [7, 6, 5]
    second = store.list_jobs(limit=3, before=first[-1].id)
    assert [job.number for job in second] == [4, 3, 2]
    assert [job.number for job in store.list_jobs(limit=3, before=second[-1].id)] == [1]


def test_lists_are_filtered_by_owner_state_and_queue(store: Store, clock: ManualClock) -> None:
    mine, other, elsewhere = sample_job(1), sample_job(2, owner=BEN), sample_job(3, queue="speech")
    store.commit(submitted(mine, other, elsewhere))
    store.commit(ended(elsewhere, clock.now))
    assert [job.number for job in store.list_jobs(owner=ANNA.id)] == [3, 1]
    assert [job.number for job in store.list_jobs(states=[JobState.SUCCEEDED])] == [3]
    assert [job.number for job in store.list_jobs(queues=["vision"])] == [2, 1]
    assert store.list_jobs(states=[]) == []


def test_lists_are_filtered_by_cells_and_notebook(store: Store) -> None:
    jobs = [sample_job(number) for number in range(1, 5)]
    for job, cell, path in zip(
        jobs, ("a", "b", "a\0", "a"), ("x.ipynb", "x.ipynb", "x.ipynb", "y.ipynb"), strict=True
    ):
        job.program = msgspec.structs.replace(job.program, cell_id=cell, notebook_path=path)
    store.commit(submitted(*jobs))
    assert [job.number for job in store.list_jobs(cells=["a", "b"], notebook="x.ipynb")] == [2, 1]
    assert [job.number for job in store.list_jobs(cells=["a\0"])] == [3]
    assert [job.number for job in store.list_jobs(notebook="y.ipynb")] == [4]
    assert store.list_jobs(cells=[]) == []


def test_newest_ids_are_those_that_one_may_see_and_how_many_there_are(store: Store) -> None:
    jobs = [
        sample_job(1),
        sample_job(2, owner=BEN),
        sample_job(3, owner=BEN, queue="speech"),
        sample_job(4, queue="speech"),
        sample_job(5, owner=BEN, queue="speech"),
    ]
    jobs[4].spec = msgspec.structs.replace(jobs[4].spec, share=Share.EVERYONE)
    store.commit(submitted(*jobs))

    def newest(limit: int, **seen: Any) -> tuple[list[int], int]:
        ids, total = store.newest_ids(limit, owner=ANNA.id, **seen)
        return [job.number for job_id in ids for job in jobs if job.id == job_id], total

    assert newest(9) == ([4, 1], 2)
    assert newest(9, queues=["vision"]) == ([4, 2, 1], 3)
    assert newest(9, queues=["vision"], shares=[Share.EVERYONE]) == ([5, 4, 2, 1], 4)
    assert newest(2, queues=["vision", "speech"], count_at_most=100) == ([5, 4], 5)
    assert newest(2, queues=["vision", "speech"], count_at_most=3) == ([5, 4], 3)


def test_jobs_are_found_by_id_with_their_attempts(store: Store) -> None:
    first, second = sample_job(1), sample_job(2)
    store.commit(submitted(first, second))
    first.attempt = sample_attempt(first)
    store.commit(started(first, first.attempt))
    found = {job.number: job for job in store.jobs_by_id([second.id, "unknown", first.id])}
    assert found == {1: first, 2: second}
    assert store.jobs_by_id([]) == []


def test_counts_of_states(store: Store, clock: ManualClock) -> None:
    first, second = sample_job(1), sample_job(2)
    store.commit(submitted(first, second))
    store.commit(ended(second, clock.now, JobState.FAILED))
    counts = store.counts_by_state()
    assert (counts["pending"], counts["failed"], counts["running"]) == (1, 1, 0)


def test_the_submission_is_kept_to_the_byte(store: Store) -> None:
    job = sample_job(1)
    changes = submitted(job)
    changes.submissions[job.id] = b'{"source":\n"print(1)"  }'
    store.commit(changes)
    assert store.submission(job.id) == b'{"source":\n"print(1)"  }'
    with pytest.raises(NotFound):
        store.submission("unknown")


# ---- step reports


def report(store: Store, count: int, per_commit: int) -> str:
    job = sample_job(1)
    attempt = sample_attempt(job)
    store.commit(submitted(job))
    store.commit(started(job, attempt))
    for first in range(0, count, per_commit):
        steps = [Progress(step=step, time_us=step) for step in range(first, min(count, first + per_commit))]
        store.commit(ChangeSet(steps=[(job.id, attempt.id, progress) for progress in steps]))
    return job.id


def test_few_step_reports_are_all_kept(store: Store) -> None:
    job_id = report(store, 40, per_commit=7)
    assert [progress.step for progress in store.steps(job_id)] == list(range(40))


@pytest.mark.parametrize(("count", "per_commit"), [(2500, 1), (10_001, 97), (9000, 9000)])
def test_many_step_reports_are_thinned_evenly_with_first_and_last(
    store: Store, count: int, per_commit: int
) -> None:
    job_id = report(store, count, per_commit)
    steps = [progress.step for progress in store.steps(job_id, limit=10**6)]
    assert steps[0] == 0
    assert steps[-1] == count - 1
    assert STEPS_KEPT / 2 <= len(steps) <= STEPS_KEPT + 1
    gaps = {after - before for before, after in itertools.pairwise(steps[:-1])}
    assert len(gaps) == 1


def test_thinning_goes_on_after_a_restart_where_it_stood(store: Store) -> None:
    job = sample_job(1)
    attempt = sample_attempt(job)
    store.commit(submitted(job))
    store.commit(started(job, attempt))
    for first in range(0, 3000, 100):
        store.recover()
        steps = [Progress(step=step) for step in range(first, first + 100)]
        store.commit(ChangeSet(steps=[(job.id, attempt.id, progress) for progress in steps]))
    kept = [progress.step for progress in store.steps(job.id, limit=10**6)]
    assert kept == [*range(0, 3000, 4), 2999]


def test_fewer_steps_can_be_asked_for(store: Store) -> None:
    job_id = report(store, 100, per_commit=100)
    assert [progress.step for progress in store.steps(job_id, limit=3)] == [0, 50, 99]
    assert [progress.step for progress in store.steps(job_id, limit=1)] == [99]
    assert store.steps(job_id, limit=0) == []


def test_steps_are_of_the_last_attempt_unless_another_is_named(store: Store) -> None:
    job = sample_job(1)
    first, second = sample_attempt(job, 1), sample_attempt(job, 2)
    store.commit(submitted(job))
    store.commit(started(job, first))
    store.commit(ChangeSet(attempts=[second]))
    store.commit(
        ChangeSet(steps=[(job.id, first.id, Progress(step=1)), (job.id, second.id, Progress(step=2))])
    )
    assert [progress.step for progress in store.steps(job.id)] == [2]
    assert [progress.step for progress in store.steps(job.id, attempt=1)] == [1]
    assert store.steps(job.id, attempt=9) == []


# ---- events


def test_events_are_read_from_a_number_on(store: Store) -> None:
    events = [
        PublishedEvent(seq=seq, time_us=seq, kind="queue.usage", data={"used": seq}) for seq in range(1, 6)
    ]
    store.commit(ChangeSet(events=events))
    page = store.events(2, limit=2)
    assert page.events == events[2:4]
    assert (page.oldest_seq, page.last_seq, page.resync) == (1, 5, False)
    assert store.events(5).events == []
    assert not store.events(5).resync


def test_a_number_of_another_cluster_means_resync(store: Store) -> None:
    store.commit(ChangeSet(events=[PublishedEvent(seq=1, time_us=1, kind="x", data={})]))
    assert store.events(2).resync
    assert store.events(-1).resync


def test_an_empty_store_has_no_events_and_needs_no_resync(store: Store) -> None:
    page = store.events(0)
    assert (page.events, page.oldest_seq, page.last_seq, page.resync) == ([], 1, 0, False)


def test_long_events_are_read_a_few_at_a_time(store: Store, clock: ManualClock) -> None:
    events = [PublishedEvent(seq=seq, time_us=1, kind="x", data={"t": "x" * 1000}) for seq in range(1, 11)]
    store.commit(ChangeSet(events=events))
    assert [event.seq for event in store.events(0, 100, 3500).events] == [1, 2, 3]
    assert [event.seq for event in store.events(3, 100, 10).events] == [4]
    assert len(store.events(0, 100).events) == 10
