from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from gpucluster.runtimes import taskfolder
from gpucluster.runtimes.supervisor import folder, processes
from gpucluster.runtimes.taskfolder import State


@pytest.fixture
def task_dir(tmp_path: Path) -> Path:
    path = tmp_path / "tasks" / "a" / "worker.0"
    (tmp_path / "tasks").mkdir()
    taskfolder.create(str(path), {"format": 1}, {"TOKEN": "x"}, lambda inputs: None)
    return path


def state(path: Path) -> State:
    return taskfolder.inspect(str(path)).state


def test_folder_is_private_and_complete(task_dir: Path) -> None:
    assert task_dir.stat().st_mode & 0o777 == 0o700
    assert (task_dir / "secrets.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((task_dir / "spec.json").read_text()) == {"format": 1}
    assert [path.name for path in task_dir.parent.iterdir()] == ["worker.0"]


def test_folder_that_cannot_be_filled_leaves_nothing(tmp_path: Path) -> None:
    def fail(inputs: str) -> None:
        raise OSError(errno.ENOSPC, "full")

    path = tmp_path / "a" / "worker.0"
    with pytest.raises(OSError, match="full"):
        taskfolder.create(str(path), {}, {}, fail)
    assert list(path.parent.iterdir()) == []


def test_folder_that_is_there_is_left_as_it_is(task_dir: Path) -> None:
    taskfolder.create(str(task_dir), {"format": 2}, {}, lambda inputs: None)
    assert json.loads((task_dir / "spec.json").read_text()) == {"format": 1}


def test_states_from_preparation_to_exit(task_dir: Path) -> None:
    assert state(task_dir) is State.UNCLAIMED
    lock = folder.claim(str(task_dir))
    assert lock is not None
    assert taskfolder.inspect(str(task_dir)) == (State.ALIVE, os.getpid(), None)
    os.close(lock)
    assert state(task_dir) is State.NEVER_RAN
    (task_dir / "worker.json").write_text("{}")
    assert state(task_dir) is State.DEAD
    (task_dir / "exit.json").write_text('{"code": 3}')
    assert taskfolder.inspect(str(task_dir)).exit == {"code": 3}


def test_claim_is_given_once(task_dir: Path) -> None:
    lock = folder.claim(str(task_dir))
    assert lock is not None
    assert folder.claim(str(task_dir)) is None
    assert not taskfolder.revoke(str(task_dir))
    os.close(lock)


def test_revoked_folder_is_claimed_by_nobody_and_keeps_no_secrets(task_dir: Path) -> None:
    assert taskfolder.revoke(str(task_dir))
    assert state(task_dir) is State.REVOKED
    assert folder.claim(str(task_dir)) is None
    assert not (task_dir / "secrets.json").exists()


def test_claim_of_another_boot_is_dead_for_sure(task_dir: Path) -> None:
    (task_dir / "started").write_text(json.dumps({"by": "supervisor", "pid": 1, "boot_id": "other"}))
    assert state(task_dir) is State.BEFORE_BOOT


def test_folder_that_was_prepared_before_the_boot_may_have_run(task_dir: Path) -> None:
    before = processes.boot_time_us() / 1e6 - 100
    os.utime(task_dir / "spec.json", (before, before))
    assert state(task_dir) is State.BEFORE_BOOT


def test_claim_that_was_cut_off_counts_as_a_claim(task_dir: Path) -> None:
    (task_dir / "started").touch()
    assert state(task_dir) is State.NEVER_RAN


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b", "a b"])
def test_names_that_are_no_part_of_a_path_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        taskfolder.task_folder("/data", "attempt", name, 0)
    with pytest.raises(ValueError, match="is no"):
        taskfolder.attempt_folder("/data", name)


def test_deleted_folder_counts_as_revoked_and_does_not_come_back(task_dir: Path) -> None:
    shutil.rmtree(task_dir)
    assert taskfolder.revoke(str(task_dir))
    assert not task_dir.exists()
    with pytest.raises(FileNotFoundError):
        folder.claim(str(task_dir))
    assert not task_dir.exists()


def test_folder_that_was_never_there_is_claimed_against_one_that_comes_late(task_dir: Path) -> None:
    never = task_dir.parents[1] / "b" / "worker.0"
    taskfolder.make_empty(str(never))
    assert taskfolder.revoke(str(never))
    with pytest.raises(OSError, match="not empty"):
        taskfolder.create(str(never), {}, {}, lambda inputs: None)
    assert folder.claim(str(never)) is None


def test_nothing_is_made_where_the_data_folder_is_gone(tmp_path: Path) -> None:
    task_dir = tmp_path / "data" / "tasks" / "a" / "worker.0"
    taskfolder.make_empty(str(task_dir))
    with pytest.raises(FileNotFoundError):
        taskfolder.create(str(task_dir), {}, {}, lambda inputs: None)
    assert not (tmp_path / "data").exists()
