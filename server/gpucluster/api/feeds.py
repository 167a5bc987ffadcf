"""Streams of the API as iterators that reconnect by themselves: a job's state and log, the cluster's events, what a page follows.

A feed holds nothing but where it stands; after a lost connection or a restart of the scheduler it goes on from there,
without a gap or a repetition.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ..model.errors import InvalidRequest, Unavailable
from ..worker.frames import HEADER
from . import embedded
from .schemas import EventView, LiveUpdate, StreamItem, Topic
from .transport import ConnectionLost, StreamBody, Transport, back_off_s

#: A follower goes on trying for this long: a scheduler may be restarted, upgraded, or wait for a slow disk.
FOLLOW_RETRY_S = 120.0

Item = TypeVar("Item", bound=msgspec.Struct)
F = TypeVar("F", bound="_Feed[Any]")


class FeedSource(Protocol):
    """What a feed needs of its client."""

    def feed_transport(self) -> Transport:
        """The connection to stream over; brings back a scheduler that crashed after it was there. Raises Unavailable."""
        ...

    def feed_began(self) -> None:
        """A stream came about: the scheduler is there."""
        ...

    def forget(self, transport: Transport) -> None:
        """It broke: look for the scheduler anew next time."""
        ...


class _Feed(Generic[Item]):
    """An iterator over the lines of a stream that reconnects by itself. `close` may be called from any thread."""

    def __init__(self, source: FeedSource, path: str, item: type[Item], follow: bool) -> None:
        self._source = source
        self._path = path
        self._decoder = msgspec.json.Decoder(item, strict=False)  # a metric may be "nan"
        self._follow = follow
        self._closed = threading.Event()
        self._body: StreamBody | None = None
        self._iterator = self._run()
        #: False while the scheduler is away and looked for.
        self.connected = False

    def _params(self) -> dict[str, Any]:
        raise NotImplementedError

    def _accept(self, item: Item) -> bool:
        """Note where we stand; False for what was seen before."""
        raise NotImplementedError

    def _is_last(self, item: Item) -> bool:
        return False

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        return next(self._iterator)

    def __enter__(self: F) -> F:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration, also one that waits in another thread."""
        self._closed.set()
        body = self._body
        if body is not None:
            body.close()
        with contextlib.suppress(ValueError):  # it is running, in another thread: that one ends it
            self._iterator.close()

    def _run(self) -> Generator[Item, None, None]:
        missed_at: float | None = None
        tries = 0
        while not self._closed.is_set():
            try:
                for item in self._connect_once():
                    missed_at, tries = None, 0
                    if self._accept(item):
                        yield item
                    if self._is_last(item) or self._closed.is_set():
                        return
                if not self._follow:
                    return
                failure: Unavailable = ConnectionLost("the scheduler ended the stream")
            except embedded.StartFailed:
                raise
            except Unavailable as error:
                failure = error
            finally:
                self.connected = False
            missed_at = missed_at or time.monotonic()
            if time.monotonic() - missed_at > FOLLOW_RETRY_S:
                raise failure
            self._closed.wait(back_off_s(tries))
            tries += 1

    def _connect_once(self) -> Iterator[Item]:
        transport = self._source.feed_transport()
        try:
            with transport.stream(self._path, self._params()) as body:
                self._body = body
                self.connected = True
                self._source.feed_began()
                if self._closed.is_set():  # close() came between: it did not see this body
                    return
                for line in body.lines():
                    yield self._decoder.decode(line)
        except Unavailable:
            self._source.forget(transport)
            raise
        except msgspec.DecodeError as error:
            raise InvalidRequest(
                "stream", f"the scheduler sent what this version cannot read: {error}"
            ) from None
        finally:
            self._body = None


class Follower(_Feed[StreamItem]):
    """StreamItems of one rank of a job; see schemas.StreamItem. `cursor` is where a later follower goes on."""

    def __init__(
        self,
        source: FeedSource,
        path: str,
        rank: int,
        cursor: tuple[int, int] | None,
        follow: bool,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(source, path, StreamItem, follow)
        self.rank = rank
        self.cursor = cursor
        self._extra = dict(extra or {})
        self._last: tuple[int, int] | None = None  # (attempt, sequence) of the last record given out
        self._gone: set[int] = set()  # attempts of which it was told that their log is gone

    def _params(self) -> dict[str, Any]:
        attempt, offset = self.cursor or (None, None)
        extra = {**self._extra, "tail": None} if self.cursor else self._extra
        return {"rank": self.rank, "attempt": attempt, "offset": offset, "follow": self._follow, **extra}

    def _accept(self, item: StreamItem) -> bool:
        if item.type == "attempt":
            known = self.cursor is not None and item.attempt <= self.cursor[0]
            if not known:
                self.cursor = (item.attempt, item.offset)
            return not known
        if item.type == "gone":
            known = item.attempt in self._gone
            self._gone.add(item.attempt)
            return not known
        if item.type != "record":
            return True
        place = (item.attempt, item.sequence)
        if self._last is not None and place <= self._last:
            return False
        self._last = place
        self.cursor = (item.attempt, item.offset + HEADER.size + len(item.payload or b""))
        return True

    def _is_last(self, item: StreamItem) -> bool:
        return item.type == "end"


class EventFeed(_Feed[EventView]):
    """Events of the cluster. `after` is the number of the last one passed, also of those the caller may not see."""

    def __init__(self, source: FeedSource, after: int | None, follow: bool) -> None:
        super().__init__(source, "/events", EventView, follow)
        self.after = after

    def _params(self) -> dict[str, Any]:
        return {"after": self.after, "follow": self._follow}

    def _accept(self, item: EventView) -> bool:
        if item.kind == "resync":
            self.after = item.seq
            return True
        if item.kind != "alive" and self.after is not None and item.seq <= self.after:
            return False
        self.after = item.seq
        return True


class LiveFeed(_Feed[LiveUpdate]):
    """What a page follows of the cluster. After a lost connection it goes on from the last update that was given out."""

    def __init__(
        self,
        source: FeedSource,
        topics: Iterable[Topic],
        jobs: Iterable[str],
        after: int | None,
        have: Iterable[Topic],
    ) -> None:
        super().__init__(source, "/live", LiveUpdate, follow=True)
        self._topics = list(topics)
        self._jobs = list(jobs)
        self.after = after
        self.have = set(have)

    def _params(self) -> dict[str, Any]:
        return {
            "after": self.after,
            "topics": ",".join(self._topics) or None,
            "have": ",".join(sorted(self.have)) or None,
            "jobs": ",".join(self._jobs) or None,
        }

    def _accept(self, item: LiveUpdate) -> bool:
        self.after = item.seq
        self.have.update(item.full)
        return True
