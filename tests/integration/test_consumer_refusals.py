"""Copies that the broker refuses by closing the channel: no message beside them is doubled, and the
log says what came about, and why the rest waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog

from redrive import Consumer, DeadLetter, Message, Queue
from redrive.amqp import Delivery, Properties, Publish, connect, parse_addresses
from redrive.amqp.confirms import CONFIRMED
from redrive.amqp.lane import Poison
from redrive.consumer import telling
from redrive.consumer.sending import Sending
from redrive.domain import headers
from redrive.errors import Unpublishable
from tests.services.consuming import DEAD, QUEUE, eventually, header, send, serving, settings_for
from tests.services.moving import Kind, channel_to, declare, holds, identities, ready, take_all
from tests.services.plugin import Vhost
from tests.services.sweeping import few_permissions

TIER = "queue.delay.1"
DEAD_LETTERS = "dlq-exchange"
EACH = 20
both_kinds = pytest.mark.parametrize("kind", ["classic", "quorum"])


@dataclass
class Refused:
    """A consumer that hands on messages of three kinds: `ok`, `fail`, which goes to a tier, and
    `dead`. All end at a time, so that their copies are on their way together."""

    url: str
    consumer: Consumer
    handled: Counter[str] = field(default_factory=Counter)
    logs: list[Any] = field(default_factory=list)

    async def handle(self, message: Message) -> None:
        identity = message.body.decode()
        self.handled[identity] += 1
        await eventually(lambda: len(self.handled) == 3 * EACH, "all of them at a time")
        if identity.startswith("fail"):
            raise ValueError("once")
        if identity.startswith("dead"):
            raise DeadLetter("no")

    async def play(self) -> None:
        names = [f"{kind}{number}" for number in range(EACH) for kind in ("ok", "fail", "dead")]
        await send(self.url, *names)
        await holds(self.url, TIER, EACH)
        await eventually(lambda: self.said("consumer.stuck"), "why the others wait")

    def said(self, event: str) -> list[Any]:
        return [line for line in self.logs if line["event"] == event]

    async def each_is_there_once(self, queue: str, kind: str) -> list[Delivery]:
        found = await take_all(self.url, queue)
        assert sorted(identities(found)) == sorted(f"{kind}{number}" for number in range(EACH))
        return found


@asynccontextmanager
async def refusing(vhost: Vhost, kind: Kind, url: str = "") -> AsyncIterator[Refused]:
    consumer = Consumer(settings=settings_for(url or vhost.url, kind, tiers="1h,2h,3h"))
    scene = Refused(vhost.url, consumer)
    consumer.handler(Queue(QUEUE, ttl=None), concurrency=3 * EACH)(scene.handle)
    with structlog.testing.capture_logs() as scene.logs:
        async with serving(consumer):
            await asyncio.wait_for(consumer.ready(), 30)
            yield scene


@both_kinds
async def test_an_exchange_that_is_missing_doubles_nothing_that_goes_elsewhere(
    vhost: Vhost, kind: Kind
) -> None:
    async with refusing(vhost, kind) as scene:
        async with channel_to(vhost.url) as channel:
            await channel.delete_exchange(DEAD_LETTERS)
            await scene.play()
            await eventually(lambda: len(scene.said("message.retried")) == EACH, "the tier's log")
            assert not scene.said("message.dead_lettered")  # nothing was published
            await channel.declare_exchange(DEAD_LETTERS, "topic")
            await channel.bind_queue(DEAD, DEAD_LETTERS, "#")
        await holds(vhost.url, DEAD, EACH)
        await eventually(lambda: len(scene.said("message.dead_lettered")) == EACH, "the log")
    in_tier = await scene.each_is_there_once(TIER, "fail")
    assert [header(each, headers.REDELIVERED) for each in in_tier] == [None] * EACH
    await scene.each_is_there_once(DEAD, "dead")
    assert set(scene.handled.values()) == {1}
    (stuck,) = scene.said("consumer.stuck")
    assert "is missing (NOT_FOUND" in stuck["reason"]
    assert "redrive topology apply" in stuck["remedy"]


@both_kinds
async def test_an_exchange_that_may_not_be_written_to_doubles_nothing_and_is_told_as_that(
    vhost: Vhost, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "_AGAIN_AFTER", 3.0)
    async with refusing(vhost, kind):
        pass  # what is Redrive's own is there
    but_one = f"^(?!{DEAD_LETTERS}$).*"
    with few_permissions(vhost, configure=".*", write=but_one, read=".*") as url:
        async with refusing(vhost, kind, url) as scene:
            await scene.play()
            await eventually(lambda: len(scene.said("consumer.stuck")) > 1, "it told again")
    in_tier = await scene.each_is_there_once(TIER, "fail")
    assert [header(each, headers.REDELIVERED) for each in in_tier] == [None] * EACH
    assert await ready(vhost.url, DEAD) == 0
    await holds(vhost.url, QUEUE, EACH)
    await scene.each_is_there_once(QUEUE, "dead")
    stuck = scene.said("consumer.stuck")
    assert "may not be written to (ACCESS_REFUSED" in stuck[0]["reason"]
    assert "missing" not in stuck[0]["reason"]
    assert "write permission" in stuck[0]["remedy"]
    assert not scene.said("message.dead_lettered")


async def test_what_a_handler_publishes_in_vain_doubles_none_of_the_copies(vhost: Vhost) -> None:
    consumer = Consumer(settings=settings_for(vhost.url, "quorum", tiers="1h,2h,3h"))
    names = [f"fail{number}" for number in range(EACH)]
    refused: list[bytes] = []

    @consumer.handler(Queue(QUEUE, ttl=None), concurrency=EACH)
    async def settle(message: Message) -> None:
        try:
            await consumer.publish("nowhere", "", message.body)
        except Unpublishable:
            refused.append(message.body)
        raise ValueError("once")

    async with serving(consumer):
        await asyncio.wait_for(consumer.ready(), 30)
        await send(vhost.url, *names)
        await holds(vhost.url, TIER, EACH)
    assert len(refused) == EACH
    in_tier = await take_all(vhost.url, TIER)
    assert sorted(identities(in_tier)) == sorted(names)
    assert [header(each, headers.REDELIVERED) for each in in_tier] == [None] * EACH


async def test_a_body_that_is_neither_bytes_nor_text_costs_no_other_message(vhost: Vhost) -> None:
    """All that goes out in one turn of the loop goes out together."""
    consumer = Consumer(settings=settings_for(vhost.url, "classic"))
    refused: list[str] = []

    @consumer.handler(Queue(QUEUE, ttl=None))
    async def handle(message: Message) -> None:
        if message.message_id != "bad":
            raise DeadLetter("no")
        await consumer.publish("", "audit", "fine")
        for _ in range(2):
            try:
                await consumer.publish("", "audit", ["not", "bytes"])  # type: ignore[arg-type]
            except Unpublishable as error:
                refused.append(str(error))

    async with channel_to(vhost.url) as channel:
        await channel.declare_queue("audit")
    names = [*map(str, range(20)), "bad", *map(str, range(20, 40))]
    async with serving(consumer):
        await consumer.ready()
        await send(vhost.url, *names)
        await holds(vhost.url, DEAD, 40)
        await eventually(lambda: len(refused) == 2, "both refusals")
    assert refused[0] == "the body of a message is bytes or text, not list"
    assert sorted(identities(await take_all(vhost.url, DEAD))) == sorted(set(names) - {"bad"})


class Lying(bytes):
    """A body that the broker closes the connection on: it is longer than it says."""

    def __len__(self) -> int:
        return 1


@both_kinds
async def test_a_message_that_closes_the_connection_is_blamed_for_it_and_no_other_is(
    vhost: Vhost, kind: Kind
) -> None:
    exchanges = ["", *(f"exchange-{number}" for number in range(6))]
    await declare(vhost.url, QUEUE, kind)
    async with channel_to(vhost.url) as channel:
        for exchange in exchanges[1:]:
            await channel.declare_exchange(exchange, "fanout")
            await channel.bind_queue(QUEUE, exchange, "")

    def message(exchange: str, name: str, body: bytes = b"fine") -> Publish:
        properties = Properties.empty().with_text("message_id", name).persistent()
        return Publish(exchange, QUEUE, properties.raw, body)

    addresses = parse_addresses(vhost.url)
    sending = Sending(lambda name: connect(addresses, name=name), "test")
    await sending.open(exchanges)
    try:
        bad = [message("", f"bad-{number}", Lying(b"bad")) for number in range(3)]
        good = [message(exchange, f"good-{exchange}") for exchange in exchanges]
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*map(sending.send, (*bad, *good)))
        assert [type(answer) for answer in answers[:3]] == [Poison] * 3
        assert answers[3:] == [CONFIRMED] * len(good)
        assert not sending.lost
    finally:
        sending.end()
        await sending.close()
    found = identities(await take_all(vhost.url, QUEUE))
    assert sorted(found) == sorted(f"good-{exchange}" for exchange in exchanges)
