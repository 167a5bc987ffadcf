"""The log as its one writer sees it: frames appended in batches, a size limit, and a disk that may be full.

A full disk never ends a task and never tears the log: a batch that does not fit is taken back whole, its output is
dropped and counted, and a STATUS frame says so as soon as there is room.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from gpucluster.worker.frames import HEADER, MAX_PAYLOAD, Kind, encode_frame

_SORTS = {Kind.STDOUT: "output", Kind.STDERR: "output", Kind.ERROR: "error", Kind.STATUS: "note"}
#: What displays may take beside stdout and stderr, at least, in bytes.
_DISPLAY_MINIMUM = 64 << 20
#: Errors are small and always wanted: room of their own, in bytes.
_ERROR_LIMIT = 8 << 20
#: Records of the task about itself.
_NOTE_LIMIT = 1 << 20
#: A record costs its header too: what tiny ones may cost beside their content, at least, in bytes.
_HEADERS_MINIMUM = 64 << 20
_BATCH_BYTES = 4 << 20


class LogWriter:
    """Appends to one task's log. `add` collects, `flush` writes; `size` is how many bytes stand in the file."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._descriptor).st_size
        self._room = {
            "output": limit_bytes,
            "display": max(limit_bytes, _DISPLAY_MINIMUM),
            "error": _ERROR_LIMIT,
            "note": _NOTE_LIMIT,
        }
        self._headers = max(limit_bytes, _HEADERS_MINIMUM)
        self._limits = dict(self._room)
        self._truncated: set[str] = set()
        self._sequence = 0
        self._batch: list[tuple[Kind, int, bytes]] = []  # kind, time in microseconds, payload
        self._batch_bytes = 0
        self._dropped_bytes = 0  # since the disk last took anything
        self.lost_bytes = 0  # through a full disk, in all
        self.lost_reason = ""

    def add(self, kind: Kind, payload: bytes) -> None:
        """Add a record of the task; what is over the limits is dropped, which is said once for each sort of output."""
        sort = _SORTS.get(kind, "display")
        whole = len(payload)
        if whole > min(self._room[sort], MAX_PAYLOAD) or self._headers <= 0:
            payload = payload[: self._room[sort]] if sort == "output" and self._headers > 0 else b""
        self._room[sort] -= len(payload)
        if payload:
            self._headers -= HEADER.size
            self._append(kind, payload)
        if len(payload) < whole:
            self.truncated(sort)

    def truncated(self, sort: str) -> None:
        """Say, once, that output of this sort ("output", "display", "error", "note") was dropped because it is too much."""
        if sort not in self._truncated:
            self._truncated.add(sort)
            self.status("truncated", what=sort, reason="limit", limit_bytes=self._limits[sort])

    def status(self, event: str, **details: Any) -> None:
        """Add a STATUS record of the supervisor."""
        self.status_of({**details, "event": event})

    def status_of(self, content: dict[str, Any]) -> None:
        """The same for what holds keys that the task chose."""
        self._append(Kind.STATUS, json.dumps(content).encode())

    def _append(self, kind: Kind, payload: bytes) -> None:
        self._batch.append((kind, time.time_ns() // 1000, payload))
        self._batch_bytes += HEADER.size + len(payload)
        if self._batch_bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> bool:
        """Write what was added; True when the file grew."""
        if not self._batch:
            return False
        records, size = self._batch, self._batch_bytes
        self._batch, self._batch_bytes = [], 0
        if self._dropped_bytes:
            note = {
                "event": "truncated",
                "what": "all",
                "reason": self.lost_reason,
                "dropped_bytes": self._dropped_bytes,
            }
            records.insert(0, (Kind.STATUS, records[0][1], json.dumps(note).encode()))
        data = b"".join(
            encode_frame(kind, self._sequence + place, time_us, payload)
            for place, (kind, time_us, payload) in enumerate(records)
        )
        try:
            self._write(data)
        except OSError as error:
            self._take_back(error, size)
            return False
        self._sequence += len(records)
        self.size += len(data)
        self._dropped_bytes = 0
        return True

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _take_back(self, error: OSError, size: int) -> None:
        """Cut off the half that was written: what stands in the log is whole frames, always."""
        os.ftruncate(self._descriptor, self.size)
        self._dropped_bytes += size
        self.lost_bytes += size
        self.lost_reason = error.strerror or str(error)

    def close(self) -> None:
        """Write what is left and let go."""
        self.flush()
        os.close(self._descriptor)
