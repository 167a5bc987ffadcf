"""Blobs by SHA-256: resumable uploads, reading, sharing between jobs, and who may read what.

Knowing a hash is no right to read: a principal who did not bring the whole content itself must upload it, even when it
is stored already (then it is stored once). Rights: `blob_owners` (brought it, or owns the job that made it); readers
of a shared job are let in by the service, which knows the job (`blob_jobs`).

A blob lives as long as a row of `blob_refs` names it (written with the job, in one transaction) and a grace period
beyond; every use starts the period anew, so that what a submission on its way counts on is not collected under it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from sqlalchemy import Connection, delete, exists, select, update

from ..engine.protocols import Clock
from ..model.errors import Conflict, InvalidRequest, NotFound, TooLarge, Unavailable
from ..worker.files import NOT_A_FILE, open_regular
from . import tables
from .blob_files import BlobFiles, Damaged, LocalFiles, RemoteFiles, copy, reflink, sha256_of
from .database import Database, slices
from .dialect import insert_or_update
from .folder import DataFolder, explain_os_error, write_new

GRACE_S = 24 * 3600.0
#: An upload without a new chunk for this long is given up.
STALE_UPLOAD_S = 3 * 24 * 3600.0
MAX_BLOB_BYTES = 4 << 30
#: Left free for the database and the logs when blobs come in (but never more than a twentieth of the disk).
RESERVE_BYTES = 256 << 20

#: The last parts of a path that a task could have made: its folder, `result`, the file.
_THEIR_PARTS = 3
_HASH = re.compile(r"[0-9a-f]{64}")
_LOCKS = 64
_SHARDS_PER_COLLECTION = 16
_COLLECT_AT_ONCE = 200


class UploadStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a principal's upload is there; `complete` once the hash was checked and the blob is its."""

    hash: str
    received_bytes: int
    complete: bool


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of `collect` removed. `more`: it stopped at its limit, call again."""

    blobs: int = 0
    bytes: int = 0
    parts: int = 0
    more: bool = False


class BlobStore:
    """Blocking and safe on any thread. Implements BlobAccess of engine/protocols.py (`place`, `take`).

    Every method raises InvalidRequest for what is no SHA-256, Unavailable when disk or database fail.
    """

    def __init__(
        self,
        database: Database,
        folder: DataFolder,
        clock: Clock,
        *,
        url: str | None = None,
        grace_s: float = GRACE_S,
        max_blob_bytes: int = MAX_BLOB_BYTES,
    ) -> None:
        self._files: BlobFiles = RemoteFiles(url) if url else LocalFiles(folder.blobs)
        self._uploads = folder.uploads
        self._clock = clock
        self._rows = _BlobRows(database, round(grace_s * 1e6))
        self._grace_us = round(grace_s * 1e6)
        self._max_blob_bytes = max_blob_bytes
        self._locks = [threading.RLock() for _ in range(_LOCKS)]
        self._hashing: dict[Path, _Hashing] = {}
        self._next_shard = 0

    # ---- rights

    def missing(self, hashes: Iterable[str], principal_id: str) -> list[str]:
        """Those of the hashes that this principal has to upload, in order, each once. The others stay for the grace period."""
        wanted = list(dict.fromkeys(checked(blob_hash) for blob_hash in hashes))
        owned = self._rows.owned(wanted, principal_id)
        present = [blob_hash for blob_hash in wanted if blob_hash in owned and self._files.exists(blob_hash)]
        self._rows.touch(present, self._clock.now_us())
        there = set(present)
        return [blob_hash for blob_hash in wanted if blob_hash not in there]

    def may_read(self, blob_hash: str, principal_id: str) -> bool:
        """True when this principal brought the blob, or owns a job that made it."""
        return bool(self._rows.owned([checked(blob_hash)], principal_id))

    def blob_jobs(self, blob_hash: str) -> list[str]:
        """Ids of the jobs that the blob belongs to, newest first: who may read one of these may read it."""
        return self._rows.jobs(checked(blob_hash))

    def size(self, blob_hash: str) -> int:
        """Bytes. Raises NotFound."""
        return self.sizes([blob_hash])[blob_hash]

    def sizes(self, hashes: Iterable[str]) -> dict[str, int]:
        """Bytes by hash. Raises NotFound when one is not stored."""
        wanted = list(dict.fromkeys(checked(blob_hash) for blob_hash in hashes))
        found = self._rows.sizes(wanted)
        for blob_hash in wanted:
            if blob_hash not in found:
                raise _not_found(blob_hash)
        return found

    # ---- bringing content in

    def status(self, blob_hash: str, principal_id: str) -> UploadStatus:
        """How far this principal's upload is; the next chunk starts at `received_bytes`."""
        checked(blob_hash)
        if not self.missing([blob_hash], principal_id):
            return UploadStatus(hash=blob_hash, received_bytes=self.size(blob_hash), complete=True)
        return UploadStatus(
            hash=blob_hash, received_bytes=_file_size(self._part(blob_hash, principal_id)), complete=False
        )

    def upload(
        self, blob_hash: str, principal_id: str, offset: int, data: bytes, total_bytes: int
    ) -> UploadStatus:
        """Take in the chunk of an upload that begins at `offset`; the one that reaches `total_bytes` completes it.

        A chunk sent twice is harmless. Raises Conflict when `offset` is beyond what is there (`status` tells where to
        go on), InvalidRequest when the whole does not have this hash (then the upload is thrown away), TooLarge.
        """
        checked(blob_hash)
        self._check_extent(offset, len(data), total_bytes)
        part = self._part(blob_hash, principal_id)
        with self._lock(blob_hash):
            if not self.missing([blob_hash], principal_id):
                return UploadStatus(hash=blob_hash, received_bytes=total_bytes, complete=True)
            received = _file_size(part)
            if offset > received:
                raise Conflict(
                    f"The upload of {blob_hash} stands at {received} bytes, not at {offset}.",
                    field="offset",
                    hint="Ask for its status and go on from there.",
                )
            if offset == 0 and received == 0:
                self._check_room(total_bytes)
            self._write_chunk(part, offset, data, received)
            received = max(received, offset + len(data))
            if received < total_bytes:
                return UploadStatus(hash=blob_hash, received_bytes=received, complete=False)
            self._finish(part, blob_hash, principal_id)
        return UploadStatus(hash=blob_hash, received_bytes=total_bytes, complete=True)

    def put_bytes(self, data: bytes, principal_id: str) -> str:
        """Store small content at once; the principal owns it. Gives the hash."""
        blob_hash = hashlib.sha256(data).hexdigest()
        self.put_many({blob_hash: data}, principal_id)
        return blob_hash

    def put_many(self, contents: Mapping[str, bytes], principal_id: str) -> None:
        """Store several small contents by their hashes with one database transaction; the principal owns them.

        Raises InvalidRequest when content and hash differ; then none is stored.
        """
        for blob_hash, data in contents.items():
            if hashlib.sha256(data).hexdigest() != checked(blob_hash):
                raise InvalidRequest("blob", f"the content sent for {blob_hash} has another SHA-256")
            self._check_extent(0, len(data), len(data))
        self._check_room(sum(map(len, contents.values())))
        with contextlib.ExitStack() as held:
            for lock in sorted({self._lock_number(blob_hash) for blob_hash in contents}):
                held.enter_context(self._locks[lock])
            for blob_hash, data in contents.items():
                self._store_bytes(blob_hash, data)
            sizes = {blob_hash: len(data) for blob_hash, data in contents.items()}
            self._rows.add(sizes, principal_id, self._clock.now_us())

    def take(self, path: str | os.PathLike[str], blob_hash: str) -> None:
        """Take a finished file of a task in as a blob, by a copy of ours: the task may go on writing to its own.

        Who may read it follows from the job whose commit names it. Raises NotFound when there is no such file,
        InvalidRequest when it is no file, cannot be read or its SHA-256 is another, TooLarge.
        """
        checked(blob_hash)
        with self._lock(blob_hash), open(self._open_theirs(path), "rb", buffering=0) as source:
            part = self._uploads / f"{blob_hash}.{os.urandom(8).hex()}.taken"
            try:
                size = self._copy_in(source, part, blob_hash)
                if part.exists():
                    _sync(part)
                    self._files.adopt(part, blob_hash)
            except OSError as error:
                if error.errno == errno.EFBIG:
                    raise TooLarge(f"{path} is over the limit of {self._max_blob_bytes} bytes.") from error
                raise explain_os_error(error, f"{path} could not be taken in as a blob") from error
            finally:
                part.unlink(missing_ok=True)
            self._rows.add({blob_hash: size}, None, self._clock.now_us())

    def _open_theirs(self, path: str | os.PathLike[str]) -> int:
        try:
            return open_regular(path, max_bytes=self._max_blob_bytes, parts=_THEIR_PARTS)
        except FileNotFoundError as error:
            raise NotFound(f"There is no file {path} to take in.") from error
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise TooLarge(f"{path} is over the limit of {self._max_blob_bytes} bytes.") from error
            if error.errno in NOT_A_FILE:
                raise InvalidRequest(
                    "blob", f"{path} cannot be taken in: it is not a regular file"
                ) from error
            if isinstance(error, PermissionError):
                raise InvalidRequest("blob", f"{path} cannot be taken in: {error.strerror}") from error
            raise explain_os_error(error, f"{path} could not be taken in as a blob") from error

    def _copy_in(self, source: BinaryIO, part: Path, blob_hash: str) -> int:
        """Copy and check. Checked even when the blob is there (then no copy is left): a task that only claims to have
        its content gets no right to it.
        """
        is_needed = not self._files.is_sound(blob_hash)
        hasher = hashlib.sha256()
        with open(part if is_needed else os.devnull, "wb") as target:
            if is_needed and reflink(source, target):
                with open(part, "rb") as ours:
                    digest, size = sha256_of(ours), ours.tell()
            else:
                size = copy(source, target, hasher, self._max_blob_bytes)
                digest = hasher.hexdigest()
        if digest != blob_hash:
            raise InvalidRequest("blob", f"the file does not have the SHA-256 {blob_hash}")
        return size

    # ---- giving content out

    def open_read(self, blob_hash: str, offset: int = 0) -> BinaryIO:
        """The content from `offset` on. Raises NotFound. Asks for no right: the caller has checked (`may_read`)."""
        checked(blob_hash)
        try:
            file = self._files.open(blob_hash)
            if offset:
                file.seek(offset)
        except FileNotFoundError as error:
            raise _not_found(blob_hash) from error
        except Damaged as error:
            raise _damaged(blob_hash, error) from error
        except OSError as error:
            raise explain_os_error(error, f"The blob {blob_hash} cannot be read") from error
        return file

    def place(self, blob_hash: str, path: str | os.PathLike[str]) -> None:
        """Make the content appear as the read-only file `path`, whole from the start; see blob_files.py for how a task
        that has it is kept from changing the blob. Raises NotFound.
        """
        checked(blob_hash)
        try:
            self._files.place(blob_hash, Path(path))
        except FileNotFoundError as error:
            if self._files.exists(blob_hash):
                raise explain_os_error(error, f"The blob {blob_hash} cannot be placed at {path}") from error
            raise _not_found(blob_hash) from error
        except Damaged as error:
            raise _damaged(blob_hash, error) from error
        except OSError as error:
            raise explain_os_error(error, f"The blob {blob_hash} cannot be placed at {path}") from error

    # ---- collection

    def collect(self, now_us: int | None = None, limit: int = _COLLECT_AT_ONCE) -> Collected:
        """Remove, in a small slice, blobs that nothing refers to and nobody used for the grace period, files without a
        row (left by a crash), and uploads that were given up. What a job that has not ended needs is always referred to.
        """
        now = self._clock.now_us() if now_us is None else now_us
        before = now - self._grace_us
        candidates = self._rows.unreferenced(before, limit)
        freed = [size for blob_hash, size in candidates if self._collect_one(blob_hash, before)]
        strays = self._collect_strays(before)
        return Collected(
            blobs=len(freed) + strays,
            bytes=sum(freed),
            parts=self._collect_parts(now),
            more=len(candidates) == limit,
        )

    def _collect_one(self, blob_hash: str, before_us: int) -> bool:
        # Under the blob's lock nobody can take the same content in between the row and the file.
        with self._lock(blob_hash):
            if not self._rows.remove_unreferenced(blob_hash, before_us):
                return False
            try:
                self._files.remove(blob_hash)
            except OSError as error:
                raise explain_os_error(error, f"The blob {blob_hash} cannot be removed") from error
            return True

    def _collect_strays(self, before_us: int) -> int:
        """Files of a few shards (the next ones at the next call) that have no row and are old."""
        removed = 0
        for _ in range(_SHARDS_PER_COLLECTION):
            shard = f"{self._next_shard:02x}"
            self._next_shard = (self._next_shard + 1) % 256
            try:
                old = [name for name, modified_s in self._files.stored(shard) if modified_s * 1e6 < before_us]
                known = self._rows.sizes([name for name in old if _HASH.fullmatch(name)])
                removed += sum(self._remove_stray(name) for name in old if name not in known)
            except OSError as error:
                raise explain_os_error(error, "The blob folder cannot be cleaned") from error
        return removed

    def _remove_stray(self, name: str) -> bool:
        with self._lock(name):
            if _HASH.fullmatch(name) and self._rows.sizes([name]):
                return False
            self._files.remove(name)
            return True

    def _collect_parts(self, now_us: int) -> int:
        removed = 0
        with contextlib.suppress(FileNotFoundError):
            for path in self._uploads.iterdir():
                removed += self._remove_stale(path, now_us)
        return removed

    def _remove_stale(self, path: Path, now_us: int) -> bool:
        with self._lock(path.name), contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime * 1e6 < now_us - STALE_UPLOAD_S * 1e6:
                path.unlink()
                self._hashing.pop(path, None)
                return True
        return False

    # ---- parts of the above

    def _lock_number(self, name: str) -> int:
        """Of the lock of a blob and of the parts of its uploads, whose names begin with its hash."""
        return int.from_bytes(name[:8].encode(), "little") % _LOCKS

    def _lock(self, name: str) -> threading.RLock:
        return self._locks[self._lock_number(name)]

    def _part(self, blob_hash: str, principal_id: str) -> Path:
        """Each principal's upload is its own: going on with another's would give a right to what one does not have."""
        whose = hashlib.sha256(principal_id.encode()).hexdigest()[:16]
        return self._uploads / f"{blob_hash}.{whose}.part"

    def _check_extent(self, offset: int, length: int, total_bytes: int) -> None:
        if total_bytes > self._max_blob_bytes:
            raise TooLarge(
                f"A blob of {total_bytes} bytes is over the limit of {self._max_blob_bytes} bytes.",
                field="total_bytes",
            )
        if offset < 0 or total_bytes < 0 or offset + length > total_bytes:
            raise InvalidRequest(
                "offset", f"{length} bytes at {offset} do not lie in a blob of {total_bytes} bytes"
            )

    def _check_room(self, wanted_bytes: int) -> None:
        try:
            usage = shutil.disk_usage(self._uploads)
        except OSError as error:
            raise explain_os_error(error, f"The free space of {self._uploads} cannot be read") from error
        if wanted_bytes > usage.free - min(RESERVE_BYTES, usage.total // 20):
            raise Unavailable(
                f"The scheduler's disk is full: {usage.free >> 20} MiB are free, the upload has {wanted_bytes >> 20} MiB.",
                hint=f"Free some space at {self._uploads}, or send less.",
            )

    def _write_chunk(self, part: Path, offset: int, data: bytes, received: int) -> None:
        hashing = self._hashing.setdefault(part, _Hashing())
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _write_all(descriptor, offset, data)
            except OSError:
                os.ftruncate(descriptor, received)
                raise
            finally:
                os.close(descriptor)
        except OSError as error:
            if received == 0:
                part.unlink(missing_ok=True)
            self._hashing.pop(part, None)
            raise explain_os_error(error, "The upload could not be stored") from error
        hashing.add(offset, data)

    def _finish(self, part: Path, blob_hash: str, principal_id: str) -> None:
        hashing = self._hashing.pop(part, _Hashing())
        try:
            size = _sync(part)
            if hashing.digest_of(part, size) != blob_hash:
                part.unlink()
                raise InvalidRequest(
                    "blob",
                    f"the upload does not have the SHA-256 {blob_hash}; it was thrown away",
                    "Send it again.",
                )
            if self._files.is_sound(blob_hash):
                part.unlink()
            else:
                self._files.adopt(part, blob_hash)
        except OSError as error:
            raise explain_os_error(error, "The upload could not be stored") from error
        self._rows.add({blob_hash: size}, principal_id, self._clock.now_us())

    def _store_bytes(self, blob_hash: str, data: bytes) -> None:
        part = self._uploads / f"{blob_hash}.{os.urandom(8).hex()}.put"
        try:
            if self._files.is_sound(blob_hash):
                return
            write_new(part, data, 0o600)
            self._files.adopt(part, blob_hash)
        except OSError as error:
            raise explain_os_error(error, "The content could not be stored") from error
        finally:
            part.unlink(missing_ok=True)


class _Hashing:
    """The SHA-256 of an upload while it comes in order, so that its end need not read it all again."""

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()
        self._hashed = 0

    def add(self, offset: int, data: bytes) -> None:
        if offset == self._hashed:
            self._hasher.update(data)
            self._hashed += len(data)
        else:
            self._hashed = -1  # resumed after a restart, or a chunk was sent again: the file will be read

    def digest_of(self, path: Path, size: int) -> str:
        return self._hasher.hexdigest() if self._hashed == size else _digest_of(path)


class _BlobRows:
    """The tables blobs, blob_refs and blob_owners."""

    def __init__(self, database: Database, grace_us: int) -> None:
        self._database = database
        kind = database.dialect.kind
        self._add_blob = insert_or_update(kind, tables.blobs, ["hash"], ["last_used_us"])
        self._add_owner = insert_or_update(kind, tables.blob_owners, ["hash", "principal_id"], [])
        # A use is noted only when the last note is older than this: most uses then write nothing.
        self._touch_after_us = grace_us // 4

    def add(self, sizes: Mapping[str, int], principal_id: str | None, now_us: int) -> None:
        rows = [
            {"hash": blob_hash, "size": size, "created_us": now_us, "last_used_us": now_us}
            for blob_hash, size in sizes.items()
        ]
        owners = [
            {"hash": blob_hash, "principal_id": principal_id, "created_us": now_us} for blob_hash in sizes
        ]
        if not rows:
            return
        with self._database.writing("The blob could not be stored") as connection:
            connection.execute(self._add_blob, rows)
            if principal_id is not None:
                connection.execute(self._add_owner, owners)

    def owned(self, hashes: list[str], principal_id: str) -> set[str]:
        """Those that are stored and that this principal may read of its own right."""
        owners, stored = tables.blob_owners.c, tables.blobs.c
        found: set[str] = set()
        with self._database.reading() as connection:
            for some in slices(hashes):
                query = (
                    select(stored.hash)
                    .join(tables.blob_owners, owners.hash == stored.hash)
                    .where(owners.principal_id == principal_id, stored.hash.in_(some))
                )
                found.update(connection.execute(query).scalars())
        return found

    def jobs(self, blob_hash: str) -> list[str]:
        refs = tables.blob_refs.c
        query = select(refs.job_id).distinct().where(refs.hash == blob_hash).order_by(refs.job_id.desc())
        with self._database.reading() as connection:
            return list(connection.execute(query).scalars())

    def sizes(self, hashes: list[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        with self._database.reading() as connection:
            for some in slices(hashes):
                query = select(tables.blobs.c.hash, tables.blobs.c.size).where(tables.blobs.c.hash.in_(some))
                found.update((blob_hash, size) for blob_hash, size in connection.execute(query))
        return found

    def touch(self, hashes: list[str], now_us: int) -> None:
        """Start the grace period of these blobs anew."""
        before = now_us - self._touch_after_us
        stored = tables.blobs.c
        old: list[str] = []
        with self._database.reading() as connection:
            for some in slices(hashes):
                query = select(stored.hash).where(stored.hash.in_(some), stored.last_used_us < before)
                old += connection.execute(query).scalars()
        if not old:
            return
        with self._database.writing("The use of a blob could not be noted") as connection:
            for some in slices(old):
                connection.execute(
                    update(tables.blobs).where(stored.hash.in_(some)).values(last_used_us=now_us)
                )

    def unreferenced(self, before_us: int, limit: int) -> list[tuple[str, int]]:
        query = (
            select(tables.blobs.c.hash, tables.blobs.c.size)
            .where(_is_unreferenced(before_us))
            .order_by(tables.blobs.c.last_used_us)
            .limit(limit)
        )
        with self._database.reading() as connection:
            return [(blob_hash, size) for blob_hash, size in connection.execute(query)]

    def remove_unreferenced(self, blob_hash: str, before_us: int) -> bool:
        """Remove the rows of a blob if it is still unreferenced and unused."""
        with self._database.writing("A blob could not be removed") as connection:
            return _remove_rows(connection, blob_hash, before_us)


def _remove_rows(connection: Connection, blob_hash: str, before_us: int) -> bool:
    gone = connection.execute(
        delete(tables.blobs).where(tables.blobs.c.hash == blob_hash, _is_unreferenced(before_us))
    )
    if gone.rowcount == 0:
        return False
    connection.execute(delete(tables.blob_owners).where(tables.blob_owners.c.hash == blob_hash))
    return True


def _is_unreferenced(before_us: int) -> Any:
    referred = exists().where(tables.blob_refs.c.hash == tables.blobs.c.hash)
    return (tables.blobs.c.last_used_us < before_us) & ~referred


def checked(blob_hash: str) -> str:
    """The hash, if it is one. Raises InvalidRequest (it becomes part of a path)."""
    if not _HASH.fullmatch(blob_hash):
        raise InvalidRequest("hash", f"{blob_hash[:80]!r} is not a SHA-256 in lower-case hexadecimal")
    return blob_hash


def _digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return sha256_of(file)


def _damaged(blob_hash: str, error: Damaged) -> NotFound:
    return NotFound(f"There is no blob {blob_hash} any more: {error.strerror}.", hint="Send it again.")


def _not_found(blob_hash: str) -> NotFound:
    return NotFound(f"There is no blob {blob_hash}.")


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise explain_os_error(error, f"{path} cannot be read") from error


def _sync(path: Path) -> int:
    """Make the file durable; its size."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, offset: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        offset, view = offset + written, view[written:]
