"""The page's one WebSocket, `<base_url>/gpucluster/api/v1/streams/ws?page=ID`: channels and claims (messages.py).

A channel is one task that reads one stream and one `Window` that says how much of it may be under way. A page that is slow to
acknowledge holds up the reading of that channel's stream alone. When a channel is closed, the page leaves or the server
stops, the task is cancelled, which closes its stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.websocket import WS_PING_INTERVAL, WebSocketMixin
from jupyter_server.utils import ensure_async
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from gpucluster import __version__
from gpucluster.api.errors import (
    GpuclusterError,
    InvalidRequest,
    TooLarge,
    Unavailable,
    error_body,
    http_status,
    invalid_input,
)

from .claims import Claims
from .handlers import AUTH_RESOURCE
from .kernel_token import KernelTokenMixin
from .link import Refused, SchedulerLink, cancel_soon
from .messages import (
    ALIVE_S,
    PAGE_PROTOCOL,
    Ack,
    Alive,
    Answer,
    Claim,
    Claimed,
    Close,
    Ended,
    Failed,
    Hello,
    Open,
    Request,
)
from .sources import source_of
from .window import Window

MAX_CHANNELS = 64
#: A message of a page: the longest one carries a card's JSON. Tornado cuts the connection at 10 MiB, with code 1009.
MAX_MESSAGE_BYTES = 4 << 20
#: A claim's key names a notebook and one of its cells.
MAX_KEY = 2000

#: With this code a browser closes the connections of a page that is closed or reloaded.
CLOSE_LEFT = 1001
#: Codes with which the server closes a connection. Below 4000: of RFC 6455.
CLOSE_STOPPING = 1001
CLOSE_BAD_MESSAGE = 1003
CLOSE_TAKEN_OVER = 4001

#: Measured with zlib 1.2.13: a minute of live updates at 50 events/s is 1.07 MB plain, 0.19 MB at level 1 for 8 ms of CPU (level
#: 6: 0.15 MB for 13 ms); a log of printed lines shrinks to a quarter at over 200 MB/s (level 6: to a fifth, at 60 MB/s). A page
#: is often at the other end of a slow line, and a server has many pages: compressed, at the level that costs next to nothing.
COMPRESSION = {"compression_level": 1}

_PAGE_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
#: How a page's message on a channel begins.
_CHANNEL = re.compile(r'\{\s*"type":\s*"[a-z]+",\s*"channel":\s*(?P<number>\d{1,15})\b')
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)


class _ChannelOf(msgspec.Struct):
    """The one field of a message that is looked at when the rest is wrong."""

    channel: int


def items_message(channel: int, lines: list[bytes]) -> bytes:
    """An `Items` message. The lines are JSON as the scheduler wrote it, and are put in as they are."""
    return b'{"type":"items","channel":%d,"items":[%b]}' % (channel, b",".join(lines))


class Channel:
    """One stream on its way to the page. `send` takes a message and returns at once."""

    def __init__(
        self,
        number: int,
        source: AsyncIterator[list[bytes]],
        send: Callable[[bytes], None],
        log: logging.Logger,
    ) -> None:
        self._number = number
        self._source = source
        self._send = send
        self._log = log
        self._window = Window()
        self._moved = asyncio.Event()  # lines left the window
        self._is_flushing = False  # a flush is under way
        self._is_closed = False

    def acknowledge(self, count: int) -> None:
        """Raises InvalidRequest."""
        self._window.acknowledge(count)
        self._flush()

    def close(self) -> None:
        """Send nothing more. To let go of the stream, cancel the task of `run`."""
        self._is_closed = True

    async def run(self) -> None:
        """Carry the stream until it is over, and the page is told so."""
        answer = await self._forward()
        while not self._window.is_empty:
            await self._next_move()
        if not self._is_closed:
            self._send(_encoder.encode(answer))

    async def _forward(self) -> Answer:
        """Read the stream to its end; what to tell the page then."""
        try:
            async with contextlib.aclosing(self._source) as batches:  # type: ignore[type-var]
                async for lines in batches:
                    for line in lines:
                        await self._put(line)
            return Ended(channel=self._number)
        except Refused as refused:
            return failed(self._number, refused.error, refused.status)
        except GpuclusterError as error:
            return failed(self._number, error)
        except Exception:
            self._log.exception("GPU cluster: a channel of a page failed")
            reason = "an internal error of the Jupyter server; its log has the details"
            return failed(self._number, GpuclusterError(reason))

    async def _put(self, line: bytes) -> None:
        """Add a line. It is sent when the stream has nothing more at the moment, or a message is full."""
        self._window.add(line)
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)
        while self._window.is_full:
            await self._next_move()

    async def _next_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _flush(self) -> None:
        """Send what the window allows."""
        self._is_flushing = False
        while not self._is_closed and (lines := self._window.take()):
            self._send(items_message(self._number, lines))
            self._moved.set()


def failed(channel: int, error: GpuclusterError, status: int | None = None) -> Failed:
    """502, not the scheduler's own 503, when the scheduler is away, as for forwarded requests."""
    if status is None:
        status = 502 if isinstance(error, Unavailable) else http_status(error)
    return Failed(channel=channel, status=status, error=error_body(error).error)


