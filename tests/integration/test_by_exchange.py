"""Queues that only their owner may touch: what fails in them comes back by their exchange, to every
queue that it has. No copy breeds others, by a retry, a replay or a move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redrive.amqp import Channel, Consumer, Delivery, Properties, Publish, fields
from redrive.domain import headers
from redrive.domain.letter import Claim, Result
from redrive.domain.policy import Policy
from redrive.errors import ConnectionLost
from redrive.work.return_path import ReturnPath
from redrive.work.sender import Sender, Sent
from tests.services.commands import Redrive
from tests.services.foreign import Foreign
from tests.services.letters import arrival, died_in
from tests.services.moving import channel_to, connector, declare, holds, publish, ready, take_all
from tests.services.plugin import Vhost
from tests.services.retrying import DEAD, declare_topology, publish_one, retrying, topology
from tests.services.sweeping import command_line

S = fields.longstr
FROM = "old-dlq"


@asynccontextmanager
async def exclusive(url: str, *queues: str) -> AsyncIterator[list[Consumer]]:
    """Queues of one connection, bound to exchange `shop`, that dead-letter to the retrier."""
    async with channel_to(url) as channel:
        await channel.declare_exchange("shop", "topic")
        consumers = []
        for queue in queues:
            await channel.declare_queue(
                queue,
                durable=False,
                exclusive=True,
                arguments={"x-dead-letter-exchange": "retry-exchange"},
            )
            await channel.bind_queue(queue, "shop", "order.created")
            own = await channel.connection.channel()
            consumers.append(await own.consume(queue, prefetch=10))
        yield consumers


def header(delivery: Delivery, name: str) -> object:
    return Properties.read(delivery.properties).header(name)


async def test_a_consumer_whose_queue_has_another_name_each_time_has_all_retries(
    vhost: Vhost,
) -> None:
    """A queue named by the broker is gone with its connection; the next one is not its neighbour
    but its successor. Attempts count on, or who fails and connects anew would never be done."""
    policies = [Policy(name="#", max_retries=2, return_to="exchange")]
    settings, attempts = topology("quorum"), []
    await declare_topology(vhost.url, settings)
    for number in range(3):
        async with exclusive(vhost.url, f"mine-{number}") as (consumer,):
            if number == 0:
                await publish_one(vhost.url, "order.created", "m", exchange="shop")
                (delivery,) = await consumer.next_batch()
            else:
                async with retrying(vhost.url, settings, policies):
                    (delivery,) = await asyncio.wait_for(consumer.next_batch(), 30)
            attempts.append(header(delivery, headers.ATTEMPT))
            consumer.reject(delivery)
            await holds(vhost.url, "retry-queue", 1)
    async with retrying(vhost.url, settings, policies):
        await holds(vhost.url, DEAD, 1)
    assert attempts == [None, 1, 2]
    (dead,) = await take_all(vhost.url, DEAD)
    assert header(dead, headers.ERROR_REASON) == "gave up after 2 retries in queue 'mine-2'"


async def sent(
    vhost: Vhost,
    queue: str,
    noted: Mapping[str, bytes] | None = None,
    *,
    to: str | None = None,
    moved: bool = False,
) -> Sent:
    """What becomes of a letter of a queue that is sent again, there or to another one. `moved`: the
    letter has belonged to that one since a person sent it to an exchange."""
    dead = arrival(b"m", headers={**died_in(queue), **(noted or {})})
    letter = replace(dead.letter, queue=to) if moved else dead.letter
    claim = Claim(
        letter=letter, generation=1, envelope=dead.envelope, queue=to or queue, exchange=None
    )
    sender = Sender(connector(vhost.url), "redrive-return", frozenset())
    async with channel_to(vhost.url) as channel:
        await channel.declare_exchange("redrive-return", "topic")
    await sender.open()
    (result,) = await sender.send([claim])
    await sender.close()
    return result


async def test_a_letter_that_goes_by_its_exchange_says_for_which_queue(vhost: Vhost) -> None:
    async with exclusive(vhost.url, "one", "two") as (one, two):
        assert (await sent(vhost, "one")).result is Result.SENT
        for consumer in (one, two):
            (copy,) = await consumer.next_batch()
            assert header(copy, headers.BY_EXCHANGE) == "one"


BESIDE = {
    headers.QUEUE: S("two"),
    headers.EXCHANGE: S("shop"),
    headers.ROUTING_KEY: S("order.created"),
    headers.BY_EXCHANGE: S("one"),
}


async def test_a_letter_that_came_beside_another_queues_is_left_to_a_person(vhost: Vhost) -> None:
    async with exclusive(vhost.url, "one", "two"):
        result = await sent(vhost, "two", BESIDE)
        assert (result.result, result.passing) == (Result.REFUSED, False)
        assert "exchange 'shop' brought it for another one" in result.reason


async def test_a_letter_that_came_for_a_queue_that_is_gone_goes_to_its_successor(
    vhost: Vhost,
) -> None:
    async with exclusive(vhost.url, "two") as (two,):
        assert (await sent(vhost, "two", BESIDE)).result is Result.SENT
        (copy,) = await two.next_batch()
        assert header(copy, headers.BY_EXCHANGE) == "two"


@pytest.mark.parametrize("moved", [False, True])
async def test_a_letter_that_a_person_sends_to_another_queue_did_not_come_beside_its_own(
    vhost: Vhost, moved: bool
) -> None:
    own = {**BESIDE, headers.QUEUE: S("one")}
    async with exclusive(vhost.url, "one", "two") as (_, two):
        result = await sent(vhost, "one", own, to="two", moved=moved)
        assert (result.result, result.reason) == (Result.SENT, "")
        (copy,) = await two.next_batch()
        assert (header(copy, headers.QUEUE), header(copy, headers.BY_EXCHANGE)) == ("two", "two")


async def test_a_letter_whose_queue_could_not_be_looked_for_is_known_to_be_in_none(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: Any) -> bool:
        raise ConnectionLost("the connection to the broker was lost")

    monkeypatch.setattr(ReturnPath, "restore", lost)
    result = await sent(vhost, "one")
    assert (result.result, result.passing, result.cut_off) == (Result.REFUSED, True, True)
    assert not result.unwritten  # it came back


async def test_many_copies_that_came_beside_ask_once_for_the_queue_that_they_came_for(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    inspect = Channel.inspect_queue

    async def inspected(channel: Channel, name: str) -> Any:
        asked.append(name)
        return await inspect(channel, name)

    monkeypatch.setattr(Channel, "inspect_queue", inspected)
    path = ReturnPath("redrive-return", connector(vhost.url))
    try:
        async with exclusive(vhost.url, "one"):
            answers = await asyncio.gather(*(path.look("one") for _ in range(1000)))
    finally:
        path.abort()
    assert set(answers) == {None}
    assert len(asked) <= 3  # an answer holds for a second


@pytest.fixture
def redrive(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    return command_line(vhost, tmp_path, capsys)


def test_a_move_leaves_what_came_beside_another_queues_where_it_is(
    vhost: Vhost, redrive: Redrive
) -> None:
    asyncio.run(declare(vhost.url, FROM, "classic"))
    raw = Properties.empty().with_headers({**died_in("two"), **BESIDE}).raw
    asyncio.run(publish(vhost.url, [Publish("", FROM, raw, b"m")]))
    with Foreign(vhost).channel() as channel:
        channel.exchange_declare("shop", "topic")
        for queue in ("one", "two"):
            channel.queue_declare(queue, exclusive=True)
            channel.queue_bind(queue, "shop", "order.created")
        ran = redrive("move", FROM, "--to-origin", "--output", "json")
    assert (ran.document["moved"], ran.document["failed"]) == (0, 1)
    assert "exchange 'shop' brought it for another one" in ran.err
    assert asyncio.run(ready(vhost.url, FROM)) == 1
