"""The stream of a job's output, over a log and a job that the test moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from gpucluster.api import output
from gpucluster.api.feed import EventFeed
from gpucluster.api.output import OutputRequest, OutputSource, OutputStream
from gpucluster.api.schemas import JobView, StreamItem
from gpucluster.engine.outcome import start_failure
from gpucluster.model.errors import InvalidRequest
from gpucluster.model.events import PublishedEvent
from gpucluster.model.jobs import (
    Attempt,
    Job,
    JobSpec,
    JobState,
    Program,
    ProgramKind,
    Progress,
    Task,
    TaskPlacement,
    TaskRole,
    TaskState,
)
from gpucluster.model.principals import Principal
from gpucluster.model.resources import Resources
from gpucluster.worker.frames import Kind, encode_frame

OWNER = Principal(issuer="unix", subject="1", name="ann")


class Log:
    """A log in memory (engine/protocols.py, LogReader)."""

    def __init__(self) -> None:
        self.data = b""
        self.count = 0
        self.grown = asyncio.Event()
        self.reads = 0

    def write(self, text: str) -> None:
        self.data += encode_frame(Kind.STDOUT, self.count, 0, text.encode())
        self.count += 1
        self.grown.set()

    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, max_bytes: int) -> bytes:
        self.reads += 1
        return self.data[offset : offset + max_bytes]

    async def wait(self, offset: int) -> None:
        while len(self.data) <= offset:
            self.grown.clear()
            await self.grown.wait()


class Scene:
    """A job whose attempts and logs the test writes; `change` is what the engine's events do."""

    def __init__(self) -> None:
        spec = JobSpec(name="j", queue="q", roles=(TaskRole(),))
        self.job = Job(
            id="id", number=1, owner=OWNER, spec=spec, program=Program(kind=ProgramKind.CELL, source="x")
        )
        self.logs: dict[str, Log] = {}
        self.earlier: list[Attempt] = []
        self.removed: dict[str, tuple[int, str]] = {}
        self.feed = EventFeed(0, self._no_older)

    async def _no_older(self, after: int, limit: int) -> Sequence[PublishedEvent]:
        return ()

    def start(self) -> Log:
        if self.job.attempt is not None:
            self.earlier.append(self.job.attempt)
        number = self.job.attempts_made + 1
        place = TaskPlacement(role="w", rank=0, local_rank=0, node="n", gpus=(), resources=Resources())
        self.job.attempt = Attempt(id=f"a{number}", job_id="id", number=number, tasks=[Task(placement=place)])
        self.job.attempts_made = number
        self.logs[f"a{number}"] = Log()
        self.change(JobState.RUNNING)
        return self.logs[f"a{number}"]

    def change(self, state: JobState) -> None:
        self.job.state = state
        self.tell()

    def tell(self) -> None:
        self.feed.publish(
            [PublishedEvent(seq=self.feed.last_seq + 1, time_us=0, kind="x", data={}, job_id="id")]
        )

    def end_attempt(self, state: JobState) -> None:
        assert self.job.attempt is not None
        self.job.attempt.tasks[0].state = TaskState.FAILED
        self.job.attempt.ended_us = 1
        self.change(state)

    def view(self, job: Job) -> JobView:
        by_type: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: True, list[str]: []}
        fields = {field.name: by_type.get(field.type) for field in msgspec.structs.fields(JobView)}
        fields |= {
            "id": job.id,
            "state": job.state.value,
            "progress": job.progress,
            "seq": self.feed.last_seq,
        }
        return JobView(**fields)

    def stream(self, **request: Any) -> OutputStream:
        async def find(_: str) -> Job:
            return self.job

        async def attempts(_: str) -> Sequence[Attempt]:
            return self.earlier

        async def removed(attempt_id: str) -> tuple[int, str] | None:
            return self.removed.get(attempt_id)

        source = OutputSource(
            find=find,
            attempts=attempts,
            view=self.view,
            open_log=lambda attempt_id, _: self.logs[attempt_id],
            feed=self.feed,
            removed=removed,
        )
        return OutputStream(source, self.job, OutputRequest(**request))


