"""Letters: kept, explained, grouped and booked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from redrive.store.types import LetterId, Moment

revision = "0002"
down_revision = "0001"

_STATES = (
    "'dlq_pending', 'dlq_processing', 'dlq_resolved', 'dlq_failed', 'dlq_manual', 'dlq_archived'"
)
_COUNTING = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "redrive_letter",
        sa.Column("id", LetterId, primary_key=True),
        sa.Column("message_id", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("vhost", sa.Text, nullable=False),
        sa.Column("queue", sa.Text),
        sa.Column("exchange", sa.Text, nullable=False),
        sa.Column("routing_key", sa.Text, nullable=False),
        sa.Column("collected_from", sa.Text, nullable=False),
        sa.Column("error_type", sa.Text, nullable=False),
        sa.Column("error_reason", sa.Text, nullable=False),
        sa.Column("error_stack", sa.Text),
        sa.Column("fingerprint", sa.String(16), nullable=False),
        sa.Column("deaths", sa.Text, nullable=False),
        sa.Column("retry_count", sa.Integer, nullable=False),
        sa.Column("first_failed_at", Moment, nullable=False),
        sa.Column("last_failed_at", Moment, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("priority", sa.SmallInteger, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("content_type", sa.Text),
        sa.Column("content_encoding", sa.Text),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("cpu_usage", sa.Float),
        sa.Column("memory_usage", sa.Float),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("dlq_retry_count", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("locked_by", sa.Text),
        sa.Column("locked_at", Moment),
        sa.Column("next_retry_at", Moment),
        sa.Column("verdict_due_at", Moment),
        sa.Column("resolution", sa.String(8)),
        sa.Column("possible_duplicate", sa.Boolean, nullable=False),
        sa.Column("duplicate_of", LetterId),
        sa.Column("parent_id", LetterId),
        sa.Column("previous_id", LetterId),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.CheckConstraint(f"status IN ({_STATES})", name="status"),
        sa.CheckConstraint(
            "resolution IN ('receipt', 'silence', 'operator', 'unknown')", name="resolution"
        ),
        sa.CheckConstraint("priority BETWEEN 0 AND 255", name="priority"),
        sa.CheckConstraint("generation >= 0 AND dlq_retry_count >= 0", name="counts"),
        sa.CheckConstraint("(locked_by IS NULL) = (locked_at IS NULL)", name="lock"),
        sa.CheckConstraint("duplicate_of IS NULL OR possible_duplicate", name="duplicate"),
    )
    op.create_index("redrive_letter_status", "redrive_letter", ["status", "id"])
    op.create_index("redrive_letter_queue", "redrive_letter", ["queue", "id"])
    op.create_index("redrive_letter_routing_key", "redrive_letter", ["routing_key", "id"])
    op.create_index("redrive_letter_error_type", "redrive_letter", ["error_type", "id"])
    op.create_index("redrive_letter_fingerprint", "redrive_letter", ["fingerprint", "id"])
    op.create_index("redrive_letter_digest", "redrive_letter", ["digest", "id"])
    op.create_table(
        "redrive_envelope",
        sa.Column("letter_id", LetterId, primary_key=True),
        sa.Column("exchange", sa.LargeBinary, nullable=False),
        sa.Column("routing_key", sa.LargeBinary, nullable=False),
        sa.Column("redelivered", sa.Boolean, nullable=False),
        sa.Column("properties", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "redrive_tag",
        sa.Column("tag", sa.Text, primary_key=True),
        sa.Column("letter_id", LetterId, primary_key=True),
    )
    op.create_table(
        "redrive_history",
        sa.Column("id", _COUNTING, primary_key=True),
        sa.Column("letter_id", LetterId, nullable=False),
        sa.Column("at", Moment, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("before", sa.String(16)),
        sa.Column("after", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.CheckConstraint(f"before IN ({_STATES})", name="before"),
        sa.CheckConstraint(f"after IN ({_STATES})", name="after"),
    )
    op.create_index("redrive_history_letter_id", "redrive_history", ["letter_id"])
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
        sa.CheckConstraint(
            "result IN ('sending', 'sent', 'in_doubt', 'refused', 'returned', 'failed',"
            " 'resolved')",
            name="result",
        ),
    )
    op.create_table(
        "redrive_identity",
        sa.Column("key", sa.LargeBinary(16), primary_key=True),
        sa.Column("letter_id", LetterId, nullable=False),
    )
    op.create_table(
        "redrive_group",
        sa.Column("fingerprint", sa.String(16), primary_key=True),
        sa.Column("error_type", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("queue", sa.Text),
        sa.Column("first_seen_at", Moment, nullable=False),
    )
    op.create_table(
        "redrive_ledger",
        sa.Column("id", _COUNTING, primary_key=True),
        sa.Column("fingerprint", sa.String(16), nullable=False),
        sa.Column("account", sa.String(16), nullable=False),
        sa.Column("delta", sa.BigInteger, nullable=False),
        sa.CheckConstraint(
            f"account IN ('received', 'returned', 'deleted', {_STATES})", name="account"
        ),
    )
