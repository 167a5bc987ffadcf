"""Step reports: checked, kept in steps.ndjson, told to agents. A flood is thinned everywhere, the last one never lost."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any

from gpucluster.worker.bounds import MAX_REPORT_BYTES, checked_report
from gpucluster.worker.files import parse_object

#: So many reports may be pushed at once, and so many a second for long. The last one is always pushed in the end.
_BURST = 100
_RATE_HZ = 20.0
#: Up to this many bytes every report is kept. For each further part of that size only every second one of those kept
#: before, so that the file holds the whole course of any training; nothing is kept beyond _MAX_BYTES but the last.
_PART_BYTES = 2 << 20
_MAX_BYTES = 32 << 20


class StepLog:
    """Keeps reports and pushes them with `end`, the offset behind what is kept, by which an agent knows what it has seen.

    A report that is not kept is pushed with `"kept": false`.
    """

    def __init__(self, path: str, rank: int, push: Callable[[dict[str, Any]], None]) -> None:
        self._path = path
        self._descriptor = -1  # opened with the first report: most tasks have none
        self.size = 0
        self._rank = rank
        self._push = push
        self._allowance = float(_BURST)
        self._refilled_s = time.monotonic()
        self._held_back: dict[str, Any] | None = None
        self._began_us = time.time_ns() // 1000
        self._newest_us = 0
        self._count = 0
        self._unkept: bytes | None = None  # the newest line, when it was left out

    def add(self, payload: bytes) -> bool:
        """Take a report as it came from the worker; False when it is none."""
        report = parse_object(payload) if len(payload) <= MAX_REPORT_BYTES else None
        if report is None:
            return False
        checked = checked_report(report, self._rank, self._began_us, time.time_ns() // 1000)
        if checked is None:
            return False
        # Later than the one before, whatever clocks do: by its time a restarted scheduler knows which it has seen.
        self._newest_us = checked["time_us"] = max(checked["time_us"], self._newest_us + 1)
        line = json.dumps(checked).encode() + b"\n"
        is_kept = self._is_due() and self._keep(line)
        self._unkept = None if is_kept else line
        self._held_back = {**checked, "event": "step", "end": self.size, "kept": is_kept}
        self.push_due()
        return True

    def _is_due(self) -> bool:
        self._count += 1
        return self.size < _MAX_BYTES and self._count % (1 << self.size // _PART_BYTES) == 0

    def _keep(self, line: bytes) -> bool:
        """Append the line; False when the disk is full, or somebody else has put something in the file's place."""
        try:
            if self._descriptor < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o600)
            if os.write(self._descriptor, line) < len(line):
                os.ftruncate(self._descriptor, self.size)
                return False
        except OSError:
            return False
        self.size += len(line)
        return True

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
        self._push_newest()
        return None

    def _push_newest(self) -> None:
        report, self._held_back = self._held_back, None
        if report is not None:
            self._push(report)

    def push_last(self) -> None:
        """No report comes any more: see to it that the newest is kept and pushed."""
        line, self._unkept = self._unkept, None
        if line is not None and self._keep(line) and self._held_back is not None:
            self._held_back.update(end=self.size, kept=True)
        self._push_newest()

    def close(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1
