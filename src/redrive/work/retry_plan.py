"""What to do with what failed: wait in a tier, or go to the dead letter queue.

Reads where and how often a message failed from its headers, which may be anyone's, asks the policy,
and writes what the next hop needs to know. Headers of wrong types count as not there.

What is decided depends on little that differs between messages, so decisions are remembered, for as
long as the policies stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from redrive.amqp import Delivery, Publish, Refused, Returned, fields, surgery
from redrive.amqp.fields import octets
from redrive.domain import headers
from redrive.domain.policy import PolicyBook
from redrive.domain.retry import Dead, Failed, decide
from redrive.work.dead_letters import DeadLetters, Route, trouble
from redrive.work.mover import Instruction, Park, Stay
from redrive.work.origin import Origin, Origins, rejected_in, text_of
from redrive.work.republish import Draft

_ID: Final = octets(headers.ID)
_ATTEMPT: Final = octets(headers.ATTEMPT)
_QUEUE: Final = octets(headers.QUEUE)
_EXCHANGE: Final = octets(headers.EXCHANGE)
_ROUTING_KEY: Final = octets(headers.ROUTING_KEY)
_FIRST_FAILED_AT: Final = octets(headers.FIRST_FAILED_AT)
_LETTER: Final = octets(headers.LETTER)
_GENERATION: Final = octets(headers.GENERATION)
_PARENT: Final = octets(headers.PARENT)
STARTS_ANEW: Final = tuple(
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
                headers.PARENT,
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
_ANY: Final = bytes(range(256))
_NO_EXCHANGE: Final = fields.longstr("")
_REMEMBERED: Final = 4096
"""How many decisions are kept in mind. Beyond it all are forgotten: what repeats comes back."""
_LONGEST: Final = 1024
"""Characters of names beyond which a decision is made each time: what is kept is bounded."""
_HASH: Final = blake2b(digest_size=16)
_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

Policies = Callable[[], PolicyBook]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryNames:
    """The names on the broker that the retrier needs to know."""

    own_queues: Collection[str]
    route_delay: str
    dead: Route
    return_exchange: str
    tiers: int


class _Wait(NamedTuple):
    """The decision to retry, made ready to send."""

    attempt: bytes
    route: Route


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
        self._origins = Origins(names.own_queues)
        self._book: PolicyBook | None = None  # the one that all decisions kept in mind are by
        self._decided: dict[Failed, _Wait | Dead] = {}

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        draft = Draft(delivery, user)
        failed = self._understand(delivery, draft)
        if failed is None:
            dead = Dead("UNKNOWN", "no origin known: neither x-death nor redrive-queue names one")
            return self._dead_letters.from_draft(delivery, draft, dead)
        book = self._policies()
        if book is not self._book:
            self._book, self._decided = book, {}
        decision = self._decided.get(failed) or self._decide(failed, book)
        if isinstance(decision, Dead):
            return self._dead_letters.from_draft(delivery, draft, decision)
        draft.ours[_ATTEMPT], (exchange, routing_key) = decision
        return Publish(exchange, routing_key, draft.seal(), delivery.body)

    def _decide(self, failed: Failed, book: PolicyBook) -> _Wait | Dead:
        decision = decide(failed, book.find(failed.routing_key), self._names.tiers)
        ready: _Wait | Dead
        if isinstance(decision, Dead):
            ready = decision
        else:
            route = self._delay or self._tier(failed.routing_key, decision.tier)
            ready = _Wait(fields.int32(decision.attempt), route)
        if len(failed.queue) + len(failed.routing_key) + len(failed.reason) <= _LONGEST:
            if len(self._decided) >= _REMEMBERED:
                self._decided.clear()
            self._decided[failed] = ready
        return ready

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
        """Read where and how often a message failed, and note it in its headers.

        The fields of the death are written on as they are.
        """
        ours, x_death = draft.ours, draft.x_death
        if ours:
            drop_wrong_types(ours)
        before = ours.get(_QUEUE)
        origin = self._origins.of(x_death)
        if origin is None:
            # No death but a queue of ours: a consumer that publishes to the retry exchange itself.
            queue = text_of(before)
            if queue is None or before is None:
                return None
            origin = rejected_in(queue, before)
        if origin.queue_field != before:
            # It has moved on: another service failed now, or someone copied our headers.
            if ours:
                _start_anew(ours, before)
            ours[_QUEUE] = origin.queue_field
        exchange = origin.exchange or _NO_EXCHANGE
        if exchange != self._return_exchange or _EXCHANGE not in ours:
            ours[_EXCHANGE] = exchange
        routing_key = origin.routing_key_text
        if routing_key is not None and origin.routing_key is not None:
            ours[_ROUTING_KEY] = origin.routing_key
        if _FIRST_FAILED_AT not in ours and (at := origin.at(x_death)) is not None:
            ours[_FIRST_FAILED_AT] = at
        if routing_key is None:
            routing_key = text_of(ours.get(_ROUTING_KEY))
        if routing_key is None:
            routing_key = delivery.routing_key
            ours[_ROUTING_KEY] = fields.longstr(routing_key)
        if _ID not in ours:
            ours[_ID] = identity(delivery, draft, origin)
        attempt = _attempt(ours[_ATTEMPT]) if _ATTEMPT in ours else 0
        return Failed(origin.queue, routing_key, origin.reason, attempt, _LETTER in ours)


def _start_anew(ours: dict[bytes, bytes], before: bytes | None) -> None:
    """Forget what was noted of another failure; but not whose letter it was sent for. That letter
    is this message's own if nobody knew where it would go, and else its parent."""
    letter, generation = ours.get(_LETTER), ours.get(_GENERATION)
    for name in STARTS_ANEW:
        ours.pop(name, None)
    if letter is not None and before is not None:
        ours[_PARENT] = letter
    elif letter is not None and generation is not None:
        ours[_LETTER], ours[_GENERATION] = letter, generation


