"""Each arrow of the lifecycle, on a real broker and both stores. Time passes when told to."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import update

from redrive.amqp import Channel, Consumer, Delivery, Properties, Publish, fields
from redrive.broker.management import Management
from redrive.domain import headers
from redrive.domain.breaker import Position
from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.letter import Resolution, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import Destination, Replay, ReplayOrder, ReplayState
from redrive.domain.strategy import Rule, Strategy
from redrive.domain.verdict import Receipt
from redrive.store.changing import Changes, lock_letters
from redrive.store.replays import Batch
from redrive.store.schema import redrive_letter
from redrive.store.store import Store
from redrive.store.verdicts import Settled
from redrive.work import verdict_watch
from redrive.work.destinations import destinations
from redrive.work.receipts import Receipts, ReceiptStore
from redrive.work.replay import Progress, ReplayRunner
from tests.services.eventually import DEADLINE, eventually_async
from tests.services.letters import arrival, books_are_exact, died_in, letter_store
from tests.services.moving import (
    channel_to,
    connector,
    declare,
    empty,
    holds,
    publish,
    ready,
    take_all,
)
from tests.services.plugin import Vhost
from tests.services.retrying import declare_origin, handling, parking
from tests.services.reviving import (
    KEY,
    LEASE,
    QUEUE,
    VERDICT_AFTER,
    VHOST,
    Site,
    accepts_replays,
    rejects,
    revival,
)
from tests.services.silent_leader import silent_leader

PENDING, PROCESSING, RESOLVED, FAILED, MANUAL, ARCHIVED = State
TIMEOUT = "java.net.SocketTimeoutException: External API timeout\n\tat shop.Pay.charge(Pay.java:7)"


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/redrive.db"
    else:
        url = request.getfixturevalue("store_database")
    async with letter_store(url) as opened:
        yield opened
        assert await books_are_exact(opened)


@pytest.fixture
async def site(vhost: Vhost, store: Store) -> AsyncIterator[Site]:
    """Letters are revived by the strategy `immediate`."""
    async with revival(vhost.url, store) as found:
        yield found


async def replay(site: Site, filters: Filters | None = None, **order: object) -> Progress:
    """A person sends letters again: a job, run to its end here."""
    now = datetime.now(UTC)
    made = await site.store.replays.create(
        letter_id(now, random.getrandbits(74)),
        VHOST,
        filters or Filters(),
        ReplayOrder(actor="ada", described="all", pause=0, **order),  # type: ignore[arg-type]
    )
    assert made is not None
    ours = await site.store.replays.begin(made.id, "cli-1", LEASE)
    redirect = order.get("destination")
    assert redirect is None or isinstance(redirect, Destination)
    return await run_job(site, ours, redirect)


async def run_job(site: Site, ours: Replay, redirect: Destination | None = None) -> Progress:
    runner = ReplayRunner(
        "cli-1",
        site.store.replays,
        site.sender,
        verdict_after=VERDICT_AFTER,
        lease=LEASE,
        stopping=asyncio.Event(),
    )
    return await runner.run(ours, destinations(lambda: site.policies, redirect))


async def dead(site: Site, body: str = '{"order": 1}') -> None:
    """A message fails and becomes a pending letter."""
    async with handling(site.url, QUEUE, rejects) as consumer:
        await site.fail(body)
        await consumer.has_seen(1)
        await site.becomes(PENDING)


async def in_manual(site: Site) -> None:
    """A letter that was left to a person."""
    await dead(site)
    letter = await site.letter()
    async with site.store.database.writing() as connection:
        locked = await lock_letters(connection, [letter.id])
        changes = Changes(connection, letter.updated_at, "test")
        changes.become(locked[letter.id], MANUAL, "left to a person")
        await changes.flush()


# By a worker


async def test_a_letter_that_is_due_is_scheduled_sent_and_resolved_by_silence(site: Site) -> None:
    await dead(site)
    assert await site.round() == 1
    scheduled = await site.letter()
    assert (scheduled.status, scheduled.strategy) == (PENDING, "immediate")
    assert await site.round() == 0
    site.later(minutes=1, seconds=1)
    async with handling(site.url, QUEUE, accepts_replays) as consumer:
        assert await site.round() == 1
        await consumer.has_seen(1)
        assert (await site.letter()).status is PROCESSING
        await silent_for_long(site)
    letter = await site.letter()
    assert (letter.status, letter.resolution) == (RESOLVED, Resolution.SILENCE)
    assert await site.results() == [Result.RESOLVED]
    assert await site.arrows() == [
        (None, PENDING),
        (PENDING, PENDING),
        (PENDING, PROCESSING),
        (PROCESSING, RESOLVED),
    ]


async def silent_for_long(site: Site) -> None:
    """The destination is seen idle, then nothing is heard until the verdict is due."""

    async def clock_has_started() -> bool:
        await site.watch.round()
        return (await site.letter()).verdict_due_at is not None

    await eventually_async(clock_has_started, what="the destination seen idle")
    site.later(minutes=11)
    await site.watch.round()


async def test_what_is_sent_again_is_what_was_published(site: Site) -> None:
    await dead(site, '{"amount": 9007199254740993}')
    await site.round()
    site.later(minutes=2)
    async with handling(site.url, QUEUE, accepts_replays) as consumer:
        await site.round()
        await consumer.has_seen(1)
    (seen,) = consumer.deliveries
    assert (seen.routing_key, seen.body) == (KEY, b'{"amount": 9007199254740993}')
    found = Properties.read(seen.properties)
    letter = await site.letter()
    assert found.header(headers.LETTER) == letter.id
    assert found.header(headers.GENERATION) == 1
    assert found.header(headers.QUEUE) == QUEUE
    for name in (headers.ERROR_TYPE, headers.ERROR_REASON, headers.X_DEATH, headers.ATTEMPT):
        assert found.header(name) is None


async def test_a_letter_that_fails_five_times_more_has_failed(site: Site) -> None:
    await dead(site)
    async with handling(site.url, QUEUE, rejects) as consumer:
        for revivals in range(1, 6):
            await site.round()
            site.later(minutes=61)
            await site.round()
            await consumer.has_seen(revivals)
            await site.becomes(FAILED if revivals == 5 else PENDING, revivals=revivals)
    assert await site.results() == [Result.RETURNED] * 5
    assert (await site.arrows())[-2:] == [(PENDING, PROCESSING), (PROCESSING, FAILED)]
    site.later(days=1)
    assert await site.round() == 0


async def test_delays_between_revivals_grow(site: Site) -> None:
    await dead(site)
    waits = []
    async with handling(site.url, QUEUE, rejects) as consumer:
        for revivals in range(1, 5):
            await site.round()
            now = await site.store.verdicts.now()
            due = (await site.letter()).next_retry_at
            assert due is not None
            waits.append(round((due - now).total_seconds() / 60))
            site.later(minutes=61)
            await site.round()
            await consumer.has_seen(revivals)
            await site.becomes(PENDING, revivals=revivals)
    assert waits == [1, 5, 15, 30]


async def test_a_plain_rejection_is_left_to_a_person_by_default(vhost: Vhost, store: Store) -> None:
    async with revival(vhost.url, store, strategy=Strategy.MANUAL) as site:
        await dead(site)
        await site.round()
        assert (await site.letter()).status is MANUAL
        (_, change) = await site.history()
        assert (change.before, change.after) == (PENDING, MANUAL)
        assert "REJECTED" in change.reason


async def test_a_rule_for_the_queue_decides_on_what_tells_nothing(
    vhost: Vhost, store: Store
) -> None:
    rule = Rule(name="[[classify]] 1", strategy=Strategy.SCHEDULED, queue="ord*")
    async with revival(vhost.url, store, strategy=Strategy.MANUAL, users=[rule]) as site:
        await dead(site)
        await site.round()
        letter = await site.letter()
        assert (letter.status, letter.strategy) == (PENDING, "scheduled")
        assert letter.next_retry_at is not None
        assert (letter.next_retry_at.hour in (2, 3, 4), letter.next_retry_at.minute) == (True, 0)


async def test_of_two_copies_both_are_left_to_a_person(site: Site) -> None:
    named = {**died_in(QUEUE), "redrive-id": fields.longstr("r-1")}
    await site.store.letters.add([arrival(headers=named)])
    await site.store.letters.add([arrival(headers=named)])
    await site.round()
    first, second = await site.letters()
    assert second.duplicate_of == first.id
    assert [first.status, second.status] == [MANUAL, MANUAL]


# Verdicts


async def test_a_receipt_resolves_a_letter_at_once(site: Site) -> None:
    await dead(site)
    await site.round()
    site.later(minutes=2)
    async with handling(site.url, QUEUE, accepts_replays) as consumer:
        await site.round()
        await consumer.has_seen(1)
    await receipt_arrives(site, {"letter": (await site.letter()).id, "generation": 1})
    letter = await site.becomes(RESOLVED)
    assert letter.resolution is Resolution.RECEIPT
    assert await site.results() == [Result.RESOLVED]


async def receipt_arrives(site: Site, document: dict[str, object]) -> None:
    """A consumer publishes a receipt; the worker role settles it."""
    queue = site.settings.names.receipts_queue
    heard = Heard(site.store.verdicts)
    receipts = Receipts(queue, heard, connector(site.url), parking(site.url, site.settings))
    running = asyncio.create_task(receipts.run())
    try:
        body = json.dumps(document).encode()
        await publish(site.url, [Publish("", queue, Properties.empty().persistent().raw, body)])
        await eventually_async(lambda: heard.one, what="the receipt settled")
    finally:
        receipts.stop()
        await asyncio.wait_for(running, 30)


@pytest.mark.parametrize("made_by", ["us", "somebody"])
async def test_what_is_no_receipt_parks_where_it_is_kept_and_else_stays(
    site: Site, made_by: str
) -> None:
    names, heard = site.settings.names, Heard(site.store.verdicts)
    if made_by == "somebody":
        async with channel_to(site.url) as channel:
            await channel.delete_queue(names.receipts_queue)
        await declare(site.url, names.receipts_queue, "quorum")
    receipts = Receipts(
        names.receipts_queue, heard, connector(site.url), parking(site.url, site.settings)
    )
    running = asyncio.create_task(receipts.run())
    try:
        real = json.dumps({"letter": letter_id(datetime.now(UTC), 7), "generation": 1}).encode()
        raw = Properties.empty().persistent().raw
        await publish(
            site.url, [Publish("", names.receipts_queue, raw, body) for body in (b"odd", real)]
        )
        if made_by == "us":
            await has_letters(site, 1)
        await eventually_async(lambda: heard.one, what="the receipt behind it settled")
    finally:
        receipts.stop()
        await asyncio.wait_for(running, 30)
    await holds(site.url, names.receipts_queue, 0 if made_by == "us" else 1)


@dataclass
class Heard:
    """Where receipts are settled, and whether one was."""

    verdicts: ReceiptStore
    one: bool = False

    async def settle_receipts(self, receipts: Sequence[Receipt]) -> list[Settled]:
        settled = await self.verdicts.settle_receipts(receipts)
        self.one = True
        return settled


async def test_a_letter_that_comes_back_after_it_was_taken_for_resolved_is_pending(
    site: Site,
) -> None:
    await dead(site)
    await site.round()
    site.later(minutes=2)
    slow: list[Delivery] = []
    async with channel_to(site.url) as channel:
        consumer = await channel.consume(QUEUE, prefetch=10)
        await site.round()
        slow += await consumer.next_batch()
        await silent_for_long(site)
        assert (await site.letter()).status is RESOLVED
        for delivery in slow:
            consumer.reject(delivery)
        letter = await site.becomes(PENDING)
    assert (letter.dlq_retry_count, letter.resolution) == (1, None)
    assert (await site.arrows())[-1] == (RESOLVED, PENDING)


async def test_a_queue_with_a_backlog_is_no_proof_of_anything(site: Site) -> None:
    await dead(site)
    await site.round()
    site.later(minutes=2)
    await site.round()
    async with channel_to(site.url) as channel:
        consumer = await channel.consume(QUEUE, prefetch=1)
        await consumer.next_batch()
        await site.fail("another")  # it waits behind the one that is being handled
        await holds(site.url, QUEUE, 1)
        for _ in range(3):
            await site.watch.round()
            site.later(days=1)
        assert (await site.letter()).status is PROCESSING


async def test_a_queue_without_consumers_is_no_proof_of_anything(site: Site) -> None:
    await dead(site)
    await site.round()
    site.later(minutes=2)
    await site.round()
    for _ in range(3):
        await site.watch.round()
        site.later(days=1)
    assert (await site.letter()).status is PROCESSING


async def taken_ahead(site: Site, channel: Channel) -> tuple[Consumer, Delivery]:
    """A letter was sent, a consumer has it in hand, and its silence has lasted long enough."""
    await dead(site)
    await site.round()
    site.later(minutes=2)
    consumer = await channel.consume(QUEUE, prefetch=1)
    await site.round()
    (delivery,) = await consumer.next_batch()
    await site.watch.round()
    assert (await site.letter()).verdict_due_at is not None
    site.later(minutes=11)
    return consumer, delivery


async def test_what_a_consumer_had_in_hand_and_left_as_it_went_away_is_not_taken_for_consumed(
    site: Site,
) -> None:
    async with channel_to(site.url) as channel:
        await taken_ahead(site, channel)
    await holds(site.url, QUEUE, 1)
    await site.watch.round()
    letter = await site.letter()
    assert (letter.status, letter.verdict_due_at) == (PROCESSING, None)
    async with handling(site.url, QUEUE, accepts_replays) as consumer:
        await consumer.has_seen(1)
        await silent_for_long(site)
    assert (await site.letter()).status is RESOLVED


async def test_while_messages_wait_that_may_be_it_a_letter_is_not_taken_for_consumed(
    site: Site,
) -> None:
    async with channel_to(site.url) as channel:
        consumer, delivery = await taken_ahead(site, channel)
        await site.fail("another")  # it waits behind the one that is in hand
        await holds(site.url, QUEUE, 1)
        await site.watch.round()
        letter = await site.letter()
        assert (letter.status, letter.verdict_due_at is None) == (PROCESSING, False)
        consumer.ack(delivery)
        consumer.flush_now()
        await empty(site.url, QUEUE)
        await site.watch.round()
        assert (await site.letter()).status is RESOLVED


async def handled_by_one_that_is_gone(site: Site) -> None:
    async with channel_to(site.url) as channel:
        consumer, delivery = await taken_ahead(site, channel)
        consumer.ack(delivery)
        consumer.flush_now()


@pytest.fixture
def told(vhost: Vhost, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The management API tells of queues, quickly or not at all."""
    monkeypatch.setattr(verdict_watch, "_SHOWN_EVERY", 0.2)
    management = Management(vhost.management_url, "guest", "guest", vhost.name)
    monkeypatch.setattr(site.watch, "_management", management)


