from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from gpucluster.runtimes import taskfolder
from gpucluster.runtimes.supervisor import folder, processes
from gpucluster.runtimes.taskfolder import State


@pytest.fixture
def task_dir(tmp_path: Path) -> Path:
    path = tmp_path / "tasks" / "a" / "worker.0"
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
