"""Waiting for a job in the running cell: its items drawn as they come (draw.py), ■ understood.

A thread reads the stream (it reconnects by itself), the cell's thread draws. Between them is an inbox of bounded size,
so that a job that writes faster than a front end can take slows down its own follower, never the job.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any, Literal

from gpucluster.api.errors import Conflict, GpuclusterError, Unavailable
from gpucluster.api.schemas import JobView, StreamItem

from .draw import Drawer
from .errors import Detached
from .interrupt import Call, Interrupted, Keyboard

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient
    from gpucluster.api.feeds import Follower

#: Items read ahead of what is drawn.
READ_AHEAD = 2000


class StreamClosed:
    """The stream has ended; `error` is why, when it was not the job's end."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error


class Reader:
    """Reads a follower in a thread into an inbox; the last item is a StreamClosed."""

    def __init__(self, follower: Follower, inbox: queue.SimpleQueue[Any]) -> None:
        self._follower = follower
        self._inbox = inbox
        self._room = threading.Semaphore(READ_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpucluster-follow", daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._room.release()
        self._follower.close()

    def _run(self) -> None:
        error: Exception | None = None
        try:
            for item in self._follower:
                self._room.acquire()
                if self._stopped.is_set():
                    return
                self._inbox.put(item)
        except Exception as failure:  # raised where somebody sees it: in the cell's thread
            error = failure
        self._inbox.put(StreamClosed(error))

    def drawn(self) -> None:
        """One item was dealt with: the reader may fetch another."""
        self._room.release()

    @property
    def connected(self) -> bool:
        return self._follower.connected


class Watch:
    """Follows one job from its beginning to its end. `run` returns the job as it ended, or raises Detached."""

    def __init__(
        self,
        client: ApiClient,
        drawer: Drawer,
        keyboard: Keyboard,
        *,
        rank: int = 0,
        on_interrupt: Literal["detach", "cancel"] = "detach",
    ) -> None:
        self._client = client
        self._drawer = drawer
        self._keyboard = keyboard
        self._rank = rank
        self._on_interrupt = on_interrupt
        self._cancelling = False
        self._over = False

    @property
    def job(self) -> JobView:
        return self._drawer.job

    def run(self) -> JobView:
        """Draw until the job has ended. Raises Detached after ■, Unavailable when the scheduler stays away."""
        try:
            follower = self._client.follow(self.job.id, self._rank)
            with Reader(follower, self._keyboard.inbox) as reader:
                while not (self._over or self._drawer.ended):
                    self._turn(reader)
        except KeyboardInterrupt:  # ■ once more, while the first one was being dealt with
            raise Detached(self.job.number, self.job.state) from None
        return self._drawer.finish()

    def _turn(self, reader: Reader) -> None:
        try:
            item = self._keyboard.next(self._drawer.due_in_s())
        except queue.Empty:
            self._drawer.note_contact(reader.connected)
            self._drawer.tick()
            return
        except Interrupted:
            self._interrupted()
            return
        if isinstance(item, StreamItem):
            self._drawer.take(item)
            reader.drawn()
        elif isinstance(item, StreamClosed):
            self._closed(item)
        elif isinstance(item, Call):
            self._cancel_asked(item)
        self._drawer.tick()

    def _closed(self, closed: StreamClosed) -> None:
        if isinstance(closed.error, Unavailable):
            raise Unavailable(
                f"lost sight of job {self.job.number}: {closed.error.reason}",
                hint=f"The job is kept by the scheduler. %attach {self.job.number} comes back once it answers.",
            )
        if closed.error is not None:
            raise closed.error
        self._over = True

    # ---- interrupt

    def _interrupted(self) -> None:
        if self._on_interrupt == "detach" or self._cancelling:
            self._drawer.draw_card()
            raise Detached(self.job.number, self.job.state)
        self._cancelling = True
        self._keyboard.handled()
        job_id = self.job.id

        def cancel() -> Any:
            try:
                return self._client.cancel(job_id, "interrupted in the notebook")
            except Conflict:
                return None  # it has ended meanwhile; the stream will say how

        self._keyboard.start(cancel)

    def _cancel_asked(self, call: Call[Any]) -> None:
        """The answer to our cancel; a refusal must be seen, for the job goes on then."""
        try:
            call.outcome()
        except GpuclusterError as error:
            self._cancelling = False
            self._drawer.output.text(
                "stderr", f"[job {self.job.number} could not be cancelled: {error.reason}]\n"
            )
