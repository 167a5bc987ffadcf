"""The connection from the Jupyter server to the scheduler: found, started when there is none, found again when it moved.

A look never starts a scheduler that somebody stopped: only a submission, and Jupyter's own start, do. One that crashed is
brought back by any request, since its jobs still run. With $GPUCLUSTER_ADDRESS set, that scheduler is used and no other.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping

import httpx

from gpucluster.api import discovery, embedded
from gpucluster.api.errors import Unavailable
from gpucluster.api.transport import Address, parse_address

#: Reading may take as long as a stream is silent: the scheduler sends a sign of life every 10 s.
TIMEOUT = httpx.Timeout(60.0, connect=5.0)

#: Before each further try: one that was killed a moment ago may still seem to be there.
RETRY_PAUSES_S = (0.0, 0.2, 1.0)


class SchedulerLink:
    """Sends requests to the scheduler, over its Unix socket or to the address that $GPUCLUSTER_ADDRESS names.

    `start_scheduler`: bring up the user's embedded scheduler when none runs.
    """

    def __init__(self, *, start_scheduler: bool, log: logging.Logger) -> None:
        self._start_scheduler = start_scheduler
        self._log = log
        self._client: httpx.AsyncClient | None = None
        self._finding = asyncio.Lock()

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: str,
        body: bytes | None,
        headers: Mapping[str, str],
        may_start: bool = False,
    ) -> httpx.Response:
        """Send one request (`path` below /v1/) and return the response with its body still to be read.

        A scheduler that does not answer is looked for again: it may have been restarted. What may have been done already
        is not repeated here; the client knows whether that is safe. `may_start`: start a scheduler for it.
        Raises Unavailable.
        """
        for pause_s in (*RETRY_PAUSES_S, None):
            client = await self._connected(may_start)
            request = client.build_request(
                method, f"/v1/{path}?{query}" if query else f"/v1/{path}", content=body, headers=dict(headers)
            )
            try:
                return await client.send(request, stream=True)
            except httpx.HTTPError as error:
                await self._drop(client)
                nothing_was_done = isinstance(error, httpx.ConnectError) or method in ("GET", "HEAD")
                if pause_s is None or not nothing_was_done:
                    raise Unavailable(f"the scheduler does not answer: {error!r}") from error
                await asyncio.sleep(pause_s)
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
            await self._connected(may_start=True)
        except Unavailable as error:
            self._log.warning("GPU cluster: %s", error)

    async def close(self) -> None:
        if self._client is not None:
            await self._drop(self._client)

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

    async def _drop(self, client: httpx.AsyncClient) -> None:
        if self._client is client:
            self._client = None
        await client.aclose()


def _client_of(address: Address) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=address.socket_path, limits=limits),
        base_url=address.base_url,
        headers={"Authorization": f"token {address.token}"} if address.token else None,
        timeout=TIMEOUT,
    )
