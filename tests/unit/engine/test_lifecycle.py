"""DESIGN section 5, row by row: what a job goes through, as its owner sees it."""

from __future__ import annotations

import pytest
from support.engine_bench import SECOND, Bench, make_node

from gpucluster.engine import transitions
from gpucluster.engine.events import (
    ShareChanged,
    StopRequested,
    TaskEnded,
    TaskLost,
    TaskStarted,
    TaskStartFailed,
)
from gpucluster.engine.instructions import StartTask
from gpucluster.engine.transitions import InvalidTransition, Trigger
from gpucluster.model.errors import Conflict, InvalidRequest, NotFound
from gpucluster.model.jobs import JobState, Requeue, ResultManifest, Share, StopCause, TaskExit
from gpucluster.model.topology import NodeHealth


@pytest.fixture
def bench() -> Bench:
    return Bench(nodes=[make_node("n0"), make_node("n1")])


# ---- the plain way


def test_job_goes_from_pending_to_succeeded_and_frees_its_gpus(bench: Bench) -> None:
    job = bench.submit(gpus=2)
    assert bench.state(job) == "starting"
    assert len(bench.gpus(job)) == 2
    bench.start(job)
    assert bench.state(job) == "running"
    bench.end(job)
    assert bench.story(job) == ["pending", "starting", "running", "succeeded"]
    assert bench.used("default") == 0
    assert job not in bench.engine.state.jobs


def test_start_is_asked_for_once_per_task_with_its_placement(bench: Bench) -> None:
    job = bench.submit(gpus=1, tasks=3)
    starts = [one for one in bench.last.instructions if isinstance(one, StartTask)]
    assert [one.placement.rank for one in starts] == [0, 1, 2]
    assert {one.attempt_id for one in starts} == {bench.attempt_id(job)}


def test_gang_runs_when_the_last_task_is_up(bench: Bench) -> None:
    job = bench.submit(tasks=2)
    bench.start(job, 0)
    assert bench.state(job) == "starting"
    bench.start(job, 1)
    assert bench.state(job) == "running"


def test_gang_succeeds_when_the_last_task_has_ended_well(bench: Bench) -> None:
    job = bench.submit(tasks=2)
    bench.start(job)
    bench.end(job, 0)
    assert bench.state(job) == "running"
    assert bench.used("default") == 2000, "a gang's GPUs are held until every task is over"
    bench.end(job, 1)
    assert bench.state(job) == "succeeded"


def test_task_that_ends_before_it_was_seen_to_start_counts_as_started(bench: Bench) -> None:
    job = bench.submit()
    bench.end(job)
    assert bench.story(job) == ["pending", "starting", "running", "succeeded"]


def test_numbers_count_up_and_the_sequence_has_no_gap(bench: Bench) -> None:
    first, second = bench.submit(), bench.submit()
    assert [bench.job(first).number, bench.job(second).number] == [1, 2]
    assert [event.seq for event in bench.store.events] == list(range(1, len(bench.store.events) + 1))


# ---- failure and retry


def test_failed_job_says_how_its_task_ended(bench: Bench) -> None:
    job = bench.submit()
    bench.start(job)
    bench.end(job, code=1, error_name="ValueError", error_value="bad shape")
    assert bench.story(job)[-2:] == ["running", "failed"]
    assert bench.job(job).reason == "ValueError: bad shape"


def test_failure_of_one_rank_stops_the_rest_and_names_the_rank(bench: Bench) -> None:
    job = bench.submit(tasks=3)
    bench.start(job)
    bench.end(job, 1, code=3)
    assert bench.state(job) == "stopping"
    assert [(stop.rank, stop.cause) for stop in bench.stops()] == [
        (0, StopCause.TASK_FAILED),
        (2, StopCause.TASK_FAILED),
    ]
    bench.end(job, 0, 2, code=143, signal=15)
    assert bench.state(job) == "failed"
    assert bench.job(job).reason == "rank 1 on n0: ended with exit code 3"
    assert bench.used("default") == 0


def test_failed_attempt_is_tried_again_after_a_back_off_while_retries_are_left(bench: Bench) -> None:
    job = bench.submit(retries=1)
    bench.start(job)
    bench.end(job, code=1)
    assert bench.state(job) == "pending"
    assert bench.last.wake_at_us == bench.now_us + 1 * SECOND
    assert bench.why(job).code == "back_off"
    bench.pass_time(1)
    assert bench.state(job) == "starting"
    assert bench.job(job).attempts_made == 2
    bench.end(job, code=1)
    assert bench.state(job) == "failed"
    assert bench.job(job).reason == "failed 2 times, the last time: ended with exit code 1"


