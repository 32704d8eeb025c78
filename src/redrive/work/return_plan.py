"""What to do with what has waited: back to the queue where it failed, and only there.

The copy is published to the return exchange with its original routing key; a `BCC` header, which
the broker strips, names the one queue. A queue that is not bound (yet) is looked for and bound; one
that is full, or whose node is down, makes the message wait in the last tier again, its attempts
unchanged.
"""

from __future__ import annotations

from typing import Final

from redrive.amqp import Delivery, Properties, Publish, Refused, Returned, fields
from redrive.amqp.fields import octets
from redrive.broker.topology import return_key
from redrive.domain import headers
from redrive.domain.retry import Dead
from redrive.work.dead_letters import DeadLetters, Route
from redrive.work.mover import Instruction, Park, Stay
from redrive.work.origin import text_of
from redrive.work.republish import Draft
from redrive.work.retry_plan import Policies, RetryNames
from redrive.work.return_path import Down, ReturnPath, Unreachable

_QUEUE: Final = octets(headers.QUEUE)
_EXCHANGE: Final = octets(headers.EXCHANGE)
_ROUTING_KEY: Final = octets(headers.ROUTING_KEY)


class ReturnPlan:
    """The plan for the deliveries of `retry-queue-N`."""

    def __init__(
        self,
        names: RetryNames,
        policies: Policies,
        path: ReturnPath,
        *,
        tier_again: Route,
        parks: bool = False,
    ) -> None:
        """`tier_again` is where a message waits once more when its queue is full.
        `parks`: what is rejected in the queue that is read arrives in the dead letter queue."""
        self._names = names
        self._policies = policies
        self._path = path
        self._tier_again = tier_again
        self._dead_letters = DeadLetters(names.dead, parks=parks)

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        draft = Draft(delivery, user)
        queue, key = text_of(draft.ours.get(_QUEUE)), text_of(draft.ours.get(_ROUTING_KEY))
        exchange = text_of(draft.ours.get(_EXCHANGE))
        if queue is None or key is None or len(octets(key)) > 255:
            dead = Dead("UNKNOWN", "no origin known: its redrive-* headers are broken")
            return self._dead_letters.from_draft(delivery, draft, dead)
        policy = self._policies().find(key)
        if policy is not None and policy.return_to == "exchange" and exchange is not None:
            return Publish(exchange, key, draft.seal(keep_deaths=False), delivery.body)
        bcc = {b"BCC": fields.array((fields.longstr(return_key(queue)),))}
        properties = draft.seal(keep_deaths=False, only_on_the_way=bcc)
        return Publish(self._names.return_exchange, key, properties, delivery.body)

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Instruction:
        if self._dead_letters.is_bound_for(sent):
            return self._dead_letters.stuck(outcome)
        properties = Properties.read(sent.properties)
        if isinstance(outcome, Refused):
            return self._wait_again(sent, properties, "its queue is full")
        if sent.exchange != self._names.return_exchange or isinstance(sent, _SecondTry):
            reason = f"no queue took it back: {outcome.reason} from exchange {sent.exchange!r}"
            return self._dead_letters.after(sent, reason)
        return await self._restore(sent, properties)

    async def _restore(self, sent: Publish, properties: Properties) -> Publish:
        """Find its queue, which nothing is bound for, and send it once more."""
        try:
            bindable = await self._path.restore(_text(properties, headers.QUEUE))
        except Unreachable as error:
            if isinstance(error, Down):
                return self._wait_again(sent, properties, str(error))
            return self._dead_letters.after(sent, str(error))
        if bindable:
            return _SecondTry(sent.exchange, sent.routing_key, sent.properties, sent.body)
        # A queue that only its owner's connection may touch: by the way it came.
        by = Route(exchange=_text(properties, headers.EXCHANGE), routing_key=sent.routing_key)
        return _sent_by(by, properties, sent.body)

    def _wait_again(self, sent: Publish, properties: Properties, why: str) -> Publish:
        if sent.exchange == self._tier_again.exchange:
            return self._dead_letters.after(sent, f"{why}, and so is the last tier")
        return _sent_by(self._tier_again, properties, sent.body)

    def poisoned(self, delivery: Delivery, reason: str) -> Park | Stay:
        return self._dead_letters.poisoned(reason)


def _sent_by(route: Route, properties: Properties, body: bytes) -> Publish:
    raw = properties.with_headers({}, remove=("BCC",)).raw
    return Publish(route.exchange, route.routing_key, raw, body)


def _text(properties: Properties, name: str) -> str:
    """A header of ours as text that keeps bytes which are not UTF-8."""
    return text_of(properties.header_field(name)) or ""


class _SecondTry(Publish):
    """A return that was sent once more after its binding was restored."""

    __slots__ = ()
