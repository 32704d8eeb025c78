"""A broker that was there before Redrive, with its owner's habits, and a user who may do little.

Queues with dead letter arguments and policies of their own, a length limit, an exclusive queue, no
management API at run time. The administrator applies the topology and enrolls; `redrive run` does
with the permissions that docs/how-to/least-privilege.md names, and each of them is needed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pytest

from redrive.amqp import Properties, Publish, fields
from redrive.domain import headers
from tests.acceptance.command_line import CommandLine
from tests.acceptance.plain_consumer import PlainConsumer
from tests.services.moving import channel_to, holds, identities, publish, ready, take_all
from tests.services.plugin import Vhost
from tests.services.retrying import DEAD, publish_one

TIERS = ("300ms", "500ms")
READ_BY_THE_RETRIER = ("retry-queue", "retry-queue-1", "retry-queue-2")
DOCUMENT = Path(__file__).parents[2] / "docs/how-to/least-privilege.md"

WRITES = ("route-delay", "dlq-exchange", "redrive-return")
READS = ("retry-queue", "retry-queue-[0-9]+")


@dataclass(frozen=True)
class Permissions:
    """What a user may do, as RabbitMQ's three patterns."""

    write: tuple[str, ...] = WRITES
    read: tuple[str, ...] = READS

    def patterns(self) -> dict[str, str]:
        return {"configure": "^$", "write": _any(self.write), "read": _any(self.read)}


def _any(names: tuple[str, ...]) -> str:
    return f"^({'|'.join(names)})$"


@dataclass(frozen=True)
class Foreign:
    """The broker, its administrator's command line, and that of the user who runs Redrive."""

    vhost: Vhost
    user: str
    admin: CommandLine
    operator: CommandLine

    def may(self, permissions: Permissions) -> None:
        path = f"permissions/{quote(self.vhost.name)}/{self.user}"
        self.vhost.node.api("PUT", path, permissions.patterns())


@pytest.fixture
def foreign(vhost: Vhost, tmp_path: Path) -> Iterator[Foreign]:
    user = f"little-{secrets.token_hex(4)}"
    node = vhost.node
    node.api("PUT", f"users/{user}", {"password": user, "tags": ""})
    admin = CommandLine(tmp_path, vhost.url, TIERS, vhost.management_url, name="admin")
    url = vhost.url.replace("guest:guest", f"{user}:{user}")
    operator = replace(admin, broker_url=url, management_url=None, name="operator")
    for each in (admin, operator):
        each.write_settings()
    foreign = Foreign(vhost, user, admin, operator)
    foreign.may(Permissions())
    yield foreign
    node.api("DELETE", f"users/{user}")


async def declare_foreign_queue(url: str, queue: str, **arguments: str | int) -> None:
    async with channel_to(url) as channel:
        await channel.declare_exchange("shop", "topic")
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        await channel.declare_queue(queue, arguments={"x-queue-type": "quorum", **named})
        await channel.bind_queue(queue, "shop", queue)


async def test_enrolled_queues_are_retried_by_a_user_with_the_documented_permissions(
    foreign: Foreign,
) -> None:
    url, admin = foreign.vhost.url, foreign.admin
    # A queue with a policy of other keys, and one with a dead letter exchange of its own.
    await declare_foreign_queue(url, "mail")
    policy = {"pattern": "^mail$", "definition": {"max-length": 1000}, "apply-to": "queues"}
    await asyncio.to_thread(
        foreign.vhost.node.api, "PUT", f"policies/{quote(foreign.vhost.name)}/theirs", policy
    )
    async with channel_to(url) as channel:
        await channel.declare_exchange("billing-dlx", "topic")
        await channel.declare_queue("billing-dead", arguments={"x-queue-type": "quorum"})
        await channel.bind_queue("billing-dead", "billing-dlx", "#")
    await declare_foreign_queue(url, "billing", x_dead_letter_exchange="billing-dlx")
    await admin.done("topology", "apply")
    await admin.done("policy", "set", "#", "--max-retries", "1")
    await admin.done("topology", "enroll", "mail", "--yes")
    refused = await asyncio.to_thread(admin.run, "topology", "enroll", "billing", "--yes")
    assert refused.returncode == 1
    assert "x-dead-letter-exchange" in refused.stderr
    await admin.done("topology", "enroll", "billing", "--bind-exchange", "--yes")

    operator = foreign.operator
    async with operator.running(admin_url=url, queues=READ_BY_THE_RETRIER):
        with (
            PlainConsumer(url, "mail").running() as mail,
            PlainConsumer(url, "billing").running() as billing,
        ):
            await publish_one(url, "mail", "a letter", exchange="shop")
            await publish_one(url, "billing", "a bill", exchange="shop")
            await holds(url, DEAD, 2)
    assert [each.routing_key for each in mail.seen] == ["mail"] * 2
    assert [each.routing_key for each in billing.seen] == ["billing"] * 2
    assert sorted(identities(await take_all(url, DEAD))) == ["a bill", "a letter"]
    # Its own dead letter queue still gets what it got before: a copy of each failure.
    assert identities(await take_all(url, "billing-dead")) == ["a bill"] * 2
    assert operator.logged("topology.not_assured")