def test_what_a_failed_attempt_gave_back_is_kept_when_it_was_the_last(bench: Bench) -> None:
    made = ResultManifest(pickle="a" * 64, names=("net",))
    job = bench.submit(retries=1)
    bench.end(job, code=1, result=made)
    assert [task.exit and task.exit.result for task in bench.job(job).attempt.tasks] == [None]
    bench.pass_time(1)
    bench.end(job, code=1, result=made)
    assert [task.exit and task.exit.result for task in bench.job(job).attempt.tasks] == [made]


def test_back_off_doubles(bench: Bench) -> None:
    job = bench.submit(retries=3)
    waits = []
    for _ in range(3):
        bench.end(job, code=1)
        waits.append((bench.job(job).not_before_us - bench.now_us) / SECOND)
        bench.pass_time(waits[-1])
    assert waits == [1, 2, 4]


# ---- tasks that cannot start


def test_task_that_could_not_start_is_tried_again_on_another_node(bench: Bench) -> None:
    job = bench.submit()
    (first,) = bench.nodes_of(job)
    bench.fail_start(job)
    assert bench.state(job) == "pending"
    bench.pass_time(1)
    (second,) = bench.nodes_of(job)
    assert second != first


def test_job_fails_after_three_failed_starts_in_a_row(bench: Bench) -> None:
    job = bench.submit(retries=5)
    for _ in range(3):
        bench.fail_start(job)
        bench.pass_time(10)
    assert bench.state(job) == "failed"
    assert bench.job(job).reason == "could not start: no such interpreter (3 times in a row)"


def test_start_that_can_never_work_fails_at_once_whatever_retries_are_left(bench: Bench) -> None:
    job = bench.submit(retries=5)
    bench.fail_start(job, retry=False)
    assert bench.state(job) == "failed"
    assert "no such interpreter" in (bench.job(job).reason or "")


def test_failed_start_of_one_rank_stops_the_rest_of_the_gang(bench: Bench) -> None:
    job = bench.submit(tasks=2)
    bench.start(job, 0)
    bench.fail_start(job, 1)
    assert bench.state(job) == "stopping"
    assert [stop.rank for stop in bench.stops()] == [0]
    bench.end(job, 0, code=143)
    assert bench.state(job) == "pending"
    assert bench.job(job).failures == 0, "not the job's fault"


# ---- cancel and other stops


def test_cancel_of_a_waiting_job_ends_it_at_once(bench: Bench) -> None:
    bench.submit(gpus=8, tasks=2)
    job = bench.submit()
    bench.stop(job)
    assert bench.story(job) == ["pending", "cancelled"]


def test_cancel_of_a_running_job_gives_grace_and_holds_the_gpus_until_it_is_over(bench: Bench) -> None:
    job = bench.submit(gpus=2, grace_s=7.0)
    bench.start(job)
    bench.stop(job)
    assert bench.state(job) == "stopping"
    assert [stop.grace_s for stop in bench.stops()] == [7.0]
    assert bench.used("default") == 2000
    bench.end(job, code=143, signal=15)
    assert bench.state(job) == "cancelled"
    assert bench.used("default") == 0


def test_two_cancels_act_as_one(bench: Bench) -> None:
    job = bench.submit()
    bench.start(job)
    bench.stop(job)
    bench.stop(job)
    assert bench.stops() == []
    bench.end(job, code=143)
    assert bench.story(job)[-2:] == ["stopping", "cancelled"]


@pytest.mark.parametrize("first", [StopCause.EVICT, StopCause.DRAIN, StopCause.TIME_LIMIT])
def test_cancel_during_another_stop_ends_in_cancelled(bench: Bench, first: StopCause) -> None:
    job = bench.submit()
    bench.start(job)
    bench.stop(job, first)
    bench.stop(job)
    assert [stop.cause for stop in bench.stops()] == [StopCause.CANCEL]
    bench.end(job, code=143)
    assert bench.state(job) == "cancelled"


def test_eviction_during_a_cancel_changes_nothing(bench: Bench) -> None:
    job = bench.submit()
    bench.start(job)
    bench.stop(job)
    bench.stop(job, StopCause.EVICT)
    assert bench.stops() == []
    bench.end(job, code=143)
    assert bench.state(job) == "cancelled"


