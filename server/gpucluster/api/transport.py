"""HTTP under the client: one thread-safe connection pool over a Unix socket or a URL, and errors that speak.

Whatever goes wrong here leaves as a GpuclusterError: the one the scheduler answered, or `Unavailable` when no answer
came. httpx is imported when the first connection is made, because it takes longer to import than all the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from ..model.errors import (
    Conflict,
    Forbidden,
    GpuclusterError,
    InvalidRequest,
    NotFound,
    TooLarge,
    Unauthenticated,
    Unavailable,
    error_from_code,
)
from .schemas import API_PREFIX, ErrorAnswer

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
#: The service answers within this time or sends a heartbeat; silence beyond it counts as a lost connection.
READ_TIMEOUT_S = 30.0
#: Pauses between tries while the scheduler is away; the last one is repeated.
_BACK_OFF_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
WRITE_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Address:
    """Where the API is: a Unix socket (`socket_path`) or a base URL up to, not including, ``/v1``."""

    base_url: str
    socket_path: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)

    def __str__(self) -> str:
        return f"unix:{self.socket_path}" if self.socket_path else self.base_url


def parse_address(text: str, *, token: str | None = None, field: str = "address") -> Address:
    """Read ``unix:/path/to.sock``, a bare absolute path, or ``http(s)://host:port[/path]``. Raises InvalidRequest."""
    text = text.strip()
    if text.startswith("unix:"):
        text = text.removeprefix("unix:").removeprefix("//")
    if text.startswith("/"):
        return Address("http://scheduler", socket_path=text)
    if not _is_url(text):
        raise InvalidRequest(
            field,
            f"{text!r} is not an address",
            "Write unix:/path/to/socket, http://host:port or https://host:port.",
        )
    return Address(text.rstrip("/").removesuffix(API_PREFIX), token=token)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # what stands for the host or the port is none
        return False


def back_off_s(tries: int) -> float:
    """The pause after so many tries without success."""
    return _BACK_OFF_S[min(tries, len(_BACK_OFF_S) - 1)]


class Unreached(Unavailable):
    """No connection came about, so nothing was done."""


class ConnectionLost(Unavailable):
    """The connection broke after the request was sent: whether it was carried out is not known."""


class StreamBody:
    """An answer that is read piece by piece. `close` may be called from any thread and wakes a blocked reader."""

    def __init__(self, response: httpx.Response, address: Address) -> None:
        self._response = response
        self._address = address
        self._closed = False

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    def chunks(self) -> Iterator[bytes]:
        """Pieces as they arrive. Raises ConnectionLost; ends early without an error once closed."""
        try:
            yield from self._response.iter_raw()
        except Exception as error:
            if self._closed:
                return
            raise _of_connection(error, self._address) from None

    def lines(self) -> Iterator[bytes]:
        """Whole lines, without their line ends. What follows the last one is an unfinished line and is left out."""
        rest: list[bytes] = []
        for chunk in self.chunks():
            *whole, tail = chunk.split(b"\n")
            if whole:
                yield b"".join([*rest, whole[0]])
                yield from whole[1:]
                rest = []
            if tail:
                rest.append(tail)

    def close(self) -> None:
        """Wake whoever reads, by shutting the socket down: closing a descriptor does not wake a blocked read."""
        self._closed = True
        stream = self._response.extensions.get("network_stream")
        raw = stream.get_extra_info("socket") if stream is not None else None
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)


