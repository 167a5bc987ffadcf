"""Fork of the worker: its own session, dead when its supervisor dies, nothing inherited but what it is meant to have.

The child waits at a gate until the supervisor has written who it is (worker.json) and says which groups it is to enter.
So no program of a task ever runs unknown: a folder without worker.json means that nothing ran. It is forked first of all,
so that its side and the supervisor's get ready at the same time.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpucluster.worker import protocol

from . import processes
from .channels import PacketReader, RawPipe
from .confinement import Confinement

#: File descriptors of the worker.
MESSAGE_FD = 3
_GATE_FD = 4
_STATUS_FD = 5
#: The kernel's out-of-memory killer takes a task before it takes its supervisor or the scheduler.
_OOM_SCORE = 300


class Worker(NamedTuple):
    """What the supervisor holds of its worker. `gate`: see `let_go`. `status`: what hindered its start."""

    pid: int
    messages: PacketReader
    stdout: RawPipe
    stderr: RawPipe
    gate: int
    status: int


def fork_worker(task_dir: str, spec: Mapping[str, Any], env: dict[str, str], is_warm: bool) -> Worker:
    """Fork the worker; it waits at the gate. Raises OSError when the system has no process or descriptor left."""
    stdout, stderr, gate, status = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    ours, theirs = socket.socketpair()
    env = {**env, protocol.ENV_MESSAGE_FD: str(MESSAGE_FD), protocol.ENV_TASK_DIR: task_dir}
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        wanted = {
            1: stdout[1],
            2: stderr[1],
            MESSAGE_FD: theirs.fileno(),
            _GATE_FD: gate[0],
            _STATUS_FD: status[1],
        }
        _child(parent, wanted, task_dir, spec, env, is_warm)
    for descriptor in (stdout[1], stderr[1], gate[0], status[1]):
        os.close(descriptor)
    theirs.close()
    os.set_blocking(status[0], False)
    return Worker(pid, PacketReader(ours), RawPipe(stdout[0]), RawPipe(stderr[0]), gate[1], status[0])


def let_go(worker: Worker, confinement: Confinement) -> None:
    """Let it run, in these groups and limits."""
    with contextlib.suppress(BrokenPipeError):
        os.write(worker.gate, json.dumps(confinement.tell()).encode())
    os.close(worker.gate)


def _child(
    parent: int,
    wanted: dict[int, int],
    task_dir: str,
    spec: Mapping[str, Any],
    env: dict[str, str],
    is_warm: bool,
) -> None:
    """In the worker: never returns."""
    code = 127
    try:
        os.setsid()
        processes.die_with_parent(parent)
        _reset_signals(for_python=is_warm)
        _arrange_descriptors(wanted)
        confinement = _wait_at_gate()
        for group, why in confinement.enter():
            _tell({"refused": group, "why": why})
        _prepare(spec, confinement)
        if is_warm:
            code = _run_warm(task_dir, env)
        else:
            _execute(task_dir, spec, env)
    except _StartProblem as problem:
        _tell({"problem": str(problem)})
    except BaseException as error:
        with contextlib.suppress(OSError):
            _tell({"problem": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(code)


def _wait_at_gate() -> Confinement:
    with open(_GATE_FD, "rb", buffering=0) as gate:
        told = gate.read()
    if not told:  # the supervisor could not, or died
        os._exit(127)
    return Confinement.told(json.loads(told))


def _tell(what: dict[str, str]) -> None:
    """One line to the supervisor about the start; it reads them when the status pipe closes."""
    os.write(_STATUS_FD, json.dumps(what).encode() + b"\n")


class _StartProblem(Exception):
    pass


def _reset_signals(for_python: bool) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if for_python:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    else:
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _arrange_descriptors(wanted: dict[int, int]) -> None:
    """Put each descriptor at its number, /dev/null at 0, and close all others (locks and sockets of the supervisor)."""
    high = {number: fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, 64) for number, source in wanted.items()}
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, source in high.items():
        os.dup2(source, number, inheritable=number <= MESSAGE_FD)
    close_descriptors({0, *wanted})


def close_descriptors(keep: set[int]) -> None:
    """Close every descriptor of this process but these."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _prepare(spec: Mapping[str, Any], confinement: Confinement) -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(_OOM_SCORE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        raise _StartProblem(f"cannot use the working directory {spec['cwd']}: {error.strerror}") from None
    confinement.set_rlimits()


def _run_warm(task_dir: str, env: dict[str, str]) -> int:
    from gpucluster.worker.main import run_task

    _mark_environment(env)
    processes.set_name("gpucluster-task")
    os.close(_STATUS_FD)
    os.set_inheritable(MESSAGE_FD, False)
    try:
        code = run_task(task_dir, MESSAGE_FD, env)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    return int(code or 0)


def _execute(task_dir: str, spec: Mapping[str, Any], env: dict[str, str]) -> None:
    if spec["kind"] == "command":
        arguments = list(spec["command"])
    else:
        start = os.path.join(spec["bundle"], "start.py")
        arguments = [spec["interpreter"], start, "worker", task_dir, str(MESSAGE_FD)]
    try:
        os.execvpe(arguments[0], arguments, env)
    except OSError as error:
        raise _StartProblem(f"cannot run {arguments[0]}: {error.strerror}") from None


def _mark_environment(env: Mapping[str, str]) -> None:
    """Write the task's mark over the place that the fork server kept for it in its start environment.

    A forked process shows in /proc the environment its ancestor was executed with. The mark must stand there, so that
    the worker and whatever it forks can be found when the supervisor is dead.
    """
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    begin, end = int(fields[47]), int(fields[48])
    if not 0 < begin < end:
        return
    name = f"{protocol.ENV_TASK_ID}=".encode()
    place = ctypes.string_at(begin, end - begin).find(name + PLACEHOLDER.encode())
    value = env.get(protocol.ENV_TASK_ID, "").encode()
    if place >= 0 and len(value) <= len(PLACEHOLDER):
        ctypes.memmove(begin + place + len(name), value.ljust(len(PLACEHOLDER), b"\0"), len(PLACEHOLDER))


#: The value of the mark in a fork server's environment, longer than any task's.
PLACEHOLDER = "-" * 96
