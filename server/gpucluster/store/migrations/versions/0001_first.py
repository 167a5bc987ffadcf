"""Schema version 1."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "blob_owners",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("principal_id", sa.String(length=255), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hash", "principal_id", name="pk_blob_owners"),
    )
    op.create_index("ix_blob_owners_principal_id", "blob_owners", ["principal_id"])
    op.create_table(
        "blobs",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("last_used_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_blobs"),
    )
    op.create_index("ix_blobs_last_used_us", "blobs", ["last_used_us"])
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=26)),
        sa.Column("owner", sa.String(length=255)),
        sa.Column("queue", sa.String(length=255)),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("owner_id", sa.String(length=255), nullable=False),
        sa.Column("owner_name", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("visibility", sa.String(length=16), nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tier", sa.Integer(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("gpus", sa.BigInteger(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("tasks", sa.Integer(), nullable=False),
        sa.Column("submitted_us", sa.BigInteger(), nullable=False),
        sa.Column("queued_us", sa.BigInteger(), nullable=False),
        sa.Column("first_started_us", sa.BigInteger()),
        sa.Column("first_feedback_us", sa.BigInteger()),
        sa.Column("ended_us", sa.BigInteger()),
        sa.Column("idempotency_key", sa.String(length=255)),
        sa.Column("notebook_path", sa.Text()),
        sa.Column("cell_id", sa.Text()),
        sa.Column("git_commit", sa.Text()),
        sa.Column("attempt_id", sa.String(length=26)),
        sa.Column("progress", sa.Text()),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("number", name="uq_jobs_number"),
        sa.UniqueConstraint("owner_id", "idempotency_key", name="uq_jobs_owner_id_idempotency_key"),
    )
    op.create_index("ix_jobs_ended_us", "jobs", ["ended_us"])
    op.create_index("ix_jobs_owner_id_number", "jobs", ["owner_id", "number"])
    op.create_index("ix_jobs_queue_number", "jobs", ["queue", "number"])
    op.create_index("ix_jobs_state_number", "jobs", ["state", "number"])
    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    )
    op.create_table(
        "node_settings",
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("health", sa.String(length=16), nullable=False),
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("actor_name", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_node_settings"),
    )
    op.create_table(
        "queues",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("parent", sa.String(length=255)),
        sa.Column("guaranteed", sa.Text()),
        sa.Column("maximum", sa.Text()),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_queues"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("started_us", sa.BigInteger()),
        sa.Column("ended_us", sa.BigInteger()),
        sa.Column("outcome", sa.String(length=32)),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.Column("files_bytes", sa.BigInteger()),
        sa.Column("files_discarded_us", sa.BigInteger()),
        sa.Column("files_discarded_why", sa.Text()),
        sa.Column("steps_reduced_us", sa.BigInteger()),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_attempts_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.UniqueConstraint("job_id", "number", name="uq_attempts_job_id_number"),
    )
    op.create_index("ix_attempts_files_discarded_us_ended_us", "attempts", ["files_discarded_us", "ended_us"])
    op.create_index("ix_attempts_steps_reduced_us_ended_us", "attempts", ["steps_reduced_us", "ended_us"])
    op.create_table(
        "blob_refs",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_blob_refs_job_id"),
        sa.PrimaryKeyConstraint("hash", "job_id", "role", name="pk_blob_refs"),
    )
    op.create_index("ix_blob_refs_job_id", "blob_refs", ["job_id"])
    op.create_table(
        "history",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("from_state", sa.String(length=16)),
        sa.Column("to_state", sa.String(length=16), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer()),
        sa.Column("detail", sa.Text()),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_history_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_history"),
    )
    op.create_index("ix_history_job_id_id", "history", ["job_id", "id"])
    op.create_table(
        "programs",
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("program", sa.Text(), nullable=False),
        sa.Column("submission", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_programs_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_programs"),
    )
    op.create_table(
        "steps",
        sa.Column("attempt_id", sa.String(length=26), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_steps_attempt_id"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_steps_job_id"),
        sa.PrimaryKeyConstraint("attempt_id", "ordinal", name="pk_steps"),
    )
    op.create_table(
        "tasks",
        sa.Column("attempt_id", sa.String(length=26), nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("role", sa.String(length=255), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("gpus", sa.BigInteger(), nullable=False),
        sa.Column("gpu_uuids", sa.Text(), nullable=False),
        sa.Column("resources", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("ended_us", sa.BigInteger()),
        sa.Column("placement", sa.Text(), nullable=False),
        sa.Column("exit", sa.Text()),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_tasks_attempt_id"),
        sa.PrimaryKeyConstraint("attempt_id", "rank", name="pk_tasks"),
    )


def downgrade() -> None:
    raise NotImplementedError("put back the backup that was made before the upgrade")