class Transport:
    """Requests to one address. Thread-safe."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._client = self._new_client()

    def _new_client(self) -> httpx.Client:
        import httpx

        headers = {"accept-encoding": "identity"}
        if self.address.token:
            headers["authorization"] = f"token {self.address.token}"
        uds = self.address.socket_path
        return httpx.Client(
            base_url=self.address.base_url,
            headers=headers,
            # Certificates are loaded for https only: that takes longer than all the rest.
            transport=httpx.HTTPTransport(
                uds=uds,
                verify=self.address.base_url.startswith("https:"),
                limits=httpx.Limits(max_keepalive_connections=4),
            ),
            timeout=httpx.Timeout(
                connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S, write=WRITE_TIMEOUT_S, pool=None
            ),
            trust_env=uds is None,
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: msgspec.Struct | None = None,
        content: bytes | memoryview | None = None,
        answer: type[T],
        timeout_s: float | None = None,
    ) -> T:
        """One request; the answer decoded as `answer`. Raises the scheduler's error, Unavailable or ConnectionLost."""
        response = self._send(method, path, params, _encode(body, content), timeout_s)
        if response.is_error:
            raise error_of(response.status_code, response.content)
        try:
            # Not strict: JSON lacks NaN and infinity, so a metric may come as "nan".
            return msgspec.json.decode(response.content, type=answer, strict=False)
        except msgspec.DecodeError as error:
            raise Unavailable(
                f"what answers at {self.address} is not this version's scheduler: {error}",
                hint="Compare `gpucluster --version` on both sides.",
            ) from None

    def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        data: bytes | memoryview | None,
        timeout_s: float | None,
    ) -> httpx.Response:
        import httpx

        timeout = self._client.timeout if timeout_s is None else httpx.Timeout(timeout_s)
        content = bytes(data) if isinstance(data, memoryview) else data
        try:
            return self._client.request(
                method, API_PREFIX + path, params=_plain(params), content=content, timeout=timeout
            )
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: used after it was closed
            raise _of_connection(error, self.address) from None

    @contextlib.contextmanager
    def stream(
        self, path: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[StreamBody]:
        """A GET whose answer is read as it comes, over a connection of its own.

        Not one of the pool: a stream that nobody closed is closed by the garbage collector, at any moment, also while this
        thread holds the pool's lock, and then it would wait for itself for ever.
        """
        import httpx

        client = self._new_client()
        client.headers.update(self._client.headers)
        try:
            request = client.build_request(
                "GET", API_PREFIX + path, params=_plain(params), headers=dict(headers or {})
            )
            try:
                response = client.send(request, stream=True)
                if response.is_error:
                    response.read()
            except (httpx.HTTPError, RuntimeError) as error:
                raise _of_connection(error, self.address) from None
            if response.is_error:
                raise error_of(response.status_code, response.content)
            yield StreamBody(response, self.address)
        finally:
            with contextlib.suppress(Exception):
                client.close()

    def close(self) -> None:
        self._client.close()


def _encode(body: msgspec.Struct | None, content: bytes | memoryview | None) -> bytes | memoryview | None:
    return msgspec.json.encode(body) if body is not None else content


def _plain(params: Mapping[str, Any] | None) -> dict[str, str] | None:
    if params is None:
        return None
    return {
        key: str(int(value)) if isinstance(value, bool) else str(value)
        for key, value in params.items()
        if value is not None
    }


def error_of(status: int, content: bytes) -> GpuclusterError:
    """The error that an answer of status 4xx or 5xx speaks of, also when a proxy or another server wrote it."""
    if status in (502, 504):
        return ConnectionLost("the server in between lost the connection to the scheduler")
    try:
        error = msgspec.json.decode(content, type=ErrorAnswer).error
        return error_from_code(error.code, error.reason, error.field, error.hint)
    except msgspec.DecodeError:
        pass
    said = _foreign_reason(content)
    classes: dict[int, tuple[type[GpuclusterError], str]] = {
        401: (Unauthenticated, "the server wants a credential that did not come with the request"),
        403: (Forbidden, "the server does not allow this request"),
        404: (NotFound, "the server knows nothing at this address"),
        409: (Conflict, "the request contradicts the present state"),
        413: (TooLarge, "the request is over the server's size limit"),
    }
    cls, reason = classes.get(status, (Unavailable, f"the server answered with status {status}"))
    return cls(f"{reason} ({said})" if said else reason)


def _foreign_reason(content: bytes) -> str:
    """What a Jupyter server or a proxy says in its own error format, shortened to one line."""
    try:
        message = msgspec.json.decode(content, type=dict[str, Any]).get("message")
    except msgspec.DecodeError:
        return ""
    return " ".join(str(message).split())[:200] if message else ""


def _of_connection(error: BaseException, address: Address) -> GpuclusterError:
    """The one place where a failure of httpx (or of the socket below) becomes ours."""
    import httpx

    if isinstance(error, httpx.ConnectError) and address.socket_path and _is_denied(error):
        return Forbidden(
            f"{address} belongs to another account, which alone may use it",
            hint="Leave the address out: then your own scheduler is used, and started when there is none.",
        )
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return Unreached(
            f"no scheduler answers at {address}",
            hint="Start one with `gpucluster serve`, or see where one runs with `gpucluster status`.",
        )
    if isinstance(error, httpx.TimeoutException):
        return ConnectionLost(
            f"the scheduler at {address} does not answer",
            hint="It may be busy or stuck; its log is scheduler.log in the data folder.",
        )
    return ConnectionLost(f"the connection to the scheduler at {address} was lost")


def _is_denied(error: BaseException) -> bool:
    """Whether the system refused the connection for want of rights."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, PermissionError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
