"""A scheduler in this process that serves streams which a test writes, and says who reads them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_unix_socket
from tornado.web import Application, RequestHandler


class Stream:
    """One stream that somebody asked for: `path` and `query` as asked."""

    def __init__(self, handler: RequestHandler, path: str) -> None:
        self._handler = handler
        self.path = path
        self.query = {name: handler.get_query_argument(name) for name in handler.request.query_arguments}
        self.over = asyncio.Event()
        self.reader_left = asyncio.Event()

    async def write(self, *items: Any) -> None:
        """Write lines; waits while the reader does not read."""
        self._handler.write(b"".join(json.dumps(item).encode() + b"\n" for item in items))
        await self._handler.flush()

    async def flood(self, line_bytes: int) -> None:
        """Write numbered lines as fast as they are read, until the reader leaves; `written` counts them."""
        self.written = 0
        padding = "x" * line_bytes
        with contextlib.suppress(StreamClosedError):
            while True:
                await self.write({"n": self.written, "padding": padding})
                self.written += 1

    def end(self) -> None:
        self.over.set()

    def cut(self) -> None:
        """Break the connection within the answer."""
        self._handler.request.connection.stream.close()  # type: ignore[union-attr]
        self.over.set()


class StreamServer:
    """Listens on a Unix socket; `stream()` gives the next stream that is asked for.

    `answers`: path -> (status, body), or None: the connection is closed instead.
    """

    def __init__(self, folder: Path) -> None:
        self.address = f"unix:{folder / 's.sock'}"
        self.answers: dict[str, tuple[int, Any] | None] = {}
        self._asked: asyncio.Queue[Stream] = asyncio.Queue()
        server = self

        class Handler(RequestHandler):
            def on_connection_close(self) -> None:
                if hasattr(self, "_stream"):
                    self._stream.reader_left.set()
                    self._stream.over.set()

            async def get(self, path: str) -> None:
                if path in server.answers:
                    answer = server.answers[path]
                    if answer is None:
                        self.request.connection.stream.close()  # type: ignore[union-attr]
                        return
                    status, body = answer
                    self.set_status(status)
                    await self.finish(json.dumps(body))
                    return
                self._stream = Stream(self, path)
                await self.flush()
                server._asked.put_nowait(self._stream)
                await self._stream.over.wait()

        self._server = HTTPServer(Application([(r"/v1/(.*)", Handler)]))
        self._server.add_socket(bind_unix_socket(str(folder / "s.sock")))

    async def stream(self) -> Stream:
        return await self._asked.get()

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._server._connections)

    async def close(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()


@contextlib.asynccontextmanager
async def stream_server() -> AsyncIterator[StreamServer]:
    with tempfile.TemporaryDirectory(prefix="gps-") as folder:
        server = StreamServer(Path(folder))
        try:
            yield server
        finally:
            await server.close()
