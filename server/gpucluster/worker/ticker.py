"""Runs a function a short while after it was asked to: for output and step reports that wait to be sent together.

The thread behind it starts on first use, never before the fork that makes the worker, and is put away around every
fork of the user's code, so that no thread of ours is ever there to deadlock a child.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_PAUSE_PATIENCE_S = 1.0


class Ticker:
    """`arm()` makes `function` run once, `delay_s` seconds later, in a daemon thread."""

    def __init__(self, delay_s: float, function: Callable[[], None], name: str) -> None:
        self._delay_s = delay_s
        self._function = function
        self._name = name
        self.forget()

    def forget(self) -> None:
        """Start afresh without the thread: in a child after a fork, where only the forking thread lives on."""
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._armed = False

    def arm(self) -> None:
        """Ask for one run. Where no thread can be started (the interpreter ends) it runs at once."""
        if self._armed:
            return
        self._armed = True
        if self._thread is None and not self._start():
            self._armed = False
            self._function()
            return
        self._wake.set()

    def _start(self) -> bool:
        thread = threading.Thread(
            target=self._run, args=(self._wake, self._stop), name=self._name, daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, or no more threads are allowed
            return False
        self._thread = thread
        return True

    def _run(self, wake: threading.Event, stop: threading.Event) -> None:
        while True:
            wake.wait()
            wake.clear()
            if stop.wait(self._delay_s):
                return
            self._armed = False
            self._function()

    def pause(self) -> None:
        """End the thread; the next `arm` starts a new one. What was armed is left undone: flush first."""
        thread, wake, stop = self._thread, self._wake, self._stop
        if thread is None or thread is threading.current_thread():
            return
        stop.set()
        wake.set()
        thread.join(_PAUSE_PATIENCE_S)
        self.forget()
