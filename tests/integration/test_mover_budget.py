"""A Mover whose budget is spent by what waits in hand: it is read on, and nothing comes again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import structlog

from redrive.amqp import Budget, Consumer, Delivery, Properties, Publish, fields, strain
from redrive.domain import headers
from redrive.domain.policy import PolicyBook
from redrive.work import dead_letters
from redrive.work.mover import Instruction, Later, Limits
from redrive.work.retrier import Retrier
from tests.services.eventually import eventually_async
from tests.services.moving import (
    SOURCE,
    TARGET,
    Kind,
    MoveTo,
    channel_to,
    connector,
    holds,
    identities,
    identity,
    lay_out,
    marked,
    message,
    moving,
    publish,
    ready,
    take_all,
)
from tests.services.plugin import NewProxy, OwnNode, Vhost
from tests.services.retrying import DEAD, declare_topology, topology

LOWERED = "mover.prefetch_lowered"
SIZE, COUNT, PREFETCH = 100_000, 90, 60
BUDGET = 2_000_000
IDENTITIES = [str(number) for number in range(COUNT)]

Log = list[MutableMapping[str, Any]]


class Watched(Consumer):
    """Consumers that are known to the test, in the order in which they were made."""

    made: list[Watched] = []  # noqa: RUF012  (of all of them, emptied for each test)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        Watched.made.append(self)

    @classmethod
    def of(cls, queue: str) -> list[Watched]:
        return [each for each in cls.made if each.queue == queue]


@dataclass
class Waits(MoveTo):
    """Keeps everything in hand until there is room."""

    has_room: bool = False

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        copy = super().decide(delivery, user)
        assert isinstance(copy, Publish)
        return self._later(copy)

    def _later(self, copy: Publish) -> Later:
        def instead() -> Instruction | None:
            return None if self.has_room else self._later(copy)

        return Later(copy, "no room", timedelta(milliseconds=100), instead)


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.amqp.channel.Consumer", Watched)
    monkeypatch.setattr(Watched, "made", [])
    monkeypatch.setattr(strain, "LOOK_EVERY", 0.1)


@pytest.fixture
def said() -> Iterator[Log]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def events(said: Log, queue: str) -> list[str]:
    return [line["event"] for line in said if line.get("queue") == queue]


async def is_followed(queue: str) -> tuple[Watched, Watched]:
    """Wait until a second consumer has all that it may, and the first has read all that it has."""

    def are_full() -> bool:
        return len(Watched.of(queue)) > 1 and all(each.is_full for each in Watched.of(queue))

    await eventually_async(are_full, what="a second consumer, and both full")
    first, second = Watched.of(queue)
    assert not first.is_over_budget
    assert not second.is_over_budget  # so the socket is read
    return first, second


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_what_waits_in_hand_stays_there_and_less_is_taken_beside_it(
    vhost: Vhost, kind: Kind, said: Log
) -> None:
    await lay_out(vhost.url, kind)
    await publish(vhost.url, [message(each, body=bytes(SIZE)) for each in IDENTITIES])
    plan = Waits()
    limits = Limits(prefetch=PREFETCH, budget=Budget(BUDGET))
    async with moving(vhost.url, plan, limits=limits) as running:
        await is_followed(SOURCE)
        in_hand = set(identities(plan.decided))
        assert limits.budget.spent <= BUDGET + BUDGET // 3 + 400_000  # a read may overshoot
        assert await ready(vhost.url, SOURCE) == COUNT - PREFETCH - (len(in_hand) - first_had(plan))
        plan.has_room = True
        await holds(vhost.url, TARGET, COUNT)
        await eventually_async(lambda: running.moved == COUNT)
        assert running.sessions == 1
        assert running.mover.counts.stayed == 0
    assert await ready(vhost.url, SOURCE) == 0
    moved = await take_all(vhost.url, TARGET)
    assert sorted(identities(moved), key=int) == IDENTITIES
    assert not [each for each in moved if identity(each) in in_hand and marked(each)]
    again = [each for each in moved if marked(each)]
    assert len(again) == PREFETCH - first_had(plan)  # what the first had not read
    assert events(said, SOURCE).count(LOWERED) == 1
    assert "mover.lost" not in events(said, SOURCE)


def first_had(plan: Waits) -> int:
    """How many came by the first consumer: tags begin anew with the second."""
    tags = [each.tag for each in plan.decided]
    return tags.index(1, 1) if 1 in tags[1:] else len(tags)


async def test_while_the_broker_confirms_nothing_less_is_taken_and_nothing_is_moved_twice(
    vhost: Vhost, proxy: NewProxy, said: Log
) -> None:
    await lay_out(vhost.url, "quorum")
    way = await proxy("127.0.0.1", vhost.node.port)
    source, lane = connector(vhost.url), connector(way.through(vhost.url))
    limits = Limits(prefetch=PREFETCH, budget=Budget(BUDGET))
    async with moving(
        lambda name: (lane if name.startswith("redrive publish") else source)(name),
        MoveTo(),
        limits=limits,
    ) as running:
        await running.consumes(vhost.url)
        way.half_open()
        await publish(vhost.url, [message(each, body=bytes(SIZE)) for each in IDENTITIES])
        await is_followed(SOURCE)
        way.flow()
        await holds(vhost.url, TARGET, COUNT)
        await eventually_async(lambda: running.moved == COUNT)
        assert running.sessions == 1
    assert sorted(identities(await take_all(vhost.url, TARGET)), key=int) == IDENTITIES


async def test_while_an_alarm_blocks_publishers_less_is_taken_and_nothing_is_moved_twice(
    own_node: OwnNode,
) -> None:
    node = own_node()
    await lay_out(node.url(), "quorum")
    await publish(node.url(), [message(each, body=bytes(SIZE)) for each in IDENTITIES])
    await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0.000001")
    limits = Limits(prefetch=PREFETCH, budget=Budget(BUDGET))
    async with moving(node.url(), MoveTo(), limits=limits) as running:
        await is_followed(SOURCE)
        await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0.4")
        await eventually_async(lambda: running.moved == COUNT)
        assert running.sessions == 1
    assert sorted(identities(await take_all(node.url(), TARGET)), key=int) == IDENTITIES


async def test_stopped_while_messages_wait_beside_it_gives_all_back_once(vhost: Vhost) -> None:
    await lay_out(vhost.url, "quorum")
    await publish(vhost.url, [message(each, body=bytes(SIZE)) for each in IDENTITIES])
    limits = Limits(prefetch=PREFETCH, budget=Budget(BUDGET))
    async with moving(vhost.url, Waits(), limits=limits):
        await is_followed(SOURCE)
    await holds(vhost.url, SOURCE, COUNT)
    left = await take_all(vhost.url, SOURCE)
    assert sorted(identities(left), key=int) == IDENTITIES
    assert {returns(each) for each in left} <= {0, 1}


def returns(delivery: Delivery) -> object:
    return Properties.read(delivery.properties).header("x-delivery-count") or 0


def failed(number: str) -> Publish:
    put = {
        headers.QUEUE: fields.longstr("Q"),
        headers.EXCHANGE: fields.longstr("work"),
        headers.ROUTING_KEY: fields.longstr("k"),
    }
    properties = Properties.empty().persistent().with_text("message_id", number).with_headers(put)
    return Publish("retry-exchange", "k", properties.raw, bytes(SIZE))


async def test_a_queue_with_a_delivery_limit_loses_nothing_while_no_dead_letter_exchange_is_there(
    vhost: Vhost, said: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tried more often, or the test would wait for its turns.
    monkeypatch.setattr(dead_letters, "_WAIT_FOR_ROOM", timedelta(milliseconds=100))
    monkeypatch.setattr(dead_letters, "_LONGEST_PAUSE", timedelta(milliseconds=500))
    settings = topology("quorum")
    await declare_topology(vhost.url, settings)
    async with channel_to(vhost.url) as channel:
        await channel.delete_exchange("dlq-exchange")
        await channel.delete_queue("retry-queue")
        # Somebody made it otherwise: a message that is given back twice is deleted.
        await channel.declare_queue(
            "retry-queue", arguments={"x-queue-type": "quorum", "x-delivery-limit": 1}
        )
        await channel.bind_queue("retry-queue", "retry-exchange", "#")
    await publish(vhost.url, map(failed, IDENTITIES))
    book = PolicyBook()
    retrier = Retrier(
        settings,
        (),
        lambda: book,
        connect=connector(vhost.url),
        limits=Limits(prefetch=PREFETCH, budget=Budget(4 * BUDGET)),  # of which it has a quarter
    )
    mover, stopping = retrier.movers[0], asyncio.Event()
    running = asyncio.create_task(retrier.run(stopping))
    try:
        await is_followed("retry-queue")
        async with channel_to(vhost.url) as channel:
            await channel.declare_exchange("dlq-exchange", "direct")
            await channel.bind_queue(DEAD, "dlq-exchange", "dlq-routing-key")
        await eventually_async(lambda: mover.counts.moved == COUNT)
    finally:
        stopping.set()
        await asyncio.wait_for(running, 30)
    assert sorted(set(identities(await take_all(vhost.url, DEAD))), key=int) == IDENTITIES
    assert await ready(vhost.url, "retry-queue") == 0
    assert (mover.counts.sessions, mover.counts.stayed) == (1, 0)
    assert events(said, "retry-queue").count(LOWERED) == 1
