"""Queues that are full beside others that are not: a broker's nack is said by one of them, and the
others have the message. Nobody gets it again and again for that."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from redrive.amqp import Delivery, Properties, Publish
from redrive.domain import headers
from redrive.domain.letter import Result
from redrive.domain.policy import Policy
from redrive.work import dead_letters
from redrive.work.sender import Sender
from tests.services.eventually import eventually_async
from tests.services.letters import letter_store
from tests.services.moving import (
    channel_to,
    connector,
    holds,
    identities,
    publish,
    ready,
    take_all,
)
from tests.services.plugin import Vhost
from tests.services.retrying import (
    DEAD,
    always,
    declare_origin,
    declare_topology,
    handling,
    never,
    publish_one,
    retrying,
    topology,
)
from tests.services.sending import QUEUE, claimed, sending, stored

FULL: Final[dict[str, int | str]] = {"x-max-length": 1, "x-overflow": "reject-publish"}


@pytest.fixture(autouse=True)
def _waits_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_WAIT_FOR_ROOM", timedelta(milliseconds=50))


def is_marked(delivery: Delivery) -> bool:
    return Properties.read(delivery.properties).header(headers.REDELIVERED) is True


def was_refused(delivery: Delivery) -> bool:
    return Properties.read(delivery.properties).header(headers.REFUSED) is True


async def fill_the_dead_letter_queue(url: str) -> None:
    async with channel_to(url) as channel:
        await channel.declare_exchange("dlq-exchange", "topic")
    await fill(url, "dlq-exchange", "dlq-routing-key", queue=DEAD)


async def fill(url: str, exchange: str, key: str, *, queue: str = "full") -> None:
    """A full queue, bound to an exchange."""
    async with channel_to(url) as channel:
        await channel.declare_queue(queue, arguments={"x-queue-type": "classic", **FULL})
        await channel.bind_queue(queue, exchange, key)
    await publish(url, [Publish("", queue, Properties.empty().persistent().raw, b"in the way")])


async def test_a_full_neighbour_has_the_others_of_an_exchange_see_a_retry_once(
    vhost: Vhost,
) -> None:
    policy = Policy(name="k", max_retries=2, return_to="exchange")
    async with retrying(vhost.url, topology("classic"), [policy]):
        await declare_origin(vhost.url, "failing", "classic", "k")
        await declare_origin(vhost.url, "neighbour", "classic", "k")
        async with handling(vhost.url, "neighbour", always) as neighbour:
            await publish_one(vhost.url, "k", "m")
            await holds(vhost.url, "failing", 1)
            await fill(vhost.url, "work", "k")
            # What came with the others of the exchange is taken: rejected, it would come so again.
            once = iter([False])
            async with handling(vhost.url, "failing", lambda _: next(once, True)) as failing:
                await eventually_async(lambda: any(map(was_refused, failing.deliveries)))
            assert all(is_marked(each) for each in failing.deliveries if was_refused(each))
            await neighbour.has_seen(2)
        # The first was published by the producer; the next came with the others of the exchange,
        # and is what the full queue refused. From then on it goes to its own queue alone.
        assert identities(neighbour.deliveries) == ["m", "m"]
    assert await ready(vhost.url, DEAD) == 0


async def test_what_only_its_exchange_can_bring_back_is_dead_once_that_refused_it_twice(
    vhost: Vhost,
) -> None:
    async with (
        retrying(vhost.url, topology("classic"), {"k": 1}),
        channel_to(vhost.url) as channel,
    ):
        await declare_origin(vhost.url, "neighbour", "classic", "k")
        await channel.declare_queue(
            "mine",
            durable=False,
            exclusive=True,
            arguments={
                "x-dead-letter-exchange": "retry-exchange",
                "x-max-length": 1,
                "x-overflow": "reject-publish",
            },
        )
        await channel.bind_queue("mine", "work", "k")
        async with handling(vhost.url, "neighbour", always) as neighbour:
            await publish_one(vhost.url, "k", "m")
            consumer = await channel.consume("mine", prefetch=1)
            (first,) = await consumer.next_batch()
            await publish_one(vhost.url, "mine", "in the way", exchange="")
            await consumer.cancel()  # before it is answered: what is in the way must stay there
            consumer.reject(first)
            await holds(vhost.url, DEAD, 1)
            await neighbour.has_seen(3)
        assert identities(neighbour.deliveries) == ["m"] * 3
        assert is_marked(neighbour.deliveries[-1])
        (dead,) = await take_all(vhost.url, DEAD)
        reason = str(Properties.read(dead.properties).header(headers.ERROR_REASON))
        assert "a queue behind exchange 'work' is full" in reason


async def test_a_full_queue_beside_the_dead_letter_queue_makes_one_copy_more_and_marked(
    vhost: Vhost,
) -> None:
    async with retrying(vhost.url, topology("classic"), {"other": 1}) as retrier:
        await declare_origin(vhost.url, "failing", "classic", "k")
        await fill(vhost.url, "dlq-exchange", "#")
        async with handling(vhost.url, "failing", never):
            await publish_one(vhost.url, "k", "m")
            await eventually_async(lambda: sum(each.counts.moved for each in retrier.movers))
        dead = await take_all(vhost.url, DEAD)
    assert identities(dead) == ["m", "m"]
    assert [is_marked(each) for each in dead] == [False, True]


async def test_what_waits_for_room_in_the_dead_letter_queue_costs_its_queue_no_delivery(
    vhost: Vhost,
) -> None:
    async with channel_to(vhost.url) as channel:
        # Somebody else's: two returns would delete what is in it.
        limited = {"x-delivery-limit": 2}
        await channel.declare_exchange("retry-exchange", "topic")
        await channel.declare_queue("retry-queue", arguments={"x-queue-type": "quorum", **limited})
        await channel.bind_queue("retry-queue", "retry-exchange", "#")
    await fill_the_dead_letter_queue(vhost.url)
    async with retrying(vhost.url, topology("quorum"), {"other": 1}) as retrier:
        tries = _tries_of(retrier.movers[0]._plan)
        await declare_origin(vhost.url, "failing", "quorum", "k")
        async with handling(vhost.url, "failing", never):
            await publish_one(vhost.url, "k", "m")
            await eventually_async(lambda: len(tries) > 5, what="it is tried again and again")
        assert retrier.movers[0].counts.stayed == 0
        async with channel_to(vhost.url) as channel:
            assert await channel.purge_queue(DEAD) == 1
        await holds(vhost.url, DEAD, 1)
        assert identities(await take_all(vhost.url, DEAD)) == ["m"]


async def test_while_the_dead_letter_exchange_is_missing_one_tries_and_all_arrive_when_it_is_back(
    vhost: Vhost,
) -> None:
    settings, expected = topology("quorum"), [str(number) for number in range(20)]
    async with retrying(vhost.url, settings, {"other": 1}) as retrier:
        tries = _tries_of(retrier.movers[0]._plan)
        await declare_origin(vhost.url, "failing", "quorum", "k")
        async with channel_to(vhost.url) as channel:
            await channel.delete_exchange("dlq-exchange")
        async with handling(vhost.url, "failing", never):
            for each in expected:
                await publish_one(vhost.url, "k", each)
            await eventually_async(lambda: tries)
            await holds(vhost.url, "retry-queue", 0)
            known = len(tries)
            await eventually_async(lambda: len(tries) >= known + 3, what="it is tried again")
        assert len(tries) < 2 * len(expected)
        await declare_topology(vhost.url, settings)
        await holds(vhost.url, DEAD, len(expected))
    dead = await take_all(vhost.url, DEAD)
    assert sorted(identities(dead)) == sorted(expected)


async def test_a_stop_gives_back_what_waits_for_room(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_WAIT_FOR_ROOM", timedelta(hours=1))
    await fill_the_dead_letter_queue(vhost.url)
    async with retrying(vhost.url, topology("classic"), {"other": 1}) as retrier:
        tries = _tries_of(retrier.movers[0]._plan)
        await declare_origin(vhost.url, "failing", "classic", "k")
        async with handling(vhost.url, "failing", never):
            await publish_one(vhost.url, "k", "m")
            await eventually_async(lambda: len(tries) == 2, what="the queue was tried by name")
            await asyncio.sleep(0)
    assert identities(await take_all(vhost.url, "retry-queue")) == ["m"]


async def test_a_letter_that_one_queue_of_an_exchange_refuses_is_in_doubt(
    vhost: Vhost, tmp_path: Path
) -> None:
    await declare_origin(vhost.url, "open", "classic", "#")
    await fill(vhost.url, "work", "#")
    sender = Sender(connector(vhost.url), "redrive-return", frozenset())
    async with letter_store(f"sqlite:///{tmp_path / 'redrive.db'}") as store:
        await stored(store, 1)
        claims = await claimed(store, sending(None, exchange="work"))
        await sender.open()
        (sent,) = await sender.send(claims)
        await sender.close()
    assert sent.result is Result.IN_DOUBT
    assert await ready(vhost.url, "open") == 1


async def test_while_the_return_exchange_is_missing_what_waits_does_not_multiply(
    vhost: Vhost,
) -> None:
    settings, expected = topology("quorum"), [str(number) for number in range(100)]
    async with retrying(vhost.url, settings, {"k": 3}) as retrier:
        await declare_origin(vhost.url, "failing", "quorum", "k")
        async with channel_to(vhost.url) as channel:
            await channel.delete_exchange("redrive-return")
        async with handling(vhost.url, "failing", lambda each: _attempt(each) > 0) as failing:
            for each in expected:
                await publish_one(vhost.url, "k", each)
            waited = retrier.movers[-1].counts
            # Several times as often as there are messages: each has been round again and again.
            await eventually_async(lambda: waited.moved > 5 * len(expected))
            await declare_topology(vhost.url, settings)
            await eventually_async(lambda: set(expected) <= set(map(_id, failing.deliveries)))
        tries = Counter(_id(each) for each in failing.deliveries if _attempt(each) > 0)
    # What was on its way in the moment in which it was found to be missing may be there twice.
    assert max(tries.values()) <= 2
    assert await ready(vhost.url, DEAD) == 0


def _attempt(delivery: Delivery) -> int:
    found = Properties.read(delivery.properties).header(headers.ATTEMPT)
    return found if isinstance(found, int) else 0


def _id(delivery: Delivery) -> str:
    return str(Properties.read(delivery.properties).get("message_id")) if _attempt(delivery) else ""


async def test_a_letter_that_finds_no_return_exchange_is_sent_again_later(
    vhost: Vhost, tmp_path: Path
) -> None:
    await declare_origin(vhost.url, QUEUE, "classic", "#")
    sender = Sender(connector(vhost.url), "redrive-return", frozenset())
    async with letter_store(f"sqlite:///{tmp_path / 'redrive.db'}") as store:
        await stored(store, 1)
        claims = await claimed(store)
        await sender.open()
        assert await sender.has_way(), "nothing is known to the contrary"
        (sent,) = await sender.send(claims)
        assert not await sender.has_way()
        async with channel_to(vhost.url) as channel:
            await channel.declare_exchange("redrive-return", "topic")
        assert await sender.has_way()
        await sender.close()
    assert (sent.result, sent.passing, sent.no_way) == (Result.REFUSED, True, True)
    assert "run 'redrive topology apply'" in sent.reason


def _tries_of(plan: object) -> list[object]:
    """What a plan was told of, as it comes."""
    told: list[object] = []
    reconsider = plan.reconsider  # type: ignore[attr-defined]

    async def listen(*said: object) -> object:
        told.append(said)
        return await reconsider(*said)

    plan.reconsider = listen  # type: ignore[attr-defined]
    return told
