"""Every publish has the right outcome, also where message ids repeat."""

from __future__ import annotations

import random
import struct

import pytest

from redrive.amqp import (
    Channel,
    Confirmed,
    Connection,
    Publish,
)
from tests.services.wiring import (
    FIELDS,
    KINDS,
    NAMES,
    outcomes_of,
)
from tests.strategies import Entry, inside_of, sized


def _random_message(dice: random.Random, key: str) -> Publish:
    """A message like others: three ids, few bodies, headers that a broker rewrites."""
    entries: list[Entry] = [
        (dice.choice(NAMES), dice.choice(FIELDS)) for _ in range(dice.randrange(4))
    ]
    if dice.random() < 0.3:
        copy_to = sized(b"S", b"nowhere")
        entries.insert(dice.randrange(len(entries) + 1), (b"BCC", sized(b"A", copy_to)))
    inside = inside_of(entries)
    ident = dice.choice([b"one", b"two", b"three"])
    raw = b"".join(
        (
            struct.pack(">H", 0x2000 | 0x0080),
            struct.pack(">I", len(inside)),
            inside,
            bytes((len(ident),)),
            ident,
        )
    )
    return Publish("e", key, raw, dice.choice([b"", b"x", b"y" * 1000]))


@pytest.mark.parametrize("kind", KINDS)
async def test_of_200_rounds_of_publishes_with_equal_ids_half_unroutable_every_outcome_is_right(
    connection: Connection, channel: Channel, kind: str
) -> None:
    await channel.declare_exchange("e", "direct")
    await channel.declare_queue("q", arguments={"x-queue-type": kind})
    await channel.bind_queue("q", "e", "bound")
    publisher = await (await connection.channel()).publisher()
    dice = random.Random(20)
    wrong: list[tuple[int, Publish, object]] = []
    for number in range(200):
        # the same few messages under both keys, so that only the key tells them apart
        messages = [_random_message(dice, "") for _ in range(12)]
        sent = 0
        for _ in range(50):
            like = dice.choice(messages)
            key = dice.choice(["bound", "unbound"])
            publisher.publish(Publish("e", key, like.properties, like.body))
            sent += 1
        wrong += [
            (number, publish, outcome)
            for publish, outcome in await outcomes_of(publisher, sent)
            if (publish.routing_key == "bound") is not (outcome == Confirmed())
        ]
    assert wrong == []


@pytest.mark.parametrize("kind", KINDS)
async def test_of_equal_messages_to_a_queue_that_comes_and_goes_each_is_told_apart_by_headers(
    connection: Connection, channel: Channel, kind: str
) -> None:
    """A headers exchange routes by one header: everything else is equal, the key too."""
    await channel.declare_exchange("h", "headers")
    await channel.declare_queue("q", arguments={"x-queue-type": kind})
    await channel.bind_queue("q", "h", "", {"x-match": "all", "go": "yes"})
    publisher = await (await connection.channel()).publisher()
    dice = random.Random(21)
    wrong = []
    for _ in range(50):
        for _ in range(40):
            go = dice.choice([b"yes", b"no"])
            others: list[Entry] = [
                (b"n%d" % at, dice.choice(FIELDS)) for at in range(dice.randrange(3))
            ]
            entries = [*others, (b"go", sized(b"S", go))]
            dice.shuffle(entries)
            inside = inside_of(entries)
            raw = b"\x20\x00" + struct.pack(">I", len(inside)) + inside
            publisher.publish(Publish("h", "", raw, b"same", go))
        wrong += [
            (publish, outcome)
            for publish, outcome in await outcomes_of(publisher, 40)
            if (publish.context == b"yes") is not (outcome == Confirmed())
        ]
    assert wrong == []
