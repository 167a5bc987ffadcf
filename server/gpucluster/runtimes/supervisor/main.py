"""Entry of a supervisor: claim the folder, or end without a trace; then run its task to the very end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from typing import Any

from gpucluster.worker import protocol

from . import folder, processes
from .supervise import Supervisor


def main(task_dir: str, control_fd: int | None = None, *, is_warm: bool = False) -> int:
    """Supervise the task of this folder. Returns when all is over, or at once when another one has claimed it.

    `control_fd`: a connection of the agent that asked for the start. `is_warm`: this process has loaded what a cell's
    worker needs and is of the right interpreter, so the worker is forked from it; else it is executed.
    """
    task_dir = os.path.abspath(task_dir)
    lock = folder.claim(task_dir)
    if lock is None:
        return 0
    supervisor = None
    try:
        if os.getsid(0) != os.getpid():
            _start_session()
        processes.become_subreaper()
        processes.set_name("gpucluster-sup")
        spec, secrets = _read_spec(task_dir), _take_secrets(task_dir)
        supervisor = Supervisor(task_dir, spec, secrets, control_fd, is_warm, lambda: os.close(lock))
        supervisor.run()
    except Exception as error:
        _keep_traceback(task_dir)
        if supervisor is None or not supervisor.is_told:
            _end_badly(task_dir, error)
        return 70
    return 0


def _start_session() -> None:
    """A session of its own: the terminal and the process group of whoever started it reach it no more."""
    try:
        os.setsid()
    except PermissionError:  # leader of a process group already
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _read_spec(task_dir: str) -> dict[str, Any]:
    spec = folder.read_json(os.path.join(task_dir, protocol.SPEC))
    if not isinstance(spec, dict):
        raise ValueError(f"{protocol.SPEC} is missing or damaged")
    if not protocol.DISK_FORMAT_MIN <= spec.get("format", 0) <= protocol.DISK_FORMAT:
        raise ValueError(f"{protocol.SPEC} has format {spec.get('format')}, which this version cannot read")
    return spec


def _take_secrets(task_dir: str) -> dict[str, str]:
    path = os.path.join(task_dir, protocol.SECRETS)
    secrets = folder.read_json(path)
    if os.path.exists(path):
        os.unlink(path)
    return secrets if isinstance(secrets, dict) else {}


def _keep_traceback(task_dir: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.join(task_dir, "supervisor.err"), flags, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            traceback.print_exc(file=file)


def _end_badly(task_dir: str, error: Exception) -> None:
    """A fault of ours or of the machine: nothing of the task may be left, and the agent is told."""
    while processes.kill_round(lambda every: processes.descendants([os.getpid()], every)):
        time.sleep(0.01)
    has_run = os.path.exists(os.path.join(task_dir, protocol.WORKER))
    outcome = {
        "code": 70,
        "reason": f"the supervisor failed: {type(error).__name__}: {error}",
        "ended_us": time.time_ns() // 1000,
    }
    if not has_run:
        outcome.update(never_ran=True, retry=isinstance(error, OSError))
    with contextlib.suppress(OSError):  # then the free lock tells that we died
        folder.write_json(os.path.join(task_dir, protocol.EXIT), outcome)
