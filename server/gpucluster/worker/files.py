"""Reading and writing files where somebody else may have put something. Standard library only.

A task may do with its folder what it likes: put a FIFO, a link, a folder or a device where a file should be. Whoever
reads there opens once, without following links and without waiting, looks at what was opened, and reads from that.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from typing import Any

_READ_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: What opening says when there is something at the path that is no file: a link, a folder, a socket, a device.
NOT_A_FILE = frozenset({errno.ELOOP, errno.EISDIR, errno.ENOTDIR, errno.ENXIO, errno.ENODEV, errno.EINVAL})
#: The largest JSON file of a task folder: spec.json with its source and environment.
MAX_JSON_BYTES = 64 << 20


def open_regular(path: str | os.PathLike[str], *, max_bytes: int | None = None, parts: int = 1) -> int:
    """A descriptor to read the file from. Never waits, follows no link in the last `parts` parts of the path.

    Raises OSError: of NOT_A_FILE when something else is there, EFBIG when it is larger than `max_bytes`.
    """
    head, *names = _split(os.path.abspath(path), parts)
    folder = None if len(names) == 0 else os.open(head, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            below = os.open(name, _FOLDER, dir_fd=folder)
            os.close(folder)  # type: ignore[arg-type]
            folder = below
        descriptor = os.open(names[-1] if names else head, _READ_ONLY, dir_fd=folder)
    finally:
        if folder is not None:
            os.close(folder)
    try:
        _require_regular(os.fstat(descriptor), path, max_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _split(path: str, parts: int) -> list[str]:
    """The path as [head, *the names of its last parts]; a single part needs no folder opened before it."""
    if parts <= 1:
        return [path]
    names: list[str] = []
    for _ in range(parts):
        path, name = os.path.split(path)
        names.insert(0, name)
    return [path, *names]


def _require_regular(found: os.stat_result, path: str | os.PathLike[str], max_bytes: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    if max_bytes is not None and found.st_size > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", os.fspath(path))


def read_regular(path: str | os.PathLike[str], max_bytes: int, *, parts: int = 1) -> bytes:
    """The whole content of a regular file of at most that size. Raises OSError as `open_regular`."""
    descriptor = open_regular(path, max_bytes=max_bytes, parts=parts)
    with open(descriptor, "rb", buffering=0) as file:
        pieces, size = [], 0
        while piece := file.read(min(1 << 20, max_bytes + 1 - size)):
            pieces.append(piece)
            size += len(piece)
            if size > max_bytes:  # it grows while we read
                raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", os.fspath(path))
        return b"".join(pieces)


def read_json(path: str | os.PathLike[str], max_bytes: int = MAX_JSON_BYTES) -> Any:
    """The content of a JSON file; None when it is missing, no file, cut off, too large or no JSON."""
    try:
        return parse_json(read_regular(path, max_bytes))
    except OSError:
        return None


def parse_json(data: bytes) -> Any:
    """The value, or None for what is no JSON, or nested so deep that nobody can have meant it."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def parse_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object, or None for anything else."""
    value = parse_json(data)
    return value if isinstance(value, dict) else None


def write_new(path: str, data: bytes, mode: int = 0o600) -> None:
    """Create the file and write all of `data`. Raises OSError, FileExistsError when there is anything at the path."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it where the descriptor stands. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_json(path: str, content: Any, mode: int = 0o600) -> None:
    """Write atomically: a reader sees the whole file or none. Raises OSError (disk full) and then leaves nothing."""
    temporary = f"{path}.{os.urandom(6).hex()}.tmp"
    try:
        write_new(temporary, json.dumps(content).encode(), mode)
        replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def replace(source: str, target: str) -> None:
    """Rename over whatever is at the target; a folder that somebody put there is moved aside. Raises OSError."""
    try:
        os.rename(source, target)
    except (IsADirectoryError, NotADirectoryError):
        os.rename(target, f"{target}.{os.urandom(6).hex()}.aside")
        os.rename(source, target)


def remove_tree(path: str) -> None:
    """Remove a file or a folder with all that is in it, links not followed; what forbids it is allowed first.

    Folders are moved up before they are emptied, so that no depth is too deep. Somebody else may be doing the same.
    Raises OSError when something stays.
    """
    pending, patience = [path], 100
    while pending:
        folder = pending[-1]
        try:
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                os.unlink(folder)
            else:
                below = _empty(folder, path)
                pending += below
                if below:
                    continue
                os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            patience -= 1
            if error.errno != errno.ENOTEMPTY or not patience:
                raise
            continue  # something came into it meanwhile
        pending.pop()


def _empty(folder: str, top: str) -> list[str]:
    """Remove the files of the folder; its folders are moved into `top` if they are deeper. Gives the latter's paths."""
    os.chmod(folder, 0o700)
    below = []
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        with contextlib.suppress(FileNotFoundError):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)  # a folder that may not be written to cannot be moved
            place = entry.path
            if folder != top:
                place = os.path.join(top, f".{os.urandom(8).hex()}")
                os.rename(entry.path, place)
            below.append(place)
    return below
