from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpucluster.backends.reports import MAX_CAUGHT_UP, read_steps
from gpucluster.runtimes.supervisor.steps import StepLog


def make(tmp_path: Path) -> tuple[StepLog, list[dict[str, Any]]]:
    pushed: list[dict[str, Any]] = []
    return StepLog(str(tmp_path / "steps.ndjson"), 3, pushed.append), pushed


def test_reports_are_kept_and_pushed_with_rank_and_place(tmp_path: Path) -> None:
    log, pushed = make(tmp_path)
    assert log.add(b'{"step": 1, "metrics": {"loss": "nan"}, "time_us": 5}')
    assert log.add(b'{"step": 2}')
    assert [(event["step"], event["rank"]) for event in pushed] == [(1, 3), (2, 3)]
    assert pushed[-1]["end"] == (tmp_path / "steps.ndjson").stat().st_size
    reports, end = read_steps(str(tmp_path), 0, 0)
    assert [report.step for report in reports] == [1, 2]
    assert str(reports[0].metrics["loss"]) == "nan"
    assert end == pushed[-1]["end"]
    assert read_steps(str(tmp_path), end, 0) == ([], end)
    assert [report.step for report in read_steps(str(tmp_path), 0, 5)[0]] == [2]


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    log, pushed = make(tmp_path)
    for payload in (b"", b"{}", b"[]", b'{"step": "x"}', b"\xff", b'{"step": null}'):
        assert not log.add(payload)
    assert pushed == []


def test_many_reports_are_pushed_thinned_and_the_last_always(tmp_path: Path) -> None:
    log, pushed = make(tmp_path)
    for step in range(3000):
        assert log.add(json.dumps({"step": step, "time_us": step + 1}).encode())
    log.push_last()
    assert len(pushed) < 1500
    assert pushed[-1]["step"] == 2999
    reports, _ = read_steps(str(tmp_path), 0, 0)
    assert len(reports) == MAX_CAUGHT_UP
    assert (reports[0].step, reports[-1].step) == (0, 2999)


def test_line_that_is_still_being_written_is_left_for_later(tmp_path: Path) -> None:
    (tmp_path / "steps.ndjson").write_text('{"step": 1, "time_us": 1}\n{"step": 2')
    reports, end = read_steps(str(tmp_path), 0, 0)
    assert [report.step for report in reports] == [1]
    assert end == 26
