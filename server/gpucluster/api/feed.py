"""The cluster's events for followers: a ring of the newest, the store for older ones, *resync* for what is gone.

A follower is nothing but a number, the last one it has passed. It reads on from there at its own pace, so a slow one
costs no memory and holds nobody up; one that falls too far behind is told to take a snapshot (DESIGN section 3.7).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from ..model.events import PublishedEvent

#: The ring holds at most so many events, of at most so many bytes (what jobs report may be long).
RING_SIZE = 10_000
RING_BYTES = 32 << 20
#: A follower further behind than this is not led through the store, but told to take a snapshot.
MAX_BEHIND = 50_000
#: A follower is given at most so many at a time, of at most so many bytes, or one.
READ_LIMIT = 500
READ_BYTES = 1 << 20

#: Reads events from the store: (after, limit) -> events in order.
ReadOlder = Callable[[int, int], Awaitable[Sequence[PublishedEvent]]]


class Resync(Exception):
    """What follows `after` is not there any more; go on from `seq` with a fresh snapshot."""

    def __init__(self, seq: int) -> None:
        super().__init__(f"resync at {seq}")
        self.seq = seq


class Signal:
    """Wakes waiters. One that was not waiting at the moment is woken when it waits next."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """True when notified, False when the time is over."""
        try:
            await asyncio.wait_for(self._event.wait(), timeout_s)
        except (asyncio.TimeoutError, TimeoutError):
            return False
        self._event.clear()
        return True


class EventFeed:
    """Takes committed events from the driver (`publish` is its listener) and gives them to followers."""

    def __init__(
        self,
        last_seq: int,
        read_older: ReadOlder,
        ring_size: int = RING_SIZE,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        self._ring: deque[tuple[PublishedEvent, int]] = deque()  # with about how many bytes each takes
        self._ring_size = ring_size
        self._ring_bytes = ring_bytes
        self._bytes = 0
        self._last_seq = last_seq
        self._read_older = read_older
        self._signals: set[Signal] = set()
        self._job_signals: dict[str, set[Signal]] = {}

    @property
    def last_seq(self) -> int:
        """Number of the newest event that was given out: what a view of now contains."""
        return self._last_seq

    def publish(self, events: Sequence[PublishedEvent]) -> None:
        if not events:
            return
        self._keep(events)
        self._last_seq = events[-1].seq
        for signal in self._signals:
            signal.notify()
        for job_id in {event.job_id for event in events if event.job_id}:
            for signal in self._job_signals.get(job_id, ()):
                signal.notify()

    def _keep(self, events: Sequence[PublishedEvent]) -> None:
        for event in events:
            size = len(repr(event.data))
            self._ring.append((event, size))
            self._bytes += size
        while len(self._ring) > self._ring_size or (self._ring and self._bytes > self._ring_bytes):
            self._bytes -= self._ring.popleft()[1]

    def watch(self, job_id: str | None = None) -> Watch:
        """A context in which a signal is notified at each event (of one job)."""
        return Watch(self, job_id)

    def _add(self, job_id: str | None, signal: Signal) -> None:
        target = self._signals if job_id is None else self._job_signals.setdefault(job_id, set())
        target.add(signal)

    def _remove(self, job_id: str | None, signal: Signal) -> None:
        if job_id is None:
            self._signals.discard(signal)
            return
        signals = self._job_signals.get(job_id)
        if signals is not None:
            signals.discard(signal)
            if not signals:
                del self._job_signals[job_id]

    async def read(self, after: int) -> Sequence[PublishedEvent]:
        """The next events after number `after`, at most READ_LIMIT of READ_BYTES; none when there are none yet.

        Raises Resync.
        """
        last = self._last_seq
        if after == last:
            return ()
        if after > last or after < 0 or last - after > MAX_BEHIND:
            raise Resync(last)
        if self._ring and self._ring[0][0].seq <= after + 1:
            return self._from_ring(after + 1 - self._ring[0][0].seq)
        older = await self._read_older(after, READ_LIMIT)
        if not older or older[0].seq != after + 1:
            raise Resync(self._last_seq)
        return older

    def _from_ring(self, start: int) -> list[PublishedEvent]:
        found: list[PublishedEvent] = []
        total = 0
        for index in range(start, min(start + READ_LIMIT, len(self._ring))):
            event, size = self._ring[index]
            total += size
            if found and total > READ_BYTES:
                break
            found.append(event)
        return found

    async def follow(self, after: int, heartbeat_s: float) -> AsyncIterator[Sequence[PublishedEvent]]:
        """Batches of events after `after`, for ever; an empty batch after `heartbeat_s` without any. Raises Resync."""
        with self.watch() as signal:
            while True:
                events = await self.read(after)
                if events:
                    after = events[-1].seq
                    yield events
                elif not await signal.wait(heartbeat_s):
                    yield ()


class Watch:
    """See EventFeed.watch."""

    def __init__(self, feed: EventFeed, job_id: str | None) -> None:
        self._feed = feed
        self._job_id = job_id
        self._signal = Signal()

    def __enter__(self) -> Signal:
        self._feed._add(self._job_id, self._signal)
        return self._signal

    def __exit__(self, *exc: object) -> None:
        self._feed._remove(self._job_id, self._signal)
