"""Many rows at once, by the fastest way each engine has: written by COPY on PostgreSQL and by
statements of many rows on SQLite; read in PostgreSQL's binary format, and from SQLite in one call.

SQLAlchemy is gone around here, because handling each value would cost more than writing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.letter import Envelope, Letter
from redrive.store.id_lists import (
    ONE_OF_ON_POSTGRES,
    ONE_OF_ON_SQLITE,
    written_on_postgres,
    written_on_sqlite,
)
from redrive.store.rows import (
    ENVELOPE_COLUMNS,
    LETTER_COLUMNS,
    Row,
    driver_rows,
    envelope_rows,
    letter_rows,
)
from redrive.store.schema import redrive_envelope, redrive_letter
from redrive.store.types import LetterId, of_octets

_TYPES: Final = {
    "VARCHAR": "text",
    "TEXT": "text",
    "SMALLINT": "int2",
    "INTEGER": "int4",
    "BIGINT": "int8",
    "FLOAT": "float8",
    "BOOLEAN": "bool",
    "BYTEA": "bytea",
    "UUID": "bytea",
    "TIMESTAMP WITH TIME ZONE": "int8",
}
"""By column type: as what psycopg dumps a value. Rows have ids and moments as they are on the wire
(`rows.py`), because making a UUID of an id costs more than all else that is done to its row."""


_SIZES: Final = (500, 100, 10, 1)
"""Rows of a statement on SQLite, as long as there are so many. Only these: the driver keeps its
statements, and each of them the values that it had last."""
_LARGE: Final = 8_192
"""Bytes of an envelope that has a statement to itself, for the same reason."""

Octets = tuple[bytes, ...]


async def read_by_id(
    connection: AsyncConnection,
    table: Table,
    columns: Sequence[str],
    ids: Iterable[str],
    *,
    lock: bool = False,
) -> list[Row]:
    """What a table has of some letters, as the driver reads it: bytes as bytes, a boolean of SQLite
    as a number. The first column is the letter's id, as text. `lock`: until the transaction ends,
    in the order of the ids; SQLite needs no lock, because a writer is alone."""
    first, *others = columns
    raw: Any = (await connection.get_raw_connection()).driver_connection
    if connection.dialect.name == "sqlite":
        query = f"SELECT {', '.join(columns)} FROM {table.name} WHERE {first} {ONE_OF_ON_SQLITE}"  # noqa: S608
        found = await raw.execute_fetchall(query, {"ids": written_on_sqlite(ids)})
        return [(of_octets(row[0]), *row[1:]) for row in found]
    # Not by what is selected under the same name, which is text and sorts by the locale.
    order = f" ORDER BY {table.name}.{first} FOR UPDATE"
    query = (
        f"SELECT {', '.join((f'CAST({first} AS text)', *others))} FROM {table.name}"  # noqa: S608
        f" WHERE {first} {ONE_OF_ON_POSTGRES}{order if lock else ''}"
    )
    async with raw.cursor(binary=True) as cursor:
        await cursor.execute(query, {"ids": written_on_postgres(ids)})
        rows: list[Row] = await cursor.fetchall()
        return rows


async def insert_letters(
    connection: AsyncConnection, letters: Sequence[tuple[Letter, bytes]]
) -> None:
    """Insert letters, each with its digest."""
    rows = letter_rows(letters, sqlite=connection.dialect.name == "sqlite")
    await insert_rows(connection, redrive_letter, LETTER_COLUMNS, rows)


async def insert_envelopes(
    connection: AsyncConnection, envelopes: Iterable[tuple[str, Envelope]]
) -> None:
    """Insert envelopes, each with its letter's id."""
    rows = envelope_rows(envelopes)
    if connection.dialect.name != "sqlite":
        await insert_rows(connection, redrive_envelope, ENVELOPE_COLUMNS, rows)
        return
    large = [row for row in rows if len(row[-1]) + len(row[-2]) > _LARGE]
    small = [row for row in rows if len(row[-1]) + len(row[-2]) <= _LARGE] if large else rows
    raw: Any = (await connection.get_raw_connection()).driver_connection
    await _insert_on_sqlite(raw, redrive_envelope, ENVELOPE_COLUMNS, small)
    await _insert_on_sqlite(raw, redrive_envelope, ENVELOPE_COLUMNS, large, sizes=(1,))


