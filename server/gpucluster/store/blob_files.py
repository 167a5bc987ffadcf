"""Where blobs lie: a local folder or any fsspec address. Content only; who may read it is blobs.py's.

A blob is `<first two letters of its hash>/<hash>`, read-only (0444). A task runs as the same account, so it can change
what it is given, whatever its mode. Therefore a task gets a file of its own: a reflink where the file system has them,
else a copy. Only a blob over PRIVATE_COPY_BYTES, for which a copy takes seconds and disk, is given as a hard link: to one
task at a time, and nobody else is given anything of such a blob before its SHA-256 was checked again, unless nothing
has touched the file since the last check (size, times and inode tell; the kernel alone sets ctime).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from .folder import sync_folder

BLOB_MODE = 0o444
#: Up to here a task's own copy costs less than what it saves: about a tenth of a second on a common disk.
PRIVATE_COPY_BYTES = 128 << 20
_FICLONE = 0x40049409
_READ_BYTES = 1 << 20


class Damaged(OSError):
    """The content of a blob was changed; it has been removed."""


class BlobFiles(Protocol):
    """What blobs.py needs. Methods raise OSError (FileNotFoundError for a blob that is not there, Damaged)."""

    def exists(self, blob_hash: str) -> bool: ...
    def is_sound(self, blob_hash: str) -> bool:
        """It is there, and surely with its content: what brings the same content need not be kept. Cheap."""
        ...

    def adopt(self, source: Path, blob_hash: str) -> None:
        """Make the whole, checked and synced file `source` (on this machine, ours to move) the blob."""
        ...

    def open(self, blob_hash: str) -> BinaryIO: ...
    def place(self, blob_hash: str, path: Path) -> None:
        """The blob's content as the file `path`, at once and whole; replaces what is there. For a task, who may do
        with the file what it likes.
        """
        ...

    def remove(self, blob_hash: str) -> None:
        """Harmless when it is not there."""
        ...

    def stored(self, shard: str) -> Iterator[tuple[str, float]]:
        """(name, modification time in seconds) of each file of the shard: blobs, and what a crash left of a copy."""
        ...


Stamp = tuple[int, int, int, int]


class LocalFiles:
    """A folder on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: Of large blobs: how the file stood when its content was last known to be right.
        self._checked: dict[str, Stamp] = {}

    def path(self, blob_hash: str) -> Path:
        return self._folder / blob_hash[:2] / blob_hash

    def exists(self, blob_hash: str) -> bool:
        return self.path(blob_hash).exists()

    def is_sound(self, blob_hash: str) -> bool:
        try:
            found = os.stat(self.path(blob_hash))
        except FileNotFoundError:
            return False
        return found.st_size <= PRIVATE_COPY_BYTES or self._checked.get(blob_hash) == _stamp(found)

    def adopt(self, source: Path, blob_hash: str) -> None:
        target = self.path(blob_hash)
        if not target.parent.exists():
            target.parent.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self._folder)
        os.chmod(source, BLOB_MODE)
        try:
            os.replace(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:  # `blobs` may be a link to another disk
                raise
            beside = target.with_name(f"{blob_hash}.{os.urandom(4).hex()}.part")
            copy_durably(source, beside)
            os.replace(beside, target)
            source.unlink()
        self._note(blob_hash)
        sync_folder(target.parent)

    def _note(self, blob_hash: str) -> None:
        """The content is right as the file stands now."""
        found = os.stat(self.path(blob_hash))
        if found.st_size > PRIVATE_COPY_BYTES:
            self._checked[blob_hash] = _stamp(found)

    def open(self, blob_hash: str) -> BinaryIO:
        file = open(self.path(blob_hash), "rb")  # noqa: SIM115 (the caller's to close)
        try:
            self._require_sound(blob_hash, file)
        except OSError:
            file.close()
            raise
        return file

    def _require_sound(self, blob_hash: str, file: BinaryIO) -> None:
        """Check the content if it may have changed. Raises Damaged, and then the blob is gone."""
        before = os.fstat(file.fileno())
        if before.st_size <= PRIVATE_COPY_BYTES or self._checked.get(blob_hash) == _stamp(before):
            return
        is_right = sha256_of(file) == blob_hash
        file.seek(0)
        if not is_right:
            self.remove(blob_hash)
            raise Damaged(
                errno.EIO, "its content was changed by a task that it had been given to; it was removed"
            )
        if _stamp(os.fstat(file.fileno())) == _stamp(before):
            self._checked[blob_hash] = _stamp(before)

    def place(self, blob_hash: str, path: Path) -> None:
        beside = _name_beside(path)
        try:
            with self.open(blob_hash) as file:
                is_link = self._give(blob_hash, file, beside)
            os.replace(beside, path)
            if is_link:
                self._note(blob_hash)  # only now does nothing of ours change its times any more
        finally:
            beside.unlink(missing_ok=True)

    def _give(self, blob_hash: str, file: BinaryIO, target: Path) -> bool:
        """Make `target`; True when it is a link to the blob's own file."""
        found = os.fstat(file.fileno())
        with open(target, "xb") as writer:
            os.fchmod(writer.fileno(), BLOB_MODE)
            if reflink(file, writer):
                return False
        # One link is our own. Where there are more, a task has the file and may be changing it right now.
        if found.st_size > PRIVATE_COPY_BYTES and found.st_nlink == 1:
            with contextlib.suppress(OSError):  # another disk, a file system without links
                self._link(blob_hash, target)
                return True
        target.unlink()
        hasher = hashlib.sha256() if found.st_nlink > 1 else None
        with open(target, "xb") as writer:
            os.fchmod(writer.fileno(), BLOB_MODE)
            copy(file, writer, hasher)
        if hasher is not None and hasher.hexdigest() != blob_hash:
            self.remove(blob_hash)
            raise Damaged(
                errno.EIO, "its content was changed by a task that it had been given to; it was removed"
            )
        return False

    def _link(self, blob_hash: str, target: Path) -> None:
        linked = _name_beside(target)
        os.link(self.path(blob_hash), linked)
        os.replace(linked, target)

    def remove(self, blob_hash: str) -> None:
        self._checked.pop(blob_hash, None)
        self.path(blob_hash).unlink(missing_ok=True)

    def stored(self, shard: str) -> Iterator[tuple[str, float]]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder / shard) as entries:
            for entry in entries:
                if not entry.name.startswith(shard):
                    continue  # not ours
                with contextlib.suppress(FileNotFoundError):
                    yield entry.name, entry.stat().st_mtime


