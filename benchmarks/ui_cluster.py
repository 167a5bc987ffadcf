"""The cluster that `ui.py` watches: the real scheduler process, with simulated tasks in the place of real ones.

Store, engine, policy, events, live stream and socket are those of `gpucluster serve`. What is simulated is said in one line:
a task is an entry in a table instead of a process, and its starts, step reports and end come from a clock that makes the
cluster publish the asked number of events a second. Run by `ui.py` as a process of its own:

    python ui_cluster.py CLUSTER.YAML JOBS

It says "ready" once JOBS jobs are there, running, waiting and ended, and then follows its standard input: a line with a
number sets the events a second, the end of input ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpucluster.api import discovery
from gpucluster.api.app import Parts
from gpucluster.api.auth import PeerAuthenticator
from gpucluster.api.config import load_config
from gpucluster.api.schemas import JobSubmission, RoleSubmission
from gpucluster.api.service import Service
from gpucluster.backends.local import LocalBackend
from gpucluster.engine.driver import EngineDriver
from gpucluster.engine.events import EngineEvent, StepReported, TaskEnded, TaskLost, TaskStarted
from gpucluster.engine.instructions import StopTask
from gpucluster.engine.protocols import TaskAdoption, TaskOrder
from gpucluster.model.jobs import Progress, TaskExit
from gpucluster.model.principals import Principal
from gpucluster.model.topology import Node
from gpucluster.store import Store

NODES, GPUS_PER_NODE, QUEUES, USERS = 32, 8, 20, 20
CLUSTER = f"""
cluster: benchmark
nodes:
  - names: "node-[00-{NODES - 1}]"
    gpus: {GPUS_PER_NODE}
    gpu_type: A100
    cpus: 64
    memory: 512G
queues:
""" + "".join(f"  - name: team-{number:02}\n    guaranteed: 12\n" for number in range(QUEUES))

NAMES = ("resnet50", "bert-large", "gpt-small", "wav2vec2", "ddpm-faces", "eval", "train-ranker-v2")
GPUS = (1, 1, 1, 2, 4)
STEPS, STEPS_A_REPORT = 2_000, 20
#: Of a hundred things that happen, so many are a job that ends and a new one that is submitted (about five events each).
TURNOVERS_IN_100 = 5
#: Of the jobs at the beginning, this share has ended.
ENDED_SHARE = 0.4
TICK_S = 0.02
#: What did not happen in time, because the process was held up, does not happen later all at once.
MOST_AT_ONCE = 10


@dataclasses.dataclass
class Training:
    """One attempt that runs, as its tasks would know it."""

    ranks: list[int]
    step: int = 0


class SimulatedTasks(LocalBackend):
    """A backend whose tasks are entries of `running`. It starts what it is told to, ends what it is told to, and no more."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.running: dict[str, Training] = {}
        self._nodes_of: dict[tuple[str, int], str] = {}

    async def start(self, order: TaskOrder) -> None:
        rank = order.placement.rank
        self.running.setdefault(order.attempt_id, Training([])).ranks.append(rank)
        self._nodes_of[order.attempt_id, rank] = order.placement.node
        self._soon(TaskStarted(order.attempt_id, rank))

    async def stop(self, instruction: StopTask) -> None:
        if self._over(instruction.attempt_id, instruction.rank):
            exit_ = TaskExit(
                code=143, signal=signal.SIGTERM, ended_us=_now_us(), stop_cause=instruction.cause.label
            )
            self._soon(TaskEnded(instruction.attempt_id, instruction.rank, exit_))

    async def give_up(self, node: str) -> None:
        for attempt_id, rank in [key for key, place in self._nodes_of.items() if place == node]:
            self._over(attempt_id, rank)
            self._soon(TaskLost(attempt_id, rank, f"the node {node} was given up"))

    async def adopt(self, tasks: Iterable[TaskAdoption]) -> None:
        """What an earlier process simulated is gone with it."""
        for task in tasks:
            self._soon(TaskLost(task.attempt_id, task.placement.rank, "it was a simulated task"))

    def task_notes(self) -> Mapping[tuple[str, int], str]:
        return {}

    def running_folders(self) -> dict[tuple[str, int], str]:
        return {}

    def step(self, attempt_id: str) -> None:
        """The next step report of its rank 0."""
        training = self.running[attempt_id]
        training.step += STEPS_A_REPORT
        metrics = {"loss": round(4 / (1 + training.step / 50), 6), "accuracy": round(random.random(), 4)}
        progress = Progress(step=training.step, total=STEPS, metrics=metrics, time_us=_now_us())
        self._emit(StepReported(attempt_id, progress))

    def end(self, attempt_id: str) -> None:
        """All its tasks end well."""
        for rank in list(self.running[attempt_id].ranks):
            self._over(attempt_id, rank)
            self._emit(TaskEnded(attempt_id, rank, TaskExit(code=0, ended_us=_now_us())))

    def _over(self, attempt_id: str, rank: int) -> bool:
        """False when it is over already."""
        if self._nodes_of.pop((attempt_id, rank), None) is None:
            return False
        training = self.running[attempt_id]
        training.ranks.remove(rank)
        if not training.ranks:
            del self.running[attempt_id]
        return True

    def _soon(self, event: EngineEvent) -> None:
        asyncio.get_running_loop().call_soon(self._emit, event)


