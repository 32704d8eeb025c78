"""What tests of the retrier need: the topology with short tiers, the role running, consumers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from redrive.amqp import Channel, Delivery, Properties, Publish
from redrive.amqp.supervision import Session, supervise
from redrive.broker.apply import apply
from redrive.broker.topology import describe
from redrive.domain import headers
from redrive.domain.durations import format_duration
from redrive.domain.policy import Policy, PolicyBook
from redrive.errors import BrokerError
from redrive.settings.sections import QueueSettings, TopologySettings
from redrive.work import mover as mover_module
from redrive.work.mover import Limits, Mover
from redrive.work.parking import Parking
from redrive.work.retrier import Retrier
from tests.services.eventually import eventually_async
from tests.services.moving import QUICK, Kind, channel_to, connector, copies, marked

DEAD = "dlq-queue"
SHORT = (timedelta(milliseconds=100), timedelta(milliseconds=200), timedelta(milliseconds=300))


def topology(kind: Kind, tiers: Sequence[timedelta] = SHORT) -> TopologySettings:
    return TopologySettings.model_validate(
        {"queue_type": kind, "tiers": list(map(format_duration, tiers))}
    )


async def declare_topology(
    url: str, settings: TopologySettings, queues: Sequence[QueueSettings] = ()
) -> None:
    wanted = describe(settings, tuple(queues))
    async with channel_to(url) as channel:
        for exchange in wanted.exchanges:
            await channel.declare_exchange(exchange.name, exchange.kind)
        for queue in wanted.queues:
            await channel.declare_queue(queue.name, arguments={**queue.arguments})
        for binding in wanted.bindings:
            await channel.bind_queue(binding.queue, binding.exchange, binding.routing_key)


def parking(url: str, settings: TopologySettings, queues: Sequence[QueueSettings] = ()) -> Parking:
    """Which queues keep what is rejected; who asks has what is missing made."""
    wanted = describe(settings, tuple(queues))

    async def ask() -> frozenset[str]:
        async with channel_to(url) as channel:
            return wanted.parking((await apply(wanted, channel.connection)).sound)

    return Parking(ask)


@asynccontextmanager
async def retrying(
    url: str,
    settings: TopologySettings,
    policies: Mapping[str, int] | Sequence[Policy],
    queues: Sequence[QueueSettings] = (),
) -> AsyncIterator[Retrier]:
    """The retrier running on a declared topology."""
    parks = parking(url, settings, queues)
    await parks.keeps("")
    if isinstance(policies, Mapping):
        policies = [Policy(name=name, max_retries=limit) for name, limit in policies.items()]
    book = PolicyBook(file=policies)
    retrier = Retrier(
        settings,
        queues,
        lambda: book,
        connect=connector(url),
        limits=Limits(prefetch=200),
        parking=parks,
    )
    stopping = asyncio.Event()
    running = asyncio.create_task(retrier.run(stopping))
    try:
        yield retrier
    finally:
        stopping.set()
        await asyncio.wait_for(running, 30)


@contextmanager
def coming_back_quickly() -> Iterator[None]:
    """Retriers that wait only a little for a broker that is away."""

    async def quickly(session: Session, **named: Any) -> None:
        await supervise(session, **{**named, "backoff": QUICK})

    with patch.object(mover_module, "supervise", quickly):
        yield


def told_to(*movers: Mover, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the plans of these are told that no queue took, as it comes."""
    told: list[Any] = []
    for mover in movers:
        reconsider = mover._plan.reconsider

        async def listen(*said: Any, ask: Any = reconsider) -> Any:
            told.append(said)
            return await ask(*said)

        monkeypatch.setattr(mover._plan, "reconsider", listen)
    return told


async def declare_origin(
    url: str, queue: str, kind: Kind, *keys: str, **arguments: str | int
) -> None:
    """A consumer's own queue that dead-letters to the retry exchange, bound to exchange `work`."""
    async with channel_to(url) as channel:
        await channel.declare_exchange("work", "topic")
        await channel.declare_queue(
            queue,
            arguments={
                "x-queue-type": kind,
                "x-dead-letter-exchange": "retry-exchange",
                **{name.replace("_", "-"): value for name, value in arguments.items()},
            },
        )
        for key in keys:
            await channel.bind_queue(queue, "work", key)


