"""Runs a function a short while after it was asked to: for output and step reports that wait to be sent together.

The thread behind it never starts before the fork that makes the worker, and is put away around every fork of the
user's code, so that no thread of ours is ever there to deadlock a child.

`arm` is called by every `print` of the main thread, where a signal handler may raise at any bytecode. So no state of
ours is left half done between two of them: no Event or Condition (Python's can be left locked for ever), only single
calls into C. And a signal that arrives just before a blocking call goes unseen until that returns. The moment is short,
unless another thread waits for the GIL: when the main thread releases it to block, that one takes its processor. So
`start` waits until the thread has settled, `arm` does not wake it as long as it ticks, and it takes no signals itself.
"""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable
from queue import SimpleQueue

_PAUSE_PATIENCE_S = 1.0
_SETTLE_PATIENCE_S = 0.1
#: After so many ticks with nothing to do, the thread waits to be woken.
_IDLE_TICKS = 40


class _Running:
    """One thread: `idents` is empty before it starts; `wake` ends its idleness."""

    def __init__(self) -> None:
        self.idents: list[int] = []
        self.is_armed = False
        self.is_idle = False
        self.wake: SimpleQueue[None] = SimpleQueue()
        self.stop = _thread.allocate_lock()
        self.stop.acquire()
        self.settled = _thread.allocate_lock()
        self.settled.acquire()
        self.ended = _thread.allocate_lock()
        self.ended.acquire()


class Ticker:
    """`arm()` makes `function` run once more, about `delay_s` seconds later at most, in a daemon thread."""

    def __init__(self, delay_s: float, function: Callable[[], None]) -> None:
        self._delay_s = delay_s
        self._function = function
        self._running = _Running()

    @property
    def is_started(self) -> bool:
        return bool(self._running.idents)

    def start(self) -> None:
        """Start the thread if there is none. Raises RuntimeError where none can be started (the interpreter ends)."""
        running = self._running
        if not running.idents:
            running.idents.extend(map(_thread.start_new_thread, (self._run,), ((running,),)))
            running.settled.acquire(timeout=_SETTLE_PATIENCE_S)

    def forget(self) -> None:
        """Start afresh without the thread: in a child after a fork, where only the forking thread lives on."""
        self._running = _Running()

    def arm(self) -> None:
        """Ask for a run. Where no thread can be started it happens at once."""
        try:
            self.start()
        except RuntimeError:
            self._function()
            return
        running = self._running
        running.is_armed = True
        if running.is_idle:
            running.wake.put(None)

    def _run(self, running: _Running) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        running.settled.release()
        idle_ticks = 0
        try:
            while not running.stop.acquire(timeout=self._delay_s):
                if running.is_armed:
                    running.is_armed = False
                    idle_ticks = 0
                    self._function()
                    continue
                idle_ticks += 1
                if idle_ticks >= _IDLE_TICKS:
                    idle_ticks = 0
                    self._rest(running)
        finally:
            running.ended.release()

    def _rest(self, running: _Running) -> None:
        """Until `arm` or `pause`. Idleness is declared before the look at `is_armed`, so an `arm` in between is not lost."""
        running.is_idle = True
        if not running.is_armed:
            running.wake.get()
        running.is_idle = False

    def pause(self) -> None:
        """End the thread; the next `arm` starts a new one. What was armed is left undone: flush first."""
        running = self._running
        if not running.idents or _thread.get_ident() in running.idents:
            return
        self._running = _Running()
        running.stop.release()
        running.wake.put(None)
        running.ended.acquire(timeout=_PAUSE_PATIENCE_S)
