"""Verdicts on letters that were sent: leases that end, receipts, silence.

What is to be changed is found by a query that only reads: there may be a million letters without a
verdict, and nobody waits while they are looked through. Then it is locked, some at a time, and
looked at again: a return may settle a letter at any moment, and counts for more than silence.

There is no index on locks and deadlines: they change when a sending is recorded, which would then
have to write to every index of the letters instead of none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, case, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain import metrics
from redrive.domain.letter import Attempt, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.verdict import Receipt, Verdict, on_receipt
from redrive.store.breakers import note_successes
from redrive.store.changing import UNLOCKED, Changes, by_generation, lock_letters
from redrive.store.clock import DatabaseClock
from redrive.store.counts import add_counts
from redrive.store.details import last_sendings
from redrive.store.engine import Database
from redrive.store.id_lists import is_one_of
from redrive.store.resolving import begin_resolving
from redrive.store.rows import read_attempt, read_letter
from redrive.store.schema import redrive_attempt, redrive_letter

_LETTER: Final = redrive_letter.c
_ATTEMPT: Final = redrive_attempt.c
_NEWEST: Final = (_ATTEMPT.letter_id == _LETTER.id) & (_ATTEMPT.generation == _LETTER.generation)
_AT_ONCE: Final = 500
_LISTED: Final = 20 * _AT_ONCE
"""Ids that are found by one look."""

Key = tuple[str, int]
"""A letter's id and the generation of a sending."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A letter that has its verdict: as it is now, and what it was before."""

    letter: Letter
    before: State
    reason: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is to do about letters without a verdict."""

    leases: bool
    """Whether leases have ended."""
    awaited: bool
    """Whether there may be letters whose silence does not count yet."""
    silent: bool
    """Whether the silence of letters has lasted long enough."""


class Verdicts:
    """What became of letters that were sent."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def now(self) -> datetime:
        """The database's time."""
        async with self._database.reading() as connection:
            return await self._clock.now(connection)

    async def survey(self, vhost: str, lease: timedelta) -> Survey:
        """Look once through all letters without a verdict, however few need something. It takes the
        longer the more they are: whoever asks again and again should rest accordingly."""
        ours = _LETTER.vhost == vhost
        clock_stands = _LETTER.locked_by.is_(None) & _LETTER.verdict_due_at.is_(None)
        query = select(
            func.min(_LETTER.locked_at),
            func.max(case((ours & clock_stands, 1), else_=0)),
            func.min(case((ours & _LETTER.locked_by.is_(None), _LETTER.verdict_due_at))),
        ).where(_LETTER.status == State.PROCESSING.value)
        async with self._database.reading() as connection:
            now = await self._clock.now(connection)
            locked_at, awaited, due_at = (await connection.execute(query)).one()
        return Survey(
            leases=locked_at is not None and locked_at <= now - lease,
            awaited=bool(awaited),
            silent=due_at is not None and due_at <= now,
        )

    # Leases

    async def end_leases(self, lease: timedelta, *, verdict_after: timedelta) -> int:
        """Sendings whose sender was not heard of for a lease are in doubt; how many."""
        async with self._database.reading() as connection:
            now = await self._clock.now(connection)
        ended = 0
        over = select(_LETTER.id).where(
            _LETTER.status == State.PROCESSING.value, _LETTER.locked_at <= now - lease
        )
        async for ids in self._found(over):
            ended += await self._end_some_leases(ids, lease, verdict_after)
        return ended

    async def _end_some_leases(
        self, ids: Sequence[str], lease: timedelta, verdict_after: timedelta
    ) -> int:
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            query = (
                select(redrive_letter)
                .where(
                    is_one_of(connection, _LETTER.id, ids),
                    _LETTER.status == State.PROCESSING.value,
                    _LETTER.locked_at <= now - lease,
                )
                .order_by(_LETTER.id)
                .with_for_update(skip_locked=True)
            )
            letters = [read_letter(row) for row in (await connection.execute(query)).mappings()]
            keys = [(letter.id, letter.generation) for letter in letters]
            attempts = await _attempts(connection, keys)
            changes = Changes(connection, now, "janitor")
            for letter in letters:
                by_exchange = attempts[letter.id, letter.generation].queue is None
                due = now + verdict_after if by_exchange else None
                changes.set(letter, **UNLOCKED, verdict_due_at=due)
            await changes.flush()
            await _set_result(connection, keys, Result.IN_DOUBT, of=(Result.SENDING,))
            await add_counts(connection, {(metrics.TAKEOVERS.name, "letter"): len(letters)})
        return len(letters)

    # Silence

    async def awaited(self, vhost: str) -> list[str]:
        """The queues of letters that were sent, and whose silence does not count yet."""
        query = (
            select(_ATTEMPT.queue)
            .distinct()
            .join(redrive_letter, _NEWEST)
            .where(*_waiting(vhost), _LETTER.verdict_due_at.is_(None), _ATTEMPT.queue.is_not(None))
        )
        async with self._database.reading() as connection:
            return sorted((await connection.execute(query)).scalars())

    async def count_silence(
        self, vhost: str, queue: str, *, seen_idle_at: datetime, verdict_after: timedelta
    ) -> int:
        """From now on silence counts, for what was sent to a queue before it was seen idle."""
        sent_there = (
            *_waiting(vhost),
            _LETTER.verdict_due_at.is_(None),
            _LETTER.updated_at <= seen_idle_at,
        )
        return await self._set_clocks(queue, sent_there, verdict_after)

    async def _found(self, query: Select[Any]) -> AsyncIterator[list[str]]:
        """The ids that a query finds, so many at a time as are changed at once."""
        query = query.order_by(_LETTER.id).limit(_LISTED)
        page = query
        while True:
            async with self._database.reading() as connection:
                ids = list((await connection.execute(page)).scalars())
            for start in range(0, len(ids), _AT_ONCE):
                yield ids[start : start + _AT_ONCE]
            if len(ids) < _LISTED:
                return
            page = query.where(_LETTER.id > ids[-1])

    async def _set_clocks(
        self, queue: str, which: Sequence[ColumnElement[bool]], verdict_after: timedelta | None
    ) -> int:
        """Start the clocks of letters that were sent to a queue, or stop them; how many."""
        query = (
            select(_LETTER.id).join(redrive_attempt, _NEWEST).where(*which, _ATTEMPT.queue == queue)
        )
        done = 0
        async for ids in self._found(query):
            done += await self._set_some_clocks(ids, which, verdict_after)
        return done

    async def _set_some_clocks(
        self,
        ids: Sequence[str],
        still: Sequence[ColumnElement[bool]],
        verdict_after: timedelta | None,
    ) -> int:
        """Where a letter was sent to cannot have changed since it was found, if when it was has
        not."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            query = (
                select(_LETTER.id)
                .where(is_one_of(connection, _LETTER.id, ids), *still)
                .order_by(_LETTER.id)
                .with_for_update(skip_locked=True)
            )
            locked = list((await connection.execute(query)).scalars())
            await connection.execute(
                update(redrive_letter)
                .where(is_one_of(connection, _LETTER.id, locked))
                .values(verdict_due_at=None if verdict_after is None else now + verdict_after)
            )
        return len(locked)

    async def count_no_more(self, vhost: str, queue: str) -> int:
        """The silence of what was sent to a queue has lasted long enough, and says nothing: as if
        it had not begun. How many letters' it was."""
        due = (*_waiting(vhost), _LETTER.verdict_due_at <= await self.now())
        return await self._set_clocks(queue, due, None)

    async def leave_to_person(
        self, vhost: str, queue: str, reason: str, *, looked_at: datetime
    ) -> list[Settled]:
        """What was sent to a queue before it was looked at and was gone, and whose silence is not
        being waited for, will never have a verdict. What was sent since may have found it again."""
        due_at = _LETTER.verdict_due_at
        not_awaited = due_at.is_(None) | (due_at <= await self.now())
        of_the_queue = _sent(vhost).where(
            not_awaited, _LETTER.updated_at <= looked_at, _ATTEMPT.queue == queue
        )

        def decide(_: Letter, attempt: Attempt) -> Verdict:
            return Verdict(
                status=State.MANUAL, result=attempt.result, resolution=None, reason=reason
            )

        return await self._settle(of_the_queue, decide)

    async def silent_queues(self, vhost: str) -> list[str]:
        """The queues of letters whose silence has lasted long enough."""
        async with self._database.reading() as connection:
            now = await self._clock.now(connection)
            query = (
                select(_ATTEMPT.queue)
                .distinct()
                .join(redrive_letter, _NEWEST)
                .where(*_waiting(vhost), _LETTER.verdict_due_at <= now, _ATTEMPT.queue.is_not(None))
            )
            return sorted((await connection.execute(query)).scalars())

    async def settle_silent(
        self, vhost: str, queue: str | None, decide: Callable[[Letter, Attempt], Verdict]
    ) -> list[Settled]:
        """Settle letters that were sent to a queue, or None: to an exchange, and whose silence has
        lasted long enough; some at a time."""
        due = _LETTER.verdict_due_at <= await self.now()
        return await self._settle(_sent(vhost).where(due, _ATTEMPT.queue == queue), decide)

    async def _settle(
        self, query: Select[Any], decide: Callable[[Letter, Attempt], Verdict]
    ) -> list[Settled]:
        some = query.with_only_columns(_LETTER.id).order_by(_LETTER.id).limit(_AT_ONCE)
        async with self._database.reading() as connection:
            ids = list((await connection.execute(some)).scalars())
        if not ids:
            return []
        async with self._database.writing() as connection:
            now = await begin_resolving(connection, self._clock)
            again = query.where(is_one_of(connection, _LETTER.id, ids)).order_by(_LETTER.id)
            locked = again.with_for_update(skip_locked=True, of=redrive_letter)
            found = [_pair(row) for row in (await connection.execute(locked)).all()]
            verdicts = [(letter, attempt, decide(letter, attempt)) for letter, attempt in found]
            return await _write(connection, now, "janitor", verdicts)

    # Receipts

    async def settle_receipts(self, receipts: Sequence[Receipt]) -> list[Settled]:
        """Resolve the letters that receipts name; one that says nothing new is passed over."""
        named: dict[Key, list[Receipt]] = {}
        for receipt in receipts:
            named.setdefault((receipt.letter, receipt.generation), []).append(receipt)
        async with self._database.writing() as connection:
            now = await begin_resolving(connection, self._clock)
            letters = await lock_letters(connection, [letter for letter, _ in named])
            attempts = await _attempts(connection, list(named))
            last = await last_sendings(connection, list(letters))
            verdicts = []
            for key, attempt in attempts.items():
                letter = letters.get(key[0])
                if letter is None or letter.id not in last:
                    continue
                newest = last[letter.id].generation
                told = (
                    on_receipt(letter, attempt, receipt, last_sent=newest) for receipt in named[key]
                )
                verdict = next((each for each in told if each is not None), None)
                if verdict is not None:
                    verdicts.append((letter, attempt, verdict))
            return await _write(connection, now, "receipt", verdicts)


