"""Where blobs lie: a local folder (hard links, renames) or any fsspec address. Content only; who may read it is blobs.py's.

A blob is `<first two letters of its hash>/<hash>`, read-only (0444): its file may be linked into a task's folder, where
the task must not be able to change it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from .folder import sync_folder

BLOB_MODE = 0o444


class BlobFiles(Protocol):
    """What blobs.py needs. Methods raise OSError (FileNotFoundError for a blob that is not there)."""

    def exists(self, blob_hash: str) -> bool: ...
    def adopt(self, source: Path, blob_hash: str) -> None:
        """Make the whole, checked and synced file `source` (on this machine, ours to move) the blob."""
        ...

    def open(self, blob_hash: str) -> BinaryIO: ...
    def place(self, blob_hash: str, path: Path) -> None:
        """The blob's content as the file `path`, at once and whole; replaces what is there."""
        ...

    def remove(self, blob_hash: str) -> None:
        """Harmless when it is not there."""
        ...

    def stored(self, shard: str) -> Iterator[tuple[str, float]]:
        """(name, modification time in seconds) of each file of the shard: blobs, and what a crash left of a copy."""
        ...


class LocalFiles:
    """A folder on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, blob_hash: str) -> Path:
        return self._folder / blob_hash[:2] / blob_hash

    def exists(self, blob_hash: str) -> bool:
        return self.path(blob_hash).exists()

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
        sync_folder(target.parent)

    def open(self, blob_hash: str) -> BinaryIO:
        return open(self.path(blob_hash), "rb")

    def place(self, blob_hash: str, path: Path) -> None:
        beside = _name_beside(path)
        try:
            link_or_copy(self.path(blob_hash), beside)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)

    def remove(self, blob_hash: str) -> None:
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


def link_or_copy(source: Path, target: Path) -> None:
    """The new file `target` with the content of `source`: a hard link where the disk allows it, else a copy."""
    try:
        os.link(source, target)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:  # another disk, too many links, a file system without links
        copy_durably(source, target)


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
