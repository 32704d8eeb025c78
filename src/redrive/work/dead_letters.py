"""How a message goes to the dead letter queue, and what happens when that fails too."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from redrive.amqp import Delivery, Properties, Publish, Refused, Returned, fields
from redrive.amqp.fields import octets
from redrive.domain import headers
from redrive.domain.retry import Dead
from redrive.work.mover import Stay
from redrive.work.republish import Draft

_ERROR_TYPE: Final = octets(headers.ERROR_TYPE)
_ERROR_REASON: Final = octets(headers.ERROR_REASON)
_WAIT_FOR_ROOM: Final = timedelta(seconds=5)


class Route(NamedTuple):
    """Where a message goes: an exchange and a routing key."""

    exchange: str
    routing_key: str


class DeadLetters:
    """Sends what is not retried any more to where dead letters are kept."""

    def __init__(self, route: Route) -> None:
        self._route = route

    def from_draft(self, delivery: Delivery, draft: Draft, dead: Dead) -> Publish:
        """A failed message that is not retried. What its consumer said of the error stays."""
        draft.ours.setdefault(_ERROR_TYPE, fields.longstr(dead.error_type))
        draft.ours.setdefault(_ERROR_REASON, fields.longstr(dead.reason))
        return self._publish(draft.seal(), delivery.body)

    def after(self, sent: Publish, reason: str) -> Publish:
        """A message that was on its way elsewhere and got stuck."""
        properties = Properties.read(sent.properties)
        before = properties.header(headers.ERROR_REASON)
        if isinstance(before, str) and before:
            reason = f"{reason} (the failure before: {before})"
        put = {
            headers.ERROR_TYPE: fields.longstr("UNDELIVERABLE"),
            headers.ERROR_REASON: fields.longstr(reason),
        }
        return self._publish(properties.with_headers(put, remove=("BCC",)).raw, sent.body)

    def is_bound_for(self, sent: Publish) -> bool:
        return sent.exchange == self._route.exchange

    def stuck(self, outcome: Returned | Refused) -> Stay:
        why = "is full" if isinstance(outcome, Refused) else f"is missing ({outcome.reason})"
        return Stay(f"the dead letter queue behind {self._route.exchange!r} {why}", _WAIT_FOR_ROOM)

    def _publish(self, properties: bytes, body: bytes) -> Publish:
        return Publish(self._route.exchange, self._route.routing_key, properties, body)
