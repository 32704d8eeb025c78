"""Letters over time: how many arrived and how many were resolved, bucket by bucket.

Each bucket is a stretch of an index and is counted there, without the rows: arrivals by the id,
which holds its time, resolutions by an index of their own. Counted is what is still in the store:
what retention has removed is in no bucket any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from sqlalchemy import ColumnElement, func, literal_column, select, text, union_all

from redrive.domain.filters import Bucket, Distribution
from redrive.domain.ids import first_id
from redrive.domain.lifecycle import OPEN_STATES, State
from redrive.store.clock import DatabaseClock
from redrive.store.engine import Database
from redrive.store.schema import (
    RESOLVED_ONLY,
    redrive_group,
    redrive_history,
    redrive_ledger,
    redrive_letter,
)

_LETTER: Final = redrive_letter.c
_HISTORY: Final = redrive_history.c
_LATEST: Final = 500
"""Resolutions that the time to resolve is told from."""
_MOST_NAMES: Final = 20


@dataclass(frozen=True, slots=True)
class Ages:
    """How long letters wait: the oldest of each state since when, resolved ones how long."""

    oldest: dict[State, datetime]
    waited: list[timedelta]
    """Of the letters that were resolved last, from their arrival on."""


class Series:
    """What the store can tell of times and numbers."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def arrivals(self, edges: Sequence[datetime], group: str | None = None) -> list[int]:
        """Letters made between each edge and the next; of one group, if one is named."""
        ids = [first_id(edge) for edge in edges]
        of_group = () if group is None else (_LETTER.fingerprint == group,)
        counts: list[Any] = [
            select(literal_column(str(number)).label("bucket"), func.count().label("letters"))
            .select_from(redrive_letter)
            .where(*of_group, _LETTER.id >= first, _LETTER.id < last)
            for number, (first, last) in enumerate(pairwise(ids))
        ]
        return await self._counted(counts)

    async def resolutions(self, edges: Sequence[datetime]) -> list[int]:
        """Letters that became resolved between each edge and the next."""
        counts: list[Any] = [
            select(literal_column(str(number)).label("bucket"), func.count().label("letters"))
            .select_from(redrive_history)
            .where(text(RESOLVED_ONLY), _HISTORY.at >= first, _HISTORY.at < last)
            for number, (first, last) in enumerate(pairwise(edges))
        ]
        return await self._counted(counts)

    async def _counted(self, counts: Sequence[Any]) -> list[int]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(union_all(*counts))).all()
        found = {int(bucket): int(letters) for bucket, letters in rows}
        return [found[number] for number in range(len(counts))]

    async def now(self) -> datetime:
        async with self._database.reading() as connection:
            return await self._clock.now(connection)

    async def ages(self) -> Ages:
        """How long letters wait."""
        oldest: dict[State, datetime] = {}
        async with self._database.reading() as connection:
            for state in State:
                query = (
                    select(_LETTER.created_at)
                    .where(_LETTER.status == state.value)
                    .order_by(_LETTER.id)
                    .limit(1)
                )
                found = (await connection.execute(query)).scalar_one_or_none()
                if found is not None:
                    oldest[state] = found
            latest = (
                select(_HISTORY.letter_id, _HISTORY.at)
                .where(text(RESOLVED_ONLY))
                .order_by(_HISTORY.at.desc())
                .limit(_LATEST)
                .subquery()
            )
            rows = await connection.execute(
                select(_LETTER.created_at, latest.c.at).join(
                    redrive_letter, _LETTER.id == latest.c.letter_id
                )
            )
            waited = [at - created for created, at in rows]
        return Ages(oldest, sorted(waited))

    async def distribution(self) -> Distribution:
        """Open letters by error type and by queue, from the books: the most frequent first."""
        return Distribution(
            error_types=await self._by(redrive_group.c.error_type),
            queues=await self._by(redrive_group.c.queue),
        )

    async def _by(self, column: ColumnElement[Any]) -> list[Bucket]:
        ledger = redrive_ledger.c
        open_ = [state.value for state in OPEN_STATES]
        letters = func.sum(ledger.delta)
        query = (
            select(column, letters)
            .select_from(redrive_ledger)
            .join(redrive_group, redrive_group.c.fingerprint == ledger.fingerprint)
            .where(ledger.account.in_(open_))
            .group_by(column)
            .having(letters > 0)
            .order_by(letters.desc(), column)
            .limit(_MOST_NAMES)
        )
        async with self._database.reading() as connection:
            return [Bucket(name, int(number)) for name, number in await connection.execute(query)]
