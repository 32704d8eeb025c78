"""Which publish did the broker just answer? The bookkeeping of publisher confirms, without I/O.

Every publish on a confirming channel has a tag, counted from one. The broker answers tags singly
or "up to this one". An unroutable message comes back as a `basic.return`, which carries no tag but
always precedes that message's ack, so it has to be recognised by what it is: the same exchange,
routing key, body and, as far as brokers leave them alone, properties. Among identical messages it
does not matter which one is meant. Message ids play no part: producers repeat them.

A publish that was never answered is in doubt, not "not sent".
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from redrive.amqp.properties import Properties
from redrive.errors import MalformedData


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker has the message, in at least one queue."""


@dataclass(frozen=True, slots=True)
class Returned:
    """No queue took the message; the broker does not have it."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker answered with a nack: a queue was full or failed, and does not have it. Where the
    message was routed to several queues, the others may have it all the same."""


Outcome = Confirmed | Returned | Refused

CONFIRMED: Final = Confirmed()
REFUSED: Final = Refused()


class Publish:
    """One message on its way: what was sent, and whose it is."""

    __slots__ = ("answer", "body", "context", "exchange", "properties", "returned", "routing_key")

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        context: object = None,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.body = body
        self.context = context
        self.returned: Returned | None = None
        self.answer: Future[Outcome] | None = None


Settled = tuple[Publish, Outcome]


class Unconfirmed:
    """The publishes of one channel that the broker has not answered yet, oldest first."""

    __slots__ = ("_last_returned", "_oldest", "_pending", "_sent")

    def __init__(self) -> None:
        self._pending: dict[int, Publish] = {}
        self._sent = 0
        self._oldest = 1
        self._last_returned = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, publish: Publish) -> None:
        self.add_all((publish,))

    def add_all(self, publishes: Sequence[Publish]) -> None:
        self._pending.update(zip(count(self._sent + 1), publishes))
        self._sent += len(publishes)

    def publishes(self) -> list[Publish]:
        return list(self._pending.values())

    def answered(self, tag: int, *, multiple: bool, confirmed: bool) -> list[Settled]:
        """What an ack or nack settles. Tag 0 with multiple means everything so far."""
        if not 0 <= tag <= self._sent or (tag == 0 and not multiple):
            raise MalformedData(f"the broker confirmed publish {tag} of {self._sent}")
        if multiple:
            tags = range(self._oldest, (tag or self._sent) + 1)
            self._oldest = max(self._oldest, tags.stop)
        else:
            tags = range(tag, tag + 1)
        pop = self._pending.pop
        publishes = [each for tag in tags if (each := pop(tag, None)) is not None]
        if confirmed and not self._last_returned:
            return [(publish, CONFIRMED) for publish in publishes]
        settled: list[Settled] = []
        for publish in publishes:
            if not confirmed:
                settled.append((publish, REFUSED))
                if publish.returned is not None:
                    self._pass_on(publish)
            elif publish.returned is None:
                settled.append((publish, CONFIRMED))
            else:
                settled.append((publish, publish.returned))
        return settled

    def returned(self, outcome: Returned, given_back: Publish) -> None:
        """Note that the broker gave a message back; its ack, which follows, will tell the owner.

        Brokers return in the order of publishing, so the search begins behind the last one found.
        Where a broker changed the properties beyond recognition, the oldest publish with the same
        exchange, key and body is taken: more cannot be known.
        """
        self._leave_behind()
        behind = range(self._oldest, self._last_returned + 1)
        ahead = range(max(self._oldest, self._last_returned + 1), self._sent + 1)
        look = _Likeness(given_back)
        tag = self._first(ahead, look.same) or self._first(behind, look.same)
        tag = tag or self._first(behind, look.alike) or self._first(ahead, look.alike)
        if not tag:
            raise MalformedData(
                f"the broker returned a message that was not sent: exchange "
                f"{given_back.exchange!r}, routing key {given_back.routing_key!r}"
            )
        self._last_returned = tag
        self._pending[tag].returned = outcome

    def _pass_on(self, refused: Publish) -> None:
        """A publish that was refused was not the one given back: it was another one like it."""
        assert refused.returned is not None
        self._leave_behind()
        everything = range(self._oldest, self._sent + 1)
        tag = self._first(everything, _Likeness(refused).same)
        if tag:
            self._pending[tag].returned = refused.returned

    def _leave_behind(self) -> None:
        """Pass over what was answered singly: each of them once, however many returns there are."""
        while self._oldest <= self._sent and self._oldest not in self._pending:
            self._oldest += 1

    def _first(self, tags: range, test: Callable[[Publish], bool]) -> int:
        get = self._pending.get
        for tag in tags:
            publish = get(tag)
            if publish is not None and publish.returned is None and test(publish):
                return tag
        return 0


class _Likeness:
    """Compares publishes with one that the broker gave back."""

    def __init__(self, given_back: Publish) -> None:
        self._found = given_back
        self._normal: object = None

    def alike(self, publish: Publish) -> bool:
        """Equal in all that a broker never changes."""
        found = self._found
        return (
            publish.routing_key == found.routing_key
            and publish.exchange == found.exchange
            and publish.body == found.body
        )

    def same(self, publish: Publish) -> bool:
        """Alike, and with the same properties as far as a broker leaves them alone."""
        if not self.alike(publish):
            return False
        if publish.properties == self._found.properties:
            return True
        try:
            if self._normal is None:
                self._normal = Properties.read(self._found.properties).normal_form()
            return Properties.read(publish.properties).normal_form() == self._normal
        except MalformedData:
            return False
