"""The letters of a job, as it lists them when it is made: those that match by then, or those that
were listed before, such as for a question, and match yet.

Positions go from zero without a gap, because a job counts by them how far it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Select, func, insert, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.filters import Filters
from redrive.domain.lifecycle import State
from redrive.store.id_lists import is_one_of
from redrive.store.listed import Listed
from redrive.store.schema import redrive_letter, redrive_replay_letter

_LETTER: Final = redrive_letter.c
_AT_ONCE: Final = 10_000


async def list_matching(
    connection: AsyncConnection, replay_id: str, chosen: Select[Any], *, ordered: bool
) -> int:
    """List what is chosen; how many letters that is."""
    return await _append(
        connection, replay_id, 0, chosen, order_of(redrive_letter, ordered=ordered)
    )


async def list_listed(
    connection: AsyncConnection,
    replay_id: str,
    listed: Listed,
    choose: Callable[[Filters], Select[Any]],
    *,
    ordered: bool,
) -> int:
    """List what was listed, in that order, as far as it matches yet; how many letters that is."""
    one = redrive_letter.alias("one")
    letters = 0
    for some in listed.chunks(_AT_ONCE):
        # Each letter is found by its id, and looked at by itself: SQLite would go by an index of
        # what the filters name, through all letters of a queue for each part of the list.
        # What somebody named matches in any state; but what was resolved since is done.
        resolved = [id_ for id_, state in some.states.items() if state is State.RESOLVED]
        matches = choose(some.filters).where(_LETTER.id == one.c.id)
        still = select(one).where(
            is_one_of(connection, one.c.id, list(some.states)),
            or_(one.c.status != State.RESOLVED.value, is_one_of(connection, one.c.id, resolved)),
            matches.with_only_columns(_LETTER.id).order_by(None).exists(),
        )
        letters += await _append(
            connection, replay_id, letters, still, order_of(one, ordered=ordered)
        )
    return letters


def order_of(letter: FromClause, *, ordered: bool) -> tuple[ColumnElement[Any], ...]:
    """By what a job goes: its letters' first failures where they keep an order, else their ids."""
    return (letter.c.first_failed_at, letter.c.id) if ordered else (letter.c.id,)


async def _append(
    connection: AsyncConnection,
    replay_id: str,
    position: int,
    chosen: Select[Any],
    order: tuple[ColumnElement[Any], ...],
) -> int:
    item = redrive_replay_letter.c
    # Limited first: numbered beside the limit, all that match would be, however few are wanted.
    some = chosen.with_only_columns(*order).subquery()
    place = list(some.c)
    numbered = select(
        literal(replay_id, item.replay_id.type),
        func.row_number().over(order_by=place) - 1 + position,
        place[-1],
    )
    into = insert(redrive_replay_letter).from_select(
        [item.replay_id, item.position, item.letter_id], numbered
    )
    # Without being asked to, SQLAlchemy forgets how many rows were inserted on PostgreSQL.
    done = await connection.execute(into.execution_options(preserve_rowcount=True))
    return done.rowcount
