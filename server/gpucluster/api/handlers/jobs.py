"""Jobs: submit, list, look at, cancel, share."""

from __future__ import annotations

import asyncio
import contextlib

from ...engine.events import EndedJobShared, ShareChanged, StopRequested
from ...model.errors import Conflict, InvalidRequest, NotFound
from ...model.jobs import JobState, Share, StopCause
from ..directory import DEFAULT_LIMIT, MAX_CELLS, MAX_LIMIT, JobFilter, parse_states
from ..schemas import (
    CancelRequest,
    JobList,
    JobSubmission,
    ShareRequest,
    SourceView,
    StepsView,
)
from ..views import history, result, wire_progress
from .base import ApiHandler, checked_reason


class JobsHandler(ApiHandler):
    """`GET /v1/jobs` lists, `POST /v1/jobs` submits. `cell` takes several cell ids, best together with `notebook`."""

    async def get(self) -> None:
        self.known_queries("state", "queue", "owner", "mine", "id", "cell", "notebook", "limit", "before")
        wanted = JobFilter(
            states=parse_states(_words(self.query("state"))),
            queue=self.query("queue"),
            owner=self.query("owner"),
            mine=self.query_flag("mine"),
            ids=tuple(_words(self.query("id"))),
            cell_ids=self._cells(),
            notebook_path=self.query("notebook"),
            limit=self.query_int("limit", DEFAULT_LIMIT, low=1, high=MAX_LIMIT) or DEFAULT_LIMIT,
            before=self.query("before"),
        )
        jobs, next_before = await self.parts.directory.page(self.principal, wanted)
        views = [self.parts.views.listed(job, self.principal) for job in jobs]
        self.answer(JobList(jobs=views, next_before=next_before, seq=self.parts.feed.last_seq))

    def _cells(self) -> tuple[str, ...]:
        text = self.query("cell")
        cells = tuple(dict.fromkeys(_words(text)))
        if text and not cells:
            raise InvalidRequest("cell", f"{text!r} names no cell")
        if len(cells) > MAX_CELLS:
            raise InvalidRequest(
                "cell", f"{len(cells)} cells are asked for; {MAX_CELLS} are possible at once"
            )
        return cells

    async def post(self) -> None:
        job, is_new = await self.parts.submissions.submit(self.decode(JobSubmission), self.principal)
        job = await self.parts.directory.committed(job)
        self.answer(self.parts.views.job(job, self.principal), 201 if is_new else 200)


class DryRunHandler(ApiHandler):
    """`POST /v1/jobs/dry-run`"""

    async def post(self) -> None:
        self.answer(await self.parts.submissions.dry_run(self.decode(JobSubmission), self.principal))


class JobHandler(ApiHandler):
    """`GET /v1/jobs/{id}`"""

    async def get(self, reference: str) -> None:
        self.known_queries()
        job = await self.parts.directory.find(reference)
        self.parts.visibility.require_seen(self.principal, job)
        self.answer(self.parts.views.job(job, self.principal))


class CancelHandler(ApiHandler):
    """`POST /v1/jobs/{id}/cancel`. A job that is being cancelled, or was, stays so: asking twice does no harm."""

    async def post(self, reference: str) -> None:
        request = self.decode(CancelRequest) if self._body else CancelRequest()
        reason = checked_reason(request.reason)
        job = await self.parts.directory.find(reference)
        self.parts.visibility.require_control(self.principal, job)
        if not job.is_ended:
            event = StopRequested(job.id, StopCause.CANCEL, actor=self.principal.id, reason=reason)
            with contextlib.suppress(Conflict, NotFound):  # it has ended just now
                await self.parts.driver.submit(event)
            job = await self.parts.directory.find(job.id)
        if job.is_ended and job.state is not JobState.CANCELLED:
            raise Conflict(f"job {job.number} has {job.state.value} already")
        self.answer(self.parts.views.job(job, self.principal))


class ShareHandler(ApiHandler):
    """`POST /v1/jobs/{id}/share`"""

    async def post(self, reference: str) -> None:
        request = self.decode(ShareRequest)
        job = await self.parts.directory.find(reference)
        self.parts.visibility.require_control(self.principal, job)
        share = Share(request.share)
        if not job.is_ended:
            with contextlib.suppress(Conflict):  # it has ended just now
                await self.parts.driver.submit(
                    ShareChanged(job_id=job.id, share=share, actor=self.principal.id)
                )
            job = await self.parts.directory.find(job.id)
        if job.is_ended and job.spec.share is not share:
            was = job.spec.share
            await asyncio.to_thread(self.parts.store.share_ended, job.id, share)
            job = await self.parts.directory.find(job.id)
            await self.parts.driver.submit(EndedJobShared(job, was))
        self.answer(self.parts.views.job(job, self.principal))


class WhyHandler(ApiHandler):
    """`GET /v1/jobs/{id}/why`"""

    async def get(self, reference: str) -> None:
        self.known_queries()
        job = await self.parts.directory.find(reference)
        rights = self.parts.visibility.require_seen(self.principal, job)
        self.answer(self.parts.views.why(job, rights))


class HistoryHandler(ApiHandler):
    """`GET /v1/jobs/{id}/history`"""

    async def get(self, reference: str) -> None:
        self.known_queries()
        job = await self.parts.directory.find(reference)
        rights = self.parts.visibility.require_seen(self.principal, job)
        self.answer(history(await asyncio.to_thread(self.parts.store.history, job.id), rights))


class StepsHandler(ApiHandler):
    """`GET /v1/jobs/{id}/steps?attempt=N&limit=N`"""

    async def get(self, reference: str) -> None:
        self.known_queries("attempt", "limit")
        attempt = self.query_int("attempt", low=1)
        limit = self.query_int("limit", 1000, low=1, high=10_000) or 1000
        job = await self.parts.directory.find(reference)
        self.parts.visibility.require_read(self.principal, job)
        steps = await asyncio.to_thread(self.parts.store.steps, job.id, attempt, limit)
        self.answer(StepsView(job_id=job.id, steps=[wire_progress(step) for step in steps]))


class ResultHandler(ApiHandler):
    """`GET /v1/jobs/{id}/result?rank=N`"""

    async def get(self, reference: str) -> None:
        self.known_queries("rank")
        rank = self.query_int("rank", 0) or 0
        job = await self.parts.directory.find(reference)
        self.parts.visibility.require_read(self.principal, job)
        if rank >= job.spec.task_count:
            raise InvalidRequest("rank", f"job {job.number} has ranks 0 to {job.spec.task_count - 1}")
        self.answer(result(job, rank))


class SourceHandler(ApiHandler):
    """`GET /v1/jobs/{id}/source`"""

    async def get(self, reference: str) -> None:
        self.known_queries()
        job = await self.parts.directory.find(reference)
        self.parts.visibility.require_read(self.principal, job)
        program = job.program
        self.answer(
            SourceView(
                job_id=job.id, kind=program.kind.value, source=program.source, command=list(program.command)
            )
        )


def _words(text: str | None) -> list[str]:
    return [word for word in (text or "").split(",") if word]
