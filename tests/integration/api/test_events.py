from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import msgspec
from tornado.iostream import IOStream
from tornado.websocket import WebSocketClientConnection, websocket_connect

from gpucluster.api.client import ApiClient
from gpucluster.api.schemas import EventView

from .conftest import TIMEOUT_S, Scheduler, command, ended, wait_until


def states(events: list[EventView], number: int) -> list[str]:
    return [e.data["state"] for e in events if e.kind == "job.state" and e.data["number"] == number]


def test_events_of_a_job_come_in_order_and_resume_without_gap(client: ApiClient) -> None:
    start = client.status().seq
    job = client.submit(command("true"))
    ended(client, job)
    events = [e for e in client.events(after=start, follow=False) if e.kind != "alive"]
    assert states(events, job.number) == ["pending", "starting", "running", "succeeded"]
    assert [e.seq for e in events] == sorted(e.seq for e in events)
    middle = events[len(events) // 2].seq
    rest = [e for e in client.events(after=middle, follow=False) if e.kind != "alive"]
    assert [e.seq for e in rest] == [e.seq for e in events if e.seq > middle]


def test_follower_without_a_number_gets_what_comes_from_now_on(client: ApiClient) -> None:
    feed = client.events()
    assert next(feed).kind == "alive"
    job = client.submit(command("true"))
    seen: list[EventView] = []
    for event in feed:
        seen.append(event)
        if "succeeded" in states(seen, job.number):
            break
    feed.close()
    assert states(seen, job.number) == ["pending", "starting", "running", "succeeded"]


def test_number_of_another_sequence_is_answered_by_resync(client: ApiClient) -> None:
    newest = client.status().seq
    events = list(client.events(after=newest + 1_000_000, follow=False))
    assert [(e.kind, e.seq) for e in events] == [("resync", newest)]


def test_events_of_before_a_restart_come_from_the_store(fresh: Scheduler) -> None:
    fresh.start()
    with fresh.client() as client:
        job = client.submit(command("true"))
        ended(client, job)
        before = [e for e in client.events(after=0, follow=False) if e.kind != "alive"]
        fresh.kill()
        fresh.start()
        after = [e for e in client.events(after=0, follow=False) if e.kind != "alive"]
        assert after[: len(before)] == before
        assert [e.seq for e in after] == list(range(1, len(after) + 1))


def test_follower_of_events_survives_a_kill_without_gap_or_repetition(fresh: Scheduler) -> None:
    fresh.start()
    with fresh.client() as client:
        seen: list[EventView] = []
        feed = client.events(after=0)
        reader = threading.Thread(target=lambda: seen.extend(feed))
        reader.start()
        first = client.submit(command("true"))
        wait_until(lambda: "succeeded" in states(list(seen), first.number), "the first job's end")
        fresh.kill()
        fresh.start()
        second = client.submit(command("true"))
        wait_until(lambda: "succeeded" in states(list(seen), second.number), "the second job's end")
        feed.close()
        reader.join(TIMEOUT_S)
        numbers = [e.seq for e in seen if e.kind not in ("alive", "resync")]
        assert numbers == sorted(set(numbers))
        assert states(seen, first.number) == ["pending", "starting", "running", "succeeded"]


async def open_socket(path: str, query: str) -> WebSocketClientConnection:
    """A WebSocket over the Unix socket: tornado's client connects to host names only, so it is given the stream."""
    from tornado.netutil import Resolver
    from tornado.tcpclient import TCPClient

    class ToUnixSocket(TCPClient):
        async def connect(self, *args: Any, **kwargs: Any) -> IOStream:
            stream = IOStream(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            await stream.connect(path)
            return stream

    original = WebSocketClientConnection.__init__

    def with_client(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.tcp_client = ToUnixSocket(resolver=Resolver())

    WebSocketClientConnection.__init__ = with_client  # type: ignore[method-assign]
    try:
        return await websocket_connect(f"ws://scheduler/v1/events/ws{query}")
    finally:
        WebSocketClientConnection.__init__ = original  # type: ignore[method-assign]


def test_websocket_gives_the_same_items(scheduler: Scheduler, client: ApiClient) -> None:
    info = scheduler.info()
    assert info is not None
    job = client.submit(command("true"))
    ended(client, job)

    over_http = [e for e in client.events(after=0, follow=False) if e.kind != "alive"]
    assert states(over_http, job.number)[-1] == "succeeded"

    async def read() -> list[EventView]:
        connection = await open_socket(info.socket, "?after=0")
        seen: list[EventView] = []
        while len(seen) < len(over_http):
            message = await asyncio.wait_for(connection.read_message(), TIMEOUT_S)
            assert message is not None
            seen.append(msgspec.json.decode(message, type=EventView))
        connection.close()
        return seen

    assert asyncio.run(read()) == over_http


def test_websocket_tells_resync_and_closes(scheduler: Scheduler) -> None:
    info = scheduler.info()
    assert info is not None

    async def read() -> list[str | bytes | None]:
        connection = await open_socket(info.socket, "?after=99999999")
        return [await asyncio.wait_for(connection.read_message(), TIMEOUT_S) for _ in range(2)]

    first, second = asyncio.run(read())
    assert msgspec.json.decode(first or b"", type=EventView).kind == "resync"
    assert second is None
