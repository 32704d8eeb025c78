"""The retrier on a real broker, with consumers that only reject."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs

from redrive.amqp import Delivery, Properties, Publish, fields, frames
from redrive.domain import headers
from redrive.domain.deaths import read_deaths
from redrive.domain.policy import Policy
from redrive.settings.sections import QueueSettings
from redrive.work.return_path import Down, ReturnPath, Unreachable
from tests.services.consuming import consumed
from tests.services.eventually import eventually_async
from tests.services.moving import (
    Kind,
    channel_to,
    connector,
    declare,
    holds,
    identities,
    publish,
    ready,
    take_all,
)
from tests.services.plugin import Vhost
from tests.services.retrying import (
    DEAD,
    Handler,
    always,
    declare_origin,
    declare_topology,
    handling,
    never,
    publish_one,
    retrying,
    topology,
)

KINDS: tuple[Kind, ...] = ("quorum", "classic")
both_kinds = pytest.mark.parametrize("kind", KINDS)


def header(delivery: Delivery, name: str) -> object:
    return Properties.read(delivery.properties).header(name)


async def the_dead(url: str, count: int = 1) -> list[Delivery]:
    await holds(url, DEAD, count)
    found = await take_all(url, DEAD)
    assert len(found) == count
    return found


@both_kinds
async def test_a_message_that_is_accepted_is_seen_once(vhost: Vhost, kind: Kind) -> None:
    async with retrying(vhost.url, topology(kind), {"rk.test.pass": 3}):
        await declare_origin(vhost.url, "passing", kind, "rk.test.pass")
        async with handling(vhost.url, "passing", always) as handler:
            await publish_one(vhost.url, "rk.test.pass", "m")
            await handler.has_seen(1)
        assert await ready(vhost.url, DEAD) == 0
        assert len(handler.seen) == 1


@both_kinds
async def test_a_message_that_always_fails_is_tried_with_growing_delays_and_then_dead(
    vhost: Vhost, kind: Kind
) -> None:
    async with retrying(vhost.url, topology(kind), {"rk.test.fail": 3}):
        await declare_origin(vhost.url, "failing", kind, "rk.test.fail")
        async with handling(vhost.url, "failing", never) as handler:
            await publish_one(vhost.url, "rk.test.fail", "m")
            (dead,) = await the_dead(vhost.url)
        assert len(handler.seen) == 4
        assert [delivery.routing_key for delivery in handler.deliveries] == ["rk.test.fail"] * 4
        for gap, least in zip(handler.gaps(), (0.1, 0.2, 0.3), strict=True):
            assert gap >= least
        assert [header(each, headers.ATTEMPT) for each in handler.deliveries] == [None, 1, 2, 3]
        assert header(dead, headers.ATTEMPT) == 3
        deaths = read_deaths(header(dead, headers.DEATHS))
        assert [(death.queue, death.reason) for death in deaths] == [("failing", "rejected")] * 4
        assert header(dead, headers.QUEUE) == "failing"
        assert header(dead, headers.EXCHANGE) == "work"
        assert header(dead, headers.ROUTING_KEY) == "rk.test.fail"
        assert "gave up after 3 retries" in str(header(dead, headers.ERROR_REASON))
        assert header(dead, headers.ERROR_TYPE) == "REJECTED"
        assert dead.body == b"m"


@both_kinds
async def test_a_message_that_fails_once_and_then_passes_ends_consumed(
    vhost: Vhost, kind: Kind
) -> None:
    async with retrying(vhost.url, topology(kind), {"rk.test.fail.pass": 3}):
        await declare_origin(vhost.url, "flaky", kind, "rk.test.fail.pass")

        def second_time(delivery: Delivery) -> bool:
            return header(delivery, headers.ATTEMPT) is not None

        async with handling(vhost.url, "flaky", second_time) as handler:
            await publish_one(vhost.url, "rk.test.fail.pass", "m")
            await handler.has_seen(2)
        assert len(handler.seen) == 2
        assert await ready(vhost.url, DEAD) == 0


@both_kinds
async def test_only_the_queue_that_failed_sees_the_message_again(vhost: Vhost, kind: Kind) -> None:
    async with retrying(vhost.url, topology(kind), {"shared": 2}):
        await declare_origin(vhost.url, "failing", kind, "shared")
        await declare_origin(vhost.url, "neighbour", kind, "shared")
        async with (
            handling(vhost.url, "failing", never) as failing,
            handling(vhost.url, "neighbour", always) as neighbour,
        ):
            await publish_one(vhost.url, "shared", "m")
            await the_dead(vhost.url)
            await neighbour.has_seen(1)
        assert (len(failing.seen), len(neighbour.seen)) == (3, 1)


async def test_a_policy_may_say_that_every_queue_of_the_exchange_sees_it_again(
    vhost: Vhost,
) -> None:
    policy = Policy(name="shared", max_retries=1, return_to="exchange")
    async with retrying(vhost.url, topology("quorum"), [policy]):
        await declare_origin(vhost.url, "failing", "quorum", "shared")
        await declare_origin(vhost.url, "neighbour", "quorum", "shared")
        async with (
            handling(vhost.url, "failing", never),
            handling(vhost.url, "neighbour", always) as neighbour,
        ):
            await publish_one(vhost.url, "shared", "m")
            await the_dead(vhost.url)
            await neighbour.has_seen(2)


async def all_is_dead(url: str, copies: int) -> None:
    """Until so many copies are dead, and no other is under way: one that was would be back by the
    time that a message which is published now is dead as well."""
    await holds(url, DEAD, copies)
    await declare_origin(url, "later", "quorum", "later")
    async with handling(url, "later", never):
        await publish_one(url, "later", "later")
        await holds(url, DEAD, copies + 1)
    await take_all(url, DEAD)


@pytest.mark.parametrize(("retries", "seen"), [(1, 3), (2, 6)])
async def test_queues_of_one_exchange_that_fail_alike_do_not_multiply_what_returns_by_it(
    vhost: Vhost, retries: int, seen: int
) -> None:
    """Each queue retries its own copy by the exchange; what comes beside that goes to it alone."""
    policy = Policy(name="shared", max_retries=retries, return_to="exchange")
    later = Policy(name="later", max_retries=retries)
    async with retrying(vhost.url, topology("quorum"), [policy, later]):
        await declare_origin(vhost.url, "one", "quorum", "shared")
        await declare_origin(vhost.url, "two", "quorum", "shared")
        async with (
            handling(vhost.url, "one", never) as one,
            handling(vhost.url, "two", never) as two,
        ):
            await publish_one(vhost.url, "shared", "m")
            await all_is_dead(vhost.url, 2 * (1 + retries))
        assert (len(one.seen), len(two.seen)) == (seen, seen)


async def test_exclusive_queues_of_one_exchange_that_fail_alike_do_not_multiply_a_message(
    vhost: Vhost,
) -> None:
    async with (
        retrying(vhost.url, topology("quorum"), {"k": 2, "later": 2}),
        channel_to(vhost.url) as channel,
        asyncio.TaskGroup() as serving,
    ):
        await channel.declare_exchange("work", "topic")
        handlers = {"one": Handler(never), "two": Handler(never)}
        for queue in handlers:
            await channel.declare_queue(
                queue,
                durable=False,
                exclusive=True,
                arguments={"x-dead-letter-exchange": "retry-exchange"},
            )
            await channel.bind_queue(queue, "work", "k")
        tasks = [
            serving.create_task(each.serve(await channel.connection.channel(), queue))
            for queue, each in handlers.items()
        ]
        await publish_one(vhost.url, "k", "m")
        await all_is_dead(vhost.url, 6)
        for task in tasks:
            task.cancel()
    # Its own and two retries of that; and what the other one was sent twice.
    assert [len(each.seen) for each in handlers.values()] == [5, 5]


async def test_an_unconfigured_key_goes_straight_to_the_dead_letter_queue(vhost: Vhost) -> None:
    async with retrying(vhost.url, topology("quorum"), {"other": 3}):
        await declare_origin(vhost.url, "failing", "quorum", "unknown")
        async with handling(vhost.url, "failing", never) as handler:
            await publish_one(vhost.url, "unknown", "m")
            (dead,) = await the_dead(vhost.url)
        assert len(handler.seen) == 1
        assert "no policy" in str(header(dead, headers.ERROR_REASON))


async def test_more_retries_than_tiers_reuse_the_last_tier(vhost: Vhost) -> None:
    tiers = (timedelta(milliseconds=50), timedelta(milliseconds=250))
    async with retrying(vhost.url, topology("quorum", tiers), {"k": 4}):
        await declare_origin(vhost.url, "failing", "quorum", "k")
        async with handling(vhost.url, "failing", never) as handler:
            await publish_one(vhost.url, "k", "m")
            await the_dead(vhost.url)
        assert len(handler.seen) == 5
        assert all(gap >= 0.25 for gap in handler.gaps()[1:])


@both_kinds
async def test_a_message_that_fails_in_two_services_is_counted_for_each(
    vhost: Vhost, kind: Kind
) -> None:
    async with retrying(vhost.url, topology(kind), {"first": 1, "second": 2}):
        await declare_origin(vhost.url, "one", kind, "first")
        await declare_origin(vhost.url, "two", kind, "second")

        async with handling(vhost.url, "two", never) as two:
            async with handling(vhost.url, "one", never):
                await publish_one(vhost.url, "first", "m")
                (dead,) = await the_dead(vhost.url)
            assert header(dead, headers.QUEUE) == "one"
            # The first service passes it on as it is, our headers included.
            await publish(vhost.url, [Publish("work", "second", dead.properties, dead.body)])
            (dead_again,) = await the_dead(vhost.url)
        assert len(two.seen) == 3
        assert header(dead_again, headers.QUEUE) == "two"
        assert header(dead_again, headers.ATTEMPT) == 2
        assert header(dead_again, headers.ROUTING_KEY) == "second"
        assert header(dead_again, headers.ID) != header(dead, headers.ID)


@both_kinds
async def test_a_queue_where_the_message_only_waited_is_not_its_origin(
    vhost: Vhost, kind: Kind
) -> None:
    async with retrying(vhost.url, topology(kind), {"k": 1}):
        await declare_origin(vhost.url, "failing", kind, "k")
        await declare(
            vhost.url,
            "waiting-room",
            kind,
            x_message_ttl=50,
            x_dead_letter_exchange="work",
            x_dead_letter_routing_key="k",
        )
        async with handling(vhost.url, "failing", never) as handler:
            await publish_one(vhost.url, "waiting-room", "m", exchange="")
            (dead,) = await the_dead(vhost.url)
        assert len(handler.seen) == 2
        assert header(dead, headers.QUEUE) == "failing"
        assert header(dead, headers.ATTEMPT) == 1


@both_kinds
async def test_a_message_that_expired_in_its_queue_is_stale_unless_its_policy_says_otherwise(
    vhost: Vhost, kind: Kind
) -> None:
    policies = [
        Policy(name="stale", max_retries=3),
        Policy(name="again", max_retries=1, retry_expired=True),
    ]
    async with retrying(vhost.url, topology(kind), policies):
        await declare_origin(vhost.url, "short-lived", kind, "stale", "again", x_message_ttl=50)
        await publish_one(vhost.url, "stale", "stale")
        (dead,) = await the_dead(vhost.url)
        assert header(dead, headers.ERROR_TYPE) == "EXPIRED"
        assert header(dead, headers.ATTEMPT) is None
        await publish_one(vhost.url, "again", "again")
        (dead,) = await the_dead(vhost.url)
        assert header(dead, headers.ATTEMPT) == 1


async def test_a_message_whose_origin_queue_is_gone_goes_to_the_dead_letter_queue(
    vhost: Vhost,
) -> None:
    settings = topology("quorum")
    await declare_topology(vhost.url, settings)
    await declare_origin(vhost.url, "doomed", "quorum", "k")
    async with handling(vhost.url, "doomed", never):
        await publish_one(vhost.url, "k", "m")
        await holds(vhost.url, "retry-queue", 1)
    async with channel_to(vhost.url) as channel:
        await channel.delete_queue("doomed")
    # Not before: it would come back in a tenth of a second, and be deleted with its queue.
    async with retrying(vhost.url, settings, {"k": 3}):
        (dead,) = await the_dead(vhost.url)
        assert "'doomed' is gone" in str(header(dead, headers.ERROR_REASON))
        assert header(dead, "BCC") is None


async def test_without_the_return_exchange_messages_wait_until_it_is_made_again(
    vhost: Vhost,
) -> None:
    await declare_origin(vhost.url, "orders", "quorum", "k")

    def seen_twice(_: Delivery) -> bool:
        return len(handler.seen) > 1

    with capture_logs() as logs:
        async with (
            retrying(vhost.url, topology("quorum"), {"k": 1}),
            handling(vhost.url, "orders", seen_twice) as handler,
            channel_to(vhost.url) as channel,
        ):
            await channel.delete_exchange("redrive-return")
            await publish_one(vhost.url, "k", "m")

            def missing() -> list[Any]:
                return [log for log in logs if log["event"] == "return_path.exchange_missing"]

            await eventually_async(lambda: bool(missing()), what="the exchange is missed")
            (said,) = missing()
            assert said["exchange"] == "redrive-return"
            assert "redrive topology apply" in said["remedy"]
            await channel.declare_exchange("redrive-return", "topic")
            await handler.has_seen(2)
            assert header(handler.deliveries[-1], headers.ATTEMPT) == 1
        assert await ready(vhost.url, DEAD) == 0


async def test_who_may_not_bind_queues_misses_the_return_exchange_all_the_same(
    vhost: Vhost,
) -> None:
    await declare(vhost.url, "orders", "quorum")
    user = f"few-{vhost.name}"
    vhost.node.api("PUT", f"users/{user}", {"password": "s3cret", "tags": ""})
    rights = {"configure": "^$", "write": "^redrive-return$", "read": "^$"}
    vhost.node.api("PUT", f"permissions/{quote(vhost.name, safe='')}/{user}", rights)
    url = vhost.url.replace("guest:guest", f"{user}:s3cret")
    path = ReturnPath("redrive-return", connector(url))
    try:
        with pytest.raises(Down, match="'redrive-return' is missing: run 'redrive topology apply'"):
            await path.restore("orders")
    finally:
        path.abort()
        vhost.node.api("DELETE", f"users/{user}")


async def test_an_exclusive_queue_gets_its_message_back_by_its_exchange(vhost: Vhost) -> None:
    async with (
        retrying(vhost.url, topology("quorum"), {"k": 1}),
        channel_to(vhost.url) as channel,
    ):
        await channel.declare_exchange("work", "topic")
        await channel.declare_queue(
            "mine",
            durable=False,
            exclusive=True,
            arguments={"x-dead-letter-exchange": "retry-exchange"},
        )
        await channel.bind_queue("mine", "work", "k")
        consumer = await channel.consume("mine", prefetch=1)
        await publish_one(vhost.url, "k", "m")
        (first,) = await consumer.next_batch()
        consumer.reject(first)
        (second,) = await consumer.next_batch()
        assert second.routing_key == "k"
        assert header(second, headers.ATTEMPT) == 1


@both_kinds
async def test_a_full_origin_queue_makes_the_message_wait_in_the_last_tier_again(
    vhost: Vhost, kind: Kind
) -> None:
    settings = topology(kind)
    await declare_topology(vhost.url, settings)
    await declare_origin(vhost.url, "small", kind, "k", x_max_length=1, x_overflow="reject-publish")
    async with handling(vhost.url, "small", never):
        await publish_one(vhost.url, "k", "m")
        await holds(vhost.url, "retry-queue", 1)
    await publish_one(vhost.url, "small", "in the way", exchange="")
    async with retrying(vhost.url, settings, {"k": 1}):
        # It cannot come back until the way is free.
        async with handling(vhost.url, "small", always) as handler:
            await handler.has_seen(2)
        assert sorted(identities(handler.deliveries)) == ["in the way", "m"]
        (returned,) = [each for each in handler.deliveries if each.body == b"m"]
        assert header(returned, headers.ATTEMPT) == 1
        assert await ready(vhost.url, DEAD) == 0


async def test_a_full_tier_sends_the_message_to_the_dead_letter_queue(vhost: Vhost) -> None:
    url = vhost.url
    async with channel_to(url) as channel:
        await channel.declare_exchange("route-delay", "topic")
        await channel.declare_queue(
            "tiny",
            arguments={"x-queue-type": "quorum", "x-max-length": 0, "x-overflow": "reject-publish"},
        )
        await channel.bind_queue("tiny", "route-delay", "binding.#")
    async with retrying(url, topology("quorum"), {"k": 3}):
        await declare_origin(url, "failing", "quorum", "k")
        async with channel_to(url) as channel:
            for tier in (1, 2, 3):
                await channel.unbind_queue(
                    f"queue.delay.{tier}", "route-delay", f"binding.#.{tier}"
                )
        await publish(url, [Publish("", "tiny", Properties.empty().persistent().raw, b"full")])
        async with handling(url, "failing", never):
            await publish_one(url, "k", "m")
            (dead,) = await the_dead(url)
        assert "is full" in str(header(dead, headers.ERROR_REASON))
        assert header(dead, headers.ATTEMPT) is None, "no retry was made"


async def test_a_message_without_any_history_is_dead_with_the_reason(vhost: Vhost) -> None:
    async with retrying(vhost.url, topology("quorum"), {"#": 3}):
        await publish_one(vhost.url, "order.created", "m", exchange="retry-exchange")
        (dead,) = await the_dead(vhost.url)
        assert "no origin known" in str(header(dead, headers.ERROR_REASON))
        assert header(dead, headers.EXCHANGE) == "retry-exchange"
        assert header(dead, headers.ROUTING_KEY) == "order.created"


FORGED = {
    "attempt as text": {headers.ATTEMPT: fields.longstr("many")},
    "attempt negative": {headers.ATTEMPT: fields.int32(-5)},
    "attempt as a huge integer": {headers.ATTEMPT: fields.int64(2**62)},
    "queue as a number": {headers.QUEUE: fields.int32(7)},
    "routing key as a table": {headers.ROUTING_KEY: fields.table({})},
    "deaths as text": {headers.DEATHS: fields.longstr("x")},
    "id as a number": {headers.ID: fields.int32(1)},
    "x-death as text": {"x-death": fields.longstr("nonsense")},
    "x-death of numbers": {"x-death": fields.array([fields.int32(1)])},
    "x-death of empty tables": {"x-death": fields.array([fields.table({})])},
    "x-death with a queue that is a number": {
        "x-death": fields.array([fields.table({"queue": fields.int32(1)})])
    },
    "100,000 deaths that are nothing": {headers.DEATHS: fields.array([b"V"] * 100_000)},
    "5,000 headers": {f"h{n}": fields.int32(n) for n in range(5000)},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
async def test_forged_headers_end_in_a_defined_place_and_the_retrier_goes_on(
    vhost: Vhost, forged: dict[str, bytes]
) -> None:
    async with retrying(vhost.url, topology("quorum"), {"k": 1}):
        await declare_origin(vhost.url, "failing", "quorum", "k")
        properties = Properties.empty().with_text("message_id", "forged").with_headers(forged)
        # Not by a reject where x-death itself is forged: 3.10 crashes on some of it in its own hop.
        ways = [("retry-exchange", "k")]
        if "x-death" not in forged:
            ways.append(("work", "k"))
        async with handling(vhost.url, "failing", never):
            await publish(
                vhost.url,
                [Publish(exchange, key, properties.raw, b"\x00\xff") for exchange, key in ways],
            )
            await publish_one(vhost.url, "k", "behind")
            dead = await the_dead(vhost.url, len(ways) + 1)
        assert sorted(identities(dead)) == ["behind", *["forged"] * len(ways)]


@both_kinds
async def test_a_routing_key_of_255_bytes_is_retried_and_comes_back_whole(
    vhost: Vhost, kind: Kind
) -> None:
    key = "k" * 255
    async with retrying(vhost.url, topology(kind), {"#": 2}):
        await declare_origin(vhost.url, "failing", kind, key)
        async with handling(vhost.url, "failing", never) as handler:
            await publish_one(vhost.url, key, "m")
            await the_dead(vhost.url)
        assert [each.routing_key for each in handler.deliveries] == [key] * 3


async def test_a_replayed_letter_that_fails_again_goes_straight_to_the_dead_letter_queue(
    vhost: Vhost,
) -> None:
    async with retrying(vhost.url, topology("quorum"), {"k": 3}):
        await declare_origin(vhost.url, "failing", "quorum", "k")
        put = {
            headers.LETTER: fields.longstr("0192"),
            headers.GENERATION: fields.int32(1),
            headers.QUEUE: fields.longstr("failing"),
        }
        properties = Properties.empty().persistent().with_headers(put)
        async with handling(vhost.url, "failing", never) as handler:
            await publish(vhost.url, [Publish("work", "k", properties.raw, b"letter")])
            (dead,) = await the_dead(vhost.url)
        assert len(handler.seen) == 1
        assert header(dead, headers.LETTER) == "0192"


@both_kinds
@pytest.mark.parametrize("delay", ["150ms", None], ids=["scheduler", "no scheduler"])
async def test_the_per_queue_layout_retries_with_the_original_key(
    vhost: Vhost, kind: Kind, delay: str | None
) -> None:
    queue = {"name": "orders", "exchange": "shop", "delay": delay}
    queues = [QueueSettings.model_validate(queue)]
    async with retrying(vhost.url, topology(kind), {"order.created": 2}, queues):
        async with channel_to(vhost.url) as channel:
            await channel.bind_queue("orders", "shop", "order.*")
        async with handling(vhost.url, "orders", never) as handler:
            await publish_one(vhost.url, "order.created", "m", exchange="shop")
            (dead,) = await the_dead(vhost.url)
        assert [each.routing_key for each in handler.deliveries] == ["order.created"] * 3
        assert all(gap >= 0.15 for gap in handler.gaps()) or delay is None
        assert header(dead, headers.QUEUE) == "orders"


@both_kinds
@pytest.mark.parametrize("delay", ["150ms", None], ids=["scheduler", "no scheduler"])
async def test_the_per_queue_layout_ends_with_what_passes_consumed(
    vhost: Vhost, kind: Kind, delay: str | None
) -> None:
    queue = {"name": "orders", "exchange": "shop", "delay": delay}
    queues = [QueueSettings.model_validate(queue)]
    async with retrying(vhost.url, topology(kind), {"order.*": 2}, queues):
        await declare(vhost.url, "neighbour", kind)
        async with channel_to(vhost.url) as channel:
            for bound in ("orders", "neighbour"):
                await channel.bind_queue(bound, "shop", "order.*")

        def passes(delivery: Delivery) -> bool:
            return delivery.body == b"pass" or header(delivery, headers.ATTEMPT) is not None

        async with (
            handling(vhost.url, "orders", passes) as handler,
            handling(vhost.url, "neighbour", always) as neighbour,
        ):
            await publish_one(vhost.url, "order.created", "pass", exchange="shop")
            await publish_one(vhost.url, "order.created", "fail, then pass", exchange="shop")
            await handler.has_seen(3)
            await neighbour.has_seen(2)
        assert sorted(identities(handler.deliveries)) == [*["fail, then pass"] * 2, "pass"]
        assert sorted(identities(neighbour.deliveries)) == ["fail, then pass", "pass"]
        assert await ready(vhost.url, DEAD) == 0


async def test_a_message_that_reached_its_delivery_limit_is_retried(vhost: Vhost) -> None:
    async with retrying(vhost.url, topology("quorum"), {"k": 1}):
        await declare_origin(vhost.url, "crashing", "quorum", "k", x_delivery_limit=1)
        async with channel_to(vhost.url) as channel:
            await publish_one(vhost.url, "k", "m")
            consumer = await channel.consume("crashing", prefetch=1)
            seen = []
            for _ in range(4):  # twice until the limit, and twice again after the retry
                (delivery,) = await asyncio.wait_for(consumer.next_batch(), 20)
                seen.append(header(delivery, headers.ATTEMPT))
                # Not by nack: on 4.3 that does not count.
                channel.wire.write(frames.reject(channel.number, delivery.tag, requeue=True))
            (dead,) = await the_dead(vhost.url)
        assert seen == [None, None, 1, 1]
        assert header(dead, headers.ERROR_TYPE) == "DELIVERY_LIMIT"
        assert header(dead, headers.ATTEMPT) == 1


async def test_the_retrier_starts_by_itself_once_its_queues_are_there(vhost: Vhost) -> None:
    settings = topology("quorum")
    async with retrying(vhost.url, settings, {"k": 0}) as retrier:
        await consumed(vhost.url, "retry-queue")
        async with channel_to(vhost.url) as channel:
            await channel.delete_queue("retry-queue")
        # A quorum queue that is made anew within 50 ms has, on 3.10, a consumer that gets nothing.
        await eventually_async(lambda: retrier.movers[0].counts.sessions >= 2, what="its loss")
        await declare_topology(vhost.url, settings)
        await declare_origin(vhost.url, "failing", "quorum", "k")
        async with handling(vhost.url, "failing", never):
            await publish_one(vhost.url, "k", "m")
            await the_dead(vhost.url)


def too_large(routing_key: str) -> Publish:
    """A message that no header of ours fits into any more, for one queue."""
    filler = {"filler": fields.longstr("x" * 130_950)}
    properties = Properties.empty().with_text("message_id", "poison").with_headers(filler)
    return Publish("", routing_key, properties.raw, b"poison")


@both_kinds
@pytest.mark.parametrize("queue", ["retry-queue", "retry-queue-2"])
async def test_poison_parks_in_the_dead_letter_queue(vhost: Vhost, kind: Kind, queue: str) -> None:
    async with retrying(vhost.url, topology(kind), {"k": 1}):
        await publish(vhost.url, [too_large(queue)])
        await publish_one(vhost.url, queue, "behind", exchange="")
        dead = await the_dead(vhost.url, 2)
    assert sorted(identities(dead)) == ["behind", "poison"]


@both_kinds
async def test_poison_is_not_rejected_into_a_dead_letter_exchange_that_was_deleted_meanwhile(
    vhost: Vhost, kind: Kind
) -> None:
    async with retrying(vhost.url, topology(kind), {"k": 1}):
        await consumed(vhost.url, "retry-queue")
        async with channel_to(vhost.url) as channel:
            await channel.delete_exchange("dlq-exchange")
        await publish(vhost.url, [too_large("retry-queue")])
        assert identities(await the_dead(vhost.url)) == ["poison"]


FOREIGN: dict[str, dict[str, str | int]] = {
    "no dead letter exchange": {},
    "back to itself": {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "retry-queue"},
    "to nowhere": {"x_dead_letter_exchange": "nobody-made-this"},
}


@both_kinds
@pytest.mark.parametrize("arguments", FOREIGN.values(), ids=FOREIGN.keys())
async def test_poison_stays_in_a_queue_that_somebody_made_without_our_dead_letter_exchange(
    vhost: Vhost, kind: Kind, arguments: dict[str, str | int]
) -> None:
    await declare(vhost.url, "retry-queue", kind, **arguments)
    await publish(vhost.url, [too_large("retry-queue")])
    async with retrying(vhost.url, topology(kind), {"k": 1}) as retrier:
        await publish_one(vhost.url, "retry-queue", "behind", exchange="")
        assert identities(await the_dead(vhost.url)) == ["behind"]
        assert retrier.movers[0].counts.parked == 0
    await holds(vhost.url, "retry-queue", 1)
    assert identities(await take_all(vhost.url, "retry-queue")) == ["poison"]


async def test_poison_stays_where_the_dead_letter_queue_is_not_bound_as_ours(vhost: Vhost) -> None:
    async with channel_to(vhost.url) as channel:
        await channel.declare_exchange("dlq-exchange", "direct")
    async with retrying(vhost.url, topology("quorum"), {"k": 1}) as retrier:
        await publish(vhost.url, [too_large("retry-queue")])
        async with channel_to(vhost.url) as channel:

            async def taken() -> bool:
                return (await channel.inspect_queue("retry-queue")) == (0, 1)

            await eventually_async(taken, what="the poison taken")
        assert retrier.movers[0].counts.parked == 0
    await holds(vhost.url, "retry-queue", 1)
    assert identities(await take_all(vhost.url, "retry-queue")) == ["poison"]


@both_kinds
async def test_a_neighbour_that_sees_everything_of_the_exchange_sees_no_retry(
    vhost: Vhost, kind: Kind
) -> None:
    queue = {"name": "orders", "exchange": "shop", "delay": "150ms"}
    queues = [QueueSettings.model_validate(queue)]
    async with retrying(vhost.url, topology(kind), {"orders": 2}, queues):
        await declare(vhost.url, "audit", kind)
        async with channel_to(vhost.url) as channel:
            await channel.bind_queue("audit", "shop", "#")
        async with handling(vhost.url, "orders", never) as handler:
            await publish_one(vhost.url, "orders", "m", exchange="shop")
            await the_dead(vhost.url)
        assert len(handler.seen) == 3
    assert identities(await take_all(vhost.url, "audit")) == ["m"]


async def test_without_its_delay_queue_a_message_is_dead_and_no_neighbour_takes_it(
    vhost: Vhost,
) -> None:
    queue = {"name": "orders", "exchange": "shop", "delay": "150ms"}
    queues = [QueueSettings.model_validate(queue)]
    async with retrying(vhost.url, topology("quorum"), {"orders": 2}, queues):
        await declare(vhost.url, "audit", "quorum")
        async with channel_to(vhost.url) as channel:
            await channel.bind_queue("audit", "shop", "#")
            await channel.delete_queue("orders.delay")
        async with handling(vhost.url, "orders", never) as handler:
            await publish_one(vhost.url, "orders", "m", exchange="shop")
            (dead,) = await the_dead(vhost.url)
        assert len(handler.seen) == 1
    reason = str(header(dead, headers.ERROR_REASON))
    assert reason.startswith("the delay queue 'orders.delay' is missing")
    assert identities(await take_all(vhost.url, "audit")) == ["m"]


@pytest.mark.parametrize("name", ["q" * 255, "é" * 121], ids=["255 bytes", "242 bytes"])
async def test_a_queue_with_the_longest_of_names_gets_its_message_back(
    vhost: Vhost, name: str
) -> None:
    async with retrying(vhost.url, topology("quorum"), {"k": 1}):
        await declare_origin(vhost.url, name, "quorum", "k")
        async with handling(vhost.url, name, never) as handler:
            await publish_one(vhost.url, "k", "m")
            (dead,) = await the_dead(vhost.url)
        assert [each.routing_key for each in handler.deliveries] == ["k"] * 2
        assert "gave up after 1 retry " in str(header(dead, headers.ERROR_REASON))


@pytest.mark.parametrize(
    "queue", [fields.longstr("q" * 300), b"S\x00\x00\x00\x04caf\xe9"], ids=["long", "not UTF-8"]
)
async def test_a_queue_name_that_cannot_be_one_makes_the_message_dead(
    vhost: Vhost, queue: bytes
) -> None:
    async with retrying(vhost.url, topology("quorum"), {"k": 1}):
        put = {
            headers.QUEUE: queue,
            headers.ROUTING_KEY: fields.longstr("k"),
        }
        properties = Properties.empty().persistent().with_headers(put)
        await publish(vhost.url, [Publish("", "retry-queue-1", properties.raw, b"m")])
        (dead,) = await the_dead(vhost.url)
        assert "cannot exist" in str(header(dead, headers.ERROR_REASON))


async def test_looking_for_queues_leaves_no_channel_open(vhost: Vhost) -> None:
    await declare_topology(vhost.url, topology("quorum"))
    await declare(vhost.url, "there", "quorum")
    path = ReturnPath("redrive-return", connector(vhost.url))
    try:
        assert await path.restore("there")
        for name in ("gone", "q" * 256, "caf\udce9"):
            with pytest.raises(Unreachable):
                await path.restore(name)
        elsewhere = ReturnPath("no-such-exchange", connector(vhost.url))
        with pytest.raises(Unreachable):
            await elsewhere.restore("there")
        for each in (path, elsewhere):
            assert each._connection is not None
            assert not each._connection._wire.channels
        elsewhere.abort()
    finally:
        path.abort()
