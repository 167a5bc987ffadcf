"""The data folder: what lies where in it, its `version` file, and writing small files so that a crash leaves old or new.

gpucluster.sqlite3   the database          blobs/ab/<hash>   blobs, by SHA-256
uploads/             unfinished uploads    secrets/          secret environment of jobs, 0600
tasks/               task folders (the backend's)            version   JSON, see DataFolder.write_version
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec

from ..model.errors import GpuclusterError, Unavailable, VersionMismatch
from ..model.private import is_open, private_mode, why_not_private

#: Layout of the folder itself; the database has a schema version of its own.
FOLDER_FORMAT = 1
#: Files that SQLite keeps for one database: itself, and these beside it.
SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class VersionFile(msgspec.Struct, kw_only=True):
    """Content of the file `version`. Fields that a later version adds are ignored here: only the numbers decide."""

    format: int
    schema: int
    product: str
    written_us: int = 0


class DataFolder:
    """Paths of one data folder. Creating the object touches nothing; `create` makes the folders (mode 0700)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()
        self.database = self.path / "gpucluster.sqlite3"
        self.blobs = self.path / "blobs"
        self.uploads = self.path / "uploads"
        self.secrets = self.path / "secrets"
        self.tasks = self.path / "tasks"
        self.version = self.path / "version"

    def create(self) -> None:
        """Raises Unavailable when a folder cannot be made, is not private, or the data folder cannot be written to.

        What others may only read is closed; what they may have written to is refused, since all in here is trusted.
        """
        try:
            for folder in (self.path, self.blobs, self.uploads, self.secrets, self.tasks):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                make_private(folder)
            for file in self._files():
                make_private(file)
        except OSError as error:
            raise explain_os_error(error, f"The data folder {self.path} cannot be used") from error
        require_writable(self.path)

    def require_private(self) -> None:
        """The part of `create` that touches nothing: raises Unavailable for what others may have written to."""
        folders = (self.path, self.blobs, self.uploads, self.secrets, self.tasks)
        for path in (*folders, *self._files()):
            _stat_private(path)

    def _files(self) -> list[Path]:
        """The database, what SQLite keeps beside it, and `version`."""
        sides = [self.database.with_name(self.database.name + suffix) for suffix in SQLITE_SUFFIXES]
        return [*sides, self.version]

    def read_version(self) -> VersionFile | None:
        """None when there is no version file (a new folder). Raises Unavailable when it cannot be read or understood."""
        try:
            return msgspec.json.decode(self.version.read_bytes(), type=VersionFile)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain_os_error(error, f"{self.version} cannot be read") from error
        except msgspec.MsgspecError as error:
            raise Unavailable(
                f"{self.version} is damaged ({error}).",
                hint="Restore the file, or the whole data folder, from a copy.",
            ) from error

    def refuse_newer(self, schema: int, product: str) -> None:
        """Raises VersionMismatch when a newer version has used this folder. Touches nothing."""
        found = self.read_version()
        if found is not None and (found.format > FOLDER_FORMAT or found.schema > schema):
            raise newer_data(str(self.path), found.schema, schema, found.product, product)

    def write_version(self, schema: int, product: str, now_us: int) -> None:
        """Note who uses the folder; written only when something differs."""
        found = self.read_version()
        wanted = VersionFile(format=FOLDER_FORMAT, schema=schema, product=product, written_us=now_us)
        if found is None or (found.format, found.schema, found.product) != (FOLDER_FORMAT, schema, product):
            write_file(self.version, msgspec.json.encode(wanted))


def newer_data(
    where: str, found: int | str, ours: int, found_product: str | None, product: str
) -> VersionMismatch:
    """The refusal of data that a newer version wrote."""
    writer = f" (written by jupyter-gpucluster {found_product})" if found_product else ""
    return VersionMismatch(
        f"The data in {where} has schema version {found}{writer}; this is jupyter-gpucluster {product}, which knows "
        f"schema versions up to {ours}. Nothing was changed.",
        hint=f"Install {found_product or 'the newer version'} or later again, or give this version another data folder"
        " (data_dir in cluster.yaml).",
    )


def make_private(path: Path) -> None:
    """Close what others may read (a missing file or folder is fine). Raises Unavailable for what is not this user's own,
    OSError when it cannot be closed.
    """
    status = _stat_private(path)
    if status is not None and is_open(status):
        os.chmod(path, private_mode(status))


def _stat_private(path: Path) -> os.stat_result | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise explain_os_error(error, f"{path} cannot be used") from error
    trouble = why_not_private(path, status, os.geteuid())
    if trouble is not None:
        raise Unavailable(f"{trouble.reason}.", hint=trouble.hint or "Choose another data folder.")
    return status


def require_writable(path: Path) -> None:
    """Raises Unavailable when this user may not write the file or folder (a missing one is fine)."""
    effective = os.access in os.supports_effective_ids
    if path.exists() and not os.access(path, os.W_OK, effective_ids=effective):
        raise Unavailable(
            f"{path} is read-only for this user.", hint="Make it writable, or choose another data folder."
        )


def explain_os_error(error: OSError, what: str) -> GpuclusterError:
    """An operating-system error as Unavailable: `what` failed, why, and what to do."""
    if error.errno in _FULL:
        return Unavailable(
            f"{what}: the disk (or a quota on it) is full.", hint="Free some space there, then try again."
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return Unavailable(
            f"{what}: {error.strerror}.",
            hint="Make it writable for this user, or choose another data folder.",
        )
    return Unavailable(f"{what}: {error.strerror or error}.")


def write_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write `path` atomically and durably (temporary name, fsync, rename, fsync of the folder).

    Raises Unavailable; then the old content, if any, is still there and nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        write_new(temporary, data, mode)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise explain_os_error(error, f"{path} cannot be written") from error


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Create `path` with exactly this mode, write and fsync it. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Make renames and new names in the folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
