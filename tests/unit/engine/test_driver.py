"""The live loop: nothing is acted on before it is stored, and a store that fails loses nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from support.engine_bench import MemoryStore, gpu_queue, make_job, make_node, make_spec
from support.store_samples import new_id

from gpucluster.engine.core import Engine
from gpucluster.engine.driver import EngineDriver
from gpucluster.engine.events import (
    EngineEvent,
    JobSubmitted,
    NodeHealthSet,
    StopRequested,
    TaskEnded,
    TaskLost,
    TaskStarted,
    TaskStartFailed,
)
from gpucluster.engine.instructions import StartTask, StopTask
from gpucluster.engine.protocols import ChangeSet, Recovered, TaskAdoption
from gpucluster.model.errors import Conflict, GpuclusterError, NotFound, Unavailable
from gpucluster.model.events import PublishedEvent
from gpucluster.model.jobs import JobState, StopCause, TaskExit
from gpucluster.model.topology import Node, NodeHealth


class World:
    """A backend that remembers what it was asked, and a journal whose commits can be made to fail."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.started: list[StartTask] = []
        self.stopped: list[StopTask] = []
        self.adopted: list[TaskAdoption] = []
        self.given_up: list[str] = []
        self.refusals: list[Exception] = []  # of the next calls of give_up
        self.events: list[PublishedEvent] = []
        self.failures: list[
            tuple[GpuclusterError, bool]
        ] = []  # (error of the next commit, written all the same)
        self.emit: Callable[[EngineEvent], None]
        self.time_us = 1_800_000_000_000_000

    # Journal

    def commit(self, changes: ChangeSet) -> None:
        if self.failures:
            error, is_written = self.failures.pop(0)
            if is_written:
                self.store.commit(changes)
            raise error
        self.store.commit(changes)

    def recover(self) -> Recovered:
        return self.store.recover()

    # Backend

    async def open(self, emit: Callable[[EngineEvent], None]) -> Sequence[Node]:
        self.emit = emit
        return [make_node("node-0", 8)]

    async def adopt(self, tasks: Iterable[TaskAdoption]) -> None:
        self.adopted += tasks

    async def start(self, order: StartTask) -> None:
        self.started.append(order)

    async def stop(self, instruction: StopTask) -> None:
        self.stopped.append(instruction)

    async def give_up(self, node: str) -> None:
        self.given_up.append(node)
        if self.refusals:
            raise self.refusals.pop()

    async def warm(self, program: Any, owner: str) -> None: ...
    async def discard(self, attempt_id: str) -> None: ...
    async def close(self) -> None: ...

    # Clock

    def now_us(self) -> int:
        self.time_us += 1000
        return self.time_us

    def boot_s(self) -> float:
        return self.time_us / 1e6


class Running:
    """A driver on that world, up to the end of a test."""

    def __init__(self) -> None:
        self.world = World()

    async def __aenter__(self) -> Running:
        world: Any = self.world
        self.driver = EngineDriver(
            new_engine=lambda nodes: Engine(queues=[gpu_queue("default")], nodes=nodes, new_id=new_id),
            journal=world,
            backend=world,
            clock=world,
            make_order=lambda instruction: instruction,  # type: ignore[arg-type, return-value]
            log=logging.getLogger("test"),
        )
        await self.driver.start()
        self.driver.add_listener(self.world.events.extend)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.driver.close()

    async def submit(self, **spec: Any) -> str:
        job = make_job(make_spec(**spec), new_id())
        await self.driver.submit(JobSubmitted(job))
        return job.id

    async def until(self, condition: Callable[[], object]) -> None:
        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.005)

        await asyncio.wait_for(wait(), 30)

    def state(self, job_id: str) -> JobState:
        return self.world.store.job(job_id).state


def run(story: Callable[[Running], Any]) -> None:
    async def main() -> None:
        async with Running() as running:
            await story(running)

    asyncio.run(main())


DISK_FULL = Unavailable("the disk is full")


def test_task_is_started_only_after_its_attempt_is_stored() -> None:
    async def story(running: Running) -> None:
        job = await running.submit()
        await running.until(lambda: running.world.started)
        assert running.state(job) is JobState.STARTING
        assert running.world.started[0].job_id == job

    run(story)


