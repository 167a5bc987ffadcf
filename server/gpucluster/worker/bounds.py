"""What a step report may hold, whoever wrote it. Standard library only: worker, supervisor and agent keep the same bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeGuard

#: Bytes of one report as JSON; so many go through a pipe or socket whole, whoever else is writing (PIPE_BUF is 4096).
MAX_REPORT_BYTES = 4000
MAX_METRICS = 64
MAX_METRIC_NAME = 100
MAX_DESCRIPTION = 500
#: A report may be this much ahead of the clock here, in microseconds.
AHEAD_US = 60_000_000
_MAX_SOURCE = 50
_NOT_FINITE = frozenset({"nan", "inf", "-inf", "NaN", "Infinity", "-Infinity"})


def is_int64(value: Any) -> TypeGuard[int]:
    """True for a whole number that fits a column of the database."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def checked_report(
    report: Mapping[str, Any], rank: int, earliest_us: int, now_us: int
) -> dict[str, Any] | None:
    """The report (keys of model.jobs.Progress) with all in bounds, or None when it is none.

    A time outside [`earliest_us`, `now_us` + AHEAD_US] is replaced by `now_us`, a long description is cut.
    """
    step, total = _whole(report.get("step")), _whole(report.get("total"))
    metrics = _metrics(report.get("metrics"))
    if not is_int64(step) or not (total is None or is_int64(total)) or metrics is None:
        return None
    time_us = report.get("time_us")
    if not is_int64(time_us) or not earliest_us <= time_us <= now_us + AHEAD_US:
        time_us = now_us
    source, description = report.get("source"), report.get("description")
    return {
        "step": step,
        "total": total,
        "metrics": metrics,
        "time_us": time_us,
        "rank": rank,
        "source": source[:_MAX_SOURCE] if isinstance(source, str) else "report",
        "description": description[:MAX_DESCRIPTION] if isinstance(description, str) else None,
    }


def _whole(value: Any) -> Any:
    """Scripts that write JSON by hand may say 3.0 or "3"."""
    try:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return int(value) if isinstance(value, str) and len(value) < 20 else value
    except ValueError:
        return value


def _metrics(metrics: Any) -> dict[str, Any] | None:
    """Numbers by name; a number that JSON lacks stays its name ("nan", "inf", "-inf"). None when they are none."""
    if metrics is None:
        return {}
    if not isinstance(metrics, dict) or len(metrics) > MAX_METRICS:
        return None
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        number = _number(value)
        if number is None or len(name) > MAX_METRIC_NAME:
            return None
        found[name] = number if math.isfinite(number) else str(number)
    return found


def _number(value: Any) -> float | None:
    if not isinstance(value, (int, float)) and not (isinstance(value, str) and value in _NOT_FINITE):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
