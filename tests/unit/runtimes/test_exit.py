"""What the engine is told of an end, whatever exit.json and the description of a result say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpucluster.backends.reports import Bounds, checked_exit, checked_manifest, to_exit
from gpucluster.model.errors import InvalidRequest, TooLarge, Unavailable
from gpucluster.model.jobs import ResultManifest, TaskExit
from gpucluster.store.codec import decoder, encode

BOUNDS = Bounds(rank=0, earliest_us=1_000_000, now_us=2_000_000)
HASH = "0" * 64


class Blobs:
    """Takes nothing in."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.taken: list[str] = []

    def place(self, blob_hash: str, path: str) -> None:
        raise AssertionError

    def take(self, path: str, blob_hash: str) -> None:
        if self.error is not None:
            raise self.error
        self.taken.append(path)


@pytest.mark.parametrize(
    ("outcome", "wanted"),
    [
        ({"code": 3, "ended_us": 1_500_000}, TaskExit(code=3, ended_us=1_500_000)),
        ({"code": 0, "ended_us": 10**20}, TaskExit(code=0, ended_us=2_000_000)),
        ({"code": 0, "ended_us": 5}, TaskExit(code=0, ended_us=2_000_000)),
        ({"code": 0, "ended_us": "x"}, TaskExit(code=0, ended_us=2_000_000)),
        ({"code": 0, "signal": 10**30, "oom": "x", "reason": 7}, TaskExit(code=0, ended_us=2_000_000)),
        ({"code": 0, "stop_cause": "evict"}, TaskExit(code=0, ended_us=2_000_000, stop_cause="evict")),
        ({"code": 0, "stop_cause": "nonsense"}, TaskExit(code=0, ended_us=2_000_000)),
        (
            {"code": 10**30, "reason": "x"},
            TaskExit(code=70, reason="how the task ended cannot be read", ended_us=2_000_000),
        ),
        ({}, TaskExit(code=70, reason="how the task ended cannot be read", ended_us=2_000_000)),
    ],
)
def test_exit_is_in_bounds_and_can_be_stored(outcome: dict[str, Any], wanted: TaskExit) -> None:
    found = checked_exit(outcome, BOUNDS)
    assert found == wanted
    assert decoder(TaskExit).decode(encode(found)) == found


def test_texts_of_an_exit_are_cut() -> None:
    found = checked_exit({"code": 1, "reason": "r" * 10**6, "error_value": "\ud800" * 10**6}, BOUNDS)
    assert len(found.reason or "") == len(found.error_value or "") == 4001


@pytest.mark.parametrize(
    "content",
    [
        [], "x", {"pickle": "../../etc/passwd"}, {"buffers": ["x"]}, {"total_bytes": 2**70}, {"total_bytes": -1},
        {"names": ["n" * 1001]}, {"names": [f"n{number}" for number in range(10_001)]}, {"missing": {"a": 1}},
    ],
)  # fmt: skip
def test_description_of_a_result_that_is_over_the_bounds_is_refused(content: Any, tmp_path: Path) -> None:
    assert isinstance(checked_manifest(content), str)
    found = to_exit({"code": 0, "result": content}, str(tmp_path), Blobs(), BOUNDS).result
    assert found is not None
    assert "cannot be used" in found.notes[0]
    assert decoder(ResultManifest).decode(encode(found)) == found


def test_reasons_and_notes_of_a_result_are_cut() -> None:
    found = checked_manifest({"missing": {"a": "r" * 5000}, "notes": ["n" * 5000] * 500})
    assert isinstance(found, ResultManifest)
    assert (len(found.missing["a"]), len(found.notes), len(found.notes[0])) == (1001, 100, 1001)


@pytest.mark.parametrize("error", [InvalidRequest("blob", "no"), TooLarge("no")])
def test_result_that_is_not_what_it_says_is_missing(tmp_path: Path, error: Exception) -> None:
    outcome = {"code": 0, "result": {"pickle": HASH, "names": ["a"], "has_value": True}}
    found = to_exit(outcome, str(tmp_path), Blobs(error), BOUNDS).result
    assert found is not None
    assert set(found.missing) == {"a", "<value>"}
    assert found.pickle is None


@pytest.mark.parametrize("error", [Unavailable("locked"), OSError(28, "full")])
def test_result_that_cannot_be_taken_now_is_not_given_up(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)):
        to_exit({"code": 0, "result": {"pickle": HASH}}, str(tmp_path), Blobs(error), BOUNDS)


def test_result_is_taken_once_and_its_receipt_is_of_no_use_for_another(tmp_path: Path) -> None:
    task_dir = tmp_path / "worker.0"
    task_dir.mkdir()
    outcome = {"code": 0, "result": {"pickle": HASH, "buffers": ["1" * 64], "names": ["a"]}}
    first, second, third = Blobs(), Blobs(), Blobs()
    told = to_exit(outcome, str(task_dir), first, BOUNDS)
    assert [Path(path).name for path in first.taken] == ["pickle", "buffer.0"]
    assert to_exit(outcome, str(task_dir), second, BOUNDS) == told
    assert second.taken == []
    to_exit({"code": 0, "result": {"pickle": "2" * 64}}, str(task_dir), third, BOUNDS)
    assert len(third.taken) == 1