def test_submission_that_could_not_be_stored_is_refused_and_leaves_nothing() -> None:
    async def story(running: Running) -> None:
        running.world.failures = [(DISK_FULL, False)]
        with pytest.raises(Unavailable, match="disk is full"):
            await running.submit()
        assert running.world.started == []
        assert running.world.events == []
        assert not running.driver.engine.state.jobs
        job = await running.submit()
        await running.until(lambda: running.world.started)
        assert [order.job_id for order in running.world.started] == [job]
        await running.until(lambda: running.driver.trouble is None)

    run(story)


def test_end_of_a_task_is_kept_while_the_store_fails() -> None:
    async def story(running: Running) -> None:
        job = await running.submit()
        await running.until(lambda: running.world.started)
        order = running.world.started[0]
        running.world.emit(TaskStarted(order.attempt_id, 0))
        await running.until(lambda: running.state(job) is JobState.RUNNING)
        running.world.failures = [(DISK_FULL, False), (DISK_FULL, False)]
        running.world.emit(TaskEnded(order.attempt_id, 0, TaskExit(code=0)))
        await running.until(lambda: running.state(job) is JobState.SUCCEEDED)
        assert running.world.failures == []

    run(story)


def test_commit_that_was_durable_though_it_failed_is_followed_up() -> None:
    """Its start was never handed out: the backend is asked, says that nothing runs, and the job starts anew."""

    async def story(running: Running) -> None:
        running.world.failures = [(Unavailable("the answer was lost"), True)]
        with pytest.raises(Unavailable):
            await running.submit()
        await running.until(lambda: running.world.adopted)
        asked = running.world.adopted[-1]
        running.world.emit(TaskStartFailed(asked.attempt_id, 0, "it never ran", retry=True))
        await running.until(lambda: running.world.started)
        assert running.world.started[0].job_id == asked.job_id
        assert running.world.started[0].attempt_id != asked.attempt_id

    run(story)


def test_refusal_reaches_only_the_one_who_asked() -> None:
    async def story(running: Running) -> None:
        stop = StopRequested("0" * 26, StopCause.CANCEL, "unix:0")
        results = await asyncio.gather(running.driver.submit(stop), running.submit(), return_exceptions=True)
        assert isinstance(results[0], Conflict)
        assert isinstance(results[1], str)

    run(story)


class Poison(EngineEvent):
    """An event at which the engine fails: a fault of ours."""


@pytest.fixture
def fragile_engine(monkeypatch: pytest.MonkeyPatch) -> list[EngineEvent]:
    """Every step with a Poison fails; the list holds what such steps were given."""
    step, seen = Engine.step, []

    def fragile(engine: Engine, now_us: int, events: Sequence[EngineEvent]) -> Any:
        if any(isinstance(event, Poison) for event in events):
            seen.extend(event for event in events if isinstance(event, Poison))
            raise RuntimeError("a fault of ours")
        return step(engine, now_us, events)

    monkeypatch.setattr(Engine, "step", fragile)
    return seen


def test_fault_in_one_request_does_not_stop_the_others(fragile_engine: list[EngineEvent]) -> None:
    async def story(running: Running) -> None:
        results = await asyncio.gather(
            running.submit(), running.driver.submit(Poison()), running.submit(), return_exceptions=True
        )
        assert isinstance(results[1], GpuclusterError)
        await running.until(lambda: len(running.world.started) == 2)
        assert {order.job_id for order in running.world.started} == {results[0], results[2]}

    run(story)


def test_event_of_the_world_that_cannot_be_handled_is_kept_and_shown_and_blocks_nobody(
    fragile_engine: list[EngineEvent],
) -> None:
    async def story(running: Running) -> None:
        poison = Poison()
        running.world.emit(poison)
        await running.until(lambda: running.driver.trouble is not None)
        first, second = await running.submit(), await running.submit()
        await running.until(lambda: len(running.world.started) == 2)
        assert {order.job_id for order in running.world.started} == {first, second}
        tries = len(fragile_engine)
        await running.until(lambda: len(fragile_engine) > tries)
        assert all(event is poison for event in fragile_engine)

    run(story)


def test_fault_that_meets_every_step_is_retried_slowly_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(running: Running) -> None:
        reads = 0
        recover = running.world.recover

        def counted() -> Recovered:
            nonlocal reads
            reads += 1
            return recover()

        running.world.recover = counted  # type: ignore[method-assign]

        def broken(engine: Engine, now_us: int, events: Sequence[EngineEvent]) -> Any:
            raise RuntimeError("a fault of ours")

        with monkeypatch.context() as patch:
            patch.setattr(Engine, "step", broken)
            with pytest.raises(GpuclusterError):
                await running.submit()
            await asyncio.sleep(0.5)
            assert running.driver.trouble is not None
            assert reads < 20
        job = await running.submit()
        await running.until(lambda: [order.job_id for order in running.world.started] == [job])
        await running.until(lambda: running.driver.trouble is None)

    run(story)


