"""A page's end of its WebSocket: opens channels, acknowledges, claims; what it was sent is kept in order."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import websocket

from .jupyter_server import TOKEN, JupyterServer

STREAMS = "gpucluster/api/v1/streams/ws"
TIMEOUT_S = 60.0


class Page:
    """One connection to a running Jupyter server. `page_id`: the same one for a page that reconnects.

    `acknowledges`: channels whose messages are acknowledged as they are received; None = all.
    """

    def __init__(
        self,
        server: JupyterServer,
        page_id: str | None = None,
        *,
        token: str | None = TOKEN,
        headers: dict[str, str] | None = None,
        acknowledges: set[int] | None = None,
    ) -> None:
        self.page_id = page_id or uuid.uuid4().hex
        self.acknowledges = acknowledges
        self.messages: list[dict[str, Any]] = []
        self.under_way: Counter[int] = Counter()  # by channel, of messages that it has not acknowledged
        self.most_under_way = 0
        self._channels = 0
        address = server.url.replace("http", "ws", 1) + f"{STREAMS}?page={self.page_id}"
        authorization = {"Authorization": f"token {token}"} if token is not None else {}
        self.socket = websocket.create_connection(
            address, timeout=TIMEOUT_S, header={**authorization, **(headers or {})}, suppress_origin=True
        )

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    # ---- what it sends

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def open(self, path: str, query: dict[str, Any] | None = None, **fields: Any) -> int:
        """Begin a channel; its number."""
        self._channels += 1
        texts = {name: str(value) for name, value in (query or {}).items()}
        self.send(type="open", channel=self._channels, path=path, query=texts, **fields)
        return self._channels

    def acknowledge(self, channel: int, count: int = 1) -> None:
        self.under_way[channel] -= count
        self.send(type="ack", channel=channel, count=count)

    def break_off(self) -> None:
        """As when the network goes: the connection ends without a word."""
        self.socket.shutdown()

    def claim(self, key: str, role: str = "log") -> None:
        self.send(type="claim", key=key, role=role)

    # ---- what it is sent

    def receive(self) -> dict[str, Any]:
        """The next message. Raises WebSocketConnectionClosedException when there is none any more."""
        message = json.loads(self.socket.recv())
        self.messages.append(message)
        if message["type"] == "items":
            channel = message["channel"]
            self.under_way[channel] += 1
            self.most_under_way = max(self.most_under_way, self.under_way[channel])
            if self.acknowledges is None or channel in self.acknowledges:
                self.acknowledge(channel)
        return message

    def until(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Receive up to a message that is wanted, and give it."""
        deadline = time.monotonic() + TIMEOUT_S
        while not is_wanted(message := self.receive()):
            assert time.monotonic() < deadline, f"the last of {len(self.messages)} messages: {message}"
        return message

    def until_over(self, channel: int) -> dict[str, Any]:
        """Receive until the channel is over: its `ended` or `failed`."""
        return self.until(
            lambda message: message["type"] in ("ended", "failed") and message["channel"] == channel
        )

    def until_claimed(self) -> tuple[bool, str]:
        """(granted, holder) of the next word on a claim."""
        claimed = self.until(lambda message: message["type"] == "claimed")
        return claimed["granted"], claimed["holder"]

    def until_closed(self) -> tuple[int, str]:
        """(code, reason) with which the server closed the connection."""
        while True:
            opcode, data = self.socket.recv_data()
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                return int.from_bytes(data[:2], "big"), data[2:].decode()

    def items(self, channel: int) -> list[Any]:
        """The lines of the channel that were received."""
        return [
            item
            for message in self.messages
            if message["type"] == "items" and message["channel"] == channel
            for item in message["items"]
        ]