def test_cancel_during_the_stop_after_a_failure_ends_in_cancelled(bench: Bench) -> None:
    job = bench.submit(tasks=2, retries=3)
    bench.start(job)
    bench.end(job, 0, code=1)
    bench.stop(job)
    bench.end(job, 1, code=143)
    assert bench.state(job) == "cancelled"


def test_job_that_had_ended_well_before_the_cancel_has_succeeded(bench: Bench) -> None:
    job = bench.submit()
    bench.start(job)
    bench.pass_time(1)
    bench.stop(job)
    bench.end(job, code=0, stop_cause=None)
    assert bench.state(job) == "succeeded"


@pytest.mark.parametrize("skew_us", [-3600 * SECOND, 3600 * SECOND])
def test_evicted_job_that_leaves_in_good_order_is_no_success_whatever_the_clocks_say(
    bench: Bench, skew_us: int
) -> None:
    job = bench.submit()
    bench.start(job)
    bench.stop(job, StopCause.EVICT)
    bench.end(job, code=0, ended_us=bench.now_us + skew_us)
    assert "succeeded" not in bench.story(job)
    assert bench.job(job).losses == 1


@pytest.mark.parametrize("code", [0, 143])
def test_job_told_to_end_from_outside_comes_back_and_loses_no_retry(bench: Bench, code: int) -> None:
    job = bench.submit(retries=0)
    bench.start(job)
    bench.end(job, code=code, stop_cause="signal")
    assert bench.story(job)[-2:] == ["pending", "starting"]
    assert (bench.job(job).losses, bench.job(job).failures) == (1, 0)


def test_job_that_ends_well_because_it_was_cancelled_is_cancelled(bench: Bench) -> None:
    job = bench.submit()
    bench.start(job)
    bench.stop(job)
    bench.pass_time(1)
    bench.end(job, code=0)
    assert bench.state(job) == "cancelled"


def test_cancel_of_an_ended_job_is_refused(bench: Bench) -> None:
    job = bench.submit()
    bench.end(job)
    with pytest.raises(Conflict):
        bench.stop(job)


def test_cancel_that_comes_with_the_end_of_the_job_is_refused_and_the_end_stands(bench: Bench) -> None:
    job = bench.submit()
    bench.start(job)
    end = TaskEnded(bench.attempt_id(job), 0, TaskExit(code=0, ended_us=bench.now_us))
    result = bench.step(end, StopRequested(job, StopCause.CANCEL, "unix:1000"))
    assert bench.state(job) == "succeeded"
    assert [type(error) for _, error in result.refused] == [Conflict]


def test_evicted_job_comes_back(bench: Bench) -> None:
    job = bench.submit()
    bench.start(job)
    bench.stop(job, StopCause.EVICT)
    bench.end(job, code=143)
    assert bench.story(job)[-3:] == ["stopping", "pending", "starting"]
    assert bench.job(job).losses == 1


def test_evicted_job_with_requeue_never_fails(bench: Bench) -> None:
    job = bench.submit(requeue=Requeue.NEVER)
    bench.start(job)
    bench.stop(job, StopCause.EVICT)
    bench.end(job, code=143)
    assert bench.state(job) == "failed"


def test_eviction_of_a_waiting_job_is_refused(bench: Bench) -> None:
    bench.submit(gpus=8, tasks=2)
    job = bench.submit()
    with pytest.raises(Conflict):
        bench.stop(job, StopCause.EVICT)


def test_causes_that_come_from_tasks_cannot_be_asked_for(bench: Bench) -> None:
    job = bench.submit()
    with pytest.raises(InvalidRequest):
        bench.stop(job, StopCause.TASK_FAILED)


def test_unanswered_stop_is_asked_for_again_after_the_grace_period(bench: Bench) -> None:
    job = bench.submit(grace_s=10.0)
    bench.start(job)
    bench.stop(job)
    assert bench.last.wake_at_us is not None
    bench.pass_time(15)
    assert [stop.rank for stop in bench.stops()] == [0]


def test_task_that_comes_up_during_a_stop_is_told_to_stop(bench: Bench) -> None:
    job = bench.submit()
    bench.stop(job)
    bench.start(job)
    assert [stop.cause for stop in bench.stops()] == [StopCause.CANCEL]


# ---- time limit


