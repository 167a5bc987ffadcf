"""The running scheduler's look at its GPUs: what is ours, and what is a stranger's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from nvml_double import RecordedHost, RecordedNvml, load

from gpucluster.api.config import ClusterConfig
from gpucluster.api.node_watch import NodeWatch, task_attempt
from gpucluster.engine.events import NodeChanged
from gpucluster.model.topology import GpuHealth, Node
from gpucluster.nodes.inventory import Inventory
from gpucluster.nodes.nvml import Nvml
from gpucluster.nodes.settings import NodeSettings, Source
from gpucluster.worker.protocol import ENV_TASK_ID


@pytest.fixture
def task_process():
    """A process with the mark of attempt "att", rank 0, in its environment."""
    child = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); import sys; sys.stdin.read()"],
        env={**os.environ, ENV_TASK_ID: "att.0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child.stdout.readline()
    yield child
    child.communicate()


class Watched:
    def __init__(self) -> None:
        recording = load("dgx_a100")
        self.library = RecordedNvml(recording)
        config = ClusterConfig(nodes=NodeSettings(source=Source.DETECT))
        self.watch = NodeWatch(config, interval_s=0.01)
        self.watch._inventory = Inventory(
            config.nodes,
            is_ours=self.watch.is_ours,
            holds=self.watch.holds,
            nvml=Nvml(self.library),
            host=RecordedHost(recording),
        )
        (self.node,) = self.watch.open()
        self.state = SimpleNamespace(by_attempt={}, jobs={}, nodes={self.node.name: self.node})

    def look_until(self, condition: Callable[[Node], bool]) -> Node:
        """Run the watch, applying what it posts, until the node is as wanted."""
        asyncio.run(self._look_until(condition))
        return self.state.nodes[self.node.name]

    async def _look_until(self, condition: Callable[[Node], bool]) -> None:
        arrived = asyncio.Event()

        def post(event: NodeChanged) -> None:
            self.state.nodes[event.node.name] = event.node
            if condition(event.node):
                arrived.set()

        self.watch.start(lambda: self.state, post)
        try:
            await asyncio.wait_for(arrived.wait(), 30)
        finally:
            await self.watch.close()
            self.watch._inventory.open()  # closed with the watch; the next run looks again


def test_mark_of_a_task_is_read_from_its_process(task_process):
    assert task_attempt(task_process.pid) == "att"
    assert task_attempt(2**22 + 7) is None


def test_stranger_on_a_gpu_is_found_while_the_scheduler_runs():
    watched = Watched()
    watched.library.gpus[1]["compute"] = [{"pid": os.getpid()}]
    node = watched.look_until(lambda node: node.gpus[1].health is GpuHealth.FOREIGN)
    assert node.gpus[0].health is GpuHealth.OK


def test_task_of_a_running_attempt_is_ours_and_one_of_another_scheduler_is_not(task_process):
    watched = Watched()
    watched.library.gpus[1]["compute"] = [{"pid": task_process.pid}]
    watched.state.by_attempt = {"att": "job"}
    watched.state.jobs = {"job": SimpleNamespace(attempt=SimpleNamespace(placements=[]))}
    watched.library.gpus[2]["ecc_uncorrected"] = 1
    node = watched.look_until(lambda node: node.gpus[2].health is GpuHealth.BAD)
    assert node.gpus[1].health is GpuHealth.OK

    watched.state.by_attempt = {}
    watched.look_until(lambda node: node.gpus[1].health is GpuHealth.FOREIGN)
