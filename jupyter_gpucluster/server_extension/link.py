"""The connection from the Jupyter server to the scheduler: found, started when there is none, found again when it moved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

import httpx

from gpucluster.api import discovery, embedded
from gpucluster.api.errors import Unavailable

#: Reading may take as long as a stream is silent: the scheduler sends a sign of life every 10 s.
TIMEOUT = httpx.Timeout(60.0, connect=5.0)


class SchedulerLink:
    """Sends requests to the user's scheduler over its Unix socket.

    `start_scheduler`: bring up the embedded scheduler when none runs.
    """

    def __init__(self, *, start_scheduler: bool, log: logging.Logger) -> None:
        self._start_scheduler = start_scheduler
        self._log = log
        self._client: httpx.AsyncClient | None = None
        self._finding = asyncio.Lock()

    async def send(
        self, method: str, path: str, *, query: str, body: bytes | None, headers: Mapping[str, str]
    ) -> httpx.Response:
        """Send one request (`path` below /v1/) and return the response with its body still to be read.

        A connection that cannot be made is looked for once more: the scheduler may have been restarted. Once bytes were
        sent, a failure is not repeated here; the client knows whether that is safe. Raises Unavailable.
        """
        for attempt in (1, 2):
            client = await self._connected()
            request = client.build_request(
                method, f"/v1/{path}?{query}" if query else f"/v1/{path}", content=body, headers=dict(headers)
            )
            try:
                return await client.send(request, stream=True)
            except httpx.ConnectError as error:
                await self._drop(client)
                if attempt == 2:
                    raise Unavailable(f"the scheduler does not answer: {error}") from error
            except httpx.HTTPError as error:
                await self._drop(client)
                raise Unavailable(f"the connection to the scheduler broke: {error!r}") from error
        raise AssertionError("unreachable")

    async def lines(self, path: str, query: str) -> AsyncIterator[str]:
        """The lines of a streamed answer. Raises Unavailable when it breaks."""
        response = await self.send("GET", path, query=query, body=None, headers={})
        try:
            async for line in response.aiter_lines():
                yield line
        except httpx.HTTPError as error:
            raise Unavailable(f"the connection to the scheduler broke: {error!r}") from error
        finally:
            await response.aclose()

    async def bring_up(self) -> None:
        """Find or start the scheduler ahead of the first request; a failure is logged, not raised."""
        try:
            await self._connected()
        except Unavailable as error:
            self._log.warning("GPU cluster: %s", error)

    async def close(self) -> None:
        if self._client is not None:
            await self._drop(self._client)

    async def _connected(self) -> httpx.AsyncClient:
        async with self._finding:
            if self._client is None:
                info = await asyncio.to_thread(self._find)
                transport = httpx.AsyncHTTPTransport(
                    uds=info.socket, limits=httpx.Limits(max_connections=None)
                )
                self._client = httpx.AsyncClient(
                    transport=transport, base_url="http://gpucluster", timeout=TIMEOUT
                )
            return self._client

    def _find(self) -> discovery.RuntimeInfo:
        if self._start_scheduler:
            return embedded.ensure_scheduler()
        info = discovery.find_scheduler()
        if info is None:
            raise Unavailable("no scheduler is running", hint="Start one with `gpucluster serve`.")
        return info

    async def _drop(self, client: httpx.AsyncClient) -> None:
        if self._client is client:
            self._client = None
        await client.aclose()
