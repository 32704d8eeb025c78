"""Whether letters that a worker would send go now: only to queues with room for them, and, where
the strategy asks for it, only by a breaker that admits them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.breaker import BreakerLimits, held_by
from redrive.domain.letter import Letter
from redrive.domain.revival import FULL_AGAIN, Decision, Postpone, Send
from redrive.store.breakers import Gate, gate_of
from redrive.store.fitting import Fitting, Room


@dataclass(frozen=True, slots=True)
class Admission:
    """Of the letters of one transaction."""

    fitting: Fitting
    gate: Gate
    now: datetime

    async def of(self, letter: Letter, decision: Decision) -> Decision | None:
        """What becomes of a letter after all. None: it stays due, because somebody has to look at
        its queue first."""
        if not isinstance(decision, Send) or decision.queue is None:
            return decision
        # Before the breaker, which reckons with a letter that it admits.
        if not self.fitting.take(letter.id):
            why = self.fitting.full.get(decision.queue)
            return None if why is None else _later(decision, self.now + FULL_AGAIN, why)
        if decision.gated:
            answer = await self.gate.admit((letter.vhost, decision.queue))
            if not answer.admitted:
                return _later(decision, answer.again_at, held_by(decision.queue))
        return decision


def _later(decision: Send, at: datetime, reason: str) -> Postpone:
    return Postpone(at=at, strategy=decision.strategy, reason=reason, noted=False)


async def admission_of(
    connection: AsyncConnection,
    decided: Sequence[tuple[Letter, Decision]],
    now: datetime,
    limits: BreakerLimits,
    room: Room,
) -> Admission:
    """Of these letters, with what was decided of each."""
    sent = [
        (letter, decision.queue, decision.gated)
        for letter, decision in decided
        if isinstance(decision, Send) and decision.queue is not None
    ]
    fitting = Fitting(room, {letter.id: queue for letter, queue, _ in sent})
    await fitting.weigh(connection)
    gated = {(letter.vhost, queue) for letter, queue, gated in sent if gated}
    return Admission(fitting, await gate_of(connection, gated, now, limits), now)
