"""What tests of the Mover need: queues to move between, plans, and a Mover running meanwhile."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from pamqp.common import FieldValue

from redrive.amqp import (
    Channel,
    Connection,
    Delivery,
    Properties,
    Publish,
    Refused,
    Returned,
    connect,
    parse_addresses,
)
from redrive.amqp.confirms import CONFIRMED
from redrive.amqp.lane import Connect
from redrive.amqp.republish import republished
from redrive.domain import headers
from redrive.domain.backoff import Backoff
from redrive.work.mover import Instruction, Limits, Mover, Park, Stay
from tests.services.eventually import DEADLINE, eventually_async
from tests.services.frameparser import Section, section

Kind = Literal["classic", "quorum"]
SOURCE, TARGET, PARKED = "source", "target", "parked"
QUICK = Backoff(first=timedelta(milliseconds=20), cap=timedelta(milliseconds=200))
STOPS_WITHIN = 30.0


def connector(url: str) -> Connect:
    """What a Mover connects with."""
    addresses = parse_addresses(url)

    async def open_connection(name: str) -> Connection:
        return await connect(addresses, name=name)

    return open_connection


@asynccontextmanager
async def channel_to(url: str) -> AsyncIterator[Channel]:
    """A channel of its own connection."""
    connection = await connect(parse_addresses(url), name="test")
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def declare(
    url: str, queue: str, kind: Kind | Literal["stream"], **arguments: str | int
) -> None:
    """A durable queue; `x_max_length=1` becomes the argument x-max-length."""
    named: dict[str, FieldValue] = {"x-queue-type": kind}
    if kind == "quorum":
        # 20 by default on 4.x, and then the broker drops: DESIGN.md has this number for all queues
        named["x-delivery-limit"] = 1_000_000
    named |= {name.replace("_", "-"): value for name, value in arguments.items()}
    async with channel_to(url) as channel:
        await channel.declare_queue(queue, arguments=named)


async def lay_out(url: str, kind: Kind) -> None:
    """The source, with a dead letter queue, and the target."""
    await declare(url, TARGET, kind)
    await declare(url, PARKED, kind)
    await declare(url, SOURCE, kind, x_dead_letter_exchange="", x_dead_letter_routing_key=PARKED)


def message(
    identity: str | int, put: Mapping[str, bytes] | None = None, body: bytes | None = None
) -> Publish:
    """A persistent message for the source; its `message_id` is its identity, and its body too."""
    text = str(identity)
    properties = Properties.empty().with_text("message_id", text).persistent()
    if put:
        properties = properties.with_headers(put)
    return Publish("", SOURCE, properties.raw, text.encode() if body is None else body)


async def publish(url: str, messages: Iterable[Publish]) -> None:
    """Publish all, each confirmed."""
    async with channel_to(url) as channel:
        publisher = await channel.publisher()
        waiting = 0
        for each in messages:
            await publisher.ready()
            publisher.publish(each)
            waiting += 1
            while waiting >= 2000:
                waiting -= _all_confirmed(await publisher.next_outcomes())
        while waiting:
            waiting -= _all_confirmed(await publisher.next_outcomes())


def _all_confirmed(outcomes: Sequence[tuple[Publish, object]]) -> int:
    assert all(outcome is CONFIRMED for _, outcome in outcomes), outcomes
    return len(outcomes)


async def take_all(url: str, queue: str) -> list[Delivery]:
    """Everything ready in a queue, acked, in its order. For queues that nobody else uses."""
    found: list[Delivery] = []
    async with channel_to(url) as channel:
        ready, _ = await channel.inspect_queue(queue)
        if ready > 100:
            consumer = await channel.consume(queue, prefetch=2000)
            while len(found) < ready:
                batch = await asyncio.wait_for(consumer.next_batch(), 60)
                for delivery in batch:
                    consumer.ack(delivery)
                consumer.flush()
                found += batch
            await consumer.cancel()
    async with channel_to(url) as channel:  # the last word is the broker's own "empty"
        while (last := await channel.get(queue)) is not None:
            channel.ack(last.tag)
            found.append(last)
    return found


async def ready(url: str, queue: str) -> int:
    async with channel_to(url) as channel:
        return (await channel.inspect_queue(queue))[0]


async def empty(url: str, queue: str) -> None:
    """Wait until a queue has no ready messages."""
    async with channel_to(url) as channel:

        async def is_empty() -> bool:
            return (await channel.inspect_queue(queue))[0] == 0

        await eventually_async(is_empty, what=f"{queue} empty")


async def holds(url: str, queue: str, count: int, *, within: float = DEADLINE) -> None:
    """Wait until a queue has so many ready messages."""
    async with channel_to(url) as channel:

        async def enough() -> bool:
            return (await channel.inspect_queue(queue))[0] >= count

        await eventually_async(enough, within=within, what=f"{count} messages in {queue}")


def as_published(message: Delivery | Publish) -> Section:
    """The properties entry by entry, without what the broker itself adds on the way."""
    own = {name.encode() for name in headers.BROKERS_OWN}
    found = section(message.properties)
    return Section(found.properties, [each for each in found.headers if each[0] not in own])


def identity(delivery: Delivery) -> str:
    return str(Properties.read(delivery.properties).get("message_id"))


def identities(deliveries: Iterable[Delivery]) -> list[str]:
    return [identity(each) for each in deliveries]


def marked(delivery: Delivery) -> bool:
    """Whether the copy says that it may be a second one."""
    return Properties.read(delivery.properties).header(headers.REDELIVERED) is True


@dataclass
class MoveTo:
    """Publishes everything to one queue (or one exchange, with its own key), and takes notes."""

    routing_key: str | None = TARGET
    exchange: str = ""
    put: Mapping[bytes, bytes] | None = None
    second_thought: Instruction = field(default_factory=lambda: Park("no second thought"))
    decided: list[Delivery] = field(default_factory=list)
    remembers: bool = True
    reconsidered: list[tuple[Delivery, Returned | Refused]] = field(default_factory=list)
    poison: list[tuple[Delivery, str]] = field(default_factory=list)

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        if self.remembers:
            self.decided.append(delivery)
        return self.copy_of(delivery, user)

    def copy_of(self, delivery: Delivery, user: str) -> Publish:
        key = delivery.routing_key if self.routing_key is None else self.routing_key
        properties = republished(delivery, user=user, put=self.put)
        return Publish(self.exchange, key, properties, delivery.body)

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Instruction:
        self.reconsidered.append((delivery, outcome))
        return self.second_thought

    def poisoned(self, delivery: Delivery, reason: str) -> Park | Stay:
        self.poison.append((delivery, reason))
        return Park(reason)


class Running:
    """A Mover that runs. `failure` is what ended it, if something did."""

    def __init__(self, mover: Mover) -> None:
        self.mover = mover
        self._task = asyncio.create_task(mover.run())

    @property
    def sessions(self) -> int:
        return self.mover.counts.sessions

    @property
    def moved(self) -> int:
        return self.mover.counts.moved

    @property
    def settled(self) -> int:
        """How many deliveries were moved or parked. Raises what the Mover died of."""
        self.check()
        return self.mover.counts.moved + self.mover.counts.parked

    def check(self) -> None:
        """Raise what the Mover died of."""
        if self._task.done():
            self._task.result()

    async def consumes(self, url: str, queue: str = SOURCE) -> None:
        """Wait until the Mover is the queue's consumer."""
        async with channel_to(url) as channel:

            async def consumed() -> bool:
                self.check()
                return (await channel.inspect_queue(queue))[1] > 0

            await eventually_async(consumed, what=f"a consumer of {queue}")

    async def stop(self) -> None:
        """Stop in good order; raises what the Mover died of, and TimeoutError if it hangs."""
        self.mover.stop()
        try:
            await asyncio.wait_for(asyncio.shield(self._task), STOPS_WITHIN)
        finally:
            await self.kill()

    async def kill(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([self._task])


@asynccontextmanager
async def moving(
    connect_by: Connect | str,
    plan: MoveTo,
    *,
    queue: str = SOURCE,
    limits: Limits | None = None,
) -> AsyncIterator[Running]:
    """A Mover of the source that runs until the block ends, and then stops in good order."""
    by = connector(connect_by) if isinstance(connect_by, str) else connect_by
    running = Running(Mover(queue, plan, connect=by, limits=limits, backoff=QUICK))
    try:
        yield running
    except BaseException:
        await running.kill()
        raise
    await running.stop()


def copies(deliveries: Iterable[Delivery]) -> dict[str, list[Delivery]]:
    """The copies of each identity, in the order of the queue."""
    found: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        found[identity(delivery)].append(delivery)
    return found
