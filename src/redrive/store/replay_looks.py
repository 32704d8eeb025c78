"""Looks at replays: what one would take before it is made, and why letters of one were refused.

Nothing here writes or locks. What a look says holds for its moment: a replay decides on each letter
again when it takes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, or_, select

from redrive.domain.filters import Filters, Page
from redrive.domain.letter import Envelope, Letter, Result
from redrive.domain.replay import Destination, Replay, why_not
from redrive.errors import CursorRefused
from redrive.store.details import read_messages, that_fit
from redrive.store.engine import Database
from redrive.store.listed import Listed
from redrive.store.replay_choice import in_doubt_of
from redrive.store.replays import Replays, last_of_replay
from redrive.store.rows import read_letter
from redrive.store.schema import (
    redrive_attempt,
    redrive_letter,
    redrive_replay,
    redrive_replay_letter,
)
from redrive.store.sendings import MOST_BYTES, copied_of

_AT_ONCE: Final = 500
_LISTED_AT_ONCE: Final = 10_000
WALKED: Final = 5_000


@dataclass(frozen=True, slots=True)
class Prospect:
    """A letter that a replay would come to, and why it would leave it out; None if it would not."""

    letter: Letter
    why_not: str | None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where letters failed."""

    queue: str | None
    exchange: str
    routing_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedLetter:
    """One letter of a replay, and what became of it there."""

    id: str
    position: int
    result: Result | None
    """None: it was left out, or was not taken yet."""
    reason: str | None
    at: datetime | None
    letter: Letter | None
    """None: it was deleted since."""


