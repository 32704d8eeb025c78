"""A plan that gives back no message that the broker would remove for it.

Before RabbitMQ 4.3 a quorum queue counts every return, and the one by which a message passes the
delivery limit of its queue is its end. Each delivery tells its count, so it is known which these
are. What the plan would hold of them is published to its own queue instead, and acked once the
broker has confirmed the copy: it stays, behind the others, and its deliveries count anew. It is not
brought to the target of the pass, for it was not meant: a queue of work may be behind that.

Where the queue does not take such a copy, nothing can keep the message: the pass ends at once, and
says so. That we may publish at all is made sure of before anything is taken.

A pass that ends early has messages under way. Those of them that are at their limit would end with
it, given back or not. So these, too, are kept by a copy in their own queue, marked as a possible
duplicate: one that was being moved may be at its target as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from redrive.amqp import Delivery, Publish, Refused, Returned
from redrive.amqp.lane import Connect, Lane, Poison
from redrive.amqp.republish import marked_redelivered
from redrive.errors import AccessRefused, BrokerError, MalformedData, Unpublishable
from redrive.work.dead_letters import trouble
from redrive.work.failed_message import MessageReader
from redrive.work.may_publish import assure_that_we_may_publish
from redrive.work.mover import Hold, Instruction, Park, Plan, Stay
from redrive.work.noting import Notes
from redrive.work.transfer import ToQueue

if TYPE_CHECKING:
    from redrive.work.one_pass import Passed

_RESCUES_WITHIN: Final = 30.0
"""Seconds: a broker that was started anew is back by then."""
_TRY_AGAIN_AFTER: Final = 0.5


class Sparing:
    """Wraps the plan of one pass over a queue with a delivery limit."""

    def __init__(
        self,
        plan: Plan,
        queue: str,
        limit: int,
        own_queues: Container[str],
        passed: Passed,
        *,
        give_up: Callable[[], None],
    ) -> None:
        """A message that has come back `limit` times is removed when it is given back. `give_up` is
        called when the queue takes no copy."""
        self._give_up = give_up
        self._queue = queue
        self._plan = plan
        self._limit = limit
        self._passed = passed
        self._reader = MessageReader(own_queues, queue)
        self._back = ToQueue(queue, Notes(own_queues, queue))
        self._copied: set[int] = set()  # by their tags
        self._user = ""

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        self._user = user
        return self._spared(delivery, self._plan.decide(delivery, user))

    def leave(self, delivery: Delivery, user: str) -> Instruction:
        """What becomes of a message that came after the end."""
        self._user = user
        return self._spared(delivery, Hold())

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Instruction:
        if delivery.tag not in self._copied:
            return self._spared(delivery, await self._plan.reconsider(delivery, sent, outcome))
        answer = await self._back.reconsider(delivery, sent, outcome)
        return self._lost(delivery, answer) if isinstance(answer, Hold) else answer

    def poisoned(self, delivery: Delivery, reason: str) -> Park | Stay | Hold:
        if delivery.tag in self._copied:
            return self._lost(delivery, Hold(reason))
        answer = self._plan.poisoned(delivery, reason)
        if isinstance(answer, Hold) and self._is_at_its_limit(delivery):
            return self._lost(delivery, answer)
        return answer

    async def rescue(
        self, under_way: Iterable[Delivery], connect: Connect, kept: Callable[[Delivery], None]
    ) -> None:
        """Keep what was under way at its limit when the pass ended early. `kept` is called with
        each of which the broker has a copy."""
        left = {each.tag: each for each in under_way if self._is_at_its_limit(each)}
        why = "the broker did not take copies of them in time"
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RESCUES_WITHIN):
                    while left:
                        lane = Lane(connect, f"redrive keep messages of {self._queue}")
                        try:
                            await self._send_copies(left, lane, kept)
                        except BrokerError as error:
                            why = str(error)
                            await asyncio.sleep(_TRY_AGAIN_AFTER)
                        finally:
                            lane.abort()
        finally:
            for delivery in left.values():
                self._lost(delivery, Hold(why))

    async def _send_copies(
        self, left: dict[int, Delivery], lane: Lane, kept: Callable[[Delivery], None]
    ) -> None:
        await lane.open()
        copies = []
        for delivery in list(left.values()):
            copy = self._marked_copy(delivery, lane.user)
            if isinstance(copy, Publish):
                copies.append(copy)
            else:
                self._lost(left.pop(delivery.tag), copy)
        for sent, error in lane.publish_all(copies):
            self._lost(left.pop(_tag(sent)), Hold(str(error)))
        while left:
            for sent, outcome in await lane.next_outcomes():
                delivery = left.pop(_tag(sent))
                if isinstance(outcome, Poison):
                    self._lost(delivery, Hold(str(outcome.error)))
                elif isinstance(outcome, (Returned, Refused)):
                    self._lost(delivery, Hold(f"the queue {self._queue!r} {trouble(outcome)}"))
                else:
                    self._passed.counts.moved += 1
                    if delivery.tag not in self._copied:
                        self._passed.spared += 1
                    kept(delivery)

    def _marked_copy(self, delivery: Delivery, user: str) -> Publish | Hold:
        try:
            copy = self._back.publish(delivery, user)
        except Unpublishable as error:
            return Hold(str(error))
        if isinstance(copy, Publish):
            with suppress(MalformedData):  # it is sent as it is, then
                copy.properties = marked_redelivered(copy.properties)
            copy.context = delivery
        return copy

    def _spared(self, delivery: Delivery, instruction: Instruction) -> Instruction:
        if not isinstance(instruction, Hold) or not self._is_at_its_limit(delivery):
            return instruction
        answer = self._back.publish(delivery, self._user)
        if isinstance(answer, Hold):
            return self._lost(delivery, answer)
        self._copied.add(delivery.tag)
        self._passed.spared += 1
        return answer

    def _is_at_its_limit(self, delivery: Delivery) -> bool:
        return (self._reader.evidence(delivery).deliveries or 0) >= self._limit

    def _lost(self, delivery: Delivery, hold: Hold) -> Hold:
        if delivery.tag in self._copied:
            self._passed.spared -= 1
        self._passed.lost[hold.reason] += 1
        self._give_up()
        return hold


def _tag(copy: Publish) -> int:
    assert isinstance(copy.context, Delivery)
    return copy.context.tag


async def assure_that_copies_can_be_made(connect: Connect, queue: str) -> None:
    """Raise unless a copy for a queue would be let through."""
    try:
        await assure_that_we_may_publish(connect, "")
    except AccessRefused as error:
        raise BrokerError(
            f"{queue} was not looked into: a message at its delivery limit is kept by a copy of it"
            f" only, and we may not publish one: {error.text}",
            remedy="grant the user the permission to write to amq.default",
        ) from error
