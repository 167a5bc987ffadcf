"""What followers are told, and what the store gets of step reports."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.engine_bench import SECOND, Bench, gpu_queue, make_node

from gpucluster.engine.events import EndedJobShared, NodeChanged, ShareChanged, StepReported
from gpucluster.model.jobs import Progress, Share
from gpucluster.model.topology import NodeHealth


@pytest.fixture
def bench() -> Bench:
    return Bench([gpu_queue("vision"), gpu_queue("nlp")], [make_node("n0")])


def report(bench: Bench, job: str, step: int, after_s: float = 0.0, rank: int = 0) -> list[dict[str, Any]]:
    """Reports a step and returns the data of the progress events that it led to."""
    time_us = bench.now_us + round(after_s * SECOND)
    progress = Progress(step=step, total=100, metrics={"loss": 1 / (step + 1)}, time_us=time_us, rank=rank)
    bench.step(StepReported(bench.attempt_id(job), progress), after_s=after_s)
    return told(bench, "job.progress")


def told(bench: Bench, kind: str) -> list[dict[str, Any]]:
    """Data of the events of one kind in the last step."""
    return [event.data for event in bench.last.changes.events if event.kind == kind]


def test_state_events_carry_what_a_list_of_jobs_shows(bench: Bench) -> None:
    bench.submit("vision", gpus=2, name="train")
    pending, starting = told(bench, "job.state")
    assert (pending["state"], starting["state"], starting["from"]) == ("pending", "starting", "pending")
    assert {
        "number": 1,
        "name": "train",
        "queue": "vision",
        "owner_name": "alice",
        "gpus": 2.0,
    }.items() <= starting.items()
    assert starting["placement"] == {"n0": ["n0/0", "n0/1"]}


def test_state_events_can_be_filtered_by_owner_and_queue(bench: Bench) -> None:
    job = bench.submit("vision")
    event = bench.store.events[-1]
    (state,) = [e for e in bench.store.events if e.kind == "job.state" and e.data["state"] == "starting"]
    assert (state.owner, state.queue, state.job_id) == ("unix:1000", "vision", job)
    assert event.kind == "queue.usage"


def test_queue_events_cover_the_queue_and_what_is_above_it(bench: Bench) -> None:
    bench.submit("vision", gpus=8)
    bench.submit("vision", gpus=1)
    usage = {data["queue"]: data for data in told(bench, "queue.usage")}
    assert set(usage) == {"root", "vision"}
    assert (usage["vision"]["waiting"], usage["vision"]["running"]) == (1, 1)
    assert usage["root"]["used"]["gpu"] == 8000


def test_first_report_is_first_feedback_and_is_published_at_once(bench: Bench) -> None:
    job = bench.submit("vision")
    bench.start(job)
    (data,) = report(bench, job, 1)
    assert (data["step"], data["total"]) == (1, 100)
    assert bench.job(job).first_feedback_us == bench.now_us


def test_reports_are_thinned_for_followers_and_complete_for_the_store(bench: Bench) -> None:
    job = bench.submit("vision")
    bench.start(job)
    published = [report(bench, job, step, after_s=0.05) for step in range(1, 21)]
    assert 4 <= sum(map(len, published)) <= 6
    assert [progress.step for _, _, progress in bench.store.steps] == list(range(1, 21))


def test_report_that_was_held_back_goes_out_when_the_interval_is_over(bench: Bench) -> None:
    job = bench.submit("vision")
    bench.start(job)
    report(bench, job, 1)
    assert report(bench, job, 2, after_s=0.05) == []
    assert bench.last.wake_at_us == bench.now_us + round(0.15 * SECOND)
    bench.pass_time(0.15)
    assert [data["step"] for data in told(bench, "job.progress")] == [2]


def test_last_report_goes_out_before_the_end(bench: Bench) -> None:
    job = bench.submit("vision")
    bench.start(job)
    report(bench, job, 1)
    report(bench, job, 2, after_s=0.05)
    bench.end(job)
    kinds = [event.kind for event in bench.last.changes.events if event.kind.startswith("job")]
    assert kinds == ["job.progress", "job.state"]
    assert bench.job(job).progress is not None
    assert bench.job(job).progress.step == 2


def test_lowest_rank_that_reports_speaks_for_the_job(bench: Bench) -> None:
    job = bench.submit("vision", tasks=2)
    bench.start(job)
    report(bench, job, 5, rank=1)
    report(bench, job, 3, after_s=1, rank=0)
    report(bench, job, 9, after_s=1, rank=1)
    assert bench.engine.state.jobs[job].progress.step == 3


def test_report_of_an_old_attempt_is_left(bench: Bench) -> None:
    job = bench.submit("vision", retries=1)
    old = bench.attempt_id(job)
    bench.end(job, code=1)
    bench.pass_time(1)
    bench.step(StepReported(old, Progress(step=7)))
    assert bench.store.steps == []
    assert bench.engine.late_events == {"StepReported": 1}


def test_nodes_are_announced_and_changes_told_once(bench: Bench) -> None:
    bench.step()
    assert [(data["node"], data["health"], data["was"]) for data in told(bench, "node.health")] == [
        ("n0", "ready", None)
    ]
    cordoned = msgspec.structs.replace(make_node("n0"), health=NodeHealth.CORDONED)
    bench.step(NodeChanged(cordoned))
    assert [(data["health"], data["was"]) for data in told(bench, "node.health")] == [("cordoned", "ready")]
    bench.step(NodeChanged(cordoned))
    assert told(bench, "node.health") == []


def test_step_without_news_changes_nothing(bench: Bench) -> None:
    bench.step()
    assert bench.step().changes.is_empty


def test_clock_that_is_set_back_does_not_turn_time_back(bench: Bench) -> None:
    job = bench.submit("vision")
    before = bench.now_us
    bench.now_us -= 3600 * SECOND
    bench.start(job)
    assert bench.job(job).first_started_us == before


def test_share_events_say_what_it_was_and_come_for_ended_jobs_too(bench: Bench) -> None:
    job_id = bench.submit("vision")
    bench.step(ShareChanged(job_id, Share.EVERYONE, "unix:1000"))
    assert told(bench, "job.share") == [{"number": 1, "share": "everyone", "was": "owner"}]
    bench.step(ShareChanged(job_id, Share.EVERYONE, "unix:1000"))
    assert told(bench, "job.share") == []
    bench.end(job_id)
    job = bench.job(job_id)
    job.spec = msgspec.structs.replace(job.spec, share=Share.OWNER)
    bench.step(EndedJobShared(job, Share.EVERYONE))
    assert told(bench, "job.share") == [{"number": 1, "share": "owner", "was": "everyone"}]
    assert bench.last.changes.jobs == [], "the store has changed it already"
