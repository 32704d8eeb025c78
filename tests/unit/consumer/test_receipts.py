"""Receipts: for replays only, and for none whose headers are somebody else's."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from redrive.amqp import Delivery, Properties, fields
from redrive.consumer.receipts import Receipts
from redrive.domain import headers

LETTER = fields.longstr("a-letter")


def delivered(**put: bytes) -> Delivery:
    found = {f"redrive-{name}": field for name, field in put.items()}
    properties = Properties.empty().with_headers(found).persistent()
    return Delivery(1, False, "", "orders", properties.raw, b"")


def test_a_replay_has_a_receipt_with_its_letter_and_generation() -> None:
    assert {headers.LETTER, headers.GENERATION} == {"redrive-letter", "redrive-generation"}
    made = Receipts("receipts", "orders").of(delivered(letter=LETTER, generation=fields.int32(2)))
    assert made is not None
    assert json.loads(made.body) == {"letter": "a-letter", "generation": 2, "queue": "orders"}


@pytest.mark.parametrize(
    "generation",
    [
        fields.timestamp(datetime.now(UTC)),
        fields.boolean(True),
        fields.longstr("2"),
        fields.array([]),
        b"x\x00\x00\x00\x01a",
    ],
    ids=["timestamp", "boolean", "text", "array", "bytes"],
)
def test_a_generation_that_is_no_number_has_none(generation: bytes) -> None:
    receipts = Receipts("receipts", "orders")
    assert receipts.of(delivered(letter=LETTER, generation=generation)) is None


def test_a_letter_without_a_generation_or_that_is_no_text_has_none() -> None:
    receipts = Receipts("receipts", "orders")
    assert receipts.of(delivered(letter=LETTER)) is None
    assert receipts.of(delivered(letter=fields.int32(7), generation=fields.int32(2))) is None
