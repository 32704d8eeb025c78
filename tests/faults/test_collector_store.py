"""A store that is away, full, in doubt or slow to answer: the broker keeps what is not stored.

Nothing is lost and nothing is stored twice: a commit whose answer was lost is looked up, not
repeated. Where the broker is lost as well, what was stored and could not be acked comes again, and
is marked.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from sqlalchemy import text

from redrive.amqp import Properties, Publish, fields
from redrive.domain.letter import Arrival, Collected
from redrive.errors import StoreRefused, StoreUnreachable
from redrive.store.store import Store
from redrive.work import keeper
from redrive.work.mover import Limits
from tests.faults.collector_process import Step, Trap
from tests.services import scale
from tests.services.collecting import (
    QUEUE,
    collecting,
    coming_back_quickly,
    dead_message,
    dead_messages,
    found_in,
    has_all,
    has_emptied,
    is_empty,
    refuse,
)
from tests.services.eventually import eventually_async
from tests.services.letters import failed, letter_store
from tests.services.mounting import grow, small_disk
from tests.services.moving import channel_to, declare, publish
from tests.services.plugin import NewProxy, Vhost
from tests.services.postgres import PrivatePostgres
from tests.services.proxy import Direction, Proxy, ProxyConnection

MESSAGES = scale.messages(30_000)
PREFETCH = 50
LIMITS = Limits(prefetch=PREFETCH)
AWAY = scale.seconds(60, quick=1)
WITHIN = scale.seconds(600, quick=60)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(WITHIN * 3)]


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with coming_back_quickly():
        yield


def expected(count: int = MESSAGES) -> list[str]:
    return [f"m{number}" for number in range(count)]


# Away


async def test_while_the_database_is_away_the_broker_keeps_the_messages(
    vhost: Vhost, postgres: PrivatePostgres, database: str
) -> None:
    first, later = expected()[: MESSAGES // 3], expected()[MESSAGES // 3 :]
    await declare(vhost.url, QUEUE, "quorum")
    async with letter_store(database) as store:
        with structlog.testing.capture_logs() as said:
            async with (
                collecting(vhost.url, store.letters, limits=LIMITS) as running,
                channel_to(vhost.url) as channel,
            ):
                await publish(vhost.url, dead_messages(first))
                await running.has_acked(len(first), within=WITHIN)
                await asyncio.to_thread(postgres.stop)
                try:
                    await publish(vhost.url, dead_messages(later))
                    left = len(later) - PREFETCH

                    async def holds_the_rest() -> bool:
                        return (await channel.inspect_queue(QUEUE))[0] == left

                    await eventually_async(holds_the_rest, what=f"{left} messages ready")
                    until = time.monotonic() + AWAY
                    while time.monotonic() < until:
                        # Never more than the prefetch has left; after a while all goes back.
                        assert (await channel.inspect_queue(QUEUE))[0] >= left
                        assert running.acked == len(first)
                        await asyncio.sleep(0.05)
                finally:
                    await asyncio.to_thread(postgres.start)
                await running.has_acked(MESSAGES, within=WITHIN)
        assert await is_empty(vhost.url)
        found = await found_in(store, expected())
    assert found.sound, found
    assert not found.doubled
    (away,) = [each for each in said if each["event"] == "collector.store_away"]
    assert away["error"]
    assert "database runs" in away["remedy"]
    assert [each for each in said if each["event"] == "collector.store_back"]


DELIVERY_LIMIT = 3


async def has_said(said: Sequence[MutableMapping[str, Any]], event: str) -> None:
    await eventually_async(
        lambda: any(each["event"] == event for each in said), what=f"{event} in the log"
    )


async def test_messages_do_not_wear_out_however_often_a_collector_starts_without_its_store(
    vhost: Vhost, postgres: PrivatePostgres, database: str
) -> None:
    await declare(vhost.url, QUEUE, "quorum", **{"x-delivery-limit": DELIVERY_LIMIT})
    async with letter_store(database) as store:
        await asyncio.to_thread(postgres.stop)
        try:
            await publish(vhost.url, dead_messages(expected(5)))
            for _ in range(DELIVERY_LIMIT + 2):
                with structlog.testing.capture_logs() as said:
                    async with collecting(vhost.url, store.letters, limits=LIMITS):
                        await has_said(said, "collector.store_away")
        finally:
            await asyncio.to_thread(postgres.start)
        async with collecting(vhost.url, store.letters, limits=LIMITS):
            await has_all(store, expected(5), within=WITHIN)
        found = await found_in(store, expected(5))
    assert found.sound, found
    assert not found.doubled


async def test_what_is_held_goes_back_when_the_store_stays_away(
    vhost: Vhost, postgres: PrivatePostgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "PATIENCE", 0.5)
    await declare(vhost.url, QUEUE, "quorum", **{"x-delivery-limit": DELIVERY_LIMIT})
    async with (
        letter_store(database) as store,
        collecting(vhost.url, store.letters, limits=LIMITS),
        channel_to(vhost.url) as channel,
    ):
        await publish(vhost.url, dead_messages(expected(5)))
        await has_all(store, expected(5), within=WITHIN)
        await asyncio.to_thread(postgres.stop)
        try:
            await publish(vhost.url, dead_messages(["late 1", "late 2"]))

            async def is_left() -> bool:
                return await channel.inspect_queue(QUEUE) == (2, 0)

            await eventually_async(is_left, what="both back in the queue, and no consumer")
        finally:
            await asyncio.to_thread(postgres.start)
        await has_all(store, ["late 1", "late 2"], within=WITHIN)


# In doubt


class Commits:
    """Counts the commits that pass a proxy, and loses some of them or their answers."""

    def __init__(self, way: Proxy, *, answer: bool, every: int) -> None:
        self.lost = 0
        self._answer = answer
        self._every = every
        self._seen = 0
        self._doomed: set[int] = set()
        way.hook = self.watch

    def watch(self, connection: ProxyConnection, direction: Direction, data: bytes) -> bytes | None:
        if direction is Direction.SENT and b"COMMIT" in data:
            self._seen += 1
            if self._seen % self._every == 0:
                self._doomed.add(connection.number)
                if not self._answer:
                    return self._lose(connection)
        elif direction is Direction.RECEIVED and connection.number in self._doomed:
            return self._lose(connection)
        return None

    def _lose(self, connection: ProxyConnection) -> bytes:
        self.lost += 1
        connection.cut()
        return b""


@pytest.mark.parametrize("answer", [True, False], ids=["answer lost", "commit lost"])
async def test_a_commit_in_doubt_is_looked_up_and_not_repeated(
    vhost: Vhost, proxy: NewProxy, postgres: PrivatePostgres, database: str, answer: bool
) -> None:
    await declare(vhost.url, QUEUE, "quorum")
    await publish(vhost.url, dead_messages(expected()))
    way = await proxy("127.0.0.1", postgres.port)
    async with letter_store(database) as direct, letter_store(way.through(database)) as store:
        commits = Commits(way, answer=answer, every=3)
        async with collecting(vhost.url, store.letters, limits=LIMITS) as running:
            await running.has_acked(MESSAGES, within=WITHIN)
        way.hook = None
        assert running.acked == MESSAGES
        found = await found_in(direct, expected())
    assert commits.lost
    assert found.sound, found
    assert not found.doubled


async def test_a_commit_that_is_still_under_way_when_it_is_tried_again_is_waited_for(
    vhost: Vhost, proxy: NewProxy, postgres: PrivatePostgres, database: str
) -> None:
    """Its rows cannot be seen yet, and their ids are taken: that is no refusal."""
    await declare(vhost.url, QUEUE, "quorum")
    await publish(vhost.url, dead_messages(expected(100)))
    way = await proxy("127.0.0.1", postgres.port)
    async with letter_store(database) as direct, letter_store(way.through(database)) as store:
        async with direct.database.writing() as connection:
            await connection.execute(
                text(
                    "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS"
                    " $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$"
                )
            )
            await connection.execute(
                text(
                    "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON redrive_letter"
                    " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
                    " WHEN (NEW.message_id = 'm0') EXECUTE FUNCTION slowly()"
                )
            )
        cuts: list[int] = []

        def cut_after_commit(
            connection: ProxyConnection, direction: Direction, data: bytes
        ) -> None:
            if direction is Direction.SENT and b"COMMIT" in data and not cuts:
                cuts.append(connection.number)
                # In a moment, when it is forwarded and the database is at it.
                asyncio.get_running_loop().call_later(0.1, connection.cut)

        way.hook = cut_after_commit
        async with collecting(vhost.url, store.letters, limits=LIMITS) as running:
            await running.has_acked(100, within=WITHIN)
        way.hook = None
        found = await found_in(direct, expected(100))
        unknown = [each for each in await kinds(direct) if each == "UNKNOWN"]
    assert cuts
    assert running.collectors[0].counts.held == 0
    assert found.sound, found
    assert not found.doubled
    # Half of the shapes have neither a death nor a word: understood, and not only kept as bytes.
    assert len(unknown) == 75


async def kinds(store: Store) -> Sequence[str]:
    async with store.database.reading() as connection:
        return (
            (await connection.execute(text("SELECT error_type FROM redrive_letter")))
            .scalars()
            .all()
        )


class DyingOnce:
    """The letters of a store whose database is killed just before a bare letter is stored."""

    def __init__(self, store: Store, postgres: PrivatePostgres) -> None:
        self._letters = store.letters
        self._postgres = postgres
        self.died = False
        self.writers = store.letters.writers

    async def add(self, arrivals: Sequence[Arrival], *, again: bool = False) -> list[Collected]:
        if "refused" in arrivals[0].letter.error_reason and not self.died:
            self.died = True
            self._postgres.kill()
            threading.Thread(target=self._postgres.restart).start()
        return await self._letters.add(arrivals, again=again)

    async def prove_writable(self, room: int = 0) -> None:
        await self._letters.prove_writable(room)


async def test_a_database_that_is_lost_while_it_refuses_a_letter_does_not_end_the_collector(
    vhost: Vhost, postgres: PrivatePostgres, database: str
) -> None:
    await declare(vhost.url, QUEUE, "quorum")
    async with letter_store(database) as store:
        await refuse(store, "error_type = 'NOT_THIS'")
        letters = DyingOnce(store, postgres)
        plain = dead_message("m5")
        put = {"redrive-error-type": fields.longstr("NOT_THIS")}
        refused = Properties.read(plain.properties).with_headers(put).raw
        await publish(
            vhost.url,
            [
                Publish("", QUEUE, refused, plain.body) if each == "m5" else dead_message(each)
                for each in expected(20)
            ],
        )
        async with collecting(vhost.url, letters, limits=LIMITS) as running:
            await running.has_acked(20)
        found = await found_in(store, expected(20))
    assert letters.died
    assert found.sound, found
    assert not found.doubled


class LeavingAmid:
    """The letters of a store that refuses batches, and whose database stops amid what is stored one
    by one."""

    def __init__(self, store: Store, postgres: PrivatePostgres) -> None:
        self._letters = store.letters
        self._postgres = postgres
        self.stored = 0
        self.left = False
        self.writers = 1

    async def add(self, arrivals: Sequence[Arrival], *, again: bool = False) -> list[Collected]:
        if len(arrivals) > 1:
            raise StoreRefused("one of them")
        if self.stored == 3 and not self.left:
            self.left = True
            await asyncio.to_thread(self._postgres.stop)
        kept = await self._letters.add(arrivals, again=again)
        self.stored += 1
        return kept

    async def prove_writable(self, room: int = 0) -> None:
        await self._letters.prove_writable(room)


async def test_what_is_left_of_a_refused_batch_goes_back_when_the_store_goes_away_amid_it(
    vhost: Vhost, postgres: PrivatePostgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "PATIENCE", 0.5)
    await declare(vhost.url, QUEUE, "quorum")
    async with letter_store(database) as store:
        letters = LeavingAmid(store, postgres)
        await publish(vhost.url, dead_messages(expected(10)))
        async with (
            collecting(vhost.url, letters, limits=LIMITS) as running,
            channel_to(vhost.url) as channel,
        ):
            await eventually_async(lambda: letters.left, what="the end of the database")
            try:

                async def is_left() -> bool:
                    return await channel.inspect_queue(QUEUE) == (7, 0)

                await eventually_async(is_left, what="the others back, and no consumer")
                assert running.acked == 3  # those that were stored before
            finally:
                await asyncio.to_thread(postgres.start)
            await running.has_acked(10, within=WITHIN)
        found = await found_in(store, expected(10))
    assert found.sound, found
    assert not found.doubled


# Both away


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_a_broker_that_is_lost_at_any_step_of_storing_loses_nothing(
    request: pytest.FixtureRequest, vhost: Vhost, proxy: NewProxy, tmp_path: Path, engine: str
) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db"
    if engine == "postgresql":
        url = request.getfixturevalue("database")
    await declare(vhost.url, QUEUE, "classic")
    way = await proxy("127.0.0.1", vhost.node.port)
    sent: list[str] = []
    async with letter_store(url) as store:
        async with collecting(way.through(vhost.url), store.letters, limits=LIMITS) as running:
            for number, step in enumerate(list(Step) * scale.faults(20, quick=1)):
                trap = Trap(step, PREFETCH, way.cut)
                more = [f"m{number}-{each}" for each in range(2 * PREFETCH)]
                sent += more
                with trap.set():
                    await publish(vhost.url, dead_messages(more))
                    await eventually_async(lambda: trap.sprung, within=WITHIN)  # noqa: B023
                await has_all(store, sent, within=WITHIN)
            sent += await has_emptied(vhost.url, store, [QUEUE], within=WITHIN)
        assert running.collectors[0].counts.sessions > number
        found = await found_in(store, sent)
    assert found.sound, found
    assert found.doubled, "what was committed and could not be acked comes again"
    assert await is_empty(vhost.url)


async def waits_for_a_lock(database: str) -> None:
    """Until somebody's query waits for what somebody else has locked."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as looking:

        async def waits() -> bool:
            found = await looking.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            return await found.fetchone() != (0,)

        await eventually_async(waits, what="a query that waits")


