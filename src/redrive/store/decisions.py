"""What people decide on letters: discard, archive, restore, resolve.

Guarantees: the lifecycle says what a letter may become. One that may not, is gone, or does not
match any more by the time it is locked, is left as it is and named with the reason. Each letter is
changed whole: its row, its history and the books. Many letters are listed at one moment, with their
states, and go in chunks, a transaction each, so that nobody waits long for a lock: what comes to
match meanwhile is not touched. What was decided before a crash stays decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Select, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain import metrics
from redrive.domain.filters import Filters
from redrive.domain.letter import Letter, Resolution, Result
from redrive.domain.lifecycle import State, require
from redrive.domain.verdict import OUTSTANDING
from redrive.errors import CountChanged, TransitionRefused
from redrive.store.changing import UNLOCKED, Changes, by_generation, chunks, lock_letters
from redrive.store.clock import DatabaseClock
from redrive.store.counts import add_counts
from redrive.store.details import last_sendings
from redrive.store.engine import Database
from redrive.store.id_lists import is_one_of
from redrive.store.listed import Listed, Still
from redrive.store.resolving import begin_resolving
from redrive.store.schema import redrive_attempt, redrive_letter
from redrive.store.selecting import choose

_LETTER: Final = redrive_letter.c
_ATTEMPT: Final = redrive_attempt.c
_AT_ONCE: Final = 10_000
_VALUES: Final[dict[State, dict[str, Any]]] = {
    State.ARCHIVED: {},
    State.MANUAL: {"strategy": "manual"},
    State.RESOLVED: {
        "resolution": Resolution.OPERATOR.value,
        "verdict_due_at": None,
        **UNLOCKED,
    },
}
"""By the state that is decided on: what else a letter has then."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a decision: the letters that changed, and why each of the others did not."""

    changed: tuple[str, ...]
    unchanged: tuple[tuple[str, str], ...]
    """Ids with reasons."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    after: State
    what: str
    reason: str
    only_from: State | None = None
    """Where the lifecycle allows more than the word means."""

    @property
    def why(self) -> str:
        return f"{self.what}: {self.reason}" if self.reason else self.what


class Decisions:
    """People's decisions on the letters of a store."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    # On letters by their ids

    async def discard(
        self, ids: Sequence[str], actor: str, reason: str = "", *, still: Still | None = None
    ) -> Decided:
        """Archive letters that are of no use to anybody. `still`: only if that holds."""
        return await self._decide(ids, actor, still, _Wanted(State.ARCHIVED, "discarded", reason))

    async def archive(
        self, ids: Sequence[str], actor: str, reason: str = "", *, still: Still | None = None
    ) -> Decided:
        """Put letters away; they can be restored."""
        return await self._decide(ids, actor, still, _Wanted(State.ARCHIVED, "archived", reason))

    async def restore(
        self, ids: Sequence[str], actor: str, reason: str = "", *, still: Still | None = None
    ) -> Decided:
        """Bring archived letters back, for a person to decide on."""
        wanted = _Wanted(State.MANUAL, "restored", reason, only_from=State.ARCHIVED)
        return await self._decide(ids, actor, still, wanted)

    async def resolve(
        self, ids: Sequence[str], actor: str, reason: str = "", *, still: Still | None = None
    ) -> Decided:
        """A person's word that letters were consumed; their last sending is settled by it."""
        wanted = _Wanted(State.RESOLVED, "resolved by a person", reason)
        return await self._decide(ids, actor, still, wanted)

    async def _decide(
        self, ids: Sequence[str], actor: str, still: Still | None, wanted: _Wanted
    ) -> Decided:
        changed: list[str] = []
        unchanged: list[tuple[str, str]] = []
        for some in chunks(list(dict.fromkeys(ids))):
            async with self._database.writing() as connection:
                now = await begin_resolving(connection, self._clock)
                letters, unfit = _sort(some, await lock_letters(connection, some), wanted)
                if still is not None:
                    letters, gone = await self._still(connection, letters, still)
                    unfit += gone
                changes = Changes(connection, now, actor)
                for letter in letters:
                    changes.become(letter, wanted.after, wanted.why, **_VALUES[wanted.after])
                await changes.flush()
                if wanted.after is State.RESOLVED:
                    await _settle_as_resolved(connection, letters)
            changed += [letter.id for letter in letters]
            unchanged += unfit
        return Decided(tuple(changed), tuple(unchanged))

    async def _still(
        self, connection: AsyncConnection, letters: Sequence[Letter], still: Still
    ) -> tuple[list[Letter], list[tuple[str, str]]]:
        ids = [letter.id for letter in letters]
        query = self._matching(still.filters).where(is_one_of(connection, _LETTER.id, ids))
        found = set((await connection.execute(query)).scalars())
        same: list[Letter] = []
        changed: list[tuple[str, str]] = []
        for letter in letters:
            was = still.states[letter.id]
            if letter.id not in found:
                changed.append((letter.id, "it does not match any more: it changed meanwhile"))
            elif letter.status is not was:
                changed.append((letter.id, f"it changed meanwhile: it was {was.word}"))
            else:
                same.append(letter)
        return same, changed

    # On whatever matches

    async def count(self, filters: Filters, limit: int | None = None) -> int:
        """How many letters match, up to a limit."""
        query = self._matching(filters)
        if limit is not None:
            query = query.limit(limit)
        async with self._database.reading() as connection:
            found = await connection.execute(select(func.count()).select_from(query.subquery()))
            count: int = found.scalar_one()
        return count

    async def listed(
        self, filters: Filters, limit: int | None = None, *, expected: int | None = None
    ) -> Listed:
        """The letters that match now, newest first, up to a limit; `CountChanged` if they are not
        as many as expected. What comes to match later is not among them."""
        if expected is not None:
            # To count is quick: whoever has the wrong number hears it before a list is made.
            _require_count(expected, await self.count(filters, limit))
        query = choose(
            _LETTER.id, _LETTER.status, filters=filters, sqlite=self._database.is_sqlite
        ).order_by(_LETTER.id.desc())
        if limit is not None:
            query = query.limit(limit)
        listed = Listed(filters)
        async with self._database.reading() as connection:
            rows = await connection.stream(query)
            async for some in rows.partitions(_AT_ONCE):
                for letter_id, status in some:
                    listed.add(letter_id, status)
        if expected is not None:
            _require_count(expected, len(listed))
        return listed

    def _matching(self, filters: Filters) -> Select[Any]:
        return choose(_LETTER.id, filters=filters, sqlite=self._database.is_sqlite)


