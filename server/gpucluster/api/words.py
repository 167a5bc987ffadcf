"""Words that all clients use for the same thing: durations, and what moved a job from one state to another."""

from __future__ import annotations

import datetime

from .schemas import HistoryView, StreamItem


def gone_text(item: StreamItem) -> str:
    """What a StreamItem of type "gone" tells, in the local date."""
    log = f"the log of attempt {item.attempt}"
    if not item.time_us:
        return f"{log} is no longer there"
    day = datetime.datetime.fromtimestamp(item.time_us / 1e6).astimezone()
    return f"{log} was removed on {day:%Y-%m-%d}" + (f" by {item.reason}" if item.reason else "")


def duration(seconds: float) -> str:
    """For example "17 ms", "0.3 s", "12 s", "3 min 05 s", "2 h 07 min", "3 d 04 h"."""
    seconds = max(seconds, 0.0)
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


#: The causes of a job's history (what the engine calls its triggers, and the causes of a stop) in words.
_CAUSES = {
    "submitted": "submitted",
    "placed": "has its place",
    "all_tasks_up": "all tasks are up",
    "all_tasks_ended_well": "all tasks ended well",
    "task_could_not_start": "a task could not start",
    "start_failed": "a task could not start",
    "task_failed": "a task failed",
    "failed": "a task failed",
    "succeeded": "all tasks ended well",
    "lost": "a task was lost",
    "stop": "is being stopped",
    "attempt_over": "the attempt is over",
    "cancel": "cancelled",
    "time_limit": "reached its time limit",
    "evict": "evicted",
    "drain": "its node is being emptied",
    "migrate": "moved to another place",
    "dependency_failed": "a job that it waited for did not succeed",
    "suspend": "suspended",
    "resume": "resumed",
}


def cause_text(cause: str) -> str:
    """A cause of a later scheduler is shown as it is called, with blanks."""
    return _CAUSES.get(cause, cause.replace("_", " "))


#: Causes after which a detail tells the same, more exactly.
_TOLD_BY_DETAIL = frozenset(
    _CAUSES[cause] for cause in ("failed", "lost", "start_failed", "dependency_failed")
)


def happening(entry: HistoryView) -> str:
    """What a line of a job's history tells beside the state, and nothing twice: "", a cause, a detail, or both."""
    cause, detail = cause_text(entry.cause), entry.detail or ""
    if not detail:
        told = cause
    elif cause in (entry.to_state, "") or cause in _TOLD_BY_DETAIL or detail.startswith(cause):
        told = detail
    else:
        told = f"{cause}: {detail}"
    return "" if told == entry.to_state else told
