"""What to do with what failed: wait in a tier, or go to the dead letter queue.

Reads where and how often a message failed from its headers, which may be anyone's, asks the policy,
and writes what the next hop needs to know. Headers of wrong types count as not there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from redrive.amqp import Delivery, Publish, Refused, Returned, fields
from redrive.amqp.fields import octets
from redrive.domain import headers
from redrive.domain.policy import PolicyBook
from redrive.domain.retry import Dead, Failed, decide
from redrive.work.dead_letters import DeadLetters, Route, trouble
from redrive.work.mover import Instruction, Park, Stay
from redrive.work.origin import Origin, origin_of, text_of
from redrive.work.republish import Draft

_ID: Final = octets(headers.ID)
_ATTEMPT: Final = octets(headers.ATTEMPT)
_QUEUE: Final = octets(headers.QUEUE)
_EXCHANGE: Final = octets(headers.EXCHANGE)
_ROUTING_KEY: Final = octets(headers.ROUTING_KEY)
_FIRST_FAILED_AT: Final = octets(headers.FIRST_FAILED_AT)
_LETTER: Final = octets(headers.LETTER)
_STARTS_ANEW: Final = tuple(
    octets(name)
    for name in (
        headers.ID,
        headers.ATTEMPT,
        headers.EXCHANGE,
        headers.ROUTING_KEY,
        headers.FIRST_FAILED_AT,
        headers.LETTER,
        headers.GENERATION,
        headers.ERROR_TYPE,
        headers.ERROR_REASON,
        headers.ERROR_STACK,
    )
)
_STRING, _INTEGER = b"S", b"bBsuUIilL"
_TYPES: Final = {
    octets(name): letters
    for letters, names in (
        (
            _STRING,
            (
                headers.ID,
                headers.QUEUE,
                headers.EXCHANGE,
                headers.ROUTING_KEY,
                headers.LETTER,
                headers.ERROR_TYPE,
                headers.ERROR_REASON,
                headers.ERROR_STACK,
            ),
        ),
        (_INTEGER, (headers.ATTEMPT, headers.GENERATION)),
        (b"T", (headers.FIRST_FAILED_AT,)),
        (b"A", (headers.DEATHS,)),
        (b"t", (headers.REDELIVERED,)),
    )
    for name in names
}
"""The letters of the wire that each header may have. What is set aside keeps the original's."""
_NO_EXCHANGE: Final = fields.longstr("")
_REJECTED: Final = fields.longstr("rejected")

Policies = Callable[[], PolicyBook]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryNames:
    """The names on the broker that the retrier needs to know."""

    own_queues: Collection[str]
    route_delay: str
    dead: Route
    return_exchange: str
    tiers: int