def test_time_limit_counts_running_time_only(bench: Bench) -> None:
    job = bench.submit(time_limit_s=60.0)
    bench.pass_time(1000)
    bench.start(job)
    assert bench.last.wake_at_us == bench.now_us + 60 * SECOND
    bench.pass_time(59)
    assert bench.state(job) == "running"
    bench.pass_time(1)
    assert bench.state(job) == "stopping"
    bench.end(job, code=143)
    assert bench.state(job) == "failed"
    assert bench.job(job).reason == "reached its time limit of 60 s"


def test_job_that_ends_well_in_the_step_of_its_time_limit_has_succeeded(bench: Bench) -> None:
    job = bench.submit(time_limit_s=60.0)
    bench.start(job)
    attempt = bench.attempt_id(job)
    bench.step(TaskEnded(attempt, 0, TaskExit(code=0, ended_us=bench.now_us + 59 * SECOND)), after_s=61)
    assert bench.state(job) == "succeeded"


# ---- losses


def test_lost_task_sends_the_job_back_to_its_old_place(bench: Bench) -> None:
    job = bench.submit(gpus=8, tasks=2)
    waiting = bench.submit(gpus=8, tasks=2)
    bench.start(job)
    bench.lose(job, 0, 1)
    assert bench.states(job, waiting) == ["starting", "pending"]
    assert bench.story(job)[-2:] == ["pending", "starting"]
    assert bench.job(job).losses == 1


def test_loss_of_one_rank_stops_the_others_first(bench: Bench) -> None:
    job = bench.submit(tasks=2)
    bench.start(job)
    bench.lose(job, 0)
    assert bench.state(job) == "stopping"
    assert [(stop.rank, stop.cause) for stop in bench.stops()] == [(1, StopCause.LOST)]
    bench.end(job, 1, code=1)
    assert "pending" in bench.story(job)[-2:]
    assert bench.job(job).failures == 0


def test_failure_of_peers_is_explained_by_the_loss_that_follows(bench: Bench) -> None:
    job = bench.submit(tasks=2)
    bench.start(job)
    bench.end(job, 1, code=1, error_name="ConnectionError")
    bench.lose(job, 0)
    assert bench.state(job) in ("pending", "starting")
    assert (bench.job(job).failures, bench.job(job).losses) == (0, 1)


def test_lost_job_with_requeue_never_fails_and_says_so(bench: Bench) -> None:
    job = bench.submit(requeue=Requeue.NEVER)
    bench.start(job)
    bench.lose(job)
    assert bench.state(job) == "failed"
    assert "not tried again" in (bench.job(job).reason or "")


def test_lost_task_of_a_cancelled_job_ends_it_as_cancelled(bench: Bench) -> None:
    job = bench.submit()
    bench.start(job)
    bench.stop(job)
    bench.lose(job)
    assert bench.state(job) == "cancelled"


def test_lost_node_frees_nothing_until_its_tasks_are_surely_over(bench: Bench) -> None:
    job = bench.submit(gpus=8)
    bench.start(job)
    (name,) = bench.nodes_of(job)
    bench.change_node(make_node(name), health=NodeHealth.LOST)
    assert bench.state(job) == "running"
    assert bench.used("default") == 8000
    bench.lose(job)
    assert bench.nodes_of(job) != [name], "it went to the other node"


def test_repeated_loss_backs_off(bench: Bench) -> None:
    job = bench.submit()
    bench.lose(job)
    assert bench.state(job) == "starting", "the first loss costs no time"
    bench.lose(job)
    assert bench.why(job).code == "back_off"


# ---- dependencies


def test_job_starts_when_the_ones_it_waits_for_have_succeeded(bench: Bench) -> None:
    first, second = bench.submit(), bench.submit()
    job = bench.submit(after=(first, second))
    bench.end(first)
    assert bench.state(job) == "pending"
    assert bench.why(job).facts == {"waits_for": [2]}
    bench.end(second)
    assert bench.state(job) == "starting"


def test_job_fails_when_one_that_it_waits_for_does(bench: Bench) -> None:
    first = bench.submit()
    chain = [bench.submit(after=(first,))]
    chain.append(bench.submit(after=(chain[0], first)))
    bench.stop(first)
    bench.end(first, code=143)
    assert bench.states(*chain) == ["failed", "failed"]
    assert bench.job(chain[0]).reason == "waited for job 1, which has been cancelled"


