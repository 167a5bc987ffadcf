"""A job's output as a stream: its state at each change, and the log records of one rank, all attempts in sequence.

The log files are the truth (DESIGN section 3.6): a stream holds nothing but a cursor (attempt number, byte offset) and
reads on from there, so that it costs no memory, survives anything, and can be taken up again at any record.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from ..engine.outcome import could_not_start
from ..engine.protocols import LogReader
from ..model.errors import InvalidRequest
from ..model.jobs import TASK_ENDED, Attempt, AttemptState, Job, JobState, TaskPlacement, TaskState
from ..worker.frames import HEADER, BadFrame, Frame, iter_frames
from .feed import EventFeed, Signal
from .schemas import JobView, StreamItem

HEARTBEAT_S = 10.0
#: Bytes of a log that are read, encoded and sent at a time.
READ_BYTES = 256 << 10
SCAN_BYTES = 4 << 20
#: Progress alone is sent at most this often; every other change at once.
PROGRESS_INTERVAL_S = 0.2
#: The reason why a job waits can change without an event of the job's own.
WAITING_REFRESH_S = 1.0
#: A log that says that it grew, or will not grow, and gives nothing is not asked again sooner than this.
QUIET_LOG_S = 0.05

#: The length of a record's payload within its header (worker/frames.py).
_LENGTH = struct.Struct("<I")
_LENGTH_AT = 4

_encoder = msgspec.json.Encoder()
log = logging.getLogger("gpucluster.api")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputRequest:
    """What a client asks to see of a job.

    `attempt` and `offset`: the cursor where it stands (None = the beginning). `follow`: wait for more until the job ends.
    `with_state`: job views beside the records. `only_attempt`: this one alone. `tail`: begin with the last so
    many records, of which `tail_bytes` bounds how much they are.
    """

    rank: int = 0
    attempt: int | None = None
    offset: int = 0
    follow: bool = True
    with_state: bool = True
    only_attempt: int | None = None
    tail: int | None = None
    tail_bytes: int | None = None


async def _unknown(attempt_id: str) -> tuple[int, str] | None:
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputSource:
    """What a stream reads from: the job as it is now, its earlier attempts, how the caller may see it, and the logs.

    `removed`: when (microseconds since the epoch) and why the files of an attempt were removed; None when they were not.
    """

    find: Callable[[str], Awaitable[Job]]
    attempts: Callable[[str], Awaitable[Sequence[Attempt]]]
    view: Callable[[Job], JobView]
    open_log: Callable[[str, TaskPlacement], LogReader]
    feed: EventFeed
    removed: Callable[[str], Awaitable[tuple[int, str] | None]] = _unknown


class OutputStream:
    """The stream of one follower. `batches` gives whole NDJSON lines, ready to send."""

    def __init__(self, source: OutputSource, job: Job, request: OutputRequest) -> None:
        if request.rank >= job.spec.task_count:
            raise InvalidRequest(
                "rank", f"job {job.number} has ranks 0 to {job.spec.task_count - 1}, not {request.rank}"
            )
        self._source = source
        self._job = job
        self._request = request
        self._state = _StateLines(source.view)
        self._number = request.only_attempt or request.attempt or 1
        self._offset = request.offset
        self._announced = request.attempt is not None
        self._reader: LogReader | None = None
        self._earlier: dict[int, Attempt] = {}
        self._exhausted = False
        self._quiet = False
        self._told_gone = 0  # the last attempt of which it was told

    async def batches(self) -> AsyncIterator[bytes]:
        with self._source.feed.watch(self._job.id) as signal:
            if self._request.tail is not None:
                await self._skip_to_tail(self._request.tail)
            first, last_sent_s = True, time.monotonic()
            while True:
                job = await self._find()
                # A final state is told after the records that led to it.
                state = self._state_line(job) if first or not job.is_ended else b""
                records = await self._next_records(job)
                first = False
                if state or records:
                    last_sent_s = time.monotonic()
                    yield state + records
                if records:
                    continue
                if self._is_done(job):
                    yield self._state_line(job) + _line(StreamItem(type="end"))
                    return
                await self._wait(signal, job, last_sent_s + HEARTBEAT_S - time.monotonic())
                if time.monotonic() - last_sent_s >= HEARTBEAT_S:
                    last_sent_s = time.monotonic()
                    yield _line(StreamItem(type="alive"))

    # ---- the job and its attempts

    async def _find(self) -> Job:
        if not self._job.is_ended:
            self._job = await self._source.find(self._job.id)
        return self._job

    async def _attempt(self, job: Job, number: int) -> Attempt | None:
        """The attempt of that number as it is now; None when there is none (yet)."""
        if job.attempt is not None and job.attempt.number == number:
            return job.attempt
        if number > job.attempts_made:
            return None
        known = self._earlier.get(number)
        if known is None or known.ended_us is None:  # one seen while it was active has ended since: ask again
            self._earlier = {each.number: each for each in await self._source.attempts(job.id)}
        return self._earlier.get(number)

    def _is_done(self, job: Job) -> bool:
        if not self._request.follow:
            return True
        if self._request.only_attempt is not None and self._exhausted:
            return True
        return job.is_ended and (self._exhausted or job.attempts_made < self._number)

    # ---- records

    async def _next_records(self, job: Job) -> bytes:
        """The next records as lines; nothing when there are none at the moment."""
        head = b""
        while True:
            attempt = await self._attempt(job, self._number)
            if attempt is None:
                return head
            # Asked before reading: what is over now was written before, so an empty read means the end.
            final = _is_final(attempt, self._request.rank)
            if not self._announced:
                self._announced = True
                head += _line(self._beginning(attempt))
            if self._reader is None:
                self._reader = self._open(attempt)
            frames = await self._read(self._reader)
            if frames:
                self._offset = frames[-1].end
                self._quiet = False
                return head + b"".join(map(self._record, frames))
            if not final:
                return head
            head += await self._gone(attempt, self._reader)
            if self._request.only_attempt is not None or self._number >= job.attempts_made:
                self._exhausted = True
                return head
            self._number, self._offset = self._number + 1, 0
            self._announced, self._reader, self._exhausted = False, None, False

    def _beginning(self, attempt: Attempt) -> StreamItem:
        nodes = dict.fromkeys(placement.node for placement in attempt.placements)
        return StreamItem(type="attempt", attempt=self._number, offset=self._offset, nodes=list(nodes))

    async def _gone(self, attempt: Attempt, reader: LogReader) -> bytes:
        """A line when the log of a task that is over is not there, though it must have begun one: else what was removed
        would look like a job that wrote nothing.
        """
        task = attempt.tasks[self._request.rank]
        if self._told_gone == self._number or await asyncio.to_thread(reader.size) > 0:
            return b""
        removed = await self._source.removed(attempt.id)
        has_run = task.state in (TaskState.SUCCEEDED, TaskState.FAILED) and not could_not_start(task)
        if removed is None and not has_run:
            return b""
        self._told_gone = self._number
        time_us, reason = removed or (0, None)
        return _line(
            StreamItem(type="gone", attempt=self._number, offset=self._offset, time_us=time_us, reason=reason)
        )

    def _open(self, attempt: Attempt) -> LogReader:
        return self._source.open_log(attempt.id, attempt.tasks[self._request.rank].placement)

    async def _read(self, reader: LogReader) -> list[Frame]:
        try:
            data = await asyncio.to_thread(reader.read, self._offset, READ_BYTES)
        except ValueError as error:
            if (self._number, self._offset) == (self._request.attempt, self._request.offset):
                raise InvalidRequest("offset", f"no log record begins at {self._offset}") from None
            log.error("the log of job %s, attempt %s is damaged: %s", self._job.number, self._number, error)
            return []
        return _whole_frames(data, self._offset)

    def _record(self, frame: Frame) -> bytes:
        return _line(
            StreamItem(
                type="record",
                attempt=self._number,
                kind=frame.kind.name.lower(),
                sequence=frame.sequence,
                offset=frame.offset,
                time_us=frame.time_us,
                payload=frame.payload,
            )
        )

    async def _skip_to_tail(self, count: int) -> None:
        """Stand before the last `count` records of the asked attempt, or of the last one."""
        job = await self._find()
        self._number = self._request.only_attempt or max(job.attempts_made, 1)
        attempt = await self._attempt(job, self._number)
        if attempt is not None:
            self._reader = self._open(attempt)
            self._offset = await asyncio.to_thread(
                _tail_offset, self._reader, count, self._request.tail_bytes
            )

    # ---- state and waiting

    def _state_line(self, job: Job) -> bytes:
        view = self._state.due(job) if self._request.with_state else None
        return _line(StreamItem(type="job", job=view)) if view is not None else b""

    async def _wait(self, signal: Signal, job: Job, limit_s: float) -> None:
        """Until something may have changed, at most `limit_s`."""
        limits = [max(limit_s, 0.0)]
        if self._request.with_state:
            limits.append(self._state.next_look_s(job))
        waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(signal.wait())]
        if self._reader is not None and not self._exhausted:
            if self._quiet:
                limits.append(QUIET_LOG_S)
            else:
                waiting.append(asyncio.ensure_future(_as_coroutine(self._reader.wait(self._offset))))
        try:
            done, _ = await asyncio.wait(waiting, timeout=min(limits), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        self._quiet = waiting[-1] in done and len(waiting) > 1


class _StateLines:
    """Decides when a job's view is worth a line: at every change, for progress alone at a bounded rate."""

    def __init__(self, view: Callable[[Job], JobView]) -> None:
        self._view = view
        self._last: JobView | None = None
        self._sent_s = 0.0
        self._held_back = False

    def due(self, job: Job) -> JobView | None:
        view = self._view(job)
        now = time.monotonic()
        if self._last is not None and _same_but_progress(view, self._last):
            self._held_back = view.progress != self._last.progress
            ended = job.is_ended
            if not self._held_back or (now - self._sent_s < PROGRESS_INTERVAL_S and not ended):
                return None
        self._last, self._sent_s, self._held_back = view, now, False
        return view

    def next_look_s(self, job: Job) -> float:
        """Seconds until a line may be due without any event of the job."""
        if self._held_back:
            return max(0.01, self._sent_s + PROGRESS_INTERVAL_S - time.monotonic())
        return WAITING_REFRESH_S if job.state is JobState.PENDING else HEARTBEAT_S


