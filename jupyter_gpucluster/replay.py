"""From log records to outputs. Every view of a job in Python is drawn by this one: the waiting cell, `%attach`, `%logs`,
`job.outputs`, `job.logs()` (DESIGN 3.6: the log is the one truth).

`Replay` understands records; a `Sink` is where outputs go. Long outputs are shown by head and tail with a note in
between, never cut silently: the log has all of it.
"""

from __future__ import annotations

import codecs
import itertools
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gpucluster.api.schemas import StreamItem
from gpucluster.api.words import gone_text

from .carriage import VisibleCounter
from .drawing import DISPLAY_BYTES, TEXT_BYTES

Stream = Literal["stdout", "stderr"]
Mimes = dict[str, Any]


class Sink(Protocol):
    """Where outputs go. `display_id`s are already unique to this replay."""

    def text(self, stream: Stream, text: str) -> None: ...
    def display(self, data: Mimes, metadata: Mimes, display_id: str | None) -> None: ...
    def update(self, data: Mimes, metadata: Mimes, display_id: str) -> None: ...
    def result(self, data: Mimes, metadata: Mimes) -> None: ...
    def clear(self, wait: bool) -> None: ...


@dataclass(frozen=True)
class Limits:
    """What a notebook takes from one job: bytes of text (head and tail together) and of displays. None = no limit.

    Text that is written over after a carriage return, as progress bars do, does not count.
    `outputs`: at most so many displays and changes between stdout and stderr, each of which is an output of the notebook.
    """

    text_bytes: int | None = TEXT_BYTES
    display_bytes: int | None = DISPLAY_BYTES
    outputs: int | None = 1000

    @property
    def head_bytes(self) -> int | None:
        return None if self.text_bytes is None else self.text_bytes * 3 // 4

    @property
    def tail_bytes(self) -> int:
        return 0 if self.text_bytes is None else self.text_bytes - self.text_bytes * 3 // 4


ALL = Limits(text_bytes=None, display_bytes=None, outputs=None)
#: Of `Limits.outputs`, as many more may be in the tail as this part of them.
_TAIL_PART = 10
#: Characters of the text of a display that is too big for a notebook.
_CUT_TEXT = 2000


@dataclass(frozen=True)
class RemoteError:
    """The exception of a cell, as its worker reported it."""

    ename: str
    evalue: str
    traceback: list[str]


class _Tail:
    """The newest text within `limit` characters and `outputs` changes of stream, and how much went before it."""

    def __init__(self, limit: int, outputs: int | None) -> None:
        self._limit = limit
        self._outputs = outputs
        self._parts: deque[tuple[Stream, str]] = deque()
        self._size = 0
        self.dropped_bytes = 0

    def add(self, stream: Stream, text: str) -> None:
        self._parts.append((stream, text))
        self._size += len(text)
        while self._size > self._limit and self._parts:
            first_stream, first = self._parts.popleft()
            excess = self._size - self._limit
            self._size -= len(first)
            if len(first) > excess:
                kept = first[excess:]
                self._parts.appendleft((first_stream, kept))
                self._size += len(kept)
                first = first[:excess]
            self.dropped_bytes += _bytes(first)

    def take(self) -> list[tuple[Stream, str]]:
        """What one stream wrote in a row as one part, the first part from the beginning of a line on."""
        runs = [
            (stream, "".join(text for _, text in parts))
            for stream, parts in itertools.groupby(self._parts, key=lambda part: part[0])
        ]
        self._parts.clear()
        self._size = 0
        if self._outputs is not None and len(runs) > self._outputs:
            left_out, runs = runs[: -self._outputs], runs[-self._outputs :]
            self.dropped_bytes += sum(_bytes(text) for _, text in left_out)
        elif self.dropped_bytes and runs:
            stream, first = runs[0]
            cut = first.find("\n") + 1
            if (
                cut < len(first) or len(runs) > 1
            ):  # else it is one long line, whose end is better than nothing
                self.dropped_bytes += _bytes(first[:cut])
                runs[0] = (stream, first[cut:])
        return [(stream, text) for stream, text in runs if text]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


