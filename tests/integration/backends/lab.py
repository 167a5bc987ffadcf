"""A local backend in a loop of its own, with calls that tests can make without one; and what it told the engine."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from gpucluster.backends.local import LocalBackend
from gpucluster.engine.events import (
    EngineEvent,
    StepReported,
    TaskEnded,
    TaskLost,
    TaskStarted,
    TaskStartFailed,
)
from gpucluster.engine.instructions import StopTask
from gpucluster.engine.protocols import TaskAdoption, TaskOrder
from gpucluster.model.errors import InvalidRequest, NotFound
from gpucluster.model.jobs import Program, ProgramKind, StopCause, TaskExit, TaskPlacement
from gpucluster.model.resources import Resources
from gpucluster.model.topology import Gpu, Node
from gpucluster.worker.files import read_regular
from gpucluster.worker.frames import Frame, Kind, iter_frames

PATIENCE_S = 60.0
NODE = Node(
    name="node-0",
    gpus=tuple(
        Gpu(uuid=f"GPU-{index}", index=index, type="A100", memory_bytes=1 << 30, simulated=True)
        for index in range(4)
    ),
    cpu=2000,
    memory=8 << 30,
    simulated=True,
)
LAST = (TaskEnded, TaskStartFailed, TaskLost)
Result = TypeVar("Result")


def wait_until(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """The condition's value as soon as it is true; fails after a generous time."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come true within {PATIENCE_S} s")


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def boot_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class FolderBlobs:
    """Blobs as files named by their hash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trouble: Exception | None = None  # of the store: every `take` ends with it
        folder.mkdir(exist_ok=True)

    def add(self, content: bytes) -> str:
        name = hashlib.sha256(content).hexdigest()
        (self.folder / name).write_bytes(content)
        return name

    def place(self, blob_hash: str, path: str) -> None:
        if not (self.folder / blob_hash).exists():
            raise NotFound(f"There is no blob {blob_hash}.")
        os.link(self.folder / blob_hash, path)

    def take(self, path: str, blob_hash: str) -> None:
        if self.trouble is not None:
            raise self.trouble
        try:
            content = read_regular(path, 1 << 30)
        except OSError as error:
            raise NotFound(f"There is no file {path} to take in.") from error
        if hashlib.sha256(content).hexdigest() != blob_hash:
            raise InvalidRequest("blob", f"{path} does not have the SHA-256 {blob_hash}")
        shutil.copyfile(path, self.folder / blob_hash)


def command(*argv: str, **more: Any) -> Program:
    return Program(kind=ProgramKind.COMMAND, source=" ".join(argv), command=argv, **more)


def shell(script: str, **more: Any) -> Program:
    return command("/bin/bash", "-c", script, **more)


def cell(source: str, **more: Any) -> Program:
    return Program(kind=ProgramKind.CELL, source=source, sys_path=tuple(sys.path), **more)


def placement(gpus: tuple[str, ...] = (), rank: int = 0, **resources: int) -> TaskPlacement:
    return TaskPlacement(
        role="worker", rank=rank, local_rank=rank, node=NODE.name, gpus=gpus, resources=Resources(resources)
    )


def make_order(attempt_id: str, program: Program, where: TaskPlacement, **more: Any) -> TaskOrder:
    return TaskOrder(
        job_id="job-1",
        job_number=7,
        job_name="a job",
        attempt_id=attempt_id,
        attempt_number=1,
        owner="unix:0",
        owner_name="somebody",
        queue="team-a",
        placement=where,
        world_size=1,
        master_addr="127.0.0.1",
        master_port=29500,
        program=program,
        **more,
    )


class Lab:
    """One scheduler process's backend after another over the same folders."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.data_dir = folder / "data"
        self.runtime_dir = folder / "run"
        self.blobs = FolderBlobs(folder / "blobs")
        self.events: list[EngineEvent] = []
        self.options = options
        self._count = 0
        # Leftovers are found by their attempt's id: labs of two test runs must not find each other's.
        self._name = uuid.uuid4().hex[:8]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.backend: LocalBackend
        self.open()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def open(self) -> None:
        """Bring up a backend, as a scheduler process does at its start."""

        async def make() -> None:
            self.backend = LocalBackend(
                data_dir=str(self.data_dir),
                runtime_dir=str(self.runtime_dir),
                nodes=[NODE],
                blobs=self.blobs,
                clock=SystemClock(),
                **self.options,
            )
            await self.backend.open(self.events.append)

        self.call(make())

    def go_away(self) -> None:
        """The scheduler goes: its connections end, its fork servers too, nothing else."""
        self.call(self.backend.close())
        self.events.clear()

    def close(self) -> None:
        self.call(self.backend.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)

    # -- tasks

    def start(self, program: Program, where: TaskPlacement | None = None, **more: Any) -> str:
        self._count += 1
        attempt_id = f"attempt-{self._name}-{self._count}"
        self.start_order(make_order(attempt_id, program, where or placement(), **more))
        return attempt_id

    def start_order(self, order: TaskOrder) -> None:
        self.call(self.backend.start(order))

    def adopt(self, *attempt_ids: str, reported_us: int = 0) -> None:
        tasks = [
            TaskAdoption(job_id="job-1", attempt_id=name, placement=placement(), reported_us=reported_us)
            for name in attempt_ids
        ]
        self.call(self.backend.adopt(tasks))

    def stop(self, attempt_id: str, cause: StopCause = StopCause.CANCEL, grace_s: float = 10.0) -> None:
        self.call(self.backend.stop(StopTask(attempt_id, 0, NODE.name, cause, grace_s)))

    # -- what came of them

    def of(self, attempt_id: str, *kinds: type) -> list[Any]:
        found = [event for event in list(self.events) if event.attempt_id == attempt_id]  # type: ignore[attr-defined]
        return [event for event in found if not kinds or isinstance(event, kinds)]

    def started(self, attempt_id: str) -> None:
        wait_until(lambda: self.of(attempt_id, TaskStarted, *LAST), "the start")
        assert self.of(attempt_id, TaskStarted), self.of(attempt_id)

    def last(self, attempt_id: str) -> Any:
        """The event that ends the task; there must be one only."""
        wait_until(lambda: self.of(attempt_id, *LAST), "the end")
        events = self.of(attempt_id, *LAST)
        assert len(events) == 1
        return events[0]

    def exit(self, attempt_id: str) -> TaskExit:
        event = self.last(attempt_id)
        assert isinstance(event, TaskEnded), event
        return event.exit

    def steps(self, attempt_id: str) -> list[int]:
        return [event.progress.step for event in self.of(attempt_id, StepReported)]

    def task_dir(self, attempt_id: str) -> Path:
        return self.data_dir / "tasks" / attempt_id / "worker.0"

    def mark(self, attempt_id: str, name: str) -> Path:
        """What a script calls $GPUCLUSTER_TASK_DIR.<name>: it stays when the folder is tidied."""
        return self.task_dir(attempt_id).with_name(f"worker.0.{name}")

    def frames(self, attempt_id: str) -> list[Frame]:
        """The whole log, through the reader, checked: no gap in the sequence."""
        reader = self.backend.log_reader(attempt_id, placement())
        data, offset = b"", 0
        while chunk := reader.read(offset, 1 << 20):
            data += chunk
            offset += len(chunk)
        frames = list(iter_frames(data))
        assert [frame.sequence for frame in frames] == list(range(len(frames)))
        return frames

    def output(self, attempt_id: str, kind: Kind = Kind.STDOUT) -> bytes:
        return b"".join(frame.payload for frame in self.frames(attempt_id) if frame.kind is kind)
