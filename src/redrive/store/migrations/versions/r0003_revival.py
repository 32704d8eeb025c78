"""Revival: letters are sent again, edited, and replayed by jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from redrive.store.types import LetterId, Moment

revision = "0003"
down_revision = "0002"

_STATES = (
    "'dlq_pending', 'dlq_processing', 'dlq_resolved', 'dlq_failed', 'dlq_manual', 'dlq_archived'"
)


def upgrade() -> None:
    op.add_column("redrive_letter", sa.Column("strategy", sa.String(16)))
    # Letters of before are due: the first worker looks at them.
    op.execute(
        "UPDATE redrive_letter SET next_retry_at = created_at WHERE status = 'dlq_pending'"
        " AND next_retry_at IS NULL"
    )
    for name, columns, column in (
        ("due", ["vhost", "priority", "next_retry_at", "id"], "next_retry_at"),
        ("duplicate_of", ["duplicate_of"], "duplicate_of"),
    ):
        op.create_index(
            f"redrive_letter_{name}",
            "redrive_letter",
            columns,
            postgresql_where=sa.text(f"{column} IS NOT NULL"),
            sqlite_where=sa.text(f"{column} IS NOT NULL"),
        )
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE redrive_letter SET (fillfactor = 85)")
    _extend_attempts()
    op.create_table(
        "redrive_edit",
        sa.Column("letter_id", LetterId, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", Moment, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("properties", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("undone", sa.Boolean, nullable=False),
    )
    op.create_table(
        "redrive_replay",
        sa.Column("id", LetterId, primary_key=True),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("vhost", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("filters", sa.Text, nullable=False),
        sa.Column("destination", sa.Text),
        sa.Column("batch_size", sa.Integer, nullable=False),
        sa.Column("pause", sa.Float, nullable=False),
        sa.Column("rate", sa.Float),
        sa.Column("doubtful", sa.Boolean, nullable=False),
        sa.Column("ordered_by", sa.Text),
        sa.Column("letters", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("skipped", sa.Integer, nullable=False),
        sa.Column("locked_by", sa.Text),
        sa.Column("locked_at", Moment),
        sa.CheckConstraint(
            "state IN ('running', 'paused', 'cancelled', 'done')",
            name="state",
        ),
        sa.CheckConstraint("(locked_by IS NULL) = (locked_at IS NULL)", name="lock"),
    )
    op.create_table(
        "redrive_replay_letter",
        sa.Column("replay_id", LetterId, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("letter_id", LetterId, nullable=False),
    )
    op.create_table(
        "redrive_breaker",
        sa.Column("vhost", sa.Text, primary_key=True),
        sa.Column("destination", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
    )


def _extend_attempts() -> None:
    """By a new table: SQLite cannot add a constraint to one. Nothing had been sent before this."""
    op.drop_table("redrive_attempt")
    op.create_table(
        "redrive_attempt",
        sa.Column("letter_id", LetterId, primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", Moment, nullable=False),
        sa.Column("worker_id", sa.Text, nullable=False),
        sa.Column("strategy", sa.Text, nullable=False),
        sa.Column("result", sa.String(8), nullable=False),
        sa.Column("queue", sa.Text),
        sa.Column("body_digest", sa.LargeBinary(16), nullable=False),
        sa.Column("before", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("replay_id", LetterId),
        sa.CheckConstraint(
            "result IN ('sending', 'sent', 'in_doubt', 'refused', 'returned', 'failed',"
            " 'resolved')",
            name="result",
        ),
        sa.CheckConstraint(f"before IN ({_STATES})", name="before"),
        postgresql_with={"fillfactor": 60},
    )
