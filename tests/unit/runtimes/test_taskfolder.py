from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def claim_and_die(task_dir: Path) -> None:
    """The folder as a supervisor leaves it that dies at once."""
    if (pid := os.fork()) == 0:
        folder.claim(str(task_dir))
        os._exit(0)
    os.waitpid(pid, 0)


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


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
    assert taskfolder.inspect(str(task_dir))[:2] == (State.ALIVE, os.getpid())
    os.close(lock)
    os.unlink(task_dir / "started")
    claim_and_die(task_dir)
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


def test_clock_that_was_set_forward_makes_nobody_dead(task_dir: Path) -> None:
    claim_and_die(task_dir)
    (task_dir / "worker.json").write_text("{}")
    os.utime(task_dir / "started", (1e9, 1e9))
    assert state(task_dir) is State.DEAD  # so what it left running is looked for and ended


def test_folder_prepared_in_this_boot_is_unclaimed_whatever_its_time(task_dir: Path) -> None:
    change(task_dir / "spec.json", boot_id=processes.boot_id(), host=processes.host_name())
    os.utime(task_dir / "spec.json", (1e9, 1e9))
    assert state(task_dir) is State.UNCLAIMED
    change(task_dir / "spec.json", boot_id="other")
    assert state(task_dir) is State.BEFORE_BOOT


def test_time_decides_only_where_no_boot_is_noted(task_dir: Path) -> None:
    claim_and_die(task_dir)
    (task_dir / "started").write_text('{"by": "supervisor", "pid": 99999999}')
    assert state(task_dir) is State.NEVER_RAN
    os.utime(task_dir / "started", (1e9, 1e9))
    assert state(task_dir) is State.BEFORE_BOOT


def test_claim_of_another_machine_is_not_judged(task_dir: Path) -> None:
    claim_and_die(task_dir)
    change(task_dir / "started", boot_id="other", host="node-17")
    finding = taskfolder.inspect(str(task_dir))
    assert (finding.state, finding.host) == (State.ELSEWHERE, "node-17")
    change(task_dir / "started", host=processes.host_name())
    assert state(task_dir) is State.BEFORE_BOOT


def test_exit_that_the_task_wrote_itself_counts_for_nothing_while_its_supervisor_lives(
    task_dir: Path,
) -> None:
    lock = folder.claim(str(task_dir))
    assert lock is not None
    (task_dir / "exit.json").write_text('{"code": 0}')
    assert state(task_dir) is State.ALIVE
    (task_dir / "started").write_text('{"by": "agent"}')
    assert taskfolder.inspect(str(task_dir))[:2] == (State.ALIVE, os.getpid())
    (task_dir / "started").unlink()
    assert state(task_dir) is State.ALIVE
    os.close(lock)
    assert state(task_dir) is State.ENDED


def test_supervisor_whose_lock_was_removed_is_found_by_its_process(task_dir: Path) -> None:
    lock = folder.claim(str(task_dir))
    assert lock is not None
    (task_dir / "lock").unlink()
    assert taskfolder.inspect(str(task_dir))[:2] == (State.ALIVE, os.getpid())
    os.close(lock)


def test_claim_that_was_removed_is_no_reason_to_run_again(task_dir: Path) -> None:
    claim_and_die(task_dir)
    (task_dir / "worker.json").write_text("{}")
    (task_dir / "started").unlink()
    assert state(task_dir) is State.DEAD


@pytest.mark.parametrize("name", ["started", "exit.json", "worker.json", "spec.json", "lock"])
@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_nothing_that_is_planted_in_the_folder_hangs_or_fails_a_look_at_it(
    task_dir: Path, name: str, plant: Callable[[Path], None]
) -> None:
    claim_and_die(task_dir)
    (task_dir / name).unlink(missing_ok=True)
    plant(task_dir / name)
    assert state(task_dir) in (State.DEAD, State.NEVER_RAN)
    assert taskfolder.kill_leftovers(str(task_dir), "a.0") == 0
    taskfolder.tidy(str(task_dir))
    assert not (task_dir / name).exists()


@pytest.mark.parametrize(
    "claim",
    [
        b"[" * 100_000,
        b"[]",
        b'{"by": "supervisor", "pid": "x"}',
        b'{"pid": 1e400}',
        b'{"pid": -1, "boot_id": 7}',
    ],
)
def test_claim_that_is_garbage_counts_as_a_claim(task_dir: Path, claim: bytes) -> None:
    (task_dir / "started").write_bytes(claim)
    assert state(task_dir) in (State.NEVER_RAN, State.BEFORE_BOOT)
    taskfolder.kill_supervisor(str(task_dir))


def test_forged_record_ends_nobody_else(task_dir: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    ticks = processes.start_ticks(bystander.pid)
    record = {
        "pid": bystander.pid, "start_ticks": ticks, "session": bystander.pid, "boot_id": processes.boot_id(),
        "cgroups": ["/", "/sys/fs/cgroup", 7],
    }  # fmt: skip
    (task_dir / "worker.json").write_text(json.dumps(record))
    assert taskfolder.kill_leftovers(str(task_dir), "a.0") == 0
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_leftovers_are_found_by_their_mark_and_by_the_session_of_a_worker_that_is_gone(
    task_dir: Path,
) -> None:
    leader = subprocess.Popen(
        ["sh", "-c", "env -i sleep 61 & echo $!"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    leader.wait()
    marked = subprocess.Popen(["sleep", "62"], env={"GPUCLUSTER_TASK_ID": "a.0", "PATH": os.environ["PATH"]})
    record = {"pid": leader.pid, "session": leader.pid, "boot_id": processes.boot_id()}
    (task_dir / "worker.json").write_text(json.dumps(record))
    assert taskfolder.kill_leftovers(str(task_dir), "a.0") == 2
    assert marked.wait() == -9
    while processes.read_process(child) is not None and not processes.read_process(child).is_dead:  # type: ignore[union-attr]
        time.sleep(0.01)
    assert taskfolder.kill_leftovers(str(task_dir), "a.0") == 0


def test_only_what_tells_of_the_task_stays_when_it_is_over(task_dir: Path) -> None:
    for name in ("log", "steps.ndjson", "exit.json", "result.json", "inputs/pickle", "result/pickle", "own"):
        (task_dir / name).write_bytes(b"x")
    os.mkfifo(task_dir / "steps.fifo")
    os.chmod(task_dir / "inputs", 0o500)
    taskfolder.tidy(str(task_dir))
    assert sorted(os.listdir(task_dir)) == ["exit.json", "log", "result.json", "spec.json", "steps.ndjson"]
    taskfolder.tidy(str(task_dir.with_name("gone")))
