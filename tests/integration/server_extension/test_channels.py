"""Channels between a scheduler and a page, both played by the test, so that each may be as slow, silent or broken as it likes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from support.stream_server import Stream, StreamServer, stream_server

from gpucluster.api.errors import GpuclusterError, NotFound, Unavailable
from jupyter_gpucluster.server_extension import link
from jupyter_gpucluster.server_extension.link import SchedulerLink
from jupyter_gpucluster.server_extension.messages import (
    MESSAGE_BYTES,
    WINDOW,
    Ack,
    CellQuery,
    Open,
)
from jupyter_gpucluster.server_extension.streams import MAX_CHANNELS, PageChannels

JOB = "0" * 26
TIMEOUT_S = 60.0
LINE_BYTES = 32 << 10
#: Both ends' socket buffers, and what httpx and tornado hold of a stream: far less than this.
IN_BETWEEN_BYTES = 4 << 20

log = logging.getLogger("test")


class Bench:
    """A page's channels, what was sent over them, and the scheduler behind."""

    def __init__(self, scheduler: StreamServer) -> None:
        self.scheduler = scheduler
        self.link = SchedulerLink(start_scheduler=False, log=log)
        self.sent: list[dict[str, Any]] = []
        self.channels = PageChannels(self.link, self._take, log)
        self._came = asyncio.Event()
        self._numbers = 0

    def _take(self, message: bytes) -> None:
        self.sent.append(json.loads(message))
        self._came.set()

    def open(self, path: str, query: dict[str, str] | None = None, cell: CellQuery | None = None) -> int:
        self._numbers += 1
        self.task = self.channels.open(Open(channel=self._numbers, path=path, query=query or {}, cell=cell))
        return self._numbers

    async def open_stream(
        self, path: str = "live", query: dict[str, str] | None = None
    ) -> tuple[int, Stream]:
        return self.open(path, query), await self.scheduler.stream()

    def acknowledge(self, channel: int, count: int = 1) -> None:
        self.channels.acknowledge(Ack(channel=channel, count=count))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something holds that what is sent makes true."""
        while not is_so():
            self._came.clear()
            await self._came.wait()

    def of(self, channel: int) -> list[dict[str, Any]]:
        return [message for message in self.sent if message["channel"] == channel]

    def items(self, channel: int) -> list[Any]:
        return [item for message in self.of(channel) for item in message.get("items", [])]

    async def until_items(self, channel: int, count: int) -> list[Any]:
        await self.until(lambda: len(self.items(channel)) >= count)
        return self.items(channel)

    async def until_over(self, channel: int) -> dict[str, Any]:
        await self.until(lambda: any(message["type"] != "items" for message in self.of(channel)))
        return self.of(channel)[-1]

    @property
    def connections(self) -> int:
        """Connections to the scheduler that are open."""
        client = self.link._client
        return 0 if client is None else len(client._transport._pool.connections)  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def bench_of(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    async with stream_server() as scheduler:
        monkeypatch.setenv("GPUCLUSTER_ADDRESS", scheduler.address)
        bench = Bench(scheduler)
        try:
            yield bench
        finally:
            bench.channels.close_all()
            await bench.link.close()


def with_bench(test: Callable[[Bench], Awaitable[None]]) -> Callable[[pytest.MonkeyPatch], None]:
    """Run a test of channels in an event loop of its own."""

    async def run(monkeypatch: pytest.MonkeyPatch) -> None:
        async with bench_of(monkeypatch) as bench:
            await asyncio.wait_for(test(bench), TIMEOUT_S)

    # Not functools.wraps: pytest would look for a fixture `bench`.
    def runner(monkeypatch: pytest.MonkeyPatch) -> None:
        asyncio.run(run(monkeypatch))

    runner.__doc__ = test.__doc__
    return runner


# ---- lines


@with_bench
async def test_lines_come_at_once_and_in_order(bench: Bench) -> None:
    channel, stream = await bench.open_stream(f"jobs/{JOB}/output", {"after": "7", "rank": "1"})
    assert (stream.path, stream.query) == (f"jobs/{JOB}/output", {"after": "7", "rank": "1"})
    for number in range(WINDOW):
        await stream.write({"n": number, "text": "ü"})
        await bench.until_items(channel, number + 1)
    assert bench.items(channel) == [{"n": number, "text": "ü"} for number in range(WINDOW)]


@with_bench
async def test_end_of_the_stream_is_told_after_its_lines(bench: Bench) -> None:
    channel, stream = await bench.open_stream()
    await stream.write(1, 2)
    stream.end()
    assert await bench.until_over(channel) == {"type": "ended", "channel": channel}
    assert bench.items(channel) == [1, 2]
    await bench.task
    assert len(bench.channels) == 0


@with_bench
async def test_lines_that_wait_for_the_page_share_messages(bench: Bench) -> None:
    channel, stream = await bench.open_stream()
    for number in range(WINDOW):
        await stream.write(number)
        await bench.until_items(channel, number + 1)
    for number in range(WINDOW, 1000):
        await stream.write(number)
    stream.end()
    # The stream was read to its end meanwhile: only the end of the channel waits for the page.
    await stream_is_let_go(bench)
    assert len(bench.of(channel)) == WINDOW
    bench.acknowledge(channel)
    await bench.until_over(channel)
    assert bench.items(channel) == list(range(1000))
    assert len(bench.of(channel)) == WINDOW + 2  # one more message of lines, and the end


async def stream_is_let_go(bench: Bench) -> None:
    while bench.connections and not all(each.is_idle() for each in pool_of(bench)):
        await asyncio.sleep(0.01)


def pool_of(bench: Bench) -> list[Any]:
    assert bench.link._client is not None
    return list(bench.link._client._transport._pool.connections)  # type: ignore[attr-defined]


@with_bench
async def test_page_that_does_not_acknowledge_stops_its_stream_and_no_other(bench: Bench) -> None:
    held, flood = await bench.open_stream(f"jobs/{JOB}/log")
    flooding = asyncio.create_task(flood.flood(LINE_BYTES))
    await bench.until(lambda: len(bench.of(held)) == WINDOW)
    other, stream = await bench.open_stream(f"jobs/{JOB}/output")
    carried_bytes = 0
    while carried_bytes < 4 * IN_BETWEEN_BYTES:
        await stream.write("y" * LINE_BYTES)
        await bench.until(lambda: bench.of(other)[-1:] != [] and bench.items(other) != [])
        carried_bytes += sum(len(message["items"]) * LINE_BYTES for message in bench.of(other))
        bench.acknowledge(other, len(bench.of(other)))
        bench.sent = bench.of(held)
    # Bounded by what the window, the waiting message and the sockets hold, however long the others run.
    assert len(bench.of(held)) == WINDOW
    assert flood.written * LINE_BYTES < (WINDOW + 2) * MESSAGE_BYTES + IN_BETWEEN_BYTES
    # Acknowledged, it goes on where it stood.
    stopped_at = flood.written
    while flood.written < stopped_at + 500:
        before = len(bench.sent)
        bench.acknowledge(held)
        await bench.until(lambda before=before: len(bench.sent) > before)  # type: ignore[misc]
        assert len(bench.of(held)) - before == 1
    numbers = [item["n"] for item in bench.items(held)]
    assert numbers == list(range(len(numbers)))
    flooding.cancel()


@with_bench
async def test_message_is_about_as_large_as_agreed(bench: Bench) -> None:
    channel, flood = await bench.open_stream()
    flooding = asyncio.create_task(flood.flood(LINE_BYTES))
    for _ in range(100):
        await bench.until(lambda: len(bench.sent) > 0)
        for message in bench.sent:
            assert sum(len(json.dumps(item)) for item in message["items"]) <= MESSAGE_BYTES
            bench.acknowledge(channel)
        bench.sent.clear()
    flooding.cancel()


# ---- ends


@with_bench
async def test_channel_that_is_closed_lets_go_of_its_stream(bench: Bench) -> None:
    channel, stream = await bench.open_stream()
    await stream.write(1)
    await bench.until_items(channel, 1)
    bench.channels.close(channel)
    await stream.reader_left.wait()
    await asyncio.wait([bench.task])
    assert (len(bench.channels), bench.connections) == (0, 0)
    assert [message["type"] for message in bench.sent] == ["items"]


@with_bench
async def test_channel_that_is_closed_while_the_page_is_behind_lets_go_of_its_stream(bench: Bench) -> None:
    channel, stream = await bench.open_stream()
    flooding = asyncio.create_task(stream.flood(LINE_BYTES))
    await bench.until(lambda: len(bench.sent) == WINDOW)
    bench.channels.close(channel)
    await stream.reader_left.wait()
    await flooding
    await asyncio.wait([bench.task])
    assert (len(bench.channels), bench.connections) == (0, 0)


@with_bench
async def test_channel_that_is_closed_before_the_scheduler_answered_lets_go_of_it(bench: Bench) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        assert await reader.read() == b""
        left.set()
        writer.close()

    path = bench.scheduler.address.removeprefix("unix:") + "2"
    server = await asyncio.start_unix_server(say_nothing, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUCLUSTER_ADDRESS", f"unix:{path}")
        channel = bench.open("live")
        await asked.wait()
    bench.channels.close(channel)
    await left.wait()
    await asyncio.wait([bench.task])
    assert (len(bench.channels), bench.connections) == (0, 0)
    server.close()


@with_bench
async def test_page_that_leaves_lets_go_of_all_streams(bench: Bench) -> None:
    tasks, streams = [], []
    for _ in range(10):
        _, stream = await bench.open_stream()
        tasks.append(bench.task)
        streams.append(stream)
    bench.channels.close_all()
    await asyncio.wait(tasks)
    for stream in streams:
        await stream.reader_left.wait()
    assert (len(bench.channels), bench.connections, bench.sent) == (0, 0, [])


# ---- errors


@with_bench
async def test_error_of_the_scheduler_keeps_its_status(bench: Bench) -> None:
    said = {"code": "not_found", "reason": "there is no job 7", "hint": "See %jobs."}
    bench.scheduler.answers[f"jobs/{JOB}/output"] = (404, {"error": said})
    channel = bench.open(f"jobs/{JOB}/output")
    assert await bench.until_over(channel) == {
        "type": "failed", "channel": channel, "status": 404, "error": said,
    }  # fmt: skip
    await bench.task
    assert len(bench.channels) == 0


@with_bench
async def test_stream_that_breaks_may_be_tried_again(bench: Bench) -> None:
    channel, stream = await bench.open_stream()
    await stream.write(1, 2)
    await bench.until_items(channel, 2)
    stream.cut()
    failed = await bench.until_over(channel)
    assert (failed["type"], failed["status"], failed["error"]["code"]) == ("failed", 502, "unavailable")
    assert failed["error"]["hint"]
    assert bench.items(channel) == [1, 2]


@with_bench
async def test_broken_stream_does_not_touch_the_others(bench: Bench) -> None:
    _, broken = await bench.open_stream()
    other, stream = await bench.open_stream()
    broken.cut()
    await bench.until_over(1)
    await stream.write("still here")
    assert await bench.until_items(other, 1) == ["still here"]


@with_bench
async def test_stream_without_a_sign_of_life_is_broken(bench: Bench) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link, "STREAM_TIMEOUT", httpx.Timeout(60.0, read=0.2))
        channel, stream = await bench.open_stream()
    failed = await bench.until_over(channel)
    assert (failed["status"], failed["error"]["code"]) == (502, "unavailable")
    await stream.reader_left.wait()


@with_bench
async def test_request_that_fails_does_not_cut_off_what_others_read(bench: Bench) -> None:
    channel, stream = await bench.open_stream()
    bench.scheduler.answers[f"jobs/{JOB}/log"] = None
    failed = await bench.until_over(bench.open(f"jobs/{JOB}/log"))
    assert (failed["status"], failed["error"]["reason"]) == (502, "the scheduler does not answer")
    await stream.write("still here")
    assert await bench.until_items(channel, 1) == ["still here"]
    bench.channels.close_all()
    await bench.link.close()
    while bench.scheduler.connections:
        await asyncio.sleep(0.01)


@with_bench
async def test_scheduler_that_is_away_is_said_with_a_hint(bench: Bench) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUCLUSTER_ADDRESS", bench.scheduler.address + ".nosuch")
        failed = await bench.until_over(bench.open("live"))
    assert (failed["status"], failed["error"]["code"]) == (502, "unavailable")
    assert failed["error"]["hint"]


@with_bench
async def test_number_of_channels_is_limited(bench: Bench) -> None:
    for _ in range(MAX_CHANNELS):
        await bench.open_stream()
    with pytest.raises(GpuclusterError) as refused:
        bench.open("live")
    assert (refused.value.code, refused.value.field) == ("unavailable", "channel")  # a page tries again
    assert str(MAX_CHANNELS) in refused.value.reason
    bench.channels.close(1)
    channel, stream = await bench.open_stream()
    await stream.write("one more")
    assert await bench.until_items(channel, 1) == ["one more"]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (Open(channel=1, path="live"), "channel"),  # used
        (Open(channel=0, path="live"), "channel"),  # counts downwards
        (Open(channel=-3, path="live"), "channel"),
        (Open(channel=2, path="status"), "path"),
        (Open(channel=2, path="live", cell=CellQuery(job_id=JOB)), "cell"),
        (Open(channel=2, path="cell"), "cell"),
        (Open(channel=2, path="cell", query={"a": "b"}, cell=CellQuery(job_id=JOB)), "query"),
    ],
    ids=repr,
)
def test_wrong_channel_is_refused_by_its_field(
    monkeypatch: pytest.MonkeyPatch, asked: Open, field: str
) -> None:
    async def run() -> None:
        async with bench_of(monkeypatch) as bench:
            await bench.open_stream()
            with pytest.raises(GpuclusterError) as refused:
                bench.channels.open(asked)
            assert refused.value.field == field
            assert len(bench.channels) == 1

    asyncio.run(run())


@with_bench
async def test_what_comes_for_a_channel_that_ended_meanwhile_is_no_error(bench: Bench) -> None:
    channel, stream = await bench.open_stream()
    await stream.write(1)
    stream.end()
    await bench.until_over(channel)
    await bench.task
    bench.acknowledge(channel)
    bench.channels.close(channel)
    bench.channels.close(channel)


@with_bench
async def test_channel_that_never_was_is_an_error(bench: Bench) -> None:
    for use in (bench.channels.close, functools.partial(bench.acknowledge, count=1)):
        with pytest.raises(GpuclusterError) as refused:
            use(1)
        assert refused.value.field == "channel"


# ---- cells


def redraw_that(
    monkeypatch: pytest.MonkeyPatch, batches: Callable[[Any], AsyncIterator[list[bytes]]]
) -> None:
    """Have cells drawn by `batches`, which is given the query."""

    class CellRedraw:
        def __init__(self, query: CellQuery, *, connect: Callable[[], Any]) -> None:
            self._query = query
            self._client = connect()

        def batches(self) -> AsyncIterator[list[bytes]]:
            return batches(self._query)

    module = types.ModuleType("redraw")
    module.CellRedraw = CellRedraw  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jupyter_gpucluster.server_extension.redraw", module)


def test_cell_is_a_channel_as_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    left = asyncio.Event()

    async def drawn(query: CellQuery) -> AsyncIterator[list[bytes]]:
        try:
            for number in range(2 * WINDOW):
                yield [json.dumps([query.job_id, number]).encode()]
                await asyncio.sleep(0)
            await asyncio.Event().wait()
        finally:
            left.set()

    async def run() -> None:
        async with bench_of(monkeypatch) as bench:
            channel = bench.open("cell", cell=CellQuery(job_id=JOB))
            await bench.until(lambda: len(bench.sent) == WINDOW)
            bench.acknowledge(channel, WINDOW)
            assert await bench.until_items(channel, 2 * WINDOW) == [[JOB, n] for n in range(2 * WINDOW)]
            bench.channels.close(channel)
            await left.wait()

    redraw_that(monkeypatch, drawn)
    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFound("there is no job 7"), 404, "not_found"),
        (Unavailable("no scheduler runs"), 502, "unavailable"),
        (ZeroDivisionError("secret"), 500, "error"),
    ],
    ids=repr,
)
def test_error_of_a_cell_ends_its_channel(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    async def drawn(query: CellQuery) -> AsyncIterator[list[bytes]]:
        yield [b"1"]
        raise error

    async def run() -> None:
        async with bench_of(monkeypatch) as bench:
            channel = bench.open("cell", cell=CellQuery(job_id=JOB))
            failed = await bench.until_over(channel)
            assert bench.items(channel) == [1]
            assert (failed["type"], failed["status"], failed["error"]["code"]) == ("failed", status, code)
            assert "secret" not in json.dumps(failed)

    redraw_that(monkeypatch, drawn)
    asyncio.run(run())