async def test_without_the_management_api_apply_works_and_enroll_says_what_to_do(
    foreign: Foreign,
) -> None:
    admin = replace(foreign.admin, management_url=None, name="no-management")
    admin.write_settings()
    await admin.done("topology", "apply")
    await declare_foreign_queue(foreign.vhost.url, "mail")
    refused = await asyncio.to_thread(admin.run, "topology", "enroll", "mail", "--yes")
    assert refused.returncode == 1
    assert "management_url" in refused.stderr
    assert "x-dead-letter-exchange: retry-exchange" in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_what_a_length_limit_pushed_out_is_retried_in_a_queue_that_nobody_enrolled(
    foreign: Foreign,
) -> None:
    url = foreign.vhost.url
    await foreign.admin.done("topology", "apply")
    await foreign.admin.done("policy", "set", "#", "--max-retries", "1")
    await declare_foreign_queue(
        url, "stock", x_dead_letter_exchange="retry-exchange", x_max_length=1
    )
    to_bind_it = Permissions(write=(*WRITES, "stock"), read=(*READS, "redrive-return"))
    await asyncio.to_thread(foreign.may, to_bind_it)
    async with foreign.operator.running(admin_url=url, queues=READ_BY_THE_RETRIER):
        for name in ("pushed out", "stays"):  # drop-head: the older one dies of the limit
            await publish_one(url, "stock", name, exchange="shop")
        # It returns, and pushes the other out, until one of them has had its retry.
        await holds(url, DEAD, 1)
        (dead,) = await take_all(url, DEAD)
        found = Properties.read(dead.properties)
        assert found.header(headers.ERROR_TYPE) == "MAX_LENGTH"
        assert found.header(headers.ATTEMPT) == 1
        assert await ready(url, "stock") == 1


async def test_an_exclusive_queue_gets_its_message_back_by_its_exchange(foreign: Foreign) -> None:
    url = foreign.vhost.url
    await foreign.admin.done("topology", "apply")
    await foreign.admin.done("policy", "set", "#", "--max-retries", "1")
    # 4.3 tells that a queue is exclusive only to users with some permission on it.
    more = Permissions(write=(*WRITES, "shop"), read=(*READS, "mine"))
    await asyncio.to_thread(foreign.may, more)
    async with (
        foreign.operator.running(admin_url=url, queues=READ_BY_THE_RETRIER),
        channel_to(url) as channel,
    ):
        await channel.declare_exchange("shop", "topic")
        await channel.declare_queue(
            "mine",
            durable=False,
            exclusive=True,
            arguments={"x-dead-letter-exchange": "retry-exchange"},
        )
        await channel.bind_queue("mine", "shop", "mine")
        consumer = await channel.consume("mine", prefetch=1)
        await publish_one(url, "mine", "m", exchange="shop")
        (first,) = await asyncio.wait_for(consumer.next_batch(), 60)
        consumer.reject(first)
        (second,) = await asyncio.wait_for(consumer.next_batch(), 60)
        assert second.routing_key == "mine"
        assert Properties.read(second.properties).header(headers.ATTEMPT) == 1
        consumer.ack(second)
        consumer.flush()


@pytest.mark.parametrize("delay", ["300ms", None], ids=["delay", "no delay"])
async def test_a_queue_with_retry_and_delay_queues_of_its_own(
    foreign: Foreign, delay: str | None
) -> None:
    url = foreign.vhost.url
    table = '[[queue]]\nname = "orders"\nexchange = "shop"\n'
    table += f'delay = "{delay}"\n' if delay else ""
    for each in (foreign.admin, foreign.operator):
        each.config.write_text(each.config.read_text() + table)
    await foreign.admin.done("topology", "apply")
    await foreign.admin.done("policy", "set", "#", "--max-retries", "1")
    way = r"amq\.default" if delay else "retry-exchange-1"
    more = Permissions(write=(*WRITES, way), read=(*READS, "orders.retry"))
    await asyncio.to_thread(foreign.may, more)
    queues = (*READ_BY_THE_RETRIER, "orders.retry")
    async with foreign.operator.running(admin_url=url, queues=queues):
        with PlainConsumer(url, "orders").running() as orders:
            await publish_one(url, "orders", "m", exchange="shop")
            await holds(url, DEAD, 1)
    assert [each.routing_key for each in orders.seen] == ["orders"] * 2


