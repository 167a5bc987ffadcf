"""exit.json: told whatever the disk and the task do. And what a task left that is read for it: result.json."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any

from gpucluster.worker import protocol
from gpucluster.worker.files import parse_object, read_regular, replace, write_all, write_new

#: exit.json is written into blocks that were taken at the start: a full disk cannot keep the end from being told.
_RESERVE_BYTES = 64 << 10
MAX_RESULT_BYTES = 4 << 20


class ExitFile:
    """Reserves the room for exit.json when made, before the task runs. Raises OSError when the disk is full."""

    def __init__(self, task_dir: str) -> None:
        self._task_dir = task_dir
        self._path = os.path.join(task_dir, protocol.EXIT)
        self._reserve = f"{self._path}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor = os.open(self._reserve, flags, 0o600)
        try:
            os.posix_fallocate(self._descriptor, 0, _RESERVE_BYTES)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                os.close(self._descriptor)
                raise

    def write(self, data: bytes) -> None:
        """Make it the content of exit.json. Raises OSError; may be called again then.

        The task is over, but what it put in the way is still there: a folder, a link, a folder that takes nothing.
        """
        with contextlib.suppress(OSError):
            os.chmod(self._task_dir, 0o700)
        if self._is_ours():
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            write_all(self._descriptor, data)
            os.ftruncate(self._descriptor, len(data))
            replace(self._reserve, self._path)
            return
        temporary = f"{self._path}.{os.urandom(6).hex()}.tmp"
        try:
            write_new(temporary, data)
            replace(temporary, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _is_ours(self) -> bool:
        """Is what we reserved still at its place, and only there?"""
        try:
            there, ours = os.lstat(self._reserve), os.fstat(self._descriptor)
        except OSError:
            return False
        return (there.st_dev, there.st_ino, ours.st_nlink) == (ours.st_dev, ours.st_ino, 1)

    def close(self) -> None:
        os.close(self._descriptor)


def read_result(task_dir: str) -> tuple[Any, str | None]:
    """(the content of result.json or None, why it cannot be used or None)."""
    try:
        data = read_regular(os.path.join(task_dir, protocol.RESULT), MAX_RESULT_BYTES)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"the result's description cannot be used: {error.strerror}"
    content = parse_object(data)
    return content, None if content is not None else "the result's description is no JSON object"
