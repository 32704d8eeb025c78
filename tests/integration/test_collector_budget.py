"""A collector of many queues and large messages, with a store that is slower than the broker."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from redrive import roles
from redrive.amqp import Consumer, Delivery, Properties, Publish, strain
from redrive.domain.letter import Arrival, Collected
from redrive.store.letters import Letters
from tests.services.eventually import eventually_async
from tests.services.moving import declare, publish
from tests.services.plugin import Vhost
from tests.services.serving import settings_for

QUEUES = [f"dead.{number}" for number in range(8)]
SIZE, EACH = 100_000, 40
BUDGET = 2_000_000
LOWERED = "collector.prefetch_lowered"
A_READ = 262_144
"""What a socket gives at a time."""


class Watched(Consumer):
    """Consumers of which it is known what they had together at most."""

    together: set[Watched] = set()  # noqa: RUF012  (of all of them, emptied for each test)
    most = 0

    def deliver(self, deliveries: list[Delivery]) -> bool:
        first = super().deliver(deliveries)
        Watched.together.add(self)
        Watched.most = max(Watched.most, sum(each.unsettled_bytes for each in Watched.together))
        return first


class SlowStore:
    """Takes letters when it is told to."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.stored: list[Collected] = []

    def put_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add = Letters.add

        async def slowly(
            letters: Letters, arrivals: Sequence[Arrival], *, again: bool = False
        ) -> list[Collected]:
            await self.answers.wait()
            kept = await add(letters, arrivals, again=again)
            self.stored += kept
            return kept

        monkeypatch.setattr(Letters, "add", slowly)

    async def has_all(self) -> None:
        self.answers.set()
        await eventually_async(lambda: len(self.stored) >= len(QUEUES) * EACH)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SlowStore:
    slow = SlowStore()
    slow.put_before(monkeypatch)
    return slow


@asynccontextmanager
async def collecting(vhost: Vhost, folder: Path) -> AsyncIterator[None]:
    """The role, on queues that are full of messages, each with a body of its own."""
    plain, numbers = Properties.empty().persistent().raw, itertools.count()
    for queue in QUEUES:
        await declare(vhost.url, queue, "classic")
        bodies = [next(numbers).to_bytes(SIZE) for _ in range(EACH)]
        await publish(vhost.url, [Publish("", queue, plain, body) for body in bodies])
    more = f"[collector]\nqueues = {json.dumps(QUEUES)}\n"
    settings = settings_for(folder, vhost.url, f"sqlite:///{folder}/redrive.db", more)
    broker = settings.broker.model_copy(update={"in_flight": BUDGET})
    settings = settings.model_copy(update={"broker": broker})
    stopping = asyncio.Event()
    serving = asyncio.create_task(roles.serve(settings, frozenset({"collector"}), stopping))
    try:
        yield
    finally:
        stopping.set()
        await asyncio.wait_for(serving, 30)


@pytest.mark.usefixtures("_watched")
async def test_collectors_of_many_queues_have_one_budget_while_the_store_is_slow(
    vhost: Vhost, tmp_path: Path, store: SlowStore
) -> None:
    async with collecting(vhost, tmp_path):
        await eventually_async(
            lambda: [each.is_over_budget for each in Watched.together] == [True] * len(QUEUES),
            what="more than its share for each",
        )
        await store.has_all()
    # One read of each socket may overshoot, by the messages that it completes.
    assert Watched.most <= BUDGET + len(QUEUES) * (A_READ + SIZE)


async def test_a_slow_store_has_less_taken_at_a_time_and_no_message_stored_twice(
    vhost: Vhost, tmp_path: Path, store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strain, "LOOK_EVERY", 0.05)
    with structlog.testing.capture_logs() as said:

        def lowered() -> set[str]:
            return {line["queue"] for line in said if line["event"] == LOWERED}

        async with collecting(vhost, tmp_path):
            await eventually_async(lambda: lowered() >= set(QUEUES), what="all take less")
            await store.has_all()
    # Its share, of as many as there are when it is lowered: those that have ended are not.
    most = BUDGET // SIZE
    assert all(line["lowered_to"] <= most for line in said if line["event"] == LOWERED)
    assert len(store.stored) == len(QUEUES) * EACH
    assert not [each for each in store.stored if each.letter.possible_duplicate]
    assert not [line for line in said if line["event"] == "collector.lost"]


@pytest.fixture
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.amqp.channel.Consumer", Watched)
    monkeypatch.setattr(Watched, "together", set())
    monkeypatch.setattr(Watched, "most", 0)