class Reader:
    """Takes items one by one."""

    def __init__(self, stream: OutputStream) -> None:
        self._items = self._split(stream.batches())

    async def _split(self, batches: AsyncIterator[bytes]) -> AsyncIterator[StreamItem]:
        async for batch in batches:
            for line in batch.splitlines():
                yield msgspec.json.decode(line, type=StreamItem, strict=False)

    async def next(self) -> StreamItem:
        return await asyncio.wait_for(anext(self._items), 10)  # type: ignore[arg-type]

    async def rest(self) -> list[StreamItem]:
        return [item async for item in self._items]


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


def test_records_come_as_they_are_written_and_the_final_state_after_them() -> None:
    async def work() -> None:
        scene = Scene()
        reader = Reader(scene.stream())
        assert (await reader.next()).type == "job"
        log = scene.start()
        assert [(await reader.next()).type for _ in range(2)] == ["job", "attempt"]
        log.write("a")
        assert (await reader.next()).payload == b"a"
        log.write("last")
        scene.end_attempt(JobState.FAILED)
        rest = await reader.rest()
        assert [item.type for item in rest] == ["record", "job", "end"]
        assert rest[1].job is not None
        assert rest[1].job.state == "failed"

    run(work)


def test_attempts_follow_each_other_however_late_one_looks() -> None:
    async def work() -> None:
        scene = Scene()
        for text in ("one", "two"):
            scene.start().write(text)
            scene.end_attempt(JobState.PENDING)
        scene.start().write("three")
        scene.end_attempt(JobState.SUCCEEDED)
        items = await Reader(scene.stream()).rest()
        assert [item.payload for item in items if item.type == "record"] == [b"one", b"two", b"three"]
        beginnings = [item for item in items if item.type == "attempt"]
        assert [item.attempt for item in beginnings] == [1, 2, 3]
        assert [item.nodes for item in beginnings] == [["n"]] * 3
        only = await Reader(scene.stream(only_attempt=2, with_state=False)).rest()
        assert [item.payload for item in only if item.type == "record"] == [b"two"]

    run(work)


def test_progress_alone_is_thinned_and_its_last_value_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PROGRESS_INTERVAL_S", 0.1)

    async def work() -> None:
        scene = Scene()
        scene.start()
        reader = Reader(scene.stream())
        assert [(await reader.next()).type for _ in range(2)] == ["job", "attempt"]
        for step in range(1, 51):
            scene.job.progress = Progress(step=step)
            scene.tell()
            await asyncio.sleep(0)
        seen = []
        while not seen or seen[-1] < 50:
            item = await reader.next()
            assert item.job is not None
            assert item.job.progress is not None
            seen.append(item.job.progress.step)
        assert len(seen) < 10

    run(work)


def test_silence_is_filled_with_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "HEARTBEAT_S", 0.05)

    async def work() -> None:
        scene = Scene()
        log = scene.start()
        reader = Reader(scene.stream())
        types = [(await reader.next()).type for _ in range(4)]
        assert types == ["job", "attempt", "alive", "alive"]
        log.write("x")
        while (item := await reader.next()).type == "alive":
            pass
        assert item.payload == b"x"

    run(work)


def test_log_that_says_it_grew_and_gives_nothing_is_not_asked_all_the_time() -> None:
    class Restless(Log):
        async def wait(self, offset: int) -> None:
            return

    async def work() -> None:
        scene = Scene()
        scene.start()
        restless = scene.logs["a1"] = Restless()
        reader = Reader(scene.stream())
        waiting = asyncio.ensure_future(reader.rest())
        await asyncio.sleep(0.5)
        assert restless.reads < 40
        waiting.cancel()

    run(work)


def test_damaged_log_ends_what_is_shown_and_not_the_stream() -> None:
    async def work() -> None:
        scene = Scene()
        log = scene.start()
        log.write("good")
        log.data += b"this is no record, not at all, really not"
        scene.end_attempt(JobState.FAILED)
        items = await Reader(scene.stream()).rest()
        assert [item.payload for item in items if item.type == "record"] == [b"good"]
        assert items[-1].type == "end"

    run(work)


