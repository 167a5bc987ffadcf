from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucluster.runtimes.supervisor import processes

from .lab import Lab


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: sockets lie in it."""
    path = Path(tempfile.mkdtemp(prefix="gpc-rt-"))
    yield path
    _end_what_is_left(path)
    shutil.rmtree(path, ignore_errors=True)


def _end_what_is_left(path: Path) -> None:
    """Supervisors of a failed test, found by the lock they hold, and their tasks with them."""
    for started in path.glob("data/tasks/*/*/started"):
        with contextlib.suppress(OSError):
            for process in processes.all_processes():
                if _holds(process.pid, started.with_name("lock")):
                    victims = processes.descendants([process.pid], processes.all_processes())
                    for pid in [process.pid, *victims]:
                        processes.send_signal(pid, 9)


def _holds(pid: int, lock: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(
            os.readlink(f"/proc/{pid}/fd/{name}") == str(lock) for name in os.listdir(f"/proc/{pid}/fd")
        )
    return False


@pytest.fixture
def lab(folder: Path) -> Iterator[Lab]:
    made = Lab(folder)
    yield made
    made.close()
