"""Whether a replay may have full queues push out their oldest messages.

Those that were ordered before may not; nor may those that an older Redrive makes beside this one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column(
        "redrive_replay",
        sa.Column("drop_oldest", sa.Boolean, nullable=False, server_default=sa.false()),
    )
