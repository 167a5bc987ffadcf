"""What can go wrong with a disk or a database, for real: each time a clear Unavailable, nothing half written, and it goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.store_samples import ANNA, ManualClock, damage, sample_job, sha256, submitted

from gpucluster.model.errors import NotFound, Unavailable
from gpucluster.model.jobs import Job
from gpucluster.store import Store


@contextlib.contextmanager
def opened(folder: Path, clock: ManualClock, **options: float) -> Iterator[Store]:
    store = Store.open(folder, clock, **options)
    try:
        yield store
    finally:
        store.close()


def fill(folder: Path) -> Path:
    """Leave not one free byte on the disk of `folder`."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 65536):
            pass
    return filler


def big_job(number: int) -> Job:
    """A job whose row does not fit into what SQLite may have allocated already."""
    return sample_job(number, reason="x" * 300_000)


# ---- disk full


def test_a_full_disk_refuses_the_commit_and_later_ones_succeed(small_disk: Path, clock: ManualClock) -> None:
    with opened(small_disk / "data", clock) as store:
        store.commit(submitted(sample_job(1)))
        filler = fill(small_disk)
        with pytest.raises(Unavailable, match="disk") as caught:
            store.commit(submitted(big_job(2)))
        assert "Free some space" in str(caught.value)
        with pytest.raises(NotFound):
            store.get_job(2)
        assert store.get_job(1).number == 1  # reading goes on
        assert store.recover().last_job_number == 1
        filler.unlink()
        store.commit(submitted(big_job(2)))
        assert store.recover().last_job_number == 2
        assert damage(store.folder.database) == []


def test_commits_on_a_disk_that_fills_up_are_whole_or_not_there(small_disk: Path, clock: ManualClock) -> None:
    acknowledged: list[int] = []
    with opened(small_disk / "data", clock) as store:
        for number in range(1, 60):
            try:
                store.commit(submitted(big_job(number)))
                acknowledged.append(number)
            except Unavailable:
                continue
    assert 0 < len(acknowledged) < 59
    shutil.copytree(small_disk / "data", small_disk.parent / "copy")
    with opened(small_disk.parent / "copy", clock) as store:
        assert sorted(job.number for job in store.list_jobs(limit=100)) == acknowledged
        assert damage(store.folder.database) == []


def test_on_a_full_disk_a_store_does_not_open_and_says_why(small_disk: Path, clock: ManualClock) -> None:
    filler = fill(small_disk)
    with pytest.raises(Unavailable, match="full"):
        Store.open(small_disk / "data", clock)
    filler.unlink()
    with opened(small_disk / "data", clock) as store:
        store.commit(submitted(sample_job(1)))


def test_an_upload_that_does_not_fit_is_refused_before_it_begins(
    small_disk: Path, clock: ManualClock
) -> None:
    with opened(small_disk / "data", clock) as store:
        with pytest.raises(Unavailable, match="disk is full"):
            store.blobs.upload(sha256(b"x"), ANNA.id, 0, b"x", 100 << 20)
        assert os.listdir(store.folder.uploads) == []


def test_a_disk_that_fills_up_during_an_upload_leaves_what_was_acknowledged(
    small_disk: Path, clock: ManualClock
) -> None:
    content = os.urandom(1 << 20)
    blob_hash = sha256(content)
    with opened(small_disk / "data", clock) as store:
        store.blobs.upload(blob_hash, ANNA.id, 0, content[:1000], len(content))
        filler = fill(small_disk)
        with pytest.raises(Unavailable, match="full"):
            store.blobs.upload(blob_hash, ANNA.id, 1000, content[1000:], len(content))
        assert store.blobs.status(blob_hash, ANNA.id).received_bytes == 1000
        other = sha256(b"other")
        with pytest.raises(Unavailable, match="full"):
            store.blobs.put_bytes(b"other" * 10_000, ANNA.id)
        assert [name for name in os.listdir(store.folder.uploads) if not name.startswith(blob_hash)] == []
        assert store.blobs.status(other, ANNA.id).received_bytes == 0
        filler.unlink()
        assert store.blobs.upload(blob_hash, ANNA.id, 1000, content[1000:], len(content)).complete
        with store.blobs.open_read(blob_hash) as file:
            assert file.read() == content