def _require_count(expected: int, found: int) -> None:
    if found != expected:
        raise CountChanged(expected, found)


def _sort(
    ids: Sequence[str], locked: dict[str, Letter], wanted: _Wanted
) -> tuple[list[Letter], list[tuple[str, str]]]:
    """The letters that may become so, and why the others may not."""
    fit: list[Letter] = []
    unfit: list[tuple[str, str]] = []
    for id_ in ids:
        letter = locked.get(id_)
        if letter is None:
            unfit.append((id_, "there is no such letter, or no longer"))
        elif (reason := _objection(letter.status, wanted)) is not None:
            unfit.append((id_, reason))
        else:
            fit.append(letter)
    return fit, unfit


def _objection(now: State, wanted: _Wanted) -> str | None:
    if wanted.only_from is not None and now is not wanted.only_from:
        return f"it is {now.word}, not {wanted.only_from.word}"
    try:
        require(now, wanted.after)
    except TransitionRefused as refused:
        return f"{refused}; {refused.remedy}"
    return None


async def _settle_as_resolved(connection: AsyncConnection, letters: Sequence[Letter]) -> None:
    """The newest sending of each that was not refused, unless something has settled it already."""
    last = await last_sendings(connection, [each.id for each in letters if each.generation])
    for generation, ids in by_generation((id_, each.generation) for id_, each in last.items()):
        done = await connection.execute(
            update(redrive_attempt)
            .where(
                is_one_of(connection, _ATTEMPT.letter_id, ids),
                _ATTEMPT.generation == generation,
                _ATTEMPT.result.in_([each.value for each in OUTSTANDING]),
            )
            .values(result=Result.RESOLVED.value)
        )
        await add_counts(
            connection, {(metrics.ATTEMPTS.name, Result.RESOLVED.value): done.rowcount}
        )
