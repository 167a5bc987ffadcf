"""Commands as tasks: output, exit, environment, and that nothing of a tree is left."""

from __future__ import annotations

import hashlib
import json
import signal
import time

from gpucluster.engine.events import TaskEnded, TaskStarted, TaskStartFailed
from gpucluster.model.jobs import StopCause
from gpucluster.runtimes.supervisor import processes
from gpucluster.worker.frames import Kind

from .lab import Lab, command, make_order, placement, shell, wait_until


def is_running(pid: int) -> bool:
    process = processes.read_process(pid)
    return process is not None and not process.is_dead


def pid_from(lab: Lab, attempt_id: str, name: str) -> int:
    path = lab.mark(attempt_id, name)
    return int(wait_until(lambda: path.exists() and path.read_text().strip(), f"the file {name}"))


def test_output_and_exit_of_a_command_come_back(lab: Lab) -> None:
    attempt = lab.start(shell("echo out; echo err >&2; exit 3"))
    task_exit = lab.exit(attempt)
    assert (task_exit.code, task_exit.signal, task_exit.reason) == (3, None, "ended with exit code 3")
    assert lab.output(attempt) == b"out\n"
    assert lab.output(attempt, Kind.STDERR) == b"err\n"
    assert [type(event) for event in lab.of(attempt)] == [TaskStarted, TaskEnded]


def test_binary_output_is_kept_byte_for_byte(lab: Lab) -> None:
    attempt = lab.start(
        command("/usr/bin/env", "python3", "-c", "import os; os.write(1, bytes(range(256)) * 999)")
    )
    assert lab.exit(attempt).code == 0
    assert lab.output(attempt) == bytes(range(256)) * 999


def test_fifty_megabytes_of_output_arrive_whole(lab: Lab) -> None:
    attempt = lab.start(shell("head -c 50000000 /dev/zero | tr '\\0' x"))
    assert lab.exit(attempt).code == 0
    assert hashlib.sha256(lab.output(attempt)).digest() == hashlib.sha256(b"x" * 50_000_000).digest()


def test_output_over_the_limit_is_dropped_and_said_once(folder) -> None:  # type: ignore[no-untyped-def]
    lab = Lab(folder, log_limit_bytes=1000)
    attempt = lab.start(shell("for i in $(seq 1000); do echo 0123456789; done; exit 4"))
    assert lab.exit(attempt).code == 4
    assert len(lab.output(attempt)) == 1000
    statuses = [json.loads(frame.payload) for frame in lab.frames(attempt) if frame.kind is Kind.STATUS]
    assert [status["event"] for status in statuses] == ["up", "truncated", "ended"]
    lab.close()


def test_death_by_a_signal_is_named(lab: Lab) -> None:
    attempt = lab.start(shell("kill -SEGV $$"))
    task_exit = lab.exit(attempt)
    assert (task_exit.code, task_exit.signal) == (139, 11)
    assert task_exit.reason == "killed by signal 11 (SIGSEGV)"


def test_command_that_is_not_there_is_a_start_failure(lab: Lab) -> None:
    event = lab.last(lab.start(command("no-such-program", "--help")))
    assert isinstance(event, TaskStartFailed)
    assert not event.retry
    assert event.reason == "cannot run no-such-program: No such file or directory"


def test_missing_working_directory_is_a_start_failure(lab: Lab) -> None:
    event = lab.last(lab.start(shell("true", cwd="/no/such/folder")))
    assert isinstance(event, TaskStartFailed)
    assert not event.retry
    assert event.reason == "the working directory /no/such/folder does not exist on node-0"


