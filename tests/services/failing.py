"""A store that really fails: one kind of statement on one table does not work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from sqlalchemy import text

from redrive.store.engine import Database, open_database


@asynccontextmanager
async def failing(url: str, what: Literal["INSERT", "UPDATE"], table: str) -> AsyncIterator[None]:
    """A store in which this fails meanwhile: a trigger writes to a table that is not there."""
    database = open_database(url, ours=False)
    made = f"CREATE TRIGGER failing BEFORE {what} ON {table} FOR EACH ROW"
    if database.is_sqlite:
        await _run(database, f"{made} BEGIN INSERT INTO not_there VALUES (1); END")
    else:
        body = "BEGIN INSERT INTO not_there VALUES (1); RETURN NEW; END"
        await _run(
            database,
            f"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS '{body}'",
            f"{made} EXECUTE FUNCTION fail()",
        )
    try:
        yield
    finally:
        on = "" if database.is_sqlite else f" ON {table}"
        gone = [f"DROP TRIGGER failing{on}"]
        await _run(database, *gone, *([] if database.is_sqlite else ["DROP FUNCTION fail"]))
        await database.close()


async def _run(database: Database, *statements: str) -> None:
    async with database.writing() as connection:
        for each in statements:
            await connection.execute(text(each))
