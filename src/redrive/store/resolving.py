"""Letters are resolved while a replay lists them: what its list did not see is known by its time.

Times are noted before transactions end: a letter could be resolved at a time before that of a
replay, and become so only after it was listed, as one that is to be sent. So whoever may resolve
letters says so before it looks at the clock. A replay notes its time, waits for those, and then
lists: what it does not see resolved is resolved by one that begins later, and notes a later time.

Nobody waits while letters are listed. On SQLite a writer is alone.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.errors import StoreError
from redrive.store.clock import DatabaseClock
from redrive.store.engine import Database

# Any number will do, as long as every Redrive takes the same: "resolve" in ASCII.
_RESOLVING: Final = int.from_bytes(b"resolve")
_TURN: Final = 3_000
"""Milliseconds that somebody waits for the lock at a time."""
_TURNS: Final = 5
_BETWEEN: Final = 0.5
_LOCK_NOT_AVAILABLE: Final = "55P03"


async def begin_resolving(connection: AsyncConnection, clock: DatabaseClock) -> datetime:
    """The time, for a transaction that may resolve letters and has locked none yet; told by the
    query that says so."""
    if connection.dialect.name == "sqlite":
        return await clock.now(connection)
    query = select(func.pg_advisory_xact_lock_shared(_RESOLVING), clock.reading)
    return clock.read((await connection.execute(query)).one()[1])


async def await_resolving(database: Database, clock: DatabaseClock) -> datetime:
    """The time, once what was being resolved then is there to be seen.

    Whoever waits here holds up those who resolve later. So it is in short turns: a process that was
    stopped amid its transaction, and that nobody can wait for, costs the others a moment each, and
    who orders a replay hears of it."""
    for _ in range(_TURNS):
        async with database.writing() as connection:
            now = await clock.now(connection)
            if database.is_sqlite or await _have_resolved(connection):
                return now
        await asyncio.sleep(_BETWEEN)
    raise StoreError(
        f"{database.shown}: a process has begun to resolve letters, and does not come to an end",
        remedy="try again; if it stays so, find it: in pg_stat_activity it is idle in transaction",
    )


async def _have_resolved(connection: AsyncConnection) -> bool:
    try:
        async with connection.begin_nested():
            await connection.execute(text(f"SET LOCAL lock_timeout = {_TURN}"))
            await connection.execute(select(func.pg_advisory_xact_lock(_RESOLVING)))
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        return False
    return True
