"""A crash at any instant: the engine rebuilt from the store goes on as if nothing had been."""

from __future__ import annotations

import pytest
from support.engine_bench import SECOND, Bench, gpu_queue, make_job, make_node, make_spec

from gpucluster.engine.core import Engine
from gpucluster.engine.protocols import ChangeSet, Recovered
from gpucluster.model.errors import GpuclusterError, InvalidRequest
from gpucluster.model.jobs import JobState, StopCause
from gpucluster.model.queues import QueueSpec


@pytest.fixture
def bench() -> Bench:
    return Bench(nodes=[make_node("n0"), make_node("n1")])


def test_running_job_goes_on_and_keeps_its_gpus(bench: Bench) -> None:
    job = bench.submit(gpus=8)
    bench.start(job)
    held = bench.gpus(job)
    bench.crash()
    assert bench.used("default") == 8000
    other = bench.submit(gpus=8)
    assert set(held).isdisjoint(bench.gpus(other))
    bench.end(job)
    assert bench.state(job) == "succeeded"


def test_counters_go_on_where_they_stood(bench: Bench) -> None:
    bench.submit()
    bench.crash()
    assert bench.job(bench.submit()).number == 2


def test_waiting_jobs_keep_their_order(bench: Bench) -> None:
    runs = bench.submit(gpus=8, tasks=2)
    first, second = bench.submit(gpus=8, tasks=2), bench.submit(gpus=8, tasks=2)
    bench.crash()
    assert [bench.engine.position(job) for job in (first, second)] == [1, 2]
    bench.end(runs)
    assert bench.states(first, second) == ["starting", "pending"]


def test_task_that_never_started_costs_the_job_nothing(bench: Bench) -> None:
    job = bench.submit()
    for _ in range(5):
        bench.crash()
        bench.fail_start(job, reason="the scheduler was away before the task began")
        assert bench.state(job) == "starting", "at once, on any node"
    assert bench.job(job).start_failures == 0


def test_stop_is_asked_for_again(bench: Bench) -> None:
    job = bench.submit(tasks=2)
    bench.start(job)
    bench.stop(job)
    bench.crash()
    assert [(stop.rank, stop.cause) for stop in bench.stops()] == [
        (0, StopCause.CANCEL),
        (1, StopCause.CANCEL),
    ]
    bench.end(job, code=143)
    assert bench.state(job) == "cancelled"


def test_time_limit_still_holds(bench: Bench) -> None:
    job = bench.submit(time_limit_s=60.0)
    bench.start(job)
    bench.pass_time(50)
    bench.crash()
    assert bench.last.wake_at_us == bench.now_us + 10 * SECOND


def test_back_off_still_holds(bench: Bench) -> None:
    job = bench.submit(retries=1)
    bench.end(job, code=1)
    bench.crash()
    assert bench.why(job).code == "back_off"
    bench.pass_time(1)
    assert bench.state(job) == "starting"


def test_dependencies_still_hold(bench: Bench) -> None:
    first = bench.submit()
    job = bench.submit(after=(first,))
    bench.crash()
    assert bench.why(job).code == "dependency"
    bench.end(first)
    assert bench.state(job) == "starting"


def test_dependency_that_failed_meanwhile_fails_the_job(bench: Bench) -> None:
    job = make_job(make_spec(after=("other",)), "job-1", number=1)
    bench.store.commit(ChangeSet(new_jobs=[job], submissions={job.id: b"{}"}))
    bench.engine.recover(
        Recovered(jobs=[job], last_seq=0, last_job_number=1, ended_states={"other": "cancelled"})
    )
    bench.step()
    assert bench.state("job-1") == "failed"


def test_retries_that_were_used_stay_used(bench: Bench) -> None:
    job = bench.submit(retries=1)
    bench.end(job, code=1)
    bench.crash()
    bench.pass_time(1)
    bench.end(job, code=1)
    assert bench.state(job) == "failed"


def test_attempt_on_a_node_that_has_not_come_back_holds_what_it_held(bench: Bench) -> None:
    job = bench.submit(gpus=8)
    bench.start(job)
    (name,) = bench.nodes_of(job)
    engine = Engine(queues=bench.queues, new_id=lambda time_us: "new")
    engine.recover(bench.store.recover())
    bench.engine = engine
    bench.step()
    bench.change_node(make_node(name))
    waiting = bench.submit(gpus=8)
    assert bench.state(waiting) == "pending"
    bench.end(job)
    assert bench.nodes_of(waiting) == [name]


def test_jobs_of_a_queue_that_was_removed_go_on_and_new_ones_are_refused() -> None:
    bench = Bench([gpu_queue("old"), gpu_queue("new")], [make_node("n0")])
    runs, waits = bench.submit("old", gpus=8), bench.submit("old", gpus=8)
    bench.queues = [gpu_queue("new")]
    bench.crash()
    spec = make_spec("old")
    with pytest.raises(GpuclusterError):
        bench.engine.check_admission(spec, bench.job(runs).owner)
    bench.end(runs)
    assert bench.state(waits) == "starting"


def test_queue_with_jobs_in_it_cannot_be_given_children() -> None:
    bench = Bench([gpu_queue("old")], [make_node("n0")])
    bench.submit("old")
    bench.queues = [QueueSpec(name="old"), QueueSpec(name="child", parent="old")]
    with pytest.raises(InvalidRequest, match="has jobs in it"):
        bench.crash()


def test_damaged_store_is_told_and_not_guessed_at(bench: Bench) -> None:
    job = make_job(make_spec(), number=1, state=JobState.RUNNING)
    with pytest.raises(GpuclusterError, match="damaged"):
        bench.engine.recover(Recovered(jobs=[job], last_seq=0, last_job_number=1))
