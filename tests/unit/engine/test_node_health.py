"""What an administrator sets for a node: it holds over restarts, and a node that is given up loses its tasks once."""

from __future__ import annotations

import pytest
from support.engine_bench import Bench, make_node

from gpucluster.model.errors import NotFound
from gpucluster.model.jobs import Requeue
from gpucluster.model.topology import NodeHealth


@pytest.fixture
def bench() -> Bench:
    return Bench(nodes=[make_node("n0"), make_node("n1")])


def health(bench: Bench, node: str) -> str:
    return bench.engine.state.nodes[node].health.value


def gang(bench: Bench, **more: object) -> str:
    """A job that runs on both nodes; rank 1 on n1."""
    job = bench.submit(gpus=8, tasks=2, **more)
    bench.start(job)
    assert bench.nodes_of(job) == ["n0", "n1"]
    return job


def test_setting_holds_over_restarts_and_what_the_agent_says(bench: Bench) -> None:
    bench.set_node("n1", NodeHealth.CORDONED, "new fan")
    bench.crash()
    assert health(bench, "n1") == "cordoned"
    bench.change_node(make_node("n1", bad=[0]))
    assert health(bench, "n1") == "cordoned"
    assert bench.nodes_of(bench.submit(gpus=8)) == ["n0"]
    setting = bench.engine.state.settings["n1"]
    assert (setting.actor, setting.actor_name, setting.reason) == ("unix:0", "root", "new fan")


def test_node_set_ready_is_as_its_agent_sees_it(bench: Bench) -> None:
    bench.change_node(make_node("n1"), health=NodeHealth.LOST)
    bench.set_node("n1", NodeHealth.CORDONED)
    assert health(bench, "n1") == "lost", "of both, the worse counts"
    bench.set_node("n1", NodeHealth.READY)
    assert health(bench, "n1") == "lost"
    bench.change_node(make_node("n1"))
    assert health(bench, "n1") == "ready"


def test_setting_of_a_node_that_comes_later_counts_when_it_comes(bench: Bench) -> None:
    bench.set_node("n1", NodeHealth.CORDONED)
    del bench.engine.state.reported["n1"]
    bench.crash()
    assert "n1" not in bench.engine.state.nodes
    bench.change_node(make_node("n1"))
    assert health(bench, "n1") == "cordoned"


def test_setting_is_told_with_who_and_why(bench: Bench) -> None:
    bench.step()
    bench.set_node("n1", NodeHealth.CORDONED, "new fan")
    (event,) = [event for event in bench.last.changes.events if event.kind == "node.health"]
    assert event.data["was"] == "ready"
    assert (event.data["health"], event.data["set_by"], event.data["set_reason"]) == (
        "cordoned",
        "root",
        "new fan",
    )


def test_unknown_node_is_refused_and_nothing_is_kept(bench: Bench) -> None:
    with pytest.raises(NotFound, match="no node 'n7'"):
        bench.set_node("n7", NodeHealth.LOST)
    assert bench.store.settings == {}


def test_given_up_node_is_told_to_the_backend_until_its_tasks_are_over(bench: Bench) -> None:
    job = gang(bench)
    bench.set_node("n1", NodeHealth.LOST, "burnt")
    assert bench.given_up() == ["n1"]
    assert bench.state(job) == "running", "nothing is freed before its tasks are surely over"
    bench.pass_time(bench.options.stop_again_s)
    assert bench.given_up() == ["n1"]
    bench.crash()
    assert bench.given_up() == ["n1"], "a restart does not forget it"
    bench.lose(job, 1)
    bench.pass_time(bench.options.stop_again_s)
    assert bench.given_up() == []


def test_job_of_a_given_up_node_waits_with_a_reason_that_names_it(bench: Bench) -> None:
    job = gang(bench)
    bench.set_node("n1", NodeHealth.LOST, "burnt")
    bench.lose(job, 1, reason="its supervisor died")
    assert [stop.rank for stop in bench.stops()] == [0], "the rest of the gang is stopped"
    bench.end(job, 0, code=143)
    assert bench.state(job) == "pending"
    assert bench.job(job).reason == "rank 1 on n1: n1 was set lost by root: burnt"
    assert "n1 is lost" in bench.why(job).sentence
    bench.set_node("n1", NodeHealth.READY)
    assert bench.state(job) == "starting"
    assert bench.job(job).attempts_made == 2


def test_job_that_wants_no_second_try_fails_with_its_node(bench: Bench) -> None:
    job = gang(bench, requeue=Requeue.NEVER)
    bench.set_node("n1", NodeHealth.LOST)
    bench.lose(job, 1)
    bench.end(job, 0, code=143)
    assert bench.state(job) == "failed"
    assert "n1 was set lost by root" in (bench.job(job).reason or "")


def test_node_without_tasks_is_given_up_silently(bench: Bench) -> None:
    bench.submit()
    idle = next(name for name in ("n0", "n1") if name not in bench.nodes_of("job-1"))
    bench.set_node(idle, NodeHealth.LOST)
    assert bench.given_up() == []


def test_node_set_ready_again_before_its_tasks_are_over_is_asked_for_no_more(bench: Bench) -> None:
    job = gang(bench)
    bench.set_node("n1", NodeHealth.LOST)
    bench.set_node("n1", NodeHealth.READY)
    bench.pass_time(bench.options.stop_again_s)
    assert bench.given_up() == []
    assert bench.state(job) == "running"
