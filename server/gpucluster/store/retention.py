"""What is let go with time: events, step reports, files of attempts, blobs of ended jobs. Rows of jobs stay.

Caps by age and by size. Works in small slices, each a short transaction of its own, so that commits never wait for it;
the service calls `run_slice` now and then, again at once while it says `more`. Nothing of a job that has not ended is
touched (events are of the cluster, not of a job: a follower that is too far behind is told to resync).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, delete, func, or_, select, update

from ..model.errors import GpuclusterError
from . import tables
from .blobs import BlobStore
from .database import Database, slices
from .dialect import stored_bytes

_log = logging.getLogger(__name__)

_DAY_S = 24 * 3600.0
_EVENTS_AT_ONCE = 2000
_ATTEMPTS_AT_ONCE = 50
_REFS_AT_ONCE = 500
#: Rows that are looked over at once where sizes are added up.
_ROWS_AT_ONCE = 20_000
#: What an event takes beside its data: numbers, kind, ids.
_EVENT_ROW_BYTES = 100
#: Files that could not be removed are left alone for this long.
_TRY_AGAIN_S = 6 * 3600.0


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and how much. Ages in seconds since the job (or the attempt) ended; None = no such cap."""

    events_max_age_s: float | None = 30 * _DAY_S
    events_max_bytes: int | None = 256 << 20  # as stored
    #: Beyond these an ended attempt keeps only its first and its last step report.
    steps_max_age_s: float | None = 180 * _DAY_S
    steps_max_attempts: int | None = 5_000
    #: Beyond these the log and the other files of an ended attempt are removed, oldest first.
    logs_max_age_s: float | None = 90 * _DAY_S
    logs_max_bytes: int | None = 20 << 30
    #: Then the job lets go of its blobs; what nothing else refers to is collected after the grace period.
    inputs_max_age_s: float | None = 7 * _DAY_S
    results_max_age_s: float | None = 90 * _DAY_S


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """What one slice let go. `more`: a cap is still exceeded, call again."""

    events: int = 0
    steps: int = 0
    attempts: int = 0  # whose files were removed
    refs: int = 0
    blobs: int = 0
    more: bool = False


