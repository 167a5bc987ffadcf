"""What a data folder holds, read without a scheduler: `gpucluster jobs`, `why` and `logs` while none runs.

The methods are those of ApiClient that such a reader needs, and the answers come from the same code as the service's.
Nothing is written and nothing is taken over. Who can read the folder is its owner, or root.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path
from typing import cast

import msgspec

from ..backends.reports import log_bytes, whole_frames
from ..engine.core import Engine
from ..model.errors import NotFound
from ..model.jobs import Job, JobState, TaskPlacement
from ..model.queues import QueueSpec
from ..runtimes import taskfolder
from ..store import Store
from ..worker import protocol
from ..worker.frames import HEADER
from .auth import PeerAuthenticator
from .clock import SystemClock
from .directory import JobDirectory, JobFilter, parse_states
from .discovery import data_folder
from .feed import EventFeed
from .output import OutputRequest, OutputSource, OutputStream
from .schemas import HistoryView, JobList, JobView, StreamItem, WhyView
from .usage import UsageWatch
from .views import Views, history, why_ended
from .visibility import Visibility

_item = msgspec.json.Decoder(StreamItem, strict=False)


class StoredCluster:
    """The jobs of one data folder as they were last stored. Close it, or use it as a context manager."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._caller = PeerAuthenticator().principal_of_uid(os.geteuid())
        clock = SystemClock()
        #: Knows no job: all of them come from the store.
        engine = Engine(queues=[], new_id=str)
        #: Whoever can read the folder administers it; which queues there are is not asked.
        visibility = Visibility(lambda name: QueueSpec(name=name))
        self._visibility = visibility
        self._directory = JobDirectory(lambda: engine.state, _settled, store, visibility)
        self._views = Views(
            engine=lambda: engine,
            now_us=clock.now_us,
            last_seq=lambda: 0,
            visibility=visibility,
            usage=UsageWatch(),
            task_notes=dict,
            cluster="",
            levels=(),
        )

    @classmethod
    def open(cls, data_dir: str | os.PathLike[str] | None = None) -> StoredCluster:
        """Raises NotFound when nothing was ever stored there, Unavailable and VersionMismatch as Store.open."""
        folder = data_folder(data_dir)
        if not (folder / "version").exists():
            raise NotFound(f"nothing was ever stored in {folder}")
        return cls(Store.open(folder, SystemClock(), read_only=True), folder)

    def __enter__(self) -> StoredCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self._store.close()

    def jobs(
        self,
        *,
        states: Iterable[str] = (),
        queue: str | None = None,
        mine: bool = False,
        limit: int = 20,
    ) -> JobList:
        wanted = JobFilter(states=parse_states(list(states)), queue=queue, mine=mine, limit=limit)
        found, next_before = asyncio.run(self._directory.page(self._caller, wanted))
        return JobList(jobs=[self._views.job(job, self._caller) for job in found], next_before=next_before)

    def job(self, reference: str) -> JobView:
        """Raises NotFound."""
        return self._views.job(self._find(reference), self._caller)

    def history(self, reference: str) -> list[HistoryView]:
        job = self._find(reference)
        return history(self._store.history(job.id), self._visibility.rights_on(self._caller, job))

    def why(self, reference: str) -> WhyView:
        job = self._find(reference)
        if job.is_ended:
            return why_ended(job, self._visibility.rights_on(self._caller, job))
        if job.state is JobState.PENDING:
            verdict, sentence = "starts_when", "The job waits for the next scheduler."
        else:
            verdict = "running"
            sentence = f"The job was {job.state.value} when the last scheduler ended. The next one finds out how it stands."
        return WhyView(job_id=job.id, verdict=verdict, code="no_scheduler", sentence=sentence)

    def log(
        self,
        reference: str,
        rank: int = 0,
        *,
        attempt: int | None = None,
        tail: int | None = None,
        follow: bool = False,
    ) -> StoredLog:
        """As ApiClient.log, of what is there now: nobody could tell that there is more, so `follow` changes nothing."""
        job = self._find(reference)
        self._visibility.require_read(self._caller, job)
        source = OutputSource(
            find=self._directory.find,
            attempts=self._directory.attempts,
            view=lambda job: self._views.job(job, self._caller),
            open_log=self._open_log,
            feed=EventFeed(0, _no_events),
            removed=self._directory.files_removed,
        )
        request = OutputRequest(rank=rank, follow=False, with_state=False, only_attempt=attempt, tail=tail)
        return StoredLog(OutputStream(source, job, request))

    def _find(self, reference: str) -> Job:
        job = asyncio.run(self._directory.find(reference))
        self._visibility.require_seen(self._caller, job)
        return job

    def _open_log(self, attempt_id: str, placement: TaskPlacement) -> _LogFile:
        folder = taskfolder.task_folder(str(self._folder), attempt_id, placement.role, placement.rank)
        return _LogFile(os.path.join(folder, protocol.LOG))


class StoredLog:
    """The records of a log as StreamItems. `cursor`: where it ends, as of a Follower."""

    def __init__(self, stream: OutputStream) -> None:
        self._stream = stream
        self.cursor: tuple[int, int] | None = None

    def __enter__(self) -> StoredLog:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing is held."""

    def __iter__(self) -> Iterator[StreamItem]:
        loop = asyncio.new_event_loop()
        batches = cast("AsyncGenerator[bytes, None]", self._stream.batches())
        try:
            while batch := loop.run_until_complete(anext(batches, b"")):
                for line in batch.splitlines():
                    yield self._passed(_item.decode(line))
        finally:
            loop.run_until_complete(batches.aclose())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _passed(self, item: StreamItem) -> StreamItem:
        if item.type == "record":
            self.cursor = (item.attempt, item.offset + HEADER.size + len(item.payload or b""))
        return item


class _LogFile:
    """A LogReader (engine/protocols.py) of a file that nobody tells us about."""

    def __init__(self, path: str) -> None:
        self._path = path

    def size(self) -> int:
        return log_bytes(self._path)

    def read(self, offset: int, max_bytes: int) -> bytes:
        return whole_frames(self._path, offset, max_bytes)

    async def wait(self, offset: int) -> None:
        return


async def _settled() -> None:
    """What is stored stays as it is."""


async def _no_events(after: int, limit: int) -> tuple[()]:
    return ()
