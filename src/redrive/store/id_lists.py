"""Conditions on many ids at once.

PostgreSQL takes them as one array: a list of a thousand parameters costs the driver more than the
query costs the server. SQLite has no arrays, and lists cost it little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Text, cast, func, literal
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

_IDS = postgresql.ARRAY(postgresql.UUID(as_uuid=False))


def is_one_of(
    connection: AsyncConnection, column: ColumnElement[Any], ids: Sequence[str]
) -> ColumnElement[bool]:
    """Whether a column of ids holds one of these."""
    if connection.dialect.name == "sqlite":
        return column.in_(ids)
    written = literal("{" + ",".join(ids) + "}", Text)
    return column == func.any(cast(written, _IDS))
