"""Step reports are checked, thinned, merged, and written so that JSON can hold them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from gpucluster.model.jobs import Progress
from gpucluster.worker import report, reporting
from gpucluster.worker.reporting import EXPLICIT, MAX_REPORT_BYTES, Reporter


@pytest.fixture
def sent() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def reporter(sent: list[dict[str, Any]]) -> Iterator[Reporter]:
    reporter = Reporter(lambda payload: sent.append(json.loads(payload)))
    yield reporter
    reporter.pause()


@pytest.mark.parametrize(
    ("arguments", "metrics", "error", "named"),
    [
        (("3",), {}, TypeError, "step"),
        ((1.5,), {}, TypeError, "step"),
        ((True,), {}, TypeError, "step"),
        ((-1,), {}, ValueError, "step"),
        ((2**63,), {}, ValueError, "step"),
        ((1, "ten"), {}, TypeError, "total"),
        ((1, -1), {}, ValueError, "total"),
        ((1,), {"loss": "0.5"}, TypeError, "loss"),
        ((1,), {"loss": None}, TypeError, "loss"),
        ((1,), {"loss": [1]}, TypeError, "loss"),
        ((1,), {"loss": np.zeros(2)}, TypeError, "loss"),
        ((1,), {"loss": 1j}, TypeError, "loss"),
        ((1,), {"loss": 10**400}, ValueError, "loss"),
        ((1,), {f"metric_{n}": 0.1 for n in range(500)}, ValueError, "report fewer"),
    ],
)
def test_a_bad_argument_is_named(
    arguments: tuple[Any, ...], metrics: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        report(*arguments, **metrics)


def test_a_report_has_the_keys_of_progress(reporter: Reporter, sent: list[dict[str, Any]]) -> None:
    reporter.submit(EXPLICIT, np.int32(4), 10, {"loss": np.float64(0.5), "done": True})
    reporter.flush()
    assert set(sent[0]) == {field.name for field in msgspec.structs.fields(Progress)}
    assert (sent[0]["step"], sent[0]["total"], sent[0]["metrics"]) == (4, 10, {"loss": 0.5, "done": 1.0})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_not_finite_survives_json(value: float) -> None:
    lines: list[bytes] = []
    reporter = Reporter(lines.append)
    reporter.submit(EXPLICIT, 1, None, {"loss": value})
    reporter.flush()
    json.loads(lines[0], parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    loss = msgspec.json.decode(lines[0], type=Progress, strict=False).metrics["loss"]
    assert loss == value or (math.isnan(loss) and math.isnan(value))


def test_reports_in_quick_succession_are_merged_into_the_last(
    reporter: Reporter, sent: list[dict[str, Any]]
) -> None:
    for step in range(100):
        reporter.submit(EXPLICIT, step, None, {"loss": step, f"only_{step % 7}": 1})
    reporter.flush()
    assert sent[0]["step"] == 0
    assert sent[-1]["step"] == 99
    assert sent[-1]["metrics"]["loss"] == 99
    assert len(sent) < 50


def test_merging_never_makes_a_report_too_large(reporter: Reporter, sent: list[dict[str, Any]]) -> None:
    for step in range(100):
        reporter.submit(EXPLICIT, step, None, {f"metric_with_a_long_name_{step}_{n}": 0.5 for n in range(20)})
    reporter.flush()
    assert all(len(json.dumps(each)) <= MAX_REPORT_BYTES for each in sent)
    assert sent[-1]["step"] == 99


def test_what_a_hook_sees_is_left_out_once_the_user_reports(
    reporter: Reporter, sent: list[dict[str, Any]]
) -> None:
    reporter.submit("tqdm", 1, 5, {})
    reporter.submit(EXPLICIT, 10, 50, {})
    reporter.submit("tqdm", 2, 5, {})
    reporter.flush()
    assert [each["source"] for each in sent] == ["tqdm", "report"]


def test_flushing_twice_sends_once(reporter: Reporter, sent: list[dict[str, Any]]) -> None:
    reporter.submit(EXPLICIT, 1, None, {})
    reporter.flush()
    reporter.flush()
    assert len(sent) == 1


def test_reports_over_the_bounds_are_refused_by_name_and_what_a_hook_sees_of_them_is_left_out(
    reporter: Reporter, sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {f"m{number}": 1 for number in range(65)}
    with pytest.raises(ValueError, match="65 metrics are over the limit of 64"):
        reporter.submit(EXPLICIT, 1, None, many)
    with pytest.raises(ValueError, match=r"the metric xxx.* has a name of over 100 characters"):
        reporter.submit(EXPLICIT, 1, None, {"x" * 101: 1})
    monkeypatch.setattr(reporting, "_current", reporter)
    monkeypatch.setattr(reporting, "_is_worker", True)
    reporting.observe("tqdm", 1, None, many)
    reporting.observe("tqdm", 2**63, None, {})
    reporting.observe("tqdm", 2, None, {}, "x" * 600)
    reporter.flush()
    assert [(each["step"], len(each["description"])) for each in sent] == [(2, 500)]
