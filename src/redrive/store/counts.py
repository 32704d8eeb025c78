"""Counts that only grow: of every process, of all time.

Each count is a row of its own, written with the change that it counts or, by a process, for what it
counted in memory; a count is the sum of its rows. So writers never wait for each other, and a
process that ends takes nothing with it but what it had not written yet. `compact` sums rows up.

A process also says that it is there, and how things stand with it (`beat`); one that was not heard
of for a while is gone. Its row names the last batch of counts that it wrote, in the transaction
that wrote them: one that is written again, because the answer to the commit was lost, counts once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.store.bulk import insert_many
from redrive.store.clock import DatabaseClock
from redrive.store.engine import Database
from redrive.store.schema import redrive_count, redrive_process

_COUNT: Final = redrive_count.c
_PROCESS: Final = redrive_process.c
ALIVE: Final = timedelta(seconds=45)
"""A process that was not heard of for longer is gone."""
_FORGOTTEN: Final = timedelta(hours=1)
_BATCH: Final = "batch"
"""Among the levels of a process, which all have names of metrics: its last batch."""


@dataclass(frozen=True, slots=True)
class ProcessOf:
    """A process that is there: its roles, and how things stand with it."""

    roles: tuple[str, ...]
    levels: dict[str, int]


@dataclass(frozen=True, slots=True)
class Batch:
    """What a process counted for a while; the same batch may be written again."""

    id: int
    counts: Mapping[tuple[str, str], int]


async def add_counts(connection: AsyncConnection, counts: Mapping[tuple[str, str], int]) -> None:
    """Append counts, by metric and label, in the transaction of what they count."""
    rows = [
        {"name": name, "label": label, "delta": delta}
        for (name, label), delta in counts.items()
        if delta
    ]
    await insert_many(connection, redrive_count, rows)


async def sum_counts(connection: AsyncConnection) -> dict[str, dict[str, int]]:
    """All counts, by metric and label."""
    query = select(_COUNT.name, _COUNT.label, func.sum(_COUNT.delta)).group_by(
        _COUNT.name, _COUNT.label
    )
    found: dict[str, dict[str, int]] = {}
    for name, label, number in (await connection.execute(query)).all():
        found.setdefault(name, {})[label] = int(number)
    return found


async def read_processes(connection: AsyncConnection, now: datetime) -> list[ProcessOf]:
    """The processes that are there."""
    query = select(_PROCESS.roles, _PROCESS.levels).where(_PROCESS.seen_at > now - ALIVE)
    rows = (await connection.execute(query)).all()
    return [ProcessOf(tuple(roles.split(",")), json.loads(levels)) for roles, levels in rows]


class Counts:
    """The counts of the store."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, counts: Mapping[tuple[str, str], int]) -> None:
        """So many more."""
        if any(counts.values()):
            async with self._database.writing() as connection:
                await add_counts(connection, counts)

    async def beat(
        self,
        process: str,
        roles: Collection[str],
        levels: Mapping[str, int],
        batch: Batch,
    ) -> None:
        """A process is there; with what it has counted since it last said so."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            dialect: Any = sqlite if self._database.is_sqlite else postgresql
            row = {
                "id": process,
                "roles": ",".join(sorted(roles)),
                "levels": "{}",
                "started_at": now,
                "seen_at": now,
            }
            insert = dialect.insert(redrive_process).values(row)
            # This waits for an earlier transaction of the process whose answer was lost.
            await connection.execute(
                insert.on_conflict_do_update(index_elements=["id"], set_={"seen_at": now})
            )
            here = _PROCESS.id == process
            before = (await connection.execute(select(_PROCESS.levels).where(here))).scalar_one()
            if json.loads(before).get(_BATCH) != batch.id:
                await add_counts(connection, batch.counts)
            shown = json.dumps({**levels, _BATCH: batch.id})
            await connection.execute(update(redrive_process).where(here).values(levels=shown))

    async def leave(self, process: str, counts: Mapping[tuple[str, str], int]) -> None:
        """A process ends, with the last of what it has counted."""
        async with self._database.writing() as connection:
            await connection.execute(delete(redrive_process).where(_PROCESS.id == process))
            await add_counts(connection, counts)

    async def sums(self) -> dict[str, dict[str, int]]:
        """All counts, by metric and label."""
        async with self._database.reading() as connection:
            return await sum_counts(connection)

    async def total(self, name: str) -> int:
        """One count, whatever its labels."""
        query = select(func.sum(_COUNT.delta)).where(_COUNT.name == name)
        async with self._database.reading() as connection:
            return int((await connection.execute(query)).scalar_one() or 0)

    async def compact(self) -> int:
        """Sum up the rows of each count, and forget processes; how many rows there were."""
        async with self._database.writing() as connection:
            gone_by = await self._clock.now(connection) - _FORGOTTEN
            await connection.execute(delete(redrive_process).where(_PROCESS.seen_at < gone_by))
            if self._database.is_sqlite:
                return await _compact_alone(connection)
            return int((await connection.execute(text(_COMPACT))).scalar_one())


# As the books are summed up: see books.py.
_COMPACT: Final = """
WITH gone AS (
    DELETE FROM redrive_count WHERE id IN (
        SELECT id FROM redrive_count WHERE (name, label) IN (
            SELECT name, label FROM redrive_count GROUP BY name, label HAVING count(*) > 1
        ) ORDER BY id FOR UPDATE SKIP LOCKED
    ) RETURNING name, label, delta
), summed AS (
    INSERT INTO redrive_count (name, label, delta)
    SELECT name, label, sum(delta) FROM gone GROUP BY name, label
)
SELECT count(*) FROM gone
"""


async def _compact_alone(connection: AsyncConnection) -> int:
    """On SQLite, where a writer is alone."""
    rows = (await connection.execute(select(func.count()).select_from(redrive_count))).scalar_one()
    sums = await sum_counts(connection)
    totals: Counter[tuple[str, str]] = Counter(
        {(name, label): number for name, of in sums.items() for label, number in of.items()}
    )
    if rows == len(totals):
        return 0
    gone = await connection.execute(delete(redrive_count))
    await add_counts(connection, totals)
    return gone.rowcount
