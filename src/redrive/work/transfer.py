"""Taking chosen messages out of a queue to somewhere else: the plan of sweep and move.

A message that is not chosen, or that its new place does not take, is held, and so stays where it
was, in its order. So does one for which its new place would push out others, as far as is known.
Nothing is ever parked: in somebody else's queue a reject may be the end of it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from redrive.amqp import Delivery, Publish, Refused, Returned
from redrive.broker.room import Room
from redrive.work.dead_letters import trouble
from redrive.work.mover import Hold
from redrive.work.noting import Notes

Choose = Callable[[Delivery], bool]
_Answer = TypeVar("_Answer", bound=Publish | Hold)


class Way(Protocol):
    """How a message goes to its new place."""

    def publish(self, delivery: Delivery, user: str) -> Publish | Hold:
        """The copy to send, or why there is none."""

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Publish | Hold:
        """What to do after the copy was not taken."""

    doubts: Counter[str]
    """Why copies may not be taken, though they are sent, and how many."""


class ToQueue:
    """The way to one queue, by the default exchange.

    A queue that does not take one message is not tried with the others: it is missing, full, or
    not ours to write to.
    """

    def __init__(self, queue: str, notes: Notes) -> None:
        self.room: Room | None = None
        """What it has left, if it would push out others for more."""
        self.doubts: Counter[str] = Counter()
        self._queue = queue
        self._notes = notes
        self._refuses: Hold | None = None

    def publish(self, delivery: Delivery, user: str) -> Publish | Hold:
        if self._refuses is not None:
            return self._refuses
        raw = self._notes.draft(delivery, user).seal()
        if self.room is not None and not self.room.take(delivery.body, raw):
            if not self.room.may_take_more:
                self._refuses = Hold(self.room.full)
                return self._refuses
            self.doubts[self.room.full] += 1
        return Publish("", self._queue, raw, delivery.body)

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Publish | Hold:
        self._refuses = Hold(f"the queue {self._queue!r} {trouble(outcome)}")
        return self._refuses


class Transfer:
    """The plan: what is chosen goes its way, the rest is held."""

    def __init__(self, choose: Choose, way: Way, *, dry_run: bool, most: int | None = None) -> None:
        """`most` messages are sent, then `end` is called. A dry run sends none, and counts those
        that would find no place."""
        self.chosen = 0
        self.failures: Counter[str] = Counter()
        """Why chosen messages are still where they were, and how many."""
        self.end: Callable[[], None] = lambda: None
        self._choose = choose
        self._way = way
        self._dry_run = dry_run
        self._most = most

    @property
    def doubts(self) -> Counter[str]:
        """Why chosen messages may find no place after all, and how many."""
        return self._way.doubts

    @property
    def failed(self) -> int:
        """How many were chosen and could not be moved."""
        return self.failures.total()

    def foreseen(self, deliveries: Iterable[Delivery]) -> Iterator[Delivery]:
        """Those of the next deliveries that will be chosen, until there are enough."""
        chosen = self.chosen
        for delivery in deliveries:
            if chosen == self._most:
                return
            meant = False
            with contextlib.suppress(Exception):  # when it is decided on, it is poison
                meant = self._choose(delivery)
            if meant:
                chosen += 1
                yield delivery

    def decide(self, delivery: Delivery, user: str) -> Publish | Hold:
        if not self._choose(delivery):
            return Hold()
        self.chosen += 1
        if self.chosen == self._most:
            self.end()
        answer = self._noted(self._way.publish(delivery, user))
        return Hold() if self._dry_run else answer

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Publish | Hold:
        return self._noted(await self._way.reconsider(delivery, sent, outcome))

    def poisoned(self, delivery: Delivery, reason: str) -> Hold:
        return self._noted(Hold(reason))

    def _noted(self, answer: _Answer) -> _Answer:
        if isinstance(answer, Hold):
            self.failures[answer.reason] += 1
        return answer
