"""The API: users, tokens, sessions, the audit log, notes on groups, answers that are repeated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from redrive.store.types import LetterId, Moment

revision = "0004"
down_revision = "0003"

_ROLES = "role IN ('viewer', 'operator', 'admin')"
_RESOLVED_ONLY = "after = 'dlq_resolved' AND before <> 'dlq_resolved'"


def upgrade() -> None:
    op.create_index(
        "redrive_history_at",
        "redrive_history",
        ["at"],
        postgresql_where=sa.text(_RESOLVED_ONLY),
        sqlite_where=sa.text(_RESOLVED_ONLY),
    )
    op.create_table(
        "redrive_group_note",
        sa.Column("fingerprint", sa.String(16), primary_key=True),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("assignee", sa.Text),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("updated_by", sa.Text, nullable=False),
    )
    _make_access()
    counting = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "redrive_audit",
        sa.Column("id", counting, primary_key=True),
        sa.Column("at", Moment, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("outcome", sa.Integer),
        sa.CheckConstraint(_ROLES, name="role"),
    )
    op.create_index("redrive_audit_actor", "redrive_audit", ["actor", "id"])
    op.create_index("redrive_audit_action", "redrive_audit", ["action", "id"])
    op.create_table(
        "redrive_request",
        sa.Column("actor", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("at", Moment, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("body", sa.LargeBinary),
    )
    op.create_index("redrive_request_at", "redrive_request", ["at"])


def _make_access() -> None:
    op.create_table(
        "redrive_user",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("password", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.CheckConstraint(_ROLES, name="role"),
    )
    op.create_table(
        "redrive_token",
        sa.Column("id", LetterId, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("expires_at", Moment),
        sa.Column("revoked_at", Moment),
        sa.CheckConstraint(_ROLES, name="role"),
    )
    op.create_index("redrive_token_digest", "redrive_token", ["digest"], unique=True)
    op.create_table(
        "redrive_session",
        sa.Column("digest", sa.LargeBinary(32), primary_key=True),
        sa.Column("user_name", sa.Text, nullable=False),
        sa.Column("csrf", sa.Text, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
    )
    op.create_index("redrive_session_user_name", "redrive_session", ["user_name"])
