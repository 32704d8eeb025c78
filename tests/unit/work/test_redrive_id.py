"""The `redrive-id` of fixed messages: a message that was under way before an upgrade, and is
delivered again after it, must get the id that its first copy has."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redrive.amqp import Delivery, Properties, Publish, fields
from redrive.domain import headers
from redrive.domain.policy import Policy, PolicyBook
from redrive.settings.sections import TopologySettings
from redrive.work.retrier import retry_names
from redrive.work.retry_plan import RetryPlan
from tests.unit.work.stub_path import StubPath

BOOK = PolicyBook(file=[Policy(name="#", max_retries=2)])
DIED_AT = datetime(2026, 11, 16, 2, 48, 31, tzinfo=UTC)


def death(queue: bytes = b"orders", count: bytes | None = None, **more: bytes) -> bytes:
    return fields.table(
        {
            "count": fields.int64(1) if count is None else count,
            "reason": fields.longstr("rejected"),
            "queue": fields.longstr(queue),
            "time": fields.timestamp(DIED_AT),
            "exchange": fields.longstr("shop"),
            "routing-keys": fields.array([fields.longstr("order.created")]),
        }
        | more
    )


def delivery(
    put: dict[str, bytes],
    *,
    message_id: str | None = None,
    body: bytes = b'{"order": 1}',
    key: str = "order.created",
) -> Delivery:
    properties = Properties.empty().with_text("content_type", "application/json").persistent()
    if message_id is not None:
        properties = properties.with_text("message_id", message_id)
    return Delivery(1, False, "retry-exchange", key, properties.with_headers(put).raw, body)


ONE = {"x-death": fields.array([death()])}
TENANT = {"tenant": fields.longstr("t-1")}
GOLDEN = {
    "with a message id": (
        delivery(TENANT | ONE, message_id="m-1"),
        "0d01fc10-73e3-81c8-a72f-6698a8f9be33",
    ),
    "without a message id": (delivery(TENANT | ONE), "462c2862-3de8-845c-879b-085cf4e9232a"),
    "a large binary body": (
        delivery(ONE, message_id="m-1", body=bytes(range(256)) * 64),
        "39627c09-913d-8089-b626-ceb6becc94c6",
    ),
    "an empty body": (delivery(ONE, body=b""), "94b31cb4-8920-85ca-9c4f-7d5bd8247659"),
    "headers on both sides of the death": (
        delivery({"a": b"V"} | ONE | {"z": fields.int64(-1), "x-delivery-count": fields.int64(3)}),
        "392ebbe7-9e7c-80d2-83fc-7e8cb32d8ce6",
    ),
    "a queue and a key that are not UTF-8": (
        delivery(
            {"x-death": fields.array([death(b"caf\xe9")])}, message_id="m", key="order.\udce9"
        ),
        "b2e68645-17c7-8b15-bf52-249aa8674836",
    ),
    "died five times": (
        delivery({"x-death": fields.array([death(count=fields.int64(5))])}, message_id="m-1"),
        "fff5618f-e413-8664-8a8e-c98b83badf79",
    ),
    "a count that is text": (
        delivery({"x-death": fields.array([death(count=fields.longstr("5"))])}, message_id="m-1"),
        "8e2c1328-c54a-818c-8d8e-77a6d430ea98",
    ),
    "a death without a reason": (
        delivery({"x-death": fields.array([death(reason=b"V")])}, message_id="m-1"),
        "3030075a-d0fe-829f-a09e-2735d11d9051",
    ),
    "several deaths, the newest in a queue of ours": (
        delivery(
            {"x-death": fields.array([death(b"queue.delay.1"), death(b"orders"), death(b"old")])},
            message_id="m-1",
        ),
        "8e2c1328-c54a-818c-8d8e-77a6d430ea98",
    ),
    "several deaths without a message id": (
        delivery({"x-death": fields.array([death(b"orders"), death(b"old")])}),
        "39d1e25c-c067-8d6d-967f-4f7124089742",
    ),
    "a consumer that publishes to the retry exchange itself": (
        delivery(TENANT | {headers.QUEUE: fields.longstr("orders")}, message_id="m-1"),
        "0d01fc10-73e3-81c8-a72f-6698a8f9be33",
    ),
    "moved on from another queue": (
        delivery(
            ONE | {headers.QUEUE: fields.longstr("old"), headers.ID: fields.longstr("other")},
            message_id="m-1",
        ),
        "8e2c1328-c54a-818c-8d8e-77a6d430ea98",
    ),
    "set aside what would multiply it": (
        delivery(ONE | {"CC": fields.array([fields.longstr("b")])}, message_id="m-1"),
        "8e2c1328-c54a-818c-8d8e-77a6d430ea98",
    ),
    "an id that it has already": (
        delivery(
            ONE | {headers.QUEUE: fields.longstr("orders"), headers.ID: fields.longstr("mine")}
        ),
        "mine",
    ),
}


def id_of(message: Delivery) -> object:
    plan = RetryPlan(retry_names(TopologySettings(), ()), lambda: BOOK, StubPath())
    sent = plan.decide(message, "guest")
    assert isinstance(sent, Publish)
    return Properties.read(sent.properties).header(headers.ID)


@pytest.mark.parametrize(("message", "expected"), GOLDEN.values(), ids=GOLDEN.keys())
def test_the_id_of_a_message_is_what_it_always_was(message: Delivery, expected: str) -> None:
    assert id_of(message) == expected
