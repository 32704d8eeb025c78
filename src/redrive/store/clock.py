"""The database's clock: one time for all processes, whatever their own clocks say.

SQLite's clock is that of its one machine.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection


class DatabaseClock:
    """Tells the time of a database, to the millisecond, as letters note it."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)
        """Added to what the database says. Whoever wants to know what will be in an hour, as tests
        do, sets it."""

    reading: Final = func.clock_timestamp()
    """What PostgreSQL is asked for, for `read`; also as a part of another query."""

    async def now(self, connection: AsyncConnection) -> datetime:
        if connection.dialect.name == "sqlite":
            return self.read(datetime.now(UTC))
        return self.read((await connection.execute(select(self.reading))).scalar_one())

    def read(self, now: datetime) -> datetime:
        """The time, of what a clock says."""
        whole = now.replace(microsecond=now.microsecond // 1000 * 1000)
        return whole.astimezone(UTC) + self.ahead
