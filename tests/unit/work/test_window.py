"""When a pass moves on to its next consumer, and when it is over: in which order things are said to
the broker. That it keeps the order of real queues is in tests/integration/test_sweep.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any, cast

import pytest

from redrive.amqp import Connection, Delivery
from redrive.work import giving_back
from redrive.work import window as window_module
from redrive.work.mover import Limits
from redrive.work.window import Window


class Script:
    """A connection whose channels note what is said, and answer as told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.deliveries: asyncio.Queue[list[Delivery]] = asyncio.Queue()
        self.is_full = self.is_over_budget = self.is_cancelled = False
        self.cancelled = asyncio.Event()
        self.consuming = asyncio.Event()
        self.answers_cancel = asyncio.Event()
        self.answers_consume = asyncio.Event()
        self.answers_cancel.set()
        self.answers_consume.set()
        self.unanswered = 0
        self.ready: Iterator[int] = iter(())
        self.consumer: Script | None = None
        self.free_channels = 2047
        self.asked = 0
        self.asked_before = 0  # the last cancel

    async def channel(self) -> Script:
        return self

    async def transact(self) -> None:
        pass

    async def consume(self, queue: str, **_: Any) -> Script:
        self.said.append("consume")
        self.consuming.set()
        await self.answers_consume.wait()
        self.consumer = self
        self.is_cancelled = False
        return self

    async def inspect_queue(self, queue: str, **_: bool) -> tuple[int, int]:
        return next(self.ready), 0

    async def arrival(self) -> None:
        await asyncio.Event().wait()

    async def next_batch(self) -> list[Delivery]:
        self.asked += 1
        return await self.deliveries.get()

    def ack(self, *deliveries: Delivery) -> None:
        self.said += [f"ack {delivery.tag}" for delivery in deliveries]

    def hold(self, delivery: Delivery) -> None:
        self.said.append(f"hold {delivery.tag}")

    def flush(self, **_: bool) -> None:
        self.said.append("flush")

    def leave(self) -> None:
        self.said.append("leave")

    async def cancel(self, **_: bool) -> None:
        self.said.append("cancel")
        self.is_cancelled = True
        self.asked_before = self.asked
        self.cancelled.set()
        await self.answers_cancel.wait()

    async def give_back(self) -> None:
        self.said.append("give back")


def deliveries(*tags: int) -> list[Delivery]:
    return [Delivery(tag, False, "", "dlq", b"\0\0", b"") for tag in tags]


async def opened(script: Script, *, classic: bool = False) -> Window:
    """A window of ten messages, four of them at a time."""
    window = Window(
        cast("Connection", script), "dlq", count=10, limits=Limits(prefetch=4), classic=classic
    )
    await window.open()
    return window


async def test_a_consumer_that_has_enough_is_cancelled_when_nothing_is_on_its_way_to_it() -> None:
    script = Script()
    window = await opened(script)
    script.deliveries.put_nowait(deliveries(1, 2, 3, 4))
    first, second, third, fourth = await window.next_batch()
    window.ack(first)
    window.flush()  # which lets another message come
    window.hold(second)
    window.hold(third)
    window.ack(fourth)
    window.flush()
    assert script.said == ["consume", "ack 1", "flush", "hold 2", "hold 3", "ack 4"]
    script.deliveries.put_nowait(deliveries(5))
    await window.next_batch()
    assert "cancel" not in script.said
    script.is_full = True
    script.deliveries.put_nowait([])
    script.deliveries.put_nowait(deliveries(6))
    await window.next_batch()
    assert script.said[6:] == ["cancel", "consume"]


