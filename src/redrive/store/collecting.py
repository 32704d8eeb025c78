"""Dead messages become letters: one transaction for a batch, all of it or nothing.

What each arrival is (new, a possible duplicate, derived from a letter, or a letter that came back)
is found here, because only the store knows what is in it:

- It carries the headers of a letter: the same letter if what was sent is what came back (queue and
  body digest of that generation), else a new one with `parent_id`; of a letter that is gone, a new
  one with `previous_id`. Of what a person sent to an exchange, the first copy that comes back tells
  the queue; another that was sent to its queue again since is a possible duplicate.
- Its redrive-id is known for that queue, and it is no other message of equal content: a possible
  duplicate. `identity.py` says how that is told.
- It was redelivered, and a letter of the same digest came from that queue within a day: likewise.
  Whoever looks for one waits for all batches under way first.

A commit whose answer was lost may or may not have happened. So the ids are the caller's: asked
`again`, what is there already is left as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final

from sqlalchemy import LargeBinary, column, func, insert, select, update, values
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain import metrics
from redrive.domain.ids import first_id
from redrive.domain.letter import Arrival, Attempt, Collected, Fate, Letter, Result
from redrive.domain.lifecycle import State, require
from redrive.domain.replay import read_destination
from redrive.domain.returning import (
    OPEN,
    group_of_return,
    is_anothers_copy,
    is_return,
    may_be_there_twice,
    on_return,
)
from redrive.store.books import Deltas, book
from redrive.store.breakers import note_failures
from redrive.store.bulk import insert_envelopes, insert_letters, insert_many
from redrive.store.changing import chunks, count_entry
from redrive.store.clock import DatabaseClock
from redrive.store.counts import add_counts
from redrive.store.digests import body_digest
from redrive.store.groups import add_groups
from redrive.store.identity import claim_identities, identities, note_identities
from redrive.store.rows import (
    deaths_text,
    read_attempt,
    read_letter,
)
from redrive.store.schema import (
    RECEIVED,
    RETURNED,
    redrive_attempt,
    redrive_history,
    redrive_letter,
    redrive_replay,
    redrive_tag,
)
from redrive.store.types import to_octets
from redrive.tally import Counts

_SAME_WITHIN: Final = timedelta(hours=24)
_CLOCKS_DIFFER: Final = timedelta(seconds=1)
"""By how much a collector's clock may be ahead of the database's before it matters."""
_ACTOR: Final = "collector"
# Any number will do, as long as every Redrive takes the same: "collect" in ASCII.
_COLLECTING: Final = int.from_bytes(b"collect")
_LETTER: Final = redrive_letter.c
_ORIGIN: Final = ("queue", "exchange", "routing_key")
_account: Final = attrgetter("fingerprint", "status")


async def collect(
    connection: AsyncConnection,
    arrivals: Sequence[Arrival],
    *,
    clock: DatabaseClock,
    max_revivals: int,
    known_groups: set[str],
    again: bool,
) -> list[Collected]:
    """Store a batch; what each arrival turned out to be, in order.

    `known_groups` are fingerprints that the database is known to have; those added are not noted
    there, because the transaction may still fail.
    """
    batch = _Batch(connection, arrivals, clock, max_revivals)
    return await batch.collect(known_groups, again=again)


class _Batch:
    def __init__(
        self,
        connection: AsyncConnection,
        arrivals: Sequence[Arrival],
        clock: DatabaseClock,
        max_revivals: int,
    ) -> None:
        self._connection = connection
        self._arrivals = arrivals
        self._clock = clock
        self._max_revivals = max_revivals
        self._deltas: Deltas = Counter()
        self._counts: Counts = Counter()
        self._failures: Counter[tuple[str, str]] = Counter()  # returns, by where they were sent
        self._done: dict[str, Collected] = {}  # by the id that the arrival's letter was given

    async def collect(self, known_groups: set[str], *, again: bool) -> list[Collected]:
        now = await self._begin()
        if again:
            await self._find_stored()
        open_ = [arrival for arrival in self._arrivals if arrival.letter.id not in self._done]
        fresh = await self._take_returns(open_)
        fresh = await self._mark_duplicates(fresh)
        returned = [done.letter for done in self._done.values()]
        letters = [*returned, *(arrival.letter for arrival in fresh)]
        await add_groups(self._connection, letters, known_groups)
        await self._insert(_due_by(now, fresh))
        if self._failures:
            await note_failures(self._connection, self._failures, await self._now())
        await book(self._connection, self._deltas)
        if self._counts:
            await add_counts(self._connection, self._counts)
        return [self._done[arrival.letter.id] for arrival in self._arrivals]

    async def _begin(self) -> datetime:
        """The time of the database; told by the query that is made anyway.

        What was redelivered may be in a commit that a killed collector had asked for: wait until
        every batch that was begun before has ended, or the copy would not be seen. On SQLite a
        writer is alone anyway."""
        if self._connection.dialect.name == "sqlite":
            return await self._now()
        redelivered = any(arrival.envelope.redelivered for arrival in self._arrivals)
        lock = func.pg_advisory_xact_lock if redelivered else func.pg_advisory_xact_lock_shared
        query = select(lock(_COLLECTING), self._clock.reading)
        return self._clock.read((await self._connection.execute(query)).one()[1])

    async def _find_stored(self) -> None:
        """What an earlier try has committed after all."""
        ids = [arrival.letter.id for arrival in self._arrivals]
        for letter in await self._letters(ids):
            self._done[letter.id] = Collected(fate=_fate(letter), letter=letter)
        returns = {
            to_octets(arrival.letter.id): arrival.letter.id
            for arrival in self._arrivals
            if arrival.replayed is not None
        }
        owners = await identities(self._connection, returns)
        letters = {letter.id: letter for letter in await self._letters(list(owners.values()))}
        for key, owner in owners.items():
            if owner in letters:
                self._done[returns[key]] = Collected(fate=Fate.RETURNED, letter=letters[owner])

    async def _now(self) -> datetime:
        return await self._clock.now(self._connection)

    # Letters that come back

    async def _take_returns(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Settle those that are known letters; the others, with what they are to those."""
        claimed = sorted({a.replayed.letter for a in arrivals if a.replayed is not None})
        if not claimed:
            return list(arrivals)
        letters = {letter.id: letter for letter in await self._letters(claimed, lock=True)}
        attempts = await self._attempts(list(letters))
        newest = _newest(attempts)
        to_all = await self._sent_to_all(attempts.values())
        fresh: list[Arrival] = []
        noted: list[tuple[bytes, str]] = []
        for arrival in arrivals:
            if arrival.replayed is None:
                fresh.append(arrival)
                continue
            letter = letters.get(arrival.replayed.letter)
            if letter is None:
                fresh.append(_linked(arrival, previous_id=arrival.replayed.letter))
                continue
            key = (letter.id, arrival.replayed.generation)
            attempt, queue = attempts.get(key), arrival.letter.queue
            if attempt is None or attempt.body_digest != body_digest(arrival.envelope.body):
                fresh.append(_linked(arrival, parent_id=letter.id))
                continue
            sendings = (each for (id_, _), each in attempts.items() if id_ == letter.id)
            twice = may_be_there_twice(attempt, sendings, queue, to_all)
            if not is_return(attempt, queue=queue, body_digest=attempt.body_digest):
                fresh.append(_copy(arrival, letter, twice=twice))
                continue
            # A letter that was sent again since is waiting for a later verdict than this one.
            last = attempt.generation == newest.get(letter.id)
            of_many = attempt.replay_id in to_all and attempt.queue is None
            if of_many and is_anothers_copy(letter, attempt, queue, newest=last):
                fresh.append(_copy(arrival, letter, twice=twice))
                continue
            self._deltas[letter.fingerprint, RETURNED] += 1
            noted.append((to_octets(arrival.letter.id), letter.id))
            if attempt.result in OPEN:
                if attempt.queue is not None:
                    self._failures[letter.vhost, attempt.queue] += 1
                where = queue if of_many else attempt.queue
                attempts[key] = replace(attempt, result=Result.RETURNED, queue=where)
                await self._settle_attempt(letter.id, attempts[key])
                if last:
                    letter = await self._settle(letter, arrival.letter, moved=of_many)
                    letters[letter.id] = letter
            self._done[arrival.letter.id] = Collected(fate=Fate.RETURNED, letter=letter)
        # They leave no letter of their own: so that a second try of this batch finds them.
        await claim_identities(self._connection, noted)
        return fresh

    async def _sent_to_all(self, attempts: Collection[Attempt]) -> set[str]:
        """Of the replays that sent these, those that a person had send to an exchange; others did
        by a policy. Of one that is deleted only what has come back since has a queue, and it may
        have been either."""
        found: dict[str, str | None] = {}
        for some in chunks(sorted({each.replay_id for each in attempts if each.replay_id})):
            query = select(redrive_replay.c.id, redrive_replay.c.destination).where(
                redrive_replay.c.id.in_(some)
            )
            rows = (await self._connection.execute(query)).all()
            found.update((id_, destination) for id_, destination in rows)
        gone = {
            each.replay_id
            for each in attempts
            if each.queue is None and each.replay_id and each.replay_id not in found
        }
        return gone | {
            id_
            for id_, destination in found.items()
            if destination is not None and read_destination(destination).exchange is not None
        }

    async def _settle_attempt(self, letter_id: str, settled: Attempt) -> None:
        attempt = redrive_attempt.c
        await self._connection.execute(
            update(redrive_attempt)
            .where(attempt.letter_id == letter_id, attempt.generation == settled.generation)
            .values(result=settled.result.value, queue=settled.queue)
        )
        self._counts[metrics.ATTEMPTS.name, settled.result.value] += 1

    async def _settle(self, letter: Letter, came: Letter, *, moved: bool) -> Letter:
        """`moved`: it belongs to the queue where it failed now."""
        origin = came if moved and came.queue not in (None, letter.queue) else letter
        outcome = on_return(letter.status, letter.dlq_retry_count, self._max_revivals)
        changed = outcome.status is not letter.status
        at = await self._now()
        now = replace(
            letter,
            status=require(letter.status, outcome.status) if changed else letter.status,
            dlq_retry_count=outcome.revivals,
            error_type=came.error_type,
            error_reason=came.error_reason,
            error_stack=came.error_stack,
            fingerprint=group_of_return(origin, came),
            queue=origin.queue,
            exchange=origin.exchange,
            routing_key=origin.routing_key,
            deaths=came.deaths,
            last_failed_at=came.last_failed_at,
            locked_by=None,
            locked_at=None,
            strategy=None,
            next_retry_at=at if outcome.status is State.PENDING else None,
            verdict_due_at=None,
            resolution=None,
            updated_at=at,
        )
        names: tuple[str, ...] = (
            "status",
            "dlq_retry_count",
            "error_type",
            "error_reason",
            "error_stack",
            "fingerprint",
            "last_failed_at",
            "locked_by",
            "locked_at",
            "strategy",
            "next_retry_at",
            "verdict_due_at",
            "resolution",
            "updated_at",
        )
        if origin is came:  # else no index has to know
            names += _ORIGIN
        values = {name: getattr(now, name) for name in names}
        values["deaths"] = deaths_text(now.deaths)
        execute = self._connection.execute
        await execute(update(redrive_letter).where(_LETTER.id == letter.id).values(values))
        if changed:
            count_entry(self._counts, letter, now.status, at)
            await execute(
                insert(redrive_history).values(
                    letter_id=letter.id,
                    at=now.updated_at,
                    actor=_ACTOR,
                    before=letter.status,
                    after=now.status,
                    reason=outcome.reason,
                )
            )
        self._deltas[letter.fingerprint, letter.status.value] -= 1
        self._deltas[now.fingerprint, now.status.value] += 1
        return now

    async def _letters(self, ids: Sequence[str], *, lock: bool = False) -> list[Letter]:
        found: list[Letter] = []
        for some in chunks(ids):
            query = select(redrive_letter).where(_LETTER.id.in_(some)).order_by(_LETTER.id)
            if lock:
                query = query.with_for_update()  # says nothing on SQLite, where a writer is alone
            rows = (await self._connection.execute(query)).mappings()
            found.extend(read_letter(row) for row in rows)
        return found

    async def _attempts(self, ids: Sequence[str]) -> dict[tuple[str, int], Attempt]:
        found = {}
        for some in chunks(ids):
            query = select(redrive_attempt).where(redrive_attempt.c.letter_id.in_(some))
            for row in (await self._connection.execute(query)).mappings():
                found[row["letter_id"], row["generation"]] = read_attempt(row)
        return found

    # Second copies

    async def _mark_duplicates(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        first_of = await note_identities(self._connection, arrivals)
        doubtful = [
            arrival
            for arrival in arrivals
            if arrival.envelope.redelivered and arrival.letter.id not in first_of
        ]
        first_of |= await self._find_redelivered(doubtful)
        return [
            _linked(arrival, duplicate_of=first_of[arrival.letter.id])
            if arrival.letter.id in first_of
            else arrival
            for arrival in arrivals
        ]

    async def _find_redelivered(self, arrivals: Sequence[Arrival]) -> dict[str, str]:
        """Of each arrival that was stored before, most likely: the newest such letter."""
        found: dict[str, str] = {}
        by_place: dict[tuple[str, str], list[Arrival]] = {}
        for arrival in arrivals:
            place = (arrival.letter.vhost, arrival.letter.collected_from)
            by_place.setdefault(place, []).append(arrival)
        for (vhost, queue), there in by_place.items():
            for some in chunks(there):
                newest = await self._newest_of(vhost, queue, some)
                for arrival in some:
                    if arrival.digest in newest:
                        found[arrival.letter.id] = newest[arrival.digest]
        return found

    async def _newest_of(
        self, vhost: str, queue: str, arrivals: Sequence[Arrival]
    ) -> dict[bytes, str]:
        """By digest, the newest letter of the last day. One look into the index for each: there may
        be a million letters of one digest."""
        digests = sorted({arrival.digest for arrival in arrivals})
        wanted = (
            values(column("digest", LargeBinary), name="wanted")
            .data([(digest,) for digest in digests])
            .cte("wanted")
        )
        newest = (
            select(_LETTER.id)
            .where(
                _LETTER.digest == wanted.c.digest,
                _LETTER.id >= first_id(arrivals[0].letter.created_at - _SAME_WITHIN),
                _LETTER.collected_from == queue,
                _LETTER.vhost == vhost,
            )
            .order_by(_LETTER.id.desc())
            .limit(1)
            .correlate(wanted)
            .scalar_subquery()
        )
        rows = (await self._connection.execute(select(wanted.c.digest, newest))).all()
        return {bytes(digest): id_ for digest, id_ in rows if id_ is not None}

    # New letters

    async def _insert(self, arrivals: Sequence[Arrival]) -> None:
        if not arrivals:
            return
        connection = self._connection
        letters = [arrival.letter for arrival in arrivals]
        await insert_letters(connection, [(arrival.letter, arrival.digest) for arrival in arrivals])
        await insert_envelopes(
            connection, [(arrival.letter.id, arrival.envelope) for arrival in arrivals]
        )
        tags = [(tag, letter.id) for letter in letters for tag in dict.fromkeys(letter.tags)]
        await insert_many(
            connection, redrive_tag, [{"tag": tag, "letter_id": id_} for tag, id_ in tags]
        )
        for (fingerprint, state), number in Counter(map(_account, letters)).items():
            self._deltas[fingerprint, RECEIVED] += number
            self._deltas[fingerprint, state.value] += number
        for letter in letters:
            self._done[letter.id] = Collected(fate=_fate(letter), letter=letter)


def _newest(attempts: dict[tuple[str, int], Attempt]) -> dict[str, int]:
    """By letter, the generation of the newest sending that was not refused: what is in no queue
    settles nothing."""
    found: dict[str, int] = {}
    for (letter_id, generation), attempt in attempts.items():
        if attempt.result is not Result.REFUSED:
            found[letter_id] = max(generation, found.get(letter_id, 0))
    return found


def _due_by(now: datetime, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
    """A new letter is due at once, by the clock that workers go by, however far ahead that of its
    collector is."""
    latest = now + _CLOCKS_DIFFER
    if all((at := arrival.letter.next_retry_at) is None or at <= latest for arrival in arrivals):
        return arrivals
    return [
        replace(arrival, letter=replace(arrival.letter, next_retry_at=now))
        if (at := arrival.letter.next_retry_at) is not None and at > latest
        else arrival
        for arrival in arrivals
    ]


def _linked(
    arrival: Arrival,
    *,
    parent_id: str | None = None,
    previous_id: str | None = None,
    duplicate_of: str | None = None,
) -> Arrival:
    letter = replace(
        arrival.letter,
        parent_id=parent_id or arrival.letter.parent_id,
        previous_id=previous_id or arrival.letter.previous_id,
        duplicate_of=duplicate_of,
        possible_duplicate=duplicate_of is not None,
    )
    # Copied from another letter, or inherited of it, a redrive-id says nothing.
    copied = parent_id is not None or previous_id is not None
    return replace(arrival, letter=letter, redrive_id=None if copied else arrival.redrive_id)


def _copy(arrival: Arrival, letter: Letter, *, twice: bool) -> Arrival:
    """A letter of its own: another message, or a copy of the letter's that a queue has."""
    return _linked(arrival, parent_id=letter.id, duplicate_of=letter.id if twice else None)


def _fate(letter: Letter) -> Fate:
    if letter.duplicate_of is not None:
        return Fate.DUPLICATE
    if letter.parent_id is not None:
        return Fate.DERIVED
    if letter.previous_id is not None:
        return Fate.SUCCESSOR
    return Fate.NEW
