"""A consumer whose handlers are slow and whose messages are large: it reads on, within its budget,
and each message is handled once."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest
import structlog

from redrive import Consumer, Message, Queue
from redrive.amqp import Properties, Publish, strain
from redrive.broker.own_queues import AGAIN, ALONE
from redrive.consumer import serving as serving_module
from redrive.consumer.intake import Intake
from redrive.consumer.session import Session
from redrive.settings import Settings
from tests.services.consuming import DEAD, QUEUE, eventually, serving, settings_for
from tests.services.moving import Kind, channel_to, declare, empty, publish, ready
from tests.services.plugin import Vhost

OTHER = "other"
SIZE = 500_000
BUDGET = 4_000_000
FEW, FITTING = 8, 7
"""How many are in hand when the budget is spent, and how many it has room for."""
MANY = [str(number) for number in range(50)]
MORE = [f"more {number}" for number in range(12)]
LOWERED = "consumer.prefetch_lowered"
both_kinds = pytest.mark.parametrize("kind", ["classic", "quorum"])


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strain, "LOOK_EVERY", 0.1)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def of(logs: list[Any], event: str) -> list[Any]:
    return [line for line in logs if line["event"] == event]


def with_budget(url: str, kind: Kind, budget: int = BUDGET) -> Settings:
    """For each of the two queues of one handler."""
    settings = settings_for(url, kind)
    few = settings.broker.model_copy(update={"in_flight": 2 * budget})
    return settings.model_copy(update={"broker": few})


def large(identity: str, size: int = SIZE, queue: str = QUEUE) -> Publish:
    properties = Properties.empty().with_text("message_id", identity).persistent()
    return Publish("", queue, properties.raw, bytes(size))


def session_of(consumer: Consumer) -> Session:
    assert consumer._session is not None
    return consumer._session


def intake_of(consumer: Consumer) -> Intake:
    servings = session_of(consumer)._servings  # in no order
    return next(each.intake for each in servings if each.intake._queue == QUEUE)


def in_memory(intake: Intake) -> int:
    """Bytes of both queues of a handler."""
    return sum(
        each.unsettled_bytes
        for source in (intake._own, intake._again)
        for each in (source.consumer, *[former for former, _ in source._former])
    )


async def nothing_is_left(url: str) -> None:
    for queue in (QUEUE, f"{AGAIN}{QUEUE}", f"{ALONE}{QUEUE}", DEAD):
        assert await ready(url, queue) == 0, queue


class Handling:
    """Handlers that wait until they are let go, the first one for longer."""

    def __init__(self, settings: Settings, *, concurrency: int = 20, prefetch: int = 200) -> None:
        self.may_end, self.first_may_end = asyncio.Event(), asyncio.Event()
        self.begun: list[str] = []
        self.ended: Counter[str] = Counter()
        self.most = 0
        """Bytes that were in memory, at the ends of handlers."""
        self.intake: Intake | None = None
        self.consumer = Consumer(settings=settings)

        @self.consumer.handler(Queue(QUEUE, ttl=None), concurrency=concurrency, prefetch=prefetch)
        async def slow(message: Message) -> None:
            identity = str(message.message_id)
            self.begun.append(identity)
            await (self.first_may_end if identity == self.begun[0] else self.may_end).wait()
            if self.intake is not None:
                self.most = max(self.most, in_memory(self.intake))
            self.ended[identity] += 1

    def let_go(self) -> None:
        self.may_end.set()
        self.first_may_end.set()

    @asynccontextmanager
    async def serving_anew(self, url: str, logs: list[Any]) -> AsyncIterator[Intake]:
        """Serving, and the first consumer, which has FEW in hand and left the others of MANY, is
        followed by another. Then MORE come."""
        async with serving(self.consumer):
            await asyncio.wait_for(self.consumer.ready(), 30)
            intake = self.intake = intake_of(self.consumer)
            first = intake._own.consumer
            with patch.object(strain, "_LOOKS", sys.maxsize):  # until all are on their way to it
                await publish(url, map(large, MANY))
                await empty(url, QUEUE)
            await eventually(lambda: of(logs, LOWERED), "a lower prefetch")
            await eventually(lambda: first.unanswered == len(MANY), "all of them")
            await eventually(lambda: first._cancelling is not None, "its end")
            await first.cancel()
            await publish(url, map(large, MORE))
            yield intake


@both_kinds
async def test_a_slow_handler_of_large_messages_has_the_socket_read_and_each_handled_once(
    vhost: Vhost, kind: Kind, logs: list[Any]
) -> None:
    handling = Handling(with_budget(vhost.url, kind))
    async with handling.serving_anew(vhost.url, logs) as intake:
        session = session_of(handling.consumer)
        await eventually(lambda: len(handling.begun) == FEW + FITTING, "what the next one brings")
        assert not intake._own.consumer._channel.wire.is_held_back
        assert in_memory(intake) <= 2 * BUDGET + SIZE
        handling.may_end.set()
        await eventually(lambda: len(handling.ended) == FEW - 1 + len(MORE), "all but one")
        assert handling.begun[0] not in handling.ended
        handling.first_may_end.set()
        await eventually(lambda: len(handling.ended) == len(MANY + MORE), "all of them")
        await eventually(lambda: not intake._own._former, "the end of the first consumer")
        assert session_of(handling.consumer) is session
    assert handling.ended == Counter(MANY + MORE)
    assert handling.most <= 2 * BUDGET + SIZE
    (line,) = of(logs, LOWERED)
    assert (line["queue"], line["prefetch"], line["lowered_to"]) == (QUEUE, 200, FITTING)
    assert f"prefetch={FITTING} " in line["remedy"]
    assert intake._again._prefetch == FITTING
    await nothing_is_left(vhost.url)


@both_kinds
async def test_a_stop_while_the_first_consumer_has_some_in_hand_loses_and_doubles_nothing(
    vhost: Vhost, kind: Kind, logs: list[Any]
) -> None:
    handling = Handling(with_budget(vhost.url, kind))
    async with handling.serving_anew(vhost.url, logs) as intake:
        handling.may_end.set()
        await eventually(lambda: len(handling.ended) == FEW - 1 + len(MORE), "all but one")

        async def end_once_it_stops() -> None:
            await eventually(lambda: intake._own.consumer.is_cancelled, "the stop")
            handling.first_may_end.set()

        ending = asyncio.create_task(end_once_it_stops())
    await ending
    assert handling.begun[0] in handling.ended
    await handled_by_another(handling, vhost.url, kind)


@both_kinds
async def test_a_stop_that_ends_handlers_of_the_first_consumer_loses_nothing(
    vhost: Vhost, kind: Kind, logs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "_BEGIN_WITHIN", 0.2)
    monkeypatch.setattr(serving_module, "_END_WITHIN", 0.4)
    handling = Handling(with_budget(vhost.url, kind))
    async with handling.serving_anew(vhost.url, logs):
        await eventually(lambda: len(handling.begun) == FEW + FITTING, "what the next one brings")
    assert not handling.ended
    await handled_by_another(handling, vhost.url, kind)


@both_kinds
async def test_a_stop_before_all_that_the_first_consumer_brought_has_begun_loses_nothing(
    vhost: Vhost, kind: Kind, logs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "_BEGIN_WITHIN", 0.2)
    monkeypatch.setattr(serving_module, "_END_WITHIN", 0.4)
    handling = Handling(with_budget(vhost.url, kind), concurrency=1)
    async with handling.serving_anew(vhost.url, logs) as intake:
        following = intake._own.consumer
        await eventually(lambda: following.unanswered == FITTING, "what the next one brings")
    assert len(handling.begun) == 1
    await handled_by_another(handling, vhost.url, kind)


async def handled_by_another(before: Handling, url: str, kind: Kind) -> None:
    """Another process handles what that one has not, and nothing else."""
    other = Handling(with_budget(url, kind))
    other.let_go()
    async with serving(other.consumer):
        rest = Counter(MANY + MORE) - before.ended
        await eventually(lambda: len(other.ended) == len(rest), "what is left")
    assert other.ended == rest
    await nothing_is_left(url)


async def test_a_queue_that_is_deleted_with_its_last_consumer_outlives_a_lower_prefetch(
    vhost: Vhost, logs: list[Any]
) -> None:
    handling = Handling(with_budget(vhost.url, "classic"))
    async with channel_to(vhost.url) as channel:
        await channel.declare_queue(QUEUE, auto_delete=True)
    async with handling.serving_anew(vhost.url, logs):
        handling.let_go()
        await eventually(lambda: len(handling.ended) == len(MANY + MORE), "all of them")
    assert handling.ended == Counter(MANY + MORE)


async def test_a_message_larger_than_the_budget_lowers_the_prefetch_once(
    vhost: Vhost, logs: list[Any]
) -> None:
    handling = Handling(with_budget(vhost.url, "classic", SIZE))
    async with serving(handling.consumer):
        await asyncio.wait_for(handling.consumer.ready(), 30)
        await publish(vhost.url, [large(each, SIZE + 1) for each in MORE])
        await eventually(lambda: of(logs, LOWERED), "a lower prefetch")
        intake = intake_of(handling.consumer)
        await eventually(lambda: intake._own._former, "the consumer that follows")
        following = intake._own.consumer
        await publish(vhost.url, [large(each, SIZE + 1) for each in MANY[:5]])
        await eventually(lambda: len(handling.begun) == 2, "what the next one brings")
        await asyncio.sleep(2 * strain._LOOKS * strain.LOOK_EVERY)  # nothing happens
        assert not following._channel.wire.is_held_back
        handling.let_go()
        await eventually(lambda: len(handling.ended) == 5 + len(MORE), "all of them")
        assert intake._own.consumer is following
    assert handling.ended == Counter(MANY[:5] + MORE)
    assert [line["lowered_to"] for line in of(logs, LOWERED)] == [1]


@both_kinds
@pytest.mark.parametrize("concurrency", [1, 20])
async def test_what_follows_may_be_larger_still_and_stops_nobody(
    vhost: Vhost, kind: Kind, logs: list[Any], concurrency: int
) -> None:
    """The broker's answers then lie behind more than fits, and are read when that is handled."""
    first, behind = [f"first-{each}" for each in range(30)], [f"behind-{n}" for n in range(20)]
    settings = with_budget(vhost.url, kind, 2 * BUDGET)  # for two handlers
    handling = Handling(settings, concurrency=concurrency, prefetch=len(first))
    handled_beside = asyncio.Event()

    @handling.consumer.handler("beside")
    async def beside(message: Message) -> None:
        handled_beside.set()

    async with serving(handling.consumer):
        await asyncio.wait_for(handling.consumer.ready(), 30)
        await publish(vhost.url, map(large, first))
        await publish(vhost.url, [large(each, 4 * SIZE) for each in behind])
        session = session_of(handling.consumer)
        await eventually(lambda: of(logs, LOWERED), "a lower prefetch")
        await eventually(lambda: intake_of(handling.consumer)._own._former, "the one that follows")
        handling.let_go()
        await eventually(lambda: len(handling.ended) == len(first + behind), "all of them")
        await publish(vhost.url, [large("beside", queue="beside")])
        await asyncio.wait_for(handled_beside.wait(), 30)
        assert session_of(handling.consumer) is session
    assert handling.ended == Counter(first + behind)
    await nothing_is_left(vhost.url)