class RetryPlan:
    """What to do with what failed: the deliveries of `retry-queue` or of a queue's `.retry`."""

    def __init__(
        self,
        names: RetryNames,
        policies: Policies,
        *,
        delay: Route | None = None,
        parks: bool = False,
    ) -> None:
        """`delay` is the one place to wait in the per-queue layout; without it, the tiers are.
        `parks`: what is rejected in the queue that is read arrives in the dead letter queue."""
        self._names = names
        self._policies = policies
        self._delay = delay
        self._dead_letters = DeadLetters(names.dead, parks=parks)
        self._return_exchange = fields.longstr(names.return_exchange)

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        draft = Draft(delivery, user)
        failed = self._understand(delivery, draft)
        if failed is None:
            dead = Dead("UNKNOWN", "no origin known: neither x-death nor redrive-queue names one")
            return self._dead_letters.from_draft(delivery, draft, dead)
        policy = self._policies().find(failed.routing_key)
        decision = decide(failed, policy, self._names.tiers)
        if isinstance(decision, Dead):
            return self._dead_letters.from_draft(delivery, draft, decision)
        draft.ours[_ATTEMPT] = fields.int32(decision.attempt)
        route = self._delay or self._tier(failed.routing_key, decision.tier)
        return Publish(route.exchange, route.routing_key, draft.seal(), delivery.body)

    def _tier(self, routing_key: str, tier: int) -> Route:
        key = f"binding.{routing_key}.{tier}"
        if len(key) > 60 and len(octets(key)) > 255:  # a character has four bytes at most
            key = f"binding.{tier}"  # the original is in the headers
        return Route(exchange=self._names.route_delay, routing_key=key)

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Instruction:
        if self._dead_letters.is_bound_for(sent):
            return self._dead_letters.stuck(outcome)
        where = f"the delay queue {sent.routing_key!r}"
        if sent.exchange:
            where = f"the delay queue behind {sent.exchange!r} with key {sent.routing_key!r}"
        return self._dead_letters.after(sent, f"{where} {trouble(outcome)}")

    def poisoned(self, delivery: Delivery, reason: str) -> Park | Stay:
        return self._dead_letters.poisoned(reason)

    def _understand(self, delivery: Delivery, draft: Draft) -> Failed | None:
        """Read where and how often a message failed, and note it in its headers."""
        ours = draft.ours
        if ours:
            drop_wrong_types(ours)
        before = text_of(ours.get(_QUEUE))
        origin = origin_of(draft.x_death, self._names.own_queues)
        if origin is None:
            # No death but a queue of ours: a consumer that publishes to the retry exchange itself.
            if before is None:
                return None
            origin = Origin(before, {b"reason": _REJECTED})
        if origin.queue != before:
            # It has moved on: another service failed now, or someone copied our headers.
            for name in _STARTS_ANEW if ours else ():
                ours.pop(name, None)
            ours[_QUEUE] = fields.longstr(origin.queue)
        self._note_where(origin, ours)
        routing_key = text_of(ours.get(_ROUTING_KEY))
        if routing_key is None:
            routing_key = delivery.routing_key
            ours[_ROUTING_KEY] = fields.longstr(routing_key)
        if text_of(ours.get(_ID)) is None:
            ours[_ID] = fields.longstr(identity(delivery, draft, origin))
        attempt = fields.decode(ours[_ATTEMPT]) if _ATTEMPT in ours else 0
        return Failed(
            queue=origin.queue,
            routing_key=routing_key,
            reason=origin.reason,
            attempt=attempt if type(attempt) is int and attempt > 0 else 0,
            replayed=_LETTER in ours,
        )

    def _note_where(self, origin: Origin, ours: dict[bytes, bytes]) -> None:
        """The fields of the death are written on as they are."""
        exchange = origin.exchange or _NO_EXCHANGE
        if exchange != self._return_exchange or _EXCHANGE not in ours:
            ours[_EXCHANGE] = exchange
        if (routing_key := origin.routing_key) is not None:
            ours[_ROUTING_KEY] = routing_key
        if _FIRST_FAILED_AT not in ours and (at := origin.at) is not None:
            ours[_FIRST_FAILED_AT] = at


def drop_wrong_types(ours: dict[bytes, bytes]) -> None:
    """Headers of our names can be anybody's: one of a wrong type counts as not there."""
    wrong = [name for name, field in ours.items() if field[:1] not in _TYPES.get(name, field[:1])]
    for name in wrong:
        del ours[name]


def identity(delivery: Delivery, draft: Draft, origin: Origin) -> str:
    """The `redrive-id` of a message: a UUID of its content and its death.

    Derived, not drawn: if we are killed after publishing a copy and before the ack, the broker
    delivers the same bytes again, and the second copy gets the same id as the first.

    A broker that is killed while it dead-letters makes copies itself, and stamps their deaths anew.
    So the time of the death counts only where the producer gave no message id: there it is all that
    tells a repeated message, such as a tick, from a copy.
    """
    parts = draft.publishers_own
    if draft.has_message_id:
        parts[-1] = octets(f"{origin.reason} {origin.times} {origin.queue}")
    parts += (octets(delivery.exchange), octets(delivery.routing_key), delivery.body)
    lengths = b",".join([b"%d" % len(part) for part in parts])
    raw = bytearray(blake2b(b"".join((lengths, *parts)), digest_size=16).digest())
    raw[6] = raw[6] & 0x0F | 0x80  # version 8: made by its own rule
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
