"""Waiting for a job in the running cell: the card kept up to date, the job's records drawn in order, ■ understood.

A thread reads the stream (it reconnects by itself), the cell's thread draws. Between them is an inbox of bounded size,
so that a job that writes faster than a front end can take slows down its own follower, never the job.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from gpucluster.api.errors import Conflict, GpuclusterError, Unavailable
from gpucluster.api.schemas import JobView, StreamItem

from . import describe
from .errors import Detached
from .interrupt import Call, Interrupted, Keyboard
from .output import CellOutput
from .replay import Replay
from .seams import seam

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient
    from gpucluster.api.feeds import Follower

#: The card is drawn anew at most this often for progress; for a new state at once.
CARD_INTERVAL_S = 0.25
#: The card of a job that reports no progress is drawn anew this often for the time that it has been running.
ELAPSED_INTERVAL_S = 10.0
#: Items read ahead of what is drawn.
READ_AHEAD = 2000
#: What a job wrote is shown at once when nothing more has come, but not in more pieces than this allows: front ends
#: draw each piece anew.
FLUSH_INTERVAL_S = 0.05
#: A connection that is away for longer is told in the card.
AWAY_S = 2.0


class StreamClosed:
    """The stream has ended; `error` is why, when it was not the job's end."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error


class Reader:
    """Reads a follower in a thread into the keyboard's inbox."""

    def __init__(self, follower: Follower, keyboard: Keyboard) -> None:
        self._follower = follower
        self._inbox = keyboard.inbox
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
        job: JobView,
        output: CellOutput,
        replay: Replay,
        keyboard: Keyboard,
        *,
        rank: int = 0,
        on_interrupt: Literal["detach", "cancel"] = "detach",
    ) -> None:
        self._client = client
        self._output = output
        self._replay = replay
        self._keyboard = keyboard
        self._rank = rank
        self._on_interrupt = on_interrupt
        self._cancelling = False
        self._card_due: float | None = None
        self._away_since: float | None = None
        self._drawn_at = time.monotonic()
        self._ended = False
        self._flushed_at = 0.0
        self.job = job

    def run(self) -> JobView:
        """Draw until the job has ended. Raises Detached after ■, Unavailable when the scheduler stays away."""
        try:
            with Reader(self._client.follow(self.job.id, self._rank), self._keyboard) as reader:
                while not self._ended:
                    self._turn(reader)
        except KeyboardInterrupt:  # ■ once more, while the first one was being dealt with
            raise Detached(self.job.number, self.job.state) from None
        self._replay.finish()
        if self.job.state not in describe.ENDED:
            self._take_view(self._client.job(self.job.id))
        return self.job

    def _turn(self, reader: Reader) -> None:
        try:
            item = self._keyboard.next(self._patience())
        except queue.Empty:
            self._tick(reader)
            return
        except Interrupted:
            self._interrupted()
            return
        if isinstance(item, StreamItem):
            self._take(item)
            reader.drawn()
            self._flush_if_idle()
        elif isinstance(item, StreamClosed):
            self._closed(item)
        elif isinstance(item, Call):
            self._cancel_asked(item)
        self._draw_card_if_due()

    def _draw_card_if_due(self) -> None:
        now = time.monotonic()
        counts = self.job.state == "running" and self.job.progress is None
        stale = counts and now - self._drawn_at >= ELAPSED_INTERVAL_S
        if stale or (self._card_due is not None and now >= self._card_due):
            self._draw_card()

    def _flush_if_idle(self) -> None:
        now = time.monotonic()
        if self._keyboard.inbox.empty() and now - self._flushed_at >= FLUSH_INTERVAL_S:
            self._flushed_at = now
            self._output.flush()

    def _patience(self) -> float:
        if self._card_due is None:
            return 1.0
        return max(0.0, min(self._card_due - time.monotonic(), 1.0))

    def _tick(self, reader: Reader) -> None:
        """Nothing came for a while: draw what is due, and say when the scheduler is away."""
        self._output.flush()
        now = time.monotonic()
        if reader.connected:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = now
        away = self._away_since is not None and now - self._away_since > AWAY_S
        contact = "The scheduler does not answer; trying again. The job is not affected." if away else None
        card = self._output.card
        if card is not None and card.contact != contact:
            card.contact = contact
            self._card_due = now
        self._draw_card_if_due()

    # ---- what comes

    def _take(self, item: StreamItem) -> None:
        if item.type in ("record", "gone"):
            self._replay.record(item)
        elif item.type == "job" and item.job is not None:
            self._take_view(item.job)
        elif item.type == "attempt":
            self._new_attempt(item.attempt)
        elif item.type == "end":
            if item.job is not None:
                self._take_view(item.job)
            self._ended = True

    def _take_view(self, view: JobView) -> None:
        before, self.job = self.job, view
        card = self._output.card
        if card is None:
            return
        card.update(view)
        now = time.monotonic()
        if (before.state, before.reason) != (view.state, view.reason):
            self._draw_card()
        elif self._card_due is None:
            self._card_due = now + CARD_INTERVAL_S

    def _draw_card(self) -> None:
        self._card_due = None
        self._drawn_at = time.monotonic()
        self._output.draw_card()

    def _new_attempt(self, number: int) -> None:
        if number > 1:
            self._replay.seam(seam(self._client, self.job, number))

    def _closed(self, closed: StreamClosed) -> None:
        if isinstance(closed.error, Unavailable):
            raise Unavailable(
                f"lost sight of job {self.job.number}: {closed.error.reason}",
                hint=f"The job is kept by the scheduler. %attach {self.job.number} comes back once it answers.",
            )
        if closed.error is not None:
            raise closed.error
        self._ended = True

    # ---- interrupt

    def _interrupted(self) -> None:
        if self._on_interrupt == "detach" or self._cancelling:
            self._draw_card()
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
            self._replay_note(f"job {self.job.number} could not be cancelled: {error.reason}")

    def _replay_note(self, text: str) -> None:
        self._output.text("stderr", f"[{text}]\n")
