"""Possible duplicates: found by an index of their own, and counted.

The count begins with those that the store has. What a process of the version before marks from now
on is not counted, until it is replaced.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_COUNTED = """
INSERT INTO redrive_count (name, label, delta)
SELECT 'redrive_possible_duplicates_total', '', letters
FROM (SELECT count(*) AS letters FROM redrive_letter WHERE possible_duplicate) AS marked
WHERE letters > 0
"""


def upgrade() -> None:
    op.create_index(
        "redrive_letter_possible_duplicate",
        "redrive_letter",
        ["possible_duplicate", "id"],
        postgresql_where=sa.text("possible_duplicate"),
        sqlite_where=sa.text("possible_duplicate = 1"),
    )
    op.execute(_COUNTED)
