"""The consumer SDK on a real broker, with the retrier running."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
import structlog

from redrive import Consumer, DeadLetter, Message, Queue, RetryAfter
from redrive.amqp import Properties, Publish, fields, parse_addresses
from redrive.amqp.confirms import CONFIRMED
from redrive.broker.own_queues import AGAIN, ALONE
from redrive.broker.topology import describe
from redrive.consumer import serving as serving_module
from redrive.domain import headers
from redrive.domain.deaths import read_deaths
from redrive.errors import BrokerError, NotFound, Unpublishable
from redrive.settings import Settings
from tests.services.collecting import is_empty
from tests.services.consuming import (
    DEAD,
    QUEUE,
    consumed,
    error_of,
    eventually,
    header,
    send,
    serving,
    settings_for,
)
from tests.services.eventually import eventually_async
from tests.services.moving import Kind, channel_to, holds, publish, ready, take_all
from tests.services.plugin import NewProxy, Vhost
from tests.services.retrying import retrying


@dataclass
class Scene:
    """A broker with the topology and a running retrier without any policy."""

    url: str
    settings: Settings

    def consumer(self) -> Consumer:
        return Consumer(settings=self.settings)


@pytest.fixture(params=["classic", "quorum"])
async def scene(vhost: Vhost, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    kind: Kind = request.param
    settings = settings_for(vhost.url, kind)
    async with retrying(vhost.url, settings.topology, {}):
        yield Scene(vhost.url, settings)


async def test_a_failing_message_is_tried_four_times_and_then_dead(scene: Scene) -> None:
    consumer, seen = scene.consumer(), []

    @consumer.handler(QUEUE, retries=3)
    async def settle(message: Message) -> None:
        seen.append(message.retry_count)
        raise ValueError("card blocked")

    async with serving(consumer):
        await consumed_and_sent(scene, "m")
        await holds(scene.url, DEAD, 1)
    assert seen == [0, 1, 2, 3]
    (dead,) = await take_all(scene.url, DEAD)
    assert error_of(dead) == ("ValueError", "card blocked")
    stack = str(header(dead, headers.ERROR_STACK))
    assert 'raise ValueError("card blocked")' in stack
    assert "redrive/consumer" not in stack
    assert header(dead, headers.ATTEMPT) == 3
    assert header(dead, headers.QUEUE) == QUEUE
    assert header(dead, headers.ROUTING_KEY) == QUEUE
    assert len(read_deaths(header(dead, headers.DEATHS))) == 4
    assert dead.body == b"m"


async def consumed_and_sent(scene: Scene, *identities: str, queue: str = QUEUE) -> None:
    await consumed(scene.url, queue)
    await send(scene.url, *identities, queue=queue)


async def test_a_message_that_fails_twice_ends_consumed(scene: Scene) -> None:
    consumer, seen = scene.consumer(), []

    @consumer.handler(QUEUE, retries=3)
    async def settle(message: Message) -> None:
        seen.append((message.retry_count, message.first_failed_at, len(message.deaths)))
        if message.retry_count < 2:
            raise ValueError("not yet")

    async with serving(consumer):
        await consumed_and_sent(scene, "m")
        await eventually(lambda: len(seen) == 3, "three tries")
    assert [(count, deaths) for count, _, deaths in seen] == [(0, 0), (1, 1), (2, 2)]
    assert seen[0][1] is None
    assert seen[1][1] == seen[2][1] is not None
    assert await ready(scene.url, DEAD) == await ready(scene.url, QUEUE) == 0


async def test_immediate_tries_are_made_in_the_process_before_each_retry(scene: Scene) -> None:
    consumer, seen = scene.consumer(), []

    @consumer.handler(QUEUE, retries=1, immediate=2)
    async def settle(message: Message) -> None:
        seen.append(message.retry_count)
        raise ValueError

    async with serving(consumer):
        await consumed_and_sent(scene, "m")
        await holds(scene.url, DEAD, 1)
    assert seen == [0, 0, 0, 1, 1, 1]


async def test_retry_after_delivers_again_at_about_that_time(scene: Scene) -> None:
    consumer = scene.consumer()
    seen: list[tuple[float, int, str, str]] = []
    clock = asyncio.get_running_loop().time

    @consumer.handler(QUEUE, retries=3)
    async def settle(message: Message) -> None:
        seen.append((clock(), message.retry_count, message.exchange, message.routing_key))
        if len(seen) == 1:
            raise RetryAfter("1375ms")
        if len(seen) == 2:
            raise RetryAfter("10ms", counts=False)

    async def in_time() -> bool:
        seen.clear()
        await consumed_and_sent(scene, "m")
        await eventually(lambda: len(seen) == 3, "three tries")
        assert [count for _, count, _, _ in seen] == [0, 1, 1]
        assert {(exchange, key) for _, _, exchange, key in seen} == {("", QUEUE)}
        assert seen[1][0] - seen[0][0] >= 1.3
        return seen[1][0] - seen[0][0] < 3

    async with serving(consumer):
        # A busy machine is late now and then, and not each time.
        await eventually_async(in_time, what="about that time")
    assert await ready(scene.url, DEAD) == 0


async def test_retry_after_beyond_the_limit_is_dead(scene: Scene) -> None:
    consumer = scene.consumer()

    @consumer.handler(QUEUE, retries=1)
    async def settle(message: Message) -> None:
        raise RetryAfter("20ms", "the bank is closed")

    async with serving(consumer):
        await consumed_and_sent(scene, "m")
        await holds(scene.url, DEAD, 1)
    (dead,) = await take_all(scene.url, DEAD)
    assert error_of(dead) == ("RetryAfter", "the bank is closed")
    assert header(dead, headers.NOT_BEFORE) is None


async def test_dead_letter_goes_straight_there_as_one_copy(scene: Scene) -> None:
    consumer, seen = scene.consumer(), []

    @consumer.handler(QUEUE, retries=3, immediate=5)
    async def settle(message: Message) -> None:
        seen.append(message.body)
        raise DeadLetter("the card is blocked", error_type="CARD_BLOCKED")

    async with serving(consumer):
        await consumed_and_sent(scene, "m")
        await holds(scene.url, DEAD, 1)
    assert seen == [b"m"]
    (dead,) = await take_all(scene.url, DEAD)
    assert error_of(dead) == ("CARD_BLOCKED", "the card is blocked")


async def test_a_timeout_counts_as_a_failure(scene: Scene) -> None:
    consumer, seen = scene.consumer(), []

    @consumer.handler(QUEUE, retries=1, timeout="100ms")
    async def settle(message: Message) -> None:
        seen.append(message.retry_count)
        await asyncio.sleep(60)

    async with serving(consumer):
        await consumed_and_sent(scene, "m")
        await holds(scene.url, DEAD, 1)
    assert seen == [0, 1]
    (dead,) = await take_all(scene.url, DEAD)
    assert error_of(dead) == ("TIMEOUT", "not done within 100ms")


async def test_a_sync_handler_runs_in_a_thread_and_fails_alike(scene: Scene) -> None:
    consumer, seen = scene.consumer(), []

    def settle(message: Message) -> None:
        seen.append((message.body, threading.current_thread() is threading.main_thread()))
        if message.body == b"slow":
            ended.wait(10)
        raise ValueError("in a thread")

    ended = threading.Event()
    consumer.handler(QUEUE, retries=1)(settle)
    consumer.handler("slow", retries=1, timeout="200ms")(settle)
    async with serving(consumer):
        await consumed_and_sent(scene, "m")
        await consumed_and_sent(scene, "slow", queue="slow")
        await holds(scene.url, DEAD, 2)
        ended.set()
    assert {main for _, main in seen} == {False}
    dead = {each.body: each for each in await take_all(scene.url, DEAD)}
    assert error_of(dead[b"m"]) == ("ValueError", "in a thread")
    assert "in settle" in str(header(dead[b"m"], headers.ERROR_STACK))
    assert error_of(dead[b"slow"])[0] == "TIMEOUT"


@dataclass
class Settlement:
    payment: str
    amount: float


async def test_a_body_that_does_not_fit_is_dead_with_the_reason(scene: Scene) -> None:
    consumer = scene.consumer()
    seen: list[tuple[Settlement, int]] = []

    @consumer.handler(QUEUE)
    async def settle(settlement: Settlement, message: Message) -> None:
        seen.append((settlement, message.retry_count))

    async with serving(consumer):
        await consumed_and_sent(scene, '{"payment": "p", "amount": 1.5}', '{"payment": "p"}', "no")
        await holds(scene.url, DEAD, 2)
    assert seen == [(Settlement("p", 1.5), 0)]
    reasons = {each.body: error_of(each) for each in await take_all(scene.url, DEAD)}
    assert reasons[b'{"payment": "p"}'] == (
        "BODY_DOES_NOT_FIT",
        "the body does not fit Settlement: amount: Field required",
    )
    assert "Invalid JSON" in str(reasons[b"no"][1])


def replayed(identity: str) -> Publish:
    put = {
        headers.LETTER: fields.longstr("0192"),
        headers.GENERATION: fields.int32(2),
        headers.QUEUE: fields.longstr(QUEUE),
    }
    properties = Properties.empty().with_headers(put).persistent()
    return Publish("", QUEUE, properties.raw, identity.encode())


async def test_a_handled_replay_gives_a_receipt_and_a_failed_one_is_dead_at_once(
    scene: Scene,
) -> None:
    consumer, seen = scene.consumer(), []

    @consumer.handler(QUEUE, retries=3)
    async def settle(message: Message) -> None:
        seen.append((message.body, message.letter))
        if message.body == b"bad":
            raise ValueError("again")

    async with serving(consumer):
        await consumed(scene.url)
        await publish(scene.url, [replayed("good"), replayed("bad")])
        await holds(scene.url, "redrive-receipts", 1)
        await holds(scene.url, DEAD, 1)
    (receipt,) = await take_all(scene.url, "redrive-receipts")
    assert json.loads(receipt.body) == {"letter": "0192", "generation": 2, "queue": QUEUE}
    (dead,) = await take_all(scene.url, DEAD)
    assert (header(dead, headers.LETTER), header(dead, headers.GENERATION)) == ("0192", 2)
    assert sorted(seen) == [(b"bad", "0192"), (b"good", "0192")]


async def test_a_receipt_that_nobody_takes_is_no_reason_to_keep_the_message(scene: Scene) -> None:
    consumer, seen = scene.consumer(), []

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None:
        seen.append(message.body)

    async with channel_to(scene.url) as channel:
        await channel.delete_queue("redrive-receipts")
    async with serving(consumer):
        await consumed(scene.url)
        await publish(scene.url, [replayed("good")])
        await eventually(lambda: seen == [b"good"], "the message")
    assert await ready(scene.url, QUEUE) == await ready(scene.url, DEAD) == 0


async def test_without_a_limit_of_its_own_a_handler_leaves_it_to_the_policy(vhost: Vhost) -> None:
    settings, seen = settings_for(vhost.url, "quorum"), []
    consumer = Consumer(settings=settings)

    @consumer.handler(Queue("orders", exchange="shop", routing_key="order.*"), retries=None)
    async def order(message: Message) -> None:
        seen.append((message.retry_count, message.exchange, message.routing_key))
        raise ValueError("sold out")

    async with retrying(vhost.url, settings.topology, {"order.*": 2}), serving(consumer):
        await consumed(vhost.url, "orders")
        await send(vhost.url, "m", exchange="shop", queue="order.created")
        await holds(vhost.url, DEAD, 1)
    assert seen == [(count, "shop", "order.created") for count in range(3)]
    (dead,) = await take_all(vhost.url, DEAD)
    assert error_of(dead) == ("ValueError", "sold out")
    assert len(read_deaths(header(dead, headers.DEATHS))) == 3


@pytest.mark.parametrize("name", [None, ""], ids=["named by the handler", "named by the broker"])
async def test_a_queue_without_a_name_is_retried_too(scene: Scene, name: str | None) -> None:
    consumer, seen = scene.consumer(), []

    @consumer.handler(Queue(name, exchange="settlement.requested"), retries=1)
    async def settle(message: Message) -> None:
        seen.append((message.queue, message.retry_count))
        raise ValueError

    async with serving(consumer):
        async with channel_to(scene.url) as channel:
            publisher = await channel.publisher()
            plain = Properties.empty().persistent().raw

            async def routed() -> bool:
                try:
                    sent = Publish("settlement.requested", "k", plain, b"m")
                    return await publisher.send(sent) is CONFIRMED
                except BrokerError:
                    return False

            await eventually_async(declared(scene.url, "settlement.requested"), what="the exchange")
            await eventually_async(routed, what="the binding")
        await holds(scene.url, DEAD, 1)
    ((queue, _), _) = seen
    assert [count for _, count in seen] == [0, 1]
    assert queue == "settlement.requested.settle" if name is None else queue.startswith("amq.gen")


def declared(url: str, exchange: str) -> Callable[[], Awaitable[bool]]:
    async def exists() -> bool:
        async with channel_to(url) as channel:
            try:
                await channel.inspect_exchange(exchange)
            except NotFound:
                return False
        return True

    return exists


async def test_a_queue_is_declared_as_the_seed_does(scene: Scene) -> None:
    consumer = scene.consumer()
    dead_letters = "dlq.settlement.requested"

    @consumer.handler(Queue("settlements", dead_letter_exchange=dead_letters, ttl="5m"), retries=0)
    async def settle(message: Message) -> None:
        raise ValueError("no")

    kind = scene.settings.topology.queue_type
    arguments: dict[str, str | int] = {
        "x-queue-type": kind,
        "x-dead-letter-exchange": dead_letters,
        "x-message-ttl": 300_000,
    }
    if kind == "quorum":
        arguments |= {
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
    async with serving(consumer):
        await consumed_and_sent(scene, "m", queue="settlements")
        async with channel_to(scene.url) as channel:  # a broker refuses any other arguments
            await channel.declare_queue("settlements", arguments={**arguments})
        await holds(scene.url, dead_letters, 1)
    (dead,) = await take_all(scene.url, dead_letters)
    assert dead.routing_key == "settlements"


async def test_a_queue_that_exists_is_used_as_it_is(scene: Scene) -> None:
    consumer, seen = scene.consumer(), []
    async with channel_to(scene.url) as channel:
        await channel.declare_queue(QUEUE, arguments={"x-max-length": 7})

    @consumer.handler(QUEUE, retries=1)
    async def settle(message: Message) -> None:
        seen.append(message.retry_count)
        raise ValueError("no")

    async with serving(consumer):
        await consumed_and_sent(scene, "m")
        await holds(scene.url, DEAD, 1)
    assert seen == [0, 1]


async def test_what_cannot_be_published_again_parks_in_the_dead_letter_queue(scene: Scene) -> None:
    consumer, seen = scene.consumer(), []

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None:
        seen.append(message.body)
        if message.body == b"large":
            raise ValueError("no")

    async with serving(consumer):
        await consumed(scene.url)
        await send_large(scene.url, QUEUE)
        await holds(scene.url, DEAD, 1)
        await send(scene.url, "m")
        await eventually(lambda: seen == [b"large", b"m"], "the message behind it")


async def send_large(url: str, queue: str) -> None:
    """A message with headers that fill a frame: it bears none of ours beside them."""
    large = Properties.empty().with_headers({"large": fields.longstr("x" * 130_900)})
    await publish(url, [Publish("", queue, large.persistent().raw, b"large")])


@pytest.mark.parametrize("mark", [AGAIN, ALONE])
async def test_what_cannot_be_published_again_stays_in_a_queue_beside_that_does_not_dead_letter(
    vhost: Vhost, mark: str
) -> None:
    beside = f"{mark}{QUEUE}"
    async with channel_to(vhost.url) as channel:
        await channel.declare_queue(beside)
    consumer, seen = Consumer(settings=settings_for(vhost.url, "classic")), []

    @consumer.handler(QUEUE, retries=0)
    async def settle(message: Message) -> None:
        seen.append(message.body)
        raise ValueError("no")

    with structlog.testing.capture_logs() as logs:
        async with serving(consumer):
            await consumed(vhost.url)
            await send_large(vhost.url, beside)
            await eventually(lambda: "message.stays" in [each["event"] for each in logs], "stays")
    assert seen == [b"large"]
    await holds(vhost.url, beside, 1)
    assert await ready(vhost.url, DEAD) == 0


async def test_a_tier_that_is_missing_makes_a_dead_letter_that_says_so(scene: Scene) -> None:
    consumer = scene.consumer()

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None:
        raise ValueError("card blocked")

    async with channel_to(scene.url) as channel:
        await channel.delete_queue("queue.delay.1")
    async with serving(consumer):
        await consumed_and_sent(scene, "m")
        await holds(scene.url, DEAD, 1)
    (dead,) = await take_all(scene.url, DEAD)
    kind, reason = error_of(dead)
    assert kind == "ValueError"
    assert "is missing (NO_ROUTE) (the failure before: card blocked)" in str(reason)


async def test_a_consumer_that_stops_finishes_what_it_has_begun(scene: Scene) -> None:
    consumer, begun, ended = scene.consumer(), [], []
    may_end = asyncio.Event()

    @consumer.handler(QUEUE, concurrency=4)
    async def settle(message: Message) -> None:
        begun.append(message.body)
        await may_end.wait()
        ended.append(message.body)

    async with serving(consumer):
        await consumed_and_sent(scene, *"abcdefgh")
        await eventually(lambda: len(begun) == 4, "four messages at a time")
        await eventually_async(partial(is_empty, scene.url, QUEUE), what="the others here too")
        assert not ended
        asyncio.get_running_loop().call_later(0.3, may_end.set)  # while it stops
    assert len(ended) == len(begun) == 8
    assert await ready(scene.url, QUEUE) == 0


@dataclass
class Lost:
    """Five messages in hand, and the broker lost; that so many times."""

    vhost: Vhost
    proxy: NewProxy
    times: int
    at_once: list[int] = field(default_factory=list)
    """How many ran when each began, itself among them, after the last time."""

    async def play(self) -> None:
        address = parse_addresses(self.vhost.url)[0]
        between = await self.proxy(address.host, address.port)
        settings = settings_for(between.through(self.vhost.url), "classic")
        consumer, never = Consumer(settings=settings), asyncio.Event()
        begun: list[bytes] = []
        ended: list[bytes] = []
        running = 0

        @consumer.handler(QUEUE, concurrency=10, retries=0)
        async def settle(message: Message) -> None:
            nonlocal running
            running += 1
            begun.append(message.body)
            try:
                if len(begun) <= 5 * self.times:
                    await never.wait()
                self.at_once.append(running)
                await asyncio.sleep(0.1)
                ended.append(message.body)
            finally:
                running -= 1

        async with retrying(self.vhost.url, settings.topology, {}), serving(consumer):
            await consumed(self.vhost.url)
            await send(self.vhost.url, *"abcde")
            for time in range(1, self.times + 1):
                await eventually(partial(has, begun, 5 * time), "five at a time")
                await acks_have_arrived(consumer)
                between.cut()
            await eventually(lambda: len(ended) == 5, "all of them again")
        assert sorted(ended) == [b"a", b"b", b"c", b"d", b"e"]
        assert await ready(self.vhost.url, DEAD) == await ready(self.vhost.url, QUEUE) == 0


async def acks_have_arrived(consumer: Consumer) -> None:
    """A copy may be handled before the message that it is of is acked: until then both are there,
    and both come back."""
    assert consumer._session is not None
    intake = consumer._session._servings[0].intake
    await eventually(lambda: not intake.settling, "nothing is being set aside")
    await asyncio.sleep(0)  # acks are written
    await intake._own.consumer._channel.inspect_queue(QUEUE)  # answered after them


def has(things: list[bytes], count: int) -> bool:
    return len(things) == count


async def test_what_was_in_hand_when_the_broker_was_lost_is_handled_again_among_others(
    vhost: Vhost, proxy: NewProxy
) -> None:
    lost = Lost(vhost, proxy, times=1)
    await lost.play()
    assert max(lost.at_once) > 1


async def test_what_was_in_hand_twice_when_the_broker_was_lost_is_handled_alone(
    vhost: Vhost, proxy: NewProxy
) -> None:
    lost = Lost(vhost, proxy, times=2)
    await lost.play()
    assert set(lost.at_once) == {1}


async def test_what_cannot_be_handled_again_among_others_is_handled_alone(
    vhost: Vhost, proxy: NewProxy
) -> None:
    async with channel_to(vhost.url) as channel:
        await channel.declare_queue(
            f"redrive-again-{QUEUE}",
            arguments={"x-max-length": 0, "x-overflow": "reject-publish"},
        )
    lost = Lost(vhost, proxy, times=1)
    await lost.play()
    assert set(lost.at_once) == {1}


async def test_a_queue_and_the_one_beside_it_are_served_in_turn_by_the_same_workers(
    scene: Scene,
) -> None:
    consumer, seen, may_end = scene.consumer(), [], asyncio.Event()
    most = running = 0

    @consumer.handler(QUEUE, concurrency=2)
    async def settle(message: Message) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        seen.append(message.body.decode())
        await may_end.wait()
        await asyncio.sleep(0.1)  # longer than the broker takes for the next one
        running -= 1

    own, again = [f"own {n}" for n in range(20)], [f"again {n}" for n in range(20)]
    async with serving(consumer):
        await consumed_and_sent(scene, *own)
        await send(scene.url, *again, queue=f"redrive-again-{QUEUE}")
        await eventually(lambda: len(seen) == 2, "two at a time")
        await holds(scene.url, f"redrive-again-{QUEUE}", 18)
        may_end.set()
        await eventually(lambda: len(seen) == 40, "all of them")
    assert sorted(seen) == sorted(own + again)
    assert most == 2
    # Neither waits for the other's end.
    assert 4 <= len([each for each in seen[2:18] if each.startswith("again")]) <= 12


async def test_what_is_put_back_at_the_end_is_there_once_however_slow_the_broker_is(
    vhost: Vhost, proxy: NewProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "_BEGIN_WITHIN", 0.0)
    monkeypatch.setattr(serving_module, "_END_WITHIN", 0.1)
    address = parse_addresses(vhost.url)[0]
    between = await proxy(address.host, address.port)
    settings = settings_for(between.through(vhost.url), "classic")
    consumer, begun, never = Consumer(settings=settings), [], asyncio.Event()

    @consumer.handler(QUEUE, concurrency=3)
    async def settle(message: Message) -> None:
        begun.append(message.body)
        await never.wait()

    async with serving(consumer):
        await consumed(vhost.url)
        await send(vhost.url, *"abcde", queue=f"{AGAIN}{QUEUE}")
        await eventually(lambda: len(begun) == 3, "three at a time")
        between.delay(0.5)  # in each direction: a confirm takes a second
    await holds(vhost.url, f"{AGAIN}{QUEUE}", 5)
    left = await take_all(vhost.url, f"{AGAIN}{QUEUE}")
    assert sorted(each.body for each in left) == [b"a", b"b", b"c", b"d", b"e"]


async def test_a_handler_hands_work_on_and_waits_until_the_broker_has_it(scene: Scene) -> None:
    consumer, seen = scene.consumer(), []

    @consumer.handler("created")
    async def create(message: Message) -> None:
        await consumer.publish("", "settle", message.body, message_id="7", headers={"n": 1})

    @consumer.handler("settle")
    async def settle(message: Message) -> None:
        seen.append((message.body, message.message_id, message.headers["n"]))

    async with serving(consumer):
        await consumed(scene.url, "settle")
        await consumed_and_sent(scene, "m", queue="created")
        await eventually(lambda: bool(seen), "the message")
        with pytest.raises(Unpublishable, match="NO_ROUTE"):
            await consumer.publish("", "nowhere", b"")
    assert seen == [(b"m", "7", 1)]


async def test_a_dead_letter_that_nobody_takes_is_held_and_keeps_nobody_from_going_on(
    scene: Scene,
) -> None:
    consumer, seen = scene.consumer(), []

    @consumer.handler(QUEUE, retries=0)
    async def settle(message: Message) -> None:
        seen.append(message.body)
        if message.body == b"fails":
            raise ValueError("no")

    wanted = {queue.name: queue for queue in describe(scene.settings.topology).queues}
    async with serving(consumer):
        await consumed(scene.url)
        async with channel_to(scene.url) as channel:
            await channel.delete_queue(DEAD)
            await send(scene.url, "fails")
            await eventually(lambda: seen == [b"fails"], "the failure")
            # As what was delivered before: it is handled alone, while the other one waits.
            await send(scene.url, "suspect", queue=f"redrive-alone-{QUEUE}")
            await send(scene.url, "m")
            await eventually(lambda: sorted(seen) == [b"fails", b"m", b"suspect"], "the others")
            await channel.declare_queue(DEAD, arguments={**wanted[DEAD].arguments})
            await channel.bind_queue(DEAD, "dlq-exchange", "#")
        await holds(scene.url, DEAD, 1)
    (dead,) = await take_all(scene.url, DEAD)
    assert dead.body == b"fails"
    assert seen.count(b"fails") == 1


async def test_a_queue_that_the_broker_refuses_is_told_with_the_brokers_reason(
    vhost: Vhost, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer = Consumer(settings=settings_for(vhost.url, "classic"))

    @consumer.handler(Queue(QUEUE, arguments={"x-max-length": "many"}))
    async def settle(message: Message) -> None: ...

    said = ""

    def told() -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return "consumer.handler_waits" in said

    async with serving(consumer):
        await eventually(told, "the problem in the log")
    assert "x-max-length" in said
    assert "correct the arguments of the queue" in said
    assert "queue_used_as_it_is" not in said