def test_log_that_retention_took_is_told_in_its_place() -> None:
    async def work() -> None:
        scene = Scene()
        scene.start().write("one")
        scene.end_attempt(JobState.PENDING)
        scene.start().write("two")
        scene.end_attempt(JobState.SUCCEEDED)
        scene.logs["a1"].data = b""
        scene.removed["a1"] = (7, "the retention of 30 days")
        items = await Reader(scene.stream()).rest()
        assert [(item.type, item.attempt) for item in items if item.type != "job"] == [
            ("attempt", 1), ("gone", 1), ("attempt", 2), ("record", 2), ("end", 0),
        ]  # fmt: skip
        gone = next(item for item in items if item.type == "gone")
        assert (gone.time_us, gone.reason) == (7, "the retention of 30 days")
        for request in ({"only_attempt": 1, "with_state": False}, {"only_attempt": 1, "tail": 5}):
            only = await Reader(scene.stream(**request)).rest()
            assert [item.type for item in only if item.type != "job"][-2:] == ["gone", "end"]

    run(work)


def test_log_that_goes_while_a_follower_stands_in_it_is_told_once() -> None:
    async def work() -> None:
        scene = Scene()
        log = scene.start()
        reader = Reader(scene.stream())
        log.write("one")
        while (await reader.next()).type != "record":
            pass
        log.data = b""
        scene.removed["a1"] = (7, "the retention of 1 day")
        scene.end_attempt(JobState.PENDING)
        while (item := await reader.next()).type != "gone":
            assert item.type == "job"
        assert (item.attempt, item.offset > 0) == (1, True)
        scene.start().write("two")
        scene.end_attempt(JobState.SUCCEEDED)
        rest = [item.type for item in await reader.rest() if item.type != "job"]
        assert rest == ["attempt", "record", "end"]

    run(work)


def test_log_that_somebody_removed_is_told_and_a_task_that_never_ran_had_none() -> None:
    async def work() -> None:
        scene = Scene()
        scene.start()
        scene.end_attempt(JobState.PENDING)
        scene.start()
        assert scene.job.attempt is not None
        scene.job.attempt.tasks[0].exit = start_failure("no such folder", False, 1)
        scene.end_attempt(JobState.FAILED)
        items = [item for item in await Reader(scene.stream()).rest() if item.type != "job"]
        assert [(item.type, item.attempt) for item in items] == [
            ("attempt", 1), ("gone", 1), ("attempt", 2), ("end", 0),
        ]  # fmt: skip
        assert (items[1].time_us, items[1].reason) == (0, None)

    run(work)


def test_rank_that_the_job_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="ranks 0 to 0"):
        Scene().stream(rank=1)


def test_job_that_never_ran_ends_its_stream() -> None:
    async def work() -> None:
        scene = Scene()
        scene.change(JobState.CANCELLED)
        assert [item.type for item in await Reader(scene.stream()).rest()] == ["job", "end"]

    run(work)


def test_tail_is_bounded_by_records_and_by_bytes() -> None:
    async def work() -> None:
        scene = Scene()
        log = scene.start()
        for number in range(10):
            log.write(f"line {number}\n" * 100)
        scene.end_attempt(JobState.SUCCEEDED)

        async def sequences(**request: Any) -> list[int]:
            items = await Reader(scene.stream(with_state=False, **request)).rest()
            return [item.sequence for item in items if item.type == "record"]

        assert await sequences(tail=3) == [7, 8, 9]
        assert await sequences(tail=3, tail_bytes=1 << 20) == [7, 8, 9]
        assert await sequences(tail=3, tail_bytes=1500) == [8, 9]
        assert await sequences(tail=3, tail_bytes=1) == [9]
        assert await sequences(tail=0) == []

    run(work)


def test_tail_of_a_job_that_waits_begins_with_its_first_record() -> None:
    async def work() -> None:
        scene = Scene()
        reader = Reader(scene.stream(tail=5, with_state=False))
        first = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0)
        scene.start().write("one")
        assert [(await first).type, (await reader.next()).payload] == ["attempt", b"one"]
        scene.end_attempt(JobState.CANCELLED)
        assert [item.type for item in await reader.rest()] == ["end"]

    run(work)
    scene = Scene()
    scene.job.state = JobState.CANCELLED
    assert [item.type for item in asyncio.run(Reader(scene.stream(tail=5)).rest())] == ["job", "end"]
