"""One task as its agent follows it: from the order, or from a folder found after a restart, to its one last event.

Whatever happens, the folder decides (runtimes/taskfolder.py): events of the control socket only say when to look. The
socket's end without exit.json means that the supervisor died; then its task is ended before anything is reported.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from ..engine.events import StepReported, TaskEnded, TaskLost, TaskStarted, TaskStartFailed
from ..engine.protocols import BlobAccess, Clock, Emit, TaskOrder
from ..model.errors import Unavailable
from ..model.ids import time_of
from ..model.jobs import Progress, StopCause, TaskExit, TaskPlacement
from ..model.topology import Node
from ..runtimes import taskfolder
from ..runtimes.environment import task_id
from ..runtimes.process import ProcessRuntime
from ..runtimes.starting import StartFailed
from ..runtimes.supervisor import folder, processes
from ..runtimes.taskfolder import Finding, State
from ..worker import protocol
from . import control, reports
from .stepfeed import StepFeed

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.5
#: After a fault of ours, before the task is looked at again.
_FAULT_PAUSE_S = 5.0
_FIRST_STORE_PAUSE_S = 0.1
_LONGEST_STORE_PAUSE_S = 5.0

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Stop:
    """A stop that was asked for: its cause, and when its grace is over (boot-independent clock of this process)."""

    cause: StopCause
    end_s: float

    def command(self) -> dict[str, Any]:
        return {"op": "stop", "cause": self.cause.label, "grace_s": max(self.end_s - time.monotonic(), 0.0)}


class TaskFollower:
    """Follows one task; `emit` is called with its events. `log_bytes` and `is_over` serve the readers of its log."""

    def __init__(
        self,
        attempt_id: str,
        placement: TaskPlacement,
        task_dir: str,
        runtime: ProcessRuntime,
        blobs: BlobAccess,
        threads: Executor,
        clock: Clock,
        emit: Emit,
    ) -> None:
        self.attempt_id = attempt_id
        self.placement = placement
        self.task_dir = task_dir
        self.is_over = False
        self._runtime = runtime
        self._blobs = blobs
        self._threads = threads
        self._clock = clock
        self._emit = emit
        self._connection: control.ControlConnection | None = None
        self._stop: Stop | None = None
        self._stop_asked = asyncio.Event()
        self._was_started = False
        self._was_claimed = False  # a supervisor of this task has spoken to us
        self._was_there = False  # its folder has been seen
        self._is_given_up = False
        self._speaks = True  # some version of the control protocol that we know
        #: What a person should know about this task while it runs.
        self.note: str | None = None
        self._is_exit_told = False  # by the supervisor itself, on the connection that it was started with
        self._is_own = False  # the connection is that one
        self._steps = StepFeed(task_dir, self._task_id, self._bounds, self._step, self._in_thread)
        self._log_waiters: list[asyncio.Future[None]] = []

    @property
    def rank(self) -> int:
        return self.placement.rank

    async def _exists(self, name: str = "") -> bool:
        return await self._in_thread(os.path.lexists, os.path.join(self.task_dir, name).rstrip("/"))

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def _bounds(self) -> reports.Bounds:
        # Tasks go by the wall clock, ours may be behind it for a while when that was set.
        now_us = max(self._clock.now_us(), time.time_ns() // 1000)
        return reports.Bounds(rank=self.rank, earliest_us=time_of(self.attempt_id), now_us=now_us)

    # -- the ways in ---------------------------------------------------------------------------------------------------

    async def start(self, order: TaskOrder, node: Node) -> None:
        """Start the task and follow it to its end."""
        failure = None
        try:
            env = await self._runtime.prepare(order, node, self.task_dir)
            self._was_there = True
            connected = await self._runtime.spawn(order.program, env, self.task_dir, self._stop_asked)
            self._is_own = True
            await self._talk(await control.use(connected, self._on_event))
        except StartFailed as error:
            failure = error
        except Exception as error:  # whatever it is, the folder tells what came of the start
            self._stumble(error)
            failure = StartFailed(f"its start met a fault: {type(error).__name__}: {error}", retry=True)
        self._is_own = False
        if failure is not None and not self._was_there and not await self._exists():
            self._failed(
                failure.reason, failure.retry
            )  # not even prepared, so no supervisor was asked to run it
        else:
            await self._follow(failure)

    async def adopt(self, reported_us: int) -> None:
        """Follow a task that another scheduler process ordered; step reports up to `reported_us` are known."""
        self._steps.after_us = reported_us
        await self._follow(StartFailed("it had not started when the scheduler was restarted", retry=True))

    # -- following -----------------------------------------------------------------------------------------------------

    async def _follow(self, failure: StartFailed | None) -> None:
        """Look, act, look again, until the task is over. `failure`: why nothing may have started."""
        pause_s = _FIRST_PAUSE_S
        while not self.is_over:
            try:
                self._was_there = self._was_there or await self._exists()
                finding = await self._in_thread(taskfolder.inspect, self.task_dir)
                if finding.state is State.ALIVE and self._is_given_up:
                    await self._in_thread(taskfolder.kill_supervisor, self.task_dir)
                elif finding.state is State.ALIVE:
                    if await self._reconnect(finding):
                        pause_s = _FIRST_PAUSE_S
                        continue
                elif await self._settle(finding, failure):
                    return
            except OSError as error:  # a full disk, a folder that went away: what is true must be seen first
                logger.warning(
                    "the folder of task %s cannot be used, will try again: %s", self._task_id, error
                )
            except Exception as error:  # a fault of ours must not leave the task to itself
                self._stumble(error)
                pause_s = _FAULT_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, max(_LONGEST_PAUSE_S, pause_s))

    def _stumble(self, error: Exception) -> None:
        logger.exception("a fault while task %s was followed; it is looked at again", self._task_id)
        self.note = (
            f"could not be followed for a moment ({type(error).__name__}); the scheduler's log tells more"
        )

    async def _settle(self, finding: Finding, failure: StartFailed | None) -> bool:
        """Bring a task without supervisor to its last event; False when it must be looked at again."""
        state = finding.state
        if state is State.ELSEWHERE and not self._is_given_up:
            self._leave_alone(finding)
            return False
        # Only the claim itself decides: a supervisor may have come since the look.
        is_unclaimed = state is State.UNCLAIMED or (
            state is State.BEFORE_BOOT and not await self._exists(protocol.STARTED)
        )
        if is_unclaimed and not await self._in_thread(self._revoke):
            return False
        # Nothing of a task may be left when it is told over, whatever its folder says: the folder is the task's own.
        may_be_left = state not in (State.BEFORE_BOOT, State.ELSEWHERE) and not self._is_exit_told
        if may_be_left and await self._in_thread(taskfolder.kill_leftovers, self.task_dir, self._task_id) > 0:
            return False  # to be looked at again, until none of its processes is found any more
        if state is State.ENDED:
            await self._end(finding.exit or {})
        else:
            self._remove_socket()
            # By what was seen, not by what is there: the folder may have been deleted under a supervisor.
            has_gone = self._was_claimed or (self._was_there and not await self._exists())
            await self._in_thread(taskfolder.forget_secrets, self.task_dir)
            self._report_without_exit(finding, failure, has_gone)
        await self._tidy()
        return True

    def _leave_alone(self, finding: Finding) -> None:
        """Another machine runs it, or ran it: nothing can be told from here."""
        self.note = (
            f"claimed by another machine ({finding.host}): whether it still runs cannot be told from here; "
            "giving its node up (health lost) ends the wait"
        )

    async def _tidy(self) -> None:
        try:
            await self._in_thread(taskfolder.tidy, self.task_dir)
        except OSError as error:
            logger.warning("what task %s left could not be removed: %s", self._task_id, error)

    def _revoke(self) -> bool:
        if not self._was_there:
            taskfolder.make_empty(self.task_dir)
        return taskfolder.revoke(self.task_dir)

    def _report_without_exit(self, finding: Finding, failure: StartFailed | None, has_gone: bool) -> None:
        if finding.state in (State.UNCLAIMED, State.REVOKED) and has_gone:
            self._lost("its folder was removed; what was left of the task has been ended")
        elif finding.state is State.ELSEWHERE:
            self._lost(f"its node was given up; it had been claimed by another machine ({finding.host})")
        elif finding.state is State.DEAD and self._is_given_up:
            self._lost("its node was given up; the task has been ended")
        elif finding.state is State.DEAD:
            self._lost(
                f"its supervisor (process {finding.supervisor}) died; what was left of the task has been ended"
            )
        elif finding.state is State.BEFORE_BOOT:
            self._lost("its machine was restarted")
        elif finding.state is State.NEVER_RAN:
            self._failed("its supervisor died before the task began", retry=True)
        elif failure is not None:
            self._failed(failure.reason, failure.retry)
        else:
            self._failed("its supervisor died before it had claimed the task", retry=True)

    def _path(self, name: str) -> str:
        return os.path.join(self.task_dir, name)

    @property
    def _task_id(self) -> str:
        return task_id(self.attempt_id, self.rank)

    def _remove_socket(self) -> None:
        try:
            os.unlink(self._runtime.control_path(self.attempt_id, self.rank))
        except (OSError, StartFailed):
            pass

    async def _reconnect(self, finding: Finding) -> bool:
        """Speak with a living supervisor until it ends; False when that cannot be: then its lock is watched."""
        if self._speaks:
            spec = await self._in_thread(folder.read_json, self._path(protocol.SPEC))
            path = spec.get("control") if isinstance(spec, dict) else None
            connection = await control.connect(path, self._on_event) if isinstance(path, str) else None
            if connection is not None:
                await self._talk(connection)
                return True
        await self._watch(finding)
        return False

    async def _watch(self, finding: Finding) -> None:
        """One look at a task whose supervisor cannot be spoken to: its folder tells all but what happens at once."""
        if self._stop is not None and finding.supervisor:
            processes.send_signal(finding.supervisor, signal.SIGTERM)
        if await self._exists(protocol.WORKER):
            self._started()
        await self._steps.read()
        self._wake_log_waiters()

    async def _talk(self, connection: control.ControlConnection) -> None:
        self._connection = connection
        try:
            if self._stop is not None:
                connection.send(self._stop.command())
            if self._is_given_up:
                connection.close()
            await connection.closed
        except asyncio.CancelledError:
            self._steps.cancel()
            raise
        finally:
            self._connection = None
            connection.close()
        await self._steps.settle()

    # -- what the supervisor says --------------------------------------------------------------------------------------

    def _on_event(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind == "hello":
            self._on_hello(event)
        elif kind == "up":
            self._started()
        elif kind == "log":
            self._wake_log_waiters()
        elif kind == "step":
            self._steps.on_push(event)
        elif kind == "exit" and self._connection is not None:
            self._is_exit_told = self._is_own
            self._connection.close()  # exit.json is there; no need to wait for the other end
        elif kind == "error":
            logger.warning("the supervisor of %s refused a command: %s", self._task_id, event.get("reason"))

    def _on_hello(self, event: dict[str, Any]) -> None:
        self._was_claimed = True
        if event.get("protocol") is None:
            self._cannot_speak()
            return
        if event.get("up"):
            self._started()
        self._steps.on_size(event.get("steps_bytes"))
        self._wake_log_waiters()

    def _cannot_speak(self) -> None:
        """It is of another version than we are. Its end shows in the folder, and SIGTERM it understands."""
        self._speaks = False
        self.note = (
            "started by another version of gpucluster and only watched: output and progress come late, "
            "and a stop gives the grace period of the start"
        )
        logger.warning("task %s: %s", self._task_id, self.note)
        if self._connection is not None:
            self._connection.close()

    def _started(self) -> None:
        if not self._was_started:
            self._was_started = True
            self._emit(TaskStarted(self.attempt_id, self.rank))

    def _step(self, progress: Progress) -> None:
        self._emit(StepReported(self.attempt_id, progress))

    # -- the last event ------------------------------------------------------------------------------------------------

    async def _end(self, outcome: dict[str, Any]) -> None:
        await self._steps.read()
        self._remove_socket()
        if outcome.get("never_ran"):
            reason = reports.cut(outcome.get("reason")) or "it is not known why"
            self._failed(reason, outcome.get("retry") is True)
            return
        task_exit = await self._take_in(outcome)
        self._over(TaskEnded(self.attempt_id, self.rank, task_exit))

    async def _take_in(self, outcome: dict[str, Any]) -> TaskExit:
        """The exit with its result in the blobs, however long the store or the disk refuse it: the task holds its GPUs
        meanwhile, since its end cannot be told without what it made. A stop ends the wait when its grace is over.
        """
        pause_s = _FIRST_STORE_PAUSE_S
        while True:
            try:
                return await self._in_thread(
                    reports.to_exit, outcome, self.task_dir, self._blobs, self._bounds()
                )
            except (Unavailable, OSError) as error:
                reason = f"its result could not be stored: {error}"
                if self._stop is not None and time.monotonic() >= self._stop.end_s:
                    return reports.without_result(outcome, self._bounds(), reason)
                if self.note is None:
                    logger.warning("task %s: %s; tried again until it can", self._task_id, reason)
                self.note = "has ended, but its result cannot be stored yet; it holds its GPUs until it is"
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_STORE_PAUSE_S)

    def _failed(self, reason: str, retry: bool) -> None:
        self._over(TaskStartFailed(self.attempt_id, self.rank, reason, retry))

    def _lost(self, reason: str) -> None:
        self._over(TaskLost(self.attempt_id, self.rank, reason))

    def _over(self, event: TaskEnded | TaskStartFailed | TaskLost) -> None:
        self.is_over = True
        self._emit(event)
        self._wake_log_waiters()

    # -- what the backend asks -----------------------------------------------------------------------------------------

    def stop(self, cause: StopCause, grace_s: float) -> None:
        """Ask for the end. Of several stops the stronger cause and the earlier end hold."""
        asked = Stop(cause, time.monotonic() + grace_s)
        if self._stop is not None:
            asked = Stop(max(cause, self._stop.cause), min(asked.end_s, self._stop.end_s))
        self._stop = asked
        self._stop_asked.set()
        if self._connection is not None:
            self._connection.send(asked.command())

    def give_up(self) -> None:
        """End the task at once, whatever its supervisor says; what comes of it is told as ever."""
        self._is_given_up = True
        self._stop_asked.set()
        if self._connection is not None:
            self._connection.close()

    def suspend(self, suspended: bool) -> None:
        """Stop the task where it stands, or let it go on. Without a connection nothing happens."""
        if self._connection is not None:
            self._connection.send({"op": "suspend" if suspended else "resume"})

    async def log_grows(self) -> None:
        """Returns at the next sign that the log may have grown, or at once when it will not any more."""
        if self.is_over:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._log_waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._log_waiters:
                self._log_waiters.remove(waiter)

    def _wake_log_waiters(self) -> None:
        waiters, self._log_waiters = self._log_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
