"""How long the first messages of a delay queue wait: their own TTLs, front to back.

Guarantees: what is read goes back in its order, at no cost where the caller has made sure that the
queue's type and the broker's version allow it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from redrive.amqp import Delivery, Publish, Refused, Returned
from redrive.amqp.lane import Connect
from redrive.amqp.properties import Properties
from redrive.broker.doctor.view import Waiting
from redrive.errors import MalformedData
from redrive.work.mover import Hold
from redrive.work.one_pass import OnePass

MOST: Final = 100


class _Waits:
    """The plan: read each message's TTL, hold it."""

    def __init__(self) -> None:
        self.seen: list[timedelta | None] = []

    def decide(self, delivery: Delivery, user: str) -> Hold:
        self.seen.append(_ttl(delivery.properties))
        return Hold()

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Hold:
        raise AssertionError("nothing was sent")

    def poisoned(self, delivery: Delivery, reason: str) -> Hold:
        return Hold(reason)


async def waits_of(connect: Connect, queue: str, kind: str) -> Waiting:
    """The TTLs of the first messages of a queue that must be there.

    To take the first message away lets go those behind it that have waited long enough, as the
    broker would have if they had not stood behind it: they are not seen, and counted as overdue.
    Where all that were seen wait alike, what is not seen went by itself, in its time.
    """
    plan = _Waits()
    look = OnePass(queue, plan, connect=connect, most=MOST, classic=kind == "classic")
    passed = await look.run()
    ttls = tuple(plan.seen)
    mixed = len(set(ttls)) > 1 or len(ttls) == 1
    unseen = min(passed.present, MOST) - len(ttls)
    return Waiting(ttls, overdue=max(0, unseen) if mixed else 0)


def _ttl(properties: bytes) -> timedelta | None:
    try:
        expiration = Properties.read(properties).get("expiration")
        return None if expiration is None else timedelta(milliseconds=int(str(expiration)))
    except (MalformedData, ValueError, OverflowError):
        return None
