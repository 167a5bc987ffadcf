"""Step reports of a running task: `report(step, total=…, loss=…)`. Harmless outside a job.

A report becomes a PACKET_STEP (or a line of the task folder's `steps.fifo`, see protocol.py) with the keys of
model.jobs.Progress. JSON has no NaN: a metric that is not finite is the string "nan", "inf" or "-inf", which `float()`
reads back, as does msgspec with `strict=False`.

At most one report in 50 ms is sent; those in between are merged into the next, and the last is never lost.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import operator
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .bounds import MAX_DESCRIPTION, MAX_METRIC_NAME, MAX_METRICS, MAX_REPORT_BYTES
from .protocol import ENV_MESSAGE_FD, ENV_TASK_DIR, PACKET_STEP, STEPS_FIFO
from .ticker import Ticker

INTERVAL_S = 0.05
EXPLICIT = "report"

Channel = Callable[[bytes], None]


def report(step: int, total: int | None = None, **metrics: float) -> None:
    """Report one step of progress. Outside a job it does nothing.

    `step` counts from 0 or 1 as you like; `total` is the number of steps there will be, when known. Metrics are
    numbers, or what `float()` makes one (a NumPy scalar, a tensor of one element: a GPU tensor is waited for).
    Raises TypeError or ValueError, naming the argument.
    """
    _reporter().submit(EXPLICIT, step, total, metrics)


def checked_count(name: str, value: Any) -> int:
    """A whole number of 0 or more. Raises TypeError or ValueError."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if not 0 <= number < 2**63:
        raise ValueError(f"{name} must be between 0 and 2**63 - 1, not {number}")
    return number


def checked_metric(name: str, value: Any) -> float:
    """A float; NaN and infinities are welcome, they are news. Raises TypeError or ValueError."""
    if value is None or isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large for a float") from None
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a number, not {type(value).__name__} ({error})") from None


def encode_report(content: dict[str, Any]) -> bytes:
    """The JSON of a report, on one line. Raises ValueError when it is over one of the bounds of bounds.py."""
    if len(content["metrics"]) > MAX_METRICS:
        raise ValueError(
            f"{len(content['metrics'])} metrics are over the limit of {MAX_METRICS}: report fewer"
        )
    for name in content["metrics"]:
        if len(name) > MAX_METRIC_NAME:
            raise ValueError(f"the metric {name[:40]}… has a name of over {MAX_METRIC_NAME} characters")
    metrics = {
        name: value if math.isfinite(value) else str(value) for name, value in content["metrics"].items()
    }
    data = json.dumps({**content, "metrics": metrics}, allow_nan=False).encode()
    if len(data) > MAX_REPORT_BYTES:
        raise ValueError(
            f"a step report of {len(data)} bytes is over the limit of {MAX_REPORT_BYTES}: report fewer metrics"
        )
    return data