def test_long_chain_of_dependents_falls_in_one_step(bench: Bench) -> None:
    job = bench.submit()
    first = job
    for _ in range(300):
        job = bench.submit(after=(job,))
    bench.end(first, code=1)
    assert bench.state(job) == "failed"
    assert bench.engine.state.jobs == {}


def test_dependency_that_ended_before_is_met(bench: Bench) -> None:
    job = bench.submit(after=("old",), ended_dependencies={"old": JobState.SUCCEEDED})
    assert bench.state(job) == "starting"


def test_dependency_that_failed_before_fails_the_job(bench: Bench) -> None:
    states, numbers = {"old": JobState.FAILED}, {"old": 47}
    job = bench.submit(after=("old",), ended_dependencies=states, dependency_numbers=numbers)
    assert bench.story(job) == ["pending", "failed"]
    assert bench.job(job).reason == "waited for job 47, which has failed"


def test_dependency_that_ended_a_moment_ago_is_known(bench: Bench) -> None:
    first = bench.submit()
    bench.end(first)
    assert bench.state(bench.submit(after=(first,))) == "starting"


def test_unknown_dependency_is_refused_and_changes_nothing(bench: Bench) -> None:
    with pytest.raises(NotFound):
        bench.submit(after=("nobody",))
    assert bench.store.jobs() == []
    assert bench.job(bench.submit()).number == 1


# ---- late, double and foreign news


def test_late_news_of_an_old_attempt_is_counted_and_left(bench: Bench) -> None:
    job = bench.submit(retries=1)
    old = bench.attempt_id(job)
    bench.end(job, code=1)
    bench.pass_time(1)
    bench.step(TaskEnded(old, 0, TaskExit(code=0)), TaskStarted(old, 0), TaskLost(old, 0, "late"))
    assert bench.state(job) == "starting"
    assert bench.engine.late_events == {"TaskEnded": 1, "TaskStarted": 1, "TaskLost": 1}


def test_second_end_of_a_task_changes_nothing(bench: Bench) -> None:
    job = bench.submit(tasks=2)
    bench.start(job)
    bench.end(job, 0)
    bench.end(job, 0, code=1)
    assert bench.state(job) == "running"


def test_news_of_a_rank_that_does_not_exist_is_left(bench: Bench) -> None:
    job = bench.submit()
    bench.step(TaskStartFailed(bench.attempt_id(job), 7, "no", True), TaskStarted(bench.attempt_id(job), -1))
    assert bench.state(job) == "starting"


# ---- submission


def test_second_submission_under_one_idempotency_key_is_refused(bench: Bench) -> None:
    bench.submit(idempotency_key="k")
    with pytest.raises(Conflict) as refused:
        bench.submit(idempotency_key="k")
    assert refused.value.field == "idempotency_key"


def test_submission_to_a_queue_that_is_not_there_is_refused(bench: Bench) -> None:
    with pytest.raises(NotFound):
        bench.submit("nowhere")


def test_share_can_be_changed_while_the_job_lives(bench: Bench) -> None:
    job = bench.submit()
    bench.step(ShareChanged(job, Share.EVERYONE, "unix:1000"))
    assert bench.job(job).spec.share is Share.EVERYONE
    bench.end(job)
    assert len(bench.step(ShareChanged(job, Share.OWNER, "unix:1000")).refused) == 1


# ---- the table


def test_transition_that_is_not_in_the_table_tells_the_jobs_story(bench: Bench) -> None:
    job_id = bench.submit()
    job = bench.engine.state.jobs[job_id]
    with pytest.raises(InvalidTransition) as error:
        transitions.check(job, Trigger.CANCEL, JobState.CANCELLED, bench.engine.state.story(job_id))
    assert [entry.to_state for entry in error.value.story] == ["pending", "starting"]
    assert "pending -> starting (placed" in str(error.value)


def test_no_transition_leads_out_of_an_end_state() -> None:
    ended = {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    assert not [rule for rule in transitions.TABLE.values() if rule.source in ended]


def test_gpus_are_taken_on_placement_and_freed_with_the_attempt() -> None:
    holding = {JobState.STARTING, JobState.RUNNING, JobState.SUSPENDED, JobState.STOPPING}
    for rule in transitions.TABLE.values():
        expected = {
            (False, False): "none",
            (False, True): "taken",
            (True, True): "held",
            (True, False): "freed",
        }[rule.source in holding, rule.target in holding]
        assert rule.gpus.value == expected, rule
