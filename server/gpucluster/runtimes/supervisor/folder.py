"""The task folder seen from the supervisor and from a recovering agent: who claimed it, who holds it, atomic files.

Exactly once: the file `started` is created once, by whoever comes first. The supervisor takes the lock *before* it
creates `started`, and holds it while it lives. So `started` there and the lock free always means: that supervisor is
dead. A probing agent holds the lock for an instant only; a supervisor that meets it tries again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from typing import Any

from gpucluster.worker import protocol

from . import processes

_LOCK_PATIENCE_S = 10.0


def read_json(path: str) -> Any:
    """The file's content, or None when it is missing, empty or cut off."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except (OSError, ValueError):
        return None


def write_json(path: str, content: Any, mode: int = 0o600) -> None:
    """Write atomically: a reader sees the whole file or none. Raises OSError (disk full) and then leaves nothing."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        write_new(temporary, json.dumps(content).encode(), mode)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_new(path: str, data: bytes, mode: int = 0o600) -> None:
    """Create the file, or empty it, and write all of `data`. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def create_started(task_dir: str, by: str) -> bool:
    """Claim the folder for `by` ("supervisor" or "agent"); False when somebody did before."""
    path = os.path.join(task_dir, protocol.STARTED)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    pid = os.getpid()
    claim = {
        "by": by,
        "pid": pid,
        "start_ticks": processes.start_ticks(pid),
        "boot_id": processes.boot_id(),
        "time_us": time.time_ns() // 1000,
    }
    with contextlib.suppress(OSError):  # disk full: that the file is there is what counts
        os.write(descriptor, json.dumps(claim).encode())
    os.close(descriptor)
    return True


def try_lock(task_dir: str) -> int | None:
    """Take the folder's lock; returns the descriptor that holds it, None when another process holds it. Raises OSError."""
    descriptor = os.open(os.path.join(task_dir, protocol.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(task_dir: str) -> bool:
    """True while a supervisor (or another agent that looks) holds the folder's lock."""
    try:
        descriptor = try_lock(task_dir)
    except FileNotFoundError:
        return False
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def claim(task_dir: str) -> int | None:
    """Claim the folder as its supervisor: lock, then `started`. Returns the lock's descriptor, None when it came too late."""
    started = os.path.join(task_dir, protocol.STARTED)
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while not os.path.exists(started):
        descriptor = try_lock(task_dir)
        if descriptor is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.005)
            continue
        if create_started(task_dir, "supervisor"):
            return descriptor
        os.close(descriptor)
    return None