class PageChannels:
    """The channels of one connection."""

    def __init__(self, link: SchedulerLink, send: Callable[[bytes], None], log: logging.Logger) -> None:
        self._link = link
        self._send = send
        self._log = log
        self._open: dict[int, tuple[Channel, asyncio.Task[None]]] = {}
        self._last = -1

    def __len__(self) -> int:
        return len(self._open)

    def open(self, request: Open) -> asyncio.Task[None]:
        """Begin a channel; its task. Raises InvalidRequest, NotFound, and while there are too many Unavailable."""
        number = request.channel
        if number <= self._last:
            raise InvalidRequest(
                "channel", f"{number} is not above {self._last}, the last one that was opened"
            )
        self._last = number
        if len(self._open) >= MAX_CHANNELS:
            reason = f"a page may have {MAX_CHANNELS} channels at a time, and this one has"
            raise Unavailable(reason, field="channel", hint="Close a log or a notebook; it is tried again.")
        channel = Channel(number, source_of(request, self._link), self._send, self._log)
        task = asyncio.create_task(self._carry(number, channel), name=f"gpucluster channel {number}")
        self._open[number] = (channel, task)
        return task

    async def _carry(self, number: int, channel: Channel) -> None:
        try:
            await channel.run()
        finally:
            self._open.pop(number, None)

    def acknowledge(self, request: Ack) -> None:
        """Raises InvalidRequest. Of a channel that has ended meanwhile, nothing is left to acknowledge."""
        number = self._known(request.channel)
        if number in self._open:
            self._open[number][0].acknowledge(request.count)

    def close(self, number: int) -> None:
        """Raises InvalidRequest for a channel that never was; one that has ended meanwhile is closed."""
        self._drop(self._known(number))

    def fail(self, number: int, error: GpuclusterError) -> None:
        """The channel is over, because the page used it wrongly."""
        self._drop(number)
        self._send(_encoder.encode(failed(number, error)))

    def close_all(self) -> None:
        for number in list(self._open):
            self._drop(number)

    def _drop(self, number: int) -> None:
        if number in self._open:
            channel, task = self._open.pop(number)
            channel.close()
            cancel_soon(task)

    def _known(self, number: int) -> int:
        if not 0 <= number <= self._last:
            raise InvalidRequest("channel", f"there is no channel {number}")
        return number


