"""Finding jobs: those that have not ended in the engine's memory, the others in the store, read on threads."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ..model.errors import InvalidRequest, NotFound, Unavailable
from ..model.ids import is_id
from ..model.jobs import ENDED_STATES, Attempt, Job, JobState
from ..model.principals import Principal
from .visibility import Visibility, no_such_job

if TYPE_CHECKING:
    from ..engine.state import ClusterState
    from ..store import Store

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
#: A page ends after looking at this many jobs, however few of them the caller may see.
MAX_SCANNED = 5000
#: A list may be asked for the jobs of so many cells at once: a notebook's.
MAX_CELLS = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobFilter:
    """Which jobs to list. `owner` is a principal id or a name; `cell_ids` (any of them) and `notebook_path` as submitted."""

    states: frozenset[JobState] = frozenset()
    queue: str | None = None
    owner: str | None = None
    mine: bool = False
    ids: tuple[str, ...] = ()
    cell_ids: tuple[str, ...] = ()
    notebook_path: str | None = None
    limit: int = DEFAULT_LIMIT
    before: str | None = None

    def matches(self, job: Job, caller: Principal) -> bool:
        return (
            (not self.states or job.state in self.states)
            and (self.queue is None or job.spec.queue == self.queue)
            and (self.owner is None or self.owner in (job.owner.id, job.owner.name))
            and (not self.mine or job.owner.id == caller.id)
            and (not self.cell_ids or job.program.cell_id in self.cell_ids)
            and (self.notebook_path is None or job.program.notebook_path == self.notebook_path)
        )


class JobDirectory:
    """`state`: the engine's memory of this moment. A job from there is read at once, never kept over an await.

    `settled` waits until that is what the store holds, so that nobody is shown what may still be refused.
    """

    def __init__(
        self,
        state: Callable[[], ClusterState],
        settled: Callable[[], Awaitable[None]],
        store: Store,
        visibility: Visibility,
    ) -> None:
        self._state = state
        self._settled = settled
        self._store = store
        self._visibility = visibility

    async def find(self, reference: str) -> Job:
        """By long id or number. Raises NotFound, and Unavailable when the store does not answer."""
        await self._settled()
        live = self._find_live(reference)
        if live is not None:
            return live
        if not (is_id(reference) or (reference.isdecimal() and len(reference) < 19)):
            raise no_such_job(reference[:40])
        try:
            stored = await asyncio.to_thread(self._store.get_job, reference)
        except NotFound:
            raise no_such_job(reference) from None
        await self._settled()
        return self._state().jobs.get(stored.id, stored)

    def _find_live(self, reference: str) -> Job | None:
        state = self._state()
        job_id = state.by_number.get(int(reference)) if reference.isdecimal() else reference
        return state.jobs.get(job_id) if job_id else None

    async def committed(self, job: Job) -> Job:
        """The job as stored at this moment, for one whose submission was acknowledged by the store just now."""
        try:
            return await self.find(job.id)
        except Unavailable:  # the store was quick enough for the job, and is not for what came after
            return await asyncio.to_thread(self._store.get_job, job.id)

    async def attempts(self, job_id: str) -> Sequence[Attempt]:
        """All attempts of a job as stored, first to last."""
        return await asyncio.to_thread(self._store.attempts, job_id)

    async def files_removed(self, attempt_id: str) -> tuple[int, str] | None:
        """When and why retention removed the files of an attempt; None when it did not."""
        return await asyncio.to_thread(self._store.files_discarded, attempt_id)

    async def page(self, caller: Principal, wanted: JobFilter) -> tuple[list[Job], str | None]:
        """Jobs that the caller may see, newest first, and where the next page begins (None = there is none)."""
        if wanted.ids:
            found, next_before = await self._by_ids(caller, wanted), None
        else:
            found, next_before = await self._scan(caller, wanted)
        await self._settled()
        return [self._state().jobs.get(job.id, job) for job in found], next_before

    async def _scan(self, caller: Principal, wanted: JobFilter) -> tuple[list[Job], str | None]:
        found: list[Job] = []
        before = wanted.before
        scanned = 0
        while True:
            page = await asyncio.to_thread(self._read, caller, wanted, before)
            await self._settled()
            for job in page:
                job = self._state().jobs.get(job.id, job)
                before = job.id
                if wanted.matches(job, caller) and self._visibility.rights_on(caller, job).see:
                    found.append(job)
                if len(found) == wanted.limit:
                    return found, before
            scanned += len(page)
            if len(page) < wanted.limit:
                return found, None
            if scanned >= MAX_SCANNED:
                return found, before

    def _read(self, caller: Principal, wanted: JobFilter, before: str | None) -> list[Job]:
        owner = caller.id if wanted.mine else wanted.owner
        return self._store.list_jobs(
            owner=owner if owner is not None and ":" in owner else None,
            states=wanted.states or None,
            queues=[wanted.queue] if wanted.queue else None,
            cells=wanted.cell_ids or None,
            notebook=wanted.notebook_path,
            before=before,
            limit=wanted.limit,
        )

    async def _by_ids(self, caller: Principal, wanted: JobFilter) -> list[Job]:
        jobs = []
        for reference in wanted.ids[:MAX_LIMIT]:
            try:
                job = await self.find(reference)
            except NotFound:
                continue
            if wanted.matches(job, caller) and self._visibility.rights_on(caller, job).see:
                jobs.append(job)
        return jobs


def parse_states(names: Collection[str]) -> frozenset[JobState]:
    """Raises InvalidRequest, naming those that there are. ``open`` and ``ended`` stand for several."""
    states: set[JobState] = set()
    for name in names:
        if name in ("open", "ended"):
            states |= {state for state in JobState if (state in ENDED_STATES) == (name == "ended")}
            continue
        try:
            states.add(JobState(name))
        except ValueError:
            known = ", ".join(state.value for state in JobState)
            raise InvalidRequest(
                "state", f"there is no state {name!r}", f"States: {known}; open; ended."
            ) from None
    return frozenset(states)
