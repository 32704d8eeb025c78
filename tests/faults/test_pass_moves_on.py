"""A pass that goes on from one consumer to the next, while something comes between.

A quorum queue takes back by itself what it gives to a consumer that was just cancelled, and it is
out of its place then: behind all others on RabbitMQ 3, before them on 4.3. What is left of a queue
keeps its order all the same.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pamqp import commands

from redrive.amqp import Channel
from redrive.work import one_pass
from redrive.work.mover import Limits
from redrive.work.window import Window
from tests.faults.sweep_process import sweep
from tests.services.moving import declare, identities, take_all
from tests.services.plugin import NewProxy, Vhost
from tests.services.proxy import Proxy
from tests.services.sweeping import (
    DLQ,
    FINAL,
    LOOKS,
    PUBLISHES,
    by_another_way,
    counts_looks,
    fill,
    version_of,
)

MESSAGES = 60
OVER = [str(number) for number in range(0, MESSAGES, 3)]
LEFT = [str(number) for number in range(MESSAGES) if number % 3]
FEW = Limits(prefetch=10, widest=10)
"""So that a consumer is full with ten, and has enough when it holds five of them."""


@pytest.fixture
async def queues(vhost: Vhost) -> None:
    await fill(vhost.url, "quorum", [1 if number % 3 else 5 for number in range(MESSAGES)])
    await declare(vhost.url, FINAL, "quorum")


@pytest.mark.usefixtures("queues")
async def test_what_is_confirmed_while_a_consumer_is_being_cancelled_changes_no_order(
    vhost: Vhost, proxy: NewProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its acks would let messages come, just before it is cancelled."""
    settled, between = asyncio.Event(), 0
    moving_on: list[Window] = []
    flush, move_on, cancel = Window.flush, Window._move_on, Channel.cancel

    def noted(window: Window) -> None:
        flush(window)
        if not window._of:
            settled.set()

    async def begun(window: Window) -> None:
        moving_on.append(window)
        await move_on(window)

    async def late(channel: Channel, consumer_tag: str, **named: bool) -> None:
        nonlocal between
        if moving_on and moving_on.pop()._of:
            between += 1
            settled.clear()
            await settled.wait()
        await cancel(channel, consumer_tag, **named)

    monkeypatch.setattr(Window, "flush", noted)
    monkeypatch.setattr(Window, "_move_on", begun)
    monkeypatch.setattr(Channel, "cancel", late)
    way = await proxy("127.0.0.1", vhost.node.port)
    way.delay(0.1)
    connect = by_another_way(vhost.url, PUBLISHES, way.through(vhost.url))
    outcome = await sweep(connect, DLQ, FINAL, limits=FEW)
    assert outcome.moved == len(OVER)
    assert bool(between) != counts_looks(await version_of(vhost.url), "quorum")
    assert identities(await take_all(vhost.url, DLQ)) == LEFT


@pytest.mark.usefixtures("queues")
async def test_a_broker_that_hears_nothing_for_long_is_not_taken_to_have_nothing_more(
    vhost: Vhost, proxy: NewProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ack lets a message come, however late it arrives."""
    way = await proxy("127.0.0.1", vhost.node.port)
    flush, stalls = Window.flush, 0

    def stalled(window: Window) -> None:
        nonlocal stalls
        if not stalls and window._acked:
            stalls += 1
            way.half_open()
        flush(window)

    monkeypatch.setattr(Window, "flush", stalled)
    flows_at_the_next_question(way, monkeypatch)
    connect = by_another_way(vhost.url, LOOKS, way.through(vhost.url))
    outcome = await sweep(connect, DLQ, FINAL, limits=FEW)
    assert outcome.moved == len(OVER)
    assert stalls == (not counts_looks(await version_of(vhost.url), "quorum"))
    assert identities(await take_all(vhost.url, DLQ)) == LEFT


def flows_at_the_next_question(way: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a consumer said while nothing passed arrives together with its cancel, or with the
    question how many messages there are."""
    call = Channel.call

    async def calling(channel: Channel, method: Any, expected: Any, **how: bool) -> Any:
        if channel._transacts and isinstance(
            method, (commands.Basic.Cancel, commands.Queue.Declare)
        ):
            way.flow()
        return await call(channel, method, expected, **how)

    monkeypatch.setattr(Channel, "call", calling)


@pytest.mark.usefixtures("queues")
async def test_a_pass_that_is_stopped_while_its_next_consumer_begins_gives_back_in_order(
    vhost: Vhost, proxy: NewProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = await proxy("127.0.0.1", vhost.node.port)
    stopping, begun = asyncio.Event(), 0
    call = Channel.call

    async def stopped(channel: Channel, method: Any, expected: Any, **how: bool) -> Any:
        nonlocal begun
        if isinstance(method, commands.Basic.Consume) and channel._transacts:
            begun += 1
            if begun == 2:
                stopping.set()
                way.half_open()
        return await call(channel, method, expected, **how)

    monkeypatch.setattr(Channel, "call", stopped)
    flows_at_the_next_question(way, monkeypatch)
    monkeypatch.setattr(one_pass, "_DRAINS_WITHIN", 0.1)  # nobody waits for its answer
    monkeypatch.setattr(one_pass, "_RETURNS_WITHIN", 30.0)  # a busy broker takes seconds
    connect = by_another_way(vhost.url, LOOKS, way.through(vhost.url))
    await sweep(connect, DLQ, FINAL, limits=FEW, stopping=stopping)
    version = await version_of(vhost.url)
    assert begun == (0 if counts_looks(version, "quorum") else 2)
    there = identities(await take_all(vhost.url, DLQ))
    moved = identities(await take_all(vhost.url, FINAL))
    assert {*there, *moved} == {*OVER, *LEFT}
    if version < (4, 0):  # what was taken goes behind what was not
        first = there.index(LEFT[0])
        there = there[first:] + there[:first]
    assert there == sorted(there, key=int)
