"""A real scheduler process on folders of its own, and clients of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpucluster.api import discovery
from gpucluster.api.client import ApiClient, connect
from gpucluster.api.errors import Conflict
from gpucluster.api.schemas import JobSubmission, JobView, RoleSubmission
from gpucluster.api.transport import Transport, parse_address

from . import serve_users

TIMEOUT_S = 60.0
ENDED = ("succeeded", "failed", "cancelled")


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> Any:
    """Wait until the condition gives something true, and return that."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)


def command(script: str, **fields: Any) -> JobSubmission:
    """A job that runs a shell script, on no GPU unless asked otherwise."""
    roles = fields.pop("roles", [RoleSubmission(gpus=fields.pop("gpus", 0), count=fields.pop("tasks", 1))])
    return JobSubmission(
        kind="command",
        source=script,
        command=["/bin/sh", "-c", script],
        idempotency_key=fields.pop("key", uuid.uuid4().hex),
        roles=roles,
        env={"PATH": os.environ["PATH"], **fields.pop("env", {})},
        **fields,
    )


class Scheduler:
    """`gpucluster serve` on a data and a runtime folder below `folder`; may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.runtime = folder / "run"
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("GPUCLUSTER_")},
            "GPUCLUSTER_DATA": str(self.data),
            "GPUCLUSTER_RUNTIME": str(self.runtime),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self.folder / "serve.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "gpucluster", "serve", *arguments],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )

    def start(self, *arguments: str) -> Scheduler:
        self.process = self.spawn(*arguments)
        wait_until(lambda: self.process.poll() is not None or self.info(), "the scheduler to come up")
        assert self.process.poll() is None, self.said()
        return self

    def info(self) -> discovery.RuntimeInfo | None:
        info = discovery.read_runtime_file(discovery.claim_file(Path(os.path.realpath(self.data))))
        return info if info and discovery.is_running(info) and discovery.accepts(info.socket) else None

    def said(self) -> str:
        return (self.folder / "serve.log").read_text()

    def log(self) -> str:
        return (self.data / "scheduler.log").read_text()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def client(self) -> ApiClient:
        """Found by its socket's address, as by a client that starts nothing."""
        info = wait_until(self.info, "the scheduler to come up")
        return connect(info.address, start=False)

    def end(self) -> None:
        """End the scheduler and whatever its jobs left."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(Exception), self.client() as client:
                for job in client.jobs(states=["open"]).jobs:
                    client.cancel(job.id)
                wait_until(lambda: not client.jobs(states=["open"]).jobs, "the jobs to end", 15)
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, since sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="gpc-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture
def fresh(folder: Path) -> Iterator[Scheduler]:
    """A scheduler of the test's own, not started yet."""
    scheduler = Scheduler(folder)
    yield scheduler
    scheduler.end()


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    """One that runs, shared by the tests of a module that do it no harm."""
    with tempfile.TemporaryDirectory(prefix="gpc-", ignore_cleanup_errors=True) as path:
        shared = Scheduler(Path(path)).start()
        yield shared
        shared.end()


@pytest.fixture
def client(scheduler: Scheduler) -> Iterator[ApiClient]:
    with scheduler.client() as client:
        yield client


def ended(client: ApiClient, job: JobView | str) -> JobView:
    """The job once it has ended."""
    job_id = job if isinstance(job, str) else job.id

    def look() -> JobView | None:
        view = client.job(job_id)
        return view if view.state in ENDED else None

    return wait_until(look, f"job {job_id} to end")


# ---- several users

USERS_CONFIG = """
nodes:
  - name: node-0
    gpus: 4
queues:
  - name: vision
    submit: {groups: [vision]}
  - name: open
default_queue: open
"""

#: Gives a client that is the user of this name.
As = Callable[[str], ApiClient]


class ClientOf(ApiClient):
    def __init__(self, name: str, address: str) -> None:
        super().__init__(parse_address(address))
        self.name = name

    def _connected(self, *, revive: bool = False) -> Transport:
        transport = super()._connected(revive=revive)
        transport._client.headers[serve_users.HEADER] = self.name
        return transport


class ManyUsers(Scheduler):
    """A scheduler that takes its callers for whom they say they are."""

    def spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        config = self.folder / "cluster.yaml"
        config.write_text(USERS_CONFIG)
        with open(self.folder / "serve.log", "ab") as log:
            command_line = [sys.executable, serve_users.__file__, str(config)]
            return subprocess.Popen(command_line, env=self.env, stdout=log, stderr=log, cwd="/")


@pytest.fixture(scope="module")
def users() -> Iterator[As]:
    with (
        tempfile.TemporaryDirectory(prefix="gpc-", ignore_cleanup_errors=True) as path,
        contextlib.ExitStack() as stack,
    ):
        scheduler = ManyUsers(Path(path)).start()
        info = scheduler.info()
        assert info is not None

        def client(name: str) -> ApiClient:
            return stack.enter_context(ClientOf(name, info.address))

        yield client
        with client("admin") as admin:
            for job in admin.jobs(states=["open"]).jobs:
                with contextlib.suppress(Conflict):  # it has ended just now
                    admin.cancel(job.id)
            wait_until(lambda: not admin.jobs(states=["open"]).jobs, "the jobs to end")
        assert scheduler.stop() == 0
