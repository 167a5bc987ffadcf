"""Step reports: every one goes to steps.ndjson; agents are told at once, thinned where there is a flood of them."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any

#: So many reports may be pushed at once, and so many a second for long. The last one is always pushed in the end.
_BURST = 100
_RATE_HZ = 20.0


class StepLog:
    """Appends reports and pushes them with `end`, the offset behind their line, by which an agent knows what it has seen."""

    def __init__(self, path: str, rank: int, push: Callable[[dict[str, Any]], None]) -> None:
        self._path = path
        self._descriptor = -1  # opened with the first report: most tasks have none
        self.size = 0
        self._rank = rank
        self._push = push
        self._allowance = float(_BURST)
        self._refilled_s = time.monotonic()
        self._held_back: dict[str, Any] | None = None

    def add(self, payload: bytes) -> bool:
        """Take a report as it came from the worker; False when it is none."""
        try:
            report = json.loads(payload)
            step = int(report["step"])
        except (ValueError, TypeError, KeyError):
            return False
        report = {**report, "step": step, "rank": self._rank}
        report["time_us"] = int(report.get("time_us") or time.time_ns() // 1000)
        line = json.dumps(report).encode() + b"\n"
        with contextlib.suppress(OSError):  # a full disk: the agents that listen are told all the same
            self._write(line)
        self._held_back = {**report, "event": "step", "end": self.size}
        self.push_due()
        return True

    def _write(self, line: bytes) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
        if os.write(self._descriptor, line) < len(line):
            os.ftruncate(self._descriptor, self.size)
            return
        self.size += len(line)

    def push_due(self) -> float | None:
        """Push the newest report if its time has come; returns in how many seconds it will, None when none waits."""
        if self._held_back is None:
            return None
        now_s = time.monotonic()
        self._allowance = min(_BURST, self._allowance + (now_s - self._refilled_s) * _RATE_HZ)
        self._refilled_s = now_s
        if self._allowance < 1:
            return (1 - self._allowance) / _RATE_HZ
        self._allowance -= 1
        self.push_last()
        return None

    def push_last(self) -> None:
        """Push the newest report now, if it was not yet."""
        report, self._held_back = self._held_back, None
        if report is not None:
            self._push(report)
