"""One open store: the database, the blobs and the secrets of one data folder. What service and driver are given.

store = Store.open(data_dir, clock)     store.commit(…), store.recover()        the engine's Journal
store.get_job(…), store.list_jobs(…)    reads (queries.py)
store.blobs, store.secrets              content and secret environment of jobs
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence

import msgspec
from sqlalchemy import delete, insert, update
from sqlalchemy.exc import SQLAlchemyError

from .. import __version__
from ..engine.protocols import ChangeSet, Clock, Recovered
from ..model.errors import Conflict, InvalidRequest
from ..model.ids import make_id
from ..model.jobs import Share
from ..model.queues import QueueSpec
from . import schema, tables
from .blobs import BlobStore
from .codec import encode
from .database import Database
from .dialect import Sqlite, insert_or_update
from .filesystem import network_file_system
from .folder import DataFolder
from .journal import SqlJournal
from .queries import Queries
from .retention import Retention, RetentionPolicy
from .rows import queue_row
from .secrets import Secrets


class Store(Queries):
    """Made by `Store.open`. `commit` and `recover` on one thread at a time, everything else on any."""

    def __init__(self, folder: DataFolder, database: Database, clock: Clock, blob_url: str | None) -> None:
        super().__init__(database)
        self.folder = folder
        self.database = database
        self.journal = SqlJournal(database, self)
        self.blobs = BlobStore(database, folder, clock, url=blob_url)
        self.secrets = Secrets(folder.secrets)

    @classmethod
    def open(
        cls,
        data_dir: str | os.PathLike[str],
        clock: Clock,
        *,
        read_only: bool = False,
        blob_url: str | None = None,
        busy_timeout_s: float = 5.0,
    ) -> Store:
        """Open (and first make, or bring up to date) the data folder.

        Opening takes the folder over: a store that another process opened before gets Superseded at its next write, so
        call this only once the scheduler's lock is held. `read_only` takes nothing over and writes nothing; it is what
        tools use beside a running scheduler. `blob_url`: an fsspec URL for the blobs instead of the folder's `blobs/`.

        Raises VersionMismatch for data of a newer version (nothing is touched), Unavailable when it cannot be opened.
        """
        if "://" in os.fspath(data_dir):
            raise InvalidRequest(
                "data_dir",
                f"{os.fspath(data_dir)!r} is a database address; this version stores in a folder (SQLite)",
                "Give the path of a folder.",
            )
        folder = DataFolder(data_dir)
        product = __version__
        head = schema.head_version()
        folder.require_private()
        folder.refuse_newer(head, product)
        dialect = Sqlite(
            folder.database, network=network_file_system(folder.path), busy_timeout_s=busy_timeout_s
        )
        if read_only:
            dialect.require_file()
            schema.require_current(schema.stored_version(dialect), dialect, product)
            return cls(folder, Database(dialect, None), clock, blob_url)
        folder.create()
        _prepare(dialect, product, clock.now_us())
        folder.write_version(head, product, clock.now_us())
        return cls(folder, Database(dialect, _claim(dialect, clock.now_us())), clock, blob_url)

    def commit(self, changes: ChangeSet) -> None:
        """See SqlJournal.commit."""
        self.journal.commit(changes)

    def recover(self) -> Recovered:
        """See SqlJournal.recover."""
        return self.journal.recover()

    def share_ended(self, job_id: str, share: Share) -> None:
        """Change who may read a job that has ended; of one that has not, the engine owns the record.

        Raises NotFound, Conflict when it has not ended, Unavailable.
        """
        job = self.get_job(job_id)
        if not job.is_ended:
            raise Conflict(f"Job {job.number} has not ended.")
        spec = msgspec.structs.replace(job.spec, share=share)
        change = update(tables.jobs).where(tables.jobs.c.id == job.id)
        with self.database.writing("Who may read the job could not be changed") as connection:
            connection.execute(change.values(visibility=share.value, spec=encode(spec)))

    def keep_queues(self, queues: Sequence[QueueSpec]) -> None:
        """Note the queue tree that is served from now on, for those who read without a scheduler. Where the configuration
        has not changed nothing is written. The engine takes its tree from the configuration, never from here.
        """
        if self.queues() == list(queues):
            return
        rows = [queue_row(position, queue) for position, queue in enumerate(queues)]
        with self.database.writing("The queues could not be noted") as connection:
            connection.execute(delete(tables.queues))
            if rows:
                connection.execute(insert(tables.queues), rows)

    def retention(
        self, policy: RetentionPolicy, *, discard: Callable[[str], None], measure: Callable[[str], int]
    ) -> Retention:
        """See Retention: `discard` and `measure` are given the id of an attempt whose files are meant."""
        return Retention(self.database, self.blobs, policy, discard=discard, measure=measure)

    def close(self) -> None:
        self.database.close()


def _prepare(dialect: Sqlite, product: str, now_us: int) -> None:
    """Create or migrate. A newer database is refused before anything of it is touched."""
    dialect.require_writable()
    if dialect.exists():
        found = schema.stored_version(dialect)
        schema.refuse_newer(found, dialect, product)
    else:
        found = None
        dialect.create_file()
    dialect.settle_journal()
    if found is None or int(found) != schema.head_version():
        schema.bring_up_to_date(dialect, product, now_us)


def _claim(dialect: Sqlite, now_us: int) -> str:
    """Leave our mark in `meta` (see Database.writing) and, in a new database, its first rows."""
    writer = os.urandom(12).hex()
    first = {
        "cluster_id": make_id(now_us, os.urandom(10)),
        "created_us": str(now_us),
        "last_seq": "0",
        "last_job_number": "0",
    }
    engine = dialect.write_engine()
    try:
        with engine.begin() as connection:
            connection.execute(
                insert_or_update(dialect.kind, tables.meta, ["key"], []),
                [{"key": key, "value": value} for key, value in first.items()],
            )
            connection.execute(
                insert_or_update(dialect.kind, tables.meta, ["key"], ["value"]),
                {"key": "writer", "value": writer},
            )
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise dialect.explain(error, "The database could not be opened for writing") from error
    finally:
        engine.dispose()
    return writer
