"""The streams of a job: `output` (state and records) and `log` (records alone), as NDJSON."""

from __future__ import annotations

from ...model.jobs import Job
from ..output import OutputRequest, OutputSource, OutputStream
from .base import ApiHandler


class OutputHandler(ApiHandler):
    """`GET /v1/jobs/{id}/output?rank=N&follow=0|1&attempt=N&offset=N`: see schemas.StreamItem.

    `attempt` and `offset` are the cursor where an earlier stream stood.
    """

    async def get(self, reference: str) -> None:
        self.known_queries("rank", "follow", "attempt", "offset")
        await self._send(reference, self._request(with_state=True))

    def _request(self, with_state: bool) -> OutputRequest:
        return OutputRequest(
            rank=self.query_int("rank", 0) or 0,
            attempt=self.query_int("attempt", low=1),
            offset=self.query_int("offset", 0) or 0,
            follow=self.query_flag("follow", True),
            with_state=with_state,
            only_attempt=self.query_int("only_attempt", low=1),
            tail=self.query_int("tail"),
            tail_bytes=self.query_int("tail_bytes", low=1),
        )

    async def _send(self, reference: str, request: OutputRequest) -> None:
        job = await self.parts.directory.find(reference)
        self.parts.visibility.require_read(self.principal, job)
        await self.stream(OutputStream(self._source(), job, request).batches())

    def _source(self) -> OutputSource:
        parts = self.parts
        return OutputSource(
            find=self._find,
            attempts=parts.directory.attempts,
            view=lambda job: parts.views.job(job, self.principal),
            open_log=parts.backend.log_reader,
            feed=parts.feed,
            removed=parts.directory.files_removed,
        )

    async def _find(self, reference: str) -> Job:
        """Asked again and again while the stream lasts: who loses the right to read, loses the stream."""
        job = await self.parts.directory.find(reference)
        self.parts.visibility.require_read(self.principal, job)
        return job


class LogHandler(OutputHandler):
    """`GET /v1/jobs/{id}/log`: as output, without job views; also `only_attempt=N`, and `tail=N` for the last records, or
    as many of them as `tail_bytes=N` allows.
    """

    async def get(self, reference: str) -> None:
        self.known_queries("rank", "follow", "attempt", "offset", "only_attempt", "tail", "tail_bytes")
        await self._send(reference, self._request(with_state=False))
