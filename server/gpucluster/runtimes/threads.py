"""Threads for work on files that may hang for ever (a network file system that is away): they never hold up our end.

The standard pool's threads are joined when the interpreter ends; these are daemons, and end with the process.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

Result = TypeVar("Result")
_Item = tuple["Future[Any]", Callable[[], Any]]


class DaemonThreads(Executor):
    """Up to `count` threads, started as they are needed."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._is_shut = False

    def submit(self, work: Callable[..., Result], /, *arguments: Any, **named: Any) -> Future[Result]:
        """Have it done. Raises RuntimeError after `shutdown`."""
        future: Future[Result] = Future()
        with self._lock:
            if self._is_shut:
                raise RuntimeError("these threads have been shut down")
            self._queue.put((future, lambda: work(*arguments, **named)))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def _serve(self) -> None:
        while (item := self._next()) is not None:
            future, work = item
            if future.set_running_or_notify_cancel():
                _run(future, work)
            del item, future, work  # what it holds must not live until the next one comes

    def _next(self) -> _Item | None:
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            self._idle.release()  # only a thread that has nothing to do is counted as one that can take what comes
            return self._queue.get()

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """No more work. With `wait`, as long as the work in hand takes; else threads that hang are left to hang."""
        with self._lock:
            self._is_shut = True
            while cancel_futures and not self._queue.empty():
                item = self._queue.get()
                if item is not None:
                    item[0].cancel()
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads if wait else ():
            thread.join()


def _run(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
