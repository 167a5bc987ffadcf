"""Pages without a browser, for `ui.py`: what so many watchers, or pollers, of a Jupyter server receive.

    python ui_watchers.py watch|idle|poll URL TOKEN COUNT SECONDS

`watch` follows over the page's WebSocket what the sidebar follows, `idle` what a page follows whose sidebar is hidden, `poll`
asks by REST every SECONDS for what the sidebar shows, as panels do that have no stream. It says "ready" once each has
all of it, and then answers each line of its input with the totals so far, as JSON. The end of input ends it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.websocket import WebSocketClientConnection, websocket_connect

API = "gpucluster/api/v1/"
#: What a page follows with all sections of the sidebar open and the list of jobs on "All", and what for its status bar and its
#: notifications alone, the sidebar hidden. `ui.py` compares both with what the real page asks for.
SIDEBAR = "status,queues,nodes,jobs,mine"
HIDDEN = "status,mine"
#: So many rows of the list are in view; the page follows those jobs one by one.
IN_VIEW = 16
POLLED = ("status", "queues", "nodes", "jobs?limit=1000")


#: How a message begins that is to be acknowledged.
ITEMS = '{"type":"items","channel":'


@dataclasses.dataclass
class Received:
    """Of all watchers together. `wire`: compressed, with the heads of frames or answers; `plain`: the JSON in them."""

    wire_bytes: int = 0
    plain_bytes: int = 0
    messages: int = 0

    def __add__(self, other: Received) -> Received:
        return Received(
            self.wire_bytes + other.wire_bytes,
            self.plain_bytes + other.plain_bytes,
            self.messages + other.messages,
        )

    def __sub__(self, earlier: Received) -> Received:
        return Received(
            self.wire_bytes - earlier.wire_bytes,
            self.plain_bytes - earlier.plain_bytes,
            self.messages - earlier.messages,
        )


class Watcher:
    """One page's WebSocket, read and acknowledged as the page does."""

    def __init__(self, url: str, token: str, topics: str) -> None:
        address = url.replace("http", "ws", 1) + API + "streams/ws"
        self._request = HTTPRequest(address, headers={"Authorization": f"token {token}"})
        self._topics = topics
        self._connection: WebSocketClientConnection | None = None
        self._messages = 0

    async def begin(self) -> None:
        """Up to the first update, which has everything; then, as the page, for the jobs in view as well."""
        connection = await websocket_connect(self._request, compression_options={}, max_message_size=64 << 20)
        self._connection = connection
        await self._read()  # hello
        await self._send(type="open", channel=0, path="live", query={"topics": self._topics})
        update = json.loads(await self._read())["items"][0]
        if self._topics == SIDEBAR:
            running = [job["id"] for job in update["jobs"] if job["state"] == "running"]
            query = {"topics": SIDEBAR, "have": SIDEBAR, "after": str(update["seq"])}
            query["jobs"] = ",".join(sorted(running[:IN_VIEW]))
            await self._send(type="close", channel=0)
            await self._send(type="open", channel=1, path="live", query=query)
            await self._read()
        self._reading = asyncio.create_task(self._read_on())

    async def _send(self, **message: Any) -> None:
        assert self._connection is not None
        await self._connection.write_message(json.dumps(message))

    async def _read(self) -> str:
        assert self._connection is not None
        message = await self._connection.read_message()
        if not isinstance(message, str):
            raise RuntimeError(f"the server closed the connection: {self._connection.close_reason}")
        self._messages += 1
        if message.startswith(ITEMS):
            channel, _, _ = message[len(ITEMS) :].partition(",")
            await self._send(type="ack", channel=int(channel), count=1)
        elif message.startswith('{"type":"failed"'):
            raise RuntimeError(message)
        return message

    async def _read_on(self) -> None:
        while True:
            await self._read()

    @property
    def received(self) -> Received:
        if self._reading.done():
            self._reading.result()  # it does not end by itself: raises why it did
        protocol: Any = self._connection and self._connection.protocol
        return Received(protocol._wire_bytes_in, protocol._message_bytes_in, self._messages)


class Poller:
    """One panel that asks again and again."""

    def __init__(self, url: str, token: str, interval_s: float, delay_s: float) -> None:
        self._url = url + API
        self._headers = {"Authorization": f"token {token}", "Accept-Encoding": "gzip"}
        self._interval_s = interval_s
        self._delay_s = delay_s  # so that not all ask at once
        self.received = Received()

    async def begin(self) -> None:
        await self._ask()
        self._asking = asyncio.create_task(self._ask_on())

    async def _ask(self) -> None:
        """All at once, as a panel does."""
        client = AsyncHTTPClient()
        requests = [
            HTTPRequest(self._url + path, headers=self._headers, decompress_response=False) for path in POLLED
        ]
        for answer in await asyncio.gather(*(client.fetch(request) for request in requests)):
            self._count(answer)

    def _count(self, answer: HTTPResponse) -> None:
        head = sum(len(f"{name}: {value}\r\n") for name, value in answer.headers.get_all())
        self.received.wire_bytes += len(answer.body) + head
        self.received.plain_bytes += len(answer.body)
        self.received.messages += 1

    async def _ask_on(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._delay_s
        while True:
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            await self._ask()
            due_s += self._interval_s


async def run(kind: str, url: str, token: str, count: int, poll_s: float) -> None:
    AsyncHTTPClient.configure(None, max_clients=1000, max_body_size=64 << 20)
    pages: list[Watcher | Poller] = [
        Poller(url, token, poll_s, poll_s * number / count)
        if kind == "poll"
        else Watcher(url, token, HIDDEN if kind == "idle" else SIDEBAR)
        for number in range(count)
    ]
    for page in pages:
        await page.begin()
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        total = sum((page.received for page in pages), Received())
        print(json.dumps(dataclasses.asdict(total)), flush=True)
    os._exit(0)  # connections are not closed one by one: a page that is closed does not either


class Watchers:
    """That process, from outside; a context manager."""

    def __init__(self, kind: str, url: str, token: str, count: int, poll_s: float) -> None:
        self.count = count
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), kind, url, token, str(count), str(poll_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Watchers:
        if self._answer() != "ready\n":
            raise RuntimeError("the watchers could not begin")
        return self

    def received(self) -> Received:
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        answer = self._answer()
        if not answer:
            raise RuntimeError("the watchers have ended")
        return Received(**json.loads(answer))

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def __exit__(self, *exc: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])))
