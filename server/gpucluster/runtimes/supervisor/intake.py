"""What comes from a task while it runs: packets, raw output and step reports, into log and step log. All of it is hostile:
whatever it is, it is bounded, told once when it is dropped, and never raised.
"""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Callable
from typing import Any

from gpucluster.worker import protocol
from gpucluster.worker.files import parse_object
from gpucluster.worker.frames import Kind

from . import launch
from .channels import LineReader, PacketReader, RawPipe
from .log import LogWriter
from .steps import StepLog

_LAST_WORDS_BYTES = 2000
_MAX_PROBLEMS = 16
#: What a task may put into its log; STATUS records are the supervisor's own.
_RECORDS = frozenset(Kind) - {Kind.STATUS}


class Intake:
    """`collect` takes what stands in the channels; `on_up(details)` is called when the worker says that it is up."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        task_dir: str,
        log: LogWriter,
        steps: StepLog,
        on_up: Callable[[dict[str, Any]], None],
    ) -> None:
        self._selector = selector
        self._log = log
        self._steps = steps
        self._on_up = on_up
        self._worker: launch.Worker | None = None
        self._last_words = b""
        self._problems: set[str] = set()
        #: Name and text of the exception that the worker told of last.
        self.error: tuple[str | None, str | None] = (None, None)
        self._step_lines = LineReader(os.path.join(task_dir, protocol.STEPS_FIFO))
        selector.register(self._step_lines.descriptor, selectors.EVENT_READ)

    def attach(self, worker: launch.Worker) -> None:
        """From now on there is a worker to listen to."""
        self._worker = worker
        for channel in (worker.messages, worker.stdout, worker.stderr):
            self._selector.register(channel.descriptor, selectors.EVENT_READ)

    @property
    def last_words(self) -> str:
        """The last line of standard error: it is told when the worker does not get as far as telling anything itself."""
        return self._last_words.decode("utf-8", "replace").strip().rpartition("\n")[2]

    @property
    def is_open(self) -> bool:
        """Can anything still come from the worker's own channels?"""
        worker = self._worker
        return worker is not None and (
            worker.stdout.is_open or worker.stderr.is_open or worker.messages.is_open
        )

    def collect(self) -> None:
        """Take what stands in the channels, in the order of channels.py."""
        worker = self._worker
        if worker is None:
            return
        waiting = worker.messages.waiting()
        for pipe, kind in ((worker.stdout, Kind.STDOUT), (worker.stderr, Kind.STDERR)):
            self._take_raw(pipe, kind)
        for line in self._step_lines.drain():
            self._take_step(line)
        if waiting:
            descriptor = worker.messages.descriptor
            for packet_kind, payload in worker.messages.take(waiting):
                self._take_packet(packet_kind, payload)
            self._note_trouble(worker.messages)
            if not worker.messages.is_open:
                self._selector.unregister(descriptor)

    def drain(self) -> None:
        """Nobody writes any more: what stands in the channels is the rest."""
        for _ in range(1000):
            before = self._log.size
            self.collect()
            if not self._log.flush() and self._log.size == before:
                break
        self._steps.push_last()

    def take_crash(self, text: bytes) -> None:
        """What the worker left to be said about its crash."""
        if text:
            self._log.add(Kind.STDERR, text)
            self._remember(text)

    def _take_raw(self, pipe: RawPipe, kind: Kind) -> None:
        if not pipe.is_open:
            return
        for data in pipe.drain():
            self._log.add(kind, data)
            if kind is Kind.STDERR:
                self._remember(data)
        if not pipe.is_open:
            self._selector.unregister(pipe.descriptor)

    def _take_packet(self, kind: int, payload: bytes) -> None:
        if kind == protocol.PACKET_STEP:
            self._take_step(payload)
        elif kind == protocol.PACKET_UP:
            self._on_up(parse_object(payload) or {})
        elif kind == protocol.PACKET_NOTE:
            content = {"event": "notice", "source": "worker", "text": payload.decode("utf-8", "replace")}
            self._log.add(Kind.STATUS, json.dumps(content).encode())
        elif kind in _RECORDS:
            if kind == Kind.ERROR:
                error = parse_object(payload) or {}
                self.error = (str(error.get("ename")), str(error.get("evalue")))
            if kind == Kind.STDERR:
                self._remember(payload)
            self._log.add(Kind(kind), payload)
        else:
            self._problem(f"a packet of the unknown kind {kind}")

    def _remember(self, words: bytes) -> None:
        self._last_words = (self._last_words + words[-_LAST_WORDS_BYTES:])[-_LAST_WORDS_BYTES:]

    def _take_step(self, payload: bytes) -> None:
        if not self._steps.add(payload):
            self._problem("a step report that is none, or over the bounds of one; it was left out")

    def _note_trouble(self, messages: PacketReader) -> None:
        for kind in messages.take_oversized():
            if kind in _RECORDS:
                self._log.truncated("error" if kind == Kind.ERROR else "display")
            else:
                self._problem(f"a packet of kind {kind} that is too large")
        if messages.failure:
            self._problem(messages.failure)

    def _problem(self, text: str) -> None:
        """Say once that the worker's channel brought something that it should not."""
        if text not in self._problems and len(self._problems) < _MAX_PROBLEMS:
            self._problems.add(text)
            self._log.status("notice", source="supervisor", text=f"the task sent {text}")
