"""One task from the fork of its worker to the end of its last process: one thread, one loop over file descriptors."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Callable
from typing import Any

from gpucluster.worker import protocol
from gpucluster.worker.files import parse_object, remove_tree

from . import ending, folder, launch, processes
from .confinement import Confinement, Limits
from .control import ControlServer
from .crash import read_crash
from .exitfile import ExitFile, read_result
from .intake import Intake
from .log import LogWriter
from .steps import StepLog

#: After the worker's end its children may finish writing for that long (a `tee` behind it); then they are killed.
_DRAIN_S = 0.25
#: Log notices to agents: the first at once, later ones at most this often.
_NOTICE_S = 0.002
_CHECK_S = 5.0
_DISK_RETRY_S = 1.0
#: After the notice to stop, the signals that make Python see one which came just before a blocking call (protocol.py).
_REMINDERS_S = (0.2, 2.0)

RUNNING, DRAINING, KILLING, WRITING, OVER = "running", "draining", "killing", "writing", "over"


class Supervisor:
    """Runs one claimed task folder. `phase` goes RUNNING → DRAINING → KILLING → WRITING → OVER, never back.

    `release` gives the folder's lock back; called once exit.json stands there.
    """

    def __init__(
        self,
        task_dir: str,
        spec: dict[str, Any],
        secrets: dict[str, str],
        control_fd: int | None,
        is_warm: bool,
        release: Callable[[], None],
    ) -> None:
        self.task_dir = task_dir
        self.spec = spec
        self._release = release
        self._folder_inode = os.stat(task_dir).st_ino
        self.phase = RUNNING
        self.is_told = False  # exit.json stands there
        self.is_up = False
        self.is_suspended = False
        self._status: int | None = None
        self._start_problem: str | None = None
        self._stop_cause: str | None = None
        self._stop_at: float | None = None
        self._reminders: list[float] = []
        self._grace_s = 0.0
        self._killed_after_grace = False
        self._phase_until = 0.0
        self._next_check = time.monotonic() + _CHECK_S
        self._next_kill = 0.0
        self._kill_pause_s = 0.002
        self._noticed_bytes = 0
        self._noticed_at = 0.0
        self._folder_gone = False
        self._outcome: dict[str, Any] = {}

        self._selector = selectors.DefaultSelector()
        self._signals = self._listen_to_signals()
        self._worker = self._fork({**spec["env"], **secrets}, is_warm and spec["kind"] != "command")
        self._exit_file = ExitFile(task_dir)
        self.log = LogWriter(self._path(protocol.LOG), int(spec["log_limit_bytes"]))
        self.control = ControlServer(self._selector, spec["control"], self._handle)
        if control_fd is not None:
            self.control.adopt(control_fd)
        self.steps = StepLog(self._path(protocol.STEPS), int(spec["rank"]), self.control.broadcast)
        self.intake = Intake(self._selector, task_dir, self.log, self.steps, self._up)
        self.confinement = Confinement(self._task_id, Limits.from_spec(spec.get("limits") or {}))
        self._machine_ooms = ending.machine_oom_kills()

    @property
    def _task_id(self) -> str:
        return f"{self.spec['attempt_id']}.{self.spec['rank']}"

    def _path(self, name: str) -> str:
        return os.path.join(self.task_dir, name)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """To the end: returns when exit.json is written and told, and no process of the task is left."""
        self._start()
        while self.phase != OVER:
            self._turn()
        self._leave()

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._timeout()):
            if key.data is not None:
                key.data()
        self.intake.collect()
        self._reap()
        self._advance()
        self._flush()

    def _timeout(self) -> float:
        now = time.monotonic()
        times = [self._next_check]
        if self._stop_at is not None and self.phase == RUNNING:
            times += [self._stop_at, *self._reminders[:1]]
        if self.phase in (DRAINING, WRITING):
            times.append(self._phase_until)
        if self.phase == KILLING:
            times.append(self._next_kill)
        if self.log.size > self._noticed_bytes:
            times.append(self._noticed_at + _NOTICE_S)
        wait_s = self.steps.push_due()
        if wait_s is not None:
            times.append(now + wait_s)
        return max(min(times) - now, 0.0)

    def _listen_to_signals(self) -> int:
        reader, writer = os.pipe()
        for end in (reader, writer):
            os.set_blocking(end, False)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._selector.register(reader, selectors.EVENT_READ, self._on_signal)
        return reader

    def _on_signal(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if signal.SIGTERM in os.read(self._signals, 4096):
                self._stop("signal", float(self.spec["grace_s"]))

    # -- start ---------------------------------------------------------------------------------------------------------

    def _fork(self, env: dict[str, str], is_warm: bool) -> launch.Worker | None:
        """The worker, waiting at its gate; None when there can be none."""
        try:
            return launch.fork_worker(self.task_dir, self.spec, env, is_warm)
        except OSError as error:
            self._start_problem = f"cannot start a process: {error.strerror}"
            return None

    def _start(self) -> None:
        worker = self._worker
        if worker is None:
            self._never_ran(self._start_problem or "", retry=True)
            return
        try:
            folder.write_json(self._path(protocol.WORKER), self._worker_record(worker.pid))
        except OSError as error:
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
            self._never_ran(f"cannot write to the data folder: {error.strerror}", retry=True)
            return
        self.intake.attach(worker)
        self._selector.register(worker.status, selectors.EVENT_READ, self._on_start_status)
        launch.let_go(worker, self.confinement)

    def _worker_record(self, pid: int) -> dict[str, Any]:
        return {
            "pid": pid,
            "start_ticks": processes.start_ticks(pid),
            "boot_id": processes.boot_id(),
            "host": processes.host_name(),
            "session": pid,
            "cgroup": self.confinement.tree_group,
            "cgroups": self.confinement.groups,
            "limits": self.confinement.how,
        }

    def _never_ran(self, reason: str, retry: bool) -> None:
        self._start_problem = reason
        self._outcome = {"never_ran": True, "retry": retry}
        self._enter(WRITING)

    def _on_start_status(self) -> None:
        """The worker tells what went wrong on its way to its program, and closes this pipe when it begins."""
        worker = self._worker
        assert worker is not None
        while True:
            try:
                data = os.read(worker.status, 64 << 10)
            except BlockingIOError:
                return
            if not data:
                break
            for line in data.splitlines():
                self._on_start_trouble(parse_object(line) or {})
        self._selector.unregister(worker.status)
        os.close(worker.status)
        if self.spec["kind"] == "command" and self._start_problem is None:
            self._up({})

    def _on_start_trouble(self, what: dict[str, str]) -> None:
        if "refused" in what:
            self.confinement.give_up(what["refused"], what["why"])
        else:
            self._start_problem = what.get("problem", "its start went wrong")
            self._outcome = {"never_ran": True, "retry": False}

    def _up(self, details: dict[str, Any]) -> None:
        if self.is_up:
            return
        self.is_up = True
        means = {"limits": self.confinement.how, "limit_means": self.confinement.means}
        self.log.status_of({**details, **means, "event": "up"})
        self.control.broadcast({"event": "up"})

    # -- notices to agents ---------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self.log.flush()
        now = time.monotonic()
        if self.log.size > self._noticed_bytes and now >= self._noticed_at + _NOTICE_S:
            self._noticed_bytes = self.log.size
            self._noticed_at = now
            self.control.broadcast({"event": "log", "bytes": self.log.size})

    # -- commands ------------------------------------------------------------------------------------------------------

    def _handle(self, command: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
        operation = command.get("op")
        if operation == "hello":
            reply(self._hello(command))
        elif operation == "stop":
            self._stop(
                str(command.get("cause") or "signal"), _seconds(command.get("grace_s"), self.spec["grace_s"])
            )
        elif operation in ("suspend", "resume"):
            self._suspend(operation == "suspend")
        else:
            reply({"event": "error", "reason": f"unknown operation {operation!r}"})

    def _hello(self, command: dict[str, Any]) -> dict[str, Any]:
        ours = (protocol.PROTOCOL_MIN, protocol.PROTOCOL_MAX)
        theirs = command.get("protocol")
        version = protocol.common_version(ours, (int(theirs[0]), int(theirs[1]))) if theirs else None
        return {
            "event": "hello",
            "protocol": version,
            "state": self._state(),
            "up": self.is_up,
            "log_bytes": self.log.size,
            "steps_bytes": self.steps.size,
        }

    def _state(self) -> str:
        if self.phase != RUNNING:
            return "ending"
        if self._stop_cause is not None:
            return "stopping"
        if self.is_suspended:
            return "suspended"
        return "running" if self.is_up else "starting"

    def _stop(self, cause: str, grace_s: float) -> None:
        """Notice now, the end after the grace. Of several stops the stronger cause and the earlier end hold."""
        self._reap()  # a task that has ended already was never given notice
        if self.phase != RUNNING or self._worker is None:
            return
        is_first = self._stop_cause is None
        if self._stop_cause is None or _strength(cause) > _strength(self._stop_cause):
            self._stop_cause = cause
        end = time.monotonic() + grace_s
        if self._stop_at is None or end < self._stop_at:
            self._stop_at, self._grace_s = end, grace_s
        if not is_first:
            return
        self.log.status("notice", source="supervisor", cause=cause, grace_s=grace_s, signal="SIGTERM")
        with contextlib.suppress(OSError):  # gone, or of another user by now: the grace ends in any case
            os.killpg(self._worker.pid, signal.SIGTERM)
        self._reminders = [time.monotonic() + delay_s for delay_s in _REMINDERS_S]
        if self.is_suspended:  # a stopped process sees the notice only when it runs
            self._suspend(False)

    def _remind(self) -> None:
        del self._reminders[0]
        if self._worker is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._worker.pid, signal.SIGCONT)

    def _suspend(self, suspended: bool) -> None:
        if (
            suspended == self.is_suspended
            or self.phase != RUNNING
            or (suspended and self._stop_cause is not None)
        ):
            return
        self.is_suspended = suspended
        if not self.confinement.freeze(suspended):
            for pid in self._tree():
                processes.send_signal(pid, signal.SIGSTOP if suspended else signal.SIGCONT)
        self.log.status("suspended" if suspended else "resumed")

    def _tree(self) -> set[int]:
        return processes.descendants([os.getpid()], processes.all_processes())

    # -- the end -------------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Collect dead children: the worker, and orphans of its tree that came to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._worker is not None and pid == self._worker.pid:
                self._status = status
                self._on_worker_end()

    def _on_worker_end(self) -> None:
        if self.phase == RUNNING:
            self._enter(DRAINING)

    def _enter(self, phase: str) -> None:
        self.phase = phase
        now = time.monotonic()
        self._phase_until = now + (_DRAIN_S if phase == DRAINING else 0.0)
        self._next_kill = now

    def _advance(self) -> None:
        now = time.monotonic()
        if now >= self._next_check:
            self._check(now)
        if self.phase == RUNNING and self._reminders and now >= self._reminders[0]:
            self._remind()
        if self.phase == RUNNING and self._stop_at is not None and now >= self._stop_at:
            self._killed_after_grace = True
            self._enter(KILLING)
        if self.phase == DRAINING and (self._is_drained() or now >= self._phase_until):
            self._enter(KILLING)
        if self.phase == KILLING and now >= self._next_kill:
            self._kill(now)
        if self.phase == WRITING and now >= self._phase_until:
            self._write_exit(now)

    def _check(self, now: float) -> None:
        """Now and then: is the folder still there, and our socket?"""
        self._next_check = now + _CHECK_S
        try:
            self._folder_gone = os.stat(self.task_dir).st_ino != self._folder_inode
        except OSError:
            self._folder_gone = True
        if self._folder_gone and self.phase in (RUNNING, DRAINING):
            self._enter(KILLING)
        self.control.listen()

    def _is_drained(self) -> bool:
        return not self.intake.is_open or not _has_children()

    def _kill(self, now: float) -> None:
        """One round: kill the whole tree; go on once the last process has ended.

        There is no giving up: a process that the kernel cannot end yet still holds its GPU.
        """
        if _has_children():
            self.confinement.kill()
            processes.kill_round(lambda every: processes.descendants([os.getpid()], every))
            self._reap()
        if _has_children():
            self._next_kill = now + self._kill_pause_s
            self._kill_pause_s = min(self._kill_pause_s * 1.5, 0.5)
            return
        self.intake.drain()
        self.intake.take_crash(read_crash(self.task_dir, self.spec["bundle"]))
        self._enter(WRITING)
        self._outcome = {**self._describe(), **self._outcome}

    def _describe(self) -> dict[str, Any]:
        confinement = self.confinement
        facts = ending.Ending(
            status=self._status,
            stop_cause=self._stop_cause,
            grace_s=self._grace_s,
            killed_after_grace=self._killed_after_grace,
            oom_kills=confinement.oom_kills(),
            machine_oom=ending.machine_oom_kills() > self._machine_ooms,
            memory_limit=confinement.limits.memory_bytes,
            memory_by_rlimit=confinement.means.get("memory") == "rlimit",
            error_name=self.intake.error[0],
            error_value=self.intake.error[1],
            start_problem=self._start_problem,
            was_up=self.is_up,
            last_words=self.intake.last_words,
            lost_output_bytes=self.log.lost_bytes,
            lost_output_reason=self.log.lost_reason,
        )
        result, problem = read_result(self.task_dir)
        if problem is not None:
            result = {"notes": [problem]}
        return ending.describe(facts, result)

    def _write_exit(self, now: float) -> None:
        """Write exit.json; while the disk refuses, try again: the agent must not take this task for lost."""
        if self._folder_gone:
            self.confinement.remove()
            self.phase = OVER
            return
        if "code" not in self._outcome:
            self._outcome = {**self._describe(), **self._outcome}
        if not self._outcome.get("told"):
            self._outcome["told"] = True
            self.confinement.remove()
            self.log.status("ended", code=self._outcome["code"], reason=self._outcome["reason"])
            self.log.flush()
        outcome = {key: value for key, value in self._outcome.items() if key != "told"}
        try:
            self._exit_file.write(json.dumps(outcome).encode())
        except OSError:
            self._phase_until = now + _DISK_RETRY_S
            return
        self._release()
        self.is_told = True
        self._noticed_at = 0.0
        self._flush()
        self.control.broadcast({"event": "exit", **outcome})
        self.phase = OVER

    def _leave(self) -> None:
        self.log.close()
        self.steps.close()
        self.control.close()
        with contextlib.suppress(OSError):
            remove_tree(self._path("scratch"))


def _has_children() -> bool:
    """True while any process of the tree is left: as their reaper we are the parent of all orphans."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _seconds(value: Any, default: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return float(default)
    return seconds if seconds > 0 else 0.0  # NaN too


def _strength(cause: str) -> int:
    """Rank of a cause; one that a newer scheduler invented counts as the strongest."""
    return ending.STOP_CAUSES.index(cause) if cause in ending.STOP_CAUSES else len(ending.STOP_CAUSES)
