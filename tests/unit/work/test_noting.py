"""What is noted on a message before it is moved elsewhere."""

from __future__ import annotations

import pytest

from redrive.amqp import Delivery, Properties, fields
from redrive.domain import headers
from redrive.work.noting import Notes

LETTER = "0190d6e4-7a3b-7c00-9000-0123456789ab"


def noted(put: dict[str, bytes], *, reason: str = "rejected") -> Properties:
    """The properties of the copy of a message that died in `orders`."""
    death = {"queue": fields.longstr("orders"), "reason": fields.longstr(reason)}
    found = {"x-death": fields.array([fields.table(death)]), **put}
    raw = Properties.empty().with_headers(found).raw
    draft = Notes((), "orders.dlq").draft(Delivery(1, False, "", "k", raw, b"{}"), "guest")
    return Properties.read(draft.seal())


def test_what_was_noted_in_another_queue_starts_anew_and_names_its_letter_as_the_parent() -> None:
    found = noted(
        {
            headers.QUEUE: fields.longstr("payments"),
            headers.LETTER: fields.longstr(LETTER),
            headers.GENERATION: fields.int32(1),
            headers.ATTEMPT: fields.int32(3),
        }
    )
    assert found.header(headers.QUEUE) == "orders"
    assert found.header(headers.PARENT) == LETTER
    assert found.header(headers.LETTER) is None
    assert found.header(headers.ATTEMPT) is None


@pytest.mark.parametrize(
    ("reason", "word"), [("rejected", "TIMEOUT"), ("expired", None), ("maxlen", None)]
)
def test_what_a_consumer_said_goes_along_unless_the_message_died_without_one(
    reason: str, word: str | None
) -> None:
    said = {
        headers.QUEUE: fields.longstr("orders"),
        headers.ERROR_TYPE: fields.longstr("TIMEOUT"),
    }
    assert noted(said, reason=reason).header(headers.ERROR_TYPE) == word
