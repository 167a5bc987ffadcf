from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpucluster.runtimes.threads import DaemonThreads

ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "server")}


def test_work_is_done_and_its_error_is_raised() -> None:
    threads = DaemonThreads(2, "test")
    assert threads.submit(divmod, 7, 3).result(60) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 7, 0).result(60)
    assert list(threads.map(abs, [-1, -2])) == [1, 2]
    threads.shutdown(wait=True)
    with pytest.raises(RuntimeError):
        threads.submit(abs, 1)


def test_work_that_hangs_holds_up_no_other_while_there_are_threads() -> None:
    threads, gate = DaemonThreads(3, "test"), threading.Event()
    hanging = [threads.submit(gate.wait, 60) for _ in range(2)]
    for _ in range(10):
        assert threads.submit(abs, -1).result(60) == 1
    gate.set()
    assert all(future.result(60) for future in hanging)


def test_work_that_waits_is_cancelled_at_the_shutdown() -> None:
    threads, gate = DaemonThreads(1, "test"), threading.Event()
    first, second = threads.submit(gate.wait, 60), threads.submit(abs, 1)
    while not first.running():
        pass
    threads.shutdown(cancel_futures=True)
    assert second.cancelled()
    gate.set()
    assert first.result(60)


def test_work_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    script = (
        "import time; from gpucluster.runtimes.threads import DaemonThreads\n"
        "threads = DaemonThreads(1, 'x'); future = threads.submit(time.sleep, 3600)\n"
        "while not future.running(): pass\n"
        "threads.shutdown()"
    )
    assert subprocess.run([sys.executable, "-c", script], env=ENV, timeout=60, check=False).returncode == 0
