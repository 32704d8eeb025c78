"""The Mover on a real broker: what it moves, gives back, parks, and survives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs

from redrive.amqp import (
    Budget,
    Connection,
    Delivery,
    Properties,
    Publish,
    Refused,
    Returned,
    fields,
)
from redrive.amqp import consumer as consumer_module
from redrive.amqp.lane import Connect
from redrive.domain import headers
from redrive.work import mover as mover_module
from redrive.work.mover import Instruction, Limits, Park, Stay
from tests.services.eventually import DEADLINE, eventually_async
from tests.services.frameparser import ACK, DELIVER, PUBLISH, Frames, Message, Method
from tests.services.moving import (
    PARKED,
    SOURCE,
    TARGET,
    Kind,
    MoveTo,
    as_published,
    channel_to,
    connector,
    declare,
    holds,
    identities,
    identity,
    lay_out,
    message,
    moving,
    publish,
    ready,
    take_all,
)
from tests.services.plugin import NewProxy, OwnNode, Vhost
from tests.services.proxy import Direction, ProxyConnection

both_kinds = pytest.mark.parametrize("kind", ["classic", "quorum"])


def numbered(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def as_user(url: str, name: str) -> str:
    """The same URL for another user, whose password is its name."""
    return url.replace("guest:guest", f"{name}:{name}")


@contextmanager
def user_who_may_write(vhost: Vhost, name: str, write: str) -> Iterator[str]:
    """A user who reads everything and writes to what the pattern matches; its URL."""
    node = vhost.node
    node.api("PUT", f"users/{name}", {"password": name, "tags": ""})
    permissions = {"configure": "", "write": write, "read": ".*"}
    node.api("PUT", f"permissions/{quote(vhost.name)}/{name}", permissions)
    try:
        yield as_user(vhost.url, name)
    finally:
        node.api("DELETE", f"users/{name}")


# -- what goes through ----------------------------------------------------------------------------


@both_kinds
async def test_messages_move_in_the_order_of_their_arrival(vhost: Vhost, kind: Kind) -> None:
    await lay_out(vhost.url, kind)
    await publish(vhost.url, map(message, numbered(1000)))
    async with moving(vhost.url, MoveTo()) as running:
        await holds(vhost.url, TARGET, 1000)
    assert identities(await take_all(vhost.url, TARGET)) == numbered(1000)
    assert await ready(vhost.url, SOURCE) == 0
    assert (running.moved, running.sessions) == (1000, 1)


class Timeline:
    """Watches both connections of a Mover, and that each ack comes after the confirm."""

    def __init__(self) -> None:
        self.delivered: list[Message] = []
        self.published: list[Message] = []
        self.confirmed: set[int] = set()
        self.acked: set[int] = set()
        self.early: list[int] = []
        self._frames: dict[tuple[int, Direction], Frames] = {}

    def watch(self, connection: ProxyConnection, direction: Direction, data: bytes) -> None:
        frames = self._frames.setdefault((connection.number, direction), Frames())
        for seen in frames.feed(data):
            self._note(direction, seen)

    def _note(self, direction: Direction, seen: Method | Message) -> None:
        if isinstance(seen, Message):
            notes = self.delivered if seen.method.name == DELIVER else self.published
            assert seen.method.name in (DELIVER, PUBLISH)
            notes.append(seen)
        elif seen.name == ACK:
            done = self.confirmed if direction is Direction.RECEIVED else self.acked
            tag, multiple = int.from_bytes(seen.arguments[:8]), seen.arguments[8] & 1
            tags = set(range(1, tag + 1)) - done if multiple else {tag}
            if direction is Direction.SENT:
                self.early += tags - self.confirmed
            done |= tags


@both_kinds
async def test_a_delivery_is_acked_only_after_its_copy_was_confirmed(
    vhost: Vhost, proxy: NewProxy, kind: Kind
) -> None:
    await lay_out(vhost.url, kind)
    way = await proxy("127.0.0.1", vhost.node.port)
    timeline = Timeline()
    way.hook = timeline.watch
    await publish(vhost.url, map(message, numbered(2000)))
    async with moving(way.through(vhost.url), MoveTo(), limits=Limits(prefetch=100)):
        await holds(vhost.url, TARGET, 2000)
    # one session in order: the n-th delivery is the n-th publish
    assert [each.digest for each in timeline.delivered] == [
        each.digest for each in timeline.published
    ]
    assert timeline.acked == timeline.confirmed == set(range(1, 2001))
    assert timeline.early == []


@both_kinds
async def test_stop_finishes_what_is_in_flight_and_leaves_nothing_unacked(
    vhost: Vhost, kind: Kind
) -> None:
    await lay_out(vhost.url, kind)
    await publish(vhost.url, map(message, numbered(5000)))
    async with moving(vhost.url, MoveTo(), limits=Limits(prefetch=200)) as running:
        await eventually_async(lambda: running.moved > 500)
    moved = identities(await take_all(vhost.url, TARGET))
    left = identities(await take_all(vhost.url, SOURCE))
    assert len(moved) == running.moved
    assert sorted(moved + left, key=int) == numbered(5000), "each is in one place, and once"


# -- second thoughts ------------------------------------------------------------------------------


@both_kinds
async def test_the_plan_is_asked_again_about_a_message_that_no_queue_took(
    vhost: Vhost, kind: Kind
) -> None:
    class OneAstray(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            copy = self.copy_of(delivery, user)
            if identity(delivery) == "5":
                copy.routing_key = "no-such-queue"
            return copy

        async def reconsider(
            self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
        ) -> Instruction:
            assert sent.routing_key == "no-such-queue"
            await super().reconsider(delivery, sent, outcome)
            return Publish("", TARGET, sent.properties, sent.body)

    await lay_out(vhost.url, kind)
    await publish(vhost.url, map(message, numbered(10)))
    plan = OneAstray()
    async with moving(vhost.url, plan):
        await holds(vhost.url, TARGET, 10)
    assert sorted(identities(await take_all(vhost.url, TARGET)), key=int) == numbered(10)
    ((delivery, outcome),) = plan.reconsidered
    assert (identity(delivery), outcome) == ("5", Returned(312, "NO_ROUTE"))


@both_kinds
async def test_the_plan_is_asked_again_about_a_message_that_a_full_queue_refused(
    vhost: Vhost, kind: Kind
) -> None:
    await lay_out(vhost.url, kind)
    await declare(vhost.url, "full", kind, x_max_length=3, x_overflow="reject-publish")
    await publish(vhost.url, map(message, numbered(100)))
    plan = MoveTo("full", second_thought=Park("the queue is full"))
    async with moving(vhost.url, plan, limits=Limits(prefetch=2)) as running:
        await eventually_async(lambda: running.settled == 100)
    await holds(vhost.url, PARKED, running.mover.counts.parked)
    taken = identities(await take_all(vhost.url, "full"))
    parked = identities(await take_all(vhost.url, PARKED))
    assert {outcome for _, outcome in plan.reconsidered} == {Refused()}
    assert [identity(delivery) for delivery, _ in plan.reconsidered] == parked
    assert len(taken) >= 3
    assert sorted(taken + parked, key=int) == numbered(100), "each is in one place, and once"


@both_kinds
async def test_a_message_that_stays_is_given_back_and_remains_in_its_queue(
    vhost: Vhost, kind: Kind
) -> None:
    class OneStays(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            if identity(delivery) == "3":
                return Stay("not today", wait=timedelta(milliseconds=5))
            return super().decide(delivery, user)

    await lay_out(vhost.url, kind)
    await publish(vhost.url, map(message, numbered(10)))
    async with moving(vhost.url, OneStays()) as running:
        await eventually_async(lambda: running.mover.counts.stayed >= 3)
        await holds(vhost.url, TARGET, 9)
    assert identities(await take_all(vhost.url, SOURCE)) == ["3"]
    assert identities(await take_all(vhost.url, TARGET)) == [n for n in numbered(10) if n != "3"]


async def test_a_message_that_waits_to_stay_is_given_back_at_once_on_stop(vhost: Vhost) -> None:
    class AllStay(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            self.decided.append(delivery)
            return Stay("not today", wait=timedelta(hours=1))

    await lay_out(vhost.url, "quorum")
    await publish(vhost.url, map(message, numbered(10)))
    plan = AllStay()
    async with moving(vhost.url, plan) as running:
        await eventually_async(lambda: len(plan.decided) == 10)
    assert running.mover.counts.stayed == 10
    assert sorted(identities(await take_all(vhost.url, SOURCE))) == numbered(10)


@both_kinds
async def test_what_was_confirmed_is_moved_once_although_the_publishing_connection_is_lost(
    vhost: Vhost, proxy: NewProxy, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """Acks wait for the first messages, which nobody has settled: lost is none of them. Nor is what
    they make room for taken before the end: it would come a second time, as delivered before."""
    monkeypatch.setattr(consumer_module, "_STRAGGLERS_AFTER", 600.0)
    decided: list[tuple[str, bool]] = []

    class TheFirstStay(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            publishes = super().decide(delivery, user)
            decided.append((identity(delivery), delivery.redelivered))
            if int(identity(delivery)) < 300:
                return Stay("not today", wait=timedelta(hours=1))
            return publishes

    way = await proxy("127.0.0.1", vhost.node.port)
    straight, through = connector(vhost.url), connector(way.through(vhost.url))

    async def connect_by(name: str) -> Connection:
        return await (through if "publish" in name else straight)(name)

    await lay_out(vhost.url, kind)
    await publish(vhost.url, map(message, numbered(700)))
    async with moving(connect_by, TheFirstStay(), limits=Limits(prefetch=600)) as running:
        await eventually_async(lambda: running.moved == 300)
        way.cut()
        await eventually_async(lambda: running.moved == 400)
    stayed = [(each, True) for each in numbered(300)]
    late = [(each, False) for each in numbered(100, first=600)]
    assert sorted(decided[600:]) == sorted([*stayed, *late])
    moved = identities(await take_all(vhost.url, TARGET))
    assert sorted(moved) == sorted(numbered(400, first=300))


# -- parking --------------------------------------------------------------------------------------


@both_kinds
async def test_a_parked_message_reaches_the_dead_letter_queue_as_its_publisher_sent_it(
    vhost: Vhost, kind: Kind
) -> None:
    class ParkAll(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            return Park("all of them")

    # in the order and with the types that no broker rewrites (BROKER_FACTS.md)
    sent = (
        Properties.empty()
        .with_text("content_type", "text/\u00e9")
        .with_headers(
            {
                "a": fields.longstr(b"\xff\xfe not UTF-8"),
                "b": fields.int64(-5),
                "c": fields.array([fields.boolean(True), fields.table({"d": fields.int32(1)})]),
                "z": b"d" + bytes.fromhex("3ff199999999999a"),
            }
        )
        .with_text("message_id", "m")
        .with_text("app_id", "test")
    )
    await lay_out(vhost.url, kind)
    published = Publish("", SOURCE, sent.persistent().raw, bytes(range(256)))
    await publish(vhost.url, [published])
    async with moving(vhost.url, ParkAll()):
        await holds(vhost.url, PARKED, 1)
    (found,) = await take_all(vhost.url, PARKED)
    assert headers.X_DEATH in Properties.read(found.properties).header_names
    assert as_published(found) == as_published(published)
    assert found.body == bytes(range(256))


async def test_what_may_not_be_parked_yet_is_held_and_parked_as_soon_as_it_may_be(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mover_module, "_ASK_AGAIN", timedelta(milliseconds=20))
    answers: list[Stay | None] = [Stay("not now", timedelta(minutes=20))] * 3 + [None]

    async def instead() -> Stay | None:
        return answers.pop(0)

    class ParksLater(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            return Park("why", instead)

    await lay_out(vhost.url, "quorum")
    await publish(vhost.url, [message("m")])
    async with moving(vhost.url, ParksLater()) as running:
        await holds(vhost.url, PARKED, 1)
        assert (running.mover.counts.parked, running.mover.counts.stayed) == (1, 0)
    assert not answers


async def test_why_each_message_may_not_be_parked_is_said_once(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for two that are too large: their reasons differ by their sizes."""
    monkeypatch.setattr(mover_module, "_ASK_AGAIN", timedelta(milliseconds=20))
    reasons = {"a": "it has 131,204 bytes", "b": "it has 140,000 bytes"}
    questions = dict.fromkeys(reasons, 0)

    class ParksLater(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            name = identity(delivery)

            async def instead() -> Stay | None:
                questions[name] += 1
                enough = min(questions.values()) > 5
                return None if enough else Stay(reasons[name], timedelta(minutes=20))

            return Park("why", instead)

    await lay_out(vhost.url, "quorum")
    await publish(vhost.url, map(message, reasons))
    with capture_logs() as logs:
        async with moving(vhost.url, ParksLater()):
            await holds(vhost.url, PARKED, 2)
    said = [line["reason"] for line in logs if line["event"] == "mover.stays"]
    assert sorted(said) == sorted(reasons.values())


async def test_what_may_not_be_parked_is_given_back_in_time_also_where_questions_are_slow(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held for longer than its consumer timeout, the broker closes the channel."""
    monkeypatch.setattr(mover_module, "_ASK_AGAIN", timedelta(milliseconds=20))
    questions = 0
    back: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def instead() -> Stay:
        nonlocal questions
        questions += 1
        await asyncio.sleep(0.2)
        return Stay("not now", timedelta(milliseconds=300))

    class ParksNever(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            if delivery.redelivered and not back.done():
                back.set_result(questions)
            return Park("why", instead)

    await lay_out(vhost.url, "quorum")
    await publish(vhost.url, [message("m")])
    async with moving(vhost.url, ParksNever()):
        assert await asyncio.wait_for(back, DEADLINE) <= 2


@both_kinds
async def test_a_plan_that_raises_parks_that_message_and_the_line_goes_on(
    vhost: Vhost, kind: Kind
) -> None:
    class Stumbles(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            if identity(delivery) == "4":
                raise ZeroDivisionError("a defect of the plan")
            return super().decide(delivery, user)

    await lay_out(vhost.url, kind)
    await publish(vhost.url, map(message, numbered(10)))
    plan = Stumbles()
    async with moving(vhost.url, plan) as running:
        await holds(vhost.url, TARGET, 9)
        await holds(vhost.url, PARKED, 1)
    assert identities(await take_all(vhost.url, PARKED)) == ["4"]
    assert identities(await take_all(vhost.url, TARGET)) == [n for n in numbered(10) if n != "4"]
    ((_, reason),) = plan.poison
    assert "a defect of the plan" in reason
    assert running.sessions == 1


async def test_a_second_thought_that_raises_parks_that_message_and_the_line_goes_on(
    vhost: Vhost,
) -> None:
    class Stumbles(MoveTo):
        async def reconsider(
            self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
        ) -> Instruction:
            raise ZeroDivisionError("a defect of the plan")

        def decide(self, delivery: Delivery, user: str) -> Instruction:
            copy = self.copy_of(delivery, user)
            if identity(delivery) == "4":
                copy.routing_key = "no-such-queue"
            return copy

    await lay_out(vhost.url, "quorum")
    await publish(vhost.url, map(message, numbered(10)))
    async with moving(vhost.url, Stumbles()) as running:
        await holds(vhost.url, TARGET, 9)
        await holds(vhost.url, PARKED, 1)
        await publish(vhost.url, [message("more")])
        await holds(vhost.url, TARGET, 10)
    assert identities(await take_all(vhost.url, PARKED)) == ["4"]
    assert running.sessions == 1


# -- destinations that are not there, or not for us -----------------------------------------------


class SomeElsewhere(MoveTo):
    """Sends every tenth message to an exchange of its own."""

    elsewhere = ""

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        copy = self.copy_of(delivery, user)
        if int(identity(delivery)) % 10 == 7:
            copy.exchange = self.elsewhere
        return copy


@both_kinds
async def test_a_missing_exchange_is_a_return_for_its_messages_and_the_others_go_through(
    vhost: Vhost, kind: Kind
) -> None:
    await lay_out(vhost.url, kind)
    await publish(vhost.url, map(message, numbered(50)))
    plan = SomeElsewhere(second_thought=Park("no such exchange"))
    plan.elsewhere = "no-such-exchange"
    async with moving(vhost.url, plan) as running:
        await holds(vhost.url, PARKED, 5)
        await eventually_async(lambda: running.moved == 45)
    assert {identity(d) for d, _ in plan.reconsidered} == {"7", "17", "27", "37", "47"}
    for _, outcome in plan.reconsidered:
        assert isinstance(outcome, Returned)
        assert outcome.code == 404
        assert "no-such-exchange" in outcome.reason
    moved = set(identities(await take_all(vhost.url, TARGET)))
    parked = identities(await take_all(vhost.url, PARKED))
    assert moved.isdisjoint(parked)
    assert moved.union(parked) == set(numbered(50))
    assert (len(parked), running.sessions) == (5, 1)


@both_kinds
async def test_an_exchange_that_we_may_not_write_to_is_a_return_for_its_messages_only(
    vhost: Vhost, kind: Kind
) -> None:
    await lay_out(vhost.url, kind)
    async with channel_to(vhost.url) as channel:
        for exchange in ("ours", "theirs"):
            await channel.declare_exchange(exchange, "fanout")
            await channel.bind_queue(TARGET, exchange, "")
    await publish(vhost.url, map(message, numbered(50)))
    plan = SomeElsewhere(exchange="ours", second_thought=Park("not for us"))
    plan.elsewhere = "theirs"
    with user_who_may_write(vhost, "limited", "^ours$") as url:
        async with moving(url, plan) as running:
            await holds(vhost.url, PARKED, 5)
            await eventually_async(lambda: running.moved == 45)
    assert {identity(d) for d, _ in plan.reconsidered} == {"7", "17", "27", "37", "47"}
    for _, outcome in plan.reconsidered:
        assert isinstance(outcome, Returned)
        assert outcome.code == 403
        assert "theirs" in outcome.reason
    moved = set(identities(await take_all(vhost.url, TARGET)))
    parked = set(identities(await take_all(vhost.url, PARKED)))
    assert moved.isdisjoint(parked)
    assert moved | parked == set(numbered(50))
    assert running.sessions == 1


# -- queues that come and go ----------------------------------------------------------------------


@both_kinds
async def test_a_mover_whose_queue_is_missing_tries_until_it_appears(
    vhost: Vhost, kind: Kind
) -> None:
    async with moving(vhost.url, MoveTo()) as running:
        await eventually_async(lambda: running.sessions >= 3)
        await lay_out(vhost.url, kind)
        await publish(vhost.url, map(message, numbered(10)))
        await holds(vhost.url, TARGET, 10)
    assert identities(await take_all(vhost.url, TARGET)) == numbered(10)


@both_kinds
async def test_a_mover_whose_queue_is_deleted_begins_anew_when_it_is_back(
    vhost: Vhost, kind: Kind
) -> None:
    await lay_out(vhost.url, kind)
    await publish(vhost.url, map(message, numbered(500)))
    async with moving(vhost.url, MoveTo(), limits=Limits(prefetch=20)) as running:
        await eventually_async(lambda: running.moved > 50)
        async with channel_to(vhost.url) as channel:
            await channel.delete_queue(SOURCE)
        await eventually_async(lambda: running.sessions >= 3)
        async with channel_to(vhost.url) as channel:
            await channel.purge_queue(TARGET)
        await lay_out(vhost.url, kind)
        await publish(vhost.url, map(message, numbered(10, first=1000)))
        await holds(vhost.url, TARGET, 10)
    assert identities(await take_all(vhost.url, TARGET)) == numbered(10, first=1000)


# -- bounds ---------------------------------------------------------------------------------------


def lane_by(url: str, lane_url: str) -> Connect:
    """Connects the Mover's publishing side by another way than its consuming side."""
    source, lane = connector(url), connector(lane_url)

    async def open_connection(name: str) -> Connection:
        return await (lane if name.startswith("redrive publish") else source)(name)

    return open_connection


class WatchedConsumer(consumer_module.Consumer):
    """Remembers the most that was ever unsettled."""

    most = 0

    def deliver(self, deliveries: list[Delivery]) -> bool:
        first = super().deliver(deliveries)
        WatchedConsumer.most = max(WatchedConsumer.most, self.unsettled_bytes)
        return first


async def test_what_stays_for_long_takes_nothing_of_the_budget_and_the_others_go_through(
    vhost: Vhost,
) -> None:
    class LargeOnesStay(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            if len(delivery.body) > 1000:
                return Stay("too large", wait=timedelta(hours=1))
            return super().decide(delivery, user)

    await lay_out(vhost.url, "classic")
    large = [message(n, body=bytes(400_000)) for n in numbered(20)]
    small = [message(f"small {n}") for n in numbered(20)]
    await publish(vhost.url, large + small)
    limits = Limits(prefetch=100, budget=Budget(1_000_000))
    async with moving(vhost.url, LargeOnesStay(), limits=limits):
        await holds(vhost.url, TARGET, 20)
    await holds(vhost.url, SOURCE, 20)


@both_kinds
async def test_the_budget_bounds_what_is_held_while_the_broker_confirms_nothing(
    vhost: Vhost, proxy: NewProxy, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.amqp.channel.Consumer", WatchedConsumer)
    monkeypatch.setattr(WatchedConsumer, "most", 0)
    await lay_out(vhost.url, kind)
    way = await proxy("127.0.0.1", vhost.node.port)
    size, budget = 100_000, 3_000_000
    connect = lane_by(vhost.url, way.through(vhost.url))
    async with moving(
        connect, MoveTo(), limits=Limits(prefetch=1000, budget=Budget(budget))
    ) as running:
        await running.consumes(vhost.url)
        way.half_open()
        await publish(vhost.url, (message(n, body=bytes(size)) for n in numbered(200)))
        await eventually_async(lambda: WatchedConsumer.most > budget)
        assert running.moved == 0
        way.flow()
        await holds(vhost.url, TARGET, 200)
    # one read of the socket may overshoot, by the messages that it completes
    assert WatchedConsumer.most <= budget + 1_000_000
    assert identities(await take_all(vhost.url, TARGET)) == numbered(200)


async def test_stop_ends_in_time_while_the_broker_confirms_nothing_and_nothing_is_lost(
    vhost: Vhost, proxy: NewProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.amqp.supervision._GRACE", 1.0)
    await lay_out(vhost.url, "quorum")
    way = await proxy("127.0.0.1", vhost.node.port)
    connect = lane_by(vhost.url, way.through(vhost.url))
    async with moving(connect, MoveTo()) as running:
        await running.consumes(vhost.url)
        way.half_open()
        await publish(vhost.url, (message(n, body=bytes(100_000)) for n in numbered(50)))
        await eventually_async(lambda: way.open != [] and running.moved == 0)
        await asyncio.wait_for(running.stop(), 8)
    way.flow()
    await holds(vhost.url, SOURCE, 50)
    assert sorted(identities(await take_all(vhost.url, SOURCE)), key=int) == numbered(50)


async def test_stop_ends_in_time_while_an_alarm_blocks_publishers_and_nothing_is_lost(
    own_node: OwnNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.amqp.supervision._GRACE", 1.0)
    node = own_node()
    await lay_out(node.url(), "quorum")
    await publish(node.url(), (message(n, body=bytes(100_000)) for n in numbered(50)))
    await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0.000001")
    lanes: list[Connection] = []

    async def connect(name: str) -> Connection:
        connection = await connector(node.url())(name)
        if name.startswith("redrive publish"):
            lanes.append(connection)
        return connection

    async with moving(connect, MoveTo()) as running:
        await eventually_async(lambda: lanes and lanes[-1].blocked is not None)
        await asyncio.wait_for(running.stop(), 12)
    await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0.4")
    # what was published while blocked may still appear (BROKER_FACTS.md): in doubt, never lost
    await holds(node.url(), SOURCE, 50)
    assert sorted(identities(await take_all(node.url(), SOURCE)), key=int) == numbered(50)
