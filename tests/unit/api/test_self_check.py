"""The scheduler's check of its own books: silent while all is well, loud and short when not."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest
from support.engine_bench import Bench, gpu_queue, make_node

from gpucluster.api.self_check import SHOWN, SelfCheck
from gpucluster.model.topology import NodeHealth


@pytest.fixture
def bench() -> Bench:
    bench = Bench([gpu_queue("default", most=8)], [make_node("n0"), make_node("n1")])
    for _ in range(3):
        bench.start(bench.submit(gpus=2))
    return bench


def checked(bench: Bench, times: int = 1) -> list[str]:
    check = SelfCheck()
    for _ in range(times):
        asyncio.run(check.check(lambda: bench.engine.state))
    return check.notes


def test_books_that_are_right_give_no_note(bench: Bench) -> None:
    bench.set_node("n0", NodeHealth.LOST)
    assert checked(bench) == []


def test_wrong_books_are_noted_and_logged_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.engine.state.tree["default"].used["gpu"] = 1000
    with caplog.at_level(logging.ERROR, "gpucluster.engine"):
        notes = checked(bench, times=2)
    assert len(notes) == 1
    assert "queue_books: default" in notes[0]
    assert len(caplog.records) == 1


def test_of_many_findings_some_are_shown(bench: Bench) -> None:
    for job in list(bench.engine.state.jobs.values()):
        bench.engine.state.by_number.pop(job.number)
        job.stop_cause = object()  # type: ignore[assignment]
    notes = checked(bench)
    assert len(notes) == SHOWN + 1
    assert "more of these" in notes[-1]


def test_check_that_fails_itself_is_a_finding(bench: Bench) -> None:
    bench.engine.state.jobs["odd"] = None  # type: ignore[assignment]
    assert any("AttributeError" in note for note in checked(bench))


def test_node_that_shrank_under_its_tasks_is_no_fault_of_the_books(bench: Bench) -> None:
    name = bench.nodes_of("job-1")[0]
    shrunk = msgspec.structs.replace(bench.engine.state.reported[name], cpu=1)
    bench.engine.state.set_node(shrunk)
    assert checked(bench) == []
