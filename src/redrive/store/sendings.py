"""Letters are claimed, sent and recorded: the store's side of the Sender.

    claim: the state, the lock, the generation and the attempt `sending`, in one transaction
    (the sender publishes and waits for the confirm)
    record: what became of it, in another one

Killed in between, the lease ends and the attempt is in doubt. What came in meanwhile counts for
more than what the sender has to say: a letter that is back already is not `sent` again by a late
record of its sending.

A claim takes the database's clock for due times and locks. PostgreSQL skips what others have
locked; on SQLite a writer is alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import CTE, ColumnElement, ScalarSelect, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain import metrics
from redrive.domain.breaker import USUAL, BreakerLimits
from redrive.domain.letter import Claim, Envelope, Head, Letter, Result
from redrive.domain.lifecycle import State, require
from redrive.domain.revival import Decision, LeaveToPerson, Postpone, Send
from redrive.store.admission import admission_of
from redrive.store.books import Deltas, book
from redrive.store.bulk import insert_many
from redrive.store.changing import (
    UNLOCKED,
    Changes,
    by_generation,
    chunks,
    hold_letters,
    lock_letters,
)
from redrive.store.clock import DatabaseClock
from redrive.store.counts import add_counts
from redrive.store.details import read_messages
from redrive.store.digests import body_digest
from redrive.store.engine import Database
from redrive.store.fitting import BOUNDLESS, Room
from redrive.store.id_lists import is_one_of
from redrive.store.rows import read_letter
from redrive.store.schema import redrive_attempt, redrive_letter

_LETTER: Final = redrive_letter.c
_ATTEMPT: Final = redrive_attempt.c
_UNSETTLED: Final = (Result.SENDING.value, Result.IN_DOUBT.value)
_WINDOW: Final = 1000
"""Letters of one priority among which the oldest goes first."""
_WORKERS: Final = 8
"""How many workers find something at once: each looks at so many batches as there are workers."""
_MOST_WINDOWS: Final = 5
"""Windows looked at in which others have locked all."""
MOST_BYTES: Final = 16 * 2**20
"""Of bodies in one batch, unless one letter is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A letter that is to be claimed, which is locked, and where it goes."""

    letter: Letter | Head
    strategy: str
    queue: str | None
    exchange: str | None = None
    replay_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one claim."""

    claim: Claim
    result: Result
    """Sent, refused or in doubt."""
    reason: str = ""
    """Why it was refused."""
    after: State = State.MANUAL
    """Where a refused letter goes: to a person, or back to where it was."""
    retry_in: timedelta | None = None
    """For how long a refused letter is pending."""
    revival: bool = False
    """Whether it counts as one of the letter's revivals."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a worker took: claims to send, and the letters that it left to a person."""

    claims: list[Claim]
    left: list[tuple[Letter, str]]
    looked_at: int
    full: dict[str, str] = field(default_factory=dict)
    """Queues that would push out others for letters, which stay as they were; and why."""
    look_at: frozenset[str] = frozenset()
    """Queues at which somebody has to look first; letters for them are due still."""


