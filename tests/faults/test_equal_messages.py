"""A tick: a message without a message id whose producer repeats it, to the last byte.

That each fails is no crash, and no two of them are copies. What a crash between the confirm of a
copy and the ack doubles is marked as a copy of the newest before it, and nothing else is: on the
way from the consumer (the SDK's, or another client's by its helper) to the store, with a process
that is killed, a broker that is, a client that loses its connection, or a collector that is killed.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import aio_pika
import pika
import pytest
from aio_pika.message import IncomingMessage
from pika.adapters.blocking_connection import BlockingChannel

from redrive import Consumer, Message
from redrive.amqp import Properties, Publish
from redrive.consumer import with_aio_pika, with_pika
from redrive.domain import headers
from redrive.domain.letter import Kept
from redrive.settings import Settings
from redrive.store.store import Store
from tests.faults.collector_process import Scene as CollectorScene
from tests.faults.collector_process import Step
from tests.faults.consumer_process import Scene, once_confirmed
from tests.services.collecting import all_kept, collecting, coming_back_quickly
from tests.services.consuming import DEAD, QUEUE, consumed, serving, settings_for
from tests.services.eventually import eventually_async
from tests.services.letters import letter_store
from tests.services.moving import Kind, declare, holds, publish
from tests.services.plugin import OwnNode, Vhost
from tests.services.retrying import declare_topology

both_kinds = pytest.mark.parametrize("kind", ["classic", "quorum"])


async def send_tick(url: str, queue: str = QUEUE) -> None:
    """In a second of its own: those that fail within one are told apart by nothing."""
    before = int(time.time())
    await eventually_async(lambda: int(time.time()) > before, what="the next second")
    await publish(url, [Publish("", queue, Properties.empty().persistent().raw, b"fails")])


@asynccontextmanager
async def store_of(tmp_path: Path) -> AsyncIterator[Store]:
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        yield store


async def letters_of(url: str, store: Store, count: int) -> list[Kept]:
    """The letters of so many ticks, as a collector has stored them, in the order of their ids."""
    async with collecting(url, store.letters, DEAD) as running:
        await eventually_async(lambda: running.acked >= count, what=f"{count} letters")
    found = sorted(await all_kept(store), key=lambda each: each.letter.id)
    assert len(found) == count
    names = {Properties.read(each.envelope.properties).header(headers.ID) for each in found}
    assert len(names) == 1, "they are equal, and so are their ids"
    return found


def copies(found: list[Kept]) -> list[int | None]:
    """Of each letter, which one it may be a second copy of."""
    ids = [each.letter.id for each in found]
    whose = [each.letter.duplicate_of for each in found]
    return [None if each is None else ids.index(each) for each in whose]


# The SDK


def failing(settings: Settings) -> Consumer:
    consumer = Consumer(settings=settings)

    @consumer.handler(QUEUE, retries=0)
    async def handle(message: Message) -> None:
        raise ValueError("for ever")

    return consumer


async def test_a_tick_that_fails_again_and_again_is_no_duplicate_of_itself(
    vhost: Vhost, tmp_path: Path
) -> None:
    settings = settings_for(vhost.url, "quorum")
    await declare_topology(vhost.url, settings.topology)
    async with serving(failing(settings)):
        await consumed(vhost.url)
        for number in range(3):
            await send_tick(vhost.url)
            await holds(vhost.url, DEAD, number + 1)
    async with store_of(tmp_path) as store:
        assert copies(await letters_of(vhost.url, store, 3)) == [None, None, None]


@both_kinds
async def test_the_copy_of_a_process_killed_between_confirm_and_ack_is_marked_and_no_other(
    vhost: Vhost, tmp_path: Path, kind: Kind
) -> None:
    settings = settings_for(vhost.url, kind)
    await declare_topology(vhost.url, settings.topology)
    async with serving(failing(settings)):
        await consumed(vhost.url)
        await send_tick(vhost.url)
        await holds(vhost.url, DEAD, 1)
    scene = Scene(url=vhost.url, kind=kind, notes=str(tmp_path / "notes"), retries=0, unacked=True)
    process = scene.start(tmp_path / "log")
    try:
        await consumed(vhost.url)
        await send_tick(vhost.url)
        await eventually_async(lambda: not process.alive, what="its end")
        assert process.exit_code == -signal.SIGKILL, (tmp_path / "log").read_text()
    finally:
        process.kill()
    await holds(vhost.url, DEAD, 2)
    async with serving(failing(settings)):
        await holds(vhost.url, DEAD, 3)
        await send_tick(vhost.url)
        await holds(vhost.url, DEAD, 4)
    async with store_of(tmp_path) as store:
        assert copies(await letters_of(vhost.url, store, 4)) == [None, None, 1, None]


@pytest.mark.timeout(300)
async def test_the_copy_of_a_broker_killed_between_confirm_and_ack_is_marked_and_no_other(
    own_node: OwnNode, tmp_path: Path
) -> None:
    node = await asyncio.to_thread(own_node)
    url = node.url()
    for kind in ("classic", "quorum"):
        settings = settings_for(url, kind)
        await declare_topology(url, settings.topology)
        with coming_back_quickly(), once_confirmed(node.kill):
            async with serving(failing(settings), within=60):
                await consumed(url)
                await asyncio.to_thread(node.settle)
                await send_tick(url)
                await eventually_async(lambda: not node.running, what="its end")
                await asyncio.to_thread(node.restart)
                await holds(url, DEAD, 2)
                await send_tick(url)
                await holds(url, DEAD, 3)
        async with letter_store(f"sqlite:///{tmp_path}/{kind}.db") as store:
            assert copies(await letters_of(url, store, 3)) == [None, 0, None], kind
        node.delete_vhost("/")
        node.create_vhost("/")


# Other clients


class NeverAckedError(Exception):
    """The process ended before the ack."""


def crash(*_: object, **__: object) -> None:
    raise NeverAckedError


async def fail_by_pika(url: str, settings: Settings, *, acks: bool) -> None:
    def fail() -> None:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            method, properties, body = channel.basic_get(QUEUE)
            error = ValueError("for ever")
            with_pika.failed(
                channel, method, properties, body, error, queue=QUEUE, retries=0, settings=settings
            )

    if acks:
        await asyncio.to_thread(fail)
        return
    with patch.object(BlockingChannel, "basic_ack", crash), pytest.raises(NeverAckedError):
        await asyncio.to_thread(fail)


async def fail_by_aio_pika(url: str, settings: Settings, *, acks: bool) -> None:
    async def fail() -> None:
        async with await aio_pika.connect(url) as connection:
            sending = await connection.channel(publisher_confirms=True, on_return_raises=True)
            message = await (await sending.get_queue(QUEUE)).get()
            await with_aio_pika.failed(
                message,
                ValueError("for ever"),
                channel=sending,
                queue=QUEUE,
                retries=0,
                settings=settings,
            )

    if acks:
        await fail()
        return
    with patch.object(IncomingMessage, "ack", crash), pytest.raises(NeverAckedError):
        await fail()


CLIENTS = {"aio-pika": fail_by_aio_pika, "pika": fail_by_pika}


@pytest.mark.parametrize("client", CLIENTS)
@both_kinds
async def test_of_another_clients_ticks_only_what_a_crash_doubled_is_marked(
    vhost: Vhost, tmp_path: Path, kind: Kind, client: str
) -> None:
    fail, settings = CLIENTS[client], settings_for(vhost.url, kind)
    await declare(vhost.url, QUEUE, kind)
    await declare_topology(vhost.url, settings.topology)
    await send_tick(vhost.url)
    await fail(vhost.url, settings, acks=True)
    await send_tick(vhost.url)
    await fail(vhost.url, settings, acks=False)
    await holds(vhost.url, QUEUE, 1)
    await fail(vhost.url, settings, acks=True)
    await send_tick(vhost.url)
    await fail(vhost.url, settings, acks=True)
    async with store_of(tmp_path) as store:
        assert copies(await letters_of(vhost.url, store, 4)) == [None, None, 1, None]


# The collector


async def test_a_collector_killed_between_commit_and_ack_marks_what_it_stored_and_no_other_tick(
    vhost: Vhost, tmp_path: Path
) -> None:
    settings = settings_for(vhost.url, "quorum")
    await declare_topology(vhost.url, settings.topology)
    async with serving(failing(settings)):
        await consumed(vhost.url)
        for number in range(3):
            await send_tick(vhost.url)
            await holds(vhost.url, DEAD, number + 1)
    async with store_of(tmp_path) as store:
        # One at a time; the others were not even sent to it, or come again as they were.
        scene = CollectorScene(
            url=vhost.url,
            store_url=f"sqlite:///{tmp_path}/redrive.db",
            queues=(DEAD,),
            prefetch=1,
            step=Step.COMMITTED,
            nth=1,
        )
        process = scene.start(tmp_path / "log")
        try:
            await eventually_async(lambda: not process.alive, what="its end")
            assert process.exit_code == -signal.SIGKILL, (tmp_path / "log").read_text()
        finally:
            process.kill()
        async with collecting(vhost.url, store.letters, DEAD) as running:
            await running.has_acked(3)
        found = sorted(await all_kept(store), key=lambda each: each.letter.id)
        times = [each.letter.first_failed_at for each in found]
    # The first is there twice; in which order it comes again is the broker's.
    assert len(found) == 4
    assert len(set(times)) == 3
    marked = [each.letter for each in found if each.letter.possible_duplicate]
    assert [each.duplicate_of for each in marked] == [found[0].letter.id]
    assert marked[0].first_failed_at == found[0].letter.first_failed_at
