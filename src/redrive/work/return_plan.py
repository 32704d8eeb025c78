"""What to do with what has waited: back to the queue where it failed, and only there.

The copy is published to the return exchange with its original routing key; a `BCC` header, which
the broker strips, names the one queue. A queue that is not bound (yet) is looked for and bound; one
that is full, or whose node is down, makes the message wait in the last tier again, its attempts
unchanged. One whose own time has not come yet (`redrive-not-before`) waits on the next rung of the
ladder.

A policy may send it by its exchange instead, and so goes what only its owner's connection may
touch. Without such a policy, what failed in a queue that is gone is dead, also where the broker
named it: by the exchange a neighbour might take it for its own, and nobody would know of the
failure. A full queue refuses it there, and not for the others that the exchange has: they have it.
So what was refused goes to its own queue alone from then on (`redrive-refused`); by the exchange
only if that cannot be, and refused once more, to the dead letter queue. A copy that failed in
another queue of the exchange goes to that one alone (see `by_exchange.py`). For a while, others
that are to go by that exchange go to their own queues too. Nothing goes back by an exchange of
Redrive's own, whatever its headers say: it would come round to here. What is for an exchange that
is gone is dead; only while the return exchange, by which all go, is missing, it waits in the last
tier: somebody will make that again. Where we may not write to it, it is dead too. Where we may not
write to the default exchange, by which the ladder is reached, it goes back early (see
`avoided.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from redrive.amqp import Delivery, Properties, Publish, Refused, Returned, fields
from redrive.amqp.fields import octets, text_of
from redrive.amqp.republish import Draft, marked_redelivered
from redrive.broker.ladder import next_rung, rung_name
from redrive.broker.topology import return_key
from redrive.domain import headers
from redrive.domain.policy import PolicyBook
from redrive.domain.retry import Dead
from redrive.work.avoided import Avoided
from redrive.work.by_exchange import came_beside, not_by, sent_by_exchange
from redrive.work.dead_letters import DeadLetters, Parks, Route
from redrive.work.mover import Instruction, Park, Stay
from redrive.work.retry_plan import Policies, RetryNames
from redrive.work.return_path import Down, ReturnPath, Unreachable

_QUEUE: Final = octets(headers.QUEUE)
_EXCHANGE: Final = octets(headers.EXCHANGE)
_ROUTING_KEY: Final = octets(headers.ROUTING_KEY)
_NOT_BEFORE: Final = octets(headers.NOT_BEFORE)
_REFUSED: Final = octets(headers.REFUSED)
_BY_EXCHANGE: Final = octets(headers.BY_EXCHANGE)
_BCC: Final = fields.entry(b"BCC", b"")
_DEFAULT_EXCHANGE: Final = ""
_FORBIDDEN: Final = 403
_LONGEST_WAIT: Final = timedelta(days=3650) // timedelta(milliseconds=1)
_REMEMBERED: Final = 4096
"""How many ways back are kept in mind. Beyond it all are forgotten: what repeats comes back."""
_LONGEST: Final = 1024
"""Bytes of names beyond which a way is found each time: what is kept is bounded."""

_Names = tuple[bytes | None, bytes | None, bytes | None]
"""The raw headers that name the origin: queue, exchange, routing key."""


class _Way(NamedTuple):
    """The way back to an origin."""

    route: Route
    bcc: bytes
    """The header that names the one queue, if the way is by the return exchange."""


class ReturnPlan:
    """The plan for the deliveries of `retry-queue-N`."""

    def __init__(
        self,
        names: RetryNames,
        policies: Policies,
        path: ReturnPath,
        *,
        tier_again: Route,
        parks: Parks | None = None,
    ) -> None:
        """`tier_again` is where a message waits once more when its queue is full.
        `parks` tells whether what is rejected in the queue that is read is kept."""
        self._names = names
        self._policies = policies
        self._path = path
        self._tier_again = tier_again
        self._dead_letters = DeadLetters(names.dead, names.dead_queue, parks=parks)
        self._book: PolicyBook | None = None  # the one that all ways kept in mind are by
        self._ways: dict[_Names, _Way] = {}
        self._avoided = Avoided(path)

    async def prepare(self, _deliveries: Sequence[Delivery]) -> None:
        """Find out whether what was missing is back."""
        if self._avoided:
            await self._avoided.look()

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        draft = Draft(delivery, user)
        ours = draft.ours
        book = self._policies()
        if book is not self._book:
            self._book, self._ways = book, {}
        names = (ours.get(_QUEUE), ours.get(_EXCHANGE), ours.get(_ROUTING_KEY))
        way = self._ways.get(names) or self._find(names, book)
        if way is None:
            dead = Dead("UNKNOWN", "no origin known: its redrive-* headers are broken")
            return self._dead_letters.from_draft(delivery, draft, dead)
        if _NOT_BEFORE in ours:
            rung = self._next_rung(ours[_NOT_BEFORE])
            if rung is not None and self._avoided.gone(_DEFAULT_EXCHANGE) is None:
                properties = draft.seal(keep_deaths=False)
                return _OnTheLadder(_DEFAULT_EXCHANGE, rung, properties, delivery.body)
            del ours[_NOT_BEFORE]
        if not way.bcc:
            queue = names[0] or b""  # or there were no way
            alone = _REFUSED in ours or ours.get(_BY_EXCHANGE, queue) != queue
            way = self._past_what_is_full(way, queue, alone=alone)
            if not way.bcc:
                ours[_BY_EXCHANGE] = queue
        properties = draft.seal(keep_deaths=False, only_on_the_way=way.bcc)
        back = Publish(*way.route, properties, delivery.body)
        return self._unless_gone(back) if self._avoided else back

    def _find(self, names: _Names, book: PolicyBook) -> _Way | None:
        """The way back by the raw headers that name it; None if they are broken."""
        queue, exchange, key = map(text_of, names)
        if queue is None or key is None or len(octets(key)) > 255:
            return None
        if queue in self._names.own_queues:  # nothing fails there: they are forged
            return None
        policy = book.find(key)
        by_exchange = policy is not None and policy.return_to == "exchange"
        if by_exchange and exchange is not None and not self._names.leads_here(exchange, key):
            way = _Way(Route(exchange, key), b"")
        else:
            way = self._only_to(queue, key)
        if sum(len(name) for name in names if name is not None) <= _LONGEST:
            if len(self._ways) >= _REMEMBERED:
                self._ways.clear()
            self._ways[names] = way
        return way

    def _only_to(self, queue: str, key: str) -> _Way:
        bcc = fields.array((fields.longstr(return_key(queue)),))
        return _Way(Route(self._names.return_exchange, key), _BCC + bcc)

    def _past_what_is_full(self, way: _Way, queue: bytes | None, *, alone: bool) -> _Way:
        """The way of a message that is to go by its exchange, unless that refused it, or it came to
        its queue by what another one of the exchange was sent."""
        if alone or self._avoided.is_full(way.route.exchange):
            return self._only_to(text_of(queue) or "", way.route.routing_key)
        return way

    def _unless_gone(self, back: Publish) -> Instruction:
        """A message on its way back; where its exchange is avoided, what to do instead."""
        gone = self._avoided.gone(back.exchange)
        if gone is None:
            return back
        if gone.is_missing and back.exchange == self._names.return_exchange:
            return self._wait_again(back, Properties.read(back.properties))
        return self._dead(back, gone.why)

    def _dead(self, sent: Publish, reason: str) -> Instruction:
        return self._dead_letters.in_turn(self._dead_letters.after(sent, reason))

    def _next_rung(self, not_before: bytes) -> str | None:
        """Where to wait on; None if the time has come, or nobody can tell."""
        due = fields.decode(not_before)
        if type(due) is not int:
            return None
        left = max(0, min(due - time.time_ns() // 1_000_000, _LONGEST_WAIT))
        rung = next_rung(timedelta(milliseconds=left))
        return None if rung is None else rung_name(self._names.prefix, rung)

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Instruction:
        if self._dead_letters.is_bound_for(sent):
            return self._dead_letters.stuck(sent, outcome)
        properties = Properties.read(sent.properties)
        if isinstance(outcome, Returned):
            self._note(sent.exchange, outcome)
        if isinstance(sent, _OnTheLadder):
            return self._back_early(sent, properties)
        if isinstance(outcome, Refused):
            return self._refused(sent, properties)
        may_restore = sent.exchange == self._names.return_exchange and outcome.code != _FORBIDDEN
        if not may_restore or isinstance(sent, _SecondTry):
            return self._dead(sent, _not_taken(sent.exchange, outcome))
        return await self._restore(sent, properties)

    def _note(self, exchange: str, outcome: Returned) -> None:
        """Remember an exchange that closed the channel."""
        self._avoided.note_gone(exchange, outcome.code, _not_taken(exchange, outcome))
        # Not said of others: they are named by headers, which can be forged.
        is_said = exchange in (_DEFAULT_EXCHANGE, self._names.return_exchange)
        if is_said and outcome.code == _FORBIDDEN:
            self._path.say_forbidden(exchange, outcome.reason)

    def _refused(self, sent: Publish, properties: Properties) -> Instruction:
        if sent.exchange in ("", self._names.return_exchange):  # by which it goes to one queue only
            return self._wait_again(sent, properties)
        was_refused = properties.header_field(headers.REFUSED) is not None
        raw = marked_redelivered(sent.properties)  # another queue may have it
        marked = Publish(sent.exchange, sent.routing_key, raw, sent.body)
        if sent.exchange == self._tier_again.exchange:
            return self._dead(marked, "its queue cannot take it now, and the last tier is full")
        self._avoided.note_full(sent.exchange)
        if was_refused:
            reason = f"a queue behind exchange {sent.exchange!r} is full, and others may have it"
            return self._dead(marked, reason)
        (exchange, key), bcc = self._only_to(_text(properties, headers.QUEUE), sent.routing_key)
        put = {"BCC": bcc[len(_BCC) :], headers.REFUSED: fields.boolean(True)}
        raw = Properties.read(raw).with_headers(put).raw
        return self._unless_gone(Publish(exchange, key, raw, sent.body))

    def _back_early(self, sent: Publish, properties: Properties) -> Instruction:
        """Its rung is missing, full or forbidden: rather too early than never."""
        names = (headers.QUEUE, headers.EXCHANGE, headers.ROUTING_KEY)
        queue, exchange, key = (properties.header_field(name) for name in names)
        way = self._find((queue, exchange, key), self._policies())
        assert way is not None  # or it would not have been sent up the ladder
        if not way.bcc:
            was_refused = properties.header_field(headers.REFUSED) is not None
            way = self._past_what_is_full(way, queue, alone=was_refused or came_beside(properties))
        put = {"BCC": way.bcc[len(_BCC) :]} if way.bcc else {headers.BY_EXCHANGE: queue or b""}
        raw = properties.with_headers(put, remove=(headers.NOT_BEFORE,)).raw
        return self._unless_gone(Publish(*way.route, raw, sent.body))

    async def _restore(self, sent: Publish, properties: Properties) -> Instruction:
        """Find its queue, which nothing is bound for, and send it once more."""
        try:
            bindable = await self._path.restore(_text(properties, headers.QUEUE))
        except Unreachable as error:
            if isinstance(error, Down):
                return self._wait_again(sent, properties)
            if not self._may_go_by_exchange(sent.routing_key):
                return self._dead(sent, str(error))
            bindable = False
        if bindable:
            return _SecondTry(sent.exchange, sent.routing_key, sent.properties, sent.body)
        return await self._by_exchange(sent, properties)

    async def _by_exchange(self, sent: Publish, properties: Properties) -> Instruction:
        """By the way it came: only its owner's connection may touch its queue."""
        by = _text(properties, headers.EXCHANGE)
        if self._names.leads_here(by, sent.routing_key):
            return self._dead(sent, f"its queue cannot be bound, and exchange {by!r} leads here")
        try:
            raw = await sent_by_exchange(properties, self._path)
        except Down:
            return self._wait_again(sent, properties)
        if raw is None:
            return self._dead(sent, not_by(by))
        return self._unless_gone(_SecondTry(by, sent.routing_key, raw, sent.body))

    def _may_go_by_exchange(self, key: str) -> bool:
        policy = self._policies().find(key)
        return policy is not None and policy.return_to == "exchange"

    def _wait_again(self, sent: Publish, properties: Properties) -> Instruction:
        if gone := self._avoided.gone(self._tier_again.exchange):
            return self._dead(sent, gone.why)
        return _sent_by(self._tier_again, properties, sent.body)

    def poisoned(self, delivery: Delivery, reason: str) -> Park | Stay:
        return self._dead_letters.poisoned(reason)


def _not_taken(exchange: str, outcome: Returned) -> str:
    return f"no queue took it back: {outcome.reason} from exchange {exchange!r}"


def _sent_by(route: Route, properties: Properties, body: bytes) -> Publish:
    raw = properties.with_headers({}, remove=("BCC",)).raw
    return Publish(route.exchange, route.routing_key, raw, body)


def _text(properties: Properties, name: str) -> str:
    """A header of ours as text that keeps bytes which are not UTF-8."""
    return text_of(properties.header_field(name)) or ""


class _SecondTry(Publish):
    """A return that was sent once more, by a binding that was restored or by its own exchange."""

    __slots__ = ()


class _OnTheLadder(Publish):
    """A message whose own time has not come yet."""

    __slots__ = ()
