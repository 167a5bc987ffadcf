"""Waiting in the thread that runs a cell, so that ■ (SIGINT) always works and never cuts a step in half.

While `Keyboard` is entered, the first SIGINT becomes an item of the inbox that the cell waits on: nothing is raised in
the middle of a write or of a state change. A second one, while the first is still being dealt with, raises
KeyboardInterrupt at once, so that nothing can hang for good. Slow calls run in threads of their own (`start`).
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Waits are cut into pieces of this length: a wait without an end cannot be interrupted on every platform.
_PIECE_S = 0.5


class Interrupted(Exception):
    """The user pressed ■ while we waited. Never leaves this package."""


class Call(Generic[T]):
    """A function that runs in a daemon thread. `finished`, then `outcome()`."""

    def __init__(self, function: Callable[[], T], when_done: Callable[[Call[T]], None]) -> None:
        self._function = function
        self._when_done = when_done
        self._value: T | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._afterwards: list[Callable[[Call[T]], None]] = []
        self.finished = False
        self._thread = threading.Thread(target=self._run, name="gpucluster-call", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error
        with self._lock:
            self.finished = True
            afterwards = self._afterwards
        for act in afterwards:
            act(self)
        self._when_done(self)

    def outcome(self) -> T:
        """The value, or the exception raised. Only once `finished`."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def afterwards(self, act: Callable[[Call[T]], None]) -> None:
        """Run `act` in the call's thread when it has finished; at once, here, when it has already."""
        with self._lock:
            if not self.finished:
                self._afterwards.append(act)
                return
        act(self)


class _Pressed:
    """The item that stands for ■ in the inbox."""


PRESSED = _Pressed()


class Keyboard:
    """A context in which ■ arrives in `inbox`. Outside the main thread, which alone gets signals, it only waits."""

    def __init__(self) -> None:
        #: SimpleQueue.put is safe inside a signal handler, unlike the locks of Event and Queue.
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._previous: Any = None
        self._installed = False
        self._pending = False
        self._unseen = False

    def __enter__(self) -> Keyboard:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
            self._installed = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._previous)
            self._installed = False
        if self._unseen and kind is None:
            raise KeyboardInterrupt  # it came when there was nothing left to wait for; what follows must still stop

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._pending:
            raise KeyboardInterrupt
        self._pending = self._unseen = True
        self.inbox.put(PRESSED)

    def handled(self) -> None:
        """The interrupt that came was dealt with; the next one is a first one again."""
        self._pending = False

    def next(self, timeout_s: float | None = None) -> Any:
        """The next item of the inbox. Raises Interrupted for ■, queue.Empty after `timeout_s`."""
        item = self._take(timeout_s)
        if item is PRESSED:
            self._unseen = False
            raise Interrupted
        return item

    def _take(self, timeout_s: float | None) -> Any:
        left = timeout_s
        while True:
            piece = _PIECE_S if left is None else min(left, _PIECE_S)
            try:
                return self.inbox.get(timeout=max(piece, 0.0))
            except queue.Empty:
                if left is None:
                    continue
                left -= piece
                if left <= 0:
                    raise

    def start(self, function: Callable[[], T]) -> Call[T]:
        """Run `function` in a thread; the inbox gets the Call when it has finished."""
        return Call(function, self.inbox.put)

    def wait_for(self, call: Call[T], timeout_s: float | None = None) -> T:
        """The call's value. Raises what it raised, Interrupted for ■, queue.Empty after `timeout_s`.

        Other items that arrive meanwhile are none of ours and are dropped: wait for calls before following a job.
        """
        while not call.finished:
            self.next(timeout_s)
        return call.outcome()

    def call(self, function: Callable[[], T]) -> T:
        """`start` and `wait_for` in one."""
        return self.wait_for(self.start(function))
