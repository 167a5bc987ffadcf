"""Nodes that are given up, supervisors of another version, and folders that are deleted: still one verdict each."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time

import pytest

from gpucluster.engine.events import TaskEnded, TaskLost, TaskStarted, TaskStartFailed
from gpucluster.model.jobs import StopCause
from gpucluster.worker import protocol

from .lab import Lab, placement, shell, wait_until
from .test_commands import is_running, pid_from
from .test_deaths import TREE, supervisor_of

# -- a node is given up


def test_tasks_of_a_given_up_node_are_ended_whole_and_lost_once(lab: Lab) -> None:
    attempts = [lab.start(shell(TREE), placement(memory=1 << 30)) for _ in range(2)]
    pids = [pid_from(lab, one, name) for one in attempts for name in ("leader", "child", "daemon")]
    for _ in range(3):  # it may be asked again
        lab.call(lab.backend.give_up("node-0"))
    for attempt in attempts:
        event = lab.last(attempt)
        assert isinstance(event, TaskLost)
        assert event.reason == "its node was given up; the task has been ended"
    assert not any(is_running(pid) for pid in pids)


def test_tasks_of_other_nodes_go_on(lab: Lab) -> None:
    attempt = lab.start(shell("until [ -e $GPUCLUSTER_TASK_DIR.go ]; do sleep 0.01; done"))
    lab.started(attempt)
    lab.call(lab.backend.give_up("node-1"))
    lab.mark(attempt, "go").touch()
    assert lab.exit(attempt).code == 0


def test_task_that_ended_before_its_node_was_given_up_is_told_as_it_ended(lab: Lab) -> None:
    attempt = lab.start(shell("exit 3"))
    assert lab.exit(attempt).code == 3
    lab.call(lab.backend.give_up("node-0"))
    assert isinstance(lab.last(attempt), TaskEnded)


@pytest.mark.parametrize("pause_s", [0, 0.002, 0.005, 0.01, 0.02, 0.04])
def test_node_given_up_at_any_instant_of_a_start_leaves_one_verdict_and_no_process(
    lab: Lab, pause_s: float
) -> None:
    attempt = lab.start(
        shell("echo run >> $GPUCLUSTER_TASK_DIR.count; echo $$ > $GPUCLUSTER_TASK_DIR.pid; sleep 300")
    )
    time.sleep(pause_s)
    lab.call(lab.backend.give_up("node-0"))
    event = lab.last(attempt)
    ran = lab.mark(attempt, "count").exists()
    assert isinstance(event, TaskLost) or (isinstance(event, TaskStartFailed) and event.retry and not ran)
    pid = lab.mark(attempt, "pid")
    assert not pid.exists() or not pid.read_text().strip() or not is_running(int(pid.read_text()))


def test_task_whose_scheduler_died_while_it_was_given_up_is_lost_all_the_same(lab: Lab) -> None:
    attempt = lab.start(shell(TREE))
    leader = pid_from(lab, attempt, "leader")
    lab._loop.call_soon_threadsafe(lab.backend.follower(attempt, 0).give_up)  # type: ignore[union-attr]
    lab.go_away()
    lab.open()
    lab.adopt(attempt)
    lab.call(lab.backend.give_up("node-0"))
    assert isinstance(lab.last(attempt), TaskLost)
    assert not is_running(leader)


# -- a supervisor of another version


@pytest.fixture
def later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, as scheduler, speaks no protocol that the supervisors know."""
    monkeypatch.setattr(protocol, "PROTOCOL_MIN", 98)
    monkeypatch.setattr(protocol, "PROTOCOL_MAX", 99)


def test_end_of_a_task_of_another_version_is_noticed(lab: Lab, later_version: None) -> None:
    script = (
        "echo first; until [ -e $GPUCLUSTER_TASK_DIR.go ]; do sleep 0.01; done;"
        'echo "{\\"step\\": 4, \\"time_us\\": 4}" > $GPUCLUSTER_TASK_DIR/steps.fifo; echo second; exit 5'
    )
    attempt = lab.start(shell(script))
    lab.started(attempt)
    (note,) = lab.backend.task_notes().values()
    assert "another version" in note
    lab.mark(attempt, "go").touch()
    assert lab.exit(attempt).code == 5
    assert len(lab.of(attempt, TaskStarted)) == 1
    assert lab.steps(attempt) == [4]
    assert lab.output(attempt) == b"first\nsecond\n"
    assert lab.backend.task_notes() == {}


def test_task_of_another_version_is_stopped_by_a_signal(lab: Lab, later_version: None) -> None:
    attempt = lab.start(shell("sleep 300"))
    lab.started(attempt)
    lab.stop(attempt, StopCause.CANCEL, grace_s=5)
    task_exit = lab.exit(attempt)
    assert task_exit.signal == signal.SIGTERM


def test_death_of_a_supervisor_of_another_version_is_noticed(lab: Lab, later_version: None) -> None:
    attempt = lab.start(shell(TREE))
    leader = pid_from(lab, attempt, "leader")
    lab.started(attempt)
    os.kill(supervisor_of(lab, attempt), signal.SIGKILL)
    assert isinstance(lab.last(attempt), TaskLost)
    assert not is_running(leader)


# -- folders that are deleted


def test_deleted_data_folder_does_not_come_back(lab: Lab) -> None:
    attempt = lab.start(shell("echo $$ > $GPUCLUSTER_TASK_DIR.leader; sleep 300"))
    leader = pid_from(lab, attempt, "leader")
    while lab.data_dir.exists():
        shutil.rmtree(lab.data_dir, ignore_errors=True)
    assert isinstance(lab.last(attempt), TaskLost)
    lab.adopt("unheard-of")  # asked after when all is gone
    assert isinstance(lab.last("unheard-of"), TaskStartFailed)
    late = lab.start(shell("true"))
    assert isinstance(lab.last(late), TaskStartFailed)
    wait_until(lambda: not is_running(leader), "the end of the task")
    assert not lab.data_dir.exists()


def test_deleted_folder_of_a_task_does_not_come_back(lab: Lab) -> None:
    """Deleted while its supervisor is being started, and while it runs."""
    for pause_s in (0, 0.001, 0.003, 0.006, 0.01, 0.02, 0.2):
        attempt = lab.start(shell("sleep 300"))
        wait_until(lab.task_dir(attempt).exists)
        time.sleep(pause_s)
        remover = threading.Thread(target=shutil.rmtree, args=(lab.task_dir(attempt), True))
        remover.start()
        remover.join()
        while lab.task_dir(attempt).exists():  # its files still come and go
            shutil.rmtree(lab.task_dir(attempt), ignore_errors=True)
        assert isinstance(lab.last(attempt), (TaskLost, TaskStartFailed))
        assert not lab.task_dir(attempt).exists()
