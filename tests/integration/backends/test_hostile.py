"""What a task does to its own folder and channels hurts nobody but itself, and never keeps its end from being told."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest

from gpucluster.engine.events import TaskLost
from gpucluster.model.errors import Unavailable
from gpucluster.model.jobs import ResultManifest, StopCause
from gpucluster.runtimes.supervisor import folder as task_folder
from gpucluster.runtimes.supervisor import processes
from gpucluster.worker.frames import Kind

from .lab import Lab, cell, shell, wait_until
from .test_commands import is_running, pid_from

PLANTS = ("mkfifo", "mkdir", "ln -s /dev/zero", "ln -s /etc/passwd")
NAMES = (
    "result.json", "exit.json", "exit.json.tmp", "steps.ndjson", "log", "started", "worker.json", "lock", "spec.json",
    "supervisor.err",
)  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
def test_task_that_plants_things_in_its_folder_ends_and_is_told(lab: Lab, plant: str) -> None:
    script = f"cd $GPUCLUSTER_TASK_DIR; for name in {' '.join(NAMES)}; do rm -rf $name; {plant} $name; done;"
    script += "echo '{\"step\": 1}' > steps.fifo; exit 3"
    attempt = lab.start(shell(script))
    assert lab.exit(attempt).code == 3
    assert lab.steps(attempt) == [1]


@pytest.mark.parametrize("plant", PLANTS)
def test_task_with_planted_things_is_cancelled_within_its_grace(lab: Lab, plant: str) -> None:
    script = f"cd $GPUCLUSTER_TASK_DIR; for name in {' '.join(NAMES)}; do rm -rf $name; {plant} $name; done;"
    attempt = lab.start(
        shell(f"{script} trap '' TERM; touch $GPUCLUSTER_TASK_DIR.ready; while :; do sleep 1; done")
    )
    wait_until(lab.mark(attempt, "ready").exists)
    lab.stop(attempt, grace_s=0.2)
    task_exit = lab.exit(attempt)
    assert (task_exit.signal, task_exit.stop_cause) == (9, "cancel")


def test_task_that_empties_and_closes_its_folder_ends(lab: Lab) -> None:
    attempt = lab.start(shell("rm -rf $GPUCLUSTER_TASK_DIR/*; chmod 0 $GPUCLUSTER_TASK_DIR; exit 4"))
    assert lab.exit(attempt).code == 4


@pytest.mark.parametrize(
    "report",
    [
        '{"step": 1, "time_us": 99999999999999999999}', '{"step": 1e400}', "[" * 3000, '{"step": 1, "time_us": "x"}',
        '{"step": 99999999999999999999}', "x" * 100_000, '{"step": 1, "metrics": {"a": 1e999}, "rank": [1]}',
    ],
)  # fmt: skip
def test_no_step_report_stops_anything(lab: Lab, report: str) -> None:
    path = lab.runtime_dir / "report"
    path.write_text(report + "\n")
    attempt = lab.start(
        shell(
            f"cat {path} > $GPUCLUSTER_TASK_DIR/steps.fifo; echo '{{\"step\": 7}}' > $GPUCLUSTER_TASK_DIR/steps.fifo"
        )
    )
    assert lab.exit(attempt).code == 0
    told = [event.progress for event in lab.of(attempt) if hasattr(event, "progress")]
    assert told[-1].step == 7
    with sqlite3.connect(":memory:") as database:
        for progress in told:
            database.execute("select ?, ?, ?", (progress.step, progress.time_us, progress.rank))
            assert abs(progress.time_us - time.time_ns() // 1000) < 600_000_000


def test_garbage_on_the_message_socket_is_told_once_and_left_out(lab: Lab) -> None:
    source = """
import os, struct
fd = 3
def send(kind, payload): os.write(fd, struct.pack("<IB", len(payload), kind) + payload)
for _ in range(50):
    send(32, b'{"step": 99999999999999999999}')
    send(33, b'{"event": "x", "self": 1}')
    send(34, b"note \\xff")
    send(6, b"[" * 100000)
    send(7, b"{}")
    send(99, b"?")
