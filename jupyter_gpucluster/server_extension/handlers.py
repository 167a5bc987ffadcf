"""The handler below `<base_url>/gpucluster/api/v1/` that forwards requests. The page's WebSocket is in streams.py."""

from __future__ import annotations

import asyncio

import httpx
import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.iostream import StreamClosedError

from gpucluster.api.errors import GpuclusterError, Unavailable, error_body, http_status

from .kernel_token import KernelTokenMixin
from .link import SchedulerLink, cancel_soon
from .routes import STARTING, is_forwarded

AUTH_RESOURCE = "gpucluster"
_REQUEST_HEADERS = ("Content-Type", "Idempotency-Key", "Range")
_RESPONSE_HEADERS = ("Content-Type", "Content-Length", "Content-Range", "Location", "Retry-After")


def without_cache_buster(query: str) -> str:
    """The query less the bare number that JupyterLab's requests carry against caches; the scheduler refuses unknown fields."""
    return "&".join(part for part in query.split("&") if not part.isdigit())


class ForwardHandler(KernelTokenMixin, APIHandler):
    """Passes a request of the allowed kind to the scheduler and its answer back, streamed."""

    auth_resource = AUTH_RESOURCE

    def initialize(self, link: SchedulerLink) -> None:
        self._link = link
        self._forwarding: asyncio.Task[None] | None = None

    def on_connection_close(self) -> None:
        """The browser or kernel left: let go of the scheduler's stream at once."""
        if self._forwarding is not None:
            cancel_soon(self._forwarding)

    @web.authenticated
    @authorized
    async def get(self, path: str) -> None:
        await self._run("GET", path)

    @web.authenticated
    @authorized
    async def head(self, path: str) -> None:
        await self._run("HEAD", path)

    @web.authenticated
    @authorized
    async def post(self, path: str) -> None:
        await self._run("POST", path)

    @web.authenticated
    @authorized
    async def put(self, path: str) -> None:
        await self._run("PUT", path)

    async def _run(self, method: str, path: str) -> None:
        if not is_forwarded(method, path):
            raise web.HTTPError(404, f"no such resource: {method} {path}")
        self._forwarding = asyncio.current_task()
        try:
            await self._forward(method, path)
        except asyncio.CancelledError:
            if not self.request.connection.stream.closed():  # type: ignore[union-attr]
                raise
        except StreamClosedError:
            pass
        except GpuclusterError as error:
            # 502, not the scheduler's own 503: the request did not reach it, and a client may send it again.
            self.set_status(502 if isinstance(error, Unavailable) else http_status(error))
            self.set_header("Content-Type", "application/json")
            await self.finish(msgspec.json.encode(error_body(error)))

    async def _forward(self, method: str, path: str) -> None:
        headers = {
            name: self.request.headers[name] for name in _REQUEST_HEADERS if name in self.request.headers
        }
        body = self.request.body if method in ("POST", "PUT") else None
        query = without_cache_buster(self.request.query)
        may_start = (method, path) in STARTING
        async with self._link.send(
            method, path, query=query, body=body, headers=headers, may_start=may_start
        ) as response:
            self.set_status(response.status_code)
            for name in _RESPONSE_HEADERS:
                if name in response.headers:
                    self.set_header(name, response.headers[name])
            if method != "HEAD":
                await self._pass_body(response)
        await self.finish()

    async def _pass_body(self, response: httpx.Response) -> None:
        try:
            async for chunk in response.aiter_raw():
                self.write(chunk)
                await self.flush()
        except httpx.HTTPError as error:
            # The status line is out: cutting the connection is the one way left to say that the answer is not whole.
            self.log.warning("GPU cluster: the answer to %s broke off: %r", self.request.path, error)
            self.request.connection.stream.close()  # type: ignore[union-attr]
            raise StreamClosedError from error
