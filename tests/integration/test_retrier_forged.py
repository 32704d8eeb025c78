"""Headers that name an exchange can be anybody's: none of them stops the line, and no message goes
in a circle."""

from __future__ import annotations

import pytest

from redrive.amqp import Properties, Publish
from redrive.domain import headers
from redrive.domain.policy import Policy
from tests.services.moving import channel_to, holds, identities, publish, take_all
from tests.services.plugin import Vhost
from tests.services.retrying import (
    DEAD,
    declare_origin,
    handling,
    never,
    publish_one,
    retrying,
    told_to,
    topology,
)

BY_EXCHANGE = [Policy(name="#", max_retries=2, return_to="exchange")]


def forged(name: str, exchange: bytes, key: bytes = b"k") -> Publish:
    said = {headers.QUEUE: b"gone", headers.EXCHANGE: exchange, headers.ROUTING_KEY: key}
    put = {header: b"S" + len(text).to_bytes(4) + text for header, text in said.items()}
    properties = Properties.empty().persistent().with_text("message_id", name).with_headers(put)
    return Publish("", "retry-queue-1", properties.raw, b"{}")


async def test_an_exchange_whose_name_is_no_text_does_not_stop_those_that_come_after(
    vhost: Vhost,
) -> None:
    async with retrying(vhost.url, topology("quorum"), BY_EXCHANGE) as retrier:
        for number in range(1, 4):
            await publish(vhost.url, [forged(str(number), b"\xff\xfe")])
            await holds(vhost.url, DEAD, number)
        for mover in retrier.movers:
            mover._plan._avoided._looked = 0.0  # type: ignore[attr-defined]  # it is time to look
        await publish(vhost.url, [forged("4", b"\xff\xfe")])
        await holds(vhost.url, DEAD, 4)
        assert [mover.counts.sessions for mover in retrier.movers] == [1] * len(retrier.movers)


@pytest.mark.parametrize(
    ("exchange", "key"),
    [(b"retry-exchange-1", b"k"), (b"route-delay", b"binding.k.1"), (b"", b"retry-queue-1")],
)
async def test_a_message_that_names_a_way_to_our_own_queues_ends_in_the_dead_letter_queue(
    vhost: Vhost, exchange: bytes, key: bytes
) -> None:
    async with retrying(vhost.url, topology("quorum"), BY_EXCHANGE) as retrier:
        await publish(vhost.url, [forged("one", exchange, key)])
        await holds(vhost.url, DEAD, 1)
        assert sum(mover.counts.moved for mover in retrier.movers) == 1


async def test_a_missing_exchange_before_the_tiers_is_not_tried_with_every_message(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try would close the channel, and have all that is on its way sent again, marked."""
    await declare_origin(vhost.url, "failing", "quorum", "retried", "unknown")
    policies = [Policy(name="retried", max_retries=3)]
    async with (
        retrying(vhost.url, topology("quorum"), policies) as retrier,
        handling(vhost.url, "failing", never),
        channel_to(vhost.url) as channel,
    ):
        told = told_to(retrier.movers[0], monkeypatch=monkeypatch)
        await channel.delete_exchange("route-delay")
        await publish_one(vhost.url, "retried", "first")
        await holds(vhost.url, DEAD, 1)
        others = [str(number) for number in range(40)]
        for number, each in enumerate(others):
            await publish_one(vhost.url, "unknown" if number % 4 else "retried", each)
        await holds(vhost.url, DEAD, 41)
        assert len(told) == 1
    assert sorted(identities(await take_all(vhost.url, DEAD))) == sorted(["first", *others])