def test_loop_that_ends_by_a_fault_refuses_whoever_waits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(running: Running) -> None:
        told: list[str] = []
        running.driver.on_fault = told.append

        async def broken(tasks: Iterable[TaskAdoption]) -> None:
            raise RuntimeError("the backend is broken")

        running.world.adopt = broken  # type: ignore[method-assign]
        running.world.failures = [(DISK_FULL, False)]
        with pytest.raises(Unavailable):
            await running.submit()
        await running.until(lambda: told)
        with pytest.raises(Unavailable, match="stopping"):
            await running.submit()

    run(story)


def test_reader_never_sees_what_is_not_stored_yet() -> None:
    async def story(running: Running) -> None:
        stored = await running.submit()
        await running.until(lambda: running.world.started)
        may_commit = threading.Event()
        commit = running.world.commit

        def slow(changes: ChangeSet) -> None:
            may_commit.wait(30)
            raise DISK_FULL

        running.world.commit = slow  # type: ignore[method-assign]
        submission = asyncio.create_task(running.submit())
        await running.until(lambda: len(running.driver.engine.state.jobs) == 2)
        reader = asyncio.create_task(running.driver.settled())
        await asyncio.sleep(0.05)
        assert not reader.done()
        running.world.commit = commit  # type: ignore[method-assign]
        may_commit.set()
        await reader
        assert list(running.driver.engine.state.jobs) == [stored]
        with pytest.raises(Unavailable):
            await submission

    run(story)


def test_node_is_given_up_only_after_that_is_stored_and_again_after_a_restart() -> None:
    lost = NodeHealthSet("node-0", NodeHealth.LOST, "unix:0", "root", "burnt")

    async def main() -> None:
        async with Running() as first:
            job = await first.submit()
            await first.until(lambda: first.world.started)
            first.world.failures = [(DISK_FULL, False)]
            with pytest.raises(Unavailable):
                await first.driver.submit(lost)
            assert first.driver.engine.state.nodes["node-0"].health is NodeHealth.READY
            assert first.world.given_up == []
            first.world.refusals = [OSError("the agent is busy")]
            await first.driver.submit(lost)
            await first.until(lambda: first.world.given_up == ["node-0"])
        second = Running()
        second.world.store = first.world.store
        async with second:
            await second.until(lambda: second.world.given_up == ["node-0"])
            assert second.driver.engine.state.nodes["node-0"].health is NodeHealth.LOST
            second.world.emit(TaskLost(first.world.started[0].attempt_id, 0, "it is over"))
            await second.until(lambda: second.state(job) is JobState.PENDING)
            assert second.world.started == []

    asyncio.run(main())


def test_unknown_node_is_refused() -> None:
    async def story(running: Running) -> None:
        with pytest.raises(NotFound):
            await running.driver.submit(NodeHealthSet("nowhere", NodeHealth.LOST, "unix:0", "root"))

    run(story)


def test_restart_asks_after_the_tasks_that_may_run_and_stops_those_that_shall_end() -> None:
    async def main() -> None:
        async with Running() as first:
            goes_on = await first.submit()
            ends = await first.submit()
            await first.until(lambda: len(first.world.started) == 2)
            for order in first.world.started:
                first.world.emit(TaskStarted(order.attempt_id, 0))
            await first.until(lambda: first.state(ends) is JobState.RUNNING)
            await first.driver.submit(StopRequested(ends, StopCause.CANCEL, "unix:0"))
        second = Running()
        second.world.store = first.world.store
        async with second:
            assert {task.job_id for task in second.world.adopted} == {goes_on, ends}
            attempts = {order.job_id: order.attempt_id for order in first.world.started}
            for attempt in attempts.values():
                second.world.emit(TaskStarted(attempt, 0))
            await second.until(lambda: second.world.stopped)
            assert {stop.attempt_id for stop in second.world.stopped} == {attempts[ends]}
            second.world.emit(TaskEnded(attempts[ends], 0, TaskExit(code=143)))
            second.world.emit(TaskEnded(attempts[goes_on], 0, TaskExit(code=0)))
            await second.until(lambda: second.state(goes_on) is JobState.SUCCEEDED)
            assert second.state(ends) is JobState.CANCELLED
            assert second.world.started == []

    asyncio.run(main())
