"""Messages that cannot be published again: rejected where that is known to bring them to the dead
letter queue, and held everywhere else. None is lost, whatever somebody made of the dead letter
exchange."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog

from redrive import Consumer, Message, Queue
from redrive.amqp import Properties, Publish, fields
from redrive.broker.own_queues import AGAIN, ALONE
from tests.services.consuming import DEAD, QUEUE, eventually, serving, settings_for
from tests.services.moving import Kind, channel_to, declare, holds, publish, ready, take_all
from tests.services.plugin import Vhost
from tests.services.sweeping import few_permissions

OWN = "orders.dlx"
DEAD_LETTERS = "dlq-exchange"
both_kinds = pytest.mark.parametrize("kind", ["classic", "quorum"])
beside = pytest.mark.parametrize("mark", [AGAIN, ALONE])


@dataclass
class Scene:
    url: str
    logs: list[Any] = field(default_factory=list)

    async def send_large(self, queue: str = QUEUE) -> None:
        """A message that bears no more headers: its handler fails, and no copy can say so."""
        large = Properties.empty().with_headers({"large": fields.longstr("x" * 130_900)})
        await publish(self.url, [Publish("", queue, large.persistent().raw, b"large")])

    async def parks(self) -> None:
        await holds(self.url, DEAD, 1)
        (dead,) = await take_all(self.url, DEAD)
        assert dead.body == b"large"

    async def stays(self) -> Any:
        await eventually(lambda: self.said("message.stays"), "that it stays")
        assert not self.said("message.parked")
        return self.said("message.stays")[0]

    def said(self, event: str) -> list[Any]:
        return [line for line in self.logs if line["event"] == event]


@asynccontextmanager
async def failing(url: str, kind: Kind, queue: Queue, through: str = "") -> AsyncIterator[Scene]:
    """A consumer whose handler fails for good, whatever it is given."""
    consumer, scene = Consumer(settings=settings_for(through or url, kind)), Scene(url)

    @consumer.handler(queue, retries=0)
    async def settle(message: Message) -> None:
        raise ValueError("no")

    with structlog.testing.capture_logs() as scene.logs:
        async with serving(consumer):
            await asyncio.wait_for(consumer.ready(), 30)
            yield scene


async def own_dead_letters(url: str) -> None:
    """An exchange that takes only what died with the queue's own key."""
    await declare(url, "orders.dead", "classic")
    async with channel_to(url) as channel:
        await channel.declare_exchange(OWN, "direct")
        await channel.bind_queue("orders.dead", OWN, QUEUE)


@both_kinds
@beside
async def test_a_queue_beside_parks_with_redrive_whatever_the_dead_letter_exchange_of_its_handler(
    vhost: Vhost, kind: Kind, mark: str
) -> None:
    await own_dead_letters(vhost.url)
    async with failing(vhost.url, kind, Queue(QUEUE, dead_letter_exchange=OWN)) as scene:
        await scene.send_large(f"{mark}{QUEUE}")
        await scene.parks()


async def test_a_queue_beside_parks_also_where_the_dead_letter_exchange_is_made_by_nobody(
    vhost: Vhost,
) -> None:
    await declare(vhost.url, QUEUE, "classic")
    queue = Queue(QUEUE, dead_letter_exchange=OWN, declare=False)
    async with failing(vhost.url, "classic", queue) as scene:
        await scene.send_large(f"{AGAIN}{QUEUE}")
        await scene.parks()


@beside
async def test_in_a_queue_beside_that_dead_letters_elsewhere_since_before_it_stays(
    vhost: Vhost, mark: str
) -> None:
    await own_dead_letters(vhost.url)
    name = f"{mark}{QUEUE}"
    await declare(vhost.url, name, "classic", x_dead_letter_exchange=OWN)
    async with failing(vhost.url, "classic", Queue(QUEUE, dead_letter_exchange=OWN)) as scene:
        await scene.send_large(name)
        line = await scene.stays()
    assert f"the queue '{name}' is not known to dead-letter to Redrive's" in line["reason"]
    assert "by hand" in line["remedy"]
    await holds(vhost.url, name, 1)


ELSEWHERE = {
    "named": Queue(QUEUE, dead_letter_exchange=OWN),
    "by an argument": Queue(QUEUE, arguments={"x-dead-letter-exchange": OWN}),
}


@pytest.mark.parametrize("how", ELSEWHERE)
async def test_in_a_queue_that_dead_letters_elsewhere_it_stays(vhost: Vhost, how: str) -> None:
    await own_dead_letters(vhost.url)
    async with channel_to(vhost.url) as channel:
        await channel.unbind_queue("orders.dead", OWN, QUEUE)
    async with failing(vhost.url, "classic", ELSEWHERE[how]) as scene:
        await scene.send_large()
        await scene.stays()
    await holds(vhost.url, QUEUE, 1)


@pytest.mark.parametrize("what", ["exchange", "queue", "binding"])
async def test_what_somebody_deleted_behind_a_queue_is_there_again_before_a_message_is_rejected(
    vhost: Vhost, what: str
) -> None:
    async with failing(vhost.url, "classic", Queue(QUEUE)) as scene:
        async with channel_to(vhost.url) as channel:
            if what == "exchange":
                await channel.delete_exchange(DEAD_LETTERS)
            elif what == "queue":
                await channel.delete_queue(DEAD)
            else:
                for key in ("dlq-routing-key", "#"):
                    await channel.unbind_queue(DEAD, DEAD_LETTERS, key)
        await scene.send_large()
        await eventually(lambda: scene.said("message.parked"), "that it is parked")
        await scene.parks()


async def test_a_consumer_that_starts_makes_the_dead_letter_exchange_where_only_that_is_missing(
    vhost: Vhost,
) -> None:
    async with failing(vhost.url, "classic", Queue(QUEUE)):
        pass
    async with channel_to(vhost.url) as channel:
        await channel.delete_exchange(DEAD_LETTERS)
    async with (
        failing(vhost.url, "classic", Queue(QUEUE)),
        channel_to(vhost.url) as channel,
    ):
        await channel.inspect_exchange(DEAD_LETTERS)


async def test_where_the_dead_letter_exchange_is_of_another_kind_it_stays_and_the_log_says_why(
    vhost: Vhost,
) -> None:
    async with channel_to(vhost.url) as channel:
        await channel.declare_exchange(DEAD_LETTERS, "direct")  # '#' is no wildcard there
    async with failing(vhost.url, "classic", Queue(QUEUE)) as scene:
        await scene.send_large()
        line = await scene.stays()
    assert DEAD_LETTERS in line["reason"]
    assert "redrive topology check" in line["remedy"]
    await holds(vhost.url, QUEUE, 1)
    assert await ready(vhost.url, DEAD) == 0


async def test_it_stays_where_the_user_cannot_know_what_is_behind_the_dead_letter_exchange(
    vhost: Vhost,
) -> None:
    async with failing(vhost.url, "classic", Queue(QUEUE)):
        pass
    ours = f"{QUEUE}|redrive-(again|alone)-.*"
    allowed = {
        "configure": f"^({ours})$",
        "write": f"^({ours}|route-delay|dlq-exchange|amq.default)$",
        "read": f"^({ours}|redrive-return)$",
    }
    with few_permissions(vhost, **allowed) as url:
        async with failing(vhost.url, "classic", Queue(QUEUE), through=url) as scene:
            await scene.send_large()
            line = await scene.stays()
    assert "configure" in line["remedy"]
    await holds(vhost.url, QUEUE, 1)
