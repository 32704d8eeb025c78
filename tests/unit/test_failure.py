"""What failed, read from the headers of any framework."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain import failure
from redrive.domain.failure import Failure, failed_queue, published_to, read_failure

SPRING_STACK = """\
org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener method 'x' threw
\tat org.springframework.amqp.rabbit.listener.Adapter.invoke(Adapter.java:12)
Caused by: com.acme.PricingException: no price
\tat com.acme.Pricing.quote(Pricing.java:7)
Caused by: java.net.SocketTimeoutException: Read timed out
\tat java.base/java.net.Socket.read(Socket.java:1)
"""
SPRING = {
    "x-exception-message": "no price",
    "x-exception-stacktrace": SPRING_STACK,
    "x-original-exchange": "orders",
    "x-original-routingKey": "order.created",
}
MASSTRANSIT = {
    "MT-Reason": "fault",
    "MT-Fault-ExceptionType": "System.TimeoutException",
    "MT-Fault-Message": "The operation has timed out.",
    "MT-Fault-StackTrace": "   at Acme.Consumer.Consume()",
    "MT-Fault-InputAddress": "rabbitmq://broker/shop/orders-in?durable=true",
}
NSERVICEBUS = {
    "NServiceBus.ExceptionInfo.ExceptionType": "System.Exception",
    "NServiceBus.ExceptionInfo.Message": "Bad thing happened",
    "NServiceBus.ExceptionInfo.StackTrace": "System.Exception: Bad thing happened\n   at A.B()",
    "NServiceBus.FailedQ": "Sales@MACHINE",
}
CELERY: dict[str, object] = {
    "lang": "py",
    "task": "shop.tasks.charge",
    "id": "0d7ee1cf-2c9f-4e39-9b7a-8a1d8a2a2c11",
    "retries": 3,
    "argsrepr": "(1,)",
}
GAVE_UP = {
    "redrive-error-type": "REJECTED",
    "redrive-error-reason": "gave up after 3 retries in queue 'orders'",
}

KEYS = [
    *(value for name, value in vars(failure).items() if name.isupper() and isinstance(value, str)),
    "redrive-error-type",
    "redrive-error-reason",
    "redrive-error-stack",
    "lang",
]
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.datetimes()
    | st.binary()
    | st.text(st.characters(), max_size=300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
tables = st.dictionaries(st.sampled_from(KEYS) | st.text(), values)


def test_redrives_own_headers_come_before_all_others() -> None:
    headers = {
        "redrive-error-type": "CARD_DECLINED",
        "redrive-error-reason": "declined",
        "redrive-error-stack": "Traceback",
        **SPRING,
        **MASSTRANSIT,
    }
    assert read_failure(headers, "rejected") == Failure(
        error_type="CARD_DECLINED", reason="declined", stack="Traceback"
    )


def test_a_stack_of_another_convention_is_not_mixed_in() -> None:
    headers = {"redrive-error-type": "CARD_DECLINED", **SPRING}
    assert read_failure(headers, None) == Failure(
        error_type="CARD_DECLINED", reason="CARD_DECLINED without a message", stack=None
    )


@pytest.mark.parametrize(
    ("framework", "error_type"),
    [
        (SPRING, "java.net.SocketTimeoutException"),
        (MASSTRANSIT, "System.TimeoutException"),
        (NSERVICEBUS, "System.Exception"),
    ],
)
def test_a_frameworks_exception_explains_more_than_that_the_retrier_gave_up(
    framework: dict[str, object], error_type: str
) -> None:
    assert read_failure({**GAVE_UP, **framework}, "rejected").error_type == error_type


def test_that_the_retrier_gave_up_is_the_reason_where_nothing_says_more() -> None:
    assert read_failure(GAVE_UP, "expired") == Failure(
        error_type="REJECTED", reason="gave up after 3 retries in queue 'orders'"
    )


def test_of_springs_wrapper_the_root_cause_is_the_type_and_its_header_the_reason() -> None:
    found = read_failure(SPRING, "rejected")
    assert (found.error_type, found.reason) == ("java.net.SocketTimeoutException", "no price")
    assert found.stack == SPRING_STACK.strip()


def test_without_springs_wrapper_the_exception_at_the_top_is_the_type() -> None:
    stack = "com.acme.A: first\n\tat com.acme.X.y(X.java:1)\nCaused by: com.acme.B: second\n"
    found = read_failure({"x-exception-stacktrace": stack}, None)
    assert (found.error_type, found.reason) == ("com.acme.A", "first")


def test_a_cause_that_spring_cut_within_its_name_is_passed_over() -> None:
    stack = SPRING_STACK[: SPRING_STACK.index("SocketTimeout") + 6]
    found = read_failure({"x-exception-stacktrace": stack}, None)
    assert (found.error_type, found.reason) == ("com.acme.PricingException", "no price")


@pytest.mark.parametrize("stack", ["com.acme.Foo.bar(Foo.java:1)\nx", "went wrong", "\n\n?"])
def test_a_stack_in_another_form_gives_no_type(stack: str) -> None:
    assert read_failure({"x-exception-stacktrace": stack}, "rejected").error_type == "REJECTED"


def test_masstransits_fault_headers_are_read() -> None:
    assert read_failure(MASSTRANSIT, None) == Failure(
        error_type="System.TimeoutException",
        reason="The operation has timed out.",
        stack="at Acme.Consumer.Consume()",
    )


def test_a_message_that_masstransit_skipped_says_so() -> None:
    found = read_failure({"MT-Reason": "dead-letter"}, None)
    assert found == Failure(error_type="UNKNOWN", reason="set aside by MassTransit: dead-letter")


def test_nservicebus_headers_are_read() -> None:
    found = read_failure(NSERVICEBUS, None)
    assert (found.error_type, found.reason) == ("System.Exception", "Bad thing happened")


def test_of_a_mere_carrier_the_inner_exception_is_the_type() -> None:
    headers = {
        **NSERVICEBUS,
        "NServiceBus.ExceptionInfo.ExceptionType": "System.AggregateException",
        "NServiceBus.ExceptionInfo.InnerExceptionType": "System.IO.IOException",
    }
    assert read_failure(headers, None).error_type == "System.IO.IOException"


def test_of_a_celery_message_the_task_and_its_retries_are_known() -> None:
    assert read_failure(CELERY, "rejected") == Failure(
        error_type="REJECTED", reason="Celery task shop.tasks.charge rejected after 3 retries"
    )


def test_a_celery_task_that_the_retrier_gave_up_is_named() -> None:
    assert read_failure({**CELERY, **GAVE_UP}, "rejected").reason == (
        "Celery task shop.tasks.charge: gave up after 3 retries in queue 'orders'"
    )


def test_headers_that_happen_to_be_named_task_and_id_do_not_make_a_celery_message() -> None:
    found = read_failure({"task": "x", "id": "y"}, "rejected")
    assert found.reason == "rejected by the consumer of its queue without a reason"


@pytest.mark.parametrize(
    ("death", "error_type"),
    [
        ("rejected", "REJECTED"),
        ("expired", "EXPIRED"),
        ("maxlen", "MAX_LENGTH"),
        ("delivery_limit", "DELIVERY_LIMIT"),
        ("else", "UNKNOWN"),
        (None, "UNKNOWN"),
    ],
)
def test_without_failure_headers_the_death_says_what_it_can(
    death: str | None, error_type: str
) -> None:
    found = read_failure({}, death)
    assert found.error_type == error_type
    assert found.reason
    assert found.stack is None


@pytest.mark.parametrize("value", [7, b"x", None, ["x"], {}, True, Decimal(1), datetime.now(UTC)])
def test_a_value_of_a_wrong_type_counts_as_not_there(value: object) -> None:
    assert read_failure(dict.fromkeys(KEYS, value), "expired") == read_failure({}, "expired")
    assert failed_queue(dict.fromkeys(KEYS, value)) is None
    assert published_to(dict.fromkeys(KEYS, value)) == (None, None)


@pytest.mark.parametrize(
    ("headers", "queue"),
    [
        ({"NServiceBus.FailedQ": "Sales@MACHINE"}, "Sales"),
        ({"NServiceBus.FailedQ": "Sales"}, "Sales"),
        ({"NServiceBus.FailedQ": "rabbitmq://broker/shop/orders-in"}, "orders-in"),
        ({"MT-Fault-InputAddress": "rabbitmq://b/shop/orders-in?durable=true"}, "orders-in"),
        ({"MT-Fault-InputAddress": "amqps://b:5671/orders-in"}, "orders-in"),
        ({"MT-Fault-InputAddress": "queue:orders-in"}, "orders-in"),
        ({"MT-Fault-InputAddress": "rabbitmq://broker"}, None),
        ({"MT-Fault-InputAddress": "rabbitmq://broker/"}, None),
        ({"MT-Fault-InputAddress": "orders"}, None),
        ({"MT-Fault-InputAddress": f"rabbitmq://b/{'q' * 256}"}, None),
        ({"NServiceBus.FailedQ": "a\x00b"}, None),
        ({}, None),
    ],
)
def test_the_queue_that_failed_is_known_without_a_death(
    headers: dict[str, object], queue: str | None
) -> None:
    assert failed_queue(headers) == queue


def test_springs_original_exchange_and_key_are_known_also_if_empty() -> None:
    assert published_to(SPRING) == ("orders", "order.created")
    assert published_to({"x-original-exchange": "", "x-original-routingKey": ""}) == ("", "")
    assert published_to({}) == (None, None)


def test_text_is_made_storable() -> None:
    found = read_failure({"redrive-error-type": "A\x00B", "redrive-error-reason": "\ud800x"}, None)
    assert (found.error_type, found.reason) == ("A\ufffdB", "\ufffdx")


def test_long_texts_are_cut_with_a_mark_and_a_stack_keeps_both_ends() -> None:
    found = read_failure(
        {
            "redrive-error-type": "T" * 300,
            "redrive-error-reason": "é" * 9_000,
            "redrive-error-stack": "first\n" + "x" * 300_000 + "\nlast",
        },
        None,
    )
    assert found.error_type == "T" * 199 + "…"
    assert len(found.reason.encode()) <= 8 * 1024
    assert found.reason.endswith("é…")
    assert found.stack is not None
    assert len(found.stack.encode()) <= 64 * 1024
    assert found.stack.startswith("first\n")
    assert "\n… cut here …\n" in found.stack
    assert found.stack.endswith("\nlast")


@given(tables, st.none() | st.text())
def test_nothing_raises_and_everything_is_bounded_and_storable(
    headers: dict[str, object], death: str | None
) -> None:
    found = read_failure(headers, death)
    assert 0 < len(found.error_type) <= failure.MAX_TYPE
    assert 0 < len(found.reason.encode()) <= failure.MAX_REASON
    assert found.stack is None or 0 < len(found.stack.encode()) <= failure.MAX_STACK
    assert "\x00" not in found.error_type + found.reason + (found.stack or "")
    for name in (failed_queue(headers), *published_to(headers)):
        assert name is None or len(name.encode()) <= failure.MAX_NAME
