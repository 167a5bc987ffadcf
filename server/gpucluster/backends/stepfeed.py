"""Step reports of one task, from what its supervisor pushes and from its file, each told once and in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ..model.jobs import Progress
from ..worker.bounds import is_int64
from . import reports
from .reports import Bounds, FoundSteps

logger = logging.getLogger(__name__)


class StepFeed:
    """`tell(progress)` is called for each report. Where the supervisor has pushed nothing, the file is read."""

    def __init__(
        self,
        task_dir: str,
        name: str,
        bounds: Callable[[], Bounds],
        tell: Callable[[Progress], None],
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._task_dir = task_dir
        self._name = name
        self._bounds = bounds
        self._tell = tell
        self._in_thread = in_thread
        self._seen = 0  # offset in steps.ndjson up to which reports were told
        self._there = 0
        self._has_noted = False
        self._catching_up: asyncio.Task[None] | None = None
        #: Reports up to this time are known already, in microseconds since the epoch.
        self.after_us = 0

    def on_push(self, event: dict[str, Any]) -> None:
        """A report that the supervisor pushed; one that is not kept in the file comes only this way."""
        end, is_kept = event.get("end"), event.get("kept") is not False
        if not is_int64(end):
            self._note_bad()
            return
        if self._catching_up is not None:
            self._there = max(self._there, end)
        elif end > self._seen or not is_kept:
            self._seen = max(self._seen, end)
            progress = reports.to_progress(event, self._bounds())
            if progress is None:
                self._note_bad()
            else:
                self._tell(progress)

    def on_size(self, size: Any) -> None:
        """The supervisor says how large the file is."""
        if not is_int64(size) or size <= self._seen:
            return
        self._there = max(self._there, size)
        if self._catching_up is None:
            self._catching_up = asyncio.ensure_future(self.read())

    async def read(self) -> None:
        """Tell what stands in the file and was not told; what is pushed meanwhile waits for it."""
        try:
            while True:
                seen = self._seen
                found: FoundSteps = await self._in_thread(
                    reports.read_steps, self._task_dir, seen, self.after_us, self._bounds()
                )
                self._seen = found.end
                for progress in found.reports:
                    self._tell(progress)
                if found.bad:
                    self._note_bad()
                if self._seen >= self._there or self._seen == seen:
                    return
        finally:
            self._catching_up = None

    async def settle(self) -> None:
        """Wait until what is being read has been told."""
        if self._catching_up is not None:
            await self._catching_up

    def cancel(self) -> None:
        if self._catching_up is not None:
            self._catching_up.cancel()

    def _note_bad(self) -> None:
        if not self._has_noted:
            self._has_noted = True
            logger.warning("task %s reported a step that is none, or over the bounds of one", self._name)