print("still here")
"""
    attempt = lab.start(cell(source))
    assert lab.exit(attempt).code == 0
    assert b"still here" in lab.output(attempt)
    said = [json.loads(frame.payload) for frame in lab.frames(attempt) if frame.kind is Kind.STATUS]
    assert len([one for one in said if "step report" in one.get("text", "")]) == 1
    assert [one["event"] for one in said].count("up") == 1


@pytest.mark.parametrize("before", ["", "rm lock started;"])
def test_exit_that_a_task_forges_does_not_free_its_gpu(lab: Lab, before: str) -> None:
    forge = f"cd $GPUCLUSTER_TASK_DIR; {before} echo '{{\"code\": 0}}' > exit.json; echo $$ > $GPUCLUSTER_TASK_DIR.pid"
    attempt = lab.start(shell(f"{forge}; sleep 300"))
    pid = pid_from(lab, attempt, "pid")
    lab.go_away()
    lab.open()
    lab.adopt(attempt)
    if not before:
        lab.started(attempt)
        assert is_running(pid)
        lab.stop(attempt, grace_s=0.1)
        assert lab.exit(attempt).code == 143
    lab.last(attempt)
    assert not is_running(pid)


def test_claim_and_lock_that_a_task_removed_do_not_let_it_run_twice(lab: Lab) -> None:
    script = "cd $GPUCLUSTER_TASK_DIR; rm -f started lock worker.json; echo $$ > $GPUCLUSTER_TASK_DIR.pid; sleep 300"
    attempt = lab.start(shell(script))
    pid = pid_from(lab, attempt, "pid")
    lab.go_away()
    lab.open()
    lab.adopt(attempt)
    lab.last(attempt)
    assert not is_running(pid)


def test_task_whose_supervisor_died_is_ended_although_the_clock_was_set(lab: Lab) -> None:
    attempt = lab.start(shell("setsid sleep 300 & echo $! > $GPUCLUSTER_TASK_DIR.child; wait"))
    child = pid_from(lab, attempt, "child")
    lab.go_away()
    started = lab.task_dir(attempt) / "started"
    processes.send_signal(json.loads(started.read_text())["pid"], 9)
    import os

    os.utime(started, (1e9, 1e9))
    lab.open()
    lab.adopt(attempt)
    assert "died" in lab.last(attempt).reason
    assert not is_running(child)


def test_task_of_another_machine_is_left_alone_until_its_node_is_given_up(lab: Lab) -> None:
    attempt = lab.start(shell("true"))
    lab.exit(attempt)
    task_dir = lab.task_dir(attempt)
    (task_dir / "exit.json").unlink()
    claim = json.loads((task_dir / "started").read_text())
    task_folder.write_json(str(task_dir / "started"), {**claim, "boot_id": "b", "host": "node-17"})
    lab.go_away()
    lab.open()
    lab.adopt(attempt)
    note = wait_until(lambda: list(lab.backend.task_notes().values()))[0]
    assert "claimed by another machine (node-17)" in note
    lab.call(lab.backend.give_up("node-0"))
    event = lab.last(attempt)
    assert isinstance(event, TaskLost)
    assert "node-17" in event.reason


def test_stop_is_in_the_exit_only_when_it_came_before_the_end(lab: Lab) -> None:
    stopped = lab.start(
        shell("trap 'exit 0' TERM; touch $GPUCLUSTER_TASK_DIR.ready; while :; do sleep 0.02; done")
    )
    wait_until(lab.mark(stopped, "ready").exists)
    lab.stop(stopped, StopCause.EVICT)
    assert (lab.exit(stopped).code, lab.exit(stopped).stop_cause) == (0, "evict")
    own = lab.start(shell("exit 0"))
    assert (lab.exit(own).code, lab.exit(own).stop_cause) == (0, None)
    lab.stop(own, StopCause.CANCEL)


def result_of(lab: Lab, attempt: str) -> ResultManifest:
    result = lab.exit(attempt).result
    assert result is not None
    return result


def test_result_is_taken_in_however_long_the_store_refuses_it(lab: Lab) -> None:
    lab.blobs.trouble = Unavailable("the database is locked")
    attempt = lab.start(cell("answer = 42", outputs=("answer",)))
    wait_until(lambda: any("result cannot be stored" in note for note in lab.backend.task_notes().values()))
    assert (lab.task_dir(attempt) / "result" / "pickle").exists()
    lab.blobs.trouble = OSError(28, "No space left on device")
    time.sleep(0.3)
    lab.blobs.trouble = None
    result = result_of(lab, attempt)
    assert (result.names, result.missing) == (("answer",), {})
    assert (lab.blobs.folder / str(result.pickle)).exists()


def test_stop_ends_the_wait_for_a_store_that_refuses_a_result(lab: Lab) -> None:
    lab.blobs.trouble = Unavailable("the database is locked")
    attempt = lab.start(cell("answer = 42", outputs=("answer",)))
    wait_until(lambda: any("result cannot be stored" in note for note in lab.backend.task_notes().values()))
    lab.stop(attempt, grace_s=0.1)
    assert "could not be stored: the database is locked" in result_of(lab, attempt).missing["answer"]


def test_inputs_and_taken_results_go_at_the_end_and_are_not_asked_for_again(lab: Lab) -> None:
    attempt = lab.start(cell("answer = 42", outputs=("answer",)))
    result = result_of(lab, attempt)
    task_dir = lab.task_dir(attempt)
    wait_until(lambda: not lab.backend._followers)
    assert sorted(path.name for path in task_dir.iterdir()) == [
        "exit.json", "lock", "log", "result.json", "spec.json", "started", "worker.json",
    ]  # fmt: skip
    lab.go_away()
    lab.open()
    lab.adopt(attempt)  # as after a crash before the end was stored
    assert result_of(lab, attempt) == result


@pytest.mark.parametrize("plant", PLANTS)
def test_result_that_is_no_file_is_missing_and_keeps_nobody(lab: Lab, plant: str) -> None:
    manifest = json.dumps({"pickle": "0" * 64, "names": ["a"]})
    script = f"cd $GPUCLUSTER_TASK_DIR; {plant} result/pickle; echo '{manifest}' > result.json"
    attempts = [lab.start(shell(script)) for _ in range(9)]
    for attempt in attempts:
        assert "could not be taken in" in result_of(lab, attempt).missing["a"]


def test_folder_that_forbids_its_removal_is_removed(lab: Lab) -> None:
    attempt = lab.start(
        shell("mkdir -p $GPUCLUSTER_TASK_DIR/a/b; chmod 0500 $GPUCLUSTER_TASK_DIR/a $GPUCLUSTER_TASK_DIR")
    )
    lab.exit(attempt)
    wait_until(lambda: not lab.backend._followers)
    lab.call(lab.backend.discard(attempt))
    assert not lab.task_dir(attempt).parent.exists()


def test_folder_that_cannot_be_removed_is_an_error_that_names_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = lab.start(shell("true"))
    lab.exit(attempt)

    def refuse(path: str) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr("gpucluster.worker.files.os.rmdir", refuse)
    with pytest.raises(Unavailable, match=f"{attempt}.*Operation not permitted.*{Path(lab.data_dir)}"):
        lab.call(lab.backend.discard(attempt))


def test_fault_of_a_follower_does_not_leave_its_task_to_itself(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpucluster.backends import follower
    from gpucluster.runtimes import taskfolder

    looks = []
    real = taskfolder.inspect

    def faulty(task_dir: str) -> taskfolder.Finding:
        looks.append(task_dir)
        if len(looks) == 1:
            raise AssertionError("a bug")
        return real(task_dir)

    monkeypatch.setattr(follower, "_FAULT_PAUSE_S", 0.05)
    monkeypatch.setattr(taskfolder, "inspect", faulty)
    attempt = lab.start(shell("exit 5"))
    assert lab.exit(attempt).code == 5
    assert len(looks) == 2