async def test_what_a_consumer_has_handled_that_is_gone_by_now_is_consumed(
    site: Site, told: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_watch, "_MEASURED_WITHIN", DEADLINE)
    await handled_by_one_that_is_gone(site)
    await site.watch.round()
    assert (await site.letter()).status is RESOLVED


async def test_where_nobody_tells_whether_a_queue_without_consumers_is_empty_the_time_begins_anew(
    site: Site,
) -> None:
    await handled_by_one_that_is_gone(site)
    await site.watch.round()
    letter = await site.letter()
    assert (letter.status, letter.verdict_due_at) == (PROCESSING, None)
    async with handling(site.url, QUEUE, accepts_replays):
        await silent_for_long(site)
    assert (await site.letter()).status is RESOLVED


@pytest.mark.parametrize("told_by", ["wire", "management"])
async def test_what_is_ready_again_where_nobody_answers_for_the_queue_is_not_taken_for_consumed(
    site: Site,
    vhost: Vhost,
    told_by: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if told_by == "management":
        request.getfixturevalue("told")
        monkeypatch.setattr(verdict_watch, "_MEASURED_WITHIN", 2.0)
    async with channel_to(site.url) as channel:
        await taken_ahead(site, channel)
    await holds(site.url, QUEUE, 1)
    with silent_leader(vhost, QUEUE):
        await site.watch.round()
    letter = await site.letter()
    assert (letter.status, letter.verdict_due_at) == (PROCESSING, None)
    assert (await site.arrows())[-1] == (PENDING, PROCESSING)


async def test_what_a_queue_took_along_while_its_silence_counted_is_left_to_a_person(
    site: Site,
) -> None:
    async with channel_to(site.url) as channel:
        await taken_ahead(site, channel)
        await channel.delete_queue(QUEUE)
    await site.watch.round()
    assert (await site.letter()).status is MANUAL


async def test_silence_of_a_queue_that_is_gone_is_left_to_a_person(site: Site) -> None:
    await dead(site)
    await site.round()
    site.later(minutes=2)
    await site.round()
    async with channel_to(site.url) as channel:
        await channel.delete_queue(QUEUE)
    await site.watch.round()
    assert (await site.letter()).status is MANUAL


async def test_a_doubtful_sending_to_a_name_that_no_queue_can_have_is_left_to_a_person(
    site: Site,
) -> None:
    await dead(site)
    async with site.store.database.writing() as connection:
        await connection.execute(update(redrive_letter).values(queue="q" * 254 + "…"))
    await claim_and_die(site)
    await site.watch.round()
    assert (await site.letter()).status is MANUAL


async def test_a_consumer_that_copies_headers_makes_a_new_letter_with_a_parent(site: Site) -> None:
    await dead(site)
    await site.round()
    site.later(minutes=2)
    async with handling(site.url, QUEUE, accepts_replays) as consumer:
        await site.round()
        await consumer.has_seen(1)
    (seen,) = consumer.deliveries
    await declare(site.url, "billing", "quorum", x_dead_letter_exchange="retry-exchange")
    async with handling(site.url, "billing", rejects) as billing:
        await publish(site.url, [Publish("", "billing", seen.properties, b'{"bill": 1}')])
        await billing.has_seen(1)

        async def two() -> bool:
            return len(await site.letters()) == 2

        await eventually_async(two, what="a second letter")
    first, second = await site.letters()
    assert (first.status, second.parent_id) == (PROCESSING, first.id)
    assert second.status is PENDING


# In doubt


async def in_doubt(site: Site) -> None:
    """A letter is claimed, and whoever claimed it is not heard of again."""
    await dead(site)
    await claim_and_die(site)


async def claim_and_die(site: Site) -> None:
    await site.round()
    site.later(minutes=2)
    taken = await site.store.sendings.take_due(
        "worker-2",
        VHOST,
        10,
        site.worker._decide,
    )
    assert len(taken.claims) == 1
    site.later(seconds=61)
    await site.watch.round()
    assert await site.results() == [Result.IN_DOUBT]
    assert (await site.letter()).locked_by is None


async def test_a_lease_that_ends_makes_a_sending_doubtful_and_silence_leaves_it_to_a_person(
    site: Site,
) -> None:
    await in_doubt(site)
    async with handling(site.url, QUEUE, accepts_replays):
        await silent_for_long(site)
    assert (await site.letter()).status is MANUAL
    assert await site.results() == [Result.IN_DOUBT]
    assert (await site.arrows())[-1] == (PROCESSING, MANUAL)


async def test_a_receipt_for_a_doubtful_letter_that_a_person_has_resolves_it(site: Site) -> None:
    await in_doubt(site)
    async with handling(site.url, QUEUE, accepts_replays):
        await silent_for_long(site)
    await receipt_arrives(site, {"letter": (await site.letter()).id, "generation": 1})
    assert (await site.becomes(RESOLVED)).resolution is Resolution.RECEIPT
    assert (await site.arrows())[-1] == (MANUAL, RESOLVED)


async def test_a_replay_leaves_a_doubtful_letter_out_unless_it_is_asked_for(site: Site) -> None:
    await in_doubt(site)
    async with handling(site.url, QUEUE, accepts_replays) as consumer:
        await silent_for_long(site)
        assert (await replay(site)).skipped == 1
        assert len(consumer.seen) == 0
        assert (await replay(site, doubtful=True)).results[Result.SENT] == 1
        await consumer.has_seen(1)


# By a person


async def test_a_person_sends_a_letter_that_was_left_to_them(site: Site) -> None:
    await in_manual(site)
    async with handling(site.url, QUEUE, accepts_replays) as consumer:
        progress = await replay(site)
        assert progress.results == {Result.SENT: 1}
        await consumer.has_seen(1)
        await silent_for_long(site)
    assert (await site.letter()).status is RESOLVED
    assert (MANUAL, PROCESSING) in await site.arrows()
    (attempt,) = await site.attempts()
    assert attempt.strategy == "manual"


async def test_a_resolved_letter_is_sent_again_only_when_it_is_asked_for(site: Site) -> None:
    await in_manual(site)
    async with handling(site.url, QUEUE, accepts_replays) as consumer:
        await replay(site)
        await silent_for_long(site)
        assert (await site.letter()).status is RESOLVED
        with pytest.raises(AssertionError):
            await replay(site)
        progress = await replay(site, Filters(status=(RESOLVED,)))
        assert progress.results == {Result.SENT: 1}
        await consumer.has_seen(2)
    assert (RESOLVED, PROCESSING) in await site.arrows()


async def test_a_failed_letter_is_sent_by_a_person(site: Site) -> None:
    await test_a_letter_that_fails_five_times_more_has_failed(site)
    async with handling(site.url, QUEUE, accepts_replays) as consumer:
        await replay(site)
        await consumer.has_seen(1)
    assert (await site.arrows())[-1] == (FAILED, PROCESSING)


async def test_an_outstanding_letter_is_not_sent_a_second_time(site: Site) -> None:
    await in_manual(site)
    await replay(site)
    await holds(site.url, QUEUE, 1)
    with pytest.raises(AssertionError):
        await replay(site)
    progress = await replay(site, Filters(status=(PROCESSING,)), doubtful=True)
    assert (progress.skipped, progress.results) == (1, {})
    assert await ready(site.url, QUEUE) == 1


async def test_a_letter_is_sent_elsewhere_and_comes_back_as_the_same(site: Site) -> None:
    await in_manual(site)
    await declare(site.url, "elsewhere", "quorum", x_dead_letter_exchange="retry-exchange")
    async with handling(site.url, "elsewhere", rejects) as consumer:
        await replay(site, destination=Destination(queue="elsewhere"))
        await consumer.has_seen(1)
        assert consumer.deliveries[0].routing_key == KEY
        letter = await site.becomes(PENDING, revivals=1)
    assert letter.queue == QUEUE
    assert await ready(site.url, QUEUE) == 0


async def test_a_letter_is_sent_by_an_exchange_and_comes_back_as_the_same(site: Site) -> None:
    await in_manual(site)
    async with handling(site.url, QUEUE, rejects) as consumer:
        await replay(site, destination=Destination(exchange="work"))
        await consumer.has_seen(1)
        await site.becomes(PENDING, revivals=1)


async def test_what_another_queue_of_an_exchange_rejects_is_sent_to_that_queue_alone(
    site: Site,
) -> None:
    await in_manual(site)
    await declare_origin(site.url, "beside", "quorum", KEY)
    async with (
        handling(site.url, QUEUE, accepts_replays) as consumer,
        handling(site.url, "beside", rejects) as beside,
    ):
        await replay(site, destination=Destination(exchange="work"))
        await consumer.has_seen(1)
        letter = await site.becomes(PENDING, revivals=1)
        assert letter.queue == "beside"
        await replay(site)
        await site.becomes(PENDING, revivals=2)
        assert (len(consumer.seen), len(beside.seen)) == (1, 2)


async def test_of_queues_that_both_reject_what_a_person_sent_to_their_exchange_each_has_a_letter(
    site: Site,
) -> None:
    await in_manual(site)
    first = await site.letter()
    await declare_origin(site.url, "beside", "quorum", KEY)
    async with handling(site.url, QUEUE, rejects), handling(site.url, "beside", rejects):
        await replay(site, destination=Destination(exchange="work"))

        async def two() -> bool:
            return len(await site.letters()) == 2

        await eventually_async(two, what="2 letters")
    same, other = await site.letters()
    assert (same.id, other.parent_id) == (first.id, first.id)
    assert {same.queue, other.queue} == {QUEUE, "beside"}
    assert (same.status, other.status) == (PENDING, PENDING)


async def test_what_an_exchange_took_is_resolved_without_knowing_how(site: Site) -> None:
    await in_manual(site)
    async with handling(site.url, QUEUE, accepts_replays):
        await replay(site, destination=Destination(exchange="work"))
        site.later(minutes=11)
        await site.watch.round()
    assert (await site.letter()).resolution is Resolution.UNKNOWN


@pytest.mark.parametrize(
    "destination", [Destination(queue="nowhere"), Destination(exchange="nowhere")]
)
async def test_what_no_queue_takes_is_refused_with_the_reason(
    site: Site, destination: Destination
) -> None:
    await in_manual(site)
    progress = await replay(site, destination=destination)
    assert progress.results == {Result.REFUSED: 1}
    letter = await site.letter()
    assert (letter.status, letter.locked_by) == (MANUAL, None)
    (attempt,) = await site.attempts()
    assert attempt.reason is not None
    assert "nowhere" in attempt.reason
    assert (await site.arrows())[-1] == (PROCESSING, MANUAL)


async def test_one_letter_that_is_refused_does_not_spoil_its_neighbours(site: Site) -> None:
    async with handling(site.url, QUEUE, rejects) as consumer:
        await site.fail(*(f"{number}" for number in range(20)))
        await consumer.has_seen(20)

        async def all_there() -> bool:
            return len(await site.letters()) == 20

        await eventually_async(all_there, what="20 letters")
    odd = (await site.letters())[7]
    async with site.store.database.writing() as connection:
        await connection.execute(
            update(redrive_letter)
            .where(redrive_letter.c.id == odd.id)
            .values(queue="gone", exchange="gone")
        )
    progress = await replay(site)
    assert progress.results == {Result.SENT: 19, Result.REFUSED: 1}
    assert len(await take_all(site.url, QUEUE)) == 19


# The breaker


async def test_returns_open_the_breaker_a_replay_waits_and_half_open_lets_one_through(
    site: Site,
) -> None:
    async with handling(site.url, QUEUE, rejects) as consumer:
        await site.fail(*(f"{number}" for number in range(8)))
        await consumer.has_seen(8)

        async def eight(state: State = PENDING) -> bool:
            found = await site.letters()
            return [letter.status for letter in found] == [state] * 8

        await eventually_async(eight, what="8 letters")
        await replay(site, Filters(), batch_size=8)
        await consumer.has_seen(16)
        await eventually_async(eight, what="8 letters back")
    (open_,) = await site.store.breakers.all()
    assert (open_.queue, open_.breaker.state) == (QUEUE, "open")

    made = await job(site, batch_size=8)
    batch = await take_batch(site, made)
    assert (batch.claims, batch.held_by) == ([], QUEUE)
    site.later(seconds=61)
    batch = await take_batch(site, made)
    assert len(batch.claims) == 1
    assert (await take_batch(site, made)).claims == []
    (probe,) = await site.sender.send(batch.claims)
    assert probe.result is Result.SENT
    claim = probe.claim
    await receipt_arrives(site, {"letter": claim.letter.id, "generation": claim.generation})
    (closed,) = await site.store.breakers.all()
    assert closed.breaker.state == "closed"
    assert len((await take_batch(site, made)).claims) == 7
    found = await site.store.replays.get(made.id)
    assert found is not None
    assert found.state is ReplayState.DONE


async def job(site: Site, **order: object) -> Replay:
    made = await site.store.replays.create(
        letter_id(datetime.now(UTC), random.getrandbits(74)),
        VHOST,
        Filters(),
        ReplayOrder(actor="ada", described="all", pause=0, **order),  # type: ignore[arg-type]
    )
    assert made is not None
    return await site.store.replays.begin(made.id, "cli-1", LEASE)


async def take_batch(site: Site, made: Replay) -> Batch:
    return await site.store.replays.take_batch(made, "cli-1", destinations(lambda: site.policies))


async def test_a_conditional_letter_waits_while_the_breaker_is_open(
    vhost: Vhost, store: Store
) -> None:
    async with revival(vhost.url, store, strategy=Strategy.CONDITIONAL) as site:
        await dead(site)
        await store.breakers.force(VHOST, QUEUE, Position.OPEN)
        await site.round()
        assert (await site.letter()).status is PENDING
        await store.breakers.force(VHOST, QUEUE, None)
        site.later(minutes=2)
        await site.round()
        assert (await site.letter()).status is PROCESSING


async def test_a_consumer_that_tells_why_is_classified_by_it(vhost: Vhost, store: Store) -> None:
    async with revival(vhost.url, store, strategy=Strategy.MANUAL) as site:
        async with handling(site.url, QUEUE, rejects) as consumer:
            await site.fail("x", put={"x-exception-stacktrace": fields.longstr(TIMEOUT)})
            await consumer.has_seen(1)
            await site.becomes(PENDING)
        await site.round()
        assert (await site.letter()).strategy == "immediate"


# In order


async def has_letters(site: Site, count: int) -> None:
    async def there() -> bool:
        return len(await site.letters()) == count

    await eventually_async(there, what=f"{count} letters")


async def test_letters_that_failed_within_a_second_are_sent_again_in_their_order(
    site: Site,
) -> None:
    bodies = [f'{{"n": {number}}}' for number in range(60)]
    async with handling(site.url, QUEUE, rejects):
        await site.fail(*bodies)
        await has_letters(site, 60)
    await replay(site, ordered_by="$.of_none", batch_size=7)
    assert [each.body.decode() for each in await take_all(site.url, QUEUE)] == bodies


async def test_a_queue_that_is_full_pauses_a_replay_and_a_resumed_one_begins_with_what_it_refused(
    site: Site,
) -> None:
    async with handling(site.url, QUEUE, rejects):
        await site.fail(*(str(number) for number in range(20)))
        await has_letters(site, 20)
    await declare(site.url, "small", "classic", x_max_length=5, x_overflow="reject-publish")
    there = Destination(queue="small")
    progress = await replay(site, destination=there, batch_size=10)
    assert progress.results[Result.SENT] == 5
    (paused,) = (await site.store.replays.page()).items
    assert (paused.state, paused.position) == (ReplayState.PAUSED, 5)
    assert "is full" in paused.reason
    assert [letter.status for letter in await site.letters()].count(PENDING) == 15
    taken = await take_all(site.url, "small")
    for _ in range(3):
        ours = await site.store.replays.resume(paused.id, "cli-1")
        await run_job(site, ours, there)
        taken += await take_all(site.url, "small")
    assert sorted(int(each.body) for each in taken) == list(range(20))
