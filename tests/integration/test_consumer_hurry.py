"""A consumer that is told to stop a second time while copies of its messages are on their way: each
message is there once, nobody's handler is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from redrive import Consumer, Message
from redrive.amqp import parse_addresses
from redrive.broker.own_queues import AGAIN, ALONE
from redrive.consumer import serving as serving_module
from redrive.consumer.session import Session
from tests.services.consuming import DEAD, QUEUE, eventually, send, settings_for
from tests.services.moving import Kind, channel_to, declare, holds, identities, ready, take_all
from tests.services.plugin import NewProxy, Vhost
from tests.services.proxy import ProxyConnection

both_kinds = pytest.mark.parametrize("kind", ["classic", "quorum"])
HURRIES_WITHIN = 6.0
"""Who does not hurry takes eight seconds."""


@pytest.fixture
def _confirms_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than a second, in which a busy machine may not have them read; and so long that
    who waits for them first is no longer in time."""
    monkeypatch.setattr(serving_module, "_SETTLED_WITHIN", 8.0)


@dataclass
class Scene:
    """A consumer of which the handler waits: `hangs` for ever, the others until they may end, and
    `fails` then fails. The confirms of its copies can be held back."""

    url: str
    begun: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    publishing: ProxyConnection = field(init=False)
    session: Session = field(init=False)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Task[None] = field(init=False)

    async def handle(self, message: Message) -> None:
        identity = message.body.decode()
        self.begun.append(identity)
        try:
            await (asyncio.Event() if identity == "hangs" else self.may_end).wait()
        except asyncio.CancelledError:
            self.dropped.append(identity)
            raise
        if identity == "fails":
            raise ValueError("no")

    def confirms_nothing(self) -> None:
        """Have what was begun end, except for what hangs."""
        self.publishing.answers.clear()
        self.may_end.set()

    def stop_twice(self) -> None:
        self.stopping.set()
        self.session.hurry()

    async def end(self) -> None:
        """Have the broker's answers read at last."""
        self.publishing.answers.set()
        await asyncio.wait_for(self.ended, 30)


@asynccontextmanager
async def serving(vhost: Vhost, proxy: NewProxy, kind: Kind) -> AsyncIterator[Scene]:
    address = parse_addresses(vhost.url)[0]
    between = await proxy(address.host, address.port)
    scene = Scene(vhost.url)
    consumer = Consumer(settings=settings_for(between.through(vhost.url), kind))
    consumer.handler(QUEUE, retries=0, concurrency=2, prefetch=2)(scene.handle)
    scene.ended = asyncio.create_task(consumer.serve(scene.stopping))
    try:
        await consumer.ready()
        assert consumer._session is not None
        scene.session = consumer._session
        scene.publishing = between.connections[1]
        yield scene
    finally:
        await scene.end()


async def give_back_one(url: str) -> None:
    """Have the next message marked as one that was delivered before."""
    async with channel_to(url) as channel:
        assert await channel.get(QUEUE) is not None
    await holds(url, QUEUE, 1)


@both_kinds
@pytest.mark.usefixtures("_confirms_are_awaited")
async def test_what_failed_is_dead_and_not_in_its_queue_as_well(
    vhost: Vhost, proxy: NewProxy, kind: Kind
) -> None:
    async with serving(vhost, proxy, kind) as scene:
        await send(vhost.url, "hangs", "fails")
        await eventually(lambda: len(scene.begun) == 2, "both at a time")
        scene.confirms_nothing()
        await holds(vhost.url, DEAD, 1)
        scene.stop_twice()
        await eventually(lambda: scene.dropped == ["hangs"], "its end", within=HURRIES_WITHIN)
    await holds(vhost.url, QUEUE, 1)
    assert identities(await take_all(vhost.url, QUEUE)) == ["hangs"]
    assert identities(await take_all(vhost.url, DEAD)) == ["fails"]


@both_kinds
@pytest.mark.usefixtures("_confirms_are_awaited")
async def test_what_is_set_aside_is_in_one_of_the_two_queues(
    vhost: Vhost, proxy: NewProxy, kind: Kind
) -> None:
    async with serving(vhost, proxy, kind) as scene:
        await send(vhost.url, "hangs", "passes", "was elsewhere")
        await eventually(lambda: len(scene.begun) == 2, "both at a time")
        await give_back_one(vhost.url)
        scene.confirms_nothing()
        intake = scene.session._servings[0].intake
        await eventually(lambda: intake._ready_again, "its copy")
        scene.stop_twice()
        await eventually(lambda: scene.dropped == ["hangs"], "its end", within=HURRIES_WITHIN)
    assert scene.begun == ["hangs", "passes"]
    await holds(vhost.url, QUEUE, 1)
    assert identities(await take_all(vhost.url, QUEUE)) == ["hangs"]
    await holds(vhost.url, f"{AGAIN}{QUEUE}", 1)
    assert identities(await take_all(vhost.url, f"{AGAIN}{QUEUE}")) == ["was elsewhere"]


@both_kinds
@pytest.mark.usefixtures("_confirms_are_awaited")
async def test_what_failed_alone_is_dead_and_not_in_its_queue_as_well(
    vhost: Vhost, proxy: NewProxy, kind: Kind
) -> None:
    async with serving(vhost, proxy, kind) as scene:
        await send(vhost.url, "fails", queue=f"{ALONE}{QUEUE}")
        await eventually(lambda: scene.begun == ["fails"], "its beginning")
        scene.confirms_nothing()
        await holds(vhost.url, DEAD, 1)
        scene.stop_twice()
        servings = scene.session._servings
        await eventually(lambda: all(each._ends for each in servings), "the second stop obeyed")
    assert await ready(vhost.url, f"{ALONE}{QUEUE}") == 0
    assert identities(await take_all(vhost.url, DEAD)) == ["fails"]


@pytest.mark.usefixtures("_confirms_are_awaited")
async def test_what_no_queue_beside_takes_is_not_begun_with_any_more(
    vhost: Vhost, proxy: NewProxy
) -> None:
    for mark in (AGAIN, ALONE):
        beside = f"{mark}{QUEUE}"
        await declare(vhost.url, beside, "classic", x_max_length=0, x_overflow="reject-publish")
    async with serving(vhost, proxy, "classic") as scene:
        await send(vhost.url, "hangs", "passes", "was elsewhere")
        await eventually(lambda: len(scene.begun) == 2, "both at a time")
        await give_back_one(vhost.url)
        scene.confirms_nothing()
        intake = scene.session._servings[0].intake
        await eventually(lambda: intake.settling, "its copy")
        scene.stop_twice()
        await eventually(lambda: scene.dropped == ["hangs"], "its end", within=HURRIES_WITHIN)
    assert scene.begun == ["hangs", "passes"]
    await holds(vhost.url, QUEUE, 2)
    assert identities(await take_all(vhost.url, QUEUE)) == ["hangs", "was elsewhere"]


async def test_a_confirm_that_does_not_come_is_not_waited_for_long(
    vhost: Vhost, proxy: NewProxy
) -> None:
    async with serving(vhost, proxy, "classic") as scene:
        await send(vhost.url, "fails")
        await eventually(lambda: scene.begun == ["fails"], "its beginning")
        scene.confirms_nothing()
        await holds(vhost.url, DEAD, 1)
        scene.stop_twice()
        intake = scene.session._servings[0].intake
        await eventually(
            lambda: not intake.settling, "the end of its worker", within=HURRIES_WITHIN
        )
    await holds(vhost.url, QUEUE, 1)
