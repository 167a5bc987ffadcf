"""The local backend: one logical agent per declared node, all on this machine, in the scheduler's event loop.

Tasks belong to their supervisors and folders, not to this process: when it goes, they run on, and the next one adopts
them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from ..engine.events import EngineEvent, TaskStartFailed
from ..engine.instructions import StopTask
from ..engine.protocols import BlobAccess, Clock, Emit, TaskAdoption, TaskOrder
from ..model.errors import Conflict, Unavailable
from ..model.jobs import Program, TaskPlacement
from ..model.topology import Node
from ..runtimes import taskfolder
from ..runtimes.limits import CpuLimit
from ..runtimes.process import DEFAULT_LOG_LIMIT_BYTES, ProcessRuntime
from ..runtimes.threads import DaemonThreads
from ..worker import protocol
from ..worker.files import remove_tree
from .follower import TaskFollower
from .reports import log_bytes, whole_frames

logger = logging.getLogger(__name__)

_THREADS = 8
_IDLE_CHECK_S = 60.0
#: A reader that waits for the log of a task which no agent knows yet looks again after this time.
_UNKNOWN_PAUSE_S = 0.2
_LOOPBACK = "127.0.0.1"


class LocalBackend:
    """Runs tasks on this machine (engine/protocols.py, *Backend*). `data_dir` holds folders of tasks, `runtime_dir` sockets."""

    def __init__(
        self,
        *,
        data_dir: str,
        runtime_dir: str,
        nodes: Sequence[Node],
        blobs: BlobAccess,
        clock: Clock,
        log_limit_bytes: int = DEFAULT_LOG_LIMIT_BYTES,
        cpu_limit: CpuLimit = CpuLimit.SHARE,
        pids_limit: int | None = None,
    ) -> None:
        self._data_dir = os.path.abspath(data_dir)
        self._nodes = {node.name: node for node in nodes}
        self._blobs = blobs
        self._clock = clock
        self._threads = DaemonThreads(_THREADS, "gpucluster-agent")
        self._runtime = ProcessRuntime(
            data_dir=data_dir,
            runtime_dir=runtime_dir,
            blobs=blobs,
            threads=self._threads,
            log_limit_bytes=log_limit_bytes,
            cpu_limit=cpu_limit,
            pids_limit=pids_limit,
        )
        self._followers: dict[tuple[str, int], TaskFollower] = {}  # until they have told the end
        self._work: set[asyncio.Task[None]] = set()
        self._emit_to_engine: Emit | None = None
        self._is_closed = False

    async def open(self, emit: Emit) -> Sequence[Node]:
        """Bring the runtime up; returns the nodes. Raises Unavailable when the data folder cannot be used."""
        self._emit_to_engine = emit
        await self._runtime.open()
        self._spawn(self._close_idle())
        return list(self._nodes.values())

    def _emit(self, event: EngineEvent) -> None:
        if self._emit_to_engine is not None and not self._is_closed:
            self._emit_to_engine(event)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a task could not be followed", exc_info=task.exception())

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(_IDLE_CHECK_S)
            self._runtime.close_idle()

    # -- tasks ---------------------------------------------------------------------------------------------------------

    async def start(self, order: TaskOrder) -> None:
        """Start a task; the same (attempt, rank) again does nothing."""
        placement = order.placement
        if (order.attempt_id, placement.rank) in self._followers:
            return
        node = self._nodes.get(placement.node)
        if node is None:
            self._emit(
                TaskStartFailed(
                    order.attempt_id, placement.rank, f"there is no node {placement.node} here", retry=True
                )
            )
            return
        follower = self._follower(order.attempt_id, placement)
        if follower is not None:
            self._spawn(self._follow(follower, follower.start(order, node)))

    async def adopt(self, tasks: Iterable[TaskAdoption]) -> None:
        """Take over what an earlier scheduler process ordered: each task ends in exactly one event (see *Backend*)."""
        for task in tasks:
            if (task.attempt_id, task.placement.rank) in self._followers:
                continue
            follower = self._follower(task.attempt_id, task.placement)
            if follower is not None:
                self._spawn(self._follow(follower, follower.adopt(task.reported_us)))

    async def _follow(self, follower: TaskFollower, work: Coroutine[Any, Any, None]) -> None:
        """To the end of the task. Then nobody need be kept: who asks again is answered by its folder."""
        await work
        self._followers.pop((follower.attempt_id, follower.rank), None)

    def _follower(self, attempt_id: str, placement: TaskPlacement) -> TaskFollower | None:
        try:
            task_dir = self._runtime.task_folder(attempt_id, placement.role, placement.rank)
        except ValueError as error:
            self._emit(TaskStartFailed(attempt_id, placement.rank, str(error), retry=False))
            return None
        follower = TaskFollower(
            attempt_id,
            placement,
            task_dir,
            self._runtime,
            self._blobs,
            self._threads,
            self._clock,
            self._emit,
        )
        self._followers[attempt_id, placement.rank] = follower
        return follower

    async def stop(self, instruction: StopTask) -> None:
        """Ask for a task's end. One that is over, or unknown, needs none: its last event is on its way or was told."""
        follower = self._followers.get((instruction.attempt_id, instruction.rank))
        if follower is None:
            logger.warning("asked to stop the unknown task %s.%s", instruction.attempt_id, instruction.rank)
            return
        follower.stop(instruction.cause, instruction.grace_s)

    async def give_up(self, node: str) -> None:
        """End all tasks of a node and report them lost when they are surely over. All nodes are this machine, so that
        takes no longer than their processes need to go; no grace, since a lost node would give none.
        """
        for follower in self._followers.values():
            if follower.placement.node == node and not follower.is_over:
                follower.give_up()

    def meeting_point(self, placements: Sequence[TaskPlacement]) -> tuple[str, int]:
        """All nodes are this machine: a port of the loopback address that nobody listens on now."""
        with socket.socket() as probe:
            probe.bind((_LOOPBACK, 0))
            return _LOOPBACK, int(probe.getsockname()[1])

    def task_notes(self) -> Mapping[tuple[str, int], str]:
        """What a person should know about running tasks, by (attempt id, rank)."""
        return {
            key: follower.note
            for key, follower in self._followers.items()
            if follower.note is not None and not follower.is_over
        }

    def running_folders(self) -> dict[tuple[str, int], str]:
        """The folders of the tasks that are not over, by (attempt id, rank)."""
        return {key: one.task_dir for key, one in self._followers.items() if not one.is_over}

    async def warm(self, program: Program, owner: str) -> None:
        """Prepare a fork server for programs like this one."""
        self._spawn(self._runtime.warm(program))

    # -- logs and files ------------------------------------------------------------------------------------------------

    def log_reader(self, attempt_id: str, placement: TaskPlacement) -> FileLogReader:
        """The log of one task, running or ended. Raises ValueError for names that cannot be part of a path."""
        task_dir = self._runtime.task_folder(attempt_id, placement.role, placement.rank)
        return FileLogReader(self, attempt_id, placement.rank, os.path.join(task_dir, protocol.LOG))

    def follower(self, attempt_id: str, rank: int) -> TaskFollower | None:
        """Who follows that task, if anybody does."""
        return self._followers.get((attempt_id, rank))

    async def discard(self, attempt_id: str) -> None:
        """Remove an ended attempt's files. Raises Conflict while a task of it is not over, Unavailable when some stay."""
        if any(name == attempt_id and not one.is_over for (name, _), one in self._followers.items()):
            raise Conflict(f"The attempt {attempt_id} has not ended.")
        folder = taskfolder.attempt_folder(self._data_dir, attempt_id)
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, remove_tree, folder)
        except OSError as error:
            raise Unavailable(
                f"The files of the attempt {attempt_id} could not be removed: {error}",
                hint=f"Remove {folder} by hand, or make it removable; it is tried again.",
            ) from error

    async def close(self) -> None:
        """Let go without ending tasks: supervisors keep them."""
        self._is_closed = True
        work = list(self._work)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await self._runtime.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class FileLogReader:
    """Reads a task's log file (engine/protocols.py, *LogReader*); woken by the notices of its supervisor."""

    def __init__(self, backend: LocalBackend, attempt_id: str, rank: int, path: str) -> None:
        self._backend = backend
        self._attempt_id = attempt_id
        self._rank = rank
        self._path = path

    def size(self) -> int:
        """Bytes that stand in the log now."""
        return log_bytes(self._path)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole records from `offset`. Raises ValueError when none begins there."""
        return whole_frames(self._path, offset, max_bytes)

    async def wait(self, offset: int) -> None:
        """Returns when the log may have grown beyond `offset`, or will not grow any more."""
        while self.size() <= offset:
            follower = self._backend.follower(self._attempt_id, self._rank)
            if follower is not None:
                if follower.is_over:
                    return
                await follower.log_grows()
            elif os.path.exists(self._path):
                return
            else:
                await asyncio.sleep(_UNKNOWN_PAUSE_S)
                return