async def test_a_quick_handler_of_large_messages_keeps_its_prefetch(
    vhost: Vhost, logs: list[Any]
) -> None:
    consumer, ended = Consumer(settings=with_budget(vhost.url, "classic")), 0

    @consumer.handler(Queue(QUEUE, ttl=None), concurrency=1, prefetch=200)
    async def quick(message: Message) -> None:
        nonlocal ended
        await asyncio.sleep(0.01)
        ended += 1

    await declare(vhost.url, QUEUE, "classic")
    await publish(vhost.url, map(large, MANY * 3))
    async with serving(consumer):
        await eventually(lambda: ended == 3 * len(MANY), "all of them")
    assert not of(logs, LOWERED)


async def test_a_handler_that_has_all_that_its_prefetch_allows_keeps_no_other_waiting(
    vhost: Vhost, logs: list[Any]
) -> None:
    consumer = Consumer(settings=with_budget(vhost.url, "classic", 2 * SIZE))
    began, may_end, others = asyncio.Event(), asyncio.Event(), []

    @consumer.handler(QUEUE, prefetch=1)
    async def slow(message: Message) -> None:
        began.set()
        await may_end.wait()

    @consumer.handler(OTHER)
    async def other(message: Message) -> None:
        others.append(str(message.message_id))

    async with serving(consumer):
        await asyncio.wait_for(consumer.ready(), 30)
        await publish(vhost.url, [large("slow", 2 * SIZE), large("next", 2 * SIZE)])
        await asyncio.wait_for(began.wait(), 30)
        await publish(vhost.url, [large(each, 10, OTHER) for each in MORE])
        await eventually(lambda: len(others) == len(MORE), "the other's")
        may_end.set()
    assert not of(logs, LOWERED)
