"""The engine's writes: one ChangeSet, one transaction, durable on return (protocol Journal of engine/protocols.py).

Only what changed is written: of an attempt the tasks that are not yet stored as they are; of step reports a thinned
series. Both are remembered from commit to commit, and forgotten when a commit fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from ..engine.protocols import ChangeSet, Recovered
from ..model.errors import Unavailable
from ..model.jobs import (
    Attempt,
    InputManifest,
    Progress,
    ResultManifest,
    Task,
    TaskExit,
    TaskPlacement,
    TaskState,
)
from . import tables
from .codec import encode_progress
from .database import Database
from .dialect import insert_or_update
from .queries import Queries
from .rows import (
    ATTEMPT_CHANGES,
    JOB_CHANGES,
    SETTING_CHANGES,
    TASK_CHANGES,
    attempt_row,
    event_row,
    history_row,
    job_changes,
    job_row,
    program_row,
    setting_row,
    task_row,
)

#: Step reports kept of one attempt: between half of it and all of it, evenly, and always the first and the last.
STEPS_KEPT = 1000

_StoredTask = tuple[TaskPlacement, TaskState, TaskExit | None]
_WHAT = "The change could not be stored"


def step_stride(count: int, kept: int = STEPS_KEPT) -> int:
    """Of `count` reports every how many-th is kept: the smallest power of two that keeps at most `kept`."""
    stride = 1
    while count > kept * stride:
        stride *= 2
    return stride


class SqlJournal:
    """Used by one thread at a time (the driver's journal thread)."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries
        self._statements = _Statements(database.dialect.kind)
        self._stored_tasks: dict[str, list[_StoredTask]] = {}
        self._steps_seen: dict[str, int] = {}

    def commit(self, changes: ChangeSet) -> None:
        """Write all of it in one transaction; durable on return.

        Raises Unavailable (disk full, locked, read-only, damaged …); then nothing is written and the next commit may
        succeed. Raises Superseded when another scheduler has taken the data folder over.
        """
        if changes.is_empty:
            return
        transaction = _Transaction(self._statements, self._stored_tasks, self._steps_seen)
        try:
            with self._database.writing(_WHAT) as connection:
                transaction.write(connection, changes)
        except BaseException:
            self._forget()
            raise
        self._remember(changes, transaction)

    def recover(self) -> Recovered:
        """Every job that has not ended with its attempt, and where the counters stand. Raises Unavailable."""
        self._forget()
        return self._queries.recovered()

    def _remember(self, changes: ChangeSet, transaction: _Transaction) -> None:
        self._stored_tasks.update(transaction.stored_tasks)
        self._steps_seen.update(transaction.steps_seen)
        for attempt in changes.attempts:
            if attempt.ended_us is not None:
                self._stored_tasks.pop(attempt.id, None)
                self._steps_seen.pop(attempt.id, None)

    def _forget(self) -> None:
        self._stored_tasks.clear()
        self._steps_seen.clear()


class _Statements:
    """The statements, built once; SQLAlchemy keeps their compiled form."""

    def __init__(self, kind: str) -> None:
        self.new_job = insert(tables.jobs)
        self.new_program = insert(tables.programs)
        self.changed_job = (
            update(tables.jobs)
            .where(tables.jobs.c.id == bindparam("b_id"))
            .values({name: bindparam(name) for name in JOB_CHANGES})
        )
        self.attempt = insert_or_update(kind, tables.attempts, ["id"], ATTEMPT_CHANGES)
        self.task = insert_or_update(kind, tables.tasks, ["attempt_id", "rank"], TASK_CHANGES)
        self.history = insert(tables.history)
        self.event = insert(tables.events)
        self.step = insert(tables.steps)
        self.steps_seen = select(func.max(tables.steps.c.ordinal)).where(
            tables.steps.c.attempt_id == bindparam("b_attempt")
        )
        of_attempt = tables.steps.c.attempt_id == bindparam("b_attempt")
        self.drop_step = delete(tables.steps).where(
            of_attempt, tables.steps.c.ordinal == bindparam("b_ordinal")
        )
        self.drop_off_stride = delete(tables.steps).where(
            of_attempt, tables.steps.c.ordinal % bindparam("b_stride") != 0
        )
        self.blob_ref = insert_or_update(kind, tables.blob_refs, ["hash", "job_id", "role"], [])
        self.blob_owner = insert_or_update(kind, tables.blob_owners, ["hash", "principal_id"], [])
        self.owners = select(tables.jobs.c.id, tables.jobs.c.owner_id).where(
            tables.jobs.c.id.in_(bindparam("b_jobs", expanding=True))
        )
        self.counter = (
            update(tables.meta)
            .where(tables.meta.c.key == bindparam("b_key"))
            .values(value=bindparam("b_value"))
        )
        self.setting = insert_or_update(kind, tables.node_settings, ["node"], SETTING_CHANGES)


class _Transaction:
    """The writing of one ChangeSet. What it stored of tasks and steps is found in `stored_tasks` and `steps_seen` after."""

    def __init__(
        self,
        statements: _Statements,
        stored_tasks: dict[str, list[_StoredTask]],
        steps_seen: dict[str, int],
    ) -> None:
        self._statements = statements
        self._stored_before = stored_tasks
        self._seen_before = steps_seen
        self.stored_tasks: dict[str, list[_StoredTask]] = {}
        self.steps_seen: dict[str, int] = {}

    def write(self, connection: Connection, changes: ChangeSet) -> None:
        statements = self._statements
        if changes.new_jobs:
            connection.execute(statements.new_job, [job_row(job) for job in changes.new_jobs])
            programs = [program_row(job, changes.submissions.get(job.id, b"{}")) for job in changes.new_jobs]
            connection.execute(statements.new_program, programs)
            self._write_refs(connection, _input_refs(changes))
            self._set_counter(connection, "last_job_number", max(job.number for job in changes.new_jobs))
        if changes.jobs:
            self._update_jobs(connection, changes)
        if changes.attempts:
            self._write_attempts(connection, changes.attempts, changes.time_us)
        if changes.history:
            connection.execute(statements.history, [history_row(entry) for entry in changes.history])
        if changes.steps:
            self._write_steps(connection, changes.steps)
        if changes.events:
            connection.execute(statements.event, [event_row(event) for event in changes.events])
            self._set_counter(connection, "last_seq", max(event.seq for event in changes.events))
        if changes.health_settings:
            rows = [setting_row(setting) for setting in changes.health_settings]
            connection.execute(statements.setting, rows)

    def _set_counter(self, connection: Connection, key: str, value: int) -> None:
        connection.execute(self._statements.counter, {"b_key": key, "b_value": str(value)})

    def _update_jobs(self, connection: Connection, changes: ChangeSet) -> None:
        rows = [{"b_id": job.id, **job_changes(job)} for job in changes.jobs]
        result = connection.execute(self._statements.changed_job, rows)
        if result.rowcount != len(rows):
            raise Unavailable(
                f"{_WHAT}: {len(rows) - result.rowcount} of {len(rows)} changed jobs are not in the store.",
                hint="This is a fault of the scheduler: please report it.",
            )

    def _write_attempts(self, connection: Connection, attempts: Iterable[Attempt], now_us: int) -> None:
        newest = {attempt.id: attempt for attempt in attempts}
        connection.execute(self._statements.attempt, [attempt_row(attempt) for attempt in newest.values()])
        rows: list[dict[str, Any]] = []
        results: list[tuple[str, ResultManifest]] = []
        for attempt in newest.values():
            for task in self._changed_tasks(attempt):
                rows.append(task_row(attempt.id, task))
                if task.exit is not None and task.exit.result is not None:
                    results.append((attempt.job_id, task.exit.result))
        if rows:
            connection.execute(self._statements.task, rows)
        if results:
            self._write_results(connection, results, now_us)

    def _write_results(
        self, connection: Connection, results: list[tuple[str, ResultManifest]], now_us: int
    ) -> None:
        """Refer to what the jobs gave back; a job's owner may read it."""
        refs = [(job_id, blob, "result") for job_id, result in results for blob in manifest_blobs(result)]
        if not refs:
            return
        self._write_refs(connection, refs)
        jobs = sorted({job_id for job_id, _, _ in refs})
        found = connection.execute(self._statements.owners, {"b_jobs": jobs})
        owners = {job_id: owner_id for job_id, owner_id in found}
        rights = [
            {"hash": blob, "principal_id": owners[job_id], "created_us": now_us} for job_id, blob, _ in refs
        ]
        connection.execute(self._statements.blob_owner, rights)

    def _changed_tasks(self, attempt: Attempt) -> list[Task]:
        """Tasks that the store does not hold as they are now.

        Their parts are immutable, so they are compared by identity: of a gang of thousands one change costs little.
        """
        before = self._stored_before.get(attempt.id, [])
        if len(before) != len(attempt.tasks):
            self.stored_tasks[attempt.id] = [
                (task.placement, task.state, task.exit) for task in attempt.tasks
            ]
            return attempt.tasks
        now = before.copy()
        changed: list[Task] = []
        for place, task in enumerate(attempt.tasks):
            placement, state, ended = before[place]
            if task.placement is not placement or task.state is not state or task.exit is not ended:
                now[place] = (task.placement, task.state, task.exit)
                changed.append(task)
        self.stored_tasks[attempt.id] = now
        return changed

    def _write_refs(self, connection: Connection, refs: list[tuple[str, str, str]]) -> None:
        if refs:
            rows = [{"job_id": job_id, "hash": blob, "role": role} for job_id, blob, role in refs]
            connection.execute(self._statements.blob_ref, rows)

    def _write_steps(self, connection: Connection, steps: Iterable[tuple[str, str, Progress]]) -> None:
        by_attempt: dict[tuple[str, str], list[Progress]] = {}
        for job_id, attempt_id, progress in steps:
            by_attempt.setdefault((job_id, attempt_id), []).append(progress)
        for (job_id, attempt_id), reports in by_attempt.items():
            self._write_reports(connection, job_id, attempt_id, reports)

    def _write_reports(
        self, connection: Connection, job_id: str, attempt_id: str, reports: list[Progress]
    ) -> None:
        """Add the reports of one attempt and thin the series. Its last report stands there always, its first too."""
        statements = self._statements
        seen = self._seen_before.get(attempt_id)
        if seen is None:
            highest = connection.execute(statements.steps_seen, {"b_attempt": attempt_id}).scalar()
            seen = 0 if highest is None else highest + 1
        count = seen + len(reports)
        stride = step_stride(count)
        if seen and (seen - 1) % stride:
            connection.execute(statements.drop_step, {"b_attempt": attempt_id, "b_ordinal": seen - 1})
        if stride != step_stride(seen):
            connection.execute(statements.drop_off_stride, {"b_attempt": attempt_id, "b_stride": stride})
        rows = [
            {
                "attempt_id": attempt_id,
                "ordinal": ordinal,
                "job_id": job_id,
                "time_us": progress.time_us,
                "progress": encode_progress(progress),
            }
            for ordinal, progress in enumerate(reports, seen)
            if ordinal % stride == 0 or ordinal == count - 1
        ]
        connection.execute(statements.step, rows)
        self.steps_seen[attempt_id] = count


def manifest_blobs(manifest: InputManifest | ResultManifest) -> list[str]:
    """The hashes of a manifest, each once."""
    pickle = [manifest.pickle] if manifest.pickle else []
    return list(dict.fromkeys([*pickle, *manifest.buffers]))


def _input_refs(changes: ChangeSet) -> list[tuple[str, str, str]]:
    return [
        (job.id, blob, "input")
        for job in changes.new_jobs
        if job.program.inputs is not None
        for blob in manifest_blobs(job.program.inputs)
    ]
