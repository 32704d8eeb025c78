"""The database's clock: one time for all processes, whatever their own clocks say.

SQLite's clock is that of its one machine.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection


class DatabaseClock:
    """Tells the time of a database, to the millisecond, as letters note it."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)
        """Added to what the database says. Whoever wants to know what will be in an hour, as tests
        do, sets it."""

    async def now(self, connection: AsyncConnection) -> datetime:
        if connection.dialect.name == "sqlite":
            now = datetime.now(UTC)
        else:
            now = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
            now = now.astimezone(UTC)
        return now.replace(microsecond=now.microsecond // 1000 * 1000) + self.ahead