class BenchmarkService(Service):
    """The scheduler with that backend, and the traffic on it."""

    def __init__(self, config: Path, jobs: int) -> None:
        super().__init__(load_config(config), discovery.data_folder(), embedded=False)
        self._jobs = jobs
        self._work: asyncio.Task[None] | None = None

    def _make_backend(self, store: Store, nodes: Sequence[Node]) -> SimulatedTasks:
        return SimulatedTasks(
            data_dir=str(self.folder),
            runtime_dir=str(discovery.socket_folder(self._runtime)),
            nodes=nodes,
            blobs=store.blobs,
            clock=self._clock,
        )

    def _make_parts(self, store: Store, backend: LocalBackend, driver: EngineDriver) -> Parts:
        parts = super()._make_parts(store, backend, driver)
        assert isinstance(backend, SimulatedTasks)
        self._work = asyncio.create_task(self._run_traffic(Traffic(parts, backend)))
        return parts

    async def _run_traffic(self, traffic: Traffic) -> None:
        try:
            await traffic.fill(self._jobs)
            asyncio.get_running_loop().add_reader(sys.stdin, self._on_input, traffic)
            print("ready", flush=True)
            await traffic.flow()
        except Exception as error:
            self.request_stop(f"the traffic failed: {error!r}")
            raise

    def _on_input(self, traffic: Traffic) -> None:
        line = sys.stdin.readline()
        if line:
            traffic.set_rate(float(line))
        else:
            self.request_stop("the benchmark is over")


class Traffic:
    """Jobs of many users, and what happens to them."""

    def __init__(self, parts: Parts, tasks: SimulatedTasks) -> None:
        self._parts = parts
        self._tasks = tasks
        self._random = random.Random(1)
        self._submitted = 0
        self._turn: Iterator[str] = iter(())
        # The account that looks has its share of the jobs.
        self._users = [PeerAuthenticator().principal_of_uid(os.getuid())] + [
            Principal(issuer="benchmark", subject=f"user-{number}", name=f"user-{number}")
            for number in range(1, USERS)
        ]
        self.set_rate(0)

    def set_rate(self, events_per_s: float) -> None:
        self._rate = events_per_s
        self._began_s, self._began_seq = time.monotonic(), self._parts.driver.last_seq

    async def fill(self, jobs: int) -> None:
        """So many jobs: some have ended, the cluster is full, the rest waits."""
        await self._submit(round(jobs * ENDED_SHARE))
        while self._parts.driver.engine.state.jobs:
            for attempt_id in list(self._tasks.running):
                self._tasks.end(attempt_id)
            await asyncio.sleep(TICK_S)
        await self._submit(jobs - self._submitted)
        await self._parts.driver.settled()

    async def flow(self) -> None:
        """Let happen what is due, for ever. The rate is that of published events, whatever they come from."""
        while True:
            await asyncio.sleep(TICK_S)
            await self._parts.driver.settled()
            due = self._rate * (time.monotonic() - self._began_s)
            behind = round(due - (self._parts.driver.last_seq - self._began_seq))
            if behind > MOST_AT_ONCE:
                self.set_rate(self._rate)
            for _ in range(min(behind, MOST_AT_ONCE)):
                await self._something()

    async def _something(self) -> None:
        """One job ends and another is submitted, or the next of all that run reports a step."""
        if self._random.randrange(100) < TURNOVERS_IN_100 and self._tasks.running:
            self._tasks.end(self._random.choice(list(self._tasks.running)))
            await self._submit(1)
            return
        for attempt_id in self._turn:
            if attempt_id in self._tasks.running:
                self._tasks.step(attempt_id)
                return
        self._turn = iter(list(self._tasks.running))

    async def _submit(self, count: int) -> None:
        await asyncio.gather(*(self._submit_one() for _ in range(count)))

    async def _submit_one(self) -> None:
        number = self._submitted
        self._submitted += 1
        name = NAMES[number % len(NAMES)]
        submission = JobSubmission(
            kind="command",
            source=f"python {name}.py",
            command=["python", f"{name}.py"],
            name=name,
            queue=f"team-{self._random.randrange(QUEUES):02}",
            roles=[RoleSubmission(gpus=self._random.choice(GPUS))],
            idempotency_key=f"job-{number}",
            share="everyone",  # so that whoever looks is told of the progress of each
        )
        await self._parts.submissions.submit(submission, self._users[number % USERS])


def _now_us() -> int:
    return time.time_ns() // 1000


class Cluster:
    """That process, from outside; a context manager. `env` says where its folders are (GPUCLUSTER_DATA, GPUCLUSTER_RUNTIME)."""

    def __init__(self, folder: Path, env: Mapping[str, str], jobs: int) -> None:
        config = folder / "benchmark-cluster.yaml"
        config.write_text(CLUSTER)
        with open(folder / "cluster.log", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(config), str(jobs)],
                env={**env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self._log = folder / "cluster.log"

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Cluster:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            self._process.wait()
            raise RuntimeError(f"the cluster did not come up: {self._log.read_text()[-4000:]}")
        return self

    def set_rate(self, events_per_s: float) -> None:
        assert self._process.stdin is not None
        print(events_per_s, file=self._process.stdin, flush=True)

    def __exit__(self, *exc: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


if __name__ == "__main__":
    service = BenchmarkService(Path(sys.argv[1]), int(sys.argv[2]))
    sys.exit(asyncio.run(service.run()))
