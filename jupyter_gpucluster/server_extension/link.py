"""The connection from the Jupyter server to the scheduler: found, started when there is none, found again when it moved.

A look never starts a scheduler that somebody stopped: only a submission, and Jupyter's own start, do. One that crashed is
brought back by any request, since its jobs still run. With $GPUCLUSTER_ADDRESS set, that scheduler is used and no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import httpx

from gpucluster.api import discovery, embedded
from gpucluster.api.client import ApiClient
from gpucluster.api.errors import GpuclusterError, TooLarge, Unavailable
from gpucluster.api.transport import Address, error_of, parse_address

#: An answer may take so long to come, in seconds.
TIMEOUT = httpx.Timeout(60.0, connect=5.0)
#: A stream that is silent for so long is broken: the scheduler sends a sign of life every 10 s.
STREAM_TIMEOUT = httpx.Timeout(60.0, connect=5.0, read=25.0)

#: Before each further try: one that was killed a moment ago may still seem to be there.
RETRY_PAUSES_S = (0.0, 0.2, 1.0)

#: A line of a stream may be this long: the longest record of a log (64 MiB), in base64.
LINE_BYTES = 96 << 20

LOOK_AT_LOG = "It is looked for again with the next request; its log is scheduler.log in the data folder."


class Refused(Exception):
    """The scheduler answered with an error instead of a stream."""

    def __init__(self, status: int, error: GpuclusterError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


class LineReader:
    """Puts lines together from the pieces in which they arrive."""

    def __init__(self, line_bytes: int = LINE_BYTES) -> None:
        self._limit = line_bytes
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def take(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends and without empty ones. Raises TooLarge."""
        *whole, tail = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join([*self._rest, whole[0]])
            self._rest, self._rest_bytes = [], 0
        if tail:
            self._rest.append(tail)
            self._rest_bytes += len(tail)
        if self._rest_bytes > self._limit:
            raise TooLarge(f"a line of the stream is longer than {self._limit} bytes")
        return [line for line in whole if line]

    def finish(self) -> None:
        """The stream has ended. Raises Unavailable when it ended within a line."""
        if self._rest:
            raise Unavailable("the scheduler's answer broke off within a line", hint=LOOK_AT_LOG)


