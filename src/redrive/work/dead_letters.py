"""How a message goes to the dead letter queue, and what happens when that fails too.

It goes by the dead letter exchange. A queue that is full refuses it, and not for the others that
are bound there: they have it. So what was refused is sent on to the dead letter queue alone, marked
as a possible second copy, until it has room; whoever may not write to a queue by its name tries the
exchange again.

What its consumer said of the failure stays: Redrive's own trouble with the message goes in front of
the reason, and never in place of the error's type.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from redrive.amqp import Delivery, Properties, Publish, Refused, Returned, fields
from redrive.amqp.fields import octets, text_of
from redrive.amqp.ours import count_of
from redrive.amqp.republish import Draft, marked_redelivered, shortened
from redrive.domain import headers
from redrive.domain.retry import Dead
from redrive.work.mover import Instruction, Later, Park, Stay

_ERROR_TYPE: Final = octets(headers.ERROR_TYPE)
_ERROR_REASON: Final = octets(headers.ERROR_REASON)
_FORBIDDEN: Final = 403
_WAIT_FOR_ROOM: Final = timedelta(seconds=5)
_LONGEST_WAIT: Final = timedelta(minutes=20)
"""How long a message is held that nobody takes. Each return counts towards a foreign queue's
delivery limit, so seldom; but well within the 30 minutes after which a broker takes a delivery back
itself."""


class Route(NamedTuple):
    """Where a message goes: an exchange and a routing key."""

    exchange: str
    routing_key: str


class DeadLetters:
    """Sends what is not retried any more to where dead letters are kept."""

    def __init__(self, route: Route, queue: str, *, parks: bool = False) -> None:
        """The way there, and the queue at its end. `parks`: what is rejected in the queue that is
        read is known to arrive there too."""
        self._route = route
        self._queue = Route("", queue)
        self._may_name_it = True
        self._parks = parks

    def from_draft(self, delivery: Delivery, draft: Draft, dead: Dead) -> Publish:
        """A failed message that is not retried. What its consumer said of the error stays."""
        for name, text in ((_ERROR_TYPE, dead.error_type), (_ERROR_REASON, dead.reason)):
            if text_of(draft.ours.get(name)) is None:
                draft.ours[name] = fields.longstr(text)
        return self._publish(draft.seal(), delivery.body)

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
        if self._parks:
            return Park(reason)
        return Stay(f"{reason}; its queue does not dead-letter as Redrive's do", _LONGEST_WAIT)

    def is_bound_for(self, sent: Publish) -> bool:
        return sent.exchange == self._route.exchange or isinstance(sent, _Stuck)

    def stuck(self, sent: Publish, outcome: Returned | Refused) -> Instruction:
        """What to do with a message that the dead letter queue did not take."""
        where = f"the dead letter queue behind {self._route.exchange!r}"
        reason = f"{where} {trouble(outcome)}; {_remedy(outcome)}"
        waited = sent.waited if isinstance(sent, _Stuck) else timedelta()
        if waited >= _LONGEST_WAIT:
            return Stay(reason, timedelta())
        by_name = (sent.exchange, sent.routing_key) == self._queue
        if by_name and isinstance(outcome, Returned):
            self._may_name_it = self._may_name_it and outcome.code != _FORBIDDEN
        route, raw, at_once = self._route, sent.properties, False
        if isinstance(outcome, Refused):
            raw = marked_redelivered(raw)
            if self._may_name_it:
                route, at_once = self._queue, not by_name
        again = _Stuck(*route, raw, sent.body)
        again.waited = waited if at_once else waited + _WAIT_FOR_ROOM
        return again if at_once else Later(again, reason, _WAIT_FOR_ROOM)

    def _publish(self, properties: bytes, body: bytes) -> Publish:
        return Publish(self._route.exchange, self._route.routing_key, properties, body)


class _Stuck(Publish):
    """A message that the dead letter queue did not take before."""

    __slots__ = ("waited",)

    waited: timedelta


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
