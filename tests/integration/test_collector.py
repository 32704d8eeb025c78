"""The collector on real brokers and databases: what is dead becomes letters, byte for byte."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path

import pytest
import structlog

from redrive.amqp import Properties, Publish, fields
from redrive.broker.management import Management
from redrive.broker.topology import describe
from redrive.domain.filters import Filters
from redrive.domain.letter import Arrival, Collected, Fate, Kept
from redrive.errors import ManagementError
from redrive.events import Event, Events, LetterCollected
from redrive.roles import serve
from redrive.settings import load
from redrive.settings.sections import TopologySettings
from redrive.store.letters import Letters
from redrive.store.store import Store
from redrive.work import collection
from redrive.work.collection import QueueCollection
from redrive.work.collector import Collector
from redrive.work.mover import Limits
from redrive.work.understand import Understanding
from tests.acceptance.command_line import DRAINS_WITHIN, CommandLine
from tests.faults.test_exactness import Generator
from tests.services import scale
from tests.services.collecting import (
    QUEUE,
    all_kept,
    collecting,
    dead_message,
    dead_messages,
    found_in,
    has_all,
    has_consumers,
    identity_of,
    is_empty,
    refuse,
)
from tests.services.eventually import eventually_async
from tests.services.frameparser import DELIVER, Frames, Message
from tests.services.letters import OWN, died_in, letter_store
from tests.services.moving import (
    Kind,
    as_published,
    channel_to,
    connector,
    declare,
    holds,
    identities,
    publish,
    ready,
    take_all,
)
from tests.services.plugin import NewProxy, Vhost
from tests.services.proxy import Direction, ProxyConnection
from tests.services.retrying import declare_topology, handling, never, topology

S = fields.longstr
KINDS: list[Kind] = ["classic", "quorum"]
SHAPED = scale.messages(100_000)
WITHIN = scale.seconds(1800, quick=60)
LARGE = 15 * 1024 * 1024


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/redrive.db"
    else:
        url = request.getfixturevalue("database")
    async with letter_store(url) as opened:
        yield opened


@asynccontextmanager
async def stores(url: str, count: int) -> AsyncIterator[list[Store]]:
    """As many processes have it: each its own connections."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(letter_store(url)) for _ in range(count)]


# One message


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_consumer_rejects_becomes_a_letter_with_every_byte(
    vhost: Vhost, tmp_path: Path, kind: Kind
) -> None:
    dead_letters = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": QUEUE}
    await declare(vhost.url, QUEUE, kind)
    await declare(vhost.url, "orders", kind, **dead_letters)
    section = (
        Properties.empty()
        .with_text("message_id", "m-1")
        .with_text("content_type", "application/json")
        .with_headers(  # in order, since the broker sorts them
            {"n": b"s\x00\x07", "nested": fields.array([b"V"]), "tenant": S(b"\xff\x00")}
        )
        .persistent()
    )
    sent = Publish("", "orders", section.raw, b'{"order": 1, "\x00\xff"}')
    happened: list[Event] = []
    events = Events()
    events.listen(happened.append)
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        with structlog.testing.capture_logs() as said:
            async with (
                collecting(vhost.url, store.letters, events=events) as running,
                handling(vhost.url, "orders", never),
            ):
                await publish(vhost.url, [sent])
                await running.has_acked(1)
        (kept,) = await all_kept(store)
        assert (await store.books.audit()).exact
    letter, envelope = kept.letter, kept.envelope
    assert envelope.body == sent.body
    assert as_published(Publish("", "", envelope.properties, b"")) == as_published(sent)
    assert (letter.queue, letter.exchange, letter.routing_key) == ("orders", "", "orders")
    assert (letter.message_id, letter.error_type) == ("m-1", "REJECTED")
    assert letter.collected_from == QUEUE
    assert await is_empty(vhost.url)
    (line,) = [each for each in said if each["event"] == "letter.collected"]
    assert (line["letter"], line["queue"], line["origin"]) == (letter.id, QUEUE, "orders")
    assert (line["fate"], line["error_type"], line["group"]) == (
        "new",
        "REJECTED",
        letter.fingerprint,
    )
    assert happened == [LetterCollected(Fate.NEW, letter)]


