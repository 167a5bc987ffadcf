"""The task folder seen from the supervisor and from a recovering agent: who claimed it, who holds it, atomic files.

Exactly once: the file `started` is created once, by whoever comes first. The supervisor takes the lock *before* it
creates `started`, and holds it while it lives. So `started` there and the lock free always means: that supervisor is
dead. A probing agent holds the lock for an instant only; a supervisor that meets it tries again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time

from gpucluster.worker import protocol
from gpucluster.worker.files import NOT_A_FILE, read_json, write_json

from . import processes

__all__ = ["claim", "create_started", "is_locked", "lock_holder", "read_json", "try_lock", "write_json"]

_LOCK_PATIENCE_S = 10.0


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
        "host": processes.host_name(),
        "time_us": time.time_ns() // 1000,
    }
    with contextlib.suppress(OSError):  # disk full: that the file is there is what counts
        os.write(descriptor, json.dumps(claim).encode())
    os.close(descriptor)
    return True


def try_lock(task_dir: str, create: int = os.O_CREAT) -> int | None:
    """Take the folder's lock; returns the descriptor that holds it, None when another process holds it. Raises OSError."""
    path = os.path.join(task_dir, protocol.LOCK)
    flags = os.O_RDWR | create | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(task_dir: str) -> bool:
    """True while a supervisor (or another agent that looks) holds the folder's lock. Raises OSError.

    What is no file (a task may put anything there) is held by nobody.
    """
    try:
        descriptor = try_lock(task_dir, create=0)
    except OSError as error:
        if error.errno == errno.ENOENT or error.errno in NOT_A_FILE:
            return False
        raise
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def lock_holder(task_dir: str) -> int | None:
    """The pid that holds the folder's lock, as far as the kernel's table tells; None when it does not."""
    try:
        found = os.lstat(os.path.join(task_dir, protocol.LOCK))
        with open("/proc/locks", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:
        return None
    where = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    pids = [int(line[4]) for line in lines if line[1] == "FLOCK" and line[5] == where]
    return next((pid for pid in pids if pid > 0), None)


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
