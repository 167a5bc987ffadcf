"""What all followers of the live stream (live.py) share: where things are read from, and the jobs that have ended."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..model.events import PublishedEvent
from ..model.jobs import Job
from .feed import EventFeed
from .views import Views
from .visibility import Visibility

if TYPE_CHECKING:
    from ..engine.driver import EngineDriver
    from ..engine.state import ClusterState
    from ..store import Store

#: So many jobs that have ended are kept, so that one end is read once for all followers.
KEPT_ENDED = 2000
#: How long the store may take over a commit before a follower is told so.
PATIENCE_S = 2.0


class EndedJobs:
    """Jobs that have left the engine's memory, read from the store many at a time.

    Without what they ran, which no list shows and which may be large.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, Job] = OrderedDict()
        self._generation = 0

    async def find(self, job_ids: Collection[str]) -> dict[str, Job]:
        """Those that the store has, by id. One that has not ended is as it was stored last. Raises Unavailable."""
        found = {job_id: self._kept[job_id] for job_id in job_ids if job_id in self._kept}
        missing = [job_id for job_id in job_ids if job_id not in found]
        if missing:
            generation = self._generation
            for job in await asyncio.to_thread(self._read, missing):
                found[job.id] = job
                if job.is_ended and generation == self._generation:
                    self._kept[job.id] = job
        while len(self._kept) > KEPT_ENDED:
            self._kept.popitem(last=False)
        return found

    def _read(self, job_ids: Sequence[str]) -> list[Job]:
        jobs = self._store.jobs_by_id(job_ids)
        for job in jobs:
            job.program = msgspec.structs.replace(
                job.program, source="", command=(), sys_path=(), env={}, secret_env=(), inputs=None
            )
        return jobs

    def forget(self, events: Iterable[PublishedEvent]) -> None:
        """Who may read a job that has ended is all of it that can change."""
        for event in events:
            if event.kind == "job.share" and event.job_id is not None:
                self._generation += 1  # what is being read at this moment may be from before
                self._kept.pop(event.job_id, None)


class LiveSource:
    """Its `ended.forget` is to hear of events before the feed does."""

    def __init__(
        self,
        *,
        driver: EngineDriver,
        store: Store,
        feed: EventFeed,
        views: Views,
        visibility: Visibility,
        notes: Callable[[], Sequence[str]],
        now_us: Callable[[], int],
    ) -> None:
        self.driver = driver
        self.store = store
        self.feed = feed
        self.views = views
        self.visibility = visibility
        self.notes = notes
        self.now_us = now_us
        self.ended = EndedJobs(store)
        #: Up to here another process told. With this one the configuration may have changed, of which no event tells.
        self.began_seq = feed.last_seq

    @property
    def state(self) -> ClusterState:
        """The engine's memory of this moment."""
        return self.driver.engine.state

    async def settle(self) -> None:
        """See EngineDriver.settled. Not for long: a follower is told that the store takes its time."""
        await self.driver.settled(PATIENCE_S)
