from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from support.store_samples import ManualClock, sample_job, submitted

from gpucluster.model.errors import GpuclusterError, InvalidRequest, Unavailable, VersionMismatch
from gpucluster.store import Store, schema, tables
from gpucluster.store import store as store_module
from gpucluster.store.dialect import Sqlite

SECOND = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("colour", sa.Text()))
    %s
"""


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def later_migrations(tmp_path: Path, then: str = "pass") -> Path:
    """This version's migrations and one more."""
    target = tmp_path / "migrations"
    shutil.copytree(schema.MIGRATIONS, target, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "versions" / "0002_colour.py").write_text(SECOND % then)
    return target


def test_the_migrations_make_exactly_the_tables(store: Store) -> None:
    with store.database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []


def test_a_new_folder_is_private_and_says_its_version(store: Store) -> None:
    folder = store.folder
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.database.stat().st_mode & 0o777 == 0o600
    content = json.loads(folder.version.read_text())
    assert (content["format"], content["schema"]) == (1, schema.head_version())


PARTS = (".", "blobs", "uploads", "secrets", "tasks", "gpucluster.sqlite3", "version")


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_data_folder_that_others_may_write_to_is_refused(
    tmp_path: Path, clock: ManualClock, part: str, mode: int, read_only: bool
) -> None:
    Store.open(tmp_path / "data", clock).close()
    path = tmp_path / "data" / part
    path.chmod(mode)
    with pytest.raises(Unavailable, match=f"others may write to {path}") as refused:
        Store.open(tmp_path / "data", clock, read_only=read_only)
    assert refused.value.hint == f"Look what is in it, then: chmod {700 if path.is_dir() else 600} {path}"
    assert path.stat().st_mode & 0o777 == mode
    assert refused.value.hint is not None
    subprocess.run(refused.value.hint.partition("then: ")[2].split(), check=True)
    Store.open(tmp_path / "data", clock, read_only=read_only).close()


@pytest.mark.parametrize("part", PARTS)
def test_a_data_folder_that_others_may_read_is_closed(tmp_path: Path, clock: ManualClock, part: str) -> None:
    Store.open(tmp_path / "data", clock).close()
    path = tmp_path / "data" / part
    path.chmod(0o755)
    Store.open(tmp_path / "data", clock).close()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("part", PARTS)
def test_a_data_folder_of_another_account_is_refused(tmp_path: Path, clock: ManualClock, part: str) -> None:
    Store.open(tmp_path / "data", clock).close()
    os.chown(tmp_path / "data" / part, 12345, 12345)
    with pytest.raises(Unavailable, match="belongs to uid 12345, not to you"):
        Store.open(tmp_path / "data", clock)


def test_the_database_is_durable_and_checks_its_references(store: Store) -> None:
    with store.database.writing("x") as connection:

        def pragma(name: str) -> object:
            return connection.exec_driver_sql(f"PRAGMA {name}").scalar()

        assert (pragma("journal_mode"), pragma("synchronous"), pragma("foreign_keys")) == ("wal", 2, 1)


def test_on_a_network_file_system_there_is_no_wal(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = Store.open(tmp_path, clock)
    local.commit(submitted(sample_job(1)))
    local.close()
    monkeypatch.setattr(store_module, "network_file_system", lambda path: "nfs")
    store = Store.open(tmp_path, clock)
    store.commit(submitted(sample_job(2)))
    with store.database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3
    assert [job.number for job in store.list_jobs()] == [2, 1]
    assert not list(tmp_path.glob("*-wal"))
    assert not list(tmp_path.glob("*-shm"))


def test_an_older_schema_is_backed_up_and_migrated(tmp_path: Path, clock: ManualClock) -> None:
    store = Store.open(tmp_path / "data", clock)
    job = sample_job(1)
    store.commit(submitted(job))
    store.close()
    dialect = Sqlite(tmp_path / "data" / "gpucluster.sqlite3")
    dialect.settle_journal()
    backup = schema.bring_up_to_date(dialect, "9.9", clock.now, later_migrations(tmp_path))
    assert backup is not None
    assert backup.name.startswith("gpucluster.sqlite3.backup-v1-")
    assert backup.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(dialect.path) as now, sqlite3.connect(backup) as before:
        assert now.execute("SELECT id, colour FROM jobs").fetchall() == [(job.id, None)]
        assert now.execute("SELECT version_num FROM alembic_version").fetchone() == ("0002",)
        assert before.execute("SELECT id FROM jobs").fetchall() == [(job.id,)]
        assert before.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
    assert schema.bring_up_to_date(dialect, "9.9", clock.now, later_migrations(tmp_path / "again")) is None


def test_a_migration_that_fails_leaves_the_old_schema(tmp_path: Path, clock: ManualClock) -> None:
    store = Store.open(tmp_path / "data", clock)
    store.commit(submitted(sample_job(1)))
    store.close()
    dialect = Sqlite(tmp_path / "data" / "gpucluster.sqlite3")
    dialect.settle_journal()
    with pytest.raises(Unavailable, match="brought up to date"):
        schema.bring_up_to_date(
            dialect,
            "9.9",
            clock.now,
            later_migrations(tmp_path, then='op.execute("INSERT INTO nowhere VALUES (1)")'),
        )
    again = Store.open(tmp_path / "data", clock)
    assert again.get_job(1).number == 1


def test_a_newer_version_file_is_refused_and_nothing_is_touched(tmp_path: Path, clock: ManualClock) -> None:
    store = Store.open(tmp_path, clock)
    store.commit(submitted(sample_job(1)))
    store.close()
    content = json.loads((tmp_path / "version").read_text())
    (tmp_path / "version").write_text(
        json.dumps({**content, "schema": 7, "product": "3.2.1", "new_field": 1})
    )
    before = snapshot(tmp_path)
    for read_only in (False, True):
        with pytest.raises(VersionMismatch, match=r"schema version 7 .*3\.2\.1.* up to 1") as caught:
            Store.open(tmp_path, clock, read_only=read_only)
        assert "Install 3.2.1" in str(caught.value)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("revision", ["0002", "abcdef"])
def test_a_newer_database_is_refused_and_nothing_is_touched(
    tmp_path: Path, clock: ManualClock, revision: str
) -> None:
    Store.open(tmp_path, clock).close()
    connection = sqlite3.connect(tmp_path / "gpucluster.sqlite3")
    connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.commit()
    connection.close()
    before = snapshot(tmp_path)
    with pytest.raises(VersionMismatch, match=f"schema version {revision}"):
        Store.open(tmp_path, clock)
    assert snapshot(tmp_path) == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, clock: ManualClock) -> None:
    tmp_path.joinpath("gpucluster.sqlite3").write_bytes(b"this is my thesis " * 1000)
    before = snapshot(tmp_path)
    with pytest.raises(Unavailable, match="not a database") as caught:
        Store.open(tmp_path, clock)
    assert "put back a copy" in str(caught.value)
    assert snapshot(tmp_path) == before


def test_a_damaged_version_file_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "version").write_text("{")
    with pytest.raises(Unavailable, match="damaged"):
        Store.open(tmp_path, clock)


def test_a_data_folder_that_is_a_file_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(GpuclusterError, match="data"):
        Store.open(tmp_path / "data", clock)


def test_a_database_address_is_refused_by_name(clock: ManualClock) -> None:
    with pytest.raises(InvalidRequest, match="folder"):
        Store.open("postgresql://host/db", clock)
