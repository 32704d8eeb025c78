"""Metrics and alerts: counts, processes, samples, and what alerts have to say."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from redrive.store.types import LetterId, Moment

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    counting = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "redrive_count",
        sa.Column("id", counting, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("delta", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "redrive_process",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("roles", sa.Text, nullable=False),
        sa.Column("levels", sa.Text, nullable=False),
        sa.Column("started_at", Moment, nullable=False),
        sa.Column("seen_at", Moment, nullable=False),
    )
    op.create_table(
        "redrive_sample",
        sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", Moment, nullable=False),
        sa.Column("counters", sa.Text, nullable=False),
        sa.Column("levels", sa.Text, nullable=False),
    )
    _make_alerts()


def _make_alerts() -> None:
    op.create_table(
        "redrive_alert",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("phase", sa.String(8), nullable=False),
        sa.Column("since", Moment, nullable=False),
        sa.Column("told_at", Moment),
        sa.Column("value", sa.Float),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint("phase IN ('quiet', 'pending', 'firing')", name="phase"),
    )
    op.create_table(
        "redrive_silence",
        sa.Column("alert", sa.Text, primary_key=True),
        sa.Column("until", Moment, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
    )
    op.create_table(
        "redrive_alert_message",
        sa.Column("id", LetterId, primary_key=True),
        sa.Column("alert", sa.Text, nullable=False),
        sa.Column("sink", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("due_at", Moment),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("locked_by", sa.Text),
        sa.Column("locked_at", Moment),
        sa.Column("sent_at", Moment),
        sa.Column("error", sa.Text, nullable=False),
        sa.CheckConstraint("(locked_by IS NULL) = (locked_at IS NULL)", name="lock"),
        sa.CheckConstraint("(sent_at IS NULL) = (due_at IS NOT NULL)", name="due"),
    )
    op.create_index(
        "redrive_alert_message_due_at",
        "redrive_alert_message",
        ["due_at"],
        postgresql_where=sa.text("due_at IS NOT NULL"),
        sqlite_where=sa.text("due_at IS NOT NULL"),
    )
