"""Step reports of a running task: `report(step, total=…, loss=…)`. Filled in by the worker; harmless outside a job."""

from __future__ import annotations


def report(step: int, total: int | None = None, **metrics: float) -> None:
    """Report one step of progress. Outside a job it does nothing."""
