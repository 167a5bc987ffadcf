"""Connections: one writer at a time, readers beside it, and every failure as one clear Unavailable."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from ..model.errors import Unavailable
from .dialect import Sqlite

_FAILURES = (SQLAlchemyError, sqlite3.Error, OSError, OverflowError, UnicodeError)


T = TypeVar("T")
#: Values of one IN (…) list; databases limit how many parameters a statement takes.
_IN_LIMIT = 500


def slices(values: list[T]) -> Iterator[list[T]]:
    """The values in lists short enough for one IN (…)."""
    return (values[start : start + _IN_LIMIT] for start in range(0, len(values), _IN_LIMIT))


class Superseded(Unavailable):
    """Another scheduler has opened the same data folder since: this one must stop, a retry is useless."""


class Database:
    """An open database. Safe to use from many threads.

    `writer` is the mark that this process left in `meta` (see claim); None = opened for reading only.
    """

    def __init__(self, dialect: Sqlite, writer: str | None) -> None:
        self.dialect = dialect
        self._writer = writer
        self._turn = threading.Lock()
        self._write_engine = dialect.write_engine()
        self._read_engine = dialect.read_engine()
        self._connection: Connection | None = None

    @contextlib.contextmanager
    def writing(self, what: str) -> Iterator[Connection]:
        """One transaction, durable when the block is left.

        Raises Unavailable, whose text begins with `what`, when it cannot be written; then nothing of it is, and the
        next call starts on a fresh connection. Superseded when another scheduler took the folder over.
        """
        if self._writer is None:
            raise Unavailable(f"{what}: the store was opened for reading only.")
        if not self._turn.acquire(timeout=max(30.0, 2 * self.dialect.busy_timeout_s)):
            raise Unavailable(f"{what}: another write takes too long.", hint="Try again in a moment.")
        try:
            self.dialect.check_file()
            connection = self._open_connection()
            with connection.begin():
                self._check_writer(connection)
                yield connection
        except _FAILURES as error:
            self._drop_connection()
            raise self.dialect.explain(error, what) from error
        finally:
            self._turn.release()

    @contextlib.contextmanager
    def reading(self, what: str = "The database could not be read") -> Iterator[Connection]:
        """A connection that sees one consistent state for the whole block. Raises Unavailable."""
        try:
            with self._read_engine.connect() as connection:
                yield connection
        except _FAILURES as error:
            raise self.dialect.explain(error, what) from error

    def close(self) -> None:
        with self._turn:
            self._drop_connection()
            self._write_engine.dispose()
            self._read_engine.dispose()

    def _open_connection(self) -> Connection:
        if self._connection is None:
            self._connection = self._write_engine.connect()
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*_FAILURES):
                connection.invalidate()
            with contextlib.suppress(*_FAILURES):
                connection.close()

    def _check_writer(self, connection: Connection) -> None:
        found = connection.exec_driver_sql("SELECT value FROM meta WHERE key = 'writer'").scalar()
        if found != self._writer:
            raise Superseded(
                f"Another scheduler has taken over the data folder {self.dialect.path.parent}; this one no longer writes.",
                hint="Stop this scheduler; requests go to the other one.",
            )
