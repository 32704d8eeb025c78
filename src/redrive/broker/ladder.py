"""The ladder: a fixed row of delay queues that together make any delay.

Each rung has one TTL, twice that of the rung below, since a queue lets messages go only in their
order: one TTL a queue. A message waits on the largest rung that does not exceed what is left, then
on the next, until its time has come, to the nearest of the smallest rung: early or late by half of
that at most, and by the broker's own lateness. What leaves a rung comes where the retrier reads
what has waited. Until the time has come the retrier sends it on to the next rung, and then back to
its queue.

The rungs are made when the first message asks for one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from redrive.broker.topology import DELIVERY_LIMIT, Argument, Queue, Topology
from redrive.settings.sections import TopologySettings

_FIRST: Final = timedelta(milliseconds=125)
_RUNGS: Final = 21
RUNGS: Final = tuple(_FIRST * 2**number for number in range(_RUNGS))
"""From an eighth of a second to a day and a half; a longer delay takes the last more than once."""
_NAME: Final = "redrive-after-"


def rung_name(prefix: str, rung: timedelta) -> str:
    """The queue of a rung."""
    return f"{prefix}{_NAME}{rung // timedelta(milliseconds=1)}ms"


def next_rung(left: timedelta) -> timedelta | None:
    """The largest rung that does not exceed what is left to wait; None if the time has come."""
    if left < _FIRST / 2:
        return None
    return max((rung for rung in RUNGS if rung <= left), default=_FIRST)


def describe_ladder(settings: TopologySettings) -> tuple[Queue, ...]:
    """The queues of every rung."""
    names = settings.names
    arguments: dict[str, Argument] = {
        "x-queue-type": settings.queue_type,
        "x-dead-letter-exchange": names.delayed_exchange.replace("{n}", "1"),
        "x-dead-letter-routing-key": "retry.#.1",
    }
    if settings.queue_type == "quorum":
        arguments["x-delivery-limit"] = DELIVERY_LIMIT
        arguments["x-dead-letter-strategy"] = "at-least-once"
        arguments["x-overflow"] = "reject-publish"
    return tuple(
        Queue(
            rung_name(settings.prefix, rung),
            {**arguments, "x-message-ttl": rung // timedelta(milliseconds=1)},
        )
        for rung in RUNGS
    )


def with_ladder(topology: Topology, settings: TopologySettings) -> Topology:
    """The topology, and every rung. After the queues that what leaves a rung comes to."""
    return replace(topology, queues=(*topology.queues, *describe_ladder(settings)))
