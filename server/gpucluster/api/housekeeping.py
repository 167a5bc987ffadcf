"""What the service does beside serving: end when idle, stay findable, let old data go in small slices."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ..engine.protocols import Clock
from ..model.errors import Conflict, GpuclusterError, Unavailable
from ..store.retention import RetentionPolicy
from .app import Parts
from .config import ClusterConfig
from .discovery import RuntimeInfo
from .ownership import RENEW_S, DataFolderOwnership

RETENTION_PAUSE_S = 300.0
#: Between two slices while there is more to let go: the disk is for the jobs first.
SLICE_PAUSE_S = 1.0
FIRST_RETENTION_S = 30.0
DISCARD_TIMEOUT_S = 120.0

log = logging.getLogger("gpucluster.service")


class Housekeeping:
    """Background tasks. `reopen` makes sure that the socket is there."""

    def __init__(
        self,
        parts: Parts,
        config: ClusterConfig,
        ownership: DataFolderOwnership,
        info: RuntimeInfo,
        *,
        clock: Clock,
        reopen: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._ownership = ownership
        self._info = info
        self._reopen = reopen
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, idle_after_s: float | None) -> None:
        """`idle_after_s`: end after this long without a job that waits or runs and without a client; None = never."""
        self._run(self._stay_findable())
        self._run(self._let_go())
        if idle_after_s is not None:
            self._run(self._end_when_idle(idle_after_s))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end_when_idle(self, after_s: float) -> None:
        while True:
            await asyncio.sleep(max(0.05, min(5.0, after_s / 4)))
            if self._parts.state.jobs:
                self._parts.activity.seen()
            elif self._parts.activity.idle_s() >= after_s:
                self._parts.request_stop(f"no job and no client for {after_s:g} s")
                return

    async def _stay_findable(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                self._reopen()
                self._info = await asyncio.to_thread(self._ownership.renew, self._info, self._clock.now_us())
            except Conflict as error:
                log.error("%s", error)
                self._parts.request_stop("another scheduler has taken the data folder over")
                return
            except GpuclusterError as error:
                log.warning("%s", error)

    async def _let_go(self) -> None:
        retention = self._parts.store.retention(
            retention_policy(self._config),
            discard=self._discard,
            measure=lambda attempt_id: folder_bytes(self._parts.store.folder.tasks / attempt_id),
        )
        await asyncio.sleep(FIRST_RETENTION_S)
        while True:
            more = False
            try:
                done = await asyncio.to_thread(retention.run_slice, self._clock.now_us())
                more = done.more
            except GpuclusterError as error:
                log.warning("old data could not be let go: %s", error)
            except Exception:
                log.exception("old data could not be let go")
            await asyncio.sleep(SLICE_PAUSE_S if more else RETENTION_PAUSE_S)

    def _discard(self, attempt_id: str) -> None:
        """Called on a thread of the retention; the backend's own place is the loop."""
        done = asyncio.run_coroutine_threadsafe(self._parts.backend.discard(attempt_id), self._loop)
        try:
            done.result(DISCARD_TIMEOUT_S)
        except (TimeoutError, concurrent.futures.TimeoutError):
            done.cancel()
            raise Unavailable(f"it took more than {DISCARD_TIMEOUT_S:g} s") from None


def retention_policy(config: ClusterConfig) -> RetentionPolicy:
    """cluster.yaml's ages and sizes in the store's terms. Inputs and results go with the logs they belong to."""
    wanted = config.retention
    return RetentionPolicy(
        events_max_age_s=wanted.events_age_s,
        events_max_bytes=wanted.events_bytes,
        steps_max_age_s=wanted.steps_age_s,
        logs_max_age_s=wanted.logs_age_s,
        logs_max_bytes=wanted.logs_bytes,
        results_max_age_s=wanted.logs_age_s,
    )


def folder_bytes(folder: Path) -> int:
    """What all files below take on the disk: of a file with holes what is written, of one that other folders or the blobs
    have as well (a hard link) its share. What vanishes meanwhile does not count.
    """
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(root, name))
                total += min(status.st_size, status.st_blocks * 512) // status.st_nlink
    return total
