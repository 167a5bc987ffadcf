"""The tables. Columns that are searched or sorted by, and beside them the structs of model/ as JSON, so that nothing is lost.

Times are microseconds since the epoch, GPUs thousandths, as everywhere. The migrations make these tables; a test keeps
the two equal. Types are the portable ones of SQLAlchemy: the same tables work on PostgreSQL.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: A row number that the database counts itself (SQLite does so for its own INTEGER type only).
_RowId = BigInteger().with_variant(Integer, "sqlite")

#: cluster_id, created_us, last_seq, last_job_number, writer (see journal.py)
meta = Table(
    "meta",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

#: The tree that was served last (Store.keep_queues).
queues = Table(
    "queues",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("parent", String(255)),
    Column("guaranteed", Text),  # resource vector, or NULL = unset
    Column("maximum", Text),
    Column("spec", Text, nullable=False),  # QueueSpec
)

#: What an administrator set for a node (HealthSetting); the newest of each.
node_settings = Table(
    "node_settings",
    metadata,
    Column("node", String(255), primary_key=True),
    Column("health", String(16), nullable=False),
    Column("actor", String(255), nullable=False),
    Column("actor_name", String(255), nullable=False),
    Column("reason", Text),
    Column("time_us", BigInteger, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(26), primary_key=True),
    Column("number", BigInteger, nullable=False, unique=True),
    Column("owner_id", String(255), nullable=False),
    Column("owner_name", String(255), nullable=False),
    Column("owner", Text, nullable=False),  # Principal, with the groups as they were at submission
    Column("visibility", String(16), nullable=False),
    Column("queue", String(255), nullable=False),
    Column("state", String(16), nullable=False),
    Column("name", Text, nullable=False),
    Column("tier", Integer, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("gpus", BigInteger, nullable=False),  # of the whole gang, thousandths
    Column("request", Text, nullable=False),  # resource vector of the whole gang
    Column("tasks", Integer, nullable=False),
    Column("submitted_us", BigInteger, nullable=False),
    Column("queued_us", BigInteger, nullable=False),
    Column("first_started_us", BigInteger),
    Column("first_feedback_us", BigInteger),
    Column("ended_us", BigInteger),
    Column("idempotency_key", String(255)),
    Column("notebook_path", Text),
    Column("cell_id", Text),
    Column("git_commit", Text),
    Column("attempt_id", String(26)),  # current or last one; no foreign key, since attempts refer to jobs
    Column("progress", Text),  # Progress, newest report
    Column("spec", Text, nullable=False),  # JobSpec, normalised
    Column("rest", Text, nullable=False),  # the fields of Job that have no column
    UniqueConstraint("owner_id", "idempotency_key"),
    Index(None, "state", "number"),
    Index(None, "owner_id", "number"),
    Index(None, "queue", "number"),
    Index(None, "ended_us"),
)

#: What a job runs. Apart from `jobs`, so that a change of state does not rewrite the source.
programs = Table(
    "programs",
    metadata,
    Column("job_id", String(26), ForeignKey("jobs.id"), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("source", Text, nullable=False),  # for searching; the truth is in `program`
    Column("program", Text, nullable=False),  # Program: no secrets in it
    Column("submission", LargeBinary, nullable=False),  # as it came, verbatim
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", String(26), primary_key=True),
    Column("job_id", String(26), ForeignKey("jobs.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("started_us", BigInteger),
    Column("ended_us", BigInteger),
    Column("outcome", String(32)),
    Column("rest", Text, nullable=False),
    # Housekeeping of retention.py: size of the attempt's files once measured, and what was let go when.
    Column("files_bytes", BigInteger),
    Column("files_discarded_us", BigInteger),
    Column("files_discarded_why", Text),  # "the retention of 90 days"
    Column("steps_reduced_us", BigInteger),
    UniqueConstraint("job_id", "number"),
    Index(None, "files_discarded_us", "ended_us"),
    Index(None, "steps_reduced_us", "ended_us"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("attempt_id", String(26), ForeignKey("attempts.id"), primary_key=True),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("role", String(255), nullable=False),
    Column("node", String(255), nullable=False),
    Column("gpus", BigInteger, nullable=False),  # thousandths
    Column("gpu_uuids", Text, nullable=False),  # JSON list
    Column("resources", Text, nullable=False),  # resource vector, with GPU types
    Column("state", String(16), nullable=False),
    Column("exit_code", Integer),
    Column("ended_us", BigInteger),
    Column("placement", Text, nullable=False),  # TaskPlacement
    Column("exit", Text),  # TaskExit
)

history = Table(
    "history",
    metadata,
    Column("id", _RowId, primary_key=True, autoincrement=True),
    Column("job_id", String(26), ForeignKey("jobs.id"), nullable=False),
    Column("time_us", BigInteger, nullable=False),
    Column("from_state", String(16)),
    Column("to_state", String(16), nullable=False),
    Column("cause", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("attempt", Integer),
    Column("detail", Text),
    Index(None, "job_id", "id"),
)

#: Step reports, thinned (journal.py). `ordinal` counts an attempt's reports from 0 as they came.
steps = Table(
    "steps",
    metadata,
    Column("attempt_id", String(26), ForeignKey("attempts.id"), primary_key=True),
    Column("ordinal", BigInteger, primary_key=True, autoincrement=False),
    Column("job_id", String(26), ForeignKey("jobs.id"), nullable=False),
    Column("time_us", BigInteger, nullable=False),
    Column("progress", Text, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("time_us", BigInteger, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("job_id", String(26)),
    Column("owner", String(255)),
    Column("queue", String(255)),
    Column("data", Text, nullable=False),
)

blobs = Table(
    "blobs",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("last_used_us", BigInteger, nullable=False),
    Index(None, "last_used_us"),
)

#: Why a blob is kept. No foreign key to `blobs`: a job whose blob was lost outside must still be stored and ended.
blob_refs = Table(
    "blob_refs",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("job_id", String(26), ForeignKey("jobs.id"), primary_key=True),
    Column("role", String(16), primary_key=True),  # input | result
    Index(None, "job_id"),
)

#: Who may read a blob because they had its content: knowing a hash is not a right to read.
blob_owners = Table(
    "blob_owners",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("principal_id", String(255), primary_key=True),
    Column("created_us", BigInteger, nullable=False),
    Index(None, "principal_id"),
)
