"""The schema's version: found, refused when newer, brought up to date by Alembic after a backup. All in one transaction.

Versions count 1, 2, 3 …: the revision of `migrations/versions/NNNN_what.py` is NNNN. Alembic (slow to import) is loaded
only when something is to be done.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import SQLAlchemyError

from ..model.errors import VersionMismatch
from .dialect import Sqlite
from .folder import newer_data

MIGRATIONS = Path(__file__).with_name("migrations")


def head_version(migrations: Path = MIGRATIONS) -> int:
    """The schema version that this code writes."""
    return max(int(path.name[:4]) for path in (migrations / "versions").glob("[0-9][0-9][0-9][0-9]_*.py"))


def found_version(connection: Connection) -> str | None:
    """The schema version of the database as stored; None for an empty one. Text, since a later one may be no number."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def stored_version(dialect: Sqlite) -> str | None:
    """As `found_version`, through a connection that cannot write. Raises Unavailable."""
    engine = dialect.probe_engine()
    try:
        with engine.connect() as connection:
            return found_version(connection)
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise dialect.explain(error, "The database could not be read") from error
    finally:
        engine.dispose()


def refuse_newer(found: str | None, dialect: Sqlite, product: str, migrations: Path = MIGRATIONS) -> None:
    """Raises VersionMismatch when `found` is not one of the versions that this code knows."""
    head = head_version(migrations)
    if found is not None and not (found.isdecimal() and int(found) <= head):
        raise newer_data(str(dialect.path), found, head, None, product)


def require_current(found: str | None, dialect: Sqlite, product: str) -> None:
    """For those who only read: raises VersionMismatch unless the schema is exactly ours."""
    refuse_newer(found, dialect, product)
    if found is None or int(found) != head_version():
        raise VersionMismatch(
            f"The data in {dialect.path} has schema version {found or 'none'}; "
            f"jupyter-gpucluster {product} reads version {head_version()}.",
            hint="Start this version's scheduler on the data folder once: it brings the data up to date.",
        )


def bring_up_to_date(
    dialect: Sqlite, product: str, now_us: int, migrations: Path = MIGRATIONS
) -> Path | None:
    """Migrate to the newest schema; gives the path of the backup that was made before, if there was data to keep.

    Raises VersionMismatch for a newer schema, Unavailable when it cannot be done; then nothing is changed.
    """
    head = head_version(migrations)
    engine = dialect.write_engine()
    backup: Path | None = None
    try:
        with engine.begin() as connection:
            # Asked again under the write lock: another process may just have done it.
            found = found_version(connection)
            refuse_newer(found, dialect, product, migrations)
            if found is not None and int(found) == head:
                return None
            if found is not None:
                backup = dialect.path.with_name(
                    f"{dialect.path.name}.backup-v{int(found)}-{now_us // 1_000_000}"
                )
                dialect.backup(backup)
            _upgrade(connection, migrations)
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise dialect.explain(error, "The database could not be brought up to date") from error
    finally:
        engine.dispose()
    return backup


def _upgrade(connection: Connection, migrations: Path) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
