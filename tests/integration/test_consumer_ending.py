"""The end of a serving, on a real broker: everything has its time before the session is ended by
force, and nothing is given back to a queue that is still consumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from redrive import Consumer, Message
from redrive.amqp import parse_addresses, supervision
from redrive.broker.own_queues import AGAIN
from redrive.consumer import serving as serving_module
from redrive.consumer.supply import Supply
from tests.services.consuming import QUEUE, consumed, eventually, send, settings_for
from tests.services.moving import empty
from tests.services.plugin import NewProxy, Vhost
from tests.services.proxy import Proxy

CLOSE = b"\x00\x0a\x00\x32"
"""The method by which a connection is closed in order."""
ENDS_EARLIER = {
    "_BEGIN_WITHIN": 1.0,
    "_END_WITHIN": 2.0,
    "_PUT_BACK_ALONE_WITHIN": 3.0,
    "_PUT_BACK_WITHIN": 4.0,
}


@dataclass
class Scene:
    """A consumer whose handler waits until it may end."""

    url: str
    between: Proxy
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Task[None] = field(init=False)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    handled: list[str] = field(default_factory=list)
    begun: int = 0

    async def handle(self, message: Message) -> None:
        self.begun += 1
        await self.may_end.wait()
        self.handled.append(message.body.decode())


@asynccontextmanager
async def serving(vhost: Vhost, proxy: NewProxy) -> AsyncIterator[Scene]:
    address = parse_addresses(vhost.url)[0]
    between = await proxy(address.host, address.port)
    scene = Scene(vhost.url, between)
    consumer = Consumer(settings=settings_for(between.through(vhost.url), "classic"))
    consumer.handler(QUEUE, concurrency=2, prefetch=4)(scene.handle)
    scene.ended = asyncio.create_task(consumer.serve(scene.stopping))
    try:
        await consumer.ready()
        await consumed(vhost.url)
        yield scene
    finally:
        scene.may_end.set()
        scene.stopping.set()
        await asyncio.wait_for(scene.ended, 30)


@pytest.fixture
def given_back(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The queues that something was given back to, and whether nobody consumed them any more."""
    seen: list[tuple[str, bool]] = []
    give_back = Supply.give_back

    async def watched(supply: Supply) -> None:
        seen.append((supply.queue, supply.consumer.is_cancelled))
        await give_back(supply)

    monkeypatch.setattr(Supply, "give_back", watched)
    return seen


async def test_what_has_no_confirm_at_the_end_keeps_nothing_else_from_ending_in_order(
    vhost: Vhost,
    proxy: NewProxy,
    given_back: list[tuple[str, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A busy machine needs more than the fifth of a second that is left for closing.
    for name, seconds in ENDS_EARLIER.items():
        monkeypatch.setattr(serving_module, name, seconds)
    async with serving(vhost, proxy) as scene:
        await send(vhost.url, "again", queue=f"{AGAIN}{QUEUE}")
        await eventually(lambda: scene.begun == 1, "its beginning")
        source, publishing, _ = scene.between.connections
        publishing.answers.clear()
        scene.between.recording = True
        scene.stopping.set()
        await asyncio.wait_for(asyncio.wait((scene.ended,)), 30)
        assert given_back == [(QUEUE, True), (f"{AGAIN}{QUEUE}", True)]
        assert CLOSE in source.sent
        publishing.answers.set()


def test_every_time_that_an_ending_has_is_over_before_it_is_ended_by_force() -> None:
    deadlines = [
        serving_module._BEGIN_WITHIN,
        serving_module._END_WITHIN,
        serving_module._PUT_BACK_ALONE_WITHIN,
        serving_module._PUT_BACK_WITHIN,
        supervision._GRACE,
    ]
    assert deadlines == sorted(set(deadlines))


async def test_what_is_given_back_for_the_loss_of_another_connection_is_not_consumed_any_more(
    vhost: Vhost, proxy: NewProxy, given_back: list[tuple[str, bool]]
) -> None:
    names = [str(number) for number in range(6)]
    async with serving(vhost, proxy) as scene:
        await send(vhost.url, *names)
        await eventually(lambda: scene.begun == 2, "two at a time")
        *_, aside = scene.between.connections
        aside.cut()
        await eventually(lambda: len(given_back) == 2, "what was left")
        assert given_back == [(QUEUE, True), (f"{AGAIN}{QUEUE}", True)]
        scene.may_end.set()
        await eventually(lambda: sorted(scene.handled) == names, "all of them, once")
    await empty(vhost.url, QUEUE)
