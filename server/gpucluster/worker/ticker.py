"""Runs a function a short while after it was asked to: for output and step reports that wait to be sent together.

The thread behind it starts on first use, never before the fork that makes the worker, and is put away around every
fork of the user's code, so that no thread of ours is ever there to deadlock a child.

`arm` is called by every `print` of the main thread, where a signal handler may raise at any bytecode. Python's own
Event and Condition can be left locked for ever by that; what is used here are single calls into C, and no state of ours
stands between them.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from queue import SimpleQueue

_PAUSE_PATIENCE_S = 1.0


class _Running:
    """One thread: `idents` is empty before it starts, `requests` holds True for a run and False for the end."""

    def __init__(self) -> None:
        self.idents: list[int] = []
        self.requests: SimpleQueue[bool] = SimpleQueue()
        self.stop = _thread.allocate_lock()
        self.stop.acquire()
        self.ended = _thread.allocate_lock()
        self.ended.acquire()


class Ticker:
    """`arm()` makes `function` run once more, at most `delay_s` seconds later, in a daemon thread."""

    def __init__(self, delay_s: float, function: Callable[[], None]) -> None:
        self._delay_s = delay_s
        self._function = function
        self._running = _Running()

    def forget(self) -> None:
        """Start afresh without the thread: in a child after a fork, where only the forking thread lives on."""
        self._running = _Running()

    def arm(self) -> None:
        """Ask for a run. Where no thread can be started (the interpreter ends) it happens at once."""
        running = self._running
        if not running.idents:
            try:
                running.idents.extend(map(_thread.start_new_thread, (self._run,), ((running,),)))
            except RuntimeError:
                self._function()
                return
        if running.requests.empty():
            running.requests.put(True)

    def _run(self, running: _Running) -> None:
        try:
            while running.requests.get() and not running.stop.acquire(timeout=self._delay_s):
                self._function()
        finally:
            running.ended.release()

    def pause(self) -> None:
        """End the thread; the next `arm` starts a new one. What was armed is left undone: flush first."""
        running = self._running
        if not running.idents or _thread.get_ident() in running.idents:
            return
        self._running = _Running()
        running.stop.release()
        running.requests.put(False)
        running.ended.acquire(timeout=_PAUSE_PATIENCE_S)
