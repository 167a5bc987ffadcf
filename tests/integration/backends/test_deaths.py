"""kill -9 of supervisor, scheduler and fork server at many points: never lost, never twice, nothing left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucluster.engine.events import TaskEnded, TaskLost, TaskStarted, TaskStartFailed
from gpucluster.model.jobs import StopCause
from gpucluster.runtimes import taskfolder
from gpucluster.runtimes.supervisor import cgroups, folder, processes

from .lab import Lab, cell, placement, shell, wait_until
from .test_commands import is_running, pid_from

ROOT = Path(__file__).parents[3]
TREE = (
    "sleep 300 & echo $! > $GPUCLUSTER_TASK_DIR.child;"
    "setsid bash -c '(setsid sleep 301 & echo $! > $GPUCLUSTER_TASK_DIR.daemon) &';"
    "until [ -s $GPUCLUSTER_TASK_DIR.daemon ]; do sleep 0.01; done; echo $$ > $GPUCLUSTER_TASK_DIR.leader; sleep 302"
)


def supervisor_of(lab: Lab, attempt_id: str) -> int:
    path = str(lab.task_dir(attempt_id) / "started")
    return int(wait_until(lambda: folder.read_json(path), "the claim")["pid"])


def worker_of(lab: Lab, attempt_id: str) -> int:
    path = str(lab.task_dir(attempt_id) / "worker.json")
    return int(wait_until(lambda: folder.read_json(path), "worker.json")["pid"])


def groups_of(task_id: str) -> list[str]:
    places = cgroups.find_hierarchies()
    parents = [*places.v1.values(), *([places.v2] if places.v2 else [])]
    return [parent for parent in parents if os.path.exists(os.path.join(parent, cgroups.PREFIX + task_id))]


def marked(task_id: str) -> list[int]:
    every = processes.all_processes()
    return [
        one.pid
        for one in every
        if not one.is_dead and processes.has_environment_mark(one.pid, "GPUCLUSTER_TASK_ID", task_id)
    ]


class Scheduler:
    """A scheduler process that can be killed."""

    def __init__(self, where: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "integration.backends.agent_process", str(where)],
            cwd=ROOT / "tests",
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'server'}:{ROOT / 'tests'}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def start(self, script: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(script) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def scheduler(folder: Path) -> Iterator[Scheduler]:
    made = Scheduler(folder)
    yield made
    made.kill()


# -- the supervisor dies


def test_task_of_a_killed_supervisor_is_ended_whole_and_lost(lab: Lab) -> None:
    attempt = lab.start(shell(TREE), placement(memory=1 << 30))
    pids = [pid_from(lab, attempt, name) for name in ("leader", "child", "daemon")]
    os.kill(supervisor_of(lab, attempt), signal.SIGKILL)
    event = lab.last(attempt)
    assert isinstance(event, TaskLost)
    assert "supervisor" in event.reason
    assert not any(is_running(pid) for pid in pids)
    assert groups_of(f"{attempt}.0") == []


def test_forked_children_of_a_cell_are_found_when_supervisor_and_session_are_gone(lab: Lab) -> None:
    source = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        open(os.environ['GPUCLUSTER_TASK_DIR'] + '.daemon', 'w').write(str(os.getpid()))\n"
        "        time.sleep(300)\n"
        "    os._exit(0)\n"
        "time.sleep(300)\n"
    )
    attempt = lab.start(cell(source))
    daemon = pid_from(lab, attempt, "daemon")
    assert daemon in marked(f"{attempt}.0")
    os.kill(supervisor_of(lab, attempt), signal.SIGKILL)
    assert isinstance(lab.last(attempt), TaskLost)
    assert not is_running(daemon)


def test_suspended_task_of_a_killed_supervisor_is_ended(lab: Lab) -> None:
    attempt = lab.start(shell(TREE))
    leader = pid_from(lab, attempt, "leader")
    follower = lab.backend.follower(attempt, 0)
    assert follower is not None
    lab._loop.call_soon_threadsafe(follower.suspend, True)
    wait_until(lambda: any(b'"suspended"' in frame.payload for frame in lab.frames(attempt)))
    os.kill(supervisor_of(lab, attempt), signal.SIGKILL)
    assert isinstance(lab.last(attempt), TaskLost)
    assert not is_running(leader)


@pytest.mark.parametrize("seed", range(25))
def test_supervisor_killed_at_any_instant_leaves_one_verdict_and_no_process(lab: Lab, seed: int) -> None:
    """From before its claim to after its exit: whatever the instant, the verdict fits what the task did."""
    pause_s = random.Random(seed).uniform(0, 0.03)
    attempt = lab.start(shell("echo run >> $GPUCLUSTER_TASK_DIR.count; sleep 0.01; echo $$"))
    path = str(lab.task_dir(attempt) / "started")
    claim = wait_until(lambda: folder.read_json(path), "the claim")
    time.sleep(pause_s)
    processes.send_signal(claim["pid"], signal.SIGKILL)
    event = lab.last(attempt)
    count = lab.mark(attempt, "count")
    runs = count.read_text() if count.exists() else ""
    if isinstance(event, TaskEnded):
        assert (event.exit.code, runs) == (0, "run\n")
    elif isinstance(event, TaskStartFailed):
        assert (event.retry, runs) == (True, "")
    else:
        assert runs in ("", "run\n")
    assert marked(f"{attempt}.0") == []
    assert groups_of(f"{attempt}.0") == []


def test_worker_killed_from_outside_is_an_end_with_its_signal(lab: Lab) -> None:
    attempt = lab.start(shell("echo before; sleep 300"))
    lab.started(attempt)
    wait_until(lambda: lab.output(attempt) == b"before\n")
    os.kill(worker_of(lab, attempt), signal.SIGKILL)
    task_exit = lab.exit(attempt)
    assert (task_exit.code, task_exit.signal, task_exit.oom) == (137, 9, False)
    assert (task_exit.reason or "").startswith("killed by signal 9 (SIGKILL)")


def test_two_supervisors_on_one_folder_run_the_task_once(lab: Lab) -> None:
    attempt = lab.start(shell("echo run >> $GPUCLUSTER_TASK_DIR.count; sleep 0.2"))
    task_dir = lab.task_dir(attempt)
    wait_until((task_dir / "spec.json").exists)
    bundle = json.loads((task_dir / "spec.json").read_text())["bundle"]
    argv = [sys.executable, f"{bundle}/start.py", "supervisor", str(task_dir)]
    rivals = [subprocess.Popen(argv) for _ in range(4)]
    assert [rival.wait(60) for rival in rivals] == [0] * 4
    assert lab.exit(attempt).code == 0
    assert lab.mark(attempt, "count").read_text() == "run\n"


def test_fork_server_that_died_is_replaced(lab: Lab) -> None:
    assert lab.exit(lab.start(shell("true"))).code == 0
    servers = lab.backend._runtime._servers
    assert servers is not None
    for future in list(servers._servers.values()):
        os.kill(future.result()._process.pid, signal.SIGKILL)
    assert lab.exit(lab.start(shell("exit 4"))).code == 4


def test_socket_that_somebody_removed_does_not_cost_the_task(lab: Lab) -> None:
    attempt = lab.start(shell("touch $GPUCLUSTER_TASK_DIR.ready; sleep 300"))
    wait_until(lab.mark(attempt, "ready").exists)
    for path in (lab.runtime_dir / "t").iterdir():
        path.unlink()
    lab.go_away()
    lab.open()
    lab.adopt(attempt)
    lab.stop(attempt, StopCause.CANCEL, grace_s=5)
    task_exit = lab.exit(attempt)
    assert task_exit.signal == signal.SIGTERM
    assert (task_exit.reason or "").startswith("stopped (")


def test_task_whose_folder_vanished_is_ended_and_lost(lab: Lab) -> None:
    attempt = lab.start(shell("echo $$; sleep 300"))
    lab.started(attempt)
    worker, supervisor = worker_of(lab, attempt), supervisor_of(lab, attempt)
    lab.task_dir(attempt).rename(lab.data_dir / "elsewhere")
    wait_until(
        lambda: not is_running(worker) and not is_running(supervisor), "the end of task and supervisor"
    )
    event = lab.last(attempt)
    assert isinstance(event, TaskLost)
    assert "folder was removed" in event.reason


# -- the scheduler dies


def test_running_task_is_adopted_and_its_output_is_whole(folder: Path, scheduler: Scheduler) -> None:
    script = "echo first; until [ -e $GPUCLUSTER_TASK_DIR.go ]; do sleep 0.01; done; echo second; exit 6"
    attempt = scheduler.start(script)
    task_dir = folder / "data" / "tasks" / attempt / "worker.0"
    wait_until((task_dir / "worker.json").exists)
    scheduler.kill()
    lab = Lab(folder)
    lab.adopt(attempt)
    lab.started(attempt)
    task_dir.with_name("worker.0.go").touch()
    assert lab.exit(attempt).code == 6
    assert lab.output(attempt) == b"first\nsecond\n"
    assert len(lab.of(attempt, TaskStarted)) == 1
    lab.close()


def test_task_that_ended_while_nobody_looked_is_told_with_its_step_reports(
    folder: Path, scheduler: Scheduler
) -> None:
    script = (
        "until [ -e $GPUCLUSTER_TASK_DIR.go ]; do sleep 0.01; done;"
        'for i in 1 2 3; do echo "{\\"step\\": $i}" > $GPUCLUSTER_TASK_DIR/steps.fifo; done; exit 5'
    )
    attempt = scheduler.start(script)
    task_dir = folder / "data" / "tasks" / attempt / "worker.0"
    wait_until((task_dir / "worker.json").exists)
    scheduler.kill()
    task_dir.with_name("worker.0.go").touch()
    wait_until((task_dir / "exit.json").exists)
    first = json.loads((task_dir / "steps.ndjson").read_text().splitlines()[0])
    lab = Lab(folder)
    lab.adopt(attempt, reported_us=first["time_us"])
    assert lab.exit(attempt).code == 5
    assert lab.steps(attempt) == [2, 3]
    lab.close()


def test_scheduler_killed_at_any_instant_of_a_start_runs_the_task_at_most_once(folder: Path) -> None:
    """One verdict for each task; it ran exactly when the verdict says so."""
    chance = random.Random(4)
    outcomes = set()
    for number in range(12):
        where = folder / str(number)
        where.mkdir()
        scheduler = Scheduler(where)
        attempt = scheduler.start("echo run >> $GPUCLUSTER_TASK_DIR.count; sleep 0.02")
        time.sleep(chance.uniform(0, 0.03))
        scheduler.kill()
        lab = Lab(where)
        lab.adopt(attempt)
        event = lab.last(attempt)
        count = lab.mark(attempt, "count")
        if isinstance(event, TaskEnded):
            assert count.read_text() == "run\n"
        else:
            assert isinstance(event, TaskStartFailed)
            assert event.retry
            assert not count.exists()
        outcomes.add(type(event))
        lab.close()
    assert outcomes  # which of the two each time is chance


def test_supervisor_that_dies_while_no_scheduler_runs_is_found_at_adoption(lab: Lab) -> None:
    attempt = lab.start(shell(TREE))
    pids = [pid_from(lab, attempt, name) for name in ("leader", "child", "daemon")]
    lab.go_away()
    os.kill(supervisor_of(lab, attempt), signal.SIGKILL)
    lab.open()
    lab.adopt(attempt)
    assert isinstance(lab.last(attempt), TaskLost)
    assert not any(is_running(pid) for pid in pids)


def test_prepared_task_that_never_started_is_revoked_for_good(lab: Lab) -> None:
    attempt = lab.start(shell("true"))
    lab.exit(attempt)
    # What a scheduler leaves that is killed between the folder and the request to the fork server.
    source, prepared = lab.task_dir(attempt), lab.data_dir / "tasks" / "prepared" / "worker.0"
    prepared.mkdir(parents=True)
    spec = json.loads((source / "spec.json").read_text()) | {"attempt_id": "prepared"}
    (prepared / "spec.json").write_text(json.dumps(spec))
    (prepared / "secrets.json").write_text("{}")
    lab.adopt("prepared")
    event = lab.last("prepared")
    assert isinstance(event, TaskStartFailed)
    assert event.retry
    assert not (prepared / "secrets.json").exists()
    late = subprocess.run(
        [sys.executable, f"{spec['bundle']}/start.py", "supervisor", str(prepared)], check=False
    )
    assert late.returncode == 0
    assert not (prepared / "exit.json").exists()
    assert taskfolder.inspect(str(prepared)).state is taskfolder.State.REVOKED


def test_task_without_a_folder_never_ran(lab: Lab) -> None:
    lab.adopt("unheard-of")
    event = lab.last("unheard-of")
    assert isinstance(event, TaskStartFailed)
    assert event.retry


def test_task_from_before_a_restart_of_the_machine_is_lost_and_nobody_is_killed(lab: Lab) -> None:
    attempt = lab.start(shell("true"))
    lab.exit(attempt)
    task_dir = lab.task_dir(attempt)
    (task_dir / "exit.json").unlink()
    bystander = subprocess.Popen(["sleep", "300"])
    old = {"boot_id": "another", "pid": bystander.pid, "start_ticks": processes.start_ticks(bystander.pid)}
    (task_dir / "started").write_text(json.dumps({"by": "supervisor", **old}))
    (task_dir / "worker.json").write_text(json.dumps({**old, "session": bystander.pid, "cgroups": []}))
    lab.go_away()
    lab.open()
    lab.adopt(attempt)
    event = lab.last(attempt)
    assert isinstance(event, TaskLost)
    assert event.reason == "its machine was restarted"
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
