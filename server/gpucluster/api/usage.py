"""What running tasks and GPUs use at present, for views: one look every few seconds, on a thread, and only while there
is something to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping

from ..nodes.inventory import Inventory
from ..nodes.usage import GpuUsage, Sample, TaskUsage, UsageSampler
from ..runtimes import taskfolder

INTERVAL_S = 5.0
#: A sample older than this is not shown any more.
STALE_S = 3 * INTERVAL_S

TaskKey = tuple[str, int]  # attempt id, rank

log = logging.getLogger("gpucluster.nodes")


class UsageWatch:
    """Before `start`, and where nothing is measured (simulated GPUs, tasks that just began), there is no usage: None."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._sample: Sample[TaskKey] | None = None
        self._looking: asyncio.Task[None] | None = None

    def start(self, inventory: Inventory, folders: Callable[[], Mapping[TaskKey, str]]) -> None:
        """`folders`: the task folders of the running tasks; called on the loop."""
        self._looking = asyncio.create_task(self._run(inventory, folders))

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    async def _run(self, inventory: Inventory, folders: Callable[[], Mapping[TaskKey, str]]) -> None:
        sampler: UsageSampler[TaskKey] = UsageSampler(inventory, interval_s=0.0)
        while True:
            running = dict(folders())
            if running or inventory.detected is not None:
                try:
                    self._sample = await asyncio.to_thread(_look, sampler, running)
                except Exception:
                    log.exception("usage could not be measured; it is tried again")
            await asyncio.sleep(self._interval_s)

    def task(self, attempt_id: str, rank: int) -> TaskUsage | None:
        sample = self._fresh()
        return sample.tasks.get((attempt_id, rank)) if sample else None

    def gpu(self, uuid: str) -> GpuUsage | None:
        sample = self._fresh()
        return sample.gpus.get(uuid) if sample else None

    def _fresh(self) -> Sample[TaskKey] | None:
        sample = self._sample
        return sample if sample is not None and time.monotonic() - sample.time_s < STALE_S else None


def _look(sampler: UsageSampler[TaskKey], folders: Mapping[TaskKey, str]) -> Sample[TaskKey]:
    found = {key: taskfolder.supervisor(folder) for key, folder in folders.items()}
    return sampler.sample({key: process.pid for key, process in found.items() if process is not None})
