"""What is let go with time: events, step reports, files of attempts, blobs of ended jobs. Rows of jobs stay.

Caps by age and by size. Works in small slices, each a short transaction of its own, so that commits never wait for it;
the service calls `run_slice` now and then, again at once while it says `more`. Nothing of a job that has not ended is
touched (events are of the cluster, not of a job: a follower that is too far behind is told to resync).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import delete, func, select, update

from ..model.errors import GpuclusterError
from . import tables
from .blobs import BlobStore
from .database import Database

_log = logging.getLogger(__name__)

_DAY_S = 24 * 3600.0
_EVENTS_AT_ONCE = 2000
_ATTEMPTS_AT_ONCE = 50
_REFS_AT_ONCE = 500


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and how much. Ages in seconds since the job (or the attempt) ended; None = no such cap."""

    events_max_age_s: float | None = 30 * _DAY_S
    events_max_rows: int | None = 500_000
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
        self._failed: set[str] = (
            set()
        )  # attempts whose files cannot be removed: said once, tried again after a restart

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
        with self._database.reading() as connection:
            newest = connection.execute(select(func.max(columns.seq))).scalar() or 0
            oldest = connection.execute(
                select(columns.seq, columns.time_us).order_by(columns.seq).limit(_EVENTS_AT_ONCE)
            ).all()
        keep_from_us = _cutoff(now_us, self._policy.events_max_age_s)
        keep_from_seq = (
            newest - self._policy.events_max_rows + 1 if self._policy.events_max_rows is not None else 0
        )
        last_gone: int | None = None
        for seq, time_us in oldest:
            if seq >= keep_from_seq and time_us >= keep_from_us:
                break
            last_gone = seq
        if last_gone is None:
            return 0, False
        with self._database.writing("Old events could not be removed") as connection:
            gone = connection.execute(delete(tables.events).where(columns.seq <= last_gone)).rowcount
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
        kept = tables.attempts.c.files_discarded_us.is_(None)
        chosen = self._old_attempts(kept, _cutoff(now_us, self._policy.logs_max_age_s), None)
        chosen += [attempt_id for attempt_id in self._oversize() if attempt_id not in chosen]
        gone = [attempt_id for attempt_id in chosen if self._discarded(attempt_id)]
        if gone:
            with self._database.writing("The removal of old logs could not be noted") as connection:
                connection.execute(
                    update(tables.attempts)
                    .where(tables.attempts.c.id.in_(gone))
                    .values(files_discarded_us=now_us)
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

    def _oversize(self) -> list[str]:
        """The oldest ended attempts whose files have to go for the rest to be within `logs_max_bytes`."""
        cap = self._policy.logs_max_bytes
        columns = tables.attempts.c
        if cap is None:
            return []
        with self._database.reading() as connection:
            total = connection.execute(
                select(func.sum(columns.files_bytes)).where(columns.files_discarded_us.is_(None))
            ).scalar()
            excess = int(total or 0) - cap
            if excess <= 0:
                return []
            oldest = connection.execute(_ended_attempts(columns.files_discarded_us.is_(None))).all()
        chosen: list[str] = []
        for attempt_id, _, size in oldest:
            if excess <= 0:
                break
            if attempt_id not in self._failed:
                chosen.append(attempt_id)
                excess -= size or 0
        return chosen

    def _measured(self, attempt_id: str) -> int:
        try:
            return self._measure(attempt_id)
        except (GpuclusterError, OSError) as error:
            _log.warning("The files of attempt %s cannot be measured: %s", attempt_id, error)
            return 0

    def _discarded(self, attempt_id: str) -> bool:
        if attempt_id in self._failed:
            return False
        try:
            self._discard(attempt_id)
        except (GpuclusterError, OSError) as error:
            # One folder that cannot be removed must not keep all others from being removed.
            _log.warning("The files of attempt %s cannot be removed: %s", attempt_id, error)
            self._failed.add(attempt_id)
            return False
        return True

    def _old_attempts(self, wanted: Any, before_us: int, keep: int | None) -> list[str]:
        """Ids of the oldest attempts of ended jobs that ended before a time, or are beyond the `keep` newest."""
        with self._database.reading() as connection:
            oldest = connection.execute(_ended_attempts(wanted)).all()
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


def _ended_attempts(wanted: Any) -> Any:
    """(id, ended_us, files_bytes) of the oldest attempts of ended jobs."""
    columns = tables.attempts.c
    return (
        select(columns.id, columns.ended_us, columns.files_bytes)
        .join(tables.jobs, tables.jobs.c.id == columns.job_id)
        .where(wanted, columns.ended_us.is_not(None), tables.jobs.c.ended_us.is_not(None))
        .order_by(columns.ended_us)
        .limit(_ATTEMPTS_AT_ONCE)
    )


def _cutoff(now_us: int, age_s: float | None) -> int:
    """What is older than this time is beyond the age; without an age nothing is."""
    return 0 if age_s is None else now_us - round(age_s * 1e6)
