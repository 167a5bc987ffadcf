"""The cluster's events, as NDJSON and over a WebSocket: the same items, filtered by what the caller may see."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ...model.errors import GpuclusterError, InvalidRequest
from ...model.events import PublishedEvent
from ...model.principals import Principal
from ..errors import error_body, http_status
from ..feed import Resync
from ..schemas import EventView
from .base import JSON, ApiHandler, Authenticated

HEARTBEAT_S = 10.0
WEBSOCKET_PING_S = 30.0

log = logging.getLogger("gpucluster.api")


class EventItems:
    """What one follower is sent, in batches: events that it may see, `alive` and `resync`."""

    def __init__(self, handler: Authenticated, after: int | None, follow: bool) -> None:
        self._parts = handler.parts
        self._caller: Principal = handler.principal
        self._after = handler.parts.feed.last_seq if after is None else after
        self._from_now = after is None
        self._follow = follow

    async def batches(self) -> AsyncIterator[list[EventView]]:
        if self._from_now:
            yield [EventView(seq=self._after, kind="alive")]
        try:
            async for events in self._events():
                await self._parts.driver.settled()  # who may see what goes by the sharing that is stored
                self._after = events[-1].seq if events else self._after
                items = self._visible(events)
                # Who sees none of a batch is told at the next heartbeat how far it has come, not that there was one.
                if items or not events:
                    yield items or [EventView(seq=self._after, kind="alive")]
        except Resync as gone:
            yield [EventView(seq=gone.seq, kind="resync")]

    async def _events(self) -> AsyncIterator[Sequence[PublishedEvent]]:
        feed = self._parts.feed
        if self._follow:
            async for events in feed.follow(self._after, HEARTBEAT_S):
                yield events
            return
        while events := await feed.read(self._after):
            yield events
        yield ()

    def _visible(self, events: Sequence[PublishedEvent]) -> list[EventView]:
        views = (self._parts.views.event(event, self._caller) for event in events)
        return [view for view in views if view is not None]


def _lines(items: list[EventView]) -> bytes:
    return b"".join(msgspec.json.encode(item) + b"\n" for item in items)


class EventsHandler(ApiHandler):
    """`GET /v1/events?after=SEQ&follow=0|1`. Without `after`: from now on. After `resync` the stream ends."""

    async def get(self) -> None:
        self.known_queries("after", "follow")
        items = EventItems(self, self.query_int("after"), self.query_flag("follow", True))
        await self.stream(_encoded(items))


async def _encoded(items: EventItems) -> AsyncIterator[bytes]:
    async for batch in items.batches():
        yield _lines(batch)


class EventSocket(Authenticated, WebSocketHandler):
    """`WS /v1/events/ws?after=SEQ`: one item a message. Closed after `resync`; a follower only listens."""

    def prepare(self) -> None:
        self.authenticate()

    async def get(self, *args: Any, **kwargs: Any) -> None:
        after = self.get_query_argument("after", "")
        if after and not after.isdecimal():
            raise InvalidRequest("after", f"{after!r} is not a whole number")
        self._after = int(after) if after else None
        await super().get(*args, **kwargs)

    def open(self, *args: str, **kwargs: str) -> None:
        self._relay: asyncio.Task[None] | None = asyncio.ensure_future(self._send_items())

    async def _send_items(self) -> None:
        with self.parts.streams.hold(asyncio.current_task()):
            try:
                async for batch in EventItems(self, self._after, follow=True).batches():
                    for item in batch:
                        # Awaited: a slow page holds up itself alone, and falls back to the store, then to resync.
                        await self.write_message(msgspec.json.encode(item).decode())
                    self.parts.activity.seen()
                self.close(1000, "resync")
            except asyncio.CancelledError:
                self.close(1001, "the scheduler is stopping")
            except (WebSocketClosedError, StreamClosedError):
                pass
            except Exception:
                log.exception("a follower of events failed")
                self.close(1011, "an internal error")

    def on_message(self, message: str | bytes) -> None:
        """Nothing that a follower sends means anything."""

    def on_close(self) -> None:
        relay = getattr(self, "_relay", None)
        if relay is not None:
            relay.cancel()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        if not isinstance(error, GpuclusterError):
            text = error.log_message if isinstance(error, HTTPError) else None
            error = InvalidRequest("request", text or "this address takes WebSocket connections only")
        self.set_status(http_status(error))
        self.set_header("Content-Type", JSON)
        self.finish(msgspec.json.encode(error_body(error)))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if not isinstance(value, (GpuclusterError, HTTPError)):
            log.error("%s failed", self.request.path, exc_info=(typ, value, tb))
