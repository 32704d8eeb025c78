"""The tables. Migrations lead here, and a test compares the two.

`dlq_event_config` is exactly what teams have had before Redrive: no default for its id, no unique
name, no further column. It may be a team's own: Redrive makes it only where it is missing and never
alters or drops it. What Redrive adds to a policy is in `redrive_policy`.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, CheckConstraint, Column, Integer, MetaData, String, Table

from redrive.domain.policy import LONGEST_NAME

REVISION: Final = "0001"
"""The newest migration. Revisions are numbers that grow."""
VERSION_TABLE: Final = "redrive_version"

metadata = MetaData(
    naming_convention={"pk": "%(table_name)s_pkey", "ck": "%(table_name)s_%(constraint_name)s"}
)

dlq_event_config = Table(
    "dlq_event_config",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", String(LONGEST_NAME)),
    Column("max_retries", Integer),
)

redrive_policy = Table(
    "redrive_policy",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("return_to", String(8), nullable=False),
    Column("retry_expired", Boolean, nullable=False),
    CheckConstraint("return_to IN ('queue', 'exchange')", name="return_to"),
)
