"""Letters that come back: what the messages of a batch are to the letters that they were sent for.

- The same letter if what was sent is what came back (`domain/returning.py`): the attempt has failed
  with it, and the letter goes where its next revival is decided on.
- A letter of its own with `parent_id`, and `duplicate_of` where its queue may have another copy.
- Of a letter that is gone, a new one with `previous_id`.

All that changes is in the transaction of the batch. A letter that came back is locked until then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain import metrics
from redrive.domain.letter import Arrival, Attempt, Collected, Fate, Letter, Result
from redrive.domain.lifecycle import State, require
from redrive.domain.replay import read_destination
from redrive.domain.returning import (
    Came,
    CameBack,
    Derived,
    group_of_return,
    on_return,
    what_came,
)
from redrive.store.books import Deltas
from redrive.store.changing import UNLOCKED, chunks, count_entry, lock_letters
from redrive.store.clock import DatabaseClock
from redrive.store.details import read_attempts
from redrive.store.digests import body_digest
from redrive.store.identity import claim_identities
from redrive.store.rows import deaths_text
from redrive.store.schema import (
    RETURNED,
    redrive_attempt,
    redrive_history,
    redrive_letter,
    redrive_replay,
)
from redrive.store.types import to_octets
from redrive.tally import Counts

_ACTOR: Final = "collector"
_OF_FAILURE: Final = ("error_type", "error_reason", "error_stack", "last_failed_at")
_ORIGIN: Final = ("queue", "exchange", "routing_key")


class Returns:
    """What came back in one batch; afterwards, what is to be booked and counted of it."""

    def __init__(
        self, connection: AsyncConnection, clock: DatabaseClock, max_revivals: int
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._max_revivals = max_revivals
        self._letters: dict[str, Letter] = {}
        self._sendings: dict[str, list[Attempt]] = {}
        self.done: dict[str, Collected] = {}
        """By the id that the arrival's letter was given."""
        self.deltas: Deltas = Counter()
        self.counts: Counts = Counter()
        self.failures: Counter[tuple[str, str]] = Counter()
        """By where it was sent."""

    async def take(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Settle those that are known letters; the others, with what they are to those."""
        claimed = {each.replayed.letter for each in arrivals if each.replayed is not None}
        if not claimed:
            return list(arrivals)
        self._letters = await lock_letters(self._connection, claimed)
        self._sendings = await read_attempts(self._connection, list(self._letters))
        to_all = await self._sent_to_all()
        fresh: list[Arrival] = []
        for arrival in arrivals:
            if arrival.replayed is None:
                fresh.append(arrival)
                continue
            letter = self._letters.get(arrival.replayed.letter)
            if letter is None:
                fresh.append(linked(arrival, previous_id=arrival.replayed.letter))
                continue
            came = Came(
                generation=arrival.replayed.generation,
                queue=arrival.letter.queue,
                body_digest=body_digest(arrival.envelope.body),
            )
            match what_came(letter, came, self._sendings[letter.id], to_all):
                case CameBack() as back:
                    letter = await self._take_back(letter, back, arrival.letter)
                    self.done[arrival.letter.id] = Collected(fate=Fate.RETURNED, letter=letter)
                case Derived(possible_duplicate=doubtful):
                    copy_of = letter.id if doubtful else None
                    fresh.append(linked(arrival, parent_id=letter.id, duplicate_of=copy_of))
        # They leave no letter of their own: so that a second try of this batch finds them.
        noted = [(to_octets(id_), back.letter.id) for id_, back in self.done.items()]
        await claim_identities(self._connection, noted)
        return fresh

    async def _sent_to_all(self) -> set[str]:
        """Of the replays that sent the letters, those that a person had send to an exchange; others
        did by a policy. Of one that is deleted only what has come back since has a queue, and it
        may have been either."""
        sendings = [each for some in self._sendings.values() for each in some]
        found = await self._destinations({each.replay_id for each in sendings if each.replay_id})
        gone = {
            each.replay_id
            for each in sendings
            if each.queue is None and each.replay_id and each.replay_id not in found
        }
        return gone | {
            id_
            for id_, destination in found.items()
            if destination is not None and read_destination(destination).exchange is not None
        }

    async def _destinations(self, replays: Iterable[str]) -> dict[str, str | None]:
        """What a person said of where each replay sends, if it is still there."""
        replay = redrive_replay.c
        found: dict[str, str | None] = {}
        for some in chunks(sorted(replays)):
            query = select(replay.id, replay.destination).where(replay.id.in_(some))
            rows = (await self._connection.execute(query)).all()
            found.update((id_, destination) for id_, destination in rows)
        return found

    async def _take_back(self, letter: Letter, back: CameBack, came: Letter) -> Letter:
        """The letter as it is afterwards."""
        self.deltas[letter.fingerprint, RETURNED] += 1
        if not back.settles:
            return letter
        if back.sending.queue is not None:
            self.failures[letter.vhost, back.sending.queue] += 1
        await self._settle(letter.id, back, came.queue)
        if back.newest:
            letter = await self._revive(letter, came, moves=back.moves)
            self._letters[letter.id] = letter
        return letter

    async def _settle(self, letter_id: str, back: CameBack, queue: str | None) -> None:
        """The sending has failed; of one to an exchange, it is known now where."""
        settled = replace(back.sending, result=Result.RETURNED)
        if back.moves:
            settled = replace(settled, queue=queue)
        attempt = redrive_attempt.c
        await self._connection.execute(
            update(redrive_attempt)
            .where(attempt.letter_id == letter_id, attempt.generation == settled.generation)
            .values(result=settled.result.value, queue=settled.queue)
        )
        self._sendings[letter_id] = [
            settled if each is back.sending else each for each in self._sendings[letter_id]
        ]
        self.counts[metrics.ATTEMPTS.name, settled.result.value] += 1

    async def _revive(self, letter: Letter, came: Letter, *, moves: bool) -> Letter:
        """The letter goes where its next revival is decided on, with what failed this time."""
        outcome = on_return(letter.status, letter.dlq_retry_count, self._max_revivals)
        changed = outcome.status is not letter.status
        at = await self._clock.now(self._connection)
        values: dict[str, Any] = {
            **UNLOCKED,
            **{name: getattr(came, name) for name in _OF_FAILURE},
            "status": require(letter.status, outcome.status) if changed else letter.status,
            "dlq_retry_count": outcome.revivals,
            "fingerprint": group_of_return(letter, came),
            "strategy": None,
            "next_retry_at": at if outcome.status is State.PENDING else None,
            "verdict_due_at": None,
            "resolution": None,
            "updated_at": at,
        }
        if moves and came.queue not in (None, letter.queue):  # else no index has to know
            values |= {name: getattr(came, name) for name in _ORIGIN}
            values["fingerprint"] = came.fingerprint  # groups are of one queue
        now = replace(letter, deaths=came.deaths, **values)
        await self._connection.execute(
            update(redrive_letter)
            .where(redrive_letter.c.id == letter.id)
            .values(**values, deaths=deaths_text(now.deaths))
        )
        if changed:
            await self._note(letter, now, outcome.reason)
        self.deltas[letter.fingerprint, letter.status.value] -= 1
        self.deltas[now.fingerprint, now.status.value] += 1
        return now

    async def _note(self, letter: Letter, now: Letter, reason: str) -> None:
        count_entry(self.counts, letter, now.status, now.updated_at)
        await self._connection.execute(
            insert(redrive_history).values(
                letter_id=letter.id,
                at=now.updated_at,
                actor=_ACTOR,
                before=letter.status,
                after=now.status,
                reason=reason,
            )
        )


def linked(
    arrival: Arrival,
    *,
    parent_id: str | None = None,
    previous_id: str | None = None,
    duplicate_of: str | None = None,
) -> Arrival:
    """An arrival with what its letter is to others."""
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