async def test_a_broker_that_is_lost_amid_a_query_is_not_taken_for_a_store_that_is_away(
    vhost: Vhost, postgres: PrivatePostgres, database: str, proxy: NewProxy
) -> None:
    await declare(vhost.url, QUEUE, "quorum")
    way = await proxy("127.0.0.1", vhost.node.port)
    to_store = await proxy("127.0.0.1", postgres.port)
    async with letter_store(to_store.through(database)) as store:
        with structlog.testing.capture_logs() as said:
            async with collecting(way.through(vhost.url), store.letters) as running:
                async with await psycopg.AsyncConnection.connect(database) as holding:
                    await holding.execute("LOCK TABLE redrive_letter IN SHARE MODE")
                    await publish(vhost.url, [dead_message("m0")])
                    await waits_for_a_lock(database)
                    to_store.half_open()  # so that a request to cancel does not arrive either
                    way.cut()
                    await has_said(said, "collector.lost")
                to_store.flow()
                await running.has_acked(1)
        found = await found_in(store, ["m0"])
    assert found.sound, found
    assert [each["event"] for each in said if "store" in each["event"]] == []


# Full


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MB that can grow."""
    with small_disk(tmp_path / "disk", megabytes=3) as mounted:
        yield mounted


async def test_on_a_full_disk_messages_stay_in_the_broker_until_there_is_room(
    vhost: Vhost, disk: Path
) -> None:
    names = expected(100)
    large = [dead_message(each, number) for number, each in enumerate(names)]
    messages = [Publish("", QUEUE, each.properties, each.body + bytes(100_000)) for each in large]
    await declare(vhost.url, QUEUE, "quorum")
    async with letter_store(f"sqlite:///{disk}/redrive.db") as store:
        with structlog.testing.capture_logs() as said:
            limits = Limits(prefetch=10)
            async with collecting(vhost.url, store.letters, limits=limits) as running:
                await publish(vhost.url, messages)
                await eventually_async(
                    lambda: [each for each in said if each["event"] == "collector.store_away"],
                    within=WITHIN,
                )
                acked = running.acked
                assert acked < len(names)
                assert (await store.books.audit()).exact
                async with channel_to(vhost.url) as channel:
                    assert (await channel.inspect_queue(QUEUE))[0] >= len(names) - acked - 10
                await asyncio.to_thread(grow, disk, megabytes=64)
                await running.has_acked(len(names), within=WITHIN)
        found = await found_in(store, names)
    assert found.sound, found
    assert not found.doubled
    away = next(each for each in said if each["event"] == "collector.store_away")
    assert "full" in away["error"]
    assert "make room" in away["remedy"]


class Proofs:
    """The letters of a store, of which somebody may want a proof that it can be written."""

    def __init__(self, store: Store) -> None:
        self._letters = store.letters
        self.asked = 0
        self.writers = store.letters.writers

    async def add(self, arrivals: Sequence[Arrival], *, again: bool = False) -> list[Collected]:
        return await self._letters.add(arrivals, again=again)

    async def prove_writable(self, room: int = 0) -> None:
        self.asked += 1
        await self._letters.prove_writable(room)


async def test_a_disk_with_room_for_little_wears_no_message_out(
    vhost: Vhost, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proof that fits where the messages do not would have them taken and returned for ever."""
    monkeypatch.setattr(keeper, "PATIENCE", 0.5)
    names = expected(20)
    large = [dead_message(each, number) for number, each in enumerate(names)]
    messages = [Publish("", QUEUE, each.properties, each.body + bytes(200_000)) for each in large]
    await declare(vhost.url, QUEUE, "quorum", **{"x-delivery-limit": 2})
    async with letter_store(f"sqlite:///{disk}/redrive.db") as store:
        await publish(vhost.url, messages)
        proofs = Proofs(store)
        with structlog.testing.capture_logs() as said:
            async with (
                collecting(vhost.url, proofs, limits=Limits(prefetch=50)) as running,
                channel_to(vhost.url) as channel,
            ):
                await has_said(said, "collector.store_away")

                async def is_left() -> bool:
                    there = len(names) - running.acked
                    return await channel.inspect_queue(QUEUE) == (there, 0)

                await eventually_async(is_left, what="the rest in the queue, and no consumer")
                before = proofs.asked
                await eventually_async(lambda: proofs.asked > before + 5)
                assert await is_left()
                assert not [each for each in said if each["event"] == "collector.store_back"]
                await asyncio.to_thread(grow, disk, megabytes=64)
                await has_all(store, names, within=WITHIN)
        found = await found_in(store, names)
    assert found.sound, found
    assert not found.doubled


