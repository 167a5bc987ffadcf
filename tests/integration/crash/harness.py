"""A cluster that is killed again and again while jobs are submitted to it, and the witness of what really ran.

Each job is a command that holds a lock of its own while it runs and appends to a witness file: what happened is read
from there, not from what the scheduler believes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from gpucluster.api import client as api
from gpucluster.api.schemas import JobSubmission, JobView, RoleSubmission
from gpucluster.model.errors import GpuclusterError, Unavailable

#: What a task runs: argv = witness folder, job key, seconds to run. The lock shows two attempts at once as OVERLAP.
TASK = """
import fcntl, os, sys, time
folder, key, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
rank, attempt = os.environ["RANK"], os.environ["GPUCLUSTER_ATTEMPT"]
out = os.open(f"{folder}/{key}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
lock = os.open(f"{folder}/{key}.{rank}.lock", os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    os.write(out, f"OVERLAP {rank} {attempt}\\n".encode())
os.write(out, f"begin {rank} {attempt} {os.getpid()}\\n".encode())
print("working", flush=True)
time.sleep(seconds)
print("done", flush=True)
os.write(out, f"end {rank} {attempt}\\n".encode())
"""


class Scheduler:
    """A `gpucluster serve` process of our own that can be killed and started again on the same folders."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.runtime = folder / "run"
        self.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.env = {**os.environ, "GPUCLUSTER_DATA": str(self.data), "GPUCLUSTER_RUNTIME": str(self.runtime)}
        self.env.pop("GPUCLUSTER_ADDRESS", None)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = open(self.data.parent / "serve.log", "ab")  # noqa: SIM115 - handed to the child
        command = [sys.executable, "-m", "gpucluster", "serve", "--data", str(self.data)]
        self.process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log, cwd="/")
        log.close()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def client(self, timeout_s: float = 60.0) -> api.ApiClient:
        """A client of the running scheduler; waits until it answers."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return api.connect(start=False, data_dir=self.data)
            except GpuclusterError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


class Submitter(threading.Thread):
    """Hands in jobs until told to stop. `acknowledged` holds what the scheduler said yes to."""

    def __init__(self, scheduler: Scheduler, witness: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.scheduler, self.witness = scheduler, witness
        self.random = random.Random(seed)
        self.acknowledged: dict[str, str] = {}  # job id -> witness key
        self.stopping = threading.Event()
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            client = self.scheduler.client()
            while not self.stopping.is_set():
                self._submit_one(client)
                time.sleep(self.random.uniform(0, 0.15))
        except BaseException as error:  # shown by the test
            self.fault = error

    def _submit_one(self, client: api.ApiClient) -> None:
        key = uuid.uuid4().hex
        seconds = self.random.choice([0, 0, 0.05, 0.3, 1.0])
        tasks = self.random.choice([1, 1, 1, 2, 4])
        submission = JobSubmission(
            kind="command",
            source="crash test",
            command=[sys.executable, "-c", TASK, str(self.witness), key, str(seconds)],
            roles=[RoleSubmission(count=tasks, gpus=self.random.choice([0, 1, 1, 2]))],
            idempotency_key=key,
            retries=1000,
            grace_s=1.0,
            cwd=str(self.witness),
            env={"PATH": os.environ["PATH"]},
        )
        while not self.stopping.is_set():
            try:
                job = client.submit(submission)
            except Unavailable:
                time.sleep(0.05)  # not acknowledged: the same key again is harmless
                continue
            self.acknowledged[job.id] = key
            return


class Killer:
    """Kills one process of a random kind with SIGKILL at a random moment."""

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self.scheduler = scheduler
        self.random = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self._scheduler_may_die_at = 0.0

    def kill_one(self) -> None:
        kinds: list[tuple[str, Callable[[], bool]]] = [
            ("scheduler", self._kill_scheduler),
            ("supervisor", lambda: self._kill_pid_in("started")),
            ("worker", lambda: self._kill_pid_in("worker.json")),
            ("fork server", self._kill_fork_server),
        ]
        weights = [4, 4, 3, 1]
        name, kill = self.random.choices(kinds, weights)[0]
        time.sleep(self.random.uniform(0, 0.12))
        if kill():
            self.kills[name] += 1

    def _kill_scheduler(self) -> bool:
        """Sometimes while it starts, mostly while it works: it lives for a random time of up to 3 s."""
        if time.monotonic() < self._scheduler_may_die_at:
            return False
        self.scheduler.kill()
        time.sleep(self.random.choice([0, 0, 0.1, 0.5]))
        self.scheduler.start()
        life_s = self.random.choice(
            [self.random.uniform(0, 0.6), self.random.uniform(0.6, 3.0), self.random.uniform(0.6, 3.0)]
        )
        self._scheduler_may_die_at = time.monotonic() + life_s
        return True

    def _kill_pid_in(self, name: str) -> bool:
        files = [
            path
            for path in self.scheduler.data.glob(f"tasks/*/*/{name}")
            if not (path.parent / "exit.json").exists()
        ]
        self.random.shuffle(files)
        for path in files:
            with contextlib.suppress(OSError, ValueError):
                record = json.loads(path.read_text())
                if record.get("by") != "agent" and start_ticks(record["pid"]) == record["start_ticks"]:
                    os.kill(record["pid"], signal.SIGKILL)
                    return True
        return False

    def _kill_fork_server(self) -> bool:
        pids = [
            pid
            for pid, command in processes()
            if "start.py\0forkserver" in command and str(self.scheduler.data) in command
        ]
        if not pids:
            return False
        with contextlib.suppress(OSError):
            os.kill(self.random.choice(pids), signal.SIGKILL)
        return True


def start_ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def processes() -> list[tuple[int, str]]:
    """(pid, command line with NULs) of every process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                found.append((int(entry.name), (entry / "cmdline").read_bytes().decode(errors="replace")))
    return found


def task_processes(data: Path) -> list[int]:
    """Processes that belong to a task of this data folder, by the mark in their environment."""
    mark = f"GPUCLUSTER_TASK_DIR={data}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes() and start_ticks(int(entry.name)) is not None:
                    found.append(int(entry.name))
    return found


def wait_for_end(client: api.ApiClient, job_ids: list[str], timeout_s: float) -> dict[str, JobView]:
    """The final view of each job. Raises TimeoutError naming those that have not ended."""
    deadline = time.monotonic() + timeout_s
    ended: dict[str, JobView] = {}
    while True:
        for job_id in job_ids:
            if job_id not in ended:
                view = client.job(job_id)
                if view.state in ("succeeded", "failed", "cancelled"):
                    ended[job_id] = view
        if len(ended) == len(job_ids):
            return ended
        if time.monotonic() > deadline:
            waiting = [client.job(job_id) for job_id in job_ids if job_id not in ended]
            story = "\n".join(f"{job.number} {job.state} {job.reason} {job.waits}" for job in waiting[:20])
            raise TimeoutError(f"{len(waiting)} jobs have not ended:\n{story}")
        time.sleep(0.1)


def lock_is_free(path: Path) -> bool:
    with open(path, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
