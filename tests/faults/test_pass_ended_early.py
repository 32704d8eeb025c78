"""A pass that ends early: one of its connections is cut, the broker dies, or it is stopped. And one
that is slow.

Nothing is lost, and what was held costs no delivery as long as its own connection is open: on
RabbitMQ 4.3 and later `x-delivery-count` tells, before that every return is one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from redrive.amqp import Budget, Channel, Connection, Consumer, Delivery, Properties
from redrive.amqp.lane import Connect
from redrive.broker.looking import NACK_IS_FREE
from redrive.errors import CannotConnect
from redrive.work import giving_back, one_pass, sparing
from redrive.work.look import Outcome
from redrive.work.move import MoveOrder, QueueMove
from redrive.work.mover import Limits
from redrive.work.one_by_one import OneByOne
from redrive.work.queue_site import QueueSite
from redrive.work.window import Window
from tests.faults.sweep_process import management_of, sweep
from tests.services.eventually import eventually_async
from tests.services.moving import (
    Kind,
    channel_to,
    connector,
    declare,
    holds,
    identities,
    marked,
    publish,
    ready,
    take_all,
)
from tests.services.plugin import NewProxy, OwnNode, Vhost
from tests.services.sweeping import (
    DLQ,
    FINAL,
    LOOKS,
    PUBLISHES,
    by_another_way,
    counts_looks,
    dead,
    fill,
    version_of,
)

MESSAGES = 60
EVERYTHING = [str(number) for number in range(MESSAGES)]
KEEPS = "redrive keep"
BUDGET, ONE_MORE = Limits(budget=Budget(3_000_000)), 4_000_000


async def lay_out(url: str, kind: Kind) -> None:
    """Every second message is over the limit. The queue is as users make it."""
    await fill(url, kind, [5 if number % 2 else 1 for number in range(MESSAGES)])
    await declare(url, FINAL, kind)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes that wait for a busy broker, which may take seconds, to have what is given back."""
    monkeypatch.setattr(giving_back, "_SEEN_WITHIN", 30.0)
    for within in ("_DRAINS_WITHIN", "_RETURNS_WITHIN", "_CLOSES_WITHIN"):
        monkeypatch.setattr(one_pass, within, 30.0)


def deliveries_spent(deliveries: list[Delivery]) -> set[object]:
    return {Properties.read(each.properties).header("x-delivery-count") for each in deliveries}


async def move(
    connect: Connect,
    stopping: asyncio.Event | None = None,
    limits: Limits | None = None,
    **named: float,
) -> Outcome:
    site = QueueSite(await connect("test move"), None, connect)
    order = MoveOrder(source=DLQ, target=FINAL, spend_deliveries=True, **named)  # type: ignore[arg-type]
    try:
        return await QueueMove(order, site, "redrive-return", limits).run(stopping)
    finally:
        site.connection.abort()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_losing_the_publishing_connection_costs_what_is_held_no_delivery(
    vhost: Vhost, proxy: NewProxy, kind: Kind
) -> None:
    await lay_out(vhost.url, kind)
    way = await proxy("127.0.0.1", vhost.node.port)
    way.cut_after(sent=3_000)
    connect = by_another_way(vhost.url, PUBLISHES, way.through(vhost.url))
    outcome = await sweep(connect, DLQ, FINAL)
    assert outcome.error
    assert outcome.remedy.startswith("run it again")
    assert not [note for note in outcome.notes if "take back by itself" in note]
    there = await take_all(vhost.url, DLQ)  # at once: they were given back before it ended
    moved = identities(await take_all(vhost.url, FINAL))
    assert {*identities(there), *moved} == set(EVERYTHING)
    assert max(Counter(identities(there)).values()) == 1
    version = await version_of(vhost.url)
    given_back = [each.redelivered for each in there]
    if counts_looks(version, kind):  # fetched one by one: what was not looked at was not taken
        assert given_back.count(True) >= outcome.examined - outcome.moved > 0
    else:  # all were taken before the first was published
        assert all(given_back)
    if kind == "classic" or version >= NACK_IS_FREE:
        assert deliveries_spent(there) == {None}
    if kind == "classic" or version >= (4, 0):
        assert identities(there) == sorted(identities(there), key=int)


