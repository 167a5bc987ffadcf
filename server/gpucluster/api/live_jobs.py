"""The jobs of one follower of the live stream (live.py): which of them to send, as its user may see them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Iterable, Mapping

import msgspec

from ..model.jobs import Job, JobState, Share
from ..model.principals import Principal
from .live_changes import Changes, Line, Sent, encode
from .live_source import LiveSource
from .schemas import JobView, LiveProgress, Topic
from .views import wire_progress

#: A list has so many jobs at most, and the caller's own that have not ended; older ones are counted up to the second number.
MAX_LISTED = 1000
MAX_COUNTED = 10_000
#: Why a job waits and its place are worked out for so many of a line, those that came first, and for watched ones.
MAX_EXPLAINED = 100
#: So many views are made between two turns of the loop.
CHUNK = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Choice:
    """Ids of the jobs of one line. `touched`: sent in any case; `looked_at`: only if they differ from what was sent."""

    touched: dict[str, None]
    looked_at: dict[str, None]
    ended: Mapping[str, Job]
    unknown: set[str]  # there are no such jobs
    left_out: int


class LiveJobs:
    """`watched`: ids of jobs that are followed whatever the topics."""

    def __init__(
        self,
        source: LiveSource,
        caller: Principal,
        topics: Collection[Topic],
        watched: Iterable[str],
        sent: Sent,
    ) -> None:
        self._source = source
        self._caller = caller
        self._follows_all = "jobs" in topics
        self._follows_mine = "mine" in topics
        self._watched = dict.fromkeys(watched)
        self._sent = sent

    @property
    def is_watching(self) -> bool:
        return bool(self._watched)

    async def add_to(self, line: Line, changes: Changes, *, look: bool) -> None:
        """`look`: at all that are watched, not only at those that changed. Raises Unavailable."""
        choice = await self._choose(changes, look)
        ids = [*choice.touched, *(job_id for job_id in choice.looked_at if job_id not in choice.touched)]
        explained = self._explained(ids)
        found: list[tuple[int, msgspec.Raw]] = []
        for start in range(0, len(ids), CHUNK):
            await asyncio.sleep(0)
            await self._source.settle()
            for job_id in ids[start : start + CHUNK]:
                job = self._source.state.jobs.get(job_id) or choice.ended.get(job_id)
                if job is not None and self._sees(job):
                    view = self._source.views.listed(job, self._caller, explain=job_id in explained)
                    if self._note(view) or job_id in choice.touched:
                        found.append((view.number, msgspec.Raw(encode(view))))
                elif job is not None or job_id in choice.unknown:
                    self._withheld(job_id, job, changes, line)
                # else it has ended just now: the event that tells of it is still to come
        line.jobs = [encoded for _, encoded in sorted(found, key=lambda one: -one[0])]
        line.jobs_left_out = choice.left_out
        self._add_progress(line, changes, choice)

    # ---- which

    async def _choose(self, changes: Changes, look: bool) -> _Choice:
        listed, left_out = await self._list(changes.full)
        touched = dict.fromkeys(listed)
        touched.update(
            (job_id, None) for job_id, owner in changes.jobs.items() if self._follows(job_id, owner)
        )
        watched = self._watched if look or changes.is_anew else {}
        absent = [job_id for job_id in {**touched, **watched} if job_id not in self._source.state.jobs]
        stored = await self._source.ended.find(absent)
        return _Choice(
            touched={**touched, **watched} if changes.is_anew else touched,
            looked_at=watched,
            # One that the store knows as running and memory does not know has ended meanwhile.
            ended={job_id: job for job_id, job in stored.items() if job.is_ended},
            unknown={job_id for job_id in absent if job_id not in stored},
            left_out=left_out,
        )

    def _follows(self, job_id: str, owner: str) -> bool:
        return (
            self._follows_all or (self._follows_mine and owner == self._caller.id) or job_id in self._watched
        )

    async def _list(self, full: Collection[Topic]) -> tuple[list[str], int]:
        """The jobs of lists that are to be sent in full, and how many there are beside them."""
        if "jobs" not in full and "mine" not in full:
            return [], 0
        ids: dict[str, None] = {}
        total = 0
        if "mine" in full:
            newest, total = await self._newest()
            ids.update(dict.fromkeys(newest))
        if "jobs" in full:
            tree, may_submit = self._source.state.tree, self._source.visibility.may_submit
            queues = [leaf.name for leaf in tree.leaves() if may_submit(self._caller, leaf.name)]
            newest, total = await self._newest(queues, [Share.EVERYONE])
            ids.update(dict.fromkeys(newest))
        mine = self._source.state.owners.get(self._caller.id)
        ids.update(mine.jobs if mine is not None else {})
        return list(ids), max(0, total - len(ids))

    async def _newest(
        self, queues: Collection[str] = (), shares: Collection[Share] = ()
    ) -> tuple[list[str], int]:
        def read() -> tuple[list[str], int]:
            return self._source.store.newest_ids(
                MAX_LISTED,
                owner=self._caller.id,
                queues=queues,
                shares=shares,
                count_at_most=MAX_COUNTED,
            )

        return await asyncio.to_thread(read)

    def _explained(self, ids: Collection[str]) -> set[str]:
        """Those that are told why they wait."""
        jobs = (self._source.state.jobs.get(job_id) for job_id in ids if job_id not in self._watched)
        waiting = sorted((job for job in jobs if job and job.state is JobState.PENDING), key=_number)
        return {*self._watched, *(job.id for job in waiting[:MAX_EXPLAINED])}

    # ---- what of them

    def _sees(self, job: Job) -> bool:
        return self._source.visibility.rights_on(self._caller, job).see

    def _note(self, view: JobView) -> bool:
        """Whether a watched job differs from what was sent. Its progress is told by events, each once."""
        if view.id not in self._watched:
            return True
        told = view.progress, view.first_feedback_us, view.seq
        view.progress, view.first_feedback_us, view.seq = None, None, 0
        differs = self._sent.note(("job", view.id), encode(view))
        view.progress, view.first_feedback_us, view.seq = told
        return differs

    def _withheld(self, job_id: str, job: Job | None, changes: Changes, line: Line) -> None:
        """A job that is not (or no longer) to be seen: whoever was shown it is told so, and nobody else."""
        key = ("job", job_id)
        if job_id in self._watched:
            if changes.is_anew or key in self._sent:
                line.jobs_gone.append(job_id)
                self._sent.note_gone(key)
            return
        event = changes.shares.get(job_id)
        if job is None or event is None:
            return
        was = Share(event.data.get("was", job.spec.share.value))
        if self._source.visibility.rights(self._caller, job.owner.id, job.spec.queue, was).see:
            line.jobs_gone.append(job_id)

    def _add_progress(self, line: Line, changes: Changes, choice: _Choice) -> None:
        """Step reports of jobs that did not change otherwise."""
        for job_id in changes.reported:
            job = self._source.state.jobs.get(job_id)
            if job_id in choice.touched or job is None or job.progress is None:
                continue
            if not self._follows(job_id, job.owner.id):
                continue
            if self._source.visibility.rights_on(self._caller, job).read:
                line.progress.append(
                    LiveProgress(
                        job_id=job_id,
                        progress=wire_progress(job.progress),
                        first_feedback_us=job.first_feedback_us,
                    )
                )


def _number(job: Job) -> int:
    return job.number