def drop_wrong_types(ours: dict[bytes, bytes]) -> None:
    """Headers of our names can be anybody's: one of a wrong type counts as not there."""
    letters = _TYPES.get
    wrong = [name for name, field in ours.items() if field[0] not in letters(name, _ANY)]
    for name in wrong:
        del ours[name]


@lru_cache(maxsize=1024)
def _attempt(field: bytes) -> int:
    attempt = fields.decode(field)
    return attempt if type(attempt) is int and attempt > 0 else 0


def identity(delivery: Delivery, draft: Draft, origin: Origin) -> bytes:
    """The `redrive-id` of a message, as a raw string: a UUID of its content and its death.

    Derived, not drawn: if we are killed after publishing a copy and before the ack, the broker
    delivers the same bytes again, and the second copy gets the same id as the first.

    A broker that is killed while it dead-letters makes copies itself, and stamps their deaths anew.
    So the time of the death counts only where the producer gave no message id: there it is all that
    tells a repeated message, such as a tick, from a copy.
    """
    flags, before, kept, _, after = draft.opened
    before = before[2:]
    # The headers as one part: where a broker adds its counters decides how they are sliced.
    theirs = b"".join(kept)
    death = origin.in_words if flags & surgery.MESSAGE_ID else draft.x_death or b""
    exchange, key, body = octets(delivery.exchange), octets(delivery.routing_key), delivery.body
    lengths = b"%d,%d,%d,%d,%d,%d,%d" % (
        len(before),
        len(theirs),
        len(after),
        len(death),
        len(exchange),
        len(key),
        len(body),
    )
    made = _HASH.copy()
    made.update(b"".join((lengths, before, theirs, after, death, exchange, key)))
    made.update(body)
    text = made.hexdigest()
    # Version 8: made by its own rule.
    uuid = f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:]}"
    return b"S\x00\x00\x00\x24" + uuid.encode()
