"""What tests of killed senders need: letters to send, a consumer that counts what it is given, and
what settles letters in doubt: leases that end, silence, and an operator who sends them again."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

from redrive.amqp import Properties, Publish
from redrive.amqp.supervision import supervise
from redrive.domain import headers
from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.letter import Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import Replay, ReplayOrder
from redrive.store.store import Store
from redrive.work import replay_jobs, worker
from redrive.work.destinations import destinations
from redrive.work.replay import ReplayRunner
from redrive.work.verdict_watch import VerdictWatch
from tests.services.eventually import DEADLINE, eventually_async
from tests.services.letters import arrival
from tests.services.moving import QUICK, channel_to, connector, declare
from tests.services.retrying import declare_topology, topology
from tests.services.reviving import LEASE, QUEUE, VERDICT_AFTER, VHOST, reviver


@contextmanager
def coming_back_quickly() -> Iterator[None]:
    """Workers and replay jobs that wait only a little for a broker or a store that is away."""
    quickly = partial(supervise, backoff=QUICK)
    with (
        patch.object(worker, "supervise", quickly),
        patch.object(worker, "Backoff", lambda: QUICK),
        patch.object(replay_jobs, "supervise", quickly),
    ):
        yield


@dataclass
class Consumer:
    """A consumer that handles everything, tells so by receipts, and knows what it saw."""

    seen: Counter[str] = field(default_factory=Counter)
    """By letter, how many deliveries."""

    async def has_seen_all_but(
        self, in_doubt: set[str], store: Store, *, within: float = DEADLINE
    ) -> None:
        """Wait until what is not in doubt was delivered: the broker confirms it before that."""
        sent = {letter.id for letter in await all_letters(store)} - in_doubt
        await eventually_async(lambda: sent <= set(self.seen), within=within, what="all sent ones")


@asynccontextmanager
async def consuming(url: str, *, receipts: bool = True) -> AsyncIterator[Consumer]:
    consumer = Consumer()

    async def serve() -> None:
        async with channel_to(url) as channel, channel_to(url) as other:
            publisher = await other.publisher()
            deliveries = await channel.consume(QUEUE, prefetch=500)
            while batch := await deliveries.next_batch():
                for delivery in batch:
                    found = Properties.read(delivery.properties)
                    letter, generation = (
                        found.header(headers.LETTER),
                        found.header(headers.GENERATION),
                    )
                    consumer.seen[str(letter)] += 1
                    body = json.dumps({"letter": letter, "generation": generation}).encode()
                    if receipts:
                        publisher.publish(
                            Publish(
                                "", "redrive-receipts", Properties.empty().persistent().raw, body
                            )
                        )
                    deliveries.ack(delivery)
                deliveries.flush()

    serving = asyncio.create_task(serve())
    try:
        yield consumer
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


async def lay_out(url: str) -> None:
    await declare_topology(url, topology("quorum"))
    await declare(url, QUEUE, "quorum", x_dead_letter_exchange="retry-exchange")


async def fill(store: Store, count: int) -> None:
    for start in range(0, count, 500):
        size = min(500, count - start)
        await store.letters.add([arrival(b"%d" % (start + number)) for number in range(size)])


async def all_letters(store: Store) -> list[Letter]:
    found: list[Letter] = []
    after = None
    while True:
        page = await store.letters.page(Filters(), limit=1000, after=after)
        found += page.items
        after = page.next
        if after is None:
            return found


async def doubtful(store: Store) -> set[str]:
    """Letters whose last sending is in doubt."""
    found = set()
    for letter in await all_letters(store):
        attempts = await store.letters.attempts(letter.id)
        if attempts and attempts[-1].result is Result.IN_DOUBT:
            found.add(letter.id)
    return found


def watch_of(url: str, store: Store) -> VerdictWatch:
    return VerdictWatch(
        VHOST, store.verdicts, connector(url), None, lease=LEASE, verdict_after=VERDICT_AFTER
    )


async def settle_in_doubt(url: str, store: Store, watch: VerdictWatch) -> None:
    """Leases end, silence lasts: what is in doubt is left to a person."""
    store.clock.ahead += LEASE
    await watch.round()
    await watch.round()
    store.clock.ahead += VERDICT_AFTER + timedelta(seconds=1)
    await watch.round()


async def ordered(store: Store, filters: Filters, **more: Any) -> Replay | None:
    """A replay that nobody runs yet; None where nothing matches."""
    order = ReplayOrder(actor="ada", described="as the test wants it", pause=0, **more)
    made_id = letter_id(datetime.now(UTC), random.getrandbits(74))
    return await store.replays.create(made_id, VHOST, filters, order)


async def operator_sends_doubtful(url: str, store: Store) -> None:
    made = await ordered(store, Filters(status=(State.MANUAL,)), doubtful=True)
    if made is None:
        return
    parts = reviver(url, store)
    await parts.sender.open()
    ours = await store.replays.begin(made.id, "operator", LEASE)
    runner = ReplayRunner(
        "operator",
        store.replays,
        parts.sender,
        verdict_after=VERDICT_AFTER,
        lease=LEASE,
        stopping=asyncio.Event(),
    )
    progress = await runner.run(ours, destinations(lambda: parts.policies))
    assert progress.results == {Result.SENT: made.letters}
    await parts.sender.close()
