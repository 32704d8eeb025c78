"""A pass whose broker is lost: how many that it moved may be in their queue again."""

from __future__ import annotations

import asyncio

import pytest

from redrive.amqp.lane import Connect
from redrive.work import one_pass
from redrive.work.look import Outcome
from redrive.work.move import MoveOrder, QueueMove
from redrive.work.queue_site import QueueSite
from tests.faults.sweep_process import management_of
from tests.services.eventually import eventually_async
from tests.services.moving import Kind, declare, holds, identities, publish, take_all
from tests.services.plugin import NewProxy, Vhost
from tests.services.sweeping import DLQ, FINAL, LOOKS, PUBLISHES, by_another_way, dead

MESSAGES = 60
EVERYTHING = {str(number) for number in range(MESSAGES)}


async def move(connect: Connect, vhost: Vhost, begun: list[QueueMove] | None = None) -> Outcome:
    management = management_of(vhost.url, vhost.management_url)
    site = QueueSite(await connect("test move"), management, connect)
    order = MoveOrder(source=DLQ, target=FINAL, rate=20.0, spend_deliveries=True)
    moving = QueueMove(order, site, "redrive-return")
    if begun is not None:
        begun.append(moving)
    try:
        return await moving.run()
    finally:
        site.connection.abort()


def moved_by(begun: list[QueueMove]) -> int:
    """How many it knows to be moved: a queue has a message before its confirm is heard."""
    return sum(each.under_way.passed.moved for each in begun if each.under_way is not None)


@pytest.mark.parametrize(("kind", "limit"), [("classic", None), ("quorum", None), ("quorum", 9)])
async def test_what_was_moved_and_may_be_in_both_queues_is_counted_when_the_queue_is_lost(
    vhost: Vhost, proxy: NewProxy, kind: Kind, limit: int | None
) -> None:
    await declare(vhost.url, DLQ, kind, **({"x_delivery_limit": limit} if limit else {}))
    await declare(vhost.url, FINAL, kind)
    await publish(vhost.url, [dead(number, 1) for number in range(MESSAGES)])
    way = await proxy("127.0.0.1", vhost.node.port)
    connect = by_another_way(vhost.url, LOOKS, way.through(vhost.url))
    moving = asyncio.create_task(move(connect, vhost))
    await holds(vhost.url, FINAL, 10)
    way.half_open()  # acks are written, and nobody reads them
    if limit is None:  # else the next message is asked for only then
        await holds(vhost.url, FINAL, 20)
    way.cut(refuse=True)
    outcome = await asyncio.wait_for(moving, 90)
    assert outcome.error
    there: list[str] = []

    async def all_back() -> bool:  # the queue has to notice first that its consumer is gone
        there.extend(identities(await take_all(vhost.url, DLQ)))
        return {*there, *moved} == EVERYTHING

    moved = identities(await take_all(vhost.url, FINAL))
    await eventually_async(all_back, what="all messages")
    both = len({*there} & {*moved})
    assert both or limit is not None
    assert both <= outcome.may_be_in_both + outcome.under_way
    assert outcome.moved - outcome.may_be_in_both <= MESSAGES - len(there) <= outcome.moved
    told = any("may be in both queues" in note for note in outcome.notes)
    assert told == bool(outcome.may_be_in_both)


@pytest.mark.parametrize("limit", [None, 9])
async def test_of_a_pass_that_loses_its_publishing_connection_only_nothing_is_in_doubt(
    vhost: Vhost, proxy: NewProxy, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker has answered after the last ack."""
    for within in ("_RETURNS_WITHIN", "_CLOSES_WITHIN"):  # a busy broker takes seconds
        monkeypatch.setattr(one_pass, within, 30.0)
    await declare(vhost.url, DLQ, "quorum", **({"x_delivery_limit": limit} if limit else {}))
    await declare(vhost.url, FINAL, "quorum")
    await publish(vhost.url, [dead(number, 1) for number in range(MESSAGES)])
    way = await proxy("127.0.0.1", vhost.node.port)
    connect = by_another_way(vhost.url, PUBLISHES, way.through(vhost.url))
    begun: list[QueueMove] = []
    moving = asyncio.create_task(move(connect, vhost, begun))
    await eventually_async(lambda: moved_by(begun) >= 10, what="ten that are moved")
    way.cut(refuse=True)
    outcome = await asyncio.wait_for(moving, 90)
    assert outcome.error
    assert outcome.moved >= 10
    assert outcome.may_be_in_both == 0
