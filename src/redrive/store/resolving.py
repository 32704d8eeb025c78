"""Letters are resolved while a replay lists them: what its list did not see is known by its time.

Times are noted before transactions end: a letter could be resolved at a time before that of a
replay, and become so only after it was listed, as one that is to be sent. So whoever may resolve
letters says so before it looks at the clock. A replay notes its time, waits for those, and then
lists: what it does not see resolved is resolved by one that begins later, and notes a later time.

Nobody waits while letters are listed. On SQLite a writer is alone.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.store.clock import DatabaseClock
from redrive.store.engine import Database

# Any number will do, as long as every Redrive takes the same: "resolve" in ASCII.
_RESOLVING: Final = int.from_bytes(b"resolve")


async def begin_resolving(connection: AsyncConnection, clock: DatabaseClock) -> datetime:
    """The time, for a transaction that may resolve letters and has locked none yet; told by the
    query that says so."""
    if connection.dialect.name == "sqlite":
        return await clock.now(connection)
    query = select(func.pg_advisory_xact_lock_shared(_RESOLVING), clock.reading)
    return clock.read((await connection.execute(query)).one()[1])


async def await_resolving(database: Database, clock: DatabaseClock) -> datetime:
    """The time, once what was being resolved then is there to be seen."""
    async with database.writing() as connection:
        now = await clock.now(connection)
        if not database.is_sqlite:
            await connection.execute(select(func.pg_advisory_xact_lock(_RESOLVING)))
    return now
