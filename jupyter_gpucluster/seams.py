"""The line between two attempts of a job: which one follows, where, and what became of the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpucluster.api.errors import GpuclusterError
from gpucluster.api.schemas import HistoryView, StreamItem

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient

_VERBS = {"lost": "was lost", "failed": "failed", "evict": "was evicted", "drain": "had to leave its node"}


def seam(client: ApiClient, job_id: str, beginning: StreamItem) -> str | None:
    """The text for the beginning of an attempt, a StreamItem "attempt"; None for the first one, which follows nothing.

    A history that cannot be read makes the line shorter, nothing worse.
    """
    number = beginning.attempt
    if number <= 1:
        return None
    place = f" on {', '.join(beginning.nodes)}" if beginning.nodes else ""
    try:
        history = client.history(job_id)
    except GpuclusterError:
        history = []
    return f"attempt {number}{place}{_end_of(number - 1, history)}"


def _end_of(number: int, history: list[HistoryView]) -> str:
    """How attempt `number` ended, from the last change of state that speaks of it."""
    entry = next((each for each in reversed(history) if each.attempt == number), None)
    if entry is None:
        return ""
    verb = _VERBS.get(entry.cause, f"ended: {entry.cause}" if entry.cause else "ended")
    return f" (attempt {number} {verb}{f': {entry.detail}' if entry.detail else ''})"