class NotYet:
    """The letters of a store that does not take one message until it is told."""

    def __init__(self, store: Store, message_id: str) -> None:
        self._letters = store.letters
        self._message_id = message_id
        self.refused = asyncio.Event()
        self.told = False
        self.writers = store.letters.writers

    async def add(self, arrivals: Sequence[Arrival], *, again: bool = False) -> list[Collected]:
        if not self.told and any(
            arrival.letter.message_id == self._message_id for arrival in arrivals
        ):
            self.refused.set()
            raise StoreUnreachable("a statement takes too long")
        return await self._letters.add(arrivals, again=again)

    async def prove_writable(self, room: int = 0) -> None:
        await self._letters.prove_writable(room)


async def test_a_batch_that_fails_while_others_are_stored_is_told_of_once(
    vhost: Vhost, database: str
) -> None:
    await declare(vhost.url, QUEUE, "quorum")
    async with letter_store(database) as store:
        letters = NotYet(store, "first")
        with structlog.testing.capture_logs() as said:
            async with collecting(vhost.url, letters) as running:
                await publish(vhost.url, [dead_message("first")])
                await letters.refused.wait()
                for number in range(3):
                    await publish(vhost.url, [dead_message(f"later-{number}")])
                    await running.has_acked(number + 1)
                letters.told = True
                await running.has_acked(4)
    events = [each["event"] for each in said if each["event"].startswith("collector.store_")]
    assert events == ["collector.store_away", "collector.store_back"]


async def test_however_many_queues_are_collected_others_can_use_the_store(database: str) -> None:
    async with letter_store(database) as store:
        async with await psycopg.AsyncConnection.connect(database) as holding:
            await holding.execute("LOCK TABLE redrive_letter IN SHARE MODE")
            adding = [asyncio.create_task(store.letters.add([failed("late")])) for _ in range(30)]
            await asyncio.sleep(0)
            async with asyncio.timeout(90):
                assert await store.letters.get("01a1e000-0000-7000-8000-000000000000") is None
        await asyncio.gather(*adding)
        assert (await store.books.ledger()).received == 30