@dataclass(frozen=True)
class Without:
    """A permission taken away, and where a message that fails then stays, whole."""

    permissions: Permissions
    stays_in: str
    consumed: tuple[str, ...] = READ_BY_THE_RETRIER


def _but(names: tuple[str, ...], missing: str) -> tuple[str, ...]:
    return tuple(name for name in names if name != missing)


LACKING = {
    "write route-delay": Without(Permissions(write=_but(WRITES, "route-delay")), DEAD),
    "write redrive-return": Without(Permissions(write=_but(WRITES, "redrive-return")), DEAD),
    "read retry-queue": Without(
        Permissions(read=_but(READS, "retry-queue")), "retry-queue", READ_BY_THE_RETRIER[1:]
    ),
    "read retry-queue-N": Without(
        Permissions(read=_but(READS, "retry-queue-[0-9]+")), "retry-queue-1", ("retry-queue",)
    ),
}


@pytest.mark.parametrize("lacking", LACKING.values(), ids=LACKING.keys())
async def test_each_permission_is_needed_and_without_it_nothing_is_lost(
    foreign: Foreign, lacking: Without
) -> None:
    url = foreign.vhost.url
    await declare_foreign_queue(url, "mail")
    await foreign.admin.done("topology", "apply")
    await foreign.admin.done("policy", "set", "#", "--max-retries", "1")
    await foreign.admin.done("topology", "enroll", "mail", "--yes")
    await asyncio.to_thread(foreign.may, lacking.permissions)
    async with foreign.operator.running(admin_url=url, queues=lacking.consumed):
        with PlainConsumer(url, "mail").running() as mail:
            await publish_one(url, "mail", "m", exchange="shop")
            await holds(url, lacking.stays_in, 1)
            if lacking.stays_in != DEAD:
                await foreign.operator.has_logged("mover.lost", "ACCESS_REFUSED")
    assert len(mail.seen) == 1
    assert identities(await take_all(url, lacking.stays_in)) == ["m"]


async def test_without_write_on_the_dead_letter_exchange_a_dead_message_stays(
    foreign: Foreign,
) -> None:
    url = foreign.vhost.url
    await declare_foreign_queue(url, "mail")
    await foreign.admin.done("topology", "apply")
    await foreign.admin.done("policy", "set", "#", "--max-retries", "0")
    await foreign.admin.done("topology", "enroll", "mail", "--yes")
    await asyncio.to_thread(foreign.may, Permissions(write=_but(WRITES, "dlq-exchange")))
    async with foreign.operator.running(admin_url=url, queues=READ_BY_THE_RETRIER):
        with PlainConsumer(url, "mail").running() as mail:
            await publish_one(url, "mail", "m", exchange="shop")
            await foreign.operator.has_logged("mover.stays", "dlq-exchange")
    assert len(mail.seen) == 1
    await holds(url, "retry-queue", 1)
    assert await ready(url, DEAD) == 0
    assert identities(await take_all(url, "retry-queue")) == ["m"]


@pytest.mark.parametrize("told", [True, False], ids=["management API", "none"])
async def test_poison_parks_only_where_the_user_can_know_that_it_is_kept(
    foreign: Foreign, told: bool
) -> None:
    url = foreign.vhost.url
    await foreign.admin.done("topology", "apply")
    operator = foreign.operator
    if told:
        node, user = foreign.vhost.node, foreign.user
        tagged = {"password": user, "tags": "management"}
        await asyncio.to_thread(node.api, "PUT", f"users/{user}", tagged)
        operator = replace(operator, management_url=foreign.vhost.management_url)
        operator.write_settings()
    filler = {"filler": fields.longstr("x" * 130_950)}
    properties = Properties.empty().with_text("message_id", "poison").with_headers(filler)
    await publish(url, [Publish("", "retry-queue", properties.raw, b"poison")])
    await publish_one(url, "retry-queue", "behind", exchange="")
    async with operator.running(admin_url=url, queues=READ_BY_THE_RETRIER):
        await holds(url, DEAD, 2 if told else 1)
        if not told:
            await operator.has_logged("mover.stays", "is not known to be kept")
    if not told:
        await holds(url, "retry-queue", 1)  # the broker may take a moment to put it back
    dead = identities(await take_all(url, DEAD))
    assert sorted(dead) == (["behind", "poison"] if told else ["behind"])
    assert identities(await take_all(url, "retry-queue")) == ([] if told else ["poison"])


def test_the_documented_permissions_are_the_tested_ones() -> None:
    text = DOCUMENT.read_text()
    for pattern in Permissions().patterns().values():
        assert f"'{pattern}'" in text