class Sendings:
    """Claims letters and records what became of them."""

    def __init__(
        self, database: Database, clock: DatabaseClock, limits: BreakerLimits = USUAL
    ) -> None:
        """`limits` are those of the breakers."""
        self._database = database
        self._clock = clock
        self._limits = limits

    async def next_due_in(self, vhost: str) -> timedelta | None:
        """How long until the next letter is due; nothing or less if one is; None if none will."""
        priorities = _priorities(vhost)
        first = _first_of(priorities, vhost)
        firsts = select(first.label("at")).select_from(priorities).subquery()
        query = select(func.min(firsts.c.at))
        async with self._database.reading() as connection:
            at: datetime | None = (await connection.execute(query)).scalar_one()
            return None if at is None else at - await self._clock.now(connection)

    async def take_due(
        self,
        worker: str,
        vhost: str,
        limit: int,
        decide: Callable[[Letter, datetime, bool], Decision],
        room: Room = BOUNDLESS,
    ) -> Taken:
        """Look at letters of a vhost that are due, by priority and age. `decide` says what becomes
        of each, given the time and whether another letter may be a copy of it; `room` has what
        there is room for. What is to be sent has no more bytes than memory should hold; the rest
        stays due."""
        async with self._database.writing() as connection:
            due_at = await self._clock.now(connection)
            letters = await _lock_due(connection, vhost, due_at, limit)
            if not letters:
                return Taken([], [], 0)
            # After the lock: an edit that is sent is never later than its sending.
            now = await self._clock.now(connection)
            copied = await copied_of(connection, [letter.id for letter in letters])
            decided = [(letter, decide(letter, now, letter.id in copied)) for letter in letters]
            admission = await admission_of(connection, decided, now, self._limits, room)
            changes = Changes(connection, now, worker)
            orders: list[Order] = []
            left: list[tuple[Letter, str]] = []
            looked_at = size = 0
            for letter, wanted in decided:
                if isinstance(wanted, Send):
                    size += letter.size
                    if orders and size > MOST_BYTES:
                        break
                looked_at += 1
                match decision := await admission.of(letter, wanted):
                    case Send():
                        orders.append(_order(letter, decision))
                    case Postpone():
                        _postpone(changes, letter, decision)
                    case LeaveToPerson():
                        left.append((letter, decision.reason))
                        changes.become(letter, State.MANUAL, decision.reason, strategy="manual")
            await changes.flush()
            claims = await claim(connection, orders, worker, now)
        fitting = admission.fitting
        return Taken(claims, left, looked_at, fitting.full, frozenset(fitting.look_at))

    async def record(
        self, worker: str, outcomes: Sequence[Outcome], *, verdict_after: timedelta
    ) -> None:
        """Note what became of claims."""
        async with self._database.writing() as connection:
            await record(
                connection, worker, outcomes, await self._clock.now(connection), verdict_after
            )


# What is due


async def _lock_due(
    connection: AsyncConnection, vhost: str, now: datetime, limit: int
) -> list[Letter]:
    """Letters that are due, by priority, then by age; what others have locked is passed over.

    Of one priority, age counts among the `_WINDOW` letters that were due first: so much is looked
    at, whether a million letters are due or a million will be tonight.
    """
    found: list[Letter] = []
    most = min(limit * _WORKERS, _WINDOW)
    for priority in await _priorities_due(connection, vhost, now):
        for number in range(_MOST_WINDOWS):
            ids = await _window(connection, vhost, priority, now, number, most)
            found += await _lock_those_due(connection, ids, now, limit - len(found))
            if len(found) == limit:
                return found
            if len(ids) < most:
                break
    return found


def _of(vhost: str) -> tuple[ColumnElement[bool], ...]:
    """What workers will look at. It names what the partial index is of, or that could not serve."""
    return (_LETTER.vhost == vhost, _LETTER.next_retry_at.is_not(None))


def _priorities(vhost: str) -> CTE:
    """The priorities of letters that a worker will look at, each by one look into the index; and
    NULL, which ends it."""
    highest = select(_LETTER.priority).where(*_of(vhost)).order_by(_LETTER.priority.desc()).limit(1)
    found = select(highest.scalar_subquery().label("priority")).cte("priorities", recursive=True)
    lower = highest.where(_LETTER.priority < found.c.priority).correlate(found).scalar_subquery()
    return found.union_all(select(lower).where(found.c.priority.is_not(None)))


def _first_of(priorities: CTE, vhost: str) -> ScalarSelect[datetime]:
    """When the first letter of each priority is due. Not EXISTS, which PostgreSQL would answer by
    reading all that are due."""
    return (
        select(_LETTER.next_retry_at)
        .where(*_of(vhost), _LETTER.priority == priorities.c.priority)
        .order_by(_LETTER.next_retry_at)
        .limit(1)
        .correlate(priorities)
        .scalar_subquery()
    )


async def _priorities_due(connection: AsyncConnection, vhost: str, now: datetime) -> list[int]:
    """Those of letters that are due, the highest first."""
    priorities = _priorities(vhost)
    due = _first_of(priorities, vhost) <= now
    query = select(priorities.c.priority).where(due).order_by(priorities.c.priority.desc())
    return list((await connection.execute(query)).scalars())


