"""A place of its own for one test: data, runtime, IPython and working folders, the command line and clients on them, and
a look at everything that the test may have left: processes, sockets, locks.

Whatever is started here carries the folder's path in its environment or its command line; that is how it is found again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpucluster.api import discovery
from gpucluster.api.client import ApiClient, connect
from gpucluster.api.schemas import JobView

TIMEOUT_S = 90.0
ENDED = ("succeeded", "failed", "cancelled")
OPEN = ("pending", "starting", "running", "suspended", "stopping")
ROOT = Path(__file__).resolve().parents[2]


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> Any:
    """The first true value of `condition`; fails with `what` when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return found


class Process(NamedTuple):
    """A live process: `command` and `environment` as the kernel shows them, parts separated by NUL."""

    pid: int
    command: bytes
    environment: bytes

    def says(self) -> str:
        return f"{self.pid}: {self.command.replace(bytes(1), b' ').decode(errors='replace')[:200]}"


def all_processes() -> list[Process]:
    """Every process but zombies and this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                read = ((entry / name).read_bytes() for name in ("cmdline", "environ"))
                found.append(Process(int(entry.name), *read))
    return [process for process in found if discovery.start_ticks(process.pid) is not None]


def interpreter_for(uid: int) -> tuple[str, dict[str, str]]:
    """A Python that this account may run, and the environment with which it finds the packages of this one."""
    candidates = [sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"]
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path if path and "/lib/" not in path)
    packages = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    for candidate in candidates:
        env = {"PYTHONPATH": os.pathsep.join([paths, packages])} if candidate != sys.executable else {}
        with contextlib.suppress(OSError):
            tried = subprocess.run(
                [candidate, "-c", "import gpucluster.api.service"],
                env={"PATH": os.environ["PATH"], **env},
                user=uid,
                group=uid,
                extra_groups=[],
                cwd="/",
                capture_output=True,
            )
            if tried.returncode == 0:
                return candidate, env
    pytest.skip(f"no Python here that uid {uid} may run with these packages")


class Place:
    """Folders under `folder`, and what runs on them. `uid` None = as this process; else everything runs as that account."""

    def __init__(self, folder: Path, uid: int | None = None) -> None:
        self.folder = folder
        self.uid = uid
        self.data = folder / "data"
        self.runtime = folder / "run"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("GPUCLUSTER_", "JUPYTER_", "JPY_", "XDG_", "IPYTHON"))
        }
        self.python = sys.executable
        self.env = {
            **kept,
            "GPUCLUSTER_DATA": str(self.data),
            "GPUCLUSTER_RUNTIME": str(self.runtime),
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTER_RUNTIME_DIR": str(folder / "jupyter"),
            "COLUMNS": "200",
            "PYTHONIOENCODING": "utf-8",
        }
        if uid is not None:
            self.python, more = interpreter_for(uid)
            self.env = {**self.env, "HOME": str(folder), **more}
            for path in (folder, self.work):
                os.chown(path, uid, uid)
                path.chmod(0o755)
        self.serving: subprocess.Popen[bytes] | None = None
        #: What has to be closed before the scheduler ends: kernels, Jupyter servers.
        self.exit = contextlib.ExitStack()

    # ---- starting things

    def popen(self, *command: str, **changes: Any) -> subprocess.Popen[bytes]:
        """A process with this place's environment (and `env` on top), in its working folder, as its account."""
        account = {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}
        return subprocess.Popen(
            command,
            env={**self.env, **changes.pop("env", {})},
            cwd=changes.pop("cwd", self.work),
            stdin=subprocess.DEVNULL,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **account, **changes},
        )

    def run(self, *command: str, code: int | None = 0, **changes: Any) -> tuple[str, str]:
        """Standard output and error of a command that must end with `code` (None = any)."""
        with self.popen(*command, **changes) as process:
            try:
                out, err = process.communicate(timeout=TIMEOUT_S)
            except BaseException:
                process.kill()
                raise
        said = out.decode(errors="replace"), err.decode(errors="replace")
        assert code is None or process.returncode == code, (process.returncode, *said)
        return said

    def cli(self, *arguments: str, **changes: Any) -> tuple[str, str]:
        """`gpucluster …`: standard output and error."""
        return self.run(self.python, "-m", "gpucluster", *arguments, **changes)

    def json(self, *arguments: str, **changes: Any) -> Any:
        return json.loads(self.cli(*arguments, "--json", **changes)[0])

    def serve(self, *arguments: str, **changes: Any) -> Place:
        """Start the scheduler in the foreground of a process of ours, and wait until it answers."""
        with open(self.folder / "serve.log", "ab") as log:
            self.serving = self.popen(
                self.python,
                "-m",
                "gpucluster",
                "serve",
                *arguments,
                stdout=log,
                stderr=log,
                cwd="/",
                **changes,
            )
        serving = self.serving
        eventually(lambda: serving.poll() is not None or self.info(), "the scheduler to come up")
        assert serving.poll() is None, (self.folder / "serve.log").read_text()
        return self

    def info(self) -> discovery.RuntimeInfo | None:
        """The scheduler that runs here, started by whomever."""
        info = discovery.read_runtime_file(discovery.claim_file(Path(os.path.realpath(self.data))))
        return info if info and discovery.is_running(info) and discovery.accepts(info.socket) else None

    def client(self) -> ApiClient:
        """A client of this process, of the scheduler that runs already."""
        info = eventually(self.info, "a scheduler")
        return connect(info.address, start=False)

    def ended(self, job: str | int) -> JobView:
        """The job once it has ended."""
        with self.client() as client:
            eventually(lambda: client.job(job).state in ENDED, f"job {job} to end")
            return client.job(job)

    # ---- looking

    def processes(self, *marks: bytes) -> list[Process]:
        """Live processes of this place whose command line has all of `marks` in it."""
        here = os.fsencode(self.folder)
        return [
            process
            for process in all_processes()
            if (here in process.command or here in process.environment)
            and all(mark in process.command for mark in marks)
        ]

    def schedulers(self) -> list[Process]:
        return self.processes(b"gpucluster\0serve")

    def contents(self) -> dict[str, Any]:
        """What a refused submission must not change: jobs, blobs, secrets, task folders, uploads under way."""
        jobs: list[int] = []
        if self.info() is not None:
            with self.client() as client:
                jobs = [job.number for job in client.jobs(limit=500).jobs]
        names = ("blobs", "secrets", "tasks")
        files = {
            str(path.relative_to(self.data))
            for name in names
            for path in (self.data / name).rglob("*")
            if path.is_file()
        }
        return {"jobs": jobs, "files": files}

    def holders(self, text: str) -> list[str]:
        """Files below the place that have `text` in them."""
        needle = text.encode()
        found = []
        for path in self.folder.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file() and needle in path.read_bytes():
                    found.append(str(path.relative_to(self.folder)))
        return found

    # ---- ending

    def end(self) -> None:
        """Cancel what runs, end the scheduler whoever started it; then nothing may be left (see `left_overs`)."""
        self.exit.close()
        if self.info() is not None:
            with contextlib.suppress(Exception), self.client() as client:
                for job in client.jobs(states=OPEN, limit=500).jobs:
                    client.cancel(job.id)
                eventually(lambda: not client.jobs(states=OPEN).jobs, "the jobs to end", 30)
            with contextlib.suppress(Exception), self.client() as client:
                client.stop()
        for scheduler in self.schedulers():
            _end(scheduler.pid)
        if self.serving is not None:
            self.serving.wait(TIMEOUT_S)

    def left_overs(self) -> list[str]:
        """Processes, listening sockets and held locks of this place, in words."""
        left = [f"process {process.says()}" for process in self.processes()]
        here = str(self.folder)
        left += [
            f"socket {line.split()[-1]}"
            for line in Path("/proc/net/unix").read_text().splitlines()
            if here in line
        ]
        return left + [f"lock on {path}" for path in self._locked()]

    def _locked(self) -> list[str]:
        """Files below the place on which somebody holds a lock (device and inode are what /proc/locks tells)."""
        held = {tuple(line.split()[5].split(":")) for line in Path("/proc/locks").read_text().splitlines()
                if "->" not in line}  # fmt: skip
        inodes = {inode for _, _, inode in held}
        locked = []
        for path in self.folder.rglob("*"):
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                device = (f"{os.major(status.st_dev):02x}", f"{os.minor(status.st_dev):02x}")
                if str(status.st_ino) in inodes and (*device, str(status.st_ino)) in held:
                    locked.append(str(path))
        return locked

    def assert_nothing_is_left(self) -> None:
        """Processes that end by themselves (fork servers, kernels) get a little time for it."""
        deadline = time.monotonic() + 20
        while (left := self.left_overs()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in self.processes():
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)
        assert not left, "left behind: " + "; ".join(left)


def _end(pid: int) -> None:
    ticks = discovery.start_ticks(pid)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 30
    while ticks is not None and discovery.start_ticks(pid) == ticks:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


@contextlib.contextmanager
def place(uid: int | None = None) -> Iterator[Place]:
    """A place for as long as the block lasts; fails when something of it lives on. Short paths: sockets lie below."""
    folder = Path(tempfile.mkdtemp(prefix="gpc-"))
    folder.chmod(0o755 if uid is not None else 0o700)
    try:
        made = Place(folder, uid)
        try:
            yield made
        finally:
            made.end()
            made.assert_nothing_is_left()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
