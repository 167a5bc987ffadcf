"""All that is particular to one database engine: connecting, durability, backup, upserts, what its errors mean.

SQLite is here; PostgreSQL joins as a second class with the same methods. No other module holds SQL of one engine only.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, LargeBinary, Table, cast, create_engine, event, func
from sqlalchemy.dialects import sqlite as sqlite_dialect
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import NullPool, QueuePool

from ..model.errors import GpuclusterError, Unavailable
from .folder import SQLITE_SUFFIXES, explain_os_error, require_writable, sync_folder

#: Readers of the API at the same time; more wait for a connection.
READ_CONNECTIONS = 8
_WAL_KEPT_BYTES = 64 << 20

#: What SQLite's messages mean: (part of the message, sentence, hint). The first that fits counts.
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (
        "disk is full",
        "the disk of the data folder is full",
        "Free some space on the disk of {path}, then try again.",
    ),
    (
        "is locked",
        "another program holds a lock on the database",
        "See what has it open (lsof {path}) and end it, then try again.",
    ),
    (
        "readonly database",
        "the database is read-only",
        "Make {path} and its folder writable for this user, then try again.",
    ),
    (
        "disk i/o error",
        "the disk reports an error",
        "See the system's log (dmesg) and the free space on the disk of {path}, then try again.",
    ),
    (
        "malformed",
        "the database file is damaged",
        "Stop the scheduler and put back a copy of {path} (backups made before an upgrade lie beside it).",
    ),
    (
        "not a database",
        "the file is not a database",
        "Move {path} away, or put back a copy (backups made before an upgrade lie beside it).",
    ),
    (
        "unable to open",
        "the database file cannot be opened",
        "Check that {path} is there and that this user may read and write it and its folder.",
    ),
)


def insert_or_update(connection_kind: str, table: Table, keys: Sequence[str], update: Sequence[str]) -> Any:
    """INSERT that becomes an update of the columns `update` where a row of the same `keys` stands ([] = leave it)."""
    if connection_kind != "sqlite":
        raise NotImplementedError(f"no upsert for {connection_kind}")
    statement = sqlite_dialect.insert(table)
    if not update:
        return statement.on_conflict_do_nothing(index_elements=list(keys))
    return statement.on_conflict_do_update(
        index_elements=list(keys), set_={name: statement.excluded[name] for name in update}
    )


def stored_bytes(connection_kind: str, column: Any) -> Any:
    """The bytes that a text column takes in a row (its length in characters may be a fraction of them)."""
    if connection_kind != "sqlite":
        raise NotImplementedError(f"no size of a text for {connection_kind}")
    return func.length(cast(column, LargeBinary))


class Sqlite:
    """One SQLite file. `network` names the network file system it lies on: then no WAL (it needs shared memory)."""

    kind = "sqlite"

    def __init__(self, path: Path, *, network: str | None = None, busy_timeout_s: float = 5.0) -> None:
        self.path = path
        self.network = network
        self.busy_timeout_s = busy_timeout_s
        self._identity: tuple[int, int] | None = None

    # ---- opening

    def exists(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    def require_file(self) -> None:
        """Raises Unavailable when there is no database yet."""
        if not self.exists():
            raise Unavailable(
                f"There is no database at {self.path}.",
                hint="Start the scheduler there once, or see the path.",
            )

    def require_writable(self) -> None:
        """Raises Unavailable when the file, or one that SQLite keeps beside it, is read-only.

        Asked before connecting: SQLite would make its side files as read-only as the database, and leave them so.
        """
        for suffix in SQLITE_SUFFIXES:
            require_writable(Path(f"{self.path}{suffix}"))

    def create_file(self) -> None:
        """Make the (empty) file with mode 0600; SQLite gives its side files the same. Raises Unavailable."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise explain_os_error(error, f"The database {self.path} cannot be opened") from error

    def settle_journal(self) -> None:
        """WAL on a local disk, a rollback journal on a network one; also converts a file that came from elsewhere."""
        wanted = "delete" if self.network else "wal"
        try:
            with contextlib.closing(self._connect(alone=True)) as connection:
                connection.execute(f"PRAGMA journal_mode={wanted}").fetchone()
            found = self.path.stat()
        except (sqlite3.Error, OSError) as error:
            raise self.explain(error, "The database could not be opened") from error
        self._identity = (found.st_dev, found.st_ino)

    def write_engine(self) -> Engine:
        """One connection at a time; a transaction takes the write lock when it begins, so that it cannot fail halfway."""
        return self._engine(self._connect, "BEGIN IMMEDIATE", poolclass=NullPool)

    def read_engine(self) -> Engine:
        """A pool of readers that see one snapshot for each transaction and cannot change data.

        They are not opened with mode=ro: such a connection cannot roll back what a crash left half done.
        """
        connect = functools.partial(self._connect, query_only=True)
        return self._engine(
            connect, "BEGIN", poolclass=QueuePool, pool_size=READ_CONNECTIONS, max_overflow=0, pool_timeout=30
        )

    def probe_engine(self) -> Engine:
        """As `read_engine`, for a look at a file whose journal is not settled yet."""
        return self._engine(
            functools.partial(self._connect, query_only=True, alone=True), "BEGIN", poolclass=NullPool
        )

    def _engine(self, connect: Callable[[], sqlite3.Connection], begin: str, **pool: Any) -> Engine:
        engine = create_engine("sqlite://", creator=connect, **pool)

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            connection.exec_driver_sql(begin)

        return engine

    def _connect(self, *, query_only: bool = False, alone: bool = False) -> sqlite3.Connection:
        """`alone`: no other connection of ours is open. On a network file system a WAL file is then read without shared
        memory.
        """
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw",  # never creates: a file that has gone is an error, not a new database
            uri=True,
            timeout=self.busy_timeout_s,
            isolation_level=None,  # transactions begin and end where we say
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            if alone and self.network:
                connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA foreign_keys=ON")
            # Durable when COMMIT returns. In rollback-journal mode only EXTRA syncs the folder after the journal is gone.
            connection.execute(f"PRAGMA synchronous={'EXTRA' if self.network else 'FULL'}")
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute(f"PRAGMA journal_size_limit={_WAL_KEPT_BYTES}")
            if query_only:
                connection.execute("PRAGMA query_only=ON")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    # ---- while it runs

    def check_file(self) -> None:
        """Raises Unavailable when the file was removed or replaced: commits would go into a file that nobody finds again."""
        try:
            found = os.stat(self.path)
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._identity:
            raise Unavailable(
                f"The database {self.path} was removed or replaced while the scheduler ran.",
                hint="Put the file back, or restart the scheduler to go on with what is there now.",
            )

    def backup(self, target: Path) -> None:
        """A consistent copy of the database, durable on return. Raises Unavailable; then no file is left."""
        partial = target.with_name(target.name + ".part")
        try:
            with (
                contextlib.closing(self._connect(query_only=True)) as source,
                contextlib.closing(sqlite3.connect(partial)) as copy,
            ):
                source.backup(copy)
            os.chmod(partial, 0o600)
            descriptor = os.open(partial, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            os.replace(partial, target)
            sync_folder(target.parent)
        except (sqlite3.Error, OSError) as error:
            for leftover in (partial, Path(f"{partial}-journal")):
                leftover.unlink(missing_ok=True)
            raise self.explain(error, f"The backup {target} could not be made") from error

    def explain(self, error: BaseException, what: str) -> GpuclusterError:
        """Any failure of the database as Unavailable: `what` failed, why, what to do."""
        if isinstance(error, OSError):
            return explain_os_error(error, what)
        cause = getattr(error, "orig", None) or error
        if isinstance(error, IntegrityError):
            return Unavailable(
                f"{what}: it contradicts what is stored ({cause}). Nothing was written.",
                hint="If this comes again for the same request, it is a fault of the scheduler: please report it.",
            )
        message = str(cause).lower()
        for part, sentence, hint in _MEANINGS:
            if part in message:
                return Unavailable(
                    f"{what}: {sentence} ({cause}). Nothing was written.", hint=hint.format(path=self.path)
                )
        return Unavailable(f"{what}: {cause}. Nothing was written.", hint=f"The database is {self.path}.")
