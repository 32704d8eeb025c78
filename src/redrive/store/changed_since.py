"""What has changed since somebody looked: for live pages, whatever process made the change.

Nothing is written for it. Each look reads the ends of tables that only grow, by their keys, and the
sums of the books. Numbers of rows are given before they are committed, so a row may appear behind
one that was already seen: who looks again looks a little behind what was seen (see the ADR).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import func, select

from redrive.domain.replay import Replay
from redrive.store.engine import Database
from redrive.store.replays import read_replay
from redrive.store.schema import redrive_history, redrive_letter, redrive_replay

_HISTORY: Final = redrive_history.c
_REPLAY: Final = redrive_replay.c
_REPLAYS: Final = 50
"""The newest jobs, which are looked at; an older one that still runs is seen when it is opened."""


@dataclass(frozen=True, slots=True)
class Step:
    """One row of a history: a letter changed."""

    number: int
    letter_id: str


class ChangedSince:
    """Looks at what grew."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def newest_step(self) -> int:
        """The number of the newest row of all histories; 0 if there is none."""
        async with self._database.reading() as connection:
            found = await connection.execute(select(func.max(_HISTORY.id)))
            return int(found.scalar_one() or 0)

    async def steps(self, after: int, limit: int) -> list[Step]:
        """The newest `limit` rows of histories with higher numbers, oldest first."""
        query = (
            select(_HISTORY.id, _HISTORY.letter_id)
            .where(_HISTORY.id > after)
            .order_by(_HISTORY.id.desc())
            .limit(limit)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [Step(row.id, row.letter_id) for row in reversed(rows)]

    async def newest_letter(self) -> str | None:
        """The id of the letter that came last."""
        query = select(redrive_letter.c.id).order_by(redrive_letter.c.id.desc()).limit(1)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalar_one_or_none()

    async def replays(self, since: datetime | None) -> list[Replay]:
        """Of the newest jobs, those that changed at this moment or later."""
        query = select(redrive_replay).order_by(_REPLAY.id.desc()).limit(_REPLAYS)
        async with self._database.reading() as connection:
            found = [read_replay(row) for row in (await connection.execute(query)).mappings()]
        return [each for each in found if since is None or each.updated_at >= since]
