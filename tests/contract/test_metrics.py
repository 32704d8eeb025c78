"""Metrics of the store: right whatever happened, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from redrive.domain import metrics
from redrive.domain.breaker import Position
from redrive.domain.filters import Filters
from redrive.domain.letter import Result
from redrive.domain.lifecycle import State
from redrive.domain.metrics import COUNTED, INFINITE, METRICS, Kind, Metric, Readings
from redrive.domain.verdict import Receipt
from redrive.errors import StoreUnreachable
from redrive.store.counts import ALIVE, Counts
from redrive.store.sendings import Outcome
from redrive.store.store import Store, open_letter_store
from redrive.tally import Tally
from redrive.work.counting import Counting
from tests.services.jobs import ME, running, take
from tests.services.letters import arrival, failed
from tests.services.sending import (
    claimed,
    come_back,
    in_doubt,
    later,
    record,
    sent,
    stored,
)


async def read(store: Store) -> Readings:
    return await store.figures.read()


async def total(store: Store, metric: Metric, *labels: str) -> float:
    return (await read(store)).total(metric.name, *labels)


async def test_an_empty_store_shows_every_metric_that_it_can_know(store: Store) -> None:
    found = await read(store)
    known = {*found.values, *found.histograms}
    left_out = {
        metrics.FASTEST.name,
        metrics.DIFFERENCE.name,
        metrics.CHECKED.name,
        metrics.INFO.name,
    }
    assert known == {metric.name for metric in METRICS} - left_out


async def test_letters_are_told_by_state_and_queue_and_error_type(store: Store) -> None:
    await store.letters.add([failed("a", error_type="T1", queue="orders") for _ in range(3)])
    await store.letters.add([failed("b", error_type="T2", queue="payments")])
    await store.letters.add([arrival(headers={})])
    found = await read(store)
    letters = found.values[metrics.LETTERS.name]
    assert letters["pending", "orders"] == 3
    assert letters["pending", "payments"] == 1
    assert letters["pending", metrics.UNKNOWN] == 1
    assert found.total(metrics.RECEIVED.name) == 5
    assert found.values[metrics.OPEN.name]["T1",] == 3
    assert found.total(metrics.GROUPS.name) == 3


async def test_names_beyond_the_most_frequent_are_other(store: Store) -> None:
    many = [failed("x", error_type=f"T{n}", queue=f"q{n}") for n in range(30)]
    often = [failed("x", error_type="T29", queue="q29") for _ in range(2)]
    await store.letters.add([*many, *often])
    found = await read(store)
    types, letters = found.values[metrics.OPEN.name], found.values[metrics.LETTERS.name]
    assert len(types) == metrics.MOST_NAMES + 1
    assert types["T29",] == 3
    assert types[metrics.OTHER,] == 10
    queues = {queue for _, queue in letters}
    assert len(queues) == metrics.MOST_NAMES + 1
    assert sum(letters.values()) == 32


async def test_what_becomes_of_letters_is_counted_with_the_change(store: Store) -> None:
    await stored(store, 3)
    first, second, third = await sent(store)
    later(store, timedelta(minutes=2))
    (receipt,) = await store.verdicts.settle_receipts(
        [Receipt(letter=first.letter.id, generation=1, queue=None)]
    )
    assert receipt.letter.status is State.RESOLVED
    await come_back(store, [second, third])
    found = await read(store)
    assert found.total(metrics.ENTERED.name, "processing") == 3
    assert found.total(metrics.ENTERED.name, "resolved") == 1
    assert found.total(metrics.ENTERED.name, "pending") == 2
    assert found.total(metrics.ATTEMPTS.name, "sent") == 3
    assert found.total(metrics.ATTEMPTS.name, "resolved") == 1
    assert found.total(metrics.ATTEMPTS.name, "returned") == 2
    assert found.total(metrics.RETURNED.name) == 2
    waited = found.histograms[metrics.TIME_IN_DLQ.name]
    assert sum(waited.buckets.values()) == 1
    assert waited.total > 100


async def test_a_lease_that_ends_is_a_takeover_and_leaves_a_sending_in_doubt(
    store: Store,
) -> None:
    await stored(store, 2)
    await in_doubt(store)
    assert await total(store, metrics.TAKEOVERS, "letter") == 2
    assert await total(store, metrics.ATTEMPTS, "in_doubt") == 2


async def test_a_sending_that_was_refused_is_counted(store: Store) -> None:
    await stored(store)
    await record(store, await claimed(store), Result.REFUSED, reason="gone", after=State.MANUAL)
    assert await total(store, metrics.ATTEMPTS, "refused") == 1
    assert await total(store, metrics.ENTERED, "manual") == 1


async def test_what_was_resolved_and_is_refused_when_it_is_sent_again_counts_as_resolved_once(
    store: Store,
) -> None:
    (letter_id,) = await stored(store)
    await sent(store)
    await store.verdicts.settle_receipts([Receipt(letter=letter_id, generation=1)])
    later(store, timedelta(milliseconds=1))
    job = await running(store, Filters(status=(State.RESOLVED,)))
    (claim,) = (await take(store, job)).claims
    refused = Outcome(claim=claim, result=Result.REFUSED, reason="full", after=State.RESOLVED)
    await store.replays.record(ME, [refused], verdict_after=timedelta(0))
    assert await total(store, metrics.ENTERED, "resolved") == 1
    waited = (await read(store)).histograms[metrics.TIME_IN_DLQ.name]
    assert sum(waited.buckets.values()) == 1


async def test_counters_never_fall_whatever_is_compacted_or_started_anew(store: Store) -> None:
    await stored(store, 3)
    await sent(store)
    await store.counts.add({(metrics.RETRIES.name, "1"): 5})
    await store.counts.add({(metrics.RETRIES.name, "1"): 2, (metrics.RETRIES.name, "2"): 1})
    before = await read(store)
    assert await store.counts.compact() > 0
    await store.books.compact()
    after = await read(store)
    assert after.values | {metrics.OLDEST.name: {}} == before.values | {metrics.OLDEST.name: {}}
    assert after.total(metrics.RETRIES.name, "1") == 7
    url = str(store.database.path and f"sqlite:///{store.database.path}")
    if store.database.is_sqlite:
        again = await open_letter_store(url)
        assert (await again.figures.read()).values[metrics.RETRIES.name] == {("1",): 7, ("2",): 1}
        await again.close()


async def test_counts_of_many_writers_at_once_add_up_while_they_are_compacted(
    store: Store,
) -> None:
    async def write() -> None:
        for _ in range(10):
            await store.counts.add({(metrics.RETRIES.name, "1"): 1})

    async def compact() -> None:
        for _ in range(5):
            await store.counts.compact()

    await asyncio.gather(*(write() for _ in range(4)), compact())
    assert await total(store, metrics.RETRIES, "1") == 40


# Processes


async def test_each_process_adds_what_it_counted_and_is_seen_with_its_roles(store: Store) -> None:
    one, two = Tally(), Tally()
    one.count(metrics.RECONNECTS, "retrier", 2)
    two.count(metrics.RECONNECTS, "retrier")
    two.observe(metrics.CONFIRMS, 0.003)
    first = Counting("p1", {"retrier"}, store.counts, one)
    second = Counting("p2", {"retrier", "collector"}, store.counts, two)
    with two.level(metrics.COLLECTING):
        await first.write()
        await second.write()
    found = await read(store)
    assert found.total(metrics.RECONNECTS.name, "retrier") == 3
    assert found.total(metrics.PROCESSES.name, "retrier") == 2
    assert found.total(metrics.PROCESSES.name, "collector") == 1
    assert found.total(metrics.COLLECTING.name) == 1
    assert found.histograms[metrics.CONFIRMS.name].buckets["0.005"] == 1
    await first.write()
    assert await total(store, metrics.RECONNECTS) == 3


async def test_a_process_that_is_not_heard_of_is_gone_and_its_counts_are_not(store: Store) -> None:
    tally = Tally()
    tally.count(metrics.RECONNECTS, "retrier")
    await Counting("p1", {"retrier"}, store.counts, tally).write()
    later(store, ALIVE)
    found = await read(store)
    assert found.total(metrics.PROCESSES.name) == 0
    assert found.total(metrics.RECONNECTS.name, "retrier") == 1


async def test_a_process_that_ends_writes_the_last_of_its_counts(store: Store) -> None:
    tally, ended = Tally(), asyncio.Event()
    running = asyncio.create_task(Counting("p1", {"worker"}, store.counts, tally).run(ended))
    await asyncio.sleep(0)
    tally.count(metrics.RECONNECTS, "worker")
    ended.set()
    await running
    found = await read(store)
    assert found.total(metrics.PROCESSES.name) == 0
    assert found.total(metrics.RECONNECTS.name, "worker") == 1


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("committed", [True, False])
async def test_what_may_have_been_written_when_the_store_went_away_counts_once(
    store: Store, *, committed: bool, last: bool
) -> None:
    class Away(Counts):
        is_away = True

        async def beat(self, *given: Any) -> None:
            if committed or not self.is_away:
                await super().beat(*given)
            if self.is_away:
                raise StoreUnreachable("the answer is lost", remedy="")

    away, tally = Away(store.database, store.clock), Tally()
    counting = Counting("p1", {"worker"}, away, tally)
    for _ in range(2):
        tally.count(metrics.RECONNECTS, "worker")
        await counting.write()
    away.is_away = False
    await counting.write(last=last)
    await counting.write(last=last)
    assert await total(store, metrics.RECONNECTS, "worker") == 2
    assert (await read(store)).total(metrics.PROCESSES.name) == (0 if last else 1)


async def test_an_unexpected_error_of_the_counting_is_logged_when_it_happens(store: Store) -> None:
    class Broken(Counts):
        async def beat(self, *_: Any) -> None:
            raise RuntimeError("boom")

    counting = Counting("p1", {"worker"}, Broken(store.database, store.clock), Tally())
    with capture_logs() as logs, pytest.raises(RuntimeError, match="boom"):
        await counting.write()
    assert [line["event"] for line in logs] == ["run.not_counted"]


async def test_breakers_are_counted_and_open_ones_named(store: Store) -> None:
    await store.breakers.force("/", "payments", Position.OPEN)
    await store.breakers.force("/", "orders", Position.CLOSED)
    found = await read(store)
    assert found.values[metrics.BREAKERS.name]["open",] == 1
    assert found.values[metrics.BREAKER_OPEN.name] == {("payments",): 1}


async def test_the_oldest_letter_of_a_state_has_an_age(store: Store) -> None:
    await stored(store, 2)
    later(store, timedelta(hours=3))
    found = await read(store)
    assert found.values[metrics.OLDEST.name]["pending",] > 3 * 3600


@pytest.mark.parametrize("metric", COUNTED.values(), ids=lambda metric: metric.name)
def test_what_is_kept_as_a_count_has_one_label_at_most(metric: Metric) -> None:
    assert len(metric.labels) <= 1
    if metric.kind is Kind.HISTOGRAM:
        assert metric.bucket(1e12) == INFINITE
        assert list(metric.bounds) == sorted(metric.bounds)