def _waiting(vhost: str) -> tuple[ColumnElement[bool], ...]:
    return (
        _LETTER.status == State.PROCESSING.value,
        _LETTER.locked_by.is_(None),
        _LETTER.vhost == vhost,
    )


def _sent(vhost: str) -> Select[Any]:
    """Letters that wait for a verdict, each with its newest attempt."""
    return (
        select(redrive_letter, redrive_attempt)
        .join(redrive_attempt, _NEWEST)
        .where(*_waiting(vhost))
    )


def _pair(row: Row[Any]) -> tuple[Letter, Attempt]:
    values = tuple(row)
    of_letter = redrive_letter.columns.keys()
    letter = read_letter(dict(zip(of_letter, values[: len(of_letter)], strict=True)))
    names = redrive_attempt.columns.keys()
    attempt = dict(zip(names, values[len(of_letter) :], strict=True))
    return letter, read_attempt(attempt)


async def _attempts(connection: AsyncConnection, keys: Sequence[Key]) -> dict[Key, Attempt]:
    found: dict[Key, Attempt] = {}
    for generation, ids in by_generation(keys):
        query = select(redrive_attempt).where(
            _ATTEMPT.letter_id.in_(ids), _ATTEMPT.generation == generation
        )
        for row in (await connection.execute(query)).mappings():
            found[row["letter_id"], row["generation"]] = read_attempt(row)
    return found


