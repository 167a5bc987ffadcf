from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucluster.backends import reports
from gpucluster.backends.reports import MAX_CAUGHT_UP, Bounds, read_steps
from gpucluster.runtimes.supervisor import steps as steps_module
from gpucluster.runtimes.supervisor.steps import StepLog

NOW_US = time.time_ns() // 1000
BOUNDS = Bounds(rank=3, earliest_us=0, now_us=NOW_US)


def make(tmp_path: Path) -> tuple[StepLog, list[dict[str, Any]]]:
    pushed: list[dict[str, Any]] = []
    return StepLog(str(tmp_path / "steps.ndjson"), 3, pushed.append), pushed


def read(folder: Path, offset: int = 0, after_us: int = 0) -> list[int]:
    return [report.step for report in read_steps(str(folder), offset, after_us, BOUNDS).reports]


def test_reports_are_kept_and_pushed_with_rank_and_place(tmp_path: Path) -> None:
    log, pushed = make(tmp_path)
    assert log.add(b'{"step": 1, "metrics": {"loss": "nan"}}')
    assert log.add(b'{"step": 2, "rank": 9}')
    assert [(event["step"], event["rank"]) for event in pushed] == [(1, 3), (2, 3)]
    assert pushed[-1]["end"] == (tmp_path / "steps.ndjson").stat().st_size
    found = read_steps(str(tmp_path), 0, 0, BOUNDS)
    assert [report.step for report in found.reports] == [1, 2]
    assert str(found.reports[0].metrics["loss"]) == "nan"
    assert found.end == pushed[-1]["end"]
    assert read(tmp_path, found.end) == []
    assert read(tmp_path, 0, pushed[0]["time_us"]) == [2]


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{}", b"[]", b'{"step": "x"}', b"\xff", b'{"step": null}', b'{"step": 1e400}', b'{"step": true}',
        b'{"step": 9223372036854775808}', b'{"step": 1, "total": -9223372036854775809}', b"[" * 3000,
        b'{"step": 1, "metrics": []}', b'{"step": 1, "metrics": {"a": "x"}}', b'{"step": 1, "metrics": {"a": [1]}}',
        json.dumps({"step": 1, "metrics": {"m" * 101: 1}}).encode(),
        json.dumps({"step": 1, "metrics": {f"m{n}": 1 for n in range(65)}}).encode(),
        json.dumps({"step": 1, "metrics": {"a": int("9" * 400)}}).encode(),
        json.dumps({"step": 1, "description": "x" * 40_000}).encode(),
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused(tmp_path: Path, payload: bytes) -> None:
    log, pushed = make(tmp_path)
    assert not log.add(payload)
    assert pushed == []
    (tmp_path / "steps.ndjson").write_bytes(payload + b"\n")
    found = read_steps(str(tmp_path), 0, 0, BOUNDS)
    assert (found.reports, found.bad, found.end) == ([], 1, len(payload) + 1)


@pytest.mark.parametrize("time_us", [10**20, -5, "x", None, 1.5, NOW_US + 120_000_000])
def test_times_that_cannot_be_are_replaced(tmp_path: Path, time_us: Any) -> None:
    log, pushed = make(tmp_path)
    assert log.add(json.dumps({"step": 1, "time_us": time_us}).encode())
    assert abs(pushed[0]["time_us"] - time.time_ns() // 1000) < 60_000_000
    (tmp_path / "steps.ndjson").write_text(json.dumps({"step": 1, "time_us": time_us}) + "\n")
    bounds = Bounds(rank=3, earliest_us=NOW_US - 10, now_us=NOW_US)
    (report,) = read_steps(str(tmp_path), 0, 0, bounds).reports
    assert report.time_us == NOW_US


def test_each_report_is_later_than_the_one_before_whatever_clocks_do(tmp_path: Path) -> None:
    log, pushed = make(tmp_path)
    now_us = time.time_ns() // 1000 + 1_000_000
    for time_us in (now_us, now_us - 500_000, now_us):
        assert log.add(json.dumps({"step": 1, "time_us": time_us}).encode())
    assert [event["time_us"] - now_us for event in pushed] == [0, 1, 2]


def test_long_descriptions_are_cut_and_whole_numbers_taken_as_they_are_meant(tmp_path: Path) -> None:
    log, pushed = make(tmp_path)
    assert log.add(json.dumps({"step": 3.0, "total": "7", "description": "x" * 600}).encode())
    assert (pushed[0]["step"], pushed[0]["total"], len(pushed[0]["description"])) == (3, 7, 500)


def test_many_reports_are_pushed_thinned_and_the_last_always(tmp_path: Path) -> None:
    log, pushed = make(tmp_path)
    for step in range(3000):
        assert log.add(json.dumps({"step": step}).encode())
    log.push_last()
    assert len(pushed) < 1500
    assert pushed[-1]["step"] == 2999
    steps = read(tmp_path)
    assert len(steps) <= MAX_CAUGHT_UP
    assert (steps[0], steps[-1]) == (0, 2999)


def test_the_file_of_a_flood_is_thinned_keeps_the_whole_course_and_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_module, "_PART_BYTES", 10_000)
    monkeypatch.setattr(steps_module, "_MAX_BYTES", 60_000)
    log, pushed = make(tmp_path)
    for step in range(20_000):
        assert log.add(json.dumps({"step": step}).encode())
    assert log.size < 61_000
    assert pushed[-1]["kept"] is False
    log.push_last()
    assert pushed[-1]["kept"] is True
    assert pushed[-1]["end"] == log.size == (tmp_path / "steps.ndjson").stat().st_size
    steps = read(tmp_path)
    assert (steps[0], steps[-1]) == (0, 19_999)


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
def test_what_stands_in_the_place_of_the_file_is_neither_waited_for_nor_written_to(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    plant(tmp_path / "steps.ndjson")
    log, pushed = make(tmp_path)
    assert log.add(b'{"step": 1}')
    assert (pushed[0]["step"], pushed[0]["kept"]) == (1, False)
    assert read(tmp_path) == []


def test_line_that_is_still_being_written_is_left_for_later(tmp_path: Path) -> None:
    (tmp_path / "steps.ndjson").write_text('{"step": 1, "time_us": 1}\n{"step": 2')
    found = read_steps(str(tmp_path), 0, 0, BOUNDS)
    assert [report.step for report in found.reports] == [1]
    assert found.end == 26


def test_file_is_read_in_pieces_and_lines_without_end_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_PIECE_BYTES", 7)
    lines = b'{"step": 1}\n' + b"x" * 100_000 + b'\n{"step": 2}\n{"st'
    (tmp_path / "steps.ndjson").write_bytes(lines)
    found = read_steps(str(tmp_path), 0, 0, BOUNDS)
    assert [report.step for report in found.reports] == [1, 2]
    assert (found.end, found.bad) == (len(lines) - 4, 1)


def test_of_a_file_of_absurd_size_only_the_end_is_read(tmp_path: Path) -> None:
    with (tmp_path / "steps.ndjson").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"step": 7}\n')
    assert read(tmp_path) == [7]