class SchedulerLink:
    """Sends requests to the scheduler, over its Unix socket or to the address that $GPUCLUSTER_ADDRESS names.

    `start_scheduler`: bring up the user's embedded scheduler when none runs.
    """

    def __init__(self, *, start_scheduler: bool, log: logging.Logger) -> None:
        self._start_scheduler = start_scheduler
        self._log = log
        self._client: httpx.AsyncClient | None = None
        #: Requests that are under way, or whose answer is being read.
        self._in_use: Counter[httpx.AsyncClient] = Counter()
        self._finding = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def send(
        self,
        method: str,
        path: str,
        *,
        query: str,
        body: bytes | None,
        headers: Mapping[str, str],
        may_start: bool = False,
        timeout: httpx.Timeout = TIMEOUT,
    ) -> AsyncIterator[httpx.Response]:
        """Send one request (`path` below /v1/); gives the response with its body still to be read, and closes it.

        A scheduler that does not answer is looked for again: it may have been restarted. What may have been done already
        is not repeated here; the client knows whether that is safe. `may_start`: start a scheduler for it.
        Raises Unavailable.
        """
        for pause_s in (*RETRY_PAUSES_S, None):
            client = await self._connected(may_start)
            async with self._using(client):
                request = client.build_request(
                    method,
                    f"/v1/{path}?{query}" if query else f"/v1/{path}",
                    content=body,
                    headers=dict(headers),
                    timeout=timeout,
                )
                try:
                    response = await client.send(request, stream=True)
                except httpx.HTTPError as error:
                    self._forget(client)
                    nothing_was_done = isinstance(error, httpx.ConnectError) or method in ("GET", "HEAD")
                    if pause_s is None or not nothing_was_done:
                        raise self._unavailable("the scheduler does not answer", error) from error
                else:
                    try:
                        yield response
                    finally:
                        await response.aclose()
                    return
            await asyncio.sleep(pause_s)

    async def lines(self, path: str, query: str) -> AsyncIterator[list[bytes]]:
        """The lines of a streamed answer as they come, all that came at once together, undecoded.

        Close the iterator to let go of the stream. A stream that is not read is held up, by the socket's flow control.
        Raises Refused, Unavailable (it broke), TooLarge.
        """
        async with self.send(
            "GET", path, query=query, body=None, headers={}, timeout=STREAM_TIMEOUT
        ) as response:
            try:
                if response.status_code != 200:
                    answer = await response.aread()
                    raise Refused(response.status_code, error_of(response.status_code, answer))
                lines = LineReader()
                async for chunk in response.aiter_raw():
                    if whole := lines.take(chunk):
                        yield whole
                lines.finish()
            except httpx.HTTPError as error:
                raise self._unavailable("the connection to the scheduler broke", error) from error

    def client(self) -> ApiClient:
        """A synchronous client of the same scheduler, for use in a thread."""
        return ApiClient(lambda *, revive: self._find(may_start=False))

    async def bring_up(self) -> None:
        """Find or start the scheduler ahead of the first request; a failure is logged, not raised."""
        try:
            await self._connected(may_start=True)
        except Unavailable as error:
            self._log.warning("GPU cluster: %s", error)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _connected(self, may_start: bool) -> httpx.AsyncClient:
        async with self._finding:
            if self._client is None:
                address = await asyncio.to_thread(self._find, may_start)
                self._client = _client_of(address)
            return self._client

    def _find(self, may_start: bool) -> Address:
        given = os.environ.get(discovery.ENV_ADDRESS)
        if given:
            return parse_address(given, field=discovery.ENV_ADDRESS)
        if not self._start_scheduler:
            return parse_address(discovery.require_scheduler().address)
        info = embedded.ensure_scheduler() if may_start else embedded.revive_scheduler()
        return parse_address(info.address)

    @contextlib.asynccontextmanager
    async def _using(self, client: httpx.AsyncClient) -> AsyncIterator[None]:
        """A client that is not used for new requests any more is closed by its last one."""
        self._in_use[client] += 1
        try:
            yield
        finally:
            self._in_use[client] -= 1
            if not self._in_use[client]:
                del self._in_use[client]
                if client is not self._client:
                    await client.aclose()

    def _unavailable(self, reason: str, error: httpx.HTTPError) -> Unavailable:
        """What httpx says of it is for the log."""
        self._log.debug("GPU cluster: %s: %r", reason, error)
        return Unavailable(reason, hint=LOOK_AT_LOG)

    def _forget(self, client: httpx.AsyncClient) -> None:
        """Look for the scheduler again with the next request. What others still read from this one is not cut off."""
        if self._client is client:
            self._client = None


def cancel_soon(task: asyncio.Task[None]) -> None:
    """Cancel a task that may be reading from the scheduler, behind all else that this turn of the loop has to do.

    A read that is cancelled in the very turn in which its Unix socket became readable makes anyio (4.16) log an
    InvalidStateError. A timer runs behind the sockets' callbacks of its turn.
    """
    asyncio.get_running_loop().call_later(0, task.cancel)


def _client_of(address: Address) -> httpx.AsyncClient:
    headers = {"Accept-Encoding": "identity"}  # answers pass as they are
    if address.token:
        headers["Authorization"] = f"token {address.token}"
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(
            uds=address.socket_path,
            # Certificates are loaded for https only: that takes longer than all the rest.
            verify=address.base_url.startswith("https:"),
            limits=httpx.Limits(max_connections=None),
        ),
        base_url=address.base_url,
        headers=headers,
    )