class Retention:
    """One at a time, on any thread. `discard` removes the files of an ended attempt, `measure` gives their bytes; both
    take an attempt id, may block, and raise GpuclusterError or OSError when they cannot.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        policy: RetentionPolicy,
        *,
        discard: Callable[[str], None],
        measure: Callable[[str], int],
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._policy = policy
        self._discard = discard
        self._measure = measure
        self._event_bytes = _EventBytes(database)
        #: Attempts whose files could not be removed, and when they are tried again (microseconds since the epoch).
        self._failed: dict[str, int] = {}

    def run_slice(self, now_us: int) -> Slice:
        """Let go of a little of what is beyond the caps. Raises Unavailable when the database or the disk fails."""
        events, more_events = self._trim_events(now_us)
        steps, more_steps = self._reduce_steps(now_us)
        attempts, more_attempts = self._discard_files(now_us)
        refs, more_refs = self._release_blobs(now_us)
        collected = self._blobs.collect(now_us)
        return Slice(
            events=events,
            steps=steps,
            attempts=attempts,
            refs=refs,
            blobs=collected.blobs,
            more=more_events or more_steps or more_attempts or more_refs or collected.more,
        )

    # ---- events

    def _trim_events(self, now_us: int) -> tuple[int, bool]:
        columns = tables.events.c
        cap = self._policy.events_max_bytes
        total = self._event_bytes.total() if cap is not None else 0
        size = _event_size(self._database)
        with self._database.reading() as connection:
            query = select(columns.seq, columns.time_us, size).order_by(columns.seq).limit(_EVENTS_AT_ONCE)
            oldest = connection.execute(query).all()
        keep_from_us = _cutoff(now_us, self._policy.events_max_age_s)
        last_gone, freed = None, 0
        for seq, time_us, event_bytes in oldest:
            if time_us >= keep_from_us and (cap is None or total - freed <= cap):
                break
            last_gone, freed = seq, freed + event_bytes
        if last_gone is None:
            return 0, False
        with self._database.writing("Old events could not be removed") as connection:
            gone = connection.execute(delete(tables.events).where(columns.seq <= last_gone)).rowcount
        self._event_bytes.removed(freed)
        return gone, gone >= _EVENTS_AT_ONCE

    # ---- step reports

    def _reduce_steps(self, now_us: int) -> tuple[int, bool]:
        full = tables.attempts.c.steps_reduced_us.is_(None)
        chosen = self._old_attempts(
            full, _cutoff(now_us, self._policy.steps_max_age_s), self._policy.steps_max_attempts
        )
        if not chosen:
            return 0, False
        removed = 0
        with self._database.writing("Old step reports could not be removed") as connection:
            for attempt_id in chosen:
                of_attempt = tables.steps.c.attempt_id == attempt_id
                last = connection.execute(select(func.max(tables.steps.c.ordinal)).where(of_attempt)).scalar()
                if last is not None:
                    inner = tables.steps.c.ordinal.not_in([0, last])
                    removed += connection.execute(delete(tables.steps).where(of_attempt, inner)).rowcount
            connection.execute(
                update(tables.attempts)
                .where(tables.attempts.c.id.in_(chosen))
                .values(steps_reduced_us=now_us)
            )
        return removed, len(chosen) == _ATTEMPTS_AT_ONCE

    # ---- files of attempts

    def _discard_files(self, now_us: int) -> tuple[int, bool]:
        measured = self._measure_files()
        self._failed = {attempt_id: until for attempt_id, until in self._failed.items() if until > now_us}
        kept = tables.attempts.c.files_discarded_us.is_(None)
        policy = self._policy
        chosen: dict[str, str] = {}
        if policy.logs_max_age_s is not None:
            why = f"the retention of {_age_text(policy.logs_max_age_s)}"
            old = self._old_attempts(kept, _cutoff(now_us, policy.logs_max_age_s), None, skip=self._failed)
            chosen.update(dict.fromkeys(old, why))
        if policy.logs_max_bytes is not None:
            why = f"the limit of {policy.logs_max_bytes / (1 << 30):g} GiB for the files of jobs that have ended"
            chosen = {**dict.fromkeys(self._oversize(policy.logs_max_bytes), why), **chosen}
        gone = [attempt_id for attempt_id in chosen if self._discarded(attempt_id, now_us)]
        if gone:
            with self._database.writing("The removal of old logs could not be noted") as connection:
                for attempt_id in gone:
                    noted = {"files_discarded_us": now_us, "files_discarded_why": chosen[attempt_id]}
                    connection.execute(
                        update(tables.attempts).where(tables.attempts.c.id == attempt_id).values(noted)
                    )
        return len(gone), bool(gone) or measured == _ATTEMPTS_AT_ONCE

    def _measure_files(self) -> int:
        """Note the size of the files of attempts that have ended; the number of attempts measured."""
        columns = tables.attempts.c
        query = (
            select(columns.id)
            .where(
                columns.files_discarded_us.is_(None),
                columns.ended_us.is_not(None),
                columns.files_bytes.is_(None),
            )
            .limit(_ATTEMPTS_AT_ONCE)
        )
        with self._database.reading() as connection:
            unmeasured = list(connection.execute(query).scalars())
        sizes = {attempt_id: self._measured(attempt_id) for attempt_id in unmeasured}
        if sizes:
            with self._database.writing("The size of a log could not be noted") as connection:
                for attempt_id, size in sizes.items():
                    connection.execute(
                        update(tables.attempts).where(columns.id == attempt_id).values(files_bytes=size)
                    )
        return len(sizes)

    def _oversize(self, cap: int) -> list[str]:
        """The oldest ended attempts whose files have to go for the rest to be within `cap` bytes.

        Files that cannot be removed do not count: others would go for nothing.
        """
        columns = tables.attempts.c
        kept = columns.files_discarded_us.is_(None)
        with self._database.reading() as connection:
            total = connection.execute(select(func.sum(columns.files_bytes)).where(kept)).scalar()
            stuck = [
                connection.execute(select(func.sum(columns.files_bytes)).where(columns.id.in_(some))).scalar()
                for some in slices(list(self._failed))
            ]
            excess = int(total or 0) - sum(int(size or 0) for size in stuck) - cap
            oldest = _ended_attempts(connection, kept, self._failed) if excess > 0 else []
        chosen: list[str] = []
        for attempt_id, _, size in oldest:
            if excess <= 0:
                break
            chosen.append(attempt_id)
            excess -= size or 0
        return chosen

    def _measured(self, attempt_id: str) -> int:
        try:
            return self._measure(attempt_id)
        except (GpuclusterError, OSError) as error:
            _log.warning("The files of attempt %s cannot be measured: %s", attempt_id, error)
            return 0

    def _discarded(self, attempt_id: str, now_us: int) -> bool:
        try:
            self._discard(attempt_id)
        except (GpuclusterError, OSError) as error:
            # One folder that cannot be removed must not keep all others from being removed.
            _log.warning("The files of attempt %s cannot be removed: %s", attempt_id, error)
            self._failed[attempt_id] = now_us + round(_TRY_AGAIN_S * 1e6)
            return False
        return True

    def _old_attempts(
        self, wanted: Any, before_us: int, keep: int | None, skip: Collection[str] = ()
    ) -> list[str]:
        """Ids of the oldest attempts of ended jobs that ended before a time, or are beyond the `keep` newest."""
        with self._database.reading() as connection:
            oldest = _ended_attempts(connection, wanted, skip)
            beyond = 0
            if keep is not None:
                ended = (wanted, tables.attempts.c.ended_us.is_not(None))
                count = connection.execute(
                    select(func.count()).select_from(tables.attempts).where(*ended)
                ).scalar()
                beyond = max(0, int(count or 0) - keep)
        return [
            attempt_id
            for place, (attempt_id, ended_us, _) in enumerate(oldest)
            if place < beyond or ended_us < before_us
        ]

    # ---- blobs of ended jobs

    def _release_blobs(self, now_us: int) -> tuple[int, bool]:
        released, more = 0, False
        ages = {"input": self._policy.inputs_max_age_s, "result": self._policy.results_max_age_s}
        for role, age_s in ages.items():
            count = self._release_role(role, _cutoff(now_us, age_s))
            released += count
            more = more or count == _REFS_AT_ONCE
        return released, more

    def _release_role(self, role: str, before_us: int) -> int:
        refs = tables.blob_refs.c
        query = (
            select(refs.hash, refs.job_id)
            .join(tables.jobs, tables.jobs.c.id == refs.job_id)
            .where(refs.role == role, tables.jobs.c.ended_us < before_us)
            .limit(_REFS_AT_ONCE)
        )
        with self._database.reading() as connection:
            old = connection.execute(query).all()
        if old:
            with self._database.writing("Blobs of old jobs could not be released") as connection:
                for blob_hash, job_id in old:
                    connection.execute(
                        delete(tables.blob_refs).where(
                            refs.hash == blob_hash, refs.job_id == job_id, refs.role == role
                        )
                    )
        return len(old)


class _EventBytes:
    """What all stored events take: added up once, in parts, then kept up with what was added and removed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counted_to = 0
        self._total = 0

    def total(self) -> int:
        columns = tables.events.c
        size = func.sum(_event_size(self._database))
        while True:
            with self._database.reading() as connection:
                later = select(columns.seq).where(columns.seq > self._counted_to).order_by(columns.seq)
                part = later.limit(_ROWS_AT_ONCE).subquery()
                last = connection.execute(select(func.max(part.c.seq))).scalar()
                if last is None:
                    return self._total
                among = (columns.seq > self._counted_to, columns.seq <= last)
                self._total += int(connection.execute(select(size).where(*among)).scalar() or 0)
                self._counted_to = int(last)

    def removed(self, size_bytes: int) -> None:
        self._total = max(0, self._total - size_bytes)


