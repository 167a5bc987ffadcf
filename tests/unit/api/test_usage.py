"""The look at what tasks and GPUs use: only what is fresh is told, and nothing is looked at where nothing runs."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from gpucluster.api import usage
from gpucluster.api.usage import STALE_S, UsageWatch
from gpucluster.nodes.inventory import Inventory
from gpucluster.nodes.settings import NodeSettings, Source
from gpucluster.runtimes.supervisor import folder


def simulated() -> Inventory:
    inventory = Inventory(NodeSettings(source=Source.DECLARED, detect=False))
    inventory.open()
    return inventory


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_task_is_measured_by_its_folder_and_forgotten_when_the_sample_is_old(tmp_path: Path) -> None:
    """This process stands for the supervisor; its child for the task."""
    folder.create_started(str(tmp_path), "supervisor")

    async def story() -> None:
        child = await asyncio.create_subprocess_exec("sleep", "60")
        watch = UsageWatch(interval_s=0.01)
        watch.start(simulated(), lambda: {("a", 0): str(tmp_path), ("gone", 0): str(tmp_path / "gone")})
        try:
            await asyncio.wait_for(until(lambda: watch.task("a", 0)), 30)
            assert watch.task("gone", 0) is None
            assert watch.gpu("GPU-sim-node-0-0") is None
        finally:
            await watch.close()
            child.kill()
            await child.wait()
        assert watch._sample is not None
        watch._sample = dataclasses.replace(watch._sample, time_s=watch._sample.time_s - STALE_S)
        assert watch.task("a", 0) is None

    asyncio.run(story())


def test_claim_of_another_process_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "started").write_text(f'{{"by": "supervisor", "pid": {os.getpid()}, "start_ticks": 1}}')
    sample = usage._look(usage.UsageSampler(simulated()), {("a", 0): str(tmp_path)})
    assert sample.tasks == {}


def test_where_nothing_runs_nothing_is_looked_at() -> None:
    async def story() -> None:
        asked = []
        watch = UsageWatch(interval_s=0.001)
        watch.start(simulated(), lambda: asked.append(1) or {})  # type: ignore[func-returns-value]
        await asyncio.wait_for(until(lambda: len(asked) > 3), 30)
        await watch.close()
        assert watch._sample is None

    asyncio.run(story())
