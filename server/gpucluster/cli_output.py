"""Where the command line writes: tables for people or JSON for programs, a job's log as raw bytes, errors as one text."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from .api.errors import error_body
from .api.schemas import JobView, StreamItem
from .api.words import gone_text
from .cli_colors import Decolored, keeps_colors
from .cli_text import Glyphs, glyphs_for
from .model.errors import (
    Forbidden,
    GpuclusterError,
    InvalidRequest,
    NotFound,
    TooLarge,
    Unauthenticated,
    Unavailable,
    VersionMismatch,
)
from .model.plain import plain, plain_json

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

#: First match counts. Everything else (a conflict, an error without a class of its own) exits with EXIT_FAILED.
_EXIT_CODES: tuple[tuple[tuple[type[GpuclusterError], ...], int], ...] = (
    ((InvalidRequest, TooLarge), EXIT_USAGE),
    ((Unavailable, VersionMismatch), 3),
    ((NotFound,), 4),
    ((Forbidden, Unauthenticated), 5),
)
#: Width of tables where nothing tells (output into a file or a pipe).
PIPE_WIDTH = 140


def exit_code(error: GpuclusterError) -> int:
    """The exit code of an error: 2 wrong use, 3 scheduler away, 4 not found, 5 not allowed, 1 the rest."""
    return next((code for classes, code in _EXIT_CODES if isinstance(error, classes)), EXIT_FAILED)


class PlainConsole(Console):
    """Whatever is printed through it, no text of others steers the terminal; the styles are our own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


class Output:
    """The two streams of one invocation. `as_json`: standard output carries JSON alone."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        for stream in (sys.stdout, sys.stderr):
            # A name that the terminal's encoding lacks shows as "?"; it does not end the command.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
        self.console = PlainConsole(width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)
        self._errors = PlainConsole(stderr=True, highlight=False, markup=False, emoji=False)

    @property
    def width(self) -> int:
        return self.console.width

    @property
    def glyphs(self) -> Glyphs:
        return glyphs_for(self.console.encoding)

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def show(self, data: Any, draw: Callable[[], RenderableType]) -> None:
        """`data` as JSON, or what `draw` makes of it."""
        if self.as_json:
            self.json(data)
        else:
            self.console.print(draw())

    def json(self, data: Any, indent: int = 2) -> None:
        text = msgspec.json.format(msgspec.json.encode(data), indent=indent).decode()
        sys.stdout.write(f"{plain_json(text)}\n")
        sys.stdout.flush()

    def line(self, text: str) -> None:
        if not self.as_json:
            self.console.print(text, soft_wrap=True)

    def aside(self, text: str) -> None:
        """Beside the output proper, on standard error."""
        self._errors.print(text, style="dim", soft_wrap=True)

    def error(self, error: GpuclusterError) -> None:
        if self.as_json:
            sys.stderr.write(f"{plain_json(msgspec.json.encode(error_body(error)).decode())}\n")
            return
        self._errors.print("gpucluster: ", style="bold red", end="", soft_wrap=True)
        self._errors.print(str(error), soft_wrap=True)


class Chunk(NamedTuple):
    """What a log record shows in a terminal."""

    data: bytes
    to_stderr: bool


def chunk_of(item: StreamItem) -> Chunk | None:
    """Bytes as they were written; of a display its text, of an exception its traceback; None for what shows nothing."""
    payload = item.payload or b""
    if item.kind in ("stdout", "stderr"):
        return Chunk(payload, item.kind == "stderr")
    if item.kind == "display":
        text = _joined(_object(payload).get("data", {}).get("text/plain") or "")
        return Chunk(f"{text}\n".encode(), False) if text else None
    if item.kind == "error":
        return Chunk(f"{_joined(_object(payload).get('traceback', []), chr(10))}\n".encode(), True)
    return None


def last_lines(chunks: Sequence[Chunk], count: int) -> tuple[list[Chunk], bool]:
    """The last `count` lines of what the chunks show, and whether there were so many."""
    kept: list[Chunk] = []
    # A newline at the very end closes the last line; it does not begin one more.
    missing = count + (1 if chunks and chunks[-1].data.endswith(b"\n") else 0)
    for chunk in reversed(chunks):
        newlines = chunk.data.count(b"\n")
        if newlines >= missing:
            kept.append(chunk._replace(data=chunk.data.split(b"\n", newlines - missing + 1)[-1]))
            return kept[::-1], True
        missing -= newlines
        kept.append(chunk)
    return kept[::-1], False


class LogWriter:
    """Writes log records as they were written: bytes to where they came from, displays as their text.

    Colours reach a terminal only, or with `color` "always" everything. Use it as a context manager.
    """

    def __init__(self, output: Output, color: str = "auto") -> None:
        self._output = output
        self._told_gone: set[int] = set()
        #: By whether it is standard error; None where everything passes.
        self._decolored = {
            is_stderr: None if keeps_colors(color, stream) else Decolored()
            for is_stderr, stream in ((False, sys.stdout), (True, sys.stderr))
        }

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        for is_stderr, decolored in self._decolored.items():
            if decolored is not None and (rest := decolored.rest()):
                _write(_stream(is_stderr), rest)

    def write_all(self, items: Iterable[StreamItem]) -> JobView | None:
        """Everything of a stream; returns the last state of the job that came with it."""
        last: JobView | None = None
        for item in items:
            if self._output.as_json:
                self._output.json(item, indent=-1)
            elif item.type == "record":
                self.write(chunk_of(item))
            elif item.type == "attempt" and item.attempt > 1:
                self._output.aside(f"attempt {item.attempt}:")
            elif item.type == "gone":
                self.gone(item)
            if item.job is not None:
                self._state(last, item.job)
                last = item.job
        return last

    def gone(self, item: StreamItem) -> None:
        """In place of the log of an attempt: that it was removed. Once, also when the stream is taken up again."""
        if item.attempt not in self._told_gone:
            self._told_gone.add(item.attempt)
            self._output.aside(gone_text(item))

    def write(self, chunk: Chunk | None) -> None:
        if chunk is not None:
            decolored = self._decolored[chunk.to_stderr]
            _write(_stream(chunk.to_stderr), decolored.passed(chunk.data) if decolored else chunk.data)

    def _state(self, before: JobView | None, job: JobView) -> None:
        """One line when the state or the reason to wait changes; what ended says so through the exit code as well."""
        told = (before.state, before.waits) if before else None
        if self._output.as_json or told == (job.state, job.waits):
            return
        detail = job.waits if job.state == "pending" else job.reason
        self._output.aside(f"job {job.number} {job.state}{f': {detail}' if detail else ''}")


def _stream(is_stderr: bool) -> Any:
    return sys.stderr if is_stderr else sys.stdout


def _write(stream: Any, data: bytes) -> None:
    """Past the text layer: a log is bytes, in whatever encoding the job wrote."""
    stream.flush()
    raw = getattr(stream, "buffer", None)
    if raw is None:  # a stream that a test or a shell put in place
        stream.write(data.decode("utf-8", "replace"))
    else:
        raw.write(data)
        raw.flush()
    stream.flush()


def _object(payload: bytes) -> dict[str, Any]:
    """The JSON object of a record; a record that is none shows nothing."""
    try:
        found = json.loads(payload)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _joined(text: str | list[str], separator: str = "") -> str:
    return text if isinstance(text, str) else separator.join(text)
