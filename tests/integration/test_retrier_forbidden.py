"""A retrier that may not write to an exchange finds that out once, says so, and does not try it
with every message: each try closes the channel, and all that is on its way is sent again."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs

from redrive.amqp import Properties, Publish, fields
from redrive.domain import headers
from redrive.work.retrier import Retrier
from tests.services.eventually import eventually_async
from tests.services.moving import channel_to, holds, identities, publish, take_all
from tests.services.plugin import Vhost
from tests.services.retrying import (
    DEAD,
    always,
    declare_origin,
    declare_topology,
    handling,
    never,
    publish_one,
    retrying,
    told_to,
    topology,
)
from tests.services.sweeping import few_permissions


def all_but(exchange: str) -> dict[str, str]:
    return {"configure": ".*", "write": f"^(?!{exchange}$).*", "read": ".*"}


def refusals(retrier: Retrier, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the plans for the way back are told of, as it comes."""
    return told_to(*retrier.movers[1:], monkeypatch=monkeypatch)


def said(logs: list[Any]) -> list[str]:
    return [log["exchange"] for log in logs if log["event"] == "return_path.exchange_forbidden"]


async def test_who_may_not_write_to_the_return_exchange_makes_every_message_dead(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = topology("quorum")
    await declare_topology(vhost.url, settings)
    await declare_origin(vhost.url, "failing", "quorum", "k")
    with few_permissions(vhost, **all_but("redrive-return")) as url, capture_logs() as logs:
        async with (
            retrying(url, settings, {"k": 3}) as retrier,
            handling(vhost.url, "failing", never) as failing,
        ):
            told = refusals(retrier, monkeypatch)
            await publish_one(vhost.url, "k", "first")
            await holds(vhost.url, DEAD, 1)
            assert len(told) == 1
            others = [str(number) for number in range(20)]
            for each in others:
                await publish_one(vhost.url, "k", each)
            await holds(vhost.url, DEAD, 21)
            assert len(told) == 1
        assert len(failing.deliveries) == 21
    dead = await take_all(vhost.url, DEAD)
    assert sorted(identities(dead)) == sorted(["first", *others])
    for letter in dead:
        reason = str(Properties.read(letter.properties).header(headers.ERROR_REASON))
        assert "ACCESS_REFUSED" in reason
        assert "'redrive-return'" in reason
    assert said(logs) == ["redrive-return"]


async def test_a_topic_permission_that_lacks_makes_only_messages_with_that_key_dead(
    vhost: Vhost,
) -> None:
    settings = topology("quorum")
    await declare_topology(vhost.url, settings)
    await declare_origin(vhost.url, "failing", "quorum", "refused")
    await declare_origin(vhost.url, "mended", "quorum", "granted")
    with few_permissions(vhost, configure=".*", write=".*", read=".*") as url:
        user = url.partition("://")[2].partition(":")[0]
        # From 4.0 on the key of the one queue counts too, which is in BCC.
        keys = "^(granted|redrive-queue:.*)$"
        rights = {"exchange": "redrive-return", "write": keys, "read": ".*"}
        path = f"topic-permissions/{quote(vhost.name, safe='')}/{user}"
        await asyncio.to_thread(vhost.node.api, "PUT", path, rights)
        async with (
            retrying(url, settings, {"#": 3}),
            handling(vhost.url, "failing", never),
            handling(vhost.url, "mended", lambda each: b"redrive-attempt" in each.properties) as ok,
        ):
            await publish_one(vhost.url, "refused", "r")
            await holds(vhost.url, DEAD, 1)
            await publish_one(vhost.url, "granted", "g")
            await ok.has_seen(2)
    (dead,) = await take_all(vhost.url, DEAD)
    reason = str(Properties.read(dead.properties).header(headers.ERROR_REASON))
    assert "access to topic 'refused'" in reason


async def test_who_may_not_write_to_the_ladder_brings_messages_back_early(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = topology("quorum")
    await declare_topology(vhost.url, settings)
    await declare_origin(vhost.url, "orders", "quorum", "k")
    async with channel_to(vhost.url) as channel:
        await channel.bind_queue("orders", "redrive-return", "redrive-queue:orders")
    put = {
        headers.QUEUE: fields.longstr("orders"),
        headers.EXCHANGE: fields.longstr("work"),
        headers.ROUTING_KEY: fields.longstr("k"),
        headers.NOT_BEFORE: fields.int64(time.time_ns() // 1_000_000 + 3_600_000),
    }
    raw = Properties.empty().persistent().with_headers(put).raw
    with few_permissions(vhost, **all_but("amq.default")) as url, capture_logs() as logs:
        async with (
            retrying(url, settings, {"k": 3}) as retrier,
            handling(vhost.url, "orders", always) as orders,
        ):
            told = refusals(retrier, monkeypatch)
            await publish(vhost.url, [Publish("retry-exchange-1", "retry.#.1", raw, b"first")])
            await orders.has_seen(1)
            assert len(told) == 1
            others = [str(number).encode() for number in range(20)]
            sent = [Publish("retry-exchange-1", "retry.#.1", raw, each) for each in others]
            await publish(vhost.url, sent)
            await eventually_async(lambda: len(orders.deliveries) >= 21)
            assert len(told) == 1
    assert sorted(each.body for each in orders.deliveries) == sorted([b"first", *others])
    assert said(logs) == ["amq.default"]
