"""What is noted on a message before it goes elsewhere: where it failed, and an id.

The broker forgets both when a message is published again, and the new queue's name takes the
routing key's place. The id is derived (ADR 0005): a second copy after a crash has the same.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from redrive.amqp import Delivery, fields
from redrive.amqp.fields import octets
from redrive.amqp.ours import drop_wrong_types, forget_words, identity, move_on
from redrive.amqp.republish import Draft
from redrive.domain import headers
from redrive.domain.deaths import NotOrigins
from redrive.domain.failure import UNSAID
from redrive.work.origin import Origin, Origins

_ID: Final = octets(headers.ID)
_QUEUE: Final = octets(headers.QUEUE)
_EXCHANGE: Final = octets(headers.EXCHANGE)
_ROUTING_KEY: Final = octets(headers.ROUTING_KEY)
_FIRST_FAILED_AT: Final = octets(headers.FIRST_FAILED_AT)
_NOWHERE: Final = Origin("", b"")


class Notes:
    """Opens deliveries of one queue for a copy that goes to another."""

    def __init__(self, own_queues: Container[str], queue: str) -> None:
        self._origins = Origins(NotOrigins(own_queues, queue))

    def draft(self, delivery: Delivery, user: str) -> Draft:
        """The delivery, opened, with its origin and its id noted. `Unpublishable` if it is."""
        draft = Draft(delivery, user)
        ours = draft.ours
        drop_wrong_types(ours)
        origin = self._origins.of(draft.x_death)
        if origin is not None:
            self._note(draft, origin)
        if _ROUTING_KEY not in ours:
            ours[_EXCHANGE] = fields.longstr(octets(delivery.exchange))
            ours[_ROUTING_KEY] = fields.longstr(octets(delivery.routing_key))
        if _ID not in ours:
            ours[_ID] = identity(delivery, draft, (origin or _NOWHERE).in_words)
        return draft

    def _note(self, draft: Draft, origin: Origin) -> None:
        ours = draft.ours
        if ours.get(_QUEUE) != origin.queue_field:
            # It has moved on: what was noted is of another failure.
            if _QUEUE in ours:
                move_on(ours, origin.queue_field, origin.exchange, origin.routing_key)
            ours[_QUEUE] = origin.queue_field
        elif origin.reason in UNSAID:
            forget_words(ours)
        if origin.routing_key is not None and _ROUTING_KEY not in ours:
            ours[_EXCHANGE] = origin.exchange or fields.longstr("")
            ours[_ROUTING_KEY] = origin.routing_key
        if _FIRST_FAILED_AT not in ours and (at := origin.at(draft.x_death)) is not None:
            ours[_FIRST_FAILED_AT] = at
