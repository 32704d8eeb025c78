"""What the consumer publishes instead of what it was delivered: a copy for each thing that may
become of a message.

Every copy says where the message belongs, how often it was tried, and what its handler said; the
retrier reads the same headers. What the publisher sent stays byte for byte (`amqp/republish.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from redrive.amqp import Delivery, Publish, fields
from redrive.amqp.fields import octets, text_of
from redrive.amqp.ours import count_of, drop_wrong_types, identity, move_on
from redrive.amqp.republish import Draft, marked_redelivered
from redrive.broker.ladder import RUNGS, next_rung, rung_name
from redrive.broker.topology import tier_key
from redrive.consumer.queues import Declared
from redrive.domain import headers
from redrive.domain.failure import MAX_TYPE, Failure
from redrive.domain.handling import CRASH, Acked, DeadLettered, Delayed, LeftToPolicy, Outcome
from redrive.settings.sections import TopologySettings

_ID: Final = octets(headers.ID)
_ATTEMPT: Final = octets(headers.ATTEMPT)
_QUEUE: Final = octets(headers.QUEUE)
_EXCHANGE: Final = octets(headers.EXCHANGE)
_ROUTING_KEY: Final = octets(headers.ROUTING_KEY)
_FIRST_FAILED_AT: Final = octets(headers.FIRST_FAILED_AT)
_NOT_BEFORE: Final = octets(headers.NOT_BEFORE)
_CRASHES: Final = octets(headers.CRASHES)
_ERROR_TYPE: Final = octets(headers.ERROR_TYPE)
_ERROR_REASON: Final = octets(headers.ERROR_REASON)
_ERROR_STACK: Final = octets(headers.ERROR_STACK)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LONGEST_KEY: Final = 255


@dataclass(frozen=True, slots=True)
class Way:
    """Where a copy goes."""

    exchange: str
    routing_key: str


class Copies:
    """Makes the copies of one queue's messages."""

    def __init__(
        self,
        declared: Declared,
        topology: TopologySettings,
        *,
        user: str,
        dead_letter_exchange: str | None = None,
    ) -> None:
        """`user` is whom the broker knows us as."""
        self._queue = fields.longstr(declared.name)
        self._in_words = octets(f"rejected 1 {declared.name}")
        self._again = Way("", declared.again)
        self._alone = Way("", declared.alone)
        self._topology = topology
        self._user = user
        self._dead_letter_exchange = dead_letter_exchange

    def of(self, delivery: Delivery, outcome: Outcome) -> Publish:
        """The copy for what should become of a message. Raises `Unpublishable`."""
        assert not isinstance(outcome, Acked)
        draft = self._noted(delivery)
        self._fail(draft, outcome.failure)
        names, ours = self._topology.names, draft.ours
        routing_key = text_of(ours[_ROUTING_KEY]) or ""
        if len(octets(routing_key)) > _LONGEST_KEY:  # nobody published it with that
            routing_key = delivery.routing_key
        if isinstance(outcome, DeadLettered):
            ours.pop(_CRASHES, None)
            return self._publish(draft, delivery, self._dead(routing_key))
        if isinstance(outcome, LeftToPolicy):
            way = Way(names.retry_exchange, names.retry_routing_key)
            return self._publish(draft, delivery, way)
        ours[_ATTEMPT] = fields.int32(outcome.attempt)
        if isinstance(outcome, Delayed):
            due = time.time_ns() // 1_000_000 + outcome.delay // _MILLISECOND
            ours[_NOT_BEFORE] = fields.int64(due)
            rung = next_rung(outcome.delay) or RUNGS[0]
            way = Way("", rung_name(self._topology.prefix, rung))
        else:
            way = Way(names.route_delay, tier_key(routing_key, outcome.tier))
        return self._publish(draft, delivery, way)

    def again(self, delivery: Delivery) -> Publish:
        """The copy that is to be handled again, among others."""
        return self._publish(self._noted(delivery), delivery, self._again)

    def alone(self, delivery: Delivery) -> Publish:
        """The copy that is to be handled alone."""
        return self._publish(self._noted(delivery), delivery, self._alone)

    def is_dead_letter(self, publish: Publish) -> bool:
        """Whether a copy is bound for the dead letter queue."""
        return publish.exchange == self._dead("").exchange

    def once_more(self, first: Publish, sent: Publish, *, refused: bool) -> Publish:
        """A dead letter that was not taken, for another try.

        A queue that is full refuses it for itself only: the others that its exchange has got it,
        and would at every try. So it is marked, and goes to the dead letter queue by its name where
        that is Redrive's.
        """
        names, raw = self._topology.names, sent.properties
        way = Way(first.exchange, first.routing_key)
        if refused:
            raw = marked_redelivered(raw)
            if first.exchange == names.dlq_exchange:
                way = Way("", names.dlq_queue)
        return Publish(way.exchange, way.routing_key, raw, sent.body)

    def _dead(self, routing_key: str) -> Way:
        names = self._topology.names
        if self._dead_letter_exchange is not None:
            return Way(self._dead_letter_exchange, routing_key)
        return Way(names.dlq_exchange, names.dlq_routing_key)

    def _publish(self, draft: Draft, delivery: Delivery, way: Way) -> Publish:
        return Publish(way.exchange, way.routing_key, draft.seal(), delivery.body)

    def _noted(self, delivery: Delivery) -> Draft:
        """The delivery, opened, with where it belongs and its id noted."""
        draft = Draft(delivery, self._user)
        ours = draft.ours
        drop_wrong_types(ours)
        exchange = fields.longstr(octets(delivery.exchange))
        routing_key = fields.longstr(octets(delivery.routing_key))
        if ours.get(_QUEUE) != self._queue:
            # It has moved on: what was noted is of another queue.
            move_on(ours, self._queue, exchange, routing_key)
        if _ROUTING_KEY not in ours:
            ours[_EXCHANGE], ours[_ROUTING_KEY] = exchange, routing_key
        ours.setdefault(_EXCHANGE, fields.longstr(""))
        if _ID not in ours:
            ours[_ID] = identity(delivery, draft, self._in_words)
        ours.pop(_NOT_BEFORE, None)
        return draft

    def _fail(self, draft: Draft, failure: Failure) -> None:
        """Note a failure: as a death, and in the headers that say what went wrong."""
        ours = draft.ours
        now = fields.timestamp(datetime.now(UTC))
        ours.setdefault(_FIRST_FAILED_AT, now)
        draft.add_death(
            fields.table(
                {
                    "count": fields.int64(1),
                    "reason": fields.longstr("rejected"),
                    "queue": self._queue,
                    "time": now,
                    "exchange": ours[_EXCHANGE],
                    "routing-keys": fields.array([ours[_ROUTING_KEY]]),
                }
            )
        )
        ours[_ERROR_TYPE] = fields.longstr(_sendable(failure.error_type[:MAX_TYPE]))
        ours[_ERROR_REASON] = fields.longstr(_sendable(failure.reason))
        if failure.stack:
            ours[_ERROR_STACK] = fields.longstr(_sendable(failure.stack))
        else:
            ours.pop(_ERROR_STACK, None)
        if failure.error_type == CRASH:
            ours[_CRASHES] = fields.int32(count_of(ours.get(_CRASHES)) + 1)


def _sendable(text: str) -> bytes:
    return text.encode("utf-8", "replace")
