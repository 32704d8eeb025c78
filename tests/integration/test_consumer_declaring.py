"""A dead letter exchange of a handler's own: made whole where it is missing, whenever whoever makes
it is killed, and used as it is where somebody else made it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from redrive import Queue
from redrive.amqp import Channel, Connection, Properties, Publish
from redrive.broker.apply import apply
from redrive.broker.topology import describe
from redrive.consumer.queues import Declaring
from redrive.errors import ConnectionLost
from redrive.settings.sections import TopologySettings
from tests.services.consuming import QUEUE
from tests.services.moving import channel_to, declare, publish, take_all
from tests.services.plugin import Vhost
from tests.services.sweeping import few_permissions

OWN = "orders.dlx"
TOPOLOGY = TopologySettings(queue_type="classic")


@dataclass
class KilledAfter:
    """A connection whose user is killed after so many answers of the broker."""

    connection: Connection
    answers: int

    async def channel(self) -> Any:
        return KilledChannel(await self.connection.channel(), self)


@dataclass
class KilledChannel:
    channel: Channel
    user: KilledAfter

    @property
    def error(self) -> object:
        return self.channel.error

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def ask(*args: Any, **options: Any) -> Any:
            if not self.user.answers:
                raise ConnectionLost("killed")
            self.user.answers -= 1
            return await getattr(self.channel, name)(*args, **options)

        return ask


async def declare_handlers(connection: Any) -> None:
    queue = Queue(QUEUE, dead_letter_exchange=OWN)
    await Declaring(connection, TOPOLOGY, set()).queue(queue, "settle")


def bound_to(vhost: Vhost, exchange: str) -> set[str]:
    api, name = vhost.node.api, quote(vhost.name, safe="")
    found = api("GET", f"exchanges/{name}/{exchange}/bindings/source")
    return {binding["destination"] for binding in found}


@pytest.mark.parametrize("answers", range(5))
async def test_a_dead_letter_exchange_keeps_what_dies_wherever_its_maker_was_killed(
    vhost: Vhost, answers: int
) -> None:
    async with channel_to(vhost.url) as channel:
        await apply(describe(TOPOLOGY), channel.connection)
        with pytest.raises(ConnectionLost, match="killed"):
            await declare_handlers(KilledAfter(channel.connection, answers))
        await declare_handlers(channel.connection)
    await publish(vhost.url, [Publish(OWN, "any.key", Properties.empty().raw, b"dead")])
    assert [dead.body for dead in await take_all(vhost.url, OWN)] == [b"dead"]


async def test_to_somebodys_dead_letter_exchange_nothing_is_added(vhost: Vhost) -> None:
    await declare(vhost.url, "theirs", "classic")
    async with channel_to(vhost.url) as channel:
        await apply(describe(TOPOLOGY), channel.connection)
        await channel.declare_exchange(OWN, "direct")
        await channel.bind_queue("theirs", OWN, "dead")
        await declare_handlers(channel.connection)
    assert bound_to(vhost, OWN) == {"theirs"}


@pytest.mark.parametrize(
    ("kind", "arguments"), [("fanout", {}), ("topic", {"x-max-length": 1_000})]
)
async def test_beside_a_queue_of_its_name_what_the_sdk_would_make_otherwise_is_left_alone(
    vhost: Vhost, kind: str, arguments: dict[str, Any]
) -> None:
    await declare(vhost.url, OWN, "classic", **arguments)
    async with channel_to(vhost.url) as channel:
        await apply(describe(TOPOLOGY), channel.connection)
        await channel.declare_exchange(OWN, kind)
        await declare_handlers(channel.connection)
    assert bound_to(vhost, OWN) == set()


async def test_who_may_not_bind_to_a_dead_letter_exchange_uses_it_as_it_is(vhost: Vhost) -> None:
    async with channel_to(vhost.url) as channel:
        await apply(describe(TOPOLOGY), channel.connection)
        await channel.declare_exchange(OWN, "topic")
    await declare(vhost.url, OWN, "classic")
    others = rf"^(?!{OWN}$).*"
    with few_permissions(vhost, configure=others, write=".*", read=others) as url:
        async with channel_to(url) as channel:
            await declare_handlers(channel.connection)
    assert bound_to(vhost, OWN) == set()
