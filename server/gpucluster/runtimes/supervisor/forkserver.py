"""A warm process from which supervisors are forked, and from these their workers: what is loaded once is loaded for all.

It speaks with the agent over one socket, JSON objects, one a line, one request at a time:
    {"op": "preload"}                               answered by {"ok": true, "python": "3.11.7"} once all is loaded
    {"op": "spawn", "task_dir": …, "warm": bool}    with the supervisor's end of a control connection attached to it
                                                    (SCM_RIGHTS); answered by {"ok": true, "pid": …}
An error is answered by {"ok": false, "reason": …}. At the end of the socket it ends; its supervisors live on in sessions
of their own. It never has a second thread.
"""

from __future__ import annotations

import array
import gc
import json
import os
import platform
import signal
import socket
import traceback
from typing import Any

from . import processes
from .launch import close_descriptors
from .main import main as supervise


def main(descriptor: int) -> int:
    """Serve requests on this socket until its other end closes."""
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # the kernel collects supervisors that end; they set their own
    processes.set_name("gpucluster-fork")
    gc.freeze()  # what is here stays shared with the forks: no collection of theirs touches it
    with socket.socket(fileno=descriptor) as connection:
        while True:
            line, attached = _receive(connection)
            if not line:
                return 0
            try:
                answer = _serve(json.loads(line), attached)
            except Exception as error:
                answer = {"ok": False, "reason": f"{type(error).__name__}: {error}"}
            finally:
                for number in attached:
                    os.close(number)
            try:
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                return 0


def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """One line and the descriptors that came with it; nothing at the end of the stream."""
    data, attached = b"", array.array("i")
    while not data.endswith(b"\n"):
        try:
            more, ancillary, _, _ = connection.recvmsg(64 << 10, socket.CMSG_LEN(8 * attached.itemsize))
        except OSError:
            more, ancillary = b"", []
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                attached.frombytes(content[: len(content) - len(content) % attached.itemsize])
        if not more:
            return b"", list(attached)
        data += more
    return data, list(attached)


def _serve(request: dict[str, Any], attached: list[int]) -> dict[str, Any]:
    if request["op"] == "preload":
        return _preload()
    if request["op"] == "spawn":
        pid = _spawn(request["task_dir"], attached[0] if attached else None, bool(request.get("warm")))
        return {"ok": True, "pid": pid}
    return {"ok": False, "reason": f"unknown operation {request['op']!r}"}


def _preload() -> dict[str, Any]:
    from gpucluster.worker.main import preload

    preload()
    return {"ok": True, "python": platform.python_version()}


def _spawn(task_dir: str, control_fd: int | None, is_warm: bool) -> int:
    """Fork the supervisor; returns its pid. Its session is its own, and it outlives us."""
    pid = os.fork()
    if pid == 0:
        _become_supervisor(task_dir, control_fd, is_warm)
    return pid


def _become_supervisor(task_dir: str, control_fd: int | None, is_warm: bool) -> None:
    """In the supervisor: never returns."""
    code = 70
    try:
        os.setsid()
        keep = {0, 1, 2} if control_fd is None else {0, 1, 2, control_fd}
        close_descriptors(keep)
        code = supervise(task_dir, control_fd, is_warm=is_warm)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