def test_secrets_on_a_full_disk_are_refused_and_nothing_is_left(small_disk: Path, clock: ManualClock) -> None:
    with opened(small_disk / "data", clock) as store:
        fill(small_disk)
        with pytest.raises(Unavailable, match="full"):
            store.secrets.write("job", {"TOKEN": "x" * 100_000})
        assert os.listdir(store.folder.secrets) == []


# ---- locked, read-only, damaged, gone


def test_a_write_lock_held_by_another_program_refuses_the_commit(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock, busy_timeout_s=0.2) as store:
        store.commit(submitted(sample_job(1)))
        other = sqlite3.connect(tmp_path / "gpucluster.sqlite3", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="another program holds a lock") as caught:
            store.commit(submitted(sample_job(2)))
        assert "lsof" in str(caught.value)
        with pytest.raises(Unavailable, match="another program holds a lock"):
            store.blobs.put_bytes(b"x", ANNA.id)
        assert store.get_job(1).number == 1
        other.execute("ROLLBACK")
        other.close()
        store.commit(submitted(sample_job(2)))
        assert store.recover().last_job_number == 2


def test_a_database_locked_at_the_start_says_so(tmp_path: Path, clock: ManualClock) -> None:
    Store.open(tmp_path, clock).close()
    other = sqlite3.connect(tmp_path / "gpucluster.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="holds a lock"):
        Store.open(tmp_path, clock, busy_timeout_s=0.2)
    other.close()


def test_a_read_only_disk_is_refused_at_the_start(small_disk: Path, clock: ManualClock) -> None:
    with opened(small_disk / "data", clock) as store:
        store.commit(submitted(sample_job(1)))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(Unavailable, match="read-only for this user"):
        Store.open(small_disk / "data", clock)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    with opened(small_disk / "data", clock) as store:
        assert store.get_job(1).number == 1


def test_a_read_only_database_file_is_named(unprivileged_folder: Path, clock: ManualClock) -> None:
    with opened(unprivileged_folder, clock) as store:
        store.commit(submitted(sample_job(1)))
    path = unprivileged_folder / "gpucluster.sqlite3"
    path.chmod(0o400)
    with pytest.raises(Unavailable, match=f"{path} is read-only"):
        Store.open(unprivileged_folder, clock)
    path.chmod(0o600)
    with opened(unprivileged_folder, clock) as store:
        assert store.get_job(1).number == 1


def test_a_database_that_turns_read_only_refuses_commits_and_still_reads(
    unprivileged_folder: Path, clock: ManualClock
) -> None:
    with opened(unprivileged_folder, clock) as store:
        store.commit(submitted(sample_job(1)))
        store.close()  # its connections; they are made anew, as after a failure
        path = unprivileged_folder / "gpucluster.sqlite3"
        path.chmod(0o400)
        with pytest.raises(Unavailable, match="the database is read-only"):
            store.commit(submitted(sample_job(2)))
        assert store.get_job(1).number == 1


def test_a_damaged_database_is_said_to_be_damaged(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as store:
        store.commit(submitted(*(sample_job(number) for number in range(1, 200))))
    path = tmp_path / "gpucluster.sqlite3"
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(Unavailable, match="damaged") as caught:
        Store.open(tmp_path, clock).recover()
    assert "put back a copy" in str(caught.value)


def test_a_database_removed_while_the_scheduler_runs_is_noticed(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as store:
        store.commit(submitted(sample_job(1)))
        os.rename(tmp_path / "gpucluster.sqlite3", tmp_path / "moved")
        with pytest.raises(Unavailable, match="removed or replaced"):
            store.commit(submitted(sample_job(2)))
        os.rename(tmp_path / "moved", tmp_path / "gpucluster.sqlite3")
        store.commit(submitted(sample_job(2)))
        assert store.recover().last_job_number == 2


def test_readers_on_many_threads_beside_the_writer_see_whole_commits(
    tmp_path: Path, clock: ManualClock
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with opened(tmp_path, clock) as store, ThreadPoolExecutor(12) as pool:
        stop = False

        def read() -> int:
            reads = 0
            while not stop:
                jobs = store.list_jobs(limit=1000)
                assert len(jobs) % 5 == 0  # each commit has five jobs
                assert all(store.history(job.id) for job in jobs[:1])
                reads += 1
            return reads

        readers = [pool.submit(read) for _ in range(12)]
        for first in range(1, 200, 5):
            store.commit(submitted(*(sample_job(number) for number in range(first, first + 5))))
        stop = True
        assert all(reader.result() > 0 for reader in readers)
