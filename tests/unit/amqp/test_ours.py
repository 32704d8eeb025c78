"""When what was noted of a failure is forgotten: it failed in another queue since."""

from __future__ import annotations

import pytest

from redrive.amqp import fields
from redrive.amqp.fields import octets
from redrive.amqp.ours import move_on
from redrive.domain import headers

S = fields.longstr
ATTEMPT, QUEUE = octets(headers.ATTEMPT), octets(headers.QUEUE)
BY_EXCHANGE, ID = octets(headers.BY_EXCHANGE), octets(headers.ID)


def noted(**changes: bytes) -> dict[bytes, bytes]:
    """Of a message that queue `one` had sent back by its exchange."""
    ours = {
        ID: S("0198-id"),
        QUEUE: S("one"),
        octets(headers.EXCHANGE): S("work"),
        octets(headers.ROUTING_KEY): S("k"),
        ATTEMPT: fields.int32(2),
        BY_EXCHANGE: S("one"),
    }
    return ours | {octets(f"redrive-{name}".replace("_", "-")): x for name, x in changes.items()}


def test_a_copy_that_came_beside_counts_on_and_says_for_whom_it_came() -> None:
    ours = noted()
    move_on(ours, S("two"), S("work"), S("k"))
    assert ours == {
        QUEUE: S("two"),
        ATTEMPT: fields.int32(2),
        BY_EXCHANGE: S("one"),
    }


@pytest.mark.parametrize(
    "ours",
    [
        noted(by_exchange=S("zero")),
        noted(exchange=S("other")),
        noted(routing_key=S("other")),
    ],
    ids=["came beside before", "another exchange", "another key"],
)
def test_a_message_that_a_consumer_passed_on_starts_anew(ours: dict[bytes, bytes]) -> None:
    move_on(ours, S("two"), S("work"), S("k"))
    assert ours == {QUEUE: S("two")}