# Many, of every shape


class Shapes:
    """Messages of mixed shapes, from a seed. Of twins every byte is equal."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._any = Generator(seed)

    def messages(self, count: int, large: int) -> Iterator[Publish]:
        chosen = set(self.random.sample(range(count), large))
        made = 0
        while made < count:
            body = self.random.randbytes(LARGE) if made in chosen else self._body()
            queue = self.random.choice((QUEUE, "origin"))
            each = Publish("", queue, self._section(made), body)
            twins = self.random.choice((2, 3)) if self.random.random() < 0.1 else 1
            for _ in range(min(twins, count - made)):
                yield each
                made += 1

    def _body(self) -> bytes:
        size = int(65_537 ** self.random.random()) - 1
        if self.random.random() < 0.5:
            return self.random.randbytes(size)
        return b'{"order": %d, "text": "%s"}' % (size, b"x" * size) if size else b""

    def _section(self, number: int) -> bytes:
        if self.random.random() < 0.2:
            return self._any.properties(number)
        if self.random.random() < 0.1:
            return b"\x00\x00"
        section = Properties.empty().with_headers(self._headers(number)).persistent()
        if self.random.random() < 0.8:  # some ids many times
            id_ = number if self.random.random() < 0.7 else number % 7
            section = section.with_text("message_id", f"m-{id_}")
        return section.raw

    def _headers(self, number: int) -> dict[str, bytes]:
        reason = S(f"no answer from 10.0.0.{number % 250} within {number} ms")
        stack = S(f"shop.Timeout: late\n\tat shop.Orders.handle(Orders.java:{number % 9})")
        shapes: list[dict[str, bytes]] = [
            {},
            died_in("orders", at=number),
            {"redrive-error-type": S("TIMEOUT"), "redrive-error-reason": reason},
            {"x-exception-message": reason, "x-exception-stacktrace": stack},
            {"MT-Fault-ExceptionType": S("System.TimeoutException"), "MT-Fault-Message": reason},
            {"NServiceBus.ExceptionInfo.Message": reason, "NServiceBus.FailedQ": S("orders@host")},
            {"task": S("shop.tasks.order"), "id": S(f"{number}"), "lang": S("py")},
            {"x-death": S("no array"), "redrive-deaths": b"V", "redrive-attempt": S("many")},
            {"redrive-error-reason": S(b"\x00\xff\xed\xa0\x80"), "redrive-tags": S("a,\x00b")},
        ]
        return self.random.choice(shapes)


class Delivered:
    """What the broker delivered, as it passed the proxy: a second opinion on what came."""

    def __init__(self) -> None:
        self.messages: Counter[tuple[bytes, bytes, bool, bytes, bytes]] = Counter()
        self._frames: dict[int, Frames] = {}

    def watch(self, connection: ProxyConnection, direction: Direction, data: bytes) -> None:
        if direction is Direction.SENT:
            return
        for seen in self._frames.setdefault(connection.number, Frames()).feed(data):
            if isinstance(seen, Message) and seen.method.name == DELIVER:
                names = (seen.exchange, seen.routing_key, seen.redelivered)
                self.messages[(*names, seen.properties, seen.digest)] += 1


def as_delivered(kept: Kept) -> tuple[bytes, bytes, bool, bytes, bytes]:
    envelope = kept.envelope
    names = fields.octets(envelope.exchange), fields.octets(envelope.routing_key)
    return (*names, envelope.redelivered, envelope.properties, sha256(envelope.body).digest())


@pytest.mark.soak
@pytest.mark.timeout(WITHIN * 3)
@pytest.mark.parametrize(
    ("store", "kind"), [("sqlite", "quorum"), ("postgresql", "classic")], indirect=["store"]
)
async def test_messages_of_every_shape_are_stored_byte_for_byte(
    vhost: Vhost, store: Store, proxy: NewProxy, kind: Kind
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  # shown when the test fails
    await declare(vhost.url, QUEUE, kind)
    dead_letters = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": QUEUE}
    await declare(vhost.url, "origin", kind, x_message_ttl=0, **dead_letters)
    sent: Counter[bytes] = Counter()

    def messages() -> Iterator[Publish]:
        for each in Shapes(seed).messages(SHAPED, scale.faults(20, quick=1)):
            sent[sha256(each.body).digest()] += 1
            yield each

    way = await proxy("127.0.0.1", vhost.node.port)
    delivered = Delivered()
    way.hook = delivered.watch
    async with collecting(way.through(vhost.url), store.letters) as running:
        await publish(vhost.url, messages())
        await running.has_acked(SHAPED, within=WITHIN)
    assert (running.acked, running.collectors[0].counts.sessions) == (SHAPED, 1)
    assert await is_empty(vhost.url)

    kept: Counter[tuple[bytes, bytes, bool, bytes, bytes]] = Counter()
    bodies: Counter[bytes] = Counter()
    async for each in store.letters.stream(Filters()):
        assert not each.letter.possible_duplicate
        assert each.letter.size == len(each.envelope.body)
        kept[as_delivered(each)] += 1
        bodies[sha256(each.envelope.body).digest()] += 1
    assert kept == delivered.messages
    assert bodies == sent
    audit = await store.books.audit()
    assert audit.exact
    assert audit.ledger.received == SHAPED


# Several at once


@pytest.mark.soak
@pytest.mark.timeout(WITHIN * 3)
async def test_the_books_are_exact_with_four_writers_at_once(vhost: Vhost, database: str) -> None:
    expected = [f"m{number}" for number in range(SHAPED)]
    await declare(vhost.url, QUEUE, "quorum")
    async with stores(database, 4) as opened, AsyncExitStack() as stack:
        writers = [
            await stack.enter_async_context(
                collecting(vhost.url, store.letters, limits=Limits(prefetch=20))
            )
            for store in opened
        ]
        await has_consumers(vhost.url, 4)
        await publish(vhost.url, dead_messages(expected))
        while sum(writer.acked for writer in writers) < SHAPED:
            await opened[0].books.compact()  # as a janitor does meanwhile
            audit = await opened[0].books.audit()
            assert audit.exact, audit
        assert all(writer.acked for writer in writers)
        found = await found_in(opened[0], expected)
        assert found.sound, found
        assert not found.doubled


class SlowAtFirst:
    """The letters of a store whose first batch is stored when it is told."""

    def __init__(self, letters: Letters) -> None:
        self._letters = letters
        self.writers = letters.writers
        self.begun = asyncio.Event()
        self.told = asyncio.Event()

    async def add(self, arrivals: Sequence[Arrival], *, again: bool = False) -> list[Collected]:
        if not self.begun.is_set():
            self.begun.set()
            await self.told.wait()
        return await self._letters.add(arrivals, again=again)

    async def prove_writable(self, room: int = 0) -> None:
        await self._letters.prove_writable(room)


async def test_on_postgresql_a_batch_that_takes_long_does_not_hold_up_the_next(
    vhost: Vhost, database: str
) -> None:
    await declare(vhost.url, QUEUE, "quorum")
    async with letter_store(database) as store:
        letters = SlowAtFirst(store.letters)
        async with collecting(vhost.url, letters):
            await publish(vhost.url, [dead_message("first")])
            await letters.begun.wait()
            await publish(vhost.url, [dead_message("second")])
            await has_all(store, ["second"], within=90)
            letters.told.set()
            await has_all(store, ["first"], within=90)
        assert await ready(vhost.url, QUEUE) == 0
        assert (await store.books.ledger()).received == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_two_collectors_of_one_queue_store_no_message_twice(
    vhost: Vhost, database: str, kind: Kind
) -> None:
    expected = [f"m{number}" for number in range(600)]
    await declare(vhost.url, QUEUE, kind)
    limits = Limits(prefetch=50)
    async with stores(database, 2) as opened:
        async with collecting(vhost.url, opened[0].letters, limits=limits) as stays:
            # One of them ends while it holds deliveries: they go back, and come to the other.
            async with collecting(vhost.url, opened[1].letters, limits=limits) as leaves:
                await has_consumers(vhost.url, 2)
                await publish(vhost.url, dead_messages(expected))
                await leaves.has_acked(1)
            await stays.has_acked(len(expected) - leaves.acked)
        found = await found_in(opened[0], expected)
    assert found.sound, found
    assert not found.doubled
    assert await is_empty(vhost.url)


# Which queues


def made_by(vhost: Vhost, store: Store) -> Callable[[str], Collector]:
    understanding = Understanding(vhost.name, OWN, {"dlq-queue", "redrive-receipts"})

    def make(queue: str) -> Collector:
        return Collector(queue, store.letters, understanding, connect=connector(vhost.url))

    return make


@asynccontextmanager
async def running(role: QueueCollection) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    working = asyncio.create_task(role.run(stopping))
    try:
        yield
    finally:
        stopping.set()
        await asyncio.wait_for(working, 30)


async def collected_from(store: Store, queue: str, identity: str) -> None:
    async def there() -> bool:
        return any(
            (each.letter.collected_from, identity_of(each)) == (queue, identity)
            for each in await all_kept(store)
        )

    await eventually_async(there, what=f"{identity} from {queue}")


async def kinds(vhost: Vhost) -> dict[str, str]:
    api = Management(vhost.management_url, "guest", "guest", vhost.name)
    return {str(queue["name"]): str(queue["type"]) for queue in await api.queues("name", "type")}


async def test_a_glob_finds_queues_made_later_and_never_our_own_waiting_ones(
    vhost: Vhost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_LOOK_EVERY", 0.1)
    settings: TopologySettings = topology("classic")
    await declare_topology(vhost.url, settings)
    await declare(vhost.url, "orders.dlq", "classic")
    own = describe(settings, ()).queue_names()
    waiting = sorted(own - {"dlq-queue"})
    for queue in ("orders.dlq", *waiting):
        if not queue.startswith("queue.delay"):
            await publish(vhost.url, [dead_message("early", queue=queue)])
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        role = QueueCollection(
            ["*"],
            made_by(vhost, store),
            list_queues=lambda: kinds(vhost),
            never=own - {"dlq-queue"},
        )
        async with running(role):
            await collected_from(store, "orders.dlq", "early")
            await declare(vhost.url, "billing.dlq", "classic")
            await publish(vhost.url, [dead_message("late", queue="billing.dlq")])
            await collected_from(store, "billing.dlq", "late")
            await publish(vhost.url, [dead_message("given up", queue="dlq-queue")])
            await collected_from(store, "dlq-queue", "given up")
            async with channel_to(vhost.url) as channel:
                for queue in waiting:
                    assert (await channel.inspect_queue(queue))[1] == 0, queue
                await channel.delete_queue("orders.dlq")
            await eventually_async(lambda: "orders.dlq" not in role._running)
        assert {each.letter.collected_from for each in await all_kept(store)} == {
            "orders.dlq",
            "billing.dlq",
            "dlq-queue",
        }
    assert await ready(vhost.url, "retry-queue") == 1


async def test_a_glob_leaves_alone_what_waits_on_the_ladder_and_beside_handlers(
    vhost: Vhost, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db"
    file = tmp_path / "redrive.toml"
    file.write_text(
        f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "{vhost.management_url}"\n'
        f'[store]\nurl = "{url}"\n[topology]\nqueue_type = "classic"\n'
        '[collector]\nqueues = ["*"]\n'
    )
    settings = load(config=file, environ={"HOME": str(tmp_path)}).settings
    waiting = ("redrive-after-131072000ms", "redrive-again-orders", "redrive-alone-orders")
    for queue in (*waiting, "other.redrive-alone-orders"):
        await declare(vhost.url, queue, "classic")
        await publish(vhost.url, [dead_message("m", queue=queue)])
    stopping = asyncio.Event()
    async with letter_store(url) as store:
        serving = asyncio.create_task(serve(settings, frozenset({"collector"}), stopping))
        try:
            await collected_from(store, "other.redrive-alone-orders", "m")
            async with channel_to(vhost.url) as channel:
                for queue in waiting:
                    assert await channel.inspect_queue(queue) == (1, 0), queue
        finally:
            stopping.set()
            await asyncio.wait_for(serving, 30)
        assert len(await all_kept(store)) == 1


async def test_a_queue_that_is_named_is_collected_once_it_is_there(
    vhost: Vhost, tmp_path: Path
) -> None:
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        role = QueueCollection(["orders.dlq"], made_by(vhost, store), list_queues=None)
        with structlog.testing.capture_logs() as said:
            async with running(role):
                await eventually_async(lambda: [each for each in said if "404" in str(each)])
                await declare(vhost.url, "orders.dlq", "quorum")
                await publish(vhost.url, [dead_message("m", queue="orders.dlq")])
                await collected_from(store, "orders.dlq", "m")
    lost = [each for each in said if each["event"] == "collector.lost"]
    assert len(lost) == 1, "one line for an outage, not one for every try"
    assert lost[0]["remedy"] == (
        "make the queue, or take it off [collector] queues; it is tried again"
    )


async def test_a_stream_is_not_collected_by_a_glob_and_refused_by_its_name(
    vhost: Vhost, tmp_path: Path
) -> None:
    for queue in ("dead.one", "dead.two"):
        await declare(vhost.url, queue, "stream")
    await declare(vhost.url, "dead.three", "quorum")
    await publish(vhost.url, [dead_message("m", queue="dead.three")])
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        queues = ["dead.one", "dead.*"]
        role = QueueCollection(queues, made_by(vhost, store), list_queues=lambda: kinds(vhost))
        with structlog.testing.capture_logs() as said:
            async with running(role):
                await collected_from(store, "dead.three", "m")
                assert set(role._running) == {"dead.three"}
    (told,) = [each for each in said if each["event"] == "collector.stream"]
    assert told["queue"] == "dead.one"
    assert "take it off" in told["remedy"]


async def test_a_management_api_that_hangs_delays_neither_named_queues_nor_the_end(
    vhost: Vhost, tmp_path: Path
) -> None:
    async def hang() -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    await declare(vhost.url, "orders.dlq", "quorum")
    await publish(vhost.url, [dead_message("m", queue="orders.dlq")])
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        role = QueueCollection(["orders.dlq", "*.dead"], made_by(vhost, store), list_queues=hang)
        async with running(role):
            await collected_from(store, "orders.dlq", "m")


async def test_a_stream_that_was_refused_stays_so_while_the_management_api_is_away(
    vhost: Vhost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_LOOK_EVERY", 0.05)
    await declare(vhost.url, "dead.one", "stream")
    looks = 0

    async def once() -> dict[str, str]:
        nonlocal looks
        looks += 1
        if looks > 1:
            raise ManagementError("it is away")
        return await kinds(vhost)

    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        role = QueueCollection(["dead.one"], made_by(vhost, store), list_queues=once)
        async with running(role):
            await eventually_async(lambda: looks > 3)
            assert not role._running


async def test_a_stream_that_is_not_known_as_one_is_told_of(vhost: Vhost, tmp_path: Path) -> None:
    await declare(vhost.url, "dead.one", "stream")
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        role = QueueCollection(["dead.one"], made_by(vhost, store), list_queues=None)
        with structlog.testing.capture_logs() as said:
            async with running(role):
                await eventually_async(
                    lambda: [each for each in said if each["event"] == "collector.ready"]
                )
                await publish(vhost.url, [dead_message("m", queue="dead.one")])
                await collected_from(store, "dead.one", "m")
    assert [each["queue"] for each in said if each["event"] == "collector.stream"] == ["dead.one"]


# Its end


async def test_sigterm_drains_in_time_and_loses_nothing(vhost: Vhost, tmp_path: Path) -> None:
    expected = {f"m{number}" for number in range(5000)}
    redrive = CommandLine(
        tmp_path,
        vhost.url,
        ("100ms",),
        environment={"REDRIVE_BROKER__PREFETCH": "50"},
        more=f'[collector]\nqueues = ["{QUEUE}"]\n',
    )
    redrive.write_settings()
    await declare(vhost.url, QUEUE, "quorum")
    await publish(vhost.url, dead_messages(sorted(expected)))
    process = redrive.start("run", "--roles", "collector")
    try:
        await eventually_async(lambda: redrive.logged("letter.collected"))
        in_time = await asyncio.to_thread(process.terminate, DRAINS_WITHIN)
        assert (in_time, process.exit_code) == (True, 0), redrive.log.read_text()
        assert redrive.logged("run.stopped"), "it has not drained: its last resort has ended it"
    finally:
        process.kill()
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        stored = {identity_of(each) for each in await all_kept(store)}
        found = await found_in(store, stored)
    left: list[str] = []

    async def all_back() -> bool:  # the broker may take a moment to put back what was held
        left.extend(identities(await take_all(vhost.url, QUEUE)))
        return len(left) >= len(expected) - len(stored)

    await eventually_async(all_back, what="what is not stored, back in the queue")
    assert found.sound, found
    assert not found.doubled
    assert stored, "it was stopped before it had begun"
    assert left, "it was stopped after it had done all"
    assert sorted(left) == sorted(expected - stored)


# A store that does not take everything


def with_error(identity: str, error_type: str) -> Publish:
    plain = dead_message(identity, 2)
    section = Properties.read(plain.properties).with_headers({"redrive-error-type": S(error_type)})
    return Publish("", QUEUE, section.raw, plain.body)


async def test_a_letter_that_the_store_refuses_is_stored_with_its_bytes_only(
    vhost: Vhost, store: Store
) -> None:
    expected = [f"m{number}" for number in range(100)]
    await refuse(store, "error_type = 'NOT_THIS'")
    await declare(vhost.url, QUEUE, "quorum")
    refused = with_error("m50", "NOT_THIS")
    await publish(
        vhost.url, [refused if each == "m50" else dead_message(each) for each in expected]
    )
    async with collecting(vhost.url, store.letters) as running:
        await running.has_acked(len(expected))
    assert (await found_in(store, expected)).sound
    (kept,) = [each for each in await all_kept(store) if identity_of(each) == "m50"]
    assert kept.letter.error_type == "UNKNOWN"
    assert "not this one" in kept.letter.error_reason
    assert (kept.envelope.properties, kept.envelope.body) == (refused.properties, refused.body)


async def test_a_message_that_the_store_refuses_whole_stays_and_does_not_stop_the_line(
    vhost: Vhost, store: Store
) -> None:
    expected = [f"m{number}" for number in range(100)]
    refused = f"body of {expected[50]}".encode()
    await refuse(store, f"size = {len(refused) + 1}")
    await declare(vhost.url, QUEUE, "quorum")
    messages = [dead_message(each) for each in expected]
    messages[50] = Publish("", QUEUE, messages[50].properties, refused + b"!")
    with structlog.testing.capture_logs() as said:
        async with collecting(vhost.url, store.letters) as running:
            await publish(vhost.url, messages)
            await running.has_acked(len(expected) - 1)
            await publish(vhost.url, [dead_message("later")])
            await running.has_acked(len(expected))
            counts = running.collectors[0].counts
            await eventually_async(lambda: counts.held == 1, what="the one that is refused")
    rest = {*expected, "later"} - {"m50"}
    found = await found_in(store, rest)
    assert found.sound, found
    await holds(vhost.url, QUEUE, 1)
    assert identities(await take_all(vhost.url, QUEUE)) == ["m50"]
    (line,) = [each for each in said if each["event"] == "collector.held"]
    assert "not this one" in line["error"]
    assert line["remedy"]