class Replay:
    """Draws the records of one rank of a job into a sink.

    `prefix` makes the display ids unique in the notebook; `where` says in notes how to see all of the log ("%logs 12 --all").
    The error of the last attempt is kept in `error` for whoever raises it; those before are printed. `on_status` is given
    each STATUS record (worker/frames.py), and what it returns is written as a line.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        prefix: str,
        where: str,
        limits: Limits = ALL,
        keep_last_error: bool = True,
        on_status: Callable[[dict[str, Any]], str | None] | None = None,
    ) -> None:
        self._sink = sink
        self._prefix = prefix
        self._where = where
        self._limits = limits
        self._keep_last_error = keep_last_error
        self._on_status = on_status
        self.error: RemoteError | None = None
        self._handlers: dict[str, Callable[[bytes], None]] = {
            "stdout": lambda payload: self._text("stdout", payload),
            "stderr": lambda payload: self._text("stderr", payload),
            "display": self._display,
            "update": self._update,
            "clear": self._clear,
            "error": self._error,
            "status": self._status,
        }
        self._start_decoders()
        self._start_counting()

    def record(self, item: StreamItem) -> None:
        """Draw one record, or say in its place that the log is gone. A kind of a later version is left out: it cannot be
        drawn, and the log keeps it.
        """
        if item.type == "gone":
            self._write("stderr", f"[{gone_text(item)}]\n")
            return
        handler = self._handlers.get(item.kind or "")
        if handler is not None:
            handler(item.payload or b"")

    def seam(self, text: str) -> None:
        """A new attempt begins: what was open of the last one is closed, and a line says so."""
        self._end_text()
        self._print_error()
        self._write("stdout", f"— {text} —\n")

    def finish(self) -> None:
        """Nothing more comes: the tail of a long output is drawn, unfinished characters too."""
        self._end_text()
        self._release_tail()
        if not self._keep_last_error:
            self._print_error()

    # ---- text

    def _start_decoders(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}

    def _start_counting(self) -> None:
        self._text_left = self._limits.head_bytes
        self._display_left = self._limits.display_bytes
        self._outputs_left = self._limits.outputs
        self._open_stream: Stream | None = None
        self._visible = VisibleCounter()
        self._tail: _Tail | None = None
        self._omitted_displays = 0
        self._last_omitted: tuple[Mimes, Mimes] | None = None

    def _text(self, stream: Stream, payload: bytes) -> None:
        text = self._decoders[stream].decode(payload)
        if text:
            self._write(stream, text)

    def _end_text(self) -> None:
        for stream in ("stdout", "stderr"):
            rest = self._decoders[stream].decode(b"", True)
            if rest:
                self._write("stdout" if stream == "stdout" else "stderr", rest)
        self._start_decoders()

    def _write(self, stream: Stream, text: str) -> None:
        if self._tail is None and stream != self._open_stream and not self._take_output():
            self._begin_tail()
        if self._tail is not None:
            self._tail.add(stream, text)
            return
        if stream != self._open_stream:
            self._open_stream, self._visible = stream, VisibleCounter()
        if self._text_left is None:
            self._sink.text(stream, text)
            return
        visible = self._visible.add(text)
        if visible <= self._text_left:
            self._sink.text(stream, text)
            self._text_left -= visible
            return
        head, rest = text[: self._text_left], text[self._text_left :]
        if head:
            self._sink.text(stream, head)
        self._begin_tail().add(stream, rest)

    def _take_output(self) -> bool:
        """Whether the notebook takes one more output."""
        if self._outputs_left is None:
            return True
        self._outputs_left -= 1
        return self._outputs_left >= 0

    def _begin_tail(self) -> _Tail:
        self._sink.text(
            "stderr",
            f"\n[long output: the rest stands in the log ({self._where}); its end is shown when the job ends]\n",
        )
        outputs = self._limits.outputs
        self._tail = _Tail(self._limits.tail_bytes, None if outputs is None else outputs // _TAIL_PART)
        return self._tail

    def _release_tail(self) -> None:
        tail, self._tail = self._tail, None
        if tail is not None:
            parts = tail.take()
            if tail.dropped_bytes:
                self._sink.text(
                    "stderr",
                    f"[… {tail.dropped_bytes:,} bytes are not shown here; see {self._where} …]\n",
                )
            for stream, text in parts:
                self._sink.text(stream, text)
        if self._omitted_displays:
            self._sink.text(
                "stderr", f"[{self._omitted_displays} displays are not shown here; see {self._where}]\n"
            )
            if self._last_omitted is not None:
                self._sink.display(*self._last_omitted, None)
        self._start_counting()

    # ---- displays

    def _display(self, payload: bytes) -> None:
        said = json.loads(payload)
        data, metadata = said.get("data") or {}, said.get("metadata") or {}
        if said.get("execute_result"):
            self._sink.result(*self._cut_to_size(payload, data, metadata))
            return
        if not self._has_room_for(payload):
            self._omitted_displays += 1
            self._last_omitted = self._cut_to_size(payload, data, metadata)
            return
        name = said.get("display_id")
        self._open_stream = None
        self._sink.display(data, metadata, self._unique(name) if name else None)

    def _has_room_for(self, payload: bytes) -> bool:
        """Whether the notebook takes this display, too; if so, it counts."""
        if self._display_left is None:
            return True
        if len(payload) > self._display_left or not self._take_output():
            return False
        self._display_left -= len(payload)
        return True

    def _cut_to_size(self, payload: bytes, data: Mimes, metadata: Mimes) -> tuple[Mimes, Mimes]:
        """Of what alone is more than a notebook takes, its text."""
        limit = self._limits.display_bytes
        if limit is None or len(payload) <= limit:
            return data, metadata
        text = str(data.get("text/plain", ""))[:_CUT_TEXT]
        note = f"[{len(payload):,} bytes are too many to be shown here; see {self._where}]"
        return {"text/plain": f"{text}\n{note}"}, {}

    def _update(self, payload: bytes) -> None:
        said = json.loads(payload)
        if said.get("display_id"):
            data, metadata = said.get("data") or {}, said.get("metadata") or {}
            name = self._unique(said["display_id"])
            self._sink.update(*self._cut_to_size(payload, data, metadata), name)

    def _unique(self, display_id: str) -> str:
        return f"{self._prefix}:{display_id}"

    def _clear(self, payload: bytes) -> None:
        self._start_counting()
        self._sink.clear(bool(json.loads(payload).get("wait")) if payload else False)

    # ---- the rest

    def _error(self, payload: bytes) -> None:
        self._print_error()
        said = json.loads(payload)
        self.error = RemoteError(
            str(said.get("ename", "Error")),
            str(said.get("evalue", "")),
            [str(line) for line in said.get("traceback") or []],
        )

    def _print_error(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            lines = error.traceback or [f"{error.ename}: {error.evalue}"]
            self._write("stderr", "\n".join(lines) + "\n")

    def _status(self, payload: bytes) -> None:
        said = json.loads(payload) if payload else {}
        told = self._on_status(said) if self._on_status is not None else None
        if told:
            self._write("stdout", f"— {told} —\n")
        if said.get("event") == "truncated":
            self._write(
                "stderr", "[the job wrote more than its log takes; what came after this was dropped]\n"
            )


class NotebookSink:
    """Collects outputs as a notebook would store them (nbformat 4 dictionaries)."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []
        self._by_id: dict[str, list[dict[str, Any]]] = {}
        self._clear_next = False

    def _add(self, output: dict[str, Any]) -> None:
        if self._clear_next:
            self._drop_all()
        self.outputs.append(output)

    def _drop_all(self) -> None:
        self.outputs.clear()
        self._by_id.clear()
        self._clear_next = False

    def text(self, stream: Stream, text: str) -> None:
        last = self.outputs[-1] if self.outputs and not self._clear_next else None
        if last is not None and last["output_type"] == "stream" and last["name"] == stream:
            last["text"] += text
            return
        self._add({"output_type": "stream", "name": stream, "text": text})

    def display(self, data: Mimes, metadata: Mimes, display_id: str | None) -> None:
        output = {"output_type": "display_data", "data": data, "metadata": metadata}
        self._add(output)
        if display_id:
            self._by_id.setdefault(display_id, []).append(output)

    def update(self, data: Mimes, metadata: Mimes, display_id: str) -> None:
        for output in self._by_id.get(display_id, ()):
            output["data"], output["metadata"] = data, metadata

    def result(self, data: Mimes, metadata: Mimes) -> None:
        self._add(
            {"output_type": "execute_result", "data": data, "metadata": metadata, "execution_count": None}
        )

    def clear(self, wait: bool) -> None:
        if wait:
            self._clear_next = True
        else:
            self._drop_all()


class TextSink:
    """Collects stdout and stderr in one text, as `job.logs()` gives it; displays by their plain text."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(self, stream: Stream, text: str) -> None:
        self.parts.append(text)

    def display(self, data: Mimes, metadata: Mimes, display_id: str | None) -> None:
        plain = data.get("text/plain")
        if plain:
            self.parts.append(f"{plain}\n")

    def update(self, data: Mimes, metadata: Mimes, display_id: str) -> None:
        """A display's later contents replace what a text has printed already; the text keeps the first."""

    def result(self, data: Mimes, metadata: Mimes) -> None:
        self.display(data, metadata, None)

    def clear(self, wait: bool) -> None:
        """A log keeps what a notebook clears."""

    @property
    def value(self) -> str:
        return "".join(self.parts)