def _same_but_progress(one: JobView, other: JobView) -> bool:
    plain = {"progress": None, "seq": 0}
    return msgspec.structs.replace(one, **plain) == msgspec.structs.replace(other, **plain)


def _is_final(attempt: Attempt, rank: int) -> bool:
    """Whether nothing more will be written to this task's log."""
    return (
        attempt.state is not AttemptState.ACTIVE
        or attempt.ended_us is not None
        or attempt.tasks[rank].state in TASK_ENDED
    )


def _whole_frames(data: bytes, offset: int) -> list[Frame]:
    """The records in `data`. A damaged one ends what can be shown of this attempt; the log says so, loudly."""
    frames: list[Frame] = []
    try:
        for frame in iter_frames(data, offset):
            frames.append(frame)
    except BadFrame as error:
        log.error("a job's log is damaged: %s", error)
    return frames


def _tail_offset(reader: LogReader, count: int, limit_bytes: int | None) -> int:
    """Where the last `count` records begin, or fewer of them when they would be more than `limit_bytes` (the last one
    always). Looks at lengths only and keeps places only: a log of a million records is gone through quickly, in no memory.
    """
    places: deque[int] = deque(maxlen=max(count, 1))
    offset = 0
    while True:
        try:
            data = reader.read(offset, SCAN_BYTES)
        except ValueError:  # damaged from here on, as whoever reads it will say
            break
        position, size = 0, len(data)
        while size - position >= HEADER.size:
            end = position + HEADER.size + _LENGTH.unpack_from(data, position + _LENGTH_AT)[0]
            if end > size:
                break
            places.append(offset + position)
            position = end
        if not position:
            break
        offset += position
    if not places or count <= 0:
        return offset
    while limit_bytes is not None and len(places) > 1 and offset - places[0] > limit_bytes:
        places.popleft()
    return places[0]


async def _as_coroutine(awaitable: Awaitable[None]) -> None:
    with contextlib.suppress(OSError):
        await awaitable


def _line(item: StreamItem) -> bytes:
    return _encoder.encode(item) + b"\n"
