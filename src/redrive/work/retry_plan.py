"""What to do with what failed: wait in a tier, or go to the dead letter queue.

Reads where and how often a message failed from its headers, which may be anyone's, asks the policy,
and writes what the next hop needs to know. Headers of wrong types count as not there.

What is decided depends on little that differs between messages, so decisions are remembered, for as
long as the policies stay what they are. Where the exchange before the tiers is missing, or we may
not write to it, what would be retried is dead without a try for each (see `avoided.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from redrive.amqp import Delivery, Publish, Refused, Returned, fields
from redrive.amqp.fields import octets, text_of
from redrive.amqp.ours import count_of, drop_wrong_types, forget_words, identity, move_on
from redrive.amqp.republish import Draft, marked_redelivered
from redrive.broker.topology import tier_key
from redrive.domain import headers
from redrive.domain.failure import UNSAID
from redrive.domain.policy import PolicyBook
from redrive.domain.retry import Dead, Failed, decide
from redrive.work.avoided import Avoided
from redrive.work.dead_letters import DeadLetters, Parks, Route, trouble
from redrive.work.mover import Instruction, Park, Stay
from redrive.work.origin import Origin, Origins, rejected_in
from redrive.work.return_path import ReturnPath

_ID: Final = octets(headers.ID)
_ATTEMPT: Final = octets(headers.ATTEMPT)
_QUEUE: Final = octets(headers.QUEUE)
_EXCHANGE: Final = octets(headers.EXCHANGE)
_ROUTING_KEY: Final = octets(headers.ROUTING_KEY)
_FIRST_FAILED_AT: Final = octets(headers.FIRST_FAILED_AT)
_LETTER: Final = octets(headers.LETTER)
_NO_EXCHANGE: Final = fields.longstr("")
_REMEMBERED: Final = 4096
"""How many decisions are kept in mind. Beyond it all are forgotten: what repeats comes back."""
_LONGEST: Final = 1024
"""Characters of names beyond which a decision is made each time: what is kept is bounded."""

Policies = Callable[[], PolicyBook]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryNames:
    """The names on the broker that the retrier needs to know."""

    own_queues: Container[str]
    own_exchanges: Container[str]
    route_delay: str
    dead: Route
    dead_queue: str
    return_exchange: str
    tiers: int
    prefix: str = ""

    def leads_here(self, exchange: str, key: str) -> bool:
        """Whether this is a way into a queue of Redrive's own. A user's exchange may be one, too,
        with the name of such a queue for a key: of the per-queue layout's, it is."""
        return exchange in self.own_exchanges or key in self.own_queues


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
        path: ReturnPath,
        *,
        delay: Route | None = None,
        parks: Parks | None = None,
    ) -> None:
        """`delay` is the one place to wait in the per-queue layout; without it, the tiers are.
        `parks` tells whether what is rejected in the queue that is read is kept."""
        self._names = names
        self._policies = policies
        self._delay = delay
        self._dead_letters = DeadLetters(names.dead, names.dead_queue, parks=parks)
        self._return_exchange = fields.longstr(names.return_exchange)
        self._origins = Origins(names.own_queues)
        self._book: PolicyBook | None = None  # the one that all decisions kept in mind are by
        self._decided: dict[Failed, _Wait | Dead] = {}
        self._avoided = Avoided(path)

    async def prepare(self, _deliveries: Sequence[Delivery]) -> None:
        """Find out whether what was missing is back."""
        if self._avoided:
            await self._avoided.look()

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        draft = Draft(delivery, user)
        failed = self._understand(delivery, draft)
        if failed is None:
            dead = Dead("UNKNOWN", "no origin known: neither x-death nor redrive-queue names one")
            if _ROUTING_KEY not in draft.ours:  # then how it came is all that is known
                draft.ours.setdefault(_EXCHANGE, fields.longstr(octets(delivery.exchange)))
                draft.ours[_ROUTING_KEY] = fields.longstr(octets(delivery.routing_key))
            return self._dead_letters.from_draft(delivery, draft, dead)
        book = self._policies()
        if book is not self._book:
            self._book, self._decided = book, {}
        decision = self._decided.get(failed) or self._decide(failed, book)
        if isinstance(decision, Dead):
            return self._dead_letters.from_draft(delivery, draft, decision)
        draft.ours[_ATTEMPT], (exchange, routing_key) = decision
        waits = Publish(exchange, routing_key, draft.seal(), delivery.body)
        return self._unless_gone(waits) if self._avoided else waits

    def _unless_gone(self, waits: Publish) -> Instruction:
        """A message on its way into a tier; where its exchange is avoided, what to do instead."""
        gone = self._avoided.gone(waits.exchange)
        return waits if gone is None else self._dead(waits, gone.why)

    def _decide(self, failed: Failed, book: PolicyBook) -> _Wait | Dead:
        decision = decide(failed, book.find(failed.routing_key), self._names.tiers)
        ready: _Wait | Dead
        if isinstance(decision, Dead):
            ready = decision
        else:
            route = self._delay or Route(
                self._names.route_delay, tier_key(failed.routing_key, decision.tier)
            )
            ready = _Wait(fields.int32(decision.attempt), route)
        if len(failed.queue) + len(failed.routing_key) + len(failed.reason) <= _LONGEST:
            if len(self._decided) >= _REMEMBERED:
                self._decided.clear()
            self._decided[failed] = ready
        return ready

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Instruction:
        if self._dead_letters.is_bound_for(sent):
            return self._dead_letters.stuck(sent, outcome)
        if isinstance(outcome, Returned):
            why = f"the delay queue behind {sent.exchange!r} {trouble(outcome)}"
            self._avoided.note_gone(sent.exchange, outcome.code, why)
        where = f"the delay queue {sent.routing_key!r}"
        if sent.exchange:
            where = f"the delay queue behind {sent.exchange!r} with key {sent.routing_key!r}"
            if isinstance(outcome, Refused):  # another queue that somebody bound there may have it
                sent.properties = marked_redelivered(sent.properties)
        return self._dead(sent, f"{where} {trouble(outcome)}")

    def _dead(self, sent: Publish, reason: str) -> Instruction:
        dead = self._dead_letters.after(sent, reason, retried=False)
        return self._dead_letters.in_turn(dead)

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
        _forget_older(ours, origin)
        exchange = origin.exchange
        if _EXCHANGE not in ours or exchange not in (None, self._return_exchange):
            # A consumer that sent it here itself has named the exchange, and no death does.
            ours[_EXCHANGE] = exchange or _NO_EXCHANGE
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
            ours[_ID] = identity(delivery, draft, origin.in_words)
        attempt = count_of(ours.get(_ATTEMPT))
        return Failed(origin.queue, routing_key, origin.reason, attempt, _LETTER in ours)


def _forget_older(ours: dict[bytes, bytes], origin: Origin) -> None:
    """Forget what was noted of a failure before."""
    if ours.get(_QUEUE) != origin.queue_field:
        # It has moved on: another service failed now, or someone copied our headers.
        if ours:
            move_on(ours, origin.queue_field, origin.exchange, origin.routing_key)
        ours[_QUEUE] = origin.queue_field
    elif origin.reason in UNSAID:
        forget_words(ours)
