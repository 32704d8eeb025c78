"""A sender that loses the broker before the confirm cannot know: what it sent is in doubt."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redrive.broker.topology import return_key
from redrive.domain.letter import Result
from redrive.work.sender import Sender
from tests.services.letters import letter_store
from tests.services.moving import channel_to, connector, declare, holds
from tests.services.plugin import NewProxy, Vhost
from tests.services.proxy import Direction, ProxyConnection
from tests.services.retrying import declare_topology, topology
from tests.services.sending import QUEUE, claimed, stored


def swallow_answers(_: ProxyConnection, direction: Direction, __: bytes) -> bytes | None:
    return b"" if direction is Direction.RECEIVED else None


async def test_letters_whose_confirms_were_cut_off_are_in_doubt_although_the_queue_has_them(
    vhost: Vhost, proxy: NewProxy, tmp_path: Path
) -> None:
    names = topology("quorum")
    await declare_topology(vhost.url, names)
    await declare(vhost.url, QUEUE, "quorum")
    async with channel_to(vhost.url) as channel:
        await channel.bind_queue(QUEUE, names.names.return_exchange, return_key(QUEUE))
    way = await proxy("127.0.0.1", vhost.node.port)
    sender = Sender(
        connector(way.through(vhost.url)), names.names.return_exchange, frozenset(), patience=90
    )
    async with letter_store(f"sqlite:///{tmp_path / 'redrive.db'}") as store:
        await stored(store, 2)
        claims = await claimed(store)
        await sender.open()
        # The first to an exchange goes alone; once it is answered, the others go together.
        (first,) = await sender.send(claims[:1])
        way.hook = swallow_answers
        sending = asyncio.create_task(sender.send(claims[1:]))
        await holds(vhost.url, QUEUE, 2)
        way.cut()
        (second,) = await asyncio.wait_for(sending, 60)
    sender.abort()
    assert (first.result, second.result) == (Result.SENT, Result.IN_DOUBT)
