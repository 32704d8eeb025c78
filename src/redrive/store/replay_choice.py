"""Which of the next letters of a replay are sent, which are left out, and where it stops.

Decided in the transaction that claims them, with the letters locked: nobody changes them between
the decision and the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.breaker import BreakerLimits
from redrive.domain.letter import Head, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import GONE, NO_ORIGIN, Destination, Replay, why_not
from redrive.domain.verdict import OUTSTANDING
from redrive.store.breakers import gate_of
from redrive.store.changing import chunks
from redrive.store.details import last_sendings
from redrive.store.fitting import Fitting, Room
from redrive.store.schema import redrive_attempt, redrive_history
from redrive.store.sendings import MOST_BYTES, Order, copied_of

_ATTEMPT: Final = redrive_attempt.c
_HISTORY: Final = redrive_history.c
_STRATEGY: Final = "manual"
_MAKE_ROOM: Final = "make room in it, or cancel this and replay the rest with --drop-oldest"


class Chooser:
    """Goes through the next letters of a job: which are sent, which are left out, where to stop."""

    def __init__(
        self,
        connection: AsyncConnection,
        replay: Replay,
        now: datetime,
        limits: BreakerLimits,
        destination_of: Callable[[Letter | Head], Destination | None],
    ) -> None:
        self._connection = connection
        self._replay = replay
        self._now = now
        self._limits = limits
        self._destination_of = destination_of
        self.taken = 0
        self.skipped: list[tuple[str, str]] = []
        self.wait_until: datetime | None = None
        self.held_by: str | None = None
        self.look_at: set[str] = set()
        """Queues that have to be looked at before the next letter goes."""
        self.full = ""
        """Why the next letter does not go, if its queue would push out others for it."""

    async def choose(self, ids: Sequence[str], letters: dict[str, Head], room: Room) -> list[Order]:
        judged = await self._judge(ids, letters)
        going = {
            id_: there.queue
            for id_, there in judged
            if isinstance(there, Destination) and there.queue is not None
        }
        fitting = Fitting(room, going)
        self.look_at = fitting.look_at
        if self.look_at:
            return []
        await fitting.weigh(self._connection)
        places = {(self._replay.vhost, queue) for queue in going.values()}
        gate = await gate_of(self._connection, places, self._now, self._limits)
        orders: list[Order] = []
        size = 0
        for id_, there in judged:
            if isinstance(there, str):
                self.skipped.append((id_, there))
                self.taken += 1
                continue
            size += letters[id_].size
            if orders and size > MOST_BYTES:
                break
            if there.queue is not None:
                # Before the breaker, which reckons with a letter that it admits.
                if not fitting.take(id_):
                    if not orders and (why := fitting.full.get(there.queue)):
                        self.full = f"letter {id_} was not sent: {why}; {_MAKE_ROOM}"
                    break
                answer = await gate.admit((self._replay.vhost, there.queue))
                if not answer.admitted:
                    self.held_by, self.wait_until = there.queue, answer.again_at
                    break
            self.taken += 1
            orders.append(
                Order(
                    letter=letters[id_],
                    strategy=_STRATEGY,
                    queue=there.queue,
                    exchange=there.exchange,
                    replay_id=self._replay.id,
                )
            )
        return orders

    async def _judge(
        self, ids: Sequence[str], letters: dict[str, Head]
    ) -> list[tuple[str, Destination | str]]:
        """Where each letter goes, or why it does not."""
        copied = await copied_of(self._connection, ids)
        in_doubt = await in_doubt_of(self._connection, list(letters.values()))
        resolved = await self._resolved_since(list(letters.values()))
        before = await self._sent_before(list(letters.values()))
        judged: list[tuple[str, Destination | str]] = []
        for id_ in ids:
            letter = letters.get(id_)
            if letter is None:
                judged.append((id_, GONE))
                continue
            reason = why_not(
                letter,
                in_doubt=id_ in in_doubt,
                resolved_since=id_ in resolved,
                sent_before=id_ in before,
                has_copy=id_ in copied,
                doubtful=self._replay.doubtful,
            )
            judged.append((id_, reason or self._destination_of(letter) or NO_ORIGIN))
        return judged

    async def _resolved_since(self, letters: Sequence[Head]) -> set[str]:
        """Of these letters, those that were resolved after the replay was ordered: whoever did not
        ask for resolved letters has not asked for them. What it listed as something else has a
        later time in its history (see `resolving.py`)."""
        found: set[str] = set()
        resolved = [letter.id for letter in letters if letter.status is State.RESOLVED]
        for some in chunks(resolved):
            query = select(_HISTORY.letter_id).where(
                _HISTORY.letter_id.in_(some),
                _HISTORY.after == State.RESOLVED.value,
                _HISTORY.before != State.RESOLVED.value,
                _HISTORY.at >= self._replay.created_at,
            )
            found.update((await self._connection.execute(query)).scalars())
        return found

    async def _sent_before(self, letters: Sequence[Head]) -> set[str]:
        """Of these letters, those that this replay has sent: stopped by one before them, it goes
        through them a second time."""
        found: set[str] = set()
        for some in chunks([letter.id for letter in letters if letter.generation]):
            query = select(_ATTEMPT.letter_id).where(
                _ATTEMPT.letter_id.in_(some),
                _ATTEMPT.replay_id == self._replay.id,
                _ATTEMPT.result != Result.REFUSED.value,
            )
            found.update((await self._connection.execute(query)).scalars())
        return found


async def in_doubt_of(connection: AsyncConnection, letters: Sequence[Letter | Head]) -> set[str]:
    """Of these letters, those whose last sending has no verdict: it may have been consumed."""
    sent = [letter.id for letter in letters if letter.generation]
    found: set[str] = set()
    for some in chunks(sent):
        for id_, attempt in (await last_sendings(connection, some)).items():
            if attempt.result in OUTSTANDING:
                found.add(id_)
    return found
