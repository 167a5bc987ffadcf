"""How a task ended, in one sentence: from wait status, counters and what was asked for to a TaskExit."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, NamedTuple

#: Causes of a stop, weakest first: the labels of `StopCause`, and before them what a bare SIGTERM means.
STOP_CAUSES = (
    "signal",
    "migrate",
    "evict",
    "drain",
    "lost",
    "start_failed",
    "task_failed",
    "time_limit",
    "cancel",
)
_TEXT_LIMIT = 4000
#: Last words of a program whose allocation failed: Python, C++, the C library.
_MEMORY_SIGNS = ("MemoryError", "std::bad_alloc", "Cannot allocate memory")


class Ending(NamedTuple):
    """All that is known about the end. `status` is that of waitpid; None when the worker never ran."""

    status: int | None
    stop_cause: str | None = None
    grace_s: float = 0.0
    killed_after_grace: bool = False
    oom_kills: int = 0
    machine_oom: bool = False
    memory_limit: int | None = None
    memory_by_rlimit: bool = False
    error_name: str | None = None
    error_value: str | None = None
    start_problem: str | None = None
    was_up: bool = True
    last_words: str = ""
    lost_output_bytes: int = 0
    lost_output_reason: str = ""


def describe(ending: Ending, result: Any) -> dict[str, Any]:
    """The TaskExit of `ending` as JSON data; `result` is the content of result.json, if any."""
    code, number = _exit_code(ending.status)
    oom = code != 0 and (ending.oom_kills > 0 or (ending.memory_by_rlimit and _speaks_of_memory(ending)))
    reason = _reason(ending, code, number, oom)
    if ending.lost_output_bytes:
        lost = f"{ending.lost_output_bytes} bytes of output were lost: {ending.lost_output_reason}"
        reason = f"{reason}; {lost}" if reason else lost
    return {
        "code": code,
        "signal": number,
        "oom": oom,
        "reason": reason,
        "error_name": _clean(ending.error_name),
        "error_value": _clean(ending.error_value),
        "ended_us": time.time_ns() // 1000,
        "stop_cause": ending.stop_cause,
        "result": result,
    }


def _speaks_of_memory(ending: Ending) -> bool:
    """Over an rlimit an allocation fails, and what the program makes of that is all there is to see."""
    return ending.error_name == "MemoryError" or any(sign in ending.last_words for sign in _MEMORY_SIGNS)


def _exit_code(status: int | None) -> tuple[int, int | None]:
    if status is None:
        return 127, None
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return 128 + number, number
    return os.WEXITSTATUS(status), None


def _reason(ending: Ending, code: int, number: int | None, oom: bool) -> str | None:
    if ending.start_problem is not None:
        return ending.start_problem
    if ending.stop_cause is not None and ending.killed_after_grace:
        return f"stopped ({ending.stop_cause}): killed after a grace of {round(ending.grace_s, 1):g} s"
    if oom:
        return f"out of memory: limit {human_bytes(ending.memory_limit or 0)}"
    if ending.stop_cause is not None:
        return f"stopped ({ending.stop_cause}): ended within the grace"
    if number is not None:
        hint = (
            "; the machine ran out of memory meanwhile"
            if ending.machine_oom and number == signal.SIGKILL
            else ""
        )
        return f"killed by signal {number} ({_signal_name(number)}){hint}"
    if code == 0:
        return None
    if not ending.was_up:
        words = f": {ending.last_words}" if ending.last_words else ""
        return f"the worker ended with exit code {code} before it was up{words}"
    if ending.error_name:
        return _clean(f"{ending.error_name}: {ending.error_value}")
    return f"ended with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if number >= signal.SIGRTMIN else "unknown"


def _clean(text: str | None) -> str | None:
    """Valid Unicode of a sane length: what a cell raises may hold anything."""
    if text is None:
        return None
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _TEXT_LIMIT else text[:_TEXT_LIMIT] + "…"


def human_bytes(amount: int) -> str:
    """E.g. "8 GiB", "1.5 GiB", "64 MiB"."""
    value = float(amount)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def machine_oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since boot, on the whole machine."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
