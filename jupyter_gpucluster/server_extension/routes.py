"""Which requests pass to the scheduler: method and path, relative to `<base_url>/gpucluster/api/v1/`. All else is 404."""

from __future__ import annotations

import re

_JOB = r"jobs/[0-9a-z]+"
_BLOB = r"blobs/[0-9a-f]{64}"

FORWARDED: tuple[tuple[str, str], ...] = (
    ("GET", r"hello|status|jobs|queues|nodes|topology|events|live"),
    ("GET", rf"{_JOB}"),
    ("GET", rf"{_JOB}/(?:history|why|log|output|steps|result|source)"),
    ("POST", r"jobs|jobs/dry-run|warm|blobs/missing"),
    ("POST", rf"{_JOB}/(?:cancel|share)"),
    ("PUT", _BLOB),
    ("HEAD", _BLOB),
    ("GET", _BLOB),
)

#: Requests for which a scheduler that somebody stopped is started again: those that begin a submission.
STARTING = frozenset({("POST", "jobs"), ("POST", "jobs/dry-run"), ("POST", "blobs/missing")})

#: Streams that a page may open as channels of its WebSocket (streams.py).
STREAMED = rf"live|events|{_JOB}/(?:output|log)"

_COMPILED = [(method, re.compile(pattern)) for method, pattern in FORWARDED]


def is_forwarded(method: str, path: str) -> bool:
    """True when this request may pass. A stop of the scheduler or a change of a node never comes from a browser."""
    return any(method == known and pattern.fullmatch(path) for known, pattern in _COMPILED)


def is_streamed(path: str) -> bool:
    """True when a page may open this stream as a channel."""
    return re.fullmatch(STREAMED, path) is not None
