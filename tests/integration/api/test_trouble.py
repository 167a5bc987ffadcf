"""The store in trouble: the scheduler says so, does nothing half, and goes on when the trouble is over."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from gpucluster.api import embedded
from gpucluster.model.errors import NotFound, Unavailable

from .conftest import TIMEOUT_S, Scheduler, command, ended, wait_until


def test_write_lock_held_on_the_database_is_told_and_outlived(fresh: Scheduler) -> None:
    fresh.start()
    with fresh.client() as client:
        running = client.submit(command("sleep 1; echo kept"))
        holder = sqlite3.connect(fresh.data / "gpucluster.sqlite3", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        submission = command("true")
        began = time.monotonic()
        with pytest.raises(Unavailable) as told:
            client.submit(submission)
        assert time.monotonic() - began < TIMEOUT_S
        assert "lock" in str(told.value).lower()
        assert client.status().notes  # says what the matter is, and still answers
        holder.execute("ROLLBACK")
        holder.close()
        job = client.submit(submission)
        assert ended(client, job).state == "succeeded"
        assert ended(client, running).state == "succeeded"
        assert client.job(running.id).attempts_made == 1
        assert len(client.jobs().jobs) == 2


def test_what_is_not_stored_is_never_shown(fresh: Scheduler) -> None:
    """A job that waits for the database is neither seen nor counted, and one that ended there has not ended yet."""
    fresh.start()
    with fresh.client() as client, contextlib.ExitStack() as stack:
        running = client.submit(command("sleep 1"))
        wait_until(lambda: client.job(running.id).state == "running", "the job to run")
        holder = stack.enter_context(
            contextlib.closing(sqlite3.connect(fresh.data / "gpucluster.sqlite3", isolation_level=None))
        )
        reader = stack.enter_context(fresh.client())
        pool = stack.enter_context(ThreadPoolExecutor(3))
        holder.execute("BEGIN IMMEDIATE")
        refused = pool.submit(client.submit, command("true", gpus=8, name="phantom"))
        looked = pool.submit(reader.job, running.number + 1)
        held = {reader.status().gpus_used for _ in range(20)}
        shown = reader.job(running.id)
        with sqlite3.connect(fresh.data / "gpucluster.sqlite3") as store:
            stored = store.execute("SELECT state FROM jobs WHERE id = ?", (running.id,)).fetchone()[0]
        assert shown.state == stored == "running"
        with pytest.raises(Unavailable):
            refused.result(TIMEOUT_S)
        with pytest.raises(NotFound):
            looked.result(TIMEOUT_S)
        assert held == {0}
        assert [job.id for job in reader.jobs().jobs] == [running.id]
        holder.execute("ROLLBACK")
        assert ended(client, running).state == "succeeded"


def test_data_of_a_newer_version_is_refused_and_left_alone(fresh: Scheduler) -> None:
    fresh.start()
    fresh.stop()
    version = fresh.data / "version"
    newer = {**json.loads(version.read_text()), "schema": 9999, "product": "99.0"}
    version.write_text(json.dumps(newer))
    refused = fresh.spawn()
    assert refused.wait(TIMEOUT_S) != 0
    assert "99.0" in fresh.said()
    assert "Traceback" not in fresh.said()
    assert json.loads(version.read_text()) == newer


def test_data_folder_that_cannot_be_written_is_said_by_name(fresh: Scheduler) -> None:
    (fresh.folder / "file").write_text("in the way")
    fresh.env["GPUCLUSTER_DATA"] = str(fresh.folder / "file" / "data")
    refused = fresh.spawn()
    assert refused.wait(TIMEOUT_S) != 0
    assert str(fresh.folder / "file" / "data") in fresh.said()
    assert "Traceback" not in fresh.said()


def test_data_folder_that_others_may_write_to_is_refused_before_anything_is_written(fresh: Scheduler) -> None:
    fresh.data.mkdir()
    fresh.data.chmod(0o777)
    refused = fresh.spawn()
    assert refused.wait(TIMEOUT_S) != 0
    assert f"chmod 700 {os.path.realpath(fresh.data)}" in fresh.said()
    assert "Traceback" not in fresh.said()
    with pytest.raises(Unavailable, match="others may write to"):
        embedded.ensure_scheduler(fresh.data)
    assert list(fresh.data.iterdir()) == []
    fresh.data.chmod(0o700)
    fresh.start()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 24 MiB of its own."""
    if os.getuid() != 0:
        pytest.skip("needs root to mount")
    with tempfile.TemporaryDirectory(prefix="gpc-") as path:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", path], capture_output=True
        )
        if mounted.returncode != 0:
            pytest.skip("mounting is not allowed here")
        try:
            yield Path(path)
        finally:
            subprocess.run(["umount", "-l", path], check=True)


def test_full_disk_refuses_submissions_and_loses_nothing(small_disk: Path) -> None:
    scheduler = Scheduler(small_disk)
    scheduler.start()
    try:
        with scheduler.client() as client:
            first = client.submit(command("true"))
            ended(client, first)
            filler = small_disk / "filler"
            with contextlib.suppress(OSError), open(filler, "wb") as file:
                while True:
                    file.write(b"x" * 4096)
                    file.flush()
            big = msgspec.structs.replace(command("true"), source="x" * 2_000_000)
            with pytest.raises(Unavailable) as told:
                client.submit(big)
            assert "full" in str(told.value)
            assert client.job(first.id).state == "succeeded"
            filler.unlink()
            job = client.submit(big)
            assert ended(client, job).state == "succeeded"
    finally:
        scheduler.end()
