"""Secrets of a submission: there for every job that is stored, gone with every one that is not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from support.engine_bench import gpu_queue, make_node
from support.store_samples import ANNA, ManualClock, new_id

from gpucluster.api.config import ClusterConfig
from gpucluster.api.directory import JobDirectory
from gpucluster.api.schemas import JobSubmission, RoleSubmission
from gpucluster.api.submission import Submissions
from gpucluster.api.visibility import Visibility
from gpucluster.engine.core import Engine
from gpucluster.engine.driver import EngineDriver
from gpucluster.engine.events import EngineEvent
from gpucluster.engine.instructions import StartTask
from gpucluster.engine.protocols import ChangeSet, OrderFactory, Recovered, TaskAdoption
from gpucluster.model.errors import GpuclusterError, NeverAsAsked, Unavailable
from gpucluster.model.topology import Node
from gpucluster.store import Store

CONFIG = ClusterConfig()


class Journal:
    """The store, whose next commit can be made to report a failure, written or not."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.failure: tuple[GpuclusterError, bool] | None = None
        self.commits = 0

    def commit(self, changes: ChangeSet) -> None:
        failure, self.failure = self.failure, None
        self.commits += 1
        if failure is None or failure[1]:
            self.store.commit(changes)
        if failure is not None:
            raise failure[0]

    def recover(self) -> Recovered:
        return self.store.recover()


class Backend:
    """Takes tasks and never runs any."""

    async def open(self, emit: Callable[[EngineEvent], None]) -> Sequence[Node]:
        return [make_node("node-0", 8)]

    async def adopt(self, tasks: Iterable[TaskAdoption]) -> None: ...
    async def start(self, order: StartTask) -> None: ...
    async def close(self) -> None: ...


class Scene:
    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = Store.open(folder / "data", self.clock)
        self.journal = Journal(self.store)

    def start(self) -> None:
        self.driver = EngineDriver(
            new_engine=lambda nodes: Engine(
                queues=[gpu_queue(CONFIG.default_queue)], nodes=nodes, new_id=new_id
            ),
            journal=self.journal,
            backend=cast("Any", Backend()),
            clock=self.clock,
            make_order=cast("OrderFactory", lambda instruction: instruction),
            log=logging.getLogger("test"),
        )
        visibility = Visibility(lambda name: self.driver.engine.state.tree[name].spec)
        self.submissions = Submissions(
            config=CONFIG,
            driver=self.driver,
            store=self.store,
            directory=JobDirectory(
                lambda: self.driver.engine.state, self.driver.settled, self.store, visibility
            ),
            visibility=visibility,
            views=cast("Any", None),
            clock=self.clock,
        )

    def submit(
        self, failure: tuple[GpuclusterError, bool] | None = None, **fields: Any
    ) -> GpuclusterError | None:
        """What the submission of a job with a secret was refused with. `failure`: of its commit, and whether it was
        durable all the same.
        """
        submission = JobSubmission(
            kind="command", source="true", command=["true"], idempotency_key="k", secret_env={"TOKEN": "t"}, **fields
        )  # fmt: skip

        async def work() -> GpuclusterError | None:
            self.start()
            before = self.journal.commits
            await self.driver.start()
            while self.journal.commits == before:  # the first step tells of the node
                await asyncio.sleep(0.001)
            await self.driver.settled()
            self.journal.failure = failure
            try:
                await self.submissions.submit(submission, ANNA)
            except GpuclusterError as error:
                return error
            finally:
                await self.driver.close()
            return None

        return asyncio.run(work())

    def kept(self) -> list[str]:
        return [path.stem for path in self.store.folder.secrets.iterdir()]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.store.close()


def test_secrets_of_a_stored_job_stay(scene: Scene) -> None:
    assert scene.submit() is None
    assert scene.kept() == [scene.store.get_job(1).id]


def test_secrets_of_a_refused_job_go(scene: Scene) -> None:
    assert isinstance(scene.submit(roles=[RoleSubmission(gpus=1000)]), NeverAsAsked)
    assert isinstance(scene.submit((Unavailable("the disk is full"), False)), Unavailable)
    assert scene.kept() == []


def test_secrets_stay_when_the_commit_was_durable_although_it_reported_a_failure(scene: Scene) -> None:
    assert isinstance(scene.submit((Unavailable("the disk reports an error"), True)), Unavailable)
    job = scene.store.get_job(1)
    assert scene.store.secrets.read(job.id, job.program.secret_env) == {"TOKEN": "t"}
