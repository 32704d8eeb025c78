"""Replays and workers bring no more to a queue that drops its oldest messages than it has room for.

Such a queue confirms every publish: what was there before, or was sent just now, would be gone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import func, select

from redrive.amqp import Properties, Publish
from redrive.broker.management import Management
from redrive.broker.topology import describe
from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.letter import Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.policy import PolicyBook
from redrive.domain.replay import Replay, ReplayOrder, ReplayState
from redrive.errors import ManagementError
from redrive.store.schema import redrive_attempt
from redrive.store.store import Store
from redrive.work import queue_site, room_ahead
from redrive.work.destinations import destinations
from redrive.work.replay import ReplayRunner
from redrive.work.room_ahead import RoomAhead
from redrive.work.sender import Sender
from tests.acceptance.command_line import CommandLine
from tests.services.eventually import DEADLINE, eventually
from tests.services.letters import arrival, died_in, letter_store
from tests.services.moving import Kind, connector, declare, identities, publish, ready, take_all
from tests.services.plugin import Vhost
from tests.services.replaying import Replaying, dead, replaying
from tests.services.retrying import declare_topology, topology
from tests.services.reviving import LEASE, VERDICT_AFTER, VHOST, Parts, reviver

DROPS = "--drop-oldest"
SMALL = "small"
KINDS: tuple[Kind, ...] = ("classic", "quorum")
HOW = {
    "in halves": ("--pause", "0", "--batch-size", "4"),
    "in turn": ("--pause", "10ms", "--batch-size", "4"),
    "in order": ("--pause", "0", "--ordered-by", "header:nosuch"),
    "at a rate": ("--rate", "100/s"),
}


@pytest.fixture(autouse=True)
def _statistics_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else tells how many bytes are in a queue, and a busy broker is slow to."""
    monkeypatch.setattr(queue_site, "_STATISTICS_WITHIN", DEADLINE)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def site(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Replaying:
    return replaying(vhost, tmp_path, capsys)


def live(identity: str) -> Publish:
    """A message of the queue's own, which nobody has consumed yet."""
    properties = Properties.empty().with_text("message_id", identity).persistent()
    return Publish("", SMALL, properties.raw, identity.encode())


def small(site: Replaying, kind: Kind, *there: str, **limit: int) -> None:
    """A queue with a limit, and what is in it."""
    asyncio.run(declare(site.vhost.url, SMALL, kind, **(limit or {"x_max_length": 5})))
    asyncio.run(publish(site.vhost.url, [live(each) for each in there]))


def failed_there(site: Replaying, number: int = 10) -> list[str]:
    """So many letters of it; their ids."""
    return site.add(*(dead(str(each), queue=SMALL) for each in range(number)))


def statuses(site: Replaying, ids: list[str]) -> list[State]:
    return [site.letter(each).status for each in ids]


# Replays


@pytest.mark.parametrize("how", HOW)
def test_a_replay_into_a_queue_that_would_drop_its_oldest_pauses_and_all_arrive_once_there_is_room(
    site: Replaying, kind: Kind, how: str
) -> None:
    small(site, kind, "live-0", "live-1")
    ids = failed_there(site)
    ran = site("replay", "--queue", SMALL, *HOW[how], "--output", "json")
    report = ran.document
    assert (ran.code, report["state"], report["position"]) == (1, "paused", 3), ran.err
    assert (report["sent"], report["refused"], report["skipped"]) == (3, 0, 0)
    assert f"letter {ids[3]} was not sent: the queue 'small' has room for 0 more" in ran.err
    assert "would drop its oldest ones" in ran.err
    assert DROPS in ran.err
    assert f"redrive replays resume {report['id']}" in ran.err
    assert statuses(site, ids) == [State.PROCESSING] * 3 + [State.PENDING] * 7
    assert {site.letter(each).generation for each in ids[3:]} == {0}
    assert site("replays", "resume", report["id"]).code == 1  # nobody has made room
    taken = site.taken(SMALL)
    assert site("replays", "resume", report["id"]).code == 1
    taken += site.taken(SMALL)
    ended = site("replays", "resume", report["id"], "--output", "json")
    assert (ended.code, ended.document["state"], ended.document["sent"]) == (0, "done", 10)
    taken += site.taken(SMALL)
    assert taken == ["live-0", "live-1", *map(str, range(10))]


def test_told_to_it_sends_all_and_the_oldest_go(site: Replaying, kind: Kind) -> None:
    small(site, kind, "live-0", "live-1")
    failed_there(site)
    ran = site("replay", "--queue", SMALL, DROPS, "--pause", "0", "--output", "json")
    assert (ran.code, ran.document["state"], ran.document["sent"]) == (0, "done", 10), ran.err
    assert ran.document["dropOldest"]
    assert "may drop their oldest messages" in site("replays", "show", ran.document["id"]).out
    assert site.taken(SMALL) == ["5", "6", "7", "8", "9"]


def test_a_job_that_was_told_to_remembers_it(site: Replaying) -> None:
    small(site, "classic")
    failed_there(site)
    made = site.json("replay", "--queue", SMALL, DROPS, "--detach")["id"]
    site("replays", "pause", made)
    assert site("replays", "resume", made).code == 0
    assert site.taken(SMALL) == ["5", "6", "7", "8", "9"]


def test_a_limit_in_bytes_counts_what_the_letters_weigh(site: Replaying, kind: Kind) -> None:
    small(site, kind, x_max_length_bytes=35_000)
    site.add(*(dead(str(each), queue=SMALL, body=bytes(10_000)) for each in range(4)))
    ran = site("replay", "--queue", SMALL, "--pause", "0", "--output", "json")
    assert (ran.document["state"], ran.document["sent"]) == ("paused", 3), ran.err
    assert "more bytes, and would drop its oldest" in ran.err
    taken = site.taken(SMALL)
    assert site("replays", "resume", ran.document["id"]).code == 0
    assert taken + site.taken(SMALL) == ["0", "1", "2", "3"]


def test_a_queue_that_is_full_does_not_have_letters_before_it_wait(site: Replaying) -> None:
    small(site, "classic", *"abcde")
    asyncio.run(declare(site.vhost.url, "orders", "classic"))
    site.add(dead("0"), dead("gone", queue=None), dead("1", queue=SMALL), dead("2"))
    ran = site("replay", "--yes", "--pause", "0", "--output", "json")
    assert (ran.document["state"], ran.document["position"]) == ("paused", 2), ran.err
    assert (ran.document["sent"], ran.document["skipped"], ran.document["left"]) == (1, 1, 2)
    assert site.taken() == ["0"]
    assert len(site.taken(SMALL)) == 5
    site("replays", "resume", ran.document["id"])
    assert (site.taken(SMALL), site.taken()) == (["1"], ["2"])


def test_what_a_full_queue_refuses_by_itself_is_not_looked_at_before(site: Replaying) -> None:
    refusing: dict[str, Any] = {"x_max_length": 5, "x_overflow": "reject-publish"}
    asyncio.run(declare(site.vhost.url, SMALL, "classic", **refusing))
    failed_there(site)
    ran = site("replay", "--queue", SMALL, "--pause", "0", "--output", "json")
    assert (ran.document["state"], ran.document["sent"]) == ("paused", 5), ran.err
    assert "is full" in ran.err


@pytest.mark.parametrize("management", ["none", "silent"])
def test_without_the_management_api_letters_are_sent_as_if_there_were_no_limits(
    site: Replaying, management: str
) -> None:
    small(site, "classic")
    failed_there(site)
    known = f'management_url = "{site.vhost.management_url}"'
    instead = "" if management == "none" else 'management_url = "http://127.0.0.1:1"'
    assert known in site.redrive.settings
    site.redrive.settings = site.redrive.settings.replace(known, instead)
    ran = site("replay", "--queue", SMALL, "--pause", "0", "--output", "json")
    assert (ran.code, ran.document["sent"]) == (0, 10), ran.err
    assert site.taken(SMALL) == ["5", "6", "7", "8", "9"]


def test_a_dry_run_foresees_that_the_replay_would_pause_and_that_it_would_not_if_told_to(
    site: Replaying,
) -> None:
    small(site, "classic")
    failed_there(site)
    ran = site("replay", "--queue", SMALL, "--dry-run")
    assert ran.code == 1
    assert "not 5 of them: it has room for 5 more messages, and would drop its oldest" in ran.out
    assert DROPS in ran.out
    told = site("replay", "--queue", SMALL, "--dry-run", DROPS)
    assert told.code == 0
    assert "it has room for 5 more messages, and drops its oldest messages for the rest" in told.out


def test_a_dry_run_foresees_for_how_many_a_limit_of_bytes_has_room_and_where_others_go(
    site: Replaying,
) -> None:
    limit: dict[str, str | int] = {"x_max_length_bytes": 300}
    limit["x_dead_letter_exchange"] = "retry-exchange"
    asyncio.run(declare(site.vhost.url, SMALL, "classic", **limit))
    site.add(*(dead(str(each), body=b"x" * 99, queue=SMALL) for each in range(4)))
    ran = site("replay", "--dry-run")
    assert "not 1 of them: it has room for 300 more bytes, and would dead-letter its" in ran.out
    assert "oldest messages to the exchange 'retry-exchange' for the rest" in ran.out


def as_a_process(site: Replaying, delay: str) -> CommandLine:
    """Of workers that revive every letter so long after it failed."""
    return site.command_line(
        more=f'[worker]\ndelays = ["{delay}"]\n[[classify]]\nqueue = "*"\nstrategy = "immediate"\n'
    )


def test_a_process_of_the_worker_pauses_a_job_of_somebody_else(site: Replaying) -> None:
    small(site, "classic", "live-0", "live-1")
    failed_there(site)
    line = as_a_process(site, "1h")
    made = site.json("replay", "--queue", SMALL, "--detach")["id"]
    process = line.start("run", "--roles", "worker")
    try:
        eventually(
            lambda: line.asked("SELECT 1 FROM redrive_replay WHERE state = 'paused'"),
            what="the job is paused",
        )
    finally:
        process.kill()
    assert "would drop its oldest ones" in site.json("replays", "show", made)["reason"]
    assert site.taken(SMALL) == ["live-0", "live-1", "0", "1", "2"]


def test_a_process_of_the_worker_looks_at_room_for_what_it_revives(site: Replaying) -> None:
    small(site, "classic", "live-0", "live-1")
    failed_there(site)
    line = as_a_process(site, "1s")
    process = line.start("run", "--roles", "worker")
    try:
        eventually(
            lambda: line.log.exists() and line.logged("worker.queue_full"), what="it is full"
        )
    finally:
        process.kill()
    assert site.taken(SMALL) == ["live-0", "live-1", "0", "1", "2"]


# Looking


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as opened:
        yield opened


def api_of(vhost: Vhost) -> Management:
    return Management(vhost.management_url, "guest", "guest", vhost.name)


@pytest.fixture
async def room(vhost: Vhost) -> AsyncIterator[RoomAhead]:
    ahead = RoomAhead(connector(vhost.url), api_of(vhost))
    yield ahead
    ahead.close()


async def letters_of(store: Store, number: int) -> None:
    given = [arrival(b"%d" % each, headers=died_in(SMALL)) for each in range(number)]
    await store.letters.add(given)


async def run_job(vhost: Vhost, store: Store, room: RoomAhead, batch: int) -> Replay:
    settings = topology("quorum")
    sender = Sender(
        connector(vhost.url), settings.names.return_exchange, describe(settings).queue_names()
    )
    await sender.open()
    made = await store.replays.create(
        letter_id(datetime.now(UTC), random.getrandbits(74)),
        VHOST,
        Filters(),
        ReplayOrder(actor="ada", described="all", pause=0, batch_size=batch),
    )
    assert made is not None
    runner = ReplayRunner(
        "worker-1",
        store.replays,
        sender,
        verdict_after=VERDICT_AFTER,
        stopping=asyncio.Event(),
        lease=LEASE,
        room=room,
    )
    try:
        await runner.run(
            await store.replays.begin(made.id, "worker-1", LEASE), destinations(PolicyBook)
        )
    finally:
        await sender.close()
    found = await store.replays.get(made.id)
    assert found is not None
    return found


async def test_a_look_never_misses_what_is_claimed_and_not_sent_yet(
    vhost: Vhost, store: Store, room: RoomAhead, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every look is too old at once, and the other half of a batch is claimed meanwhile."""
    monkeypatch.setattr(room_ahead, "_HOLDS", timedelta(0))
    monkeypatch.setattr(room_ahead, "_REST", 0)
    look, under_way = room.look, []
    sending = select(func.count()).where(redrive_attempt.c.result == Result.SENDING.value)

    async def noted(queues: Collection[str]) -> None:
        async with store.database.reading() as connection:
            under_way.append((await connection.execute(sending)).scalar_one())
        await look(queues)

    monkeypatch.setattr(room, "look", noted)
    await declare_topology(vhost.url, topology("quorum"))
    await declare(vhost.url, SMALL, kind, x_max_length=33)
    await publish(vhost.url, [live("live")])
    await letters_of(store, 60)
    stopped = await run_job(vhost, store, room, 10)
    assert (stopped.state, stopped.position) == (ReplayState.PAUSED, 32)
    taken = [each.body for each in await take_all(vhost.url, SMALL)]
    assert taken == [b"live", *(b"%d" % each for each in range(32))]
    assert len(under_way) > 5
    assert set(under_way) == {0}


async def test_what_others_bring_and_take_meanwhile_is_seen_by_the_next_look(
    vhost: Vhost, room: RoomAhead, kind: Kind
) -> None:
    await declare(vhost.url, SMALL, kind, x_max_length=3)
    assert room.unknown({SMALL, "nowhere"}) == {SMALL, "nowhere"}
    await room.look({SMALL, "nowhere"})
    assert room.unknown({SMALL, "nowhere"}) == set()
    assert [room.take(SMALL, 1, 1) for _ in range(4)] == [True, True, True, False]
    assert room.take("nowhere", 1, 1)
    assert room.why_full(SMALL) is None  # some of the three may have been consumed by now
    assert room.unknown({SMALL}) == {SMALL}
    await publish(vhost.url, [live(str(each)) for each in range(3)])
    await room.look({SMALL})
    assert (room.unknown({SMALL}), room.take(SMALL, 1, 1)) == (set(), False)
    assert "has room for 0 more messages" in (room.why_full(SMALL) or "")
    await take_all(vhost.url, SMALL)
    await room.look({SMALL})
    assert room.take(SMALL, 1, 1)


@pytest.mark.parametrize("limit", [{"x_max_length": 2}, {"x_max_length_bytes": 20}])
async def test_a_limit_that_is_known_counts_also_when_the_management_api_does_not_answer_any_more(
    vhost: Vhost, room: RoomAhead, limit: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> None:
        raise ManagementError("it does not answer")

    await declare(vhost.url, SMALL, "classic", **limit)
    await room.look({SMALL})
    await publish(vhost.url, [live("1234567890")])
    monkeypatch.setattr(Management, "queue", silent)
    with structlog.testing.capture_logs() as said:
        await room.look({SMALL, "other"})
        await room.look({SMALL, "other"})
    assert [each["event"] for each in said] == ["room.unknown"]
    counted = "x_max_length" in limit  # bytes only that API counts
    assert [room.take(SMALL, 5, 5) for _ in range(2)] == [counted, False]
    assert room.take("other", 5, 5)


async def test_of_many_queues_all_are_known(vhost: Vhost, room: RoomAhead) -> None:
    """They are listed then, not asked for one by one."""
    queues = [f"small.{number}" for number in range(25)]
    for queue in queues:
        await declare(vhost.url, queue, "classic", x_max_length=1)
    await room.look({*queues, "orders", "q" * 300})
    assert [room.take(queue, 1, 1) for queue in queues * 2] == [True] * 25 + [False] * 25
    assert room.take("orders", 1, 1)


# Workers


async def all_letters(store: Store) -> list[Letter]:
    found = await store.letters.page(Filters(), limit=100)
    return list(reversed(found.items))


async def all_that_is_due(parts: Parts) -> int:
    """The worker looks until nothing is due any more; how often it did."""
    looks = 1
    await parts.sender.ready()
    while await parts.worker.round(parts.sender):
        looks += 1
        assert looks < 100, "it looks for ever"
    return looks


async def test_a_worker_leaves_letters_pending_for_which_a_queue_would_drop_its_oldest(
    vhost: Vhost, store: Store, room: RoomAhead, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minutes pass in the store only: to the broker's side a look of a moment ago is too old."""
    monkeypatch.setattr(room_ahead, "_HOLDS", timedelta(0))
    monkeypatch.setattr(room_ahead, "_REST", 0)
    await declare_topology(vhost.url, topology("quorum"))
    await declare(vhost.url, SMALL, kind, x_max_length=5)
    await publish(vhost.url, [live("live-0"), live("live-1")])
    await letters_of(store, 10)
    parts = reviver(vhost.url, store, room=room)
    await parts.sender.open()
    try:
        await all_that_is_due(parts)
        store.clock.ahead += timedelta(minutes=2)
        with structlog.testing.capture_logs() as said:
            assert await all_that_is_due(parts) < 10
            store.clock.ahead += timedelta(minutes=1)
            await all_that_is_due(parts)
        (full,) = [each for each in said if each["event"] == "worker.queue_full"]
        assert (full["queue"], await ready(vhost.url, SMALL)) == (SMALL, 5)
        letters = await all_letters(store)
        assert [each.status for each in letters] == [State.PROCESSING] * 3 + [State.PENDING] * 7
        assert {(each.generation, each.dlq_retry_count) for each in letters[3:]} == {(0, 0)}
        taken = await take_all(vhost.url, SMALL)
        for _ in range(2):
            store.clock.ahead += timedelta(minutes=1)
            await all_that_is_due(parts)
            taken += await take_all(vhost.url, SMALL)
    finally:
        parts.sender.abort()
    assert identities(taken[:2]) == ["live-0", "live-1"]
    assert [int(each.body) for each in taken[2:]] == list(range(10))