async def test_a_consumer_that_nothing_more_comes_to_is_cancelled_after_three_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lulls = round(3 / window_module._LULL)  # in less, a busy broker lost the order of a queue
    monkeypatch.setattr(window_module, "_LULL", 0.001)
    script = Script()
    script.ready = repeat(0)
    window = await opened(script)
    script.deliveries.put_nowait(deliveries(1, 2))
    for delivery in await window.next_batch():
        window.hold(delivery)
    waiting = asyncio.create_task(window.next_batch())
    await asyncio.wait_for(script.cancelled.wait(), 30)
    assert script.asked_before == 1 + lulls
    script.deliveries.put_nowait([])
    script.deliveries.put_nowait(deliveries(3))
    assert [delivery.tag for delivery in await waiting] == [3]


async def test_a_consumer_with_room_is_not_cancelled_while_the_queue_has_messages_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_module, "_LULL", 0.001)
    script = Script()
    script.ready = chain(repeat(1, 100), repeat(0))
    window = await opened(script)
    script.deliveries.put_nowait(deliveries(1, 2))
    for delivery in await window.next_batch():
        window.hold(delivery)
    waiting = asyncio.create_task(window.next_batch())
    await asyncio.wait_for(script.cancelled.wait(), 30)
    assert script.asked_before == 1 + 101  # the first, and a lull each
    script.deliveries.put_nowait([])
    script.deliveries.put_nowait(deliveries(3))
    await waiting


async def test_acks_wait_until_the_broker_has_answered_the_cancel() -> None:
    script = Script()
    window = await opened(script)
    script.deliveries.put_nowait(deliveries(1, 2, 3, 4))
    first, second, third, _ = await window.next_batch()
    window.hold(first)
    window.hold(second)
    script.is_full = True
    script.answers_cancel.clear()
    waiting = asyncio.create_task(window.next_batch())
    await asyncio.wait_for(script.cancelled.wait(), 30)
    window.ack(third)
    window.flush()
    assert script.said[-2:] == ["cancel", "ack 3"]
    script.answers_cancel.set()
    script.deliveries.put_nowait([])
    script.deliveries.put_nowait(deliveries(5))
    await waiting
    window.flush()
    assert script.said[-3:] == ["ack 3", "consume", "flush"]


async def test_a_consumer_that_was_being_opened_at_the_end_comes_to_rest_as_well() -> None:
    script = Script()
    window = await opened(script)
    script.deliveries.put_nowait(deliveries(1, 2))
    for delivery in await window.next_batch():
        window.hold(delivery)
    script.is_full = True
    script.deliveries.put_nowait([])
    script.consuming.clear()
    script.answers_consume.clear()
    waiting = asyncio.create_task(window.next_batch())
    await asyncio.wait_for(script.consuming.wait(), 30)
    await window.cancel()
    script.answers_consume.set()
    assert await waiting == []
    said = len(script.said)
    script.is_full, script.ready = False, chain((3, 1), repeat(0))
    await window.give_back()
    assert script.said[said : said + 2] == ["leave", "cancel"]


async def test_a_quorum_queue_comes_to_rest_before_an_early_end_and_what_comes_is_left() -> None:
    script = Script()
    window = await opened(script)
    script.ready = iter((3, 1, 0))
    await window.cancel()
    assert script.said[1:] == ["leave", "cancel"]
    assert list(script.ready) == []


async def test_a_classic_queue_which_sorts_what_comes_back_is_left_at_once() -> None:
    script = Script()
    window = await opened(script, classic=True)
    script.ready = iter((3, 1, 0))
    await window.cancel()
    assert script.said[1:] == ["cancel"]
    assert list(script.ready) == [3, 1, 0]


async def test_the_end_waits_until_the_queue_shows_what_was_given_back() -> None:
    script = Script()
    window = await opened(script)
    script.unanswered, script.ready = 2, iter((5, 5, 6, 7))
    script.is_cancelled = True
    await window.give_back()
    assert script.said[1:] == ["cancel", "flush", "give back"]
    assert list(script.ready) == []


async def test_what_somebody_else_takes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving_back, "_SEEN_WITHIN", 0.0)
    script = Script()
    window = await opened(script)
    script.unanswered, script.ready = 2, iter((5, 3))
    script.is_cancelled = True
    await window.give_back()
    assert list(script.ready) == []
