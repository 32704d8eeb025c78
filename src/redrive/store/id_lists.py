"""Conditions on many ids at once.

They go to the engine as one parameter: a list of a thousand costs SQLAlchemy and the driver more
than the query costs the engine. PostgreSQL takes an array. SQLite has none, so it gets the ids one
behind the other, and cuts them itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, LargeBinary, bindparam, func, literal, text
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import UserDefinedType

from redrive.store.types import to_octets


class _Ids(UserDefinedType[str]):
    """An array of ids, written as text. As a parameter of its own type it is parsed once; the cast
    of a text would be anew for every row that it is compared with."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "UUID[]"


_CUT: Final = (
    "WITH RECURSIVE place(first) AS ("
    "SELECT 1 WHERE length(:ids) > 0"
    " UNION ALL SELECT first + 16 FROM place WHERE first + 16 < length(:ids)"
    ") SELECT substr(:ids, first, 16) FROM place"
)
ONE_OF_ON_SQLITE: Final = f"IN ({_CUT})"
ONE_OF_ON_POSTGRES: Final = "= ANY(CAST(%(ids)s AS uuid[]))"
"""What follows a column in a statement that goes straight to the driver, with the ids written by
the function below as the parameter `ids`."""


def is_one_of(
    connection: AsyncConnection, column: ColumnElement[Any], ids: Sequence[str]
) -> ColumnElement[bool]:
    """Whether a column of ids holds one of these."""
    if connection.dialect.name == "sqlite":
        written = bindparam("ids", written_on_sqlite(ids), LargeBinary, unique=True)
        return column.in_(text(_CUT).bindparams(written))
    return column == func.any(literal(written_on_postgres(ids), _Ids()))


def written_on_sqlite(ids: Iterable[str]) -> bytes:
    """Ids one behind the other."""
    return b"".join(map(to_octets, ids))


def written_on_postgres(ids: Iterable[str]) -> str:
    """Ids as an array: psycopg looks at every item of a list several times."""
    return "{" + ",".join(ids) + "}"