def test_task_has_its_whole_environment_and_nothing_of_the_daemon(lab: Lab, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("DAEMON_SECRET", "x")
    attempt = lab.start(
        shell("env -0", env={"PATH": "/usr/bin:/bin", "MINE": "1", "MASTER_PORT": "1"}),
        placement(gpus=("GPU-1", "GPU-3")),
        secret_env={"TOKEN": "s3cret", "CUDA_VISIBLE_DEVICES": "0", "GPUCLUSTER_TASK_ID": "x", "RANK": "9"},
        local_world_size=2,
    )
    assert lab.exit(attempt).code == 0
    env = dict(item.split("=", 1) for item in lab.output(attempt).decode().rstrip("\0").split("\0"))
    expected = {
        "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-3",
        "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-3",
        "GPUCLUSTER_GPUS": "GPU-1,GPU-3",
        "GPUCLUSTER_SIMULATED_GPUS": "1",
        "GPUCLUSTER_JOB_NUMBER": "7",
        "GPUCLUSTER_JOB_NAME": "a job",
        "GPUCLUSTER_QUEUE": "team-a",
        "GPUCLUSTER_NODE": "node-0",
        "GPUCLUSTER_TASK_ID": f"{attempt}.0",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_PORT": "29500",
        "MINE": "1",
        "TOKEN": "s3cret",
        "PATH": "/usr/bin:/bin",
    }
    assert expected.items() <= env.items()
    assert "DAEMON_SECRET" not in env
    task_dir = lab.task_dir(attempt)
    assert not (task_dir / "secrets.json").exists()
    assert "s3cret" not in (task_dir / "spec.json").read_text()
    assert task_dir.stat().st_mode & 0o777 == 0o700


def test_same_order_twice_runs_once(lab: Lab) -> None:
    order = make_order("twice", shell("echo run >> $GPUCLUSTER_TASK_DIR.count"), placement())
    lab.start_order(order)
    lab.start_order(order)
    assert lab.exit("twice").code == 0
    assert lab.mark("twice", "count").read_text() == "run\n"


def test_whole_tree_is_gone_when_the_command_ends(lab: Lab) -> None:
    script = (
        "sleep 300 & echo $! > $GPUCLUSTER_TASK_DIR.child;"
        "setsid bash -c '(setsid sleep 301 & echo $! > $GPUCLUSTER_TASK_DIR.daemon) &';"
        "until [ -s $GPUCLUSTER_TASK_DIR.daemon ]; do sleep 0.01; done; echo done"
    )
    attempt = lab.start(shell(script))
    assert lab.exit(attempt).code == 0
    assert lab.output(attempt) == b"done\n"
    for name in ("child", "daemon"):
        assert not is_running(pid_from(lab, attempt, name))


def test_output_of_a_child_that_is_still_writing_is_kept(lab: Lab) -> None:
    attempt = lab.start(shell("(sleep 0.05; echo late) & echo early"))
    assert lab.exit(attempt).code == 0
    assert lab.output(attempt) == b"early\nlate\n"


def test_stop_lets_a_command_end_by_itself_within_its_grace(lab: Lab) -> None:
    attempt = lab.start(
        shell("trap 'echo bye; exit 0' TERM; touch $GPUCLUSTER_TASK_DIR.ready; while :; do sleep 0.02; done")
    )
    wait_until(lab.mark(attempt, "ready").exists)
    lab.stop(attempt, StopCause.EVICT, grace_s=30)
    task_exit = lab.exit(attempt)
    assert task_exit.code == 0
    assert task_exit.reason == "stopped (evict): ended within the grace"
    assert lab.output(attempt) == b"bye\n"


def test_command_that_ignores_the_notice_is_killed_with_its_tree_after_the_grace(lab: Lab) -> None:
    script = (
        "trap '' TERM; setsid sleep 300 & echo $! > $GPUCLUSTER_TASK_DIR.child;"
        "touch $GPUCLUSTER_TASK_DIR.ready; while :; do sleep 0.02; done"
    )
    attempt = lab.start(shell(script))
    wait_until(lab.mark(attempt, "ready").exists)
    lab.stop(attempt, grace_s=0.3)
    task_exit = lab.exit(attempt)
    assert (task_exit.code, task_exit.signal) == (137, signal.SIGKILL)
    assert task_exit.reason == "stopped (cancel): killed after a grace of 0.3 s"
    assert not is_running(pid_from(lab, attempt, "child"))


def test_stronger_cause_and_earlier_end_of_two_stops_hold(lab: Lab) -> None:
    attempt = lab.start(shell("trap '' TERM; touch $GPUCLUSTER_TASK_DIR.ready; while :; do sleep 0.02; done"))
    wait_until(lab.mark(attempt, "ready").exists)
    lab.stop(attempt, StopCause.CANCEL, grace_s=1000)
    lab.stop(attempt, StopCause.EVICT, grace_s=0.1)
    assert "stopped (cancel): killed after a grace of" in (lab.exit(attempt).reason or "")
    notices = [frame for frame in lab.frames(attempt) if b'"notice"' in frame.payload]
    assert len(notices) == 1


def test_stop_reaches_a_suspended_task(lab: Lab) -> None:
    attempt = lab.start(
        shell("trap 'echo bye; exit 5' TERM; touch $GPUCLUSTER_TASK_DIR.ready; while :; do sleep 0.02; done")
    )
    lab.started(attempt)
    wait_until(lab.mark(attempt, "ready").exists)
    follower = lab.backend.follower(attempt, 0)
    assert follower is not None
    lab._loop.call_soon_threadsafe(follower.suspend, True)
    wait_until(lambda: any(b'"suspended"' in frame.payload for frame in lab.frames(attempt)))
    lab.stop(attempt, grace_s=30)
    assert lab.exit(attempt).code == 5
    assert lab.output(attempt) == b"bye\n"


def test_suspended_task_stands_still_and_goes_on(lab: Lab) -> None:
    script = (
        "i=0; while [ ! -e $GPUCLUSTER_TASK_DIR.end ]; do"
        " i=$((i+1)); echo $i > $GPUCLUSTER_TASK_DIR.count; sleep 0.005; done"
    )
    attempt = lab.start(shell(script))
    count = lab.mark(attempt, "count")
    wait_until(count.exists)
    follower = lab.backend.follower(attempt, 0)
    assert follower is not None
    lab._loop.call_soon_threadsafe(follower.suspend, True)
    wait_until(lambda: any(b'"suspended"' in frame.payload for frame in lab.frames(attempt)))
    before = count.read_text()
    time.sleep(0.2)
    assert count.read_text() == before
    lab._loop.call_soon_threadsafe(follower.suspend, False)
    wait_until(lambda: count.read_text() not in ("", before), "the count to go on")
    lab.mark(attempt, "end").touch()
    assert lab.exit(attempt).code == 0


def test_step_reports_of_any_process_arrive_in_order(lab: Lab) -> None:
    script = (
        'for i in 1 2 3; do echo "{\\"step\\": $i, \\"total\\": 3}" > $GPUCLUSTER_TASK_DIR/steps.fifo; done'
    )
    attempt = lab.start(shell(script))
    assert lab.exit(attempt).code == 0
    assert lab.steps(attempt) == [1, 2, 3]


def test_flood_of_step_reports_is_thinned_but_keeps_its_last(lab: Lab) -> None:
    script = (
        "import os\nf = open(os.environ['GPUCLUSTER_TASK_DIR'] + '/steps.fifo', 'w', buffering=1)\n"
        "for i in range(1, 5001): f.write('{\"step\": %d}\\n' % i)"
    )
    attempt = lab.start(command("python3", "-c", script))
    assert lab.exit(attempt).code == 0
    steps = lab.steps(attempt)
    assert steps[0] == 1
    assert steps[-1] == 5000
    assert len(steps) < 2500
    assert steps == sorted(set(steps))
    assert len((lab.task_dir(attempt) / "steps.ndjson").read_text().splitlines()) == 5000


def test_reader_of_a_log_is_woken_by_new_output_and_by_the_end(lab: Lab) -> None:
    attempt = lab.start(shell("until [ -e $GPUCLUSTER_TASK_DIR.go ]; do sleep 0.01; done; echo hello"))
    lab.started(attempt)
    reader = lab.backend.log_reader(attempt, placement())

    async def follow() -> bytes:
        data, offset = b"", 0
        lab.mark(attempt, "go").touch()
        while b'"ended"' not in data:
            await reader.wait(offset)
            chunk = reader.read(offset, 1 << 16)
            offset += len(chunk)
            data += chunk
        while not lab.of(attempt, TaskEnded):
            await reader.wait(offset)
        await reader.wait(offset)
        return data

    assert b"hello\n" in lab.call(follow())


def test_discard_removes_an_ended_attempt(lab: Lab) -> None:
    attempt = lab.start(shell("true"))
    lab.exit(attempt)
    lab.call(lab.backend.discard(attempt))
    assert not lab.task_dir(attempt).exists()
