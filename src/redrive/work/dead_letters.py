"""How a message goes to the dead letter queue, and what happens when that fails too.

It goes by the dead letter exchange. A queue that is full refuses it, and not for the others that
are bound there: they have it. So what was refused is sent on to the dead letter queue alone, marked
as a possible second copy, until it has room.

By the exchange it is tried again where that is missing or forbidden, or where we may not write to a
queue by its name. Each such try closes the channel on what is on its way, or gives the other queues
a copy more. So one message tries at a time, ever more seldom, and the others wait (`turns.py`),
also those that come meanwhile.

What its consumer said of the failure stays: Redrive's own trouble with the message goes in front of
the reason, and never in place of the error's type.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

from redrive.amqp import Delivery, Properties, Publish, Refused, Returned, fields
from redrive.amqp.fields import octets, text_of
from redrive.amqp.ours import count_of
from redrive.amqp.republish import Draft, marked_redelivered, shortened
from redrive.domain import headers
from redrive.domain.retry import Dead
from redrive.work.mover import Instruction, Later, Park, Stay
from redrive.work.turns import Turns

_ERROR_TYPE: Final = octets(headers.ERROR_TYPE)
_ERROR_REASON: Final = octets(headers.ERROR_REASON)
_FORBIDDEN: Final = 403
_WAIT_FOR_ROOM: Final = timedelta(seconds=5)
_LONGEST_PAUSE: Final = timedelta(minutes=1)
"""Between two tries of an exchange that is missing or forbidden."""
_LONGEST_PAUSE_OF_FULL: Final = timedelta(minutes=10)
"""Between two tries of an exchange with a full queue, of which others get a copy."""
_MAY_BE_DROPPED: Final = (
    "and what is rejected in its queue is not known to be kept: run 'redrive topology check'"
)
_LONGEST_WAIT: Final = timedelta(minutes=20)
"""How long a message is held that nobody takes. Each return counts towards a foreign queue's
delivery limit, so seldom; but well within the 30 minutes after which a broker takes a delivery back
itself."""


Parks = Callable[[], Awaitable[bool]]
"""Finds out whether what is rejected in the queue that is read arrives in the dead letter queue."""


class Route(NamedTuple):
    """Where a message goes: an exchange and a routing key."""

    exchange: str
    routing_key: str


class DeadLetters:
    """Sends what is not retried any more to where dead letters are kept."""

    def __init__(self, route: Route, queue: str, *, parks: Parks | None = None) -> None:
        """The way there, and the queue at its end."""
        self._route = route
        self._queue = Route("", queue)
        self._may_name_it = True
        self._parks = parks
        self._turns = Turns()
        self._why = ""  # others wait for their turn

    def from_draft(self, delivery: Delivery, draft: Draft, dead: Dead) -> Instruction:
        """A failed message that is not retried. What its consumer said of the error stays."""
        for name, text in ((_ERROR_TYPE, dead.error_type), (_ERROR_REASON, dead.reason)):
            if text_of(draft.ours.get(name)) is None:
                draft.ours[name] = fields.longstr(text)
        return self.in_turn(self._publish(draft.seal(), delivery.body))

    def after(self, sent: Publish, reason: str, *, retried: bool = True) -> Publish:
        """A message that was on its way elsewhere and got stuck. Where that was the beginning of a
        retry, it was not `retried`, and is not counted as that."""
        properties = Properties.read(sent.properties)
        remove, put = ["BCC"], dict[str, bytes]()
        if not retried:
            if made := count_of(properties.header_field(headers.ATTEMPT)) - 1:
                put[headers.ATTEMPT] = fields.int32(made)
            else:
                remove.append(headers.ATTEMPT)
        if not text_of(properties.header_field(headers.ERROR_TYPE)):
            put[headers.ERROR_TYPE] = fields.longstr("UNDELIVERABLE")
        if before := text_of(properties.header_field(headers.ERROR_REASON)):
            reason = f"{reason} (the failure before: {before})"
        put[headers.ERROR_REASON] = fields.longstr(reason)
        properties = shortened(properties.with_headers(put, remove=remove))
        return self._publish(properties.raw, sent.body)

    def poisoned(self, reason: str) -> Park | Stay:
        """A message that cannot be sent: parked unchanged where that is safe, else it stays."""
        stay = Stay(f"{reason}; {_MAY_BE_DROPPED}", _LONGEST_WAIT)
        if self._parks is None:
            return stay
        return Park(reason, partial(_unless, self._parks, stay))

    def is_bound_for(self, sent: Publish) -> bool:
        return sent.exchange == self._route.exchange or isinstance(sent, _Stuck)

    def stuck(self, sent: Publish, outcome: Returned | Refused) -> Instruction:
        """What to do with a message that the dead letter queue did not take."""
        where = f"the dead letter queue behind {self._route.exchange!r}"
        reason = f"{where} {trouble(outcome)}; {_remedy(outcome)}"
        waited = sent.waited if isinstance(sent, _Stuck) else timedelta()
        by_name = (sent.exchange, sent.routing_key) == self._queue
        if by_name and isinstance(outcome, Returned):
            self._may_name_it = self._may_name_it and outcome.code != _FORBIDDEN
        if isinstance(outcome, Refused):
            raw = marked_redelivered(sent.properties)
            if self._may_name_it:
                alone = _Stuck(*self._queue, raw, sent.body, waited)
                if not by_name:
                    return alone
                if waited >= _LONGEST_WAIT:
                    return Stay(reason, timedelta())
                alone.waited += _WAIT_FOR_ROOM
                return Later(alone, reason, _WAIT_FOR_ROOM)
            longest = _LONGEST_PAUSE_OF_FULL
        else:
            raw, longest = sent.properties, _LONGEST_PAUSE
        self._why = reason
        self._turns.failed(_WAIT_FOR_ROOM, longest)
        again = _Stuck(*self._route, raw, sent.body, waited)
        return self._wait_for_turn(again) or again

    def in_turn(self, publish: Publish) -> Instruction:
        """A message on its way by the exchange; if others wait for that, it waits among them."""
        if self._turns.is_open:
            return publish
        waits = _Stuck(publish.exchange, publish.routing_key, publish.properties, publish.body)
        return self._wait_for_turn(waits) or waits

    def _wait_for_turn(self, stuck: _Stuck) -> Later | Stay | None:
        """What to do with a message until it may be tried; None if it may now."""
        wait = self._turns.take()
        if not wait:
            return None
        wait = min(wait, _LONGEST_WAIT - stuck.waited)
        if wait <= timedelta():
            return Stay(self._why, timedelta())
        stuck.waited += wait
        return Later(stuck, self._why, wait, instead=partial(self._wait_for_turn, stuck))

    def _publish(self, properties: bytes, body: bytes) -> Publish:
        return Publish(self._route.exchange, self._route.routing_key, properties, body)


class _Stuck(Publish):
    """A message that the dead letter queue did not take before, or that waits for its turn."""

    __slots__ = ("waited",)

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        waited: timedelta = timedelta(),
    ) -> None:
        super().__init__(exchange, routing_key, properties, body)
        self.waited = waited


async def _unless(parks: Parks, stay: Stay) -> Stay | None:
    return None if await parks() else stay


def trouble(outcome: Returned | Refused) -> str:
    """What is the matter with a queue that did not take a message."""
    if isinstance(outcome, Refused):
        return "is full"
    if outcome.code == _FORBIDDEN:
        return f"is refused to us ({outcome.reason})"
    return f"is missing ({outcome.reason})"


def _remedy(outcome: Returned | Refused) -> str:
    """What to do about a dead letter queue that did not take a message."""
    if isinstance(outcome, Refused):
        return "make room in it, or raise its limit"
    if outcome.code == _FORBIDDEN:
        return "grant the user write permission on what the text names"
    return "run 'redrive topology apply'"
