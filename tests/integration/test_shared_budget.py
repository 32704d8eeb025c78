"""A role that reads many queues has one budget of bytes for all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from redrive import roles
from redrive.amqp import Consumer, Delivery, Properties, Publish
from redrive.domain.letter import Arrival, Collected
from redrive.store.letters import Letters
from tests.services.eventually import eventually_async
from tests.services.moving import declare, publish
from tests.services.plugin import Vhost
from tests.services.serving import settings_for

QUEUES = [f"dead.{number}" for number in range(8)]
SIZE, EACH = 100_000, 40
BUDGET = 2_000_000
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


@pytest.mark.usefixtures("_watched")
async def test_collectors_of_many_queues_have_one_budget_while_the_store_is_slow(
    vhost: Vhost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, stored, add = asyncio.Event(), 0, Letters.add

    async def slowly(
        letters: Letters, arrivals: Sequence[Arrival], *, again: bool = False
    ) -> list[Collected]:
        nonlocal stored
        await answers.wait()
        kept = await add(letters, arrivals, again=again)
        stored += len(arrivals)
        return kept

    monkeypatch.setattr(Letters, "add", slowly)
    for queue in QUEUES:
        await declare(vhost.url, queue, "classic")
        plain = Properties.empty().persistent().raw
        await publish(vhost.url, [Publish("", queue, plain, bytes(SIZE)) for _ in range(EACH)])
    url, store = vhost.url, f"sqlite:///{tmp_path}/redrive.db"
    more = f"[collector]\nqueues = {json.dumps(QUEUES)}\n"
    settings = settings_for(tmp_path, url, store, more)
    broker = settings.broker.model_copy(update={"in_flight": BUDGET})
    settings = settings.model_copy(update={"broker": broker})
    stopping = asyncio.Event()
    serving = asyncio.create_task(roles.serve(settings, frozenset({"collector"}), stopping))
    try:
        await eventually_async(lambda: Watched.most > BUDGET)
        answers.set()
        await eventually_async(lambda: stored == len(QUEUES) * EACH)
    finally:
        stopping.set()
        await asyncio.wait_for(serving, 15)
    # One read of each socket may overshoot, by the messages that it completes.
    assert Watched.most <= BUDGET + len(QUEUES) * (A_READ + SIZE)


@pytest.fixture
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.amqp.channel.Consumer", Watched)
    monkeypatch.setattr(Watched, "together", set())
    monkeypatch.setattr(Watched, "most", 0)