async def publish_one(url: str, key: str, message_id: str, exchange: str = "work") -> None:
    properties = Properties.empty().with_text("message_id", message_id).persistent()
    async with channel_to(url) as channel:
        publisher = await channel.publisher()
        await publisher.send(Publish(exchange, key, properties.raw, message_id.encode()))


@dataclass
class Handler:
    """A plain consumer: acks what `accepts` says, rejects the rest. No SDK, no Redrive headers."""

    accepts: Callable[[Delivery], bool]
    seen: list[tuple[float, Delivery]] = field(default_factory=list)

    async def serve(self, channel: Channel, queue: str) -> None:
        """Until the broker is lost, or the task is cancelled."""
        consumer = await channel.consume(queue, prefetch=100)
        while batch := await consumer.next_batch():
            for delivery in batch:
                self.seen.append((time.monotonic(), delivery))
                if self.accepts(delivery):
                    consumer.ack(delivery)
                else:
                    consumer.reject(delivery)
            consumer.flush()

    @property
    def deliveries(self) -> list[Delivery]:
        return [delivery for _, delivery in self.seen]

    def gaps(self) -> list[float]:
        return [later - earlier for (earlier, _), (later, _) in pairwise(self.seen)]

    async def has_seen(self, count: int, *, within: float = 30.0) -> None:
        await eventually_async(
            lambda: len(self.seen) >= count, within=within, what=f"{count} deliveries"
        )


@asynccontextmanager
async def handling(
    url: str, queue: str, accepts: Callable[[Delivery], bool]
) -> AsyncIterator[Handler]:
    handler = Handler(accepts)
    async with channel_to(url) as channel:
        serving = asyncio.create_task(handler.serve(channel, queue))
        try:
            yield handler
        finally:
            serving.cancel()
            await asyncio.wait((serving,))


@asynccontextmanager
async def handling_through_losses(
    url: str, queue: str, accepts: Callable[[Delivery], bool]
) -> AsyncIterator[Handler]:
    """The same, but it comes back whenever the broker does."""
    handler = Handler(accepts)
    stopping = asyncio.Event()

    async def session() -> None:
        async with channel_to(url) as channel:
            serving = asyncio.ensure_future(handler.serve(channel, queue))
            await asyncio.wait(
                (serving, asyncio.ensure_future(stopping.wait())),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if serving.done():
                serving.result()
            serving.cancel()

    def lost(_error: BrokerError, _delay: timedelta) -> None:
        pass

    serving = asyncio.create_task(
        supervise(session, on_lost=lost, stopping=stopping, backoff=QUICK)
    )
    try:
        yield handler
    finally:
        stopping.set()
        await asyncio.wait_for(serving, 30)


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of messages, by identity."""

    expected: int
    lost: tuple[str, ...]
    strange: tuple[str, ...]
    """Found, and never sent."""
    doubled: int
    """Identities with more than one copy."""
    extra: int
    """Copies beyond the first."""
    other_id: tuple[str, ...]
    """Doubled, and the copies do not have one `redrive-id`."""
    unmarked: tuple[str, ...]
    """Doubled, and no copy says `redrive-redelivered`."""

    def __str__(self) -> str:
        return (
            f"{self.expected} messages: lost {len(self.lost)}, doubled {self.doubled} "
            f"({self.extra} extra copies), of those with another redrive-id {len(self.other_id)}, "
            f"without a mark {len(self.unmarked)}"
        )


def tally(dead: Iterable[Delivery], expected: Iterable[str]) -> Tally:
    wanted = set(expected)
    found = copies(dead)
    doubled = {identity: them for identity, them in found.items() if len(them) > 1}
    return Tally(
        expected=len(wanted),
        lost=tuple(sorted(wanted - found.keys())),
        strange=tuple(sorted(found.keys() - wanted)),
        doubled=len(doubled),
        extra=sum(len(them) - 1 for them in doubled.values()),
        other_id=tuple(
            identity for identity, them in doubled.items() if len({*map(redrive_id, them)}) > 1
        ),
        unmarked=tuple(
            identity for identity, them in doubled.items() if not any(map(marked, them))
        ),
    )


def redrive_id(delivery: Delivery) -> object:
    return Properties.read(delivery.properties).header(headers.ID)


def never(_: Delivery) -> bool:
    return False


def always(_: Delivery) -> bool:
    return True
