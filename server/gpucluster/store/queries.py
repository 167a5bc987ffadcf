"""What the API and recovery read. Blocking, safe on any thread beside the writer; each call sees one consistent state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, func, or_, select

from ..engine.protocols import HistoryEntry, Recovered
from ..model.errors import NotFound
from ..model.events import PublishedEvent
from ..model.jobs import ENDED_STATES, Attempt, Job, JobState, Progress, Share, Task
from ..model.queues import QueueSpec
from . import tables
from .codec import column_text, decode_progress
from .database import Database, slices
from .rows import Row, attempt_of, event_of, history_of, job_of, queue_of, setting_of, task_of

_ENDED = [state.value for state in ENDED_STATES]
_OPEN = [state.value for state in JobState if state not in ENDED_STATES]
T = TypeVar("T")


class EventPage(NamedTuple):
    """Events after a number. `oldest_seq` is the first still stored (last_seq + 1 when none is), `last_seq` the newest ever."""

    events: list[PublishedEvent]
    oldest_seq: int
    last_seq: int
    resync: bool  # events after that number are gone, or it is not of this sequence: fetch a snapshot


class Queries:
    """Reads of one database. All methods raise Unavailable when the database cannot be read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- jobs

    def get_job(self, job: str | int) -> Job:
        """By long id or short number ("12" too), with its current or last attempt. Raises NotFound."""
        text = str(job)
        column = tables.jobs.c.number if text.isdecimal() and len(text) < 19 else tables.jobs.c.id
        with self._database.reading() as connection:
            found = _jobs(
                connection,
                _job_select().where(column == (int(text) if column is tables.jobs.c.number else text)),
            )
        if not found:
            raise NotFound(f"There is no job {text}.")
        return found[0]

    def jobs_by_id(self, job_ids: Collection[str]) -> list[Job]:
        """Those of them that there are, in no order, each with its current or last attempt."""
        with self._database.reading() as connection:
            return [
                job
                for some in slices(list(job_ids))
                for job in _jobs(connection, _job_select().where(tables.jobs.c.id.in_(some)))
            ]

    def newest_ids(
        self,
        limit: int,
        *,
        owner: str,
        queues: Collection[str] = (),
        shares: Collection[Share] = (),
        count_at_most: int = 0,
    ) -> tuple[list[str], int]:
        """Ids of the newest jobs that are `owner`'s (a principal id), or in one of `queues`, or shared in one of these ways;
        and how many there are in all, counted up to `count_at_most`.
        """
        columns = tables.jobs.c
        where = or_(
            columns.owner_id == owner,
            columns.queue.in_(list(queues)),
            columns.visibility.in_([share.value for share in shares]),
        )
        newest = select(columns.id).where(where).order_by(columns.number.desc()).limit(limit)
        some = select(columns.id).where(where).limit(count_at_most).subquery()
        with self._database.reading() as connection:
            ids = list(connection.execute(newest).scalars())
            if len(ids) < limit or not count_at_most:
                return ids, len(ids)
            return ids, int(connection.execute(select(func.count()).select_from(some)).scalar_one())

    def list_jobs(
        self,
        *,
        owner: str | None = None,
        states: Collection[JobState | str] | None = None,
        queues: Collection[str] | None = None,
        cells: Collection[str] | None = None,
        notebook: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Newest first. `owner` is a principal id; `before` a job id: only those submitted before it."""
        query = _job_select().order_by(tables.jobs.c.number.desc()).limit(limit)
        if owner is not None:
            query = query.where(tables.jobs.c.owner_id == owner)
        if states is not None:
            query = query.where(tables.jobs.c.state.in_([JobState(state).value for state in states]))
        if queues is not None:
            query = query.where(tables.jobs.c.queue.in_(list(queues)))
        if cells is not None:
            query = query.where(tables.jobs.c.cell_id.in_([column_text(cell) for cell in cells]))
        if notebook is not None:
            query = query.where(tables.jobs.c.notebook_path == column_text(notebook))
        if before is not None:
            number = select(tables.jobs.c.number).where(tables.jobs.c.id == before).scalar_subquery()
            query = query.where(tables.jobs.c.number < number)
        with self._database.reading() as connection:
            return _jobs(connection, query)

    def find_idempotent(self, owner_id: str, key: str) -> Job | None:
        """The job that this principal submitted with this idempotency key."""
        query = _job_select().where(tables.jobs.c.owner_id == owner_id, tables.jobs.c.idempotency_key == key)
        with self._database.reading() as connection:
            return next(iter(_jobs(connection, query)), None)

    def counts_by_state(self) -> dict[str, int]:
        """Number of jobs in each state; states without jobs are 0."""
        query = select(tables.jobs.c.state, func.count()).group_by(tables.jobs.c.state)
        with self._database.reading() as connection:
            found = {state: count for state, count in connection.execute(query)}
        return {state.value: found.get(state.value, 0) for state in JobState}

    def submission(self, job_id: str) -> bytes:
        """What was submitted, verbatim. Raises NotFound."""
        query = select(tables.programs.c.submission).where(tables.programs.c.job_id == job_id)
        with self._database.reading() as connection:
            found = connection.execute(query).scalar()
        if found is None:
            raise NotFound(f"There is no job {job_id}.")
        return bytes(found)

    # ---- attempts, history, steps

    def attempts(self, job_id: str) -> list[Attempt]:
        """All attempts of a job, first to last."""
        query = select(tables.attempts).where(tables.attempts.c.job_id == job_id)
        with self._database.reading() as connection:
            return _attempts(connection, query.order_by(tables.attempts.c.number))

    def files_discarded(self, attempt_id: str) -> tuple[int, str] | None:
        """When (microseconds since the epoch) and why retention removed the attempt's files; None when it did not."""
        columns = tables.attempts.c
        query = select(columns.files_discarded_us, columns.files_discarded_why).where(
            columns.id == attempt_id
        )
        with self._database.reading() as connection:
            found = connection.execute(query).one_or_none()
        return (found[0], found[1] or "") if found is not None and found[0] is not None else None

    def history(self, job_id: str) -> list[HistoryEntry]:
        """All transitions of a job, first to last."""
        query = select(tables.history).where(tables.history.c.job_id == job_id).order_by(tables.history.c.id)
        with self._database.reading() as connection:
            return [history_of(row) for row in connection.execute(query).mappings()]

    def steps(self, job_id: str, attempt: int | None = None, limit: int = 1000) -> list[Progress]:
        """Step reports of the attempt of that number (None = the last one), in order; at most `limit`, spread evenly."""
        attempts = select(tables.attempts.c.id).where(tables.attempts.c.job_id == job_id)
        if attempt is None:
            attempts = attempts.order_by(tables.attempts.c.number.desc()).limit(1)
        else:
            attempts = attempts.where(tables.attempts.c.number == attempt)
        query = (
            select(tables.steps.c.progress)
            .where(tables.steps.c.attempt_id == attempts.scalar_subquery())
            .order_by(tables.steps.c.ordinal)
        )
        with self._database.reading() as connection:
            stored = connection.execute(query).scalars().all()
        return [decode_progress(text) for text in _spread(stored, limit)]

    # ---- events, queues, counters

    def events(self, after_seq: int, limit: int = 1000, max_bytes: int | None = None) -> EventPage:
        """The events after a number, in order, and whether the follower must resync instead. `max_bytes`: of their data, at
        most, or one event.
        """
        query = select(tables.events).where(tables.events.c.seq > after_seq).order_by(tables.events.c.seq)
        with self._database.reading() as connection:
            rows = connection.execute(query.limit(limit)).mappings()
            found = [event_of(row) for row in _up_to(rows, max_bytes)]
            last = int(_meta(connection).get("last_seq", "0"))
            oldest = connection.execute(select(func.min(tables.events.c.seq))).scalar()
        oldest_seq = last + 1 if oldest is None else int(oldest)
        return EventPage(found, oldest_seq, last, resync=not oldest_seq - 1 <= after_seq <= last)

    def queues(self) -> list[QueueSpec]:
        """The queue tree that the last scheduler served (Store.keep_queues), in its order."""
        with self._database.reading() as connection:
            rows = connection.execute(select(tables.queues).order_by(tables.queues.c.position)).mappings()
            return [queue_of(row) for row in rows]

    def meta(self) -> dict[str, str]:
        """cluster_id, created_us, last_seq, last_job_number, as text."""
        with self._database.reading() as connection:
            return _meta(connection)

    def recovered(self) -> Recovered:
        """What a restarted engine needs."""
        query = _job_select().where(tables.jobs.c.state.in_(_OPEN)).order_by(tables.jobs.c.number)
        with self._database.reading() as connection:
            jobs = _jobs(connection, query)
            waited_for = {dependency for job in jobs for dependency in job.spec.after}
            states = _states(connection, sorted(waited_for))
            counters = _meta(connection)
            settings = connection.execute(select(tables.node_settings).order_by(tables.node_settings.c.node))
            health_settings = [setting_of(row) for row in settings.mappings()]
        return Recovered(
            jobs=jobs,
            last_seq=int(counters.get("last_seq", "0")),
            last_job_number=int(counters.get("last_job_number", "0")),
            ended_states={job_id: state.value for job_id, state in states.items() if state in ENDED_STATES},
            health_settings=health_settings,
        )


def _job_select() -> Any:
    return select(tables.jobs, tables.programs.c.program).join(
        tables.programs, tables.programs.c.job_id == tables.jobs.c.id
    )


def _jobs(connection: Connection, query: Any) -> list[Job]:
    rows: Sequence[Row] = connection.execute(query).mappings().all()
    wanted = [row["attempt_id"] for row in rows if row["attempt_id"]]
    attempts = {
        attempt.id: attempt
        for some in slices(wanted)
        for attempt in _attempts(connection, select(tables.attempts).where(tables.attempts.c.id.in_(some)))
    }
    return [job_of(row, attempts.get(row["attempt_id"])) for row in rows]


def _attempts(connection: Connection, query: Any) -> list[Attempt]:
    rows: Sequence[Row] = connection.execute(query).mappings().all()
    by_attempt: dict[str, list[Task]] = {row["id"]: [] for row in rows}
    for some in slices(list(by_attempt)):
        tasks = select(tables.tasks).where(tables.tasks.c.attempt_id.in_(some)).order_by(tables.tasks.c.rank)
        for row in connection.execute(tasks).mappings():
            by_attempt[row["attempt_id"]].append(task_of(row))
    return [attempt_of(row, by_attempt[row["id"]]) for row in rows]


def _states(connection: Connection, job_ids: list[str]) -> dict[str, JobState]:
    found: dict[str, JobState] = {}
    for some in slices(job_ids):
        query = select(tables.jobs.c.id, tables.jobs.c.state).where(tables.jobs.c.id.in_(some))
        found.update((job_id, JobState(state)) for job_id, state in connection.execute(query))
    return found


def _up_to(rows: Iterable[Row], max_bytes: int | None) -> Iterator[Row]:
    total = 0
    for row in rows:
        total += len(row["data"])
        if max_bytes is not None and total > max_bytes and total > len(row["data"]):
            return
        yield row


def _meta(connection: Connection) -> dict[str, str]:
    return {key: value for key, value in connection.execute(select(tables.meta))}


def _spread(values: Sequence[T], limit: int) -> list[T]:
    """At most `limit` of the values, evenly, the first and the last among them."""
    if len(values) <= limit:
        return list(values)
    if limit <= 1:
        return [values[-1]] if limit == 1 else []
    return [values[round(index * (len(values) - 1) / (limit - 1))] for index in range(limit)]
