"""The check that nothing is left finds what it is there for; else every green test of this folder would say little."""

from __future__ import annotations

import fcntl
import socket
import sys

from support.place import Place


def test_process_socket_and_lock_that_are_left_are_found(here: Place) -> None:
    assert here.left_overs() == []
    with here.popen(sys.executable, "-c", "import time; time.sleep(600)") as process:
        assert [line for line in here.left_overs() if line.startswith(f"process {process.pid}:")]
        process.kill()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(here.work / "left.sock"))
        assert here.left_overs() == [f"socket {here.work / 'left.sock'}"]
    with open(here.work / "left.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert here.left_overs() == [f"lock on {here.work / 'left.lock'}"]
    with open(here.work / "left.lock", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert here.left_overs() == [f"lock on {here.work / 'left.lock'}"]
    assert here.left_overs() == []


def test_scheduler_with_a_running_job_is_ended_whole(here: Place) -> None:
    here.cli("submit", "--gpus", "1", "--", "sh", "-c", "sleep 600 & sleep 600")
    assert here.schedulers()
    here.end()
    here.assert_nothing_is_left()
