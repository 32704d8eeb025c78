"""Dead messages become letters: one transaction for a batch, all of it or nothing.

What each arrival is (new, a possible duplicate, derived from a letter, or a letter that came back)
is found here, because only the store knows what is in it:

- It carries the headers of a letter: that letter, which came back, or one that is derived from it.
  `returns.py` says which.
- Its redrive-id is known for that queue, and it is no other message of equal content: a possible
  duplicate. `identity.py` says how that is told.
- It was redelivered, and a letter of the same digest came from that queue within a day: likewise.
  Whoever looks for one waits for all batches under way first.

A commit whose answer was lost may or may not have happened. So the ids are the caller's: asked
`again`, what is there already is left as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final

from sqlalchemy import LargeBinary, column, func, select, values
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain import metrics
from redrive.domain.ids import first_id
from redrive.domain.letter import Arrival, Collected, Fate, Letter
from redrive.store.books import Deltas, book
from redrive.store.breakers import note_failures
from redrive.store.bulk import insert_envelopes, insert_letters, insert_many
from redrive.store.changing import chunks
from redrive.store.clock import DatabaseClock
from redrive.store.counts import add_counts
from redrive.store.groups import add_groups
from redrive.store.identity import identities, note_identities
from redrive.store.returns import Returns, linked
from redrive.store.rows import read_letter
from redrive.store.schema import RECEIVED, redrive_letter, redrive_tag
from redrive.store.types import to_octets

_SAME_WITHIN: Final = timedelta(hours=24)
_CLOCKS_DIFFER: Final = timedelta(seconds=1)
"""By how much a collector's clock may be ahead of the database's before it matters."""
# Any number will do, as long as every Redrive takes the same: "collect" in ASCII.
_COLLECTING: Final = int.from_bytes(b"collect")
_LETTER: Final = redrive_letter.c
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
        self._done: dict[str, Collected] = {}  # by the id that the arrival's letter was given

    async def collect(self, known_groups: set[str], *, again: bool) -> list[Collected]:
        now = await self._begin()
        if again:
            await self._find_stored()
        open_ = [arrival for arrival in self._arrivals if arrival.letter.id not in self._done]
        returns = Returns(self._connection, self._clock, self._max_revivals)
        fresh = await self._mark_duplicates(await returns.take(open_))
        self._done |= returns.done
        self._deltas.update(returns.deltas)
        returned = [done.letter for done in self._done.values()]
        letters = [*returned, *(arrival.letter for arrival in fresh)]
        await add_groups(self._connection, letters, known_groups)
        await self._insert(_due_by(now, fresh))
        if returns.failures:
            await note_failures(self._connection, returns.failures, await self._now())
        await book(self._connection, self._deltas)
        counts = returns.counts
        if doubtful := sum(arrival.letter.possible_duplicate for arrival in fresh):
            counts[metrics.POSSIBLE_DUPLICATES.name, ""] += doubtful
        if counts:
            await add_counts(self._connection, counts)
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

    async def _letters(self, ids: Sequence[str]) -> list[Letter]:
        found: list[Letter] = []
        for some in chunks(ids):
            query = select(redrive_letter).where(_LETTER.id.in_(some)).order_by(_LETTER.id)
            rows = (await self._connection.execute(query)).mappings()
            found.extend(read_letter(row) for row in rows)
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
            linked(arrival, duplicate_of=first_of[arrival.letter.id])
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


def _fate(letter: Letter) -> Fate:
    if letter.duplicate_of is not None:
        return Fate.DUPLICATE
    if letter.parent_id is not None:
        return Fate.DERIVED
    if letter.previous_id is not None:
        return Fate.SUCCESSOR
    return Fate.NEW