class RemoteFiles:
    """Any address that fsspec opens (`s3://bucket/path`, `memory://…`)."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self._fs, self._root = url_to_fs(url)

    def _path(self, blob_hash: str) -> str:
        return f"{self._root}/{blob_hash[:2]}/{blob_hash}"

    def exists(self, blob_hash: str) -> bool:
        return bool(self._fs.exists(self._path(blob_hash)))

    def is_sound(self, blob_hash: str) -> bool:
        return self.exists(blob_hash)  # no task ever holds more than a copy

    def adopt(self, source: Path, blob_hash: str) -> None:
        target = self._path(blob_hash)
        self._fs.makedirs(self._fs._parent(target), exist_ok=True)
        self._fs.put_file(str(source), target)
        source.unlink()

    def open(self, blob_hash: str) -> BinaryIO:
        opened: Any = self._fs.open(self._path(blob_hash), "rb")
        return opened  # type: ignore[no-any-return]

    def place(self, blob_hash: str, path: Path) -> None:
        beside = _name_beside(path)
        try:
            self._fs.get_file(self._path(blob_hash), str(beside))
            os.chmod(beside, BLOB_MODE)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)

    def remove(self, blob_hash: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(blob_hash))

    def stored(self, shard: str) -> Iterator[tuple[str, float]]:
        with contextlib.suppress(FileNotFoundError):
            for entry in self._fs.ls(f"{self._root}/{shard}", detail=True):
                path = str(entry["name"])
                yield path.rsplit("/", 1)[-1], self._fs.modified(path).timestamp()


def _name_beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def reflink(source: BinaryIO, target: BinaryIO) -> bool:
    """Make `target` share the blocks of `source` until either is written to; False where that cannot be."""
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


def copy(source: BinaryIO, target: BinaryIO, hasher: Any = None, max_bytes: int | None = None) -> int:
    """Copy all of it and feed `hasher` with it; the number of bytes. Raises OSError (EFBIG over `max_bytes`)."""
    size = 0
    while block := source.read(_READ_BYTES):
        size += len(block)
        if max_bytes is not None and size > max_bytes:
            raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes")
        if hasher is not None:
            hasher.update(block)
        target.write(block)
    target.flush()
    return size


def sha256_of(file: BinaryIO) -> str:
    """Of the rest of the file, in hexadecimal."""
    hasher = hashlib.sha256()
    while block := file.read(_READ_BYTES):
        hasher.update(block)
    return hasher.hexdigest()


def copy_durably(source: Path, target: Path) -> None:
    """Copy and fsync; on a failure nothing is left at `target`."""
    try:
        with open(source, "rb") as reader, open(target, "xb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
            writer.flush()
            os.fsync(writer.fileno())
        os.chmod(target, BLOB_MODE)
    except OSError:
        target.unlink(missing_ok=True)
        raise
