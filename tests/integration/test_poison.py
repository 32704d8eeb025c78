"""Messages that bite when they are published again (BROKER_FACTS.md), each kind on a real broker.

Each ends where the guarantees say: moved, with the property that bites set aside, or parked
unchanged in its queue's dead letter queue. The messages before and behind it always go through.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import quote

import pytest

from redrive.amqp import Delivery, Properties, Publish, fields
from redrive.amqp.lane import Connect
from redrive.domain import headers
from redrive.work.mover import Instruction, Limits
from tests.services.eventually import eventually_async
from tests.services.moving import (
    PARKED,
    SOURCE,
    TARGET,
    Kind,
    MoveTo,
    Running,
    as_published,
    copies,
    declare,
    holds,
    identities,
    identity,
    lay_out,
    marked,
    message,
    moving,
    publish,
    ready,
    take_all,
)
from tests.services.plugin import NewProxy, OwnNode, Vhost
from tests.services.proxy import Direction, ProxyConnection

both_kinds = pytest.mark.parametrize("kind", ["classic", "quorum"])

FRAME_MAX = 131_072
ROOM = FRAME_MAX - 8 - 12
"""Bytes of properties that fit: a frame has 8 bytes around its payload, a header frame 12 more."""
DAY = "86400000"


@contextmanager
def another_user(vhost: Vhost) -> Iterator[str]:
    """The vhost's URL for a user other than the publisher's."""
    node = vhost.node
    node.api("PUT", "users/mover", {"password": "mover", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    node.api("PUT", f"permissions/{quote(vhost.name)}/mover", everything)
    try:
        yield vhost.url.replace("guest:guest", "mover:mover")
    finally:
        node.api("DELETE", "users/mover")


@asynccontextmanager
async def moved_among_others(
    url: str, connect: Connect | str, poison: Publish, plan: MoveTo
) -> AsyncIterator[Running]:
    """Move the message with ten before it and ten behind it; leaves when those have arrived."""
    others = [message(f"{where}-{n}") for where in ("before", "behind") for n in range(10)]
    await publish(url, [*others[:10], poison, *others[10:]])
    async with moving(connect, plan) as running:
        yield running
        await eventually_async(lambda: running.settled >= 21)
    assert await ready(url, SOURCE) == 0
    assert running.sessions == 1, "poison costs no session"


async def moved_with_all_others(url: str) -> Delivery:
    """The message named poison, from the target, where all the others are as well."""
    found = copies(await take_all(url, TARGET))
    assert len(found) == 21
    (poison,) = found["poison"]
    assert await ready(url, PARKED) == 0
    return poison


async def parked_without_the_others(url: str, sent: Publish) -> Delivery:
    """The message named poison, from the dead letter queue, as it was sent; the others moved."""
    assert len(copies(await take_all(url, TARGET))) == 20
    await holds(url, PARKED, 1)
    (poison,) = await take_all(url, PARKED)
    assert poison.body == sent.body
    assert as_published(poison) == as_published(sent)
    return poison


# -- what is set aside ----------------------------------------------------------------------------


@both_kinds
async def test_the_user_id_of_another_user_is_set_aside(vhost: Vhost, kind: Kind) -> None:
    await lay_out(vhost.url, kind)
    poison = message("poison")
    poison.properties = Properties.read(poison.properties).with_text("user_id", "guest").raw
    with another_user(vhost) as url:
        async with moved_among_others(vhost.url, url, poison, MoveTo()):
            pass
    found = Properties.read((await moved_with_all_others(vhost.url)).properties)
    assert found.get("user_id") is None
    assert found.header_field(headers.USER_ID) == fields.longstr("guest")


@both_kinds
async def test_our_own_user_id_stays(vhost: Vhost, kind: Kind) -> None:
    await lay_out(vhost.url, kind)
    poison = message("poison")
    poison.properties = Properties.read(poison.properties).with_text("user_id", "guest").raw
    async with moved_among_others(vhost.url, vhost.url, poison, MoveTo()):
        pass
    found = await moved_with_all_others(vhost.url)
    assert as_published(found) == as_published(poison)


@both_kinds
async def test_cc_is_set_aside_and_the_message_is_not_multiplied(vhost: Vhost, kind: Kind) -> None:
    await lay_out(vhost.url, kind)
    await declare(vhost.url, "copied", kind)
    to_copied = fields.array([fields.longstr("copied")])
    poison = message("poison", {"CC": to_copied})
    async with moved_among_others(vhost.url, vhost.url, poison, MoveTo()):
        pass
    found = Properties.read((await moved_with_all_others(vhost.url)).properties)
    assert found.header_field(headers.CC) == to_copied
    assert found.header_field("CC") is None
    assert identities(await take_all(vhost.url, "copied")) == ["poison"], "the publisher's own copy"


@both_kinds
async def test_bcc_is_set_aside_and_the_message_is_not_multiplied(
    vhost: Vhost, proxy: NewProxy, kind: Kind
) -> None:
    # The broker strips BCC from what it routes: only a forged delivery has one.
    await lay_out(vhost.url, kind)
    await declare(vhost.url, "copied", kind)
    to_copied = fields.array([fields.longstr("copied")])
    connect = await forging(vhost, proxy, b"\x03B__A", b"\x03BCCA")
    poison = message("poison", {"B__": to_copied})
    async with moved_among_others(vhost.url, connect, poison, MoveTo()):
        pass
    found = Properties.read((await moved_with_all_others(vhost.url)).properties)
    assert found.header_field(headers.BCC) == to_copied
    assert await ready(vhost.url, "copied") == 0


@both_kinds
async def test_expiration_is_set_aside(vhost: Vhost, kind: Kind) -> None:
    await lay_out(vhost.url, kind)
    poison = message("poison")
    poison.properties = Properties.read(poison.properties).with_text("expiration", DAY).raw
    async with moved_among_others(vhost.url, vhost.url, poison, MoveTo()):
        pass
    found = Properties.read((await moved_with_all_others(vhost.url)).properties)
    assert found.get("expiration") is None
    assert found.header_field(headers.EXPIRATION) == fields.longstr(DAY)


# -- what does not fit ----------------------------------------------------------------------------


def filled(size: int) -> Publish:
    """A message whose properties have exactly so many bytes."""
    empty = message("poison", {"large": fields.longstr(b"")})
    filler = fields.longstr(b"x" * (size - len(empty.properties)))
    full = message("poison", {"large": filler})
    assert len(full.properties) == size
    return full


@both_kinds
async def test_headers_that_just_fit_are_moved(vhost: Vhost, kind: Kind) -> None:
    await lay_out(vhost.url, kind)
    poison = filled(ROOM)
    async with moved_among_others(vhost.url, vhost.url, poison, MoveTo()):
        pass
    assert as_published(await moved_with_all_others(vhost.url)) == as_published(poison)


@both_kinds
async def test_headers_that_no_longer_fit_with_ours_park_the_message(
    vhost: Vhost, kind: Kind
) -> None:
    await lay_out(vhost.url, kind)
    poison = filled(ROOM - 10)
    plan = MoveTo(put={b"redrive-attempt": fields.int32(1)})
    async with moved_among_others(vhost.url, vhost.url, poison, plan):
        pass
    await parked_without_the_others(vhost.url, poison)
    ((_, reason),) = plan.poison
    assert "bytes" in reason


@both_kinds
async def test_headers_over_frame_max_park_the_message(vhost: Vhost, kind: Kind) -> None:
    """Dead-lettering adds headers to a message that filled its frame: more than a frame arrives."""
    await lay_out(vhost.url, kind)
    to_source = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": SOURCE}
    await declare(vhost.url, "origin", kind, x_message_ttl=0, **to_source)
    poison = filled(ROOM)
    poison.routing_key = "origin"
    await publish(vhost.url, [poison])
    await holds(vhost.url, SOURCE, 1)
    plan = MoveTo()
    others = [message(f"behind-{n}") for n in range(10)]
    await publish(vhost.url, others)
    async with moving(vhost.url, plan) as running:
        await eventually_async(lambda: running.settled >= 11)
    assert len(copies(await take_all(vhost.url, TARGET))) == 10
    await holds(vhost.url, PARKED, 1)
    (found,) = await take_all(vhost.url, PARKED)
    assert as_published(found) == as_published(poison)
    assert running.sessions == 1


SET_LIMIT = """
application:set_env(rabbit, max_message_size, {size}),
persistent_term:put(max_message_size, {size}).
"""


async def test_a_body_over_the_brokers_limit_parks_the_message(own_node: OwnNode) -> None:
    node = own_node()
    await asyncio.to_thread(node.create_vhost, "v")
    await lay_out(node.url("/"), "classic")
    await lay_out(node.url("v"), "quorum")
    poison = message("poison", body=bytes(100_000))
    for vhost in ("/", "v"):
        await publish(node.url(vhost), [message("before"), poison, message("behind")])
    await asyncio.to_thread(node.ctl, "eval", SET_LIMIT.format(size=50_000))
    for vhost in ("/", "v"):
        url = node.url(vhost)
        plan = MoveTo()
        async with moving(url, plan) as running:
            await holds(url, PARKED, 1)
            await holds(url, TARGET, 2)
        ((_, reason),) = plan.poison
        assert "larger than" in reason
        assert set(identities(await take_all(url, TARGET))) == {"before", "behind"}
        (found,) = await take_all(url, PARKED)
        assert (identity(found), found.body) == ("poison", poison.body)
        assert as_published(found) == as_published(poison)
        assert running.sessions == 1


@both_kinds
async def test_a_routing_key_of_255_bytes_is_moved(vhost: Vhost, kind: Kind) -> None:
    longest = "k" * 255
    await lay_out(vhost.url, kind)
    await declare(vhost.url, longest, kind)
    poison = message("poison")

    class ByKey(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            copy = self.copy_of(delivery, user)
            copy.routing_key = longest if identity(delivery) == "poison" else TARGET
            return copy

    async with moved_among_others(vhost.url, vhost.url, poison, ByKey()):
        pass
    assert identities(await take_all(vhost.url, longest)) == ["poison"]
    assert len(await take_all(vhost.url, TARGET)) == 20


@both_kinds
async def test_a_routing_key_that_grew_beyond_255_bytes_parks_the_message(
    vhost: Vhost, kind: Kind
) -> None:
    class Longer(MoveTo):
        def decide(self, delivery: Delivery, user: str) -> Instruction:
            copy = self.copy_of(delivery, user)
            if identity(delivery) == "poison":
                copy.routing_key = f"binding.{'k' * 255}.1"
            return copy

    await lay_out(vhost.url, kind)
    poison = message("poison")
    plan = Longer()
    async with moved_among_others(vhost.url, vhost.url, poison, plan):
        pass
    await parked_without_the_others(vhost.url, poison)
    assert "255" in plan.poison[0][1]


# -- NaN ------------------------------------------------------------------------------------------

PLAIN = b"d" + struct.pack(">d", 1.2345678)
NOT_A_NUMBER = b"d" + struct.pack(">d", float("nan"))
INFINITE = b"d" + struct.pack(">d", float("-inf"))


async def forging(vhost: Vhost, proxy: NewProxy, plain: bytes, forged: bytes) -> str:
    """A URL by which deliveries arrive with some bytes changed."""
    way = await proxy("127.0.0.1", vhost.node.port)

    def forge(_: ProxyConnection, direction: Direction, data: bytes) -> bytes | None:
        return data.replace(plain, forged) if direction is Direction.RECEIVED else None

    way.hook = forge
    return way.through(vhost.url)


@both_kinds
@pytest.mark.parametrize("bad", [NOT_A_NUMBER, INFINITE])
async def test_a_delivery_with_a_header_that_is_no_number_parks(
    vhost: Vhost, proxy: NewProxy, kind: Kind, bad: bytes
) -> None:
    # No broker takes such a header: it is forged on the way to us.
    await lay_out(vhost.url, kind)
    poison = message("poison", {"deep": fields.array([fields.table({"n": PLAIN})])})
    plan = MoveTo()
    connect = await forging(vhost, proxy, PLAIN, bad)
    async with moved_among_others(vhost.url, connect, poison, plan):
        pass
    await parked_without_the_others(vhost.url, poison)
    assert "NaN" in plan.poison[0][1]


@both_kinds
async def test_a_plan_that_adds_a_header_that_is_no_number_parks_the_message(
    vhost: Vhost, kind: Kind
) -> None:
    class AddsNaN(MoveTo):
        def copy_of(self, delivery: Delivery, user: str) -> Publish:
            self.put = {b"n": NOT_A_NUMBER} if identity(delivery) == "poison" else None
            return super().copy_of(delivery, user)

    await lay_out(vhost.url, kind)
    poison = message("poison")
    plan = AddsNaN()
    async with moved_among_others(vhost.url, vhost.url, poison, plan):
        pass
    await parked_without_the_others(vhost.url, poison)
    assert [identity(delivery) for delivery, _ in plan.poison] == ["poison"]


# -- in the middle of a window --------------------------------------------------------------------


@both_kinds
async def test_poison_in_the_middle_of_500_costs_none_of_the_others_and_duplicates_are_marked(
    vhost: Vhost, proxy: NewProxy, kind: Kind
) -> None:
    class OneForeign(MoveTo):
        """Leaves a foreign user_id in, on which the broker closes the channel."""

        def copy_of(self, delivery: Delivery, user: str) -> Publish:
            copy = super().copy_of(delivery, user)
            if identity(delivery) == "250":
                foreign = Properties.read(copy.properties).with_text("user_id", "nobody")
                copy.properties = foreign.raw
            return copy

    await lay_out(vhost.url, kind)
    way = await proxy("127.0.0.1", vhost.node.port)
    plan = OneForeign()
    sent = [message(number) for number in range(500)]
    async with moving(way.through(vhost.url), plan, limits=Limits(prefetch=500)) as running:
        await running.consumes(vhost.url)
        lane = way.connections[-1]
        held: list[bytes] = []

        def hold_the_lane(
            connection: ProxyConnection, direction: Direction, data: bytes
        ) -> bytes | None:
            """Holds publishes back until all 500 are under way, so that they are one window."""
            if connection is not lane or direction is Direction.RECEIVED:
                return None
            held.append(data)
            if len(plan.decided) < 500:
                return b""
            way.hook = None
            return b"".join(held)

        way.hook = hold_the_lane
        await publish(vhost.url, sent)
        await holds(vhost.url, PARKED, 1)
        await eventually_async(lambda: running.moved == 499)
    assert [identity(delivery) for delivery, _ in plan.poison] == ["250"]
    (parked,) = await take_all(vhost.url, PARKED)
    assert (as_published(parked), parked.body) == (as_published(sent[250]), b"250")
    found = copies(await take_all(vhost.url, TARGET))
    assert set(found) == {str(number) for number in range(500)} - {"250"}
    for each in found.values():
        assert [marked(copy) for copy in each] in ([False], [True], [False, True])
    assert running.sessions == 1