def _event_size(database: Database) -> Any:
    return stored_bytes(database.dialect.kind, tables.events.c.data) + _EVENT_ROW_BYTES


def _ended_attempts(connection: Connection, wanted: Any, skip: Collection[str]) -> list[Any]:
    """(id, ended_us, files_bytes) of the oldest attempts of ended jobs, without those to skip, however many they are."""
    columns = tables.attempts.c
    query = (
        select(columns.id, columns.ended_us, columns.files_bytes)
        .join(tables.jobs, tables.jobs.c.id == columns.job_id)
        .where(wanted, columns.ended_us.is_not(None), tables.jobs.c.ended_us.is_not(None))
        .order_by(columns.ended_us, columns.id)
        .limit(_ATTEMPTS_AT_ONCE)
    )
    found: list[Any] = []
    page = connection.execute(query).all()
    while page:
        found += [row for row in page if row.id not in skip]
        if len(found) >= _ATTEMPTS_AT_ONCE or len(page) < _ATTEMPTS_AT_ONCE:
            break
        last = page[-1]
        later = or_(
            columns.ended_us > last.ended_us, and_(columns.ended_us == last.ended_us, columns.id > last.id)
        )
        page = connection.execute(query.where(later)).all()
    return found[:_ATTEMPTS_AT_ONCE]


def _age_text(age_s: float) -> str:
    for unit, unit_s in (("day", _DAY_S), ("hour", 3600.0)):
        if age_s >= unit_s:
            count = round(age_s / unit_s, 1)
            return f"{count:g} {unit}" if count == 1 else f"{count:g} {unit}s"
    return f"{age_s:g} s"


def _cutoff(now_us: int, age_s: float | None) -> int:
    """What is older than this time is beyond the age; without an age nothing is."""
    return 0 if age_s is None else now_us - round(age_s * 1e6)
