"""The agent's end of a supervisor's control socket (worker/protocol.py): lines of JSON to calls, and back."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable
from typing import Any

from ..worker import protocol
from ..worker.files import parse_object

logger = logging.getLogger(__name__)

#: A longer line is no event. Step reports and exits with large results are the longest.
_MAX_LINE = 16 << 20
_CONNECT_S = 10.0


class ControlConnection(asyncio.Protocol):
    """`handle(event)` is called for each event; `closed` is done when the other end is gone."""

    def __init__(self, handle: Callable[[dict[str, Any]], None]) -> None:
        self._handle = handle
        self._rest = b""
        self._transport: asyncio.WriteTransport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self.send({"op": "hello", "protocol": [protocol.PROTOCOL_MIN, protocol.PROTOCOL_MAX]})

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line_received(line)
        if len(self._rest) > _MAX_LINE:
            logger.warning("a supervisor sent a line without end; it is hung up on")
            self.close()

    def _line_received(self, line: bytes) -> None:
        event = parse_object(line)
        if event is None:
            logger.warning("a supervisor sent a line that is no JSON object: %r", line[:200])
            return
        try:
            self._handle(event)
        except Exception:  # of ours; the connection is worth more than one event
            logger.exception("an event of a supervisor could not be handled")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, command: dict[str, Any]) -> None:
        """Send a command; lost when the supervisor is gone (`closed` tells)."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(json.dumps(command).encode() + b"\n")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def use(connected: socket.socket, handle: Callable[[dict[str, Any]], None]) -> ControlConnection:
    """Speak over a socket that is connected already."""
    connected.setblocking(False)
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(lambda: ControlConnection(handle), sock=connected)
    return connection


async def connect(path: str, handle: Callable[[dict[str, Any]], None]) -> ControlConnection | None:
    """Connect to the supervisor that listens at `path`; None when none does, or nobody answers there."""
    loop = asyncio.get_running_loop()
    connecting = loop.create_unix_connection(lambda: ControlConnection(handle), path)
    try:
        _, connection = await asyncio.wait_for(connecting, _CONNECT_S)
    except (OSError, ValueError, asyncio.TimeoutError):
        return None
    return connection