class Reporter:
    """Merges and sends the reports of one process through `channel`."""

    def __init__(self, channel: Channel | None) -> None:
        self._channel = channel
        self._lock = threading.RLock()
        self._ticker = Ticker(INTERVAL_S, self.flush)
        self._waiting: dict[str, Any] | None = None
        self._sent_at = -math.inf
        self._is_explicit = False

    def submit(
        self, source: str, step: Any, total: Any, metrics: dict[str, Any], description: str | None = None
    ) -> None:
        """Take one report. Once the user's own code reports, what hooks observe (`source` other than "report") is
        left out: the user knows better which of the two is the progress.
        """
        content = {
            "step": checked_count("step", step),
            "total": None if total is None else checked_count("total", total),
            "metrics": {name: checked_metric(name, value) for name, value in metrics.items()},
            "time_us": time.time_ns() // 1000,
            "rank": _rank(),
            "source": source,
            "description": description and description[:MAX_DESCRIPTION],
        }
        encode_report(content)
        if self._channel is None:
            return
        with self._lock:
            if source == EXPLICIT:
                self._is_explicit = True
            elif self._is_explicit:
                return
            self._merge(content)
            if time.monotonic() - self._sent_at >= INTERVAL_S:
                self.flush()
            else:
                self._ticker.arm()

    def _merge(self, content: dict[str, Any]) -> None:
        """A metric that only some steps report (a validation score) is not lost to a step without it."""
        waiting = self._waiting
        if waiting is not None and waiting["source"] == content["source"]:
            merged = {**content, "metrics": {**waiting["metrics"], **content["metrics"]}}
            if _fits(merged):
                content = merged
        self._waiting = content

    def flush(self) -> None:
        """Send what waits."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
            if waiting is None or self._channel is None:
                return
            self._sent_at = time.monotonic()
            self._channel(encode_report(waiting))

    def pause(self) -> None:
        """Flush, and let no thread of ours live on: a fork is about to come."""
        self.flush()
        self._ticker.pause()


def _fits(content: dict[str, Any]) -> bool:
    try:
        encode_report(content)
    except ValueError:
        return False
    return True


def _rank() -> int:
    try:
        return int(os.environ.get("RANK", "0"))
    except ValueError:
        return 0


_current: Reporter | None = None
_is_worker = False
_is_fork_watched = False


def attach_worker(channel: Channel) -> None:
    """Called in the process that runs the cell: `channel` is its own socket, and its hooks are listened to."""
    global _is_worker
    _is_worker = True
    _use(Reporter(channel))


def flush() -> None:
    """Send what waits, at the end of the process."""
    if _current is not None:
        _current.flush()


def observe(
    source: str, step: Any, total: Any, metrics: dict[str, Any], description: str | None = None
) -> None:
    """A report that a hook read off a library's own progress. Only the worker's own process is listened to: a pool of
    children, each with a bar of its own, says nothing about the whole.
    """
    if _current is not None and _is_worker:
        with contextlib.suppress(TypeError, ValueError):  # over the bounds of a report: nobody asked for one
            _current.submit(source, step, total, metrics, description)


def _reporter() -> Reporter:
    return _current or _use(Reporter(_channel_from_environment()))


def _use(reporter: Reporter) -> Reporter:
    """Make it the reporter of this process, and see to it that its last report is sent."""
    global _current, _is_fork_watched
    _current = reporter
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # its children end without atexit
        util.Finalize(None, flush, exitpriority=0)
    if not _is_fork_watched:
        _is_fork_watched = True
        atexit.register(flush)
        os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
    return reporter


def _before_fork() -> None:
    if _current is not None:
        _current.pause()


def _after_fork_in_child() -> None:
    """A child finds its own way to report, through the task folder, when it first does."""
    global _current, _is_worker
    _current = None
    _is_worker = False


def _channel_from_environment() -> Channel | None:
    """The way of a process that is not the worker itself; None outside a job."""
    task_dir = os.environ.get(ENV_TASK_DIR)
    if task_dir:
        channel = _fifo_channel(os.path.join(task_dir, STEPS_FIFO))
        if channel is not None:
            return channel
    number = os.environ.get(ENV_MESSAGE_FD, "")
    return _socket_channel(int(number)) if number.isdigit() else None


def _fifo_channel(path: str) -> Channel | None:
    try:
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            return None
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # none there, or no supervisor listens any more
        return None
    os.set_blocking(descriptor, True)

    def send(payload: bytes) -> None:
        try:
            os.write(descriptor, payload + b"\n")
        except OSError:
            pass  # the supervisor is gone; a training script must not fail over its progress

    return send


def _socket_channel(descriptor: int) -> Channel | None:
    """The message socket that a command was started with. The number may mean anything in a process further down, so
    it is looked at first; and nothing but single, small sends may be done on what others write to as well.
    """
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        with socket.socket(fileno=os.dup(descriptor)) as probe:
            if probe.family != socket.AF_UNIX or probe.type != socket.SOCK_STREAM:
                return None
    except OSError:
        return None

    def send(payload: bytes) -> None:
        packet = len(payload).to_bytes(4, "little") + bytes([PACKET_STEP]) + payload
        try:
            os.write(descriptor, packet)
        except OSError:
            pass

    return send