@pytest.mark.usefixtures("patient")
async def test_losing_the_publishing_connection_costs_one_delivery_where_each_look_is_one(
    vhost: Vhost, proxy: NewProxy
) -> None:
    await declare(vhost.url, DLQ, "quorum", x_delivery_limit=5)
    await declare(vhost.url, FINAL, "quorum")
    await publish(vhost.url, [dead(each, 5 if each % 2 else 1) for each in range(MESSAGES)])
    way = await proxy("127.0.0.1", vhost.node.port)
    way.cut_after(sent=3_000)
    connect = by_another_way(vhost.url, PUBLISHES, way.through(vhost.url))
    outcome = await sweep(connect, DLQ, FINAL, management_of(vhost.url, vhost.management_url))
    assert outcome.error
    assert not [note for note in outcome.notes if "take back by itself" in note]
    there = await take_all(vhost.url, DLQ)  # at once: they were given back before it ended
    moved = identities(await take_all(vhost.url, FINAL))
    assert {*identities(there), *moved} == set(EVERYTHING)
    assert max(Counter(identities(there)).values()) == 1
    counts = await version_of(vhost.url) < NACK_IS_FREE
    assert deliveries_spent(there) - {None, 0} == ({1} if counts else set())


async def test_what_is_held_goes_back_also_if_the_broker_answers_just_as_the_pass_ends(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message comes when its fetch was given up, before the task that fetched it knows."""
    await declare(vhost.url, DLQ, "quorum", x_delivery_limit=5)
    await publish(vhost.url, [dead(each, 1) for each in range(5)])
    source = await connector(vhost.url)(LOOKS)
    window = OneByOne(source, DLQ, count=5, limits=Limits())
    await window.open()
    for _ in range(3):
        (delivery,) = await window.next_batch()
        window.hold(delivery)
    fetching = asyncio.create_task(window.next_batch())
    on_method = Channel.on_method

    def give_up_first(channel: Channel, index: int, payload: bytes) -> None:
        fetching.cancel()
        on_method(channel, index, payload)

    monkeypatch.setattr(Channel, "on_method", give_up_first)
    await asyncio.wait((fetching,))
    assert fetching.cancelled()
    returned = await window.return_everything(within=30)
    await source.close()
    assert returned
    assert set(identities(await take_all(vhost.url, DLQ))) == set(EVERYTHING[:5])


async def lay_out_at_their_limit(url: str) -> None:
    """Before RabbitMQ 4.3 every one of these is removed when it is given back once more."""
    await declare(url, DLQ, "quorum", x_delivery_limit=1)
    await declare(url, FINAL, "quorum")
    await publish(url, [dead(each, 5 if each % 2 else 1) for each in range(MESSAGES)])
    async with channel_to(url) as channel:
        tags = [each.tag for _ in range(MESSAGES) if (each := await channel.get(DLQ))]
        channel.nack(tags[-1], multiple=True, requeue=True)
        await holds(url, DLQ, MESSAGES)


async def everywhere(url: str) -> set[str]:
    """The identities of what is in either queue."""
    taken = [await take_all(url, queue) for queue in (DLQ, FINAL)]
    return {name for deliveries in taken for name in identities(deliveries)}


@pytest.mark.usefixtures("patient")
async def test_what_is_at_its_delivery_limit_is_kept_if_its_copies_are_lost(
    vhost: Vhost, proxy: NewProxy
) -> None:
    await lay_out_at_their_limit(vhost.url)
    way = await proxy("127.0.0.1", vhost.node.port)
    way.cut_after(sent=2_000)
    connect = by_another_way(vhost.url, PUBLISHES, way.through(vhost.url))
    outcome = await sweep(connect, DLQ, FINAL, management_of(vhost.url, vhost.management_url))
    assert outcome.error
    assert await everywhere(vhost.url) == set(EVERYTHING)


async def test_what_is_at_its_delivery_limit_is_kept_if_it_is_removed_meanwhile(
    vhost: Vhost, proxy: NewProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the connection that has it, while its copy is held up."""
    await lay_out_at_their_limit(vhost.url)
    looks = await proxy("127.0.0.1", vhost.node.port)
    publishes = await proxy("127.0.0.1", vhost.node.port)
    looking = by_another_way(vhost.url, LOOKS, looks.through(vhost.url))
    publishing = by_another_way(vhost.url, PUBLISHES, publishes.through(vhost.url))
    next_batch = OneByOne.next_batch

    async def connect(name: str) -> Connection:
        return await (publishing if name.startswith(PUBLISHES) else looking)(name)

    async def cut_before_the_tenth(source: OneByOne) -> list[Delivery]:
        if source.taken == 5:  # the first was confirmed, so that several are under way from now on
            publishes.half_open()
        if source.taken == 9:  # not while one is on its way to us
            looks.cut()
        return await next_batch(source)

    monkeypatch.setattr(OneByOne, "next_batch", cut_before_the_tenth)
    outcome = await sweep(connect, DLQ, FINAL, management_of(vhost.url, vhost.management_url))
    assert bool(outcome.error) == (await version_of(vhost.url) < NACK_IS_FREE)
    assert await everywhere(vhost.url) == set(EVERYTHING)


async def test_what_is_at_its_delivery_limit_is_kept_if_a_pass_is_stopped_whose_fetch_hangs(
    vhost: Vhost, proxy: NewProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lay_out_at_their_limit(vhost.url)
    way = await proxy("127.0.0.1", vhost.node.port)
    looking = by_another_way(vhost.url, LOOKS, way.through(vhost.url))
    publishing = by_another_way(vhost.url, PUBLISHES, way.through(vhost.url))
    next_batch, stopping = OneByOne.next_batch, asyncio.Event()

    async def connect(name: str) -> Connection:
        return await (publishing if name.startswith(PUBLISHES) else looking)(name)

    async def hang_before_the_tenth(source: OneByOne) -> list[Delivery]:
        if source.taken == 9:
            way.half_open()
            stopping.set()
        return await next_batch(source)

    monkeypatch.setattr(OneByOne, "next_batch", hang_before_the_tenth)
    monkeypatch.setattr(one_pass, "_DRAINS_WITHIN", 0.2)
    management = management_of(vhost.url, vhost.management_url)
    await sweep(connect, DLQ, FINAL, management, stopping=stopping)
    assert await everywhere(vhost.url) == set(EVERYTHING)


async def test_what_is_at_its_delivery_limit_is_kept_once_the_broker_is_back(
    vhost: Vhost, proxy: NewProxy
) -> None:
    await lay_out_at_their_limit(vhost.url)
    way = await proxy("127.0.0.1", vhost.node.port)
    way.cut_after(sent=2_000)
    cut, tried = by_another_way(vhost.url, PUBLISHES, way.through(vhost.url)), 0

    async def connect(name: str) -> Connection:
        nonlocal tried
        tried += name.startswith(KEEPS)
        if name.startswith(KEEPS) and tried < 3:
            raise CannotConnect("not yet")
        return await cut(name)

    await sweep(connect, DLQ, FINAL, management_of(vhost.url, vhost.management_url))
    assert tried == (3 if await version_of(vhost.url) < NACK_IS_FREE else 0)
    assert await everywhere(vhost.url) == set(EVERYTHING)


async def test_what_is_at_its_delivery_limit_and_cannot_be_kept_is_said(
    vhost: Vhost, proxy: NewProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lay_out_at_their_limit(vhost.url)
    monkeypatch.setattr(sparing, "_RESCUES_WITHIN", 1.0)
    way = await proxy("127.0.0.1", vhost.node.port)
    way.cut_after(sent=2_000)
    cut = by_another_way(vhost.url, PUBLISHES, way.through(vhost.url))

    async def connect(name: str) -> Connection:
        if name.startswith(KEEPS):
            raise CannotConnect("it is away")
        return await cut(name)

    outcome = await sweep(connect, DLQ, FINAL, management_of(vhost.url, vhost.management_url))
    there = await everywhere(vhost.url)
    if await version_of(vhost.url) < NACK_IS_FREE:
        said = re.search(r"(\d+) at their delivery limit could not be kept", outcome.error)
        assert said, outcome.error
        assert int(said[1]) >= MESSAGES - len(there)  # some may have come to their target
        assert "it is away" in outcome.error
    else:
        assert there == set(EVERYTHING)


async def test_losing_the_connection_to_the_queue_loses_nothing_and_says_what_it_cost(
    vhost: Vhost, proxy: NewProxy
) -> None:
    await lay_out(vhost.url, "quorum")
    way = await proxy("127.0.0.1", vhost.node.port)
    way.cut_after(received=8_000)
    connect = by_another_way(vhost.url, LOOKS, way.through(vhost.url))
    outcome = await sweep(connect, DLQ, FINAL, management_of(vhost.url, vhost.management_url))
    assert outcome.error
    assert outcome.remedy.startswith("run it again")
    limited = await version_of(vhost.url) >= (4, 0)
    assert any("take back by itself" in note for note in outcome.notes) == limited

    async def all_back() -> bool:  # the queue has to notice first that its consumer is gone
        return await ready(vhost.url, DLQ) + await ready(vhost.url, FINAL) >= MESSAGES

    await eventually_async(all_back, what="all messages ready again")
    again = await sweep(connector(vhost.url), DLQ, FINAL)
    assert again.is_sound, again
    await holds(vhost.url, DLQ, len(EVERYTHING[::2]))
    left = identities(await take_all(vhost.url, DLQ))
    assert sorted(left, key=int) == EVERYTHING[::2]
    assert set(identities(await take_all(vhost.url, FINAL))) == set(EVERYTHING[1::2])


async def test_a_broker_that_dies_during_a_pass_has_everything_when_it_is_back(
    own_node: OwnNode,
) -> None:
    node = own_node()
    await fill(node.url(), "quorum", [1] * MESSAGES)
    await declare(node.url(), FINAL, "quorum")
    await asyncio.to_thread(node.settle)  # else a kill may take the queues with it
    moving = asyncio.create_task(move(connector(node.url()), rate=20.0))
    await holds(node.url(), FINAL, 5)
    await asyncio.to_thread(node.kill)
    outcome = await asyncio.wait_for(moving, 90)
    assert outcome.error
    await asyncio.to_thread(node.restart)

    found: list[str] = []

    async def all_there() -> bool:  # the queue has to notice first that its consumer is gone
        found.extend(identities(await take_all(node.url(), DLQ)))
        return {*found, *moved} == set(EVERYTHING)

    moved = identities(await take_all(node.url(), FINAL))
    assert len(moved) >= outcome.moved >= 1
    await eventually_async(all_there, what="all messages after the restart")
    assert max(Counter(found).values()) == 1


async def test_a_pass_that_is_stopped_while_the_broker_blocks_publishers_ends_in_time(
    own_node: OwnNode,
) -> None:
    node = own_node()
    await fill(node.url(), "quorum", ())
    await declare(node.url(), FINAL, "quorum")
    large = [dead(number, 1) for number in range(50)]
    for each in large:
        each.body = bytes(100_000)
    await publish(node.url(), large)
    await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0.000001")
    lanes: list[Connection] = []

    async def connect(name: str) -> Connection:
        connection = await connector(node.url())(name)
        if name.startswith(PUBLISHES):
            lanes.append(connection)
        return connection

    stopping = asyncio.Event()
    moving = asyncio.create_task(move(connect, stopping))
    await eventually_async(lambda: lanes and lanes[-1].blocked is not None)
    stopping.set()
    began = time.monotonic()
    outcome = await asyncio.wait_for(moving, 90)
    assert time.monotonic() - began < 60  # else it would wait for ever
    assert one_pass._DRAINS_WITHIN + one_pass._RETURNS_WITHIN + one_pass._CLOSES_WITHIN < 10
    assert not outcome.error
    await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0.4")
    # what was published while blocked may still appear (BROKER_FACTS.md): in doubt, never lost
    await holds(node.url(), DLQ, 50 - outcome.moved)
    there = await take_all(node.url(), DLQ)
    assert len(there) == 50 - outcome.moved
    assert {*identities(there), *identities(await take_all(node.url(), FINAL))} == set(
        EVERYTHING[:50]
    )
    if await version_of(node.url()) >= NACK_IS_FREE:
        assert deliveries_spent(there) == {None}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_pass_that_is_interrupted_gives_back_in_order_what_it_holds(
    vhost: Vhost, kind: Kind
) -> None:
    await fill(vhost.url, kind, [1] * 30)  # as many as every version keeps in order
    await declare(vhost.url, FINAL, kind)
    stopping = asyncio.Event()
    moving = asyncio.create_task(move(connector(vhost.url), stopping, rate=10.0))
    await holds(vhost.url, FINAL, 3)
    stopping.set()
    outcome = await asyncio.wait_for(moving, 90)
    assert not outcome.error
    assert 3 <= outcome.moved < 30
    there = await take_all(vhost.url, DLQ)
    assert identities(there) == EVERYTHING[outcome.moved : 30]
    assert identities(await take_all(vhost.url, FINAL)) == EVERYTHING[: outcome.moved]
    if kind == "classic" or await version_of(vhost.url) >= NACK_IS_FREE:
        assert deliveries_spent(there) == {None}
    assert not any(map(marked, there))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_pass_that_is_interrupted_while_messages_come_to_it_gives_back_in_order(
    vhost: Vhost, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that is acked lets another come, and a broker takes back by itself what it sends to a
    consumer that was just cancelled."""
    await declare(vhost.url, FINAL, kind)
    stopping = asyncio.Event()
    acks: dict[type, Callable[..., None]] = {Window: Window.ack, OneByOne: OneByOne.ack}

    def stop_at_the_third(source: Window | OneByOne, *deliveries: Delivery) -> None:
        acks[type(source)](source, *deliveries)
        if deliveries and deliveries[-1].tag >= 3:
            stopping.set()  # just before the ack goes out

    for source in acks:
        monkeypatch.setattr(source, "ack", stop_at_the_third)
    for _ in range(5):  # it is a matter of milliseconds
        await fill(vhost.url, kind, [1] * MESSAGES)
        stopping.clear()
        few = Limits(prefetch=10, widest=10)
        outcome = await asyncio.wait_for(move(connector(vhost.url), stopping, few, rate=100.0), 90)
        assert 3 <= outcome.moved < MESSAGES
        assert identities(await take_all(vhost.url, FINAL)) == EVERYTHING[: outcome.moved]
        there = identities(await take_all(vhost.url, DLQ))
        rest = EVERYTHING[outcome.moved :]
        if kind == "classic" or await version_of(vhost.url) >= (4, 0):
            assert there == rest
        else:  # what was taken goes behind what was not
            first = there.index(rest[0])
            assert there[first:] + there[:first] == rest


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes a consumer had in memory after each delivery."""
    deliver, seen = Consumer.deliver, [0]

    def weighed(consumer: Consumer, deliveries: list[Delivery]) -> bool:
        first = deliver(consumer, deliveries)
        if consumer.queue == DLQ:
            seen.append(consumer.unsettled_bytes)
        return first

    monkeypatch.setattr(Consumer, "deliver", weighed)
    return seen


async def lay_out_large(url: str, kind: Kind) -> None:
    """Ten times as many bytes as the budget."""
    await declare(url, DLQ, kind)
    await declare(url, FINAL, kind)
    large = [dead(number, 1) for number in range(MESSAGES)]
    for each in large:
        each.body = bytes(500_000)
    await publish(url, large)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_pass_that_ends_early_keeps_no_more_bytes_than_its_budget(
    vhost: Vhost, kind: Kind, kept: list[int]
) -> None:
    """It still hears the broker, behind all the messages that are on their way to it."""
    await lay_out_large(vhost.url, kind)
    outcome = await move(connector(vhost.url), limits=BUDGET, most=1)
    assert outcome.moved == 1
    assert max(kept) < ONE_MORE
    there = identities(await take_all(vhost.url, DLQ))
    assert sorted(there, key=int) == EVERYTHING[1:]
    if kind == "classic" or await version_of(vhost.url) >= (4, 0):
        assert there == EVERYTHING[1:]


async def test_a_pass_whose_copies_are_confirmed_late_keeps_no_more_bytes_than_its_budget(
    vhost: Vhost, proxy: NewProxy, kept: list[int]
) -> None:
    """It does not ask meanwhile whether there is more."""
    await lay_out_large(vhost.url, "classic")
    way = await proxy("127.0.0.1", vhost.node.port)
    way.delay(0.3)
    outcome = await move(by_another_way(vhost.url, PUBLISHES, way.through(vhost.url)), None, BUDGET)
    assert outcome.moved == MESSAGES
    assert max(kept) < ONE_MORE


async def test_a_pass_that_asks_whether_there_is_more_reads_no_more_than_its_budget_for_the_answer(
    vhost: Vhost, proxy: NewProxy, kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was late: all messages are on their way, before its answer."""
    await lay_out_large(vhost.url, "classic")
    looking = await proxy("127.0.0.1", vhost.node.port)
    publishing = await proxy("127.0.0.1", vhost.node.port)
    publishing.delay(0.3)
    deliver, call = Consumer.deliver, Channel.call

    def stalls(consumer: Consumer, deliveries: list[Delivery]) -> bool:
        if len(kept) == 1:
            looking.half_open()
        return deliver(consumer, deliveries)

    async def flows(channel: Channel, method: Any, expected: Any, **how: bool) -> Any:
        if len(kept) > 1 and isinstance(method, commands.Queue.Declare):
            looking.flow()
        return await call(channel, method, expected, **how)

    monkeypatch.setattr(Consumer, "deliver", stalls)
    monkeypatch.setattr(Channel, "call", flows)
    looks = by_another_way(vhost.url, LOOKS, looking.through(vhost.url))
    publishes = by_another_way(vhost.url, PUBLISHES, publishing.through(vhost.url))

    async def connect(name: str) -> Connection:
        return await (looks if name.startswith(LOOKS) else publishes)(name)

    outcome = await move(connect, None, BUDGET)
    assert outcome.moved == MESSAGES
    assert max(kept) < ONE_MORE
