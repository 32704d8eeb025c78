"""The demo's story: producers and plain consumers, each message with the end it should come to.

The consumers know nothing of Redrive: they accept or reject, as consumers in any language do. The
story is told as events while it happens; afterwards every message must have ended where it should.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from redrive.amqp import Channel, Connection, Delivery, Properties, Publish
from redrive.domain.letter import Letter


class End(StrEnum):
    """Where a message ends."""

    CONSUMED = "consumed"
    DEAD = "letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One message of the story: how often its consumer fails, and where it should end."""

    name: str
    exchange: str
    routing_key: str
    queue: str
    body: str
    failures: int
    end: End
    tries: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a message: a delivery that its consumer accepted or rejected, or
    the letter that it became, with the reason that Redrive gave."""

    part: Part
    kind: str
    tries: int
    detail: str = ""


ALWAYS: Final = 1_000
POLICIES: Final[Mapping[str, int]] = {
    "rk.test.pass": 3,
    "rk.test.fail": 3,
    "rk.test.fail.pass": 3,
    "settlement.*": 2,
}


def _test(name: str, failures: int, end: End, tries: int) -> Part:
    key = f"rk.test.{name.replace('-', '.')}"
    return Part(
        name=f"test {name}",
        exchange="test-retry-exchange",
        routing_key=key,
        queue=f"test-{name}-queue",
        body=f'{{"test": "{name}"}}',
        failures=failures,
        end=end,
        tries=tries,
    )


def _payment(name: str, key: str, failures: int, end: End, tries: int) -> Part:
    return Part(
        name=name,
        exchange="payments",
        routing_key=key,
        queue="settlements",
        body=f'{{"payment": "{name}", "amount": 99.99}}',
        failures=failures,
        end=end,
        tries=tries,
    )


STORY: Final = (
    _test("pass", 0, End.CONSUMED, 1),
    _test("fail", ALWAYS, End.DEAD, 4),
    _test("fail-pass", 1, End.CONSUMED, 2),
    _payment("payment 1001: settles", "settlement.requested", 0, End.CONSUMED, 1),
    _payment("payment 1002: bank times out twice", "settlement.requested", 2, End.CONSUMED, 3),
    _payment("payment 1003: card blocked", "settlement.requested", ALWAYS, End.DEAD, 3),
    _payment("payment 1004: key without a policy", "refund.requested", ALWAYS, End.DEAD, 1),
)


class Demonstration:
    """Declares the story's queues, plays it, and knows whether it ended well."""

    def __init__(self, connection: Connection, tell: Callable[[Event], None]) -> None:
        self._connection = connection
        self._tell = tell
        self._parts = {part.name: part for part in STORY}
        self._tries = dict.fromkeys(self._parts, 0)
        self._ends: dict[str, list[End]] = {name: [] for name in self._parts}
        self._over = asyncio.Event()

    async def prepare(self) -> None:
        """The producers' exchanges and the consumers' queues, as seed 000 has them."""
        channel = await self._connection.channel()
        for part in STORY:
            await channel.declare_exchange(part.exchange, "topic")
            await channel.declare_queue(
                part.queue,
                arguments={
                    "x-queue-type": "quorum",
                    "x-dead-letter-exchange": "retry-exchange",
                    "x-dead-letter-routing-key": "retry-routing-key",
                    "x-dead-letter-strategy": "at-least-once",
                    "x-overflow": "reject-publish",
                },
            )
            await channel.bind_queue(part.queue, part.exchange, part.routing_key)
        await channel.close()

    async def play(self) -> None:
        """Publish every message, consume until each has come to an end."""
        async with asyncio.TaskGroup() as tasks:
            serving = [
                tasks.create_task(self._consume(await self._connection.channel(), queue))
                for queue in dict.fromkeys(part.queue for part in STORY)
            ]
            publisher = await (await self._connection.channel()).publisher()
            for part in STORY:
                properties = Properties.empty().with_text("content_type", "application/json")
                properties = properties.with_text("message_id", part.name).persistent()
                await publisher.send(
                    Publish(part.exchange, part.routing_key, properties.raw, part.body.encode())
                )
            await self._over.wait()
            for task in serving:
                task.cancel()

    def ended_well(self, part: Part) -> bool:
        """Whether a message came to the one end it should, after as many tries as it should."""
        return self._ends[part.name] == [part.end] and self._tries[part.name] == part.tries

    def _part_of(self, delivery: Delivery) -> Part:
        name = Properties.read(delivery.properties).get("message_id")
        return self._parts[str(name)]

    async def _consume(self, channel: Channel, queue: str) -> None:
        """A consumer as anyone would write it: it works or it rejects."""
        consumer = await channel.consume(queue, prefetch=10)
        while batch := await consumer.next_batch():
            for delivery in batch:
                part = self._part_of(delivery)
                self._tries[part.name] += 1
                tries = self._tries[part.name]
                if tries > part.failures:
                    consumer.ack(delivery)
                    self._ended(part, End.CONSUMED)
                    self._tell(Event(part, "accepted", tries))
                else:
                    consumer.reject(delivery)
                    self._tell(Event(part, "rejected", tries))
            consumer.flush()

    def collected(self, letter: Letter) -> None:
        """A message is dead, and kept."""
        part = self._parts[letter.message_id]
        self._ended(part, End.DEAD)
        self._tell(Event(part, "dead", self._tries[part.name], letter.error_reason))

    def _ended(self, part: Part, end: End) -> None:
        self._ends[part.name].append(end)
        if all(self._ends.values()):
            self._over.set()
