"""One real scheduler for all tests of this folder, and a real kernel for each."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpucluster.api import client as api
from gpucluster.api import discovery
from gpucluster.model.errors import GpuclusterError

from .frontend import Kernel


@dataclass
class Scheduler:
    """A running `gpucluster serve` with folders of its own."""

    folder: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes]
    client: api.ApiClient

    def start(self) -> None:
        """Start it again. A kernel that waits may be quicker: then its own one is the scheduler from now on."""
        self.process = _serve(self.folder, self.env)
        self.client = _connected(self.folder)

    def stop(self) -> None:
        """End whatever scheduler runs on these folders."""
        _end_jobs(self)
        info = discovery.find_scheduler(self.folder / "data")
        if info is not None:
            os.kill(info.pid, signal.SIGTERM)
        deadline = time.monotonic() + 30
        while info is not None and discovery.is_running(info) and time.monotonic() < deadline:
            self.process.poll()
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        """Of the scheduler that runs now."""
        info = discovery.find_scheduler(self.folder / "data")
        assert info is not None
        return info.pid

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()


def _serve(folder: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    with open(folder / "serve.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gpucluster", "serve"], env=env, stdout=log, stderr=log, cwd="/"
        )


def _connected(folder: Path) -> api.ApiClient:
    """A client of the scheduler, once it answers."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            return api.connect(start=False, data_dir=folder / "data")
        except GpuclusterError:
            time.sleep(0.05)
    raise AssertionError(f"the scheduler does not answer:\n{(folder / 'serve.log').read_text()}")


def _environment(folder: Path) -> dict[str, str]:
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("GPUCLUSTER_", "JUPYTER_", "JPY_"))
    }
    return {
        **kept,
        "GPUCLUSTER_DATA": str(folder / "data"),
        "GPUCLUSTER_RUNTIME": str(folder / "run"),
        "IPYTHONDIR": str(folder / "ipython"),
    }


@pytest.fixture(scope="session")
def scheduler() -> Iterator[Scheduler]:
    folder = Path(tempfile.mkdtemp(prefix="gpc-nb-"))
    env = _environment(folder)
    before = os.environ.get("GPUCLUSTER_RUNTIME")
    os.environ["GPUCLUSTER_RUNTIME"] = env["GPUCLUSTER_RUNTIME"]
    process = _serve(folder, env)
    try:
        running = Scheduler(folder, env, process, _connected(folder))
        yield running
        running.stop()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if before is None:
            del os.environ["GPUCLUSTER_RUNTIME"]
        else:
            os.environ["GPUCLUSTER_RUNTIME"] = before
        shutil.rmtree(folder, ignore_errors=True)


def _end_jobs(running: Scheduler) -> None:
    """A test that failed may have left jobs; they would outlive the scheduler."""
    states = ("pending", "starting", "running", "suspended", "stopping")
    try:
        for job in running.client.jobs(states=states).jobs:
            running.client.cancel(job.id)
        deadline = time.monotonic() + 30
        while running.client.jobs(states=states).jobs and time.monotonic() < deadline:
            time.sleep(0.1)
    except GpuclusterError:
        return


@pytest.fixture
def start_kernel(scheduler: Scheduler, tmp_path: Path) -> Iterator[Callable[..., Kernel]]:
    started: list[Kernel] = []

    def start(**more_env: str) -> Kernel:
        made = Kernel({**scheduler.env, **more_env}, tmp_path)
        started.append(made)
        return made

    yield start
    for each in started:
        each.close()


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    return start_kernel()
