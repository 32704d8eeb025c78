"""What is understood of a dead message: where, why, when and how often it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as fields_of
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from redrive import runtime
from redrive.amqp import Delivery, Properties, fields
from redrive.domain.deaths import Death
from redrive.domain.failure import MAX_REASON, MAX_STACK, NAMES
from redrive.domain.headers import TAGS, WRITTEN, X_DEATH
from redrive.domain.letter import Arrival, Letter, Replayed
from redrive.domain.lifecycle import State
from redrive.work.understand import Understanding
from tests.services.consuming import settings_for
from tests.services.letters import BEGAN, OWN, STATE, arrival, death, died_in
from tests.strategies import fields as any_field
from tests.strategies import (
    hostile_sections,
    inside_of,
    sections,
    sized,
)

S = fields.longstr
NOW = BEGAN.replace(microsecond=123000)


def at(second: int) -> datetime:
    return BEGAN.replace(microsecond=0) + timedelta(seconds=second)


def origin(found: Arrival) -> tuple[str | None, str, str]:
    letter = found.letter
    return letter.queue, letter.exchange, letter.routing_key


# Whatever is in it

names_that_say_something = st.sampled_from(
    [name.encode() for name in (*WRITTEN, X_DEATH, TAGS, *NAMES)]
)
long_texts = st.sampled_from([b"\x00\xff", b"x" * 70_000, "é\x00漢".encode() * 30_000]).map(
    lambda body: sized(b"S", body)
)
deaths = st.lists(
    st.builds(
        lambda queue, when: sized(
            b"F", inside_of([(b"queue", sized(b"S", queue)), (b"time", when)])
        ),
        st.binary(max_size=300),
        st.one_of(
            any_field(depth=0),
            st.sampled_from([b"0001-01-01T00:00:00+14:00", b"9999-12-31T23:59:59-14:00"]).map(
                lambda text: sized(b"S", text)
            ),
        ),
    ),
    max_size=60,
).map(lambda items: sized(b"A", b"".join(items)))
telling_headers = st.lists(
    st.tuples(names_that_say_something, st.one_of(any_field(depth=1), long_texts, deaths)),
    max_size=8,
)
any_section = st.one_of(
    sections(entries=telling_headers).map(lambda each: each.raw),
    sections().map(lambda each: each.raw),
    hostile_sections(),
    st.binary(max_size=60),
)


def understood(section: bytes, body: bytes = b"", **names: str) -> Arrival:
    reader = Understanding("/", OWN, {"dlq-queue", "redrive-receipts"})
    delivery = Delivery(
        1, False, names.get("exchange", "dlx"), names.get("routing_key", "key"), section, body
    )
    return reader.arrival(delivery, "foreign.dlq", now=BEGAN, random=7, state=STATE)


def texts_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, tuple):
        return [text for item in value for text in texts_of(item)]
    if isinstance(value, Death):
        return texts_of((value.queue, value.reason, value.exchange, value.routing_keys))
    return []


def assert_storable(letter: Letter) -> None:
    for field in fields_of(letter):
        for text in texts_of(getattr(letter, field.name)):
            assert "\0" not in text, field.name
            text.encode()  # no half of a surrogate pair
    named = (letter.exchange, letter.routing_key, letter.source, letter.message_id)
    assert all(len(text) <= 255 for text in named)
    assert len(letter.queue or "") <= 255
    assert len(letter.content_type or "") <= 255
    assert len(letter.content_encoding or "") <= 255
    assert len(letter.error_type) <= 200
    assert len(letter.error_reason.encode()) <= MAX_REASON
    assert len((letter.error_stack or "").encode()) <= MAX_STACK
    assert len(letter.deaths) <= 50
    assert all(len(each.queue) <= 255 and len(each.routing_keys) <= 20 for each in letter.deaths)
    assert all(0 < each.count < 2**31 for each in letter.deaths)
    assert len(letter.tags) <= 50
    assert all(0 < len(tag) <= 100 for tag in letter.tags)
    assert 0 <= letter.retry_count < 2**31
    assert 0 <= letter.priority <= 255
    assert len(letter.fingerprint) == 16
    moments = [letter.first_failed_at, letter.last_failed_at, letter.created_at]
    moments += [each.at for each in letter.deaths if each.at is not None]
    for moment in moments:
        assert moment.tzinfo is UTC
        assert moment.microsecond % 1000 == 0
        assert 1 <= (moment - timedelta(days=1)).year <= (moment + timedelta(hours=23)).year <= 9999
    assert letter.first_failed_at <= letter.last_failed_at


@given(any_section, st.binary(max_size=40), st.binary(max_size=255), st.binary(max_size=255))
def test_nothing_that_a_message_holds_makes_it_fail_or_cannot_be_stored(
    section: bytes, body: bytes, exchange: bytes, routing_key: bytes
) -> None:
    names = {"exchange": fields.text(exchange), "routing_key": fields.text(routing_key)}
    with structlog.testing.capture_logs() as said:
        found = understood(section, body, **names)
    assert not said, "what is in it was not foreseen"
    envelope, letter = found.envelope, found.letter
    assert (envelope.properties, envelope.body) == (section, body)
    assert (fields.octets(envelope.exchange), fields.octets(envelope.routing_key)) == (
        exchange,
        routing_key,
    )
    assert (envelope.queue, letter.collected_from) == ("foreign.dlq", "foreign.dlq")
    assert letter.status is State.PENDING
    assert (letter.size, letter.created_at) == (len(body), NOW)
    assert str(UUID(letter.id)) == letter.id
    assert_storable(letter)
    if found.replayed is not None:
        UUID(found.replayed.letter)


@given(any_section)
def test_the_same_message_is_understood_in_the_same_way_each_time(section: bytes) -> None:
    assert understood(section) == understood(section)


@pytest.mark.parametrize(
    "section", [b"", b"\x20\x00", b"\x20\x00\x00\x00\x00\x05\x01aS\x00\x00", b"\x00\x01", b"\xff"]
)
def test_a_message_that_cannot_be_read_is_a_letter_that_says_so(section: bytes) -> None:
    found = understood(section, b"body")
    assert found.letter.error_type == "UNKNOWN"
    assert "cannot be read" in found.letter.error_reason
    assert found.letter.queue is None
    assert (found.envelope.properties, found.envelope.body) == (section, b"body")


# Where it failed


def test_a_message_that_a_consumer_rejected_failed_in_that_consumers_queue() -> None:
    found = arrival(headers=died_in("orders", at=-5), queue="orders.dlq")
    letter = found.letter
    assert origin(found) == ("orders", "shop", "order.created")
    assert letter.collected_from == "orders.dlq"
    assert (letter.error_type, letter.retry_count) == ("REJECTED", 0)
    assert (letter.first_failed_at, letter.last_failed_at) == (at(-5), at(-5))
    assert [each.queue for each in letter.deaths] == ["orders"]
    assert letter.source == "orders"
    assert found.redrive_id is None
    assert found.replayed is None


@pytest.mark.parametrize(
    ("reason", "error_type"),
    [("expired", "EXPIRED"), ("maxlen", "MAX_LENGTH"), ("delivery_limit", "DELIVERY_LIMIT")],
)
def test_without_a_word_from_the_consumer_the_brokers_reason_is_the_error(
    reason: str, error_type: str
) -> None:
    assert arrival(headers=died_in("orders", reason=reason)).letter.error_type == error_type


@pytest.mark.parametrize("reason", ["expired", "maxlen", "delivery_limit"])
def test_what_a_consumer_said_of_a_failure_before_is_not_why_it_died_without_one(
    reason: str,
) -> None:
    said = {"redrive-error-type": S("TIMEOUT"), "redrive-error-stack": S("at pay.py:7")}
    letter = arrival(headers={**by_the_retrier(**said), **died_in("orders", reason=reason)}).letter
    alone = arrival(headers=died_in("orders", reason=reason)).letter
    assert (letter.error_type, letter.error_reason) == (alone.error_type, alone.error_reason)
    assert letter.error_stack is None
    assert letter.retry_count == 3


def test_what_a_consumer_said_stays_where_the_message_expired_on_its_way_from_there() -> None:
    said = {"redrive-error-type": S("TIMEOUT"), **died_in("orders.wait", reason="expired")}
    assert arrival(headers=said).letter.error_type == "TIMEOUT"


def test_a_message_that_waited_in_a_queue_before_failed_in_the_newest_one() -> None:
    waited = death("orders.wait", reason="expired", at=-60)
    found = arrival(headers={"x-death": fields.array([death("orders", at=-1), waited])})
    assert origin(found)[0] == "orders"
    assert [each.queue for each in found.letter.deaths] == ["orders.wait", "orders"]
    assert (found.letter.first_failed_at, found.letter.last_failed_at) == (at(-60), at(-1))


def test_what_the_broker_counts_is_the_retries_of_a_queue_that_feeds_itself() -> None:
    assert arrival(headers=died_in("orders", count=4)).letter.retry_count == 3


def by_the_retrier(**changes: bytes) -> Mapping[str, bytes]:
    """As the retrier leaves what it gave up on: it has taken x-death into its own header."""
    return {
        "redrive-id": S("0198-id"),
        "redrive-attempt": fields.int32(3),
        "redrive-queue": S("orders"),
        "redrive-exchange": S("shop"),
        "redrive-routing-key": S("order.created"),
        "redrive-first-failed-at": fields.timestamp(at(-90)),
        "redrive-deaths": fields.array(
            [
                death("orders", at=-90),
                death("queue.delay.1", reason="expired", at=-80, key="binding.order.created.1"),
                death("orders", at=-70),
            ]
        ),
        "redrive-error-type": S("REJECTED"),
        "redrive-error-reason": S("gave up after 3 retries in queue 'orders'"),
        **changes,
    }


def test_what_the_retrier_gave_up_on_has_its_origin_and_attempts_in_its_headers() -> None:
    found = arrival(headers=by_the_retrier())
    letter = found.letter
    assert origin(found) == ("orders", "shop", "order.created")
    assert letter.retry_count == 3
    assert (letter.error_type, letter.error_reason) == (
        "REJECTED",
        "gave up after 3 retries in queue 'orders'",
    )
    assert (letter.first_failed_at, letter.last_failed_at) == (at(-90), at(-70))
    assert [each.queue for each in letter.deaths] == ["orders", "queue.delay.1", "orders"]
    assert found.redrive_id == "0198-id"


def test_deaths_that_were_cut_off_leave_the_time_of_the_first() -> None:
    only_newest = fields.array([death("orders", at=-70)])
    letter = arrival(headers=by_the_retrier(**{"redrive-deaths": only_newest})).letter
    assert (letter.first_failed_at, letter.last_failed_at) == (at(-90), at(-70))


def test_what_came_back_by_the_return_exchange_keeps_the_exchange_it_was_published_to() -> None:
    returned = fields.table(
        {
            "queue": S("orders"),
            "reason": S("rejected"),
            "exchange": S("redrive-return"),
            "routing-keys": fields.array([S("order.created")]),
            "time": fields.timestamp(at(-1)),
        }
    )
    found = arrival(headers=by_the_retrier(**{"x-death": fields.array([returned])}))
    assert origin(found) == ("orders", "shop", "order.created")
    assert found.letter.retry_count == 3
    assert found.letter.last_failed_at == at(-1)
    assert found.redrive_id == "0198-id"


def test_what_the_broker_parked_from_the_retry_queue_failed_where_it_failed_before() -> None:
    parked = fields.array([death("retry-queue", at=-1), death("orders", at=-2)])
    found = arrival(headers={"x-death": parked})
    assert origin(found) == ("orders", "shop", "order.created")
    assert found.letter.retry_count == 0
    assert found.letter.last_failed_at == at(-1)


def test_what_was_parked_says_so_and_stays_in_the_group_of_what_made_it_fail() -> None:
    found, alike = parked().letter, arrival(headers=died_in("orders")).letter
    assert found.error_reason == (
        "rejected by the consumer of its queue without a reason"
        "; Redrive could not publish it again, and parked it unchanged"
    )
    assert (found.error_type, found.fingerprint) == (alike.error_type, alike.fingerprint)


def test_that_a_message_was_parked_is_said_also_after_the_longest_reason() -> None:
    deaths = fields.array([death("retry-queue", at=-1), death("orders", at=-2)])
    letter = arrival(headers={"x-death": deaths, "x-exception-message": S("é" * 9000)}).letter
    assert letter.error_reason.endswith(
        "…; Redrive could not publish it again, and parked it unchanged"
    )
    assert len(letter.error_reason.encode()) <= MAX_REASON


@pytest.mark.parametrize("queue", ["dlq-queue", "redrive-receipts"])
def test_what_was_rejected_where_nothing_is_published_again_was_not_parked(queue: str) -> None:
    deaths = fields.array([death(queue, at=-1), death("orders", at=-2)])
    assert "parked" not in arrival(headers={"x-death": deaths}).letter.error_reason


def parked(message_id: str | None = "m-1", *, at: int = 0, body: bytes = b"{}") -> Arrival:
    """What the retrier could not publish again, and so could not give a redrive-id."""
    deaths = fields.array([death("retry-queue", at=at), death("orders", at=at - 1)])
    properties = {} if message_id is None else {"message_id": message_id}
    return arrival(body, headers={"x-death": deaths}, properties=properties)


def test_copies_of_what_the_retrier_could_not_give_an_id_have_one_by_their_content() -> None:
    """A broker that is killed while it dead-letters makes copies, of another time."""
    first, second = parked(at=-5), parked(at=-2)
    assert first.redrive_id is not None
    assert first.redrive_id == second.redrive_id


def test_what_was_parked_and_is_not_equal_has_another_id() -> None:
    assert len({each.redrive_id for each in (parked(), parked("m-2"), parked(body=b"[]"))}) == 3


def test_without_a_message_id_or_the_retrier_content_makes_no_id() -> None:
    assert parked(None).redrive_id is None
    assert arrival(properties={"message_id": "m-1"}).redrive_id is None


@pytest.mark.parametrize("beside", ["redrive-alone-orders", "redrive-again-orders"])
def test_what_was_parked_from_the_queue_beside_a_handlers_failed_in_the_handlers(
    beside: str,
) -> None:
    parked = fields.array([death(beside, at=-1, key=beside)])
    found = arrival(headers=by_the_retrier(**{"x-death": parked}))
    assert origin(found) == ("orders", "shop", "order.created")
    assert found.letter.retry_count == 3


def test_what_the_broker_parked_on_its_way_back_has_its_origin_in_our_headers() -> None:
    parked = fields.array(
        [
            death("retry-queue-1", at=-1, key="retry.#.1"),
            death("queue.delay.1", reason="expired", at=-2, key="binding.order.created.1"),
        ]
    )
    found = arrival(headers=by_the_retrier(**{"x-death": parked}))
    assert origin(found) == ("orders", "shop", "order.created")
    assert found.letter.retry_count == 3
    assert [each.queue for each in found.letter.deaths[-2:]] == ["queue.delay.1", "retry-queue-1"]


def test_what_was_parked_on_its_way_back_from_the_ladder_failed_where_its_handler_did() -> None:
    reading = runtime.understanding(settings_for("amqp://localhost/", "quorum"))
    parked = fields.array(
        [
            death("retry-queue-1", at=-1, key="retry.#.1"),
            death("redrive-after-64000ms", reason="expired", at=-2, key="redrive-after-64000ms"),
        ]
    )
    properties = Properties.empty().with_headers(by_the_retrier(**{"x-death": parked}))
    delivery = Delivery(1, False, "dlq-exchange", "dlq-routing-key", properties.raw, b"{}")
    found = reading.arrival(delivery, "dlq-queue", now=BEGAN, random=1, state=STATE)
    assert origin(found) == ("orders", "shop", "order.created")
    assert found.letter.retry_count == 3
    assert found.redrive_id == "0198-id"


def moved_on(**changes: bytes) -> Mapping[str, bytes]:
    """Retried for `orders`, consumed there, sent on with all its headers, dead in `billing`."""
    newest = fields.array([death("billing", key="bill.created", at=-1)])
    return by_the_retrier(**{"x-death": newest, **changes})


def test_what_moved_on_to_another_service_failed_there_and_starts_anew() -> None:
    found = arrival(headers=moved_on(), queue="billing.dlq")
    letter = found.letter
    assert origin(found) == ("billing", "shop", "bill.created")
    assert letter.retry_count == 0
    assert letter.error_type == "REJECTED"
    assert "orders" not in letter.error_reason
    assert letter.first_failed_at == letter.last_failed_at == at(-1)
    assert found.redrive_id is None, "copied from another message: it names no copy of this one"
    assert [each.queue for each in letter.deaths][-1] == "billing"


def test_what_moved_on_still_says_which_letter_it_comes_from() -> None:
    letter = "01990000-0000-7000-8000-000000000000"
    sent = {"redrive-letter": S(letter), "redrive-generation": fields.int32(2)}
    found = arrival(headers=moved_on(**sent))
    assert found.replayed == Replayed(letter=letter, generation=2)


def test_two_messages_made_from_one_that_was_retried_are_no_copies_of_each_other() -> None:
    first, second = (arrival(body, headers=moved_on()) for body in (b"1", b"2"))
    assert first.redrive_id is None
    assert second.redrive_id is None


# What frameworks say

NSERVICEBUS = {
    "NServiceBus.FailedQ": S("Shop.Orders@MACHINE"),
    "NServiceBus.ExceptionInfo.ExceptionType": S("System.TimeoutException"),
    "NServiceBus.ExceptionInfo.Message": S("The operation has timed out."),
    "NServiceBus.ExceptionInfo.StackTrace": S("   at Shop.Orders.Handle()"),
}
MASSTRANSIT = {
    "MT-Fault-InputAddress": S("rabbitmq://host/vhost/orders?durable=true"),
    "MT-Fault-ExceptionType": S("System.InvalidOperationException"),
    "MT-Fault-Message": S("no such order"),
    "MT-Fault-StackTrace": S("   at Shop.Consume()"),
}
SPRING = {
    "x-exception-message": S("no such order"),
    "x-exception-stacktrace": S(
        "shop.NoSuchOrder: no such order\n\tat shop.Orders.handle(O.java:1)"
    ),
    "x-original-exchange": S("shop"),
    "x-original-routingKey": S("order.created"),
}


def test_nservicebus_names_the_queue_where_no_death_does() -> None:
    found = arrival(headers=NSERVICEBUS, queue="error", routing_key="error")
    letter = found.letter
    assert letter.queue == "Shop.Orders"
    assert letter.error_type == "System.TimeoutException"
    assert letter.error_reason == "The operation has timed out."
    assert letter.deaths == ()
    assert (letter.first_failed_at, letter.last_failed_at) == (letter.created_at,) * 2
    assert letter.retry_count == 0


def test_masstransit_names_the_queue_where_no_death_does() -> None:
    letter = arrival(headers=MASSTRANSIT, queue="orders_error").letter
    assert letter.queue == "orders"
    assert (letter.error_type, letter.error_reason) == (
        "System.InvalidOperationException",
        "no such order",
    )


def test_spring_names_the_exchange_and_key_before_it_published_again() -> None:
    found = arrival(headers=SPRING, queue="orders.failed")
    assert origin(found) == (None, "shop", "order.created")
    assert found.letter.error_type == "shop.NoSuchOrder"
    assert found.letter.error_stack is not None


def test_a_death_counts_before_what_a_framework_says_of_an_earlier_place() -> None:
    found = arrival(headers={**NSERVICEBUS, **died_in("billing", key="bill")})
    assert origin(found) == ("billing", "shop", "bill")
    assert found.letter.error_type == "System.TimeoutException"


def test_without_any_header_only_the_place_it_was_found_in_is_known() -> None:
    found = arrival(headers={}, queue="orders.dlq", routing_key="some.key")
    assert origin(found) == (None, "dlq-exchange", "some.key")
    assert found.letter.error_type == "UNKNOWN"
    assert found.letter.source == "orders.dlq"


# The rest of it


def test_what_the_publisher_says_of_itself_is_noted() -> None:
    letter = arrival(
        properties={"message_id": "m-1", "app_id": "checkout", "content_type": "text/plain"},
        headers={"redrive-tags": S("payment, critical,,payment")},
    ).letter
    assert (letter.message_id, letter.source, letter.content_type) == (
        "m-1",
        "checkout",
        "text/plain",
    )
    assert letter.tags == ("payment", "critical")
    assert (letter.cpu_usage, letter.memory_usage) == (STATE.cpu_usage, STATE.memory_usage)


def test_a_message_without_an_id_is_given_one_to_show() -> None:
    letter = arrival().letter
    prefix, epoch, rest = letter.message_id.split("_")
    assert (prefix, int(epoch), len(rest)) == ("msg", int(letter.created_at.timestamp()), 6)


@pytest.mark.parametrize(
    "letter",
    ["", "not-an-id", "01990000-0000-7000-8000-00000000000", "0199000000007000800000000000000g"],
)
def test_what_is_no_letters_id_names_no_letter(letter: str) -> None:
    headers = {"redrive-letter": S(letter), "redrive-generation": fields.int32(1)}
    assert arrival(headers=headers).replayed is None


def test_a_clock_that_is_ahead_keeps_the_order_of_times() -> None:
    headers = {**died_in("orders", at=-5), "redrive-first-failed-at": fields.timestamp(at(999))}
    letter = arrival(headers={**headers, "redrive-queue": S("orders")}).letter
    assert letter.first_failed_at == letter.last_failed_at == at(-5)


def test_digests_tell_messages_apart_and_not_deliveries() -> None:
    section = Properties.empty().with_headers(died_in("orders")).raw
    counted = Properties.read(section).with_headers({"x-delivery-count": fields.int64(2)}).raw
    first = understood(section, b"body")
    assert understood(counted, b"body").digest == first.digest
    assert understood(section, b"other").digest != first.digest
    assert understood(section, b"body", routing_key="other").digest != first.digest


@pytest.mark.parametrize("section", [b"\x00\x00", b"\x20\x00\x00\x00\x00\x00"])
def test_a_count_on_a_message_without_headers_makes_no_other_message_of_it(section: bytes) -> None:
    """A quorum queue gives such a message a table for its count, whether it had an empty one or
    none."""
    counted = b"\x20\x00" + fields.table({"x-delivery-count": fields.int64(1)})[1:]
    assert understood(counted).digest == understood(section).digest


def test_arrivals_of_one_message_differ_only_in_what_each_delivery_is_given() -> None:
    one, other = arrival(), arrival()
    given = {"id", "created_at", "updated_at", "message_id", "next_retry_at"}
    same = {name: getattr(one.letter, name) for name in given}
    assert replace(other.letter, **same) == one.letter