async def insert_many(
    connection: AsyncConnection, table: Table, values: Sequence[dict[str, Any]]
) -> None:
    """Insert rows that all have the same columns. None at all is fine."""
    if values:
        sqlite = connection.dialect.name == "sqlite"
        columns = tuple(values[0])
        rows = driver_rows(table, columns, values, sqlite=sqlite)
        await insert_rows(connection, table, columns, rows)


async def insert_rows(
    connection: AsyncConnection, table: Table, columns: Sequence[str], rows: Sequence[Row]
) -> None:
    """Insert rows that are as the driver takes them."""
    raw: Any = (await connection.get_raw_connection()).driver_connection
    if connection.dialect.name == "sqlite":
        await _insert_on_sqlite(raw, table, columns, rows)
        return
    statement = f"COPY {table.name} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    async with raw.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(_pg_types(table, tuple(columns)))
        for row in rows:
            await copy.write_row(row)


async def insert_new(
    connection: AsyncConnection, table: Table, columns: Sequence[str], rows: Sequence[Octets]
) -> int:
    """Insert the rows whose primary key is not there yet; how many those are. All columns are of
    bytes, or of ids as bytes."""
    if not rows:
        return 0
    raw: Any = (await connection.get_raw_connection()).driver_connection
    if connection.dialect.name == "sqlite":
        return await _insert_on_sqlite(raw, table, columns, rows, "ON CONFLICT DO NOTHING")
    kinds = ["uuid" if isinstance(table.c[name].type, LetterId) else "bytea" for name in columns]
    statement = (
        f"INSERT INTO {table.name} ({', '.join(columns)})"  # noqa: S608
        f" SELECT * FROM unnest({', '.join(f'%s::{kind}[]' for kind in kinds)})"
        " ON CONFLICT DO NOTHING"
    )
    columns_of = zip(*rows, strict=True)
    arrays = [_array(kind, values) for kind, values in zip(kinds, columns_of, strict=True)]
    done = await raw.execute(statement, arrays)
    return int(done.rowcount)


def _array(kind: str, values: Iterable[bytes]) -> str:
    """An array as PostgreSQL writes it: psycopg looks at every item of a list several times."""
    if kind == "uuid":
        return "{" + ",".join([value.hex() for value in values]) + "}"
    return '{"' + '","'.join(["\\\\x" + value.hex() for value in values]) + '"}'


async def _insert_on_sqlite(
    raw: Any,
    table: Table,
    columns: Sequence[str],
    rows: Sequence[Row],
    otherwise: str = "",
    *,
    sizes: Sequence[int] = _SIZES,
) -> int:
    """Insert rows, many by each statement; how many were inserted.

    Between any two statements the driver's thread takes Python's lock and waits for whoever has it:
    with a statement for each row, that took as long as all else.
    """
    inserted = start = 0
    for size in sizes:
        end = len(rows) - (len(rows) - start) % size
        if start < end:
            parts = [
                list(chain.from_iterable(rows[first : first + size]))
                for first in range(start, end, size)
            ]
            statement = _insert(table, tuple(columns), size, otherwise)
            inserted += (await raw.executemany(statement, parts)).rowcount
            start = end
    return inserted


@lru_cache
def _insert(table: Table, columns: tuple[str, ...], rows: int, otherwise: str) -> str:
    row = f"({', '.join('?' * len(columns))})"
    names, values = ", ".join(columns), ", ".join([row] * rows)
    return f"INSERT INTO {table.name} ({names}) VALUES {values} {otherwise}"  # noqa: S608


@lru_cache
def _pg_types(table: Table, columns: tuple[str, ...]) -> list[str]:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    words = [str(table.c[column].type.compile(dialect=dialect)) for column in columns]
    return [_TYPES[word.partition("(")[0]] for word in words]
