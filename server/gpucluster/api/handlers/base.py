"""What every handler shares: authentication, size limits, decoding with field names, errors as JSON, streams that wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler, stream_request_body

from ...engine.driver import SETTLE_S
from ...model.errors import GpuclusterError, InvalidRequest, NotFound, TooLarge, Unavailable
from ...model.plain import has_controls
from ...model.principals import Principal
from ..errors import error_body, http_status, invalid_input

if TYPE_CHECKING:
    from ..app import Parts

T = TypeVar("T")

JSON = "application/json"
NDJSON = "application/x-ndjson"
#: A JSON body may be this long: inline blobs (1 MiB, base64), a long source, many names.
MAX_JSON_BYTES = 16 << 20
#: Characters of a reason that somebody gives; it stands in tables.
MAX_REASON = 500

log = logging.getLogger("gpucluster.api")


class Authenticated:
    """Mixin: finds the principal in `prepare`, before anything of the request is looked at."""

    parts: Parts
    principal: Principal

    def initialize(self, parts: Parts) -> None:
        self.parts = parts

    def authenticate(self) -> None:
        """Raises Unauthenticated."""
        self.principal = self.parts.authenticator.principal_of(self.request)  # type: ignore[attr-defined]
        self.parts.activity.seen()


@stream_request_body
class ApiHandler(Authenticated, RequestHandler):
    """Base of the HTTP handlers. The body is taken in only after the caller is known and its length is allowed."""

    max_body_bytes: ClassVar[int] = MAX_JSON_BYTES

    def prepare(self) -> None:
        self._body = bytearray()
        self.authenticate()
        length = self.request.headers.get("Content-Length", "0")
        if length.isdigit() and int(length) > self.max_body_bytes:
            raise self._too_large()

    def data_received(self, chunk: bytes) -> None:
        if len(self._body) + len(chunk) > self.max_body_bytes:
            raise self._too_large()
        self._body += chunk

    def _too_large(self) -> TooLarge:
        return TooLarge(f"a request to {self.request.path} may carry at most {self.max_body_bytes} bytes")

    async def settle(self, timeout_s: float = SETTLE_S) -> None:
        """Before anything of the engine is shown: what is read of it before the next await is in the store.

        Raises Unavailable when the store takes longer than `timeout_s`.
        """
        await self.parts.driver.settled(timeout_s)

    # ---- input

    def decode(self, cls: type[T]) -> T:
        """The body as `cls`. Raises InvalidRequest, naming the field."""
        return decode_body(bytes(self._body), cls)

    def query(self, name: str, default: str | None = None) -> str | None:
        """A query argument; empty counts as absent."""
        value = self.get_query_argument(name, None)
        return value if value else default

    def query_int(
        self, name: str, default: int | None = None, *, low: int = 0, high: int = 1 << 62
    ) -> int | None:
        """A whole number within [low, high]. Raises InvalidRequest."""
        text = self.query(name)
        if text is None:
            return default
        try:
            number = int(text)
        except ValueError:
            raise InvalidRequest(name, f"{text!r} is not a whole number") from None
        if not low <= number <= high:
            raise InvalidRequest(name, f"{number} is not between {low} and {high}")
        return number

    def query_flag(self, name: str, default: bool = False) -> bool:
        """1, true, yes or 0, false, no. Raises InvalidRequest."""
        text = self.query(name)
        if text is None:
            return default
        if text.lower() in ("1", "true", "yes"):
            return True
        if text.lower() in ("0", "false", "no"):
            return False
        raise InvalidRequest(name, f"{text!r} is neither 1 nor 0")

    def known_queries(self, *names: str) -> None:
        """Refuse query arguments that this resource does not have: a misspelt filter must not select everything.

        What browsers' front ends add on their own is let pass: a time against caches, and Jupyter's token.
        """
        for name in self.request.query_arguments:
            if name not in names and name != "token" and not name.isdecimal():
                raise InvalidRequest(name, f"{self.request.path} knows no such parameter")

    # ---- output

    def answer(self, value: Any, status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", JSON)
        self.finish(msgspec.json.encode(value))

    async def stream(self, batches: AsyncIterator[bytes]) -> None:
        """Send NDJSON as it comes. Each batch waits until the one before has left, so a slow client holds up only itself.

        Ends, and ends `batches`, when the client goes away.
        """
        self.set_header("Content-Type", NDJSON)
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Accel-Buffering", "no")
        task = asyncio.ensure_future(self._pump(batches))
        self._streaming = task
        try:
            with self.parts.streams.hold(task):
                await task
        except asyncio.CancelledError:
            if not task.cancelled():
                task.cancel()
                raise
            self._cut_off()
        except StreamClosedError:
            pass
        except Exception as error:
            if not self._headers_written:
                raise
            # The status line is out. Cutting the connection is the one way left to say that this is not the end.
            if not isinstance(error, GpuclusterError):
                log.exception("a stream of %s failed", self.request.path)
            self._cut_off()

    async def _pump(self, batches: AsyncIterator[bytes]) -> None:
        async with contextlib.aclosing(batches):  # type: ignore[type-var]
            async for batch in batches:
                self.write(batch)
                await self.flush()
                self.parts.activity.seen()
        await self.finish()

    def _cut_off(self) -> None:
        stream = getattr(self.request.connection, "stream", None)
        if stream is not None:
            stream.close()

    def on_connection_close(self) -> None:
        super().on_connection_close()
        streaming = getattr(self, "_streaming", None)
        if streaming is not None:
            streaming.cancel()

    # ---- errors

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = as_error(kwargs.get("exc_info", (None, None, None))[1], status_code, self.request.path)
        self.set_status(http_status(error) if status_code == 500 else status_code)
        self.set_header("Content-Type", JSON)
        if isinstance(error, Unavailable):
            self.set_header("Retry-After", "2")
        self.finish(b"" if self.request.method == "HEAD" else msgspec.json.encode(error_body(error)))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if isinstance(value, (GpuclusterError, HTTPError)):
            log.debug("%s %s: %s", self.request.method, self.request.path, value)
        else:
            log.error("%s %s failed", self.request.method, self.request.path, exc_info=(typ, value, tb))


class NoSuchResource(ApiHandler):
    """Everything that no route names."""

    def prepare(self) -> None:
        super().prepare()
        raise NotFound(
            f"the API has no {self.request.path}",
            hint="Perhaps client and scheduler are of different versions.",
        )


def as_error(exception: BaseException | None, status: int, path: str) -> GpuclusterError:
    """What a client is told of an exception. One that is not meant for people is in the log and not told."""
    if isinstance(exception, GpuclusterError):
        return exception
    if isinstance(exception, HTTPError) and exception.status_code == 405:
        return InvalidRequest("method", f"{path} does not take this method")
    if isinstance(exception, HTTPError) and status < 500:
        return InvalidRequest("request", exception.log_message or exception.reason or f"status {status}")
    return GpuclusterError("an internal error of the scheduler; its log says more")


def checked_reason(reason: str | None) -> str | None:
    """What somebody gives as the reason for what they do; None for nothing. Raises InvalidRequest."""
    reason = (reason or "").strip()
    if len(reason) > MAX_REASON:
        raise InvalidRequest("reason", f"it has {len(reason)} characters; {MAX_REASON} are kept")
    if has_controls(reason):
        raise InvalidRequest(
            "reason", "control characters cannot stand in it", "Write plain text, on one line."
        )
    return reason or None


def decode_body(body: bytes, cls: type[T]) -> T:
    """JSON as `cls`. Raises InvalidRequest with the field that is wrong, e.g. ``roles[0].gpus``."""
    try:
        return msgspec.json.decode(body, type=cls)
    except msgspec.ValidationError as error:
        raise invalid_input(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest("body", f"this is not JSON: {error}") from None