class StreamHub:
    """All pages that are connected to this server, and their claims."""

    def __init__(self, link: SchedulerLink, log: logging.Logger) -> None:
        self.link = link
        self.log = log
        self.claims = Claims(tell=self._tell, later=_later)
        self._pages: dict[str, StreamsHandler] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """Channels of all pages, those included that are being closed."""
        return len(self._tasks)

    def connect(self, page: StreamsHandler) -> None:
        """A page is here. An older connection of the same page is one that broke unnoticed."""
        older = self._pages.get(page.page_id)
        self._pages[page.page_id] = page
        if older is not None:
            older.leave(CLOSE_TAKEN_OVER, "a newer connection of this page took over")
        self.claims.connected(page.page_id)

    def disconnect(self, page: StreamsHandler) -> None:
        if self._pages.get(page.page_id) is not page:
            return
        del self._pages[page.page_id]
        if page.close_code == CLOSE_LEFT:
            self.claims.left(page.page_id)
        else:
            self.claims.disconnected(page.page_id)

    def watch(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """The server stops: let go of all pages and streams."""
        for page in list(self._pages.values()):
            page.leave(CLOSE_STOPPING, "the server is stopping")
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _tell(self, page_id: str, claimed: Claimed) -> None:
        page = self._pages.get(page_id)
        if page is not None:
            page.send(_encoder.encode(claimed))


def _later(delay_s: float, function: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, function)


class StreamsHandler(WebSocketMixin, WebSocketHandler, KernelTokenMixin):
    """One connection of a page."""

    auth_resource = AUTH_RESOURCE

    def initialize(self, hub: StreamHub) -> None:
        self._hub = hub
        self._channels = PageChannels(hub.link, self.send, hub.log)
        self._alive: asyncio.TimerHandle | None = None
        self._sent_s = 0.0
        self._has_left = False
        self._sending: asyncio.Future[None] | None = None

    def get_compression_options(self) -> dict[str, Any] | None:
        """What the administrator set for all of the server's WebSockets, else ours."""
        options: dict[str, Any] | None = self.settings.get("websocket_compression_options")
        return COMPRESSION if options is None else options

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        user = self.current_user
        if not await ensure_async(self.authorizer.is_authorized(self, user, "read", AUTH_RESOURCE)):
            raise web.HTTPError(403)
        self.page_id = self.get_query_argument("page", "") or uuid.uuid4().hex
        if not _PAGE_ID.fullmatch(self.page_id):
            raise web.HTTPError(400, "page: an id has 1 to 64 letters, digits, - and _")
        await super().get(*args, **kwargs)

    @property
    def ping_interval(self) -> float:
        """In seconds, as tornado takes it, which pings and closes the connection of a page that does not answer.

        Jupyter's mixin gives milliseconds, for pings of its own that begin in its `open`, which is not called here.
        """
        interval_s: float = self.settings.get("ws_ping_interval", WS_PING_INTERVAL) / 1000
        return interval_s

    @property
    def ping_timeout(self) -> None:
        """Tornado's default."""

    def open(self, *args: Any, **kwargs: Any) -> None:
        self.send(_encoder.encode(Hello(page_protocol=PAGE_PROTOCOL, version=__version__)))
        self._keep_alive()
        self._hub.connect(self)

    async def on_message(self, message: str | bytes) -> None:
        if self._has_left:
            return
        try:
            request = _decoded(message)
            self._serve(request)
            if isinstance(request, Ack | Close):
                return
        except GpuclusterError as error:
            self._refuse(_channel_of(message), error)
        # Answered: a page that asks and asks and reads no answer is not listened to.
        if self._sending is not None:
            with contextlib.suppress(WebSocketClosedError):
                await self._sending

    def on_close(self) -> None:
        self._channels.close_all()
        if self._alive is not None:
            self._alive.cancel()
        self._hub.disconnect(self)

    def leave(self, code: int, reason: str) -> None:
        """Close the connection, from this side. Messages that are under way are not looked at."""
        self._has_left = True
        self._channels.close_all()
        self.close(code, reason)

    def send(self, message: bytes) -> None:
        """Send a message as text; nothing happens when the page has left."""
        try:
            self._sending = self.write_message(message)
        except WebSocketClosedError:
            return
        self._sending.add_done_callback(lambda sending: sending.cancelled() or sending.exception())
        self._sent_s = time.monotonic()

    def _serve(self, request: Request) -> None:
        """Raises GpuclusterError, when the page's request is wrong."""
        if isinstance(request, Open):
            self._hub.watch(self._channels.open(request))
        elif isinstance(request, Ack):
            self._channels.acknowledge(request)
        elif isinstance(request, Close):
            self._channels.close(request.channel)
        elif not 1 <= len(request.key) <= MAX_KEY:
            raise InvalidRequest("key", f"it has to have 1 to {MAX_KEY} characters")
        elif isinstance(request, Claim):
            self._hub.claims.claim(self.page_id, request.key, request.role)
        else:
            self._hub.claims.release(self.page_id, request.key)

    def _refuse(self, channel: int | None, error: GpuclusterError) -> None:
        """What the page sent is wrong: the channel that it names is over, or else the connection."""
        if channel is not None:
            self._channels.fail(channel, error)
            return
        reason = f"{error.field}: {error.reason}".encode()[:120].decode(errors="ignore")
        self.leave(CLOSE_BAD_MESSAGE, reason)

    def _keep_alive(self) -> None:
        """Say something when nothing was said for a while, and look again when that may be so."""
        silent_s = time.monotonic() - self._sent_s
        if silent_s >= ALIVE_S:
            self.send(_encoder.encode(Alive()))
            silent_s = 0.0
        self._alive = _later(ALIVE_S - silent_s, self._keep_alive)


def _decoded(message: str | bytes) -> Request:
    """Raises InvalidRequest, naming the field, and TooLarge."""
    if isinstance(message, bytes):
        raise InvalidRequest("message", "a message is text, not binary")
    if len(message) > MAX_MESSAGE_BYTES:
        reason = f"a message may have {MAX_MESSAGE_BYTES} characters, and this one has {len(message)}"
        raise TooLarge(reason, field="message")
    try:
        return _decoder.decode(message)
    except msgspec.ValidationError as error:
        raise invalid_input(error) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidRequest("message", f"this is not JSON: {error}") from None


def _channel_of(message: str | bytes) -> int | None:
    """The channel of a message that is wrong otherwise; of one that cannot even be decoded (half a surrogate pair, nesting
    without end: a notebook has it in a card), what its beginning says, so that it costs the page no more than that channel.
    """
    try:
        return msgspec.json.decode(message, type=_ChannelOf).channel
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        said = _CHANNEL.match(message) if isinstance(message, str) else None
        return int(said["number"]) if said else None
