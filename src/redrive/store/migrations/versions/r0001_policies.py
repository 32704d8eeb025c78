"""Policies: `dlq_event_config`, unless the team has one, and what Redrive adds to it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    if not sa.inspect(op.get_bind()).has_table("dlq_event_config"):
        op.create_table(
            "dlq_event_config",
            sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("name", sa.String(100)),
            sa.Column("max_retries", sa.Integer),
        )
    op.create_table(
        "redrive_policy",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("return_to", sa.String(8), nullable=False),
        sa.Column("retry_expired", sa.Boolean, nullable=False),
        sa.CheckConstraint("return_to IN ('queue', 'exchange')", name="return_to"),
    )
