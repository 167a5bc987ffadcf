"""What a page does with the live stream: put what comes in place of what it had. For comparing it with fresh answers."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gpucluster.api.client import ApiClient
from gpucluster.api.schemas import JobView, LiveStatus, LiveUpdate, NodeView, QueueView

TIMEOUT_S = 60.0


class LivePage:
    """The state of a page; `take` is all that a page needs to know of LiveUpdate."""

    def __init__(self) -> None:
        self.status: LiveStatus | None = None
        self.queues: dict[str, QueueView] = {}
        self.nodes: dict[str, NodeView] = {}
        self.jobs: dict[str, JobView] = {}
        self.gone: set[str] = set()
        self.left_out = 0
        self.seq: int | None = None
        self.updates: list[LiveUpdate] = []

    def take(self, update: LiveUpdate) -> None:
        self.seq = update.seq
        self.updates.append(update)
        update = copy.deepcopy(update)  # as it came, for who looks at the updates
        if "queues" in update.full:
            self.queues.clear()
        if "nodes" in update.full:
            self.nodes.clear()
        if "jobs" in update.full or "mine" in update.full:
            self.jobs.clear()
            self.left_out = update.jobs_left_out
        self.status = update.status or self.status
        self.queues.update((view.name, view) for view in update.queues)
        self.nodes.update((view.name, view) for view in update.nodes)
        for name in update.nodes_gone:
            self.nodes.pop(name, None)
        for view in update.jobs:
            self.jobs[view.id] = view
            self.gone.discard(view.id)
        for job_id in update.jobs_gone:
            self.jobs.pop(job_id, None)
            self.gone.add(job_id)
        for told in update.progress:
            job = self.jobs.get(told.job_id)
            if job is not None:
                job.progress, job.first_feedback_us = told.progress, told.first_feedback_us


class Following:
    """A page on a real stream, read in a thread of its own; a context manager. `page` may be one that was cut off."""

    def __init__(
        self,
        client: ApiClient,
        topics: Iterable[Any] = (),
        jobs: Iterable[str] = (),
        page: LivePage | None = None,
        have: Iterable[Any] | None = None,
    ) -> None:
        topics = list(topics)
        self.page = page or LivePage()
        known = topics if page is not None and have is None else have or ()
        self._feed = client.live(topics, jobs, after=self.page.seq, have=known)
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        try:
            for update in self._feed:
                with self._changed:
                    self.page.take(update)
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def __enter__(self) -> Following:
        self._thread.start()
        self.until(lambda page: page.updates, "the first update")
        return self

    def __exit__(self, *exc: object) -> None:
        self._feed.close()
        self._thread.join(TIMEOUT_S)

    def until(self, condition: Callable[[LivePage], Any], what: str, timeout_s: float = TIMEOUT_S) -> Any:
        """Wait until the page's state gives something true, and return that."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                found = condition(self.page)
                if found:
                    return found
                if self._failure is not None:
                    raise self._failure
                left_s = deadline - time.monotonic()
                assert left_s > 0, f"waited for {what}"
                self._changed.wait(left_s)

    def look(self, condition: Callable[[LivePage], Any]) -> Any:
        """What the condition gives at this moment."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            return condition(self.page)

    def copy(self) -> LivePage:
        """The page as it is now, for one who goes on from it."""
        with self._changed:
            page = copy.deepcopy(self.page)
        page.updates.clear()
        return page


def settled_jobs(jobs: Iterable[JobView]) -> dict[str, JobView]:
    """For comparing: without what is worked out for some alone, or changes with time and no event."""
    return {job.id: _comparable(job) for job in jobs}


def _comparable(job: JobView) -> JobView:
    attempt = job.attempt
    if attempt is not None:
        tasks = [msgspec.structs.replace(task, cpu_percent=None, memory_bytes=None) for task in attempt.tasks]
        attempt = msgspec.structs.replace(attempt, tasks=tasks)
    return msgspec.structs.replace(job, seq=0, waits=None, position=None, attempt=attempt)