class ReplayLooks:
    """What can be known of replays without touching one."""

    def __init__(self, database: Database, replays: Replays) -> None:
        self._database = database
        self._replays = replays

    async def count(self, vhost: str, filters: Filters, *, limit: int | None) -> int:
        """How many letters a replay would come to."""
        chosen = self._replays.chosen(vhost, filters, limit=limit)
        ids = chosen.with_only_columns(redrive_letter.c.id).subquery()
        async with self._database.reading() as connection:
            query = select(func.count()).select_from(ids)
            return int((await connection.execute(query)).scalar_one())

    async def listed(
        self,
        vhost: str,
        filters: Filters,
        destination_of: Callable[[Origin], Destination | None],
        *,
        limit: int | None,
        ordered: bool,
    ) -> tuple[Listed, Counter[Destination | None]]:
        """The letters that a replay would come to now, in its order, and how many of them would go
        where. What comes to match later is not among them."""
        letter = redrive_letter.c
        place = (letter.queue, letter.exchange, letter.routing_key)
        chosen = self._replays.chosen(vhost, filters, limit=limit, ordered=ordered)
        query = chosen.with_only_columns(letter.id, letter.status, *place)
        listed = Listed(filters)
        going: Counter[Destination | None] = Counter()
        async with self._database.reading() as connection:
            rows = await connection.stream(query)
            async for some in rows.partitions(_LISTED_AT_ONCE):
                for row in some:
                    listed.add(row.id, row.status)
                origins = Counter((row.queue, row.exchange, row.routing_key) for row in some)
                for origin, letters in origins.items():
                    going[destination_of(Origin(*origin))] += letters
        return listed, going

    async def prospects(
        self,
        vhost: str,
        filters: Filters,
        *,
        limit: int | None,
        ordered: bool,
        doubtful: bool,
    ) -> AsyncIterator[list[Prospect]]:
        """The letters that a replay would come to, some at a time, in its order."""
        query = self._replays.chosen(vhost, filters, limit=limit, ordered=ordered)
        async with self._database.reading() as connection:
            rows = await connection.stream(query)
            async for some in rows.mappings().partitions(_AT_ONCE):
                letters = [read_letter(row) for row in some]
                copied = await copied_of(connection, [letter.id for letter in letters])
                in_doubt = await in_doubt_of(connection, letters)
                yield [
                    Prospect(
                        letter,
                        why_not(
                            letter,
                            in_doubt=letter.id in in_doubt,
                            has_copy=letter.id in copied,
                            doubtful=doubtful,
                        ),
                    )
                    for letter in letters
                ]

    async def messages(self, letters: Sequence[Letter]) -> AsyncIterator[Collection[Envelope]]:
        """What would be sent of letters, as many at a time as 16 MiB hold, but one at least. Of
        those that were deleted meanwhile there is nothing."""
        left = {letter.id: letter for letter in letters}
        while left:
            async with self._database.reading() as connection:
                ids = await that_fit(connection, list(left), MOST_BYTES)
                messages = await read_messages(connection, [left.pop(id_) for id_ in ids])
            yield messages.values()

    async def ids_beginning(self, prefix: str, limit: int = 10) -> list[str]:
        """The ids of replays that begin so, oldest first; none if it is no beginning of an id."""
        digits = prefix.replace("-", "").lower()
        if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
            return []
        low, high = (str(UUID(digits.ljust(32, filler))) for filler in "0f")
        column = redrive_replay.c.id
        query = select(column).where(column >= low, column <= high).order_by(column).limit(limit)
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def refusals(self, replay_id: str) -> Counter[str]:
        """Why letters of a replay were refused, and how many for each reason."""
        attempt, item = redrive_attempt.c, redrive_replay_letter.c
        query = (
            select(attempt.reason, func.count())
            .join(redrive_replay_letter, item.letter_id == attempt.letter_id)
            .where(
                item.replay_id == replay_id,
                *last_of_replay(replay_id),
                attempt.result == Result.REFUSED.value,
            )
            .group_by(attempt.reason)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return Counter({reason or "": int(number) for reason, number in rows})

    async def letters(
        self,
        replay: Replay,
        results: Collection[Result],
        *,
        left_out: bool,
        limit: int,
        after: str | None = None,
    ) -> Page[ReplayedLetter]:
        """Letters of a replay with one of these results; also those that it left out.

        However long the job is, a page looks at `WALKED` of its letters at most, in its order: no
        index knows results, for every sending would have to write to it. So a page may be short, or
        empty, and name a next one all the same.
        """
        attempt, item = redrive_attempt.c, redrive_replay_letter.c
        begin = read_position(after)
        last_position = replay.letters - 1
        end = min(begin + WALKED, last_position)
        begun: list[ColumnElement[bool]] = [attempt.result.in_([each.value for each in results])]
        if left_out:  # it has been there: a job that stopped goes back, and what was sent is behind
            begun.append(and_(attempt.result.is_(None), item.position < replay.position))
        last = and_(attempt.letter_id == item.letter_id, *last_of_replay(replay.id))
        query = (
            select(item.letter_id, item.position, attempt.result, attempt.reason, attempt.at)
            .select_from(redrive_replay_letter.outerjoin(redrive_attempt, last))
            .where(item.replay_id == replay.id, item.position.between(begin + 1, end), or_(*begun))
            .order_by(item.position)
            .limit(limit + 1)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
            ids = [row.letter_id for row in rows]
            found = await connection.execute(
                select(redrive_letter).where(redrive_letter.c.id.in_(ids))
            )
            letters = {row["id"]: read_letter(row) for row in found.mappings()}
        items = tuple(
            ReplayedLetter(
                id=row.letter_id,
                position=row.position,
                result=None if row.result is None else Result(row.result),
                reason=row.reason,
                at=row.at,
                letter=letters.get(row.letter_id),
            )
            for row in rows[:limit]
        )
        if len(rows) > limit:
            return Page(items, str(items[-1].position))
        return Page(items, str(end) if end < last_position else None)


def read_position(text: str | None) -> int:
    """Where the page before ended; before the first without one."""
    if text is None:
        return -1
    if not (text.isascii() and text.isdecimal() and int(text) < 2**31):
        raise CursorRefused(f"{text!r} is not where a page ends")
    return int(text)