async def _write(
    connection: AsyncConnection,
    now: datetime,
    actor: str,
    verdicts: Sequence[tuple[Letter, Attempt, Verdict]],
) -> list[Settled]:
    changes = Changes(connection, now, actor)
    results: dict[Result, list[Key]] = {}
    settled: list[Settled] = []
    consumed: set[tuple[str, str]] = set()
    for letter, attempt, verdict in verdicts:
        changes.become(
            letter,
            verdict.status,
            verdict.reason,
            verdict_due_at=None,
            resolution=verdict.resolution,
            **UNLOCKED,
        )
        if verdict.result is not attempt.result:
            results.setdefault(verdict.result, []).append((letter.id, attempt.generation))
        if verdict.status is State.RESOLVED and attempt.queue is not None:
            consumed.add((letter.vhost, attempt.queue))
        after = replace(
            letter,
            status=verdict.status,
            resolution=verdict.resolution,
            verdict_due_at=None,
            locked_by=None,
            locked_at=None,
            updated_at=now,
        )
        settled.append(Settled(after, letter.status, verdict.reason))
    await changes.flush()
    for result, keys in results.items():
        await _set_result(connection, keys, result)
    await note_successes(connection, consumed, now)
    return settled


async def _set_result(
    connection: AsyncConnection,
    keys: Sequence[Key],
    result: Result,
    *,
    of: Iterable[Result] = tuple(Result),
) -> None:
    for generation, ids in by_generation(keys):
        done = await connection.execute(
            update(redrive_attempt)
            .where(
                _ATTEMPT.letter_id.in_(ids),
                _ATTEMPT.generation == generation,
                _ATTEMPT.result.in_([each.value for each in of]),
            )
            .values(result=result.value)
        )
        await add_counts(connection, {(metrics.ATTEMPTS.name, result.value): done.rowcount})