async def _window(
    connection: AsyncConnection, vhost: str, priority: int, now: datetime, number: int, most: int
) -> list[str]:
    """The oldest of the letters of a priority that were due first."""
    first_due = (
        select(_LETTER.id, _LETTER.created_at)
        .where(*_of(vhost), _LETTER.priority == priority, _LETTER.next_retry_at <= now)
        .order_by(_LETTER.next_retry_at, _LETTER.id)
        .limit(_WINDOW)
        .offset(number * _WINDOW)
        .subquery()
    )
    query = select(first_due.c.id).order_by(first_due.c.created_at, first_due.c.id).limit(most)
    return list((await connection.execute(query)).scalars())


async def _lock_those_due(
    connection: AsyncConnection, ids: Sequence[str], now: datetime, limit: int
) -> list[Letter]:
    query = (
        select(redrive_letter)
        .where(
            is_one_of(connection, _LETTER.id, ids),
            _LETTER.next_retry_at <= now,
            # Never by the index of states, which is of all that wait.
            _LETTER.status.concat("") == State.PENDING.value,
        )
        .order_by(_LETTER.created_at, _LETTER.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return [read_letter(row) for row in (await connection.execute(query)).mappings()]


def _order(letter: Letter, decision: Send) -> Order:
    return Order(
        letter=letter,
        strategy=decision.strategy,
        queue=decision.queue,
        exchange=decision.exchange,
    )


async def copied_of(connection: AsyncConnection, ids: Sequence[str]) -> set[str]:
    """Of these letters, those of which another may be a second copy. One that was put away and
    never sent is settled: nobody has it, and nobody will."""
    found: set[str] = set()
    for some in chunks(ids):
        query = select(_LETTER.duplicate_of).where(
            is_one_of(connection, _LETTER.duplicate_of, some),
            _LETTER.duplicate_of.is_not(None),  # or the partial index could not serve
            or_(_LETTER.status != State.ARCHIVED.value, _LETTER.generation > 0),
        )
        found.update((await connection.execute(query)).scalars())
    return found


def _postpone(changes: Changes, letter: Letter, decision: Postpone) -> None:
    values: dict[str, Any] = {"strategy": decision.strategy, "next_retry_at": decision.at}
    if decision.noted:
        changes.become(letter, State.PENDING, decision.reason, **values)
    else:
        changes.set(letter, **values)


# In a transaction of somebody


async def claim(
    connection: AsyncConnection, orders: Sequence[Order], worker: str, now: datetime
) -> list[Claim]:
    """Claim letters that are locked; in order."""
    if not orders:
        return []
    messages: dict[str, Envelope] = {}
    deltas: Deltas = Counter()
    for some in chunks([order.letter for order in orders]):
        messages |= await read_messages(connection, some)
        await connection.execute(
            update(redrive_letter)
            .where(is_one_of(connection, _LETTER.id, [letter.id for letter in some]))
            .values(
                status=State.PROCESSING.value,
                generation=_LETTER.generation + 1,
                locked_by=worker,
                locked_at=now,
                next_retry_at=None,
                verdict_due_at=None,
                resolution=None,
                updated_at=now,
            )
        )
    claims = []
    rows = []
    for order in orders:
        letter, message = order.letter, messages[order.letter.id]
        require(letter.status, State.PROCESSING)
        deltas[letter.fingerprint, letter.status.value] -= 1
        deltas[letter.fingerprint, State.PROCESSING.value] += 1
        generation = letter.generation + 1
        claims.append(
            Claim(
                letter=letter,
                generation=generation,
                envelope=message,
                queue=order.queue,
                exchange=order.exchange,
            )
        )
        rows.append(
            {
                "letter_id": letter.id,
                "generation": generation,
                "at": now,
                "worker_id": worker,
                "strategy": order.strategy,
                "result": Result.SENDING.value,
                "queue": order.queue,
                "body_digest": body_digest(message.body),
                "before": letter.status.value,
                "replay_id": order.replay_id,
            }
        )
    await insert_many(connection, redrive_attempt, rows)
    await book(connection, deltas)
    await add_counts(connection, {(metrics.ENTERED.name, State.PROCESSING.word): len(claims)})
    return claims


async def record(
    connection: AsyncConnection,
    worker: str,
    outcomes: Sequence[Outcome],
    now: datetime,
    verdict_after: timedelta,
) -> None:
    """Note what became of claims, unless something that came in meanwhile has told it already."""
    await hold_letters(connection, [outcome.claim.letter.id for outcome in outcomes])
    refused: list[Outcome] = []
    released: dict[tuple[Result, bool], list[Claim]] = {}
    for outcome in outcomes:
        if outcome.result in (Result.SENT, Result.IN_DOUBT):
            by_exchange = outcome.claim.queue is None
            released.setdefault((outcome.result, by_exchange), []).append(outcome.claim)
        else:
            refused.append(outcome)
    for (result, by_exchange), claims in released.items():
        # Nobody can tell which queue an exchange brought it to, and so not whether that was idle.
        due = now + verdict_after if by_exchange else None
        await _release(connection, claims, result, now, due)
    await _put_back(connection, worker, refused, now)


async def _release(
    connection: AsyncConnection,
    claims: Sequence[Claim],
    result: Result,
    now: datetime,
    verdict_due_at: datetime | None,
) -> None:
    """The lock goes; the letter waits for its verdict from now on, also if its lease has ended
    meanwhile: it may have been sent only after that."""
    keys = [(claim.letter.id, claim.generation) for claim in claims]
    for generation, ids in by_generation(keys):
        await connection.execute(
            update(redrive_letter)
            .where(
                is_one_of(connection, _LETTER.id, ids),
                _LETTER.generation == generation,
                # Never by the index of states: it has all that were sent and have no verdict yet.
                _LETTER.status.concat("") == State.PROCESSING.value,
            )
            .values(**UNLOCKED, verdict_due_at=verdict_due_at, updated_at=now)
        )
        await _settle_attempts(connection, ids, generation, result)


async def _settle_attempts(
    connection: AsyncConnection,
    ids: Sequence[str],
    generation: int,
    result: Result,
    reason: str | None = None,
) -> None:
    """Only what nothing else has settled: a return may be faster than its confirm."""
    settled = await connection.execute(
        update(redrive_attempt)
        .where(
            is_one_of(connection, _ATTEMPT.letter_id, ids),
            _ATTEMPT.generation == generation,
            _ATTEMPT.result.in_(_UNSETTLED),
        )
        .values(result=result.value, reason=reason)
    )
    await add_counts(connection, {(metrics.ATTEMPTS.name, result.value): settled.rowcount})


async def _put_back(
    connection: AsyncConnection, worker: str, refused: Sequence[Outcome], now: datetime
) -> None:
    """What is certainly in no queue goes where it can be decided on again, also if its lease has
    ended meanwhile: silence would say of it that it was consumed."""
    if not refused:
        return
    letters = await lock_letters(connection, [outcome.claim.letter.id for outcome in refused])
    changes = Changes(connection, now, worker)
    for outcome in refused:
        id_, generation = outcome.claim.letter.id, outcome.claim.generation
        await _settle_attempts(connection, [id_], generation, Result.REFUSED, outcome.reason)
        letter = letters.get(id_)
        if letter is None or letter.generation != generation:
            continue
        if letter.status is not State.PROCESSING:
            continue
        revivals = letter.dlq_retry_count + outcome.revival
        values = {"dlq_retry_count": revivals, "verdict_due_at": None, **UNLOCKED}
        if outcome.after is State.PENDING:
            values["next_retry_at"] = now + (outcome.retry_in or timedelta(0))
        was_resolved = outcome.after is State.RESOLVED
        if was_resolved:  # as before: the claim took that off it
            values["resolution"] = outcome.claim.letter.resolution
        reason = f"not sent: {outcome.reason}"
        changes.become(letter, outcome.after, reason, anew=not was_resolved, **values)
    await changes.flush()
