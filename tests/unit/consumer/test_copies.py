"""The copies that a consumer publishes, of messages with headers that can be anybody's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import Delivery, Properties, Publish, fields
from redrive.consumer.copies import Copies
from redrive.consumer.message import Message
from redrive.consumer.queues import Declared
from redrive.consumer.receipts import Receipts
from redrive.domain import headers
from redrive.domain.failure import Failure
from redrive.domain.handling import CRASH, DeadLettered, Delayed, LeftToPolicy, Outcome, Retried
from redrive.errors import Unpublishable
from redrive.settings.sections import TopologySettings

FAILURE = Failure(error_type="ValueError", reason="no", stack="Traceback")
OUTCOMES: tuple[Outcome, ...] = (
    Retried(FAILURE, 2, 2),
    Delayed(FAILURE, timedelta(minutes=5), 1),
    LeftToPolicy(FAILURE),
    DeadLettered(FAILURE),
)
DECLARED = Declared("q", "redrive-again-q", "redrive-alone-q", parks=frozenset())
COPIES = Copies(DECLARED, TopologySettings(), user="guest")

values = st.one_of(
    st.binary(max_size=40).map(fields.longstr),
    st.integers(-(2**31), 2**31 - 1).map(fields.int32),
    st.integers(-(2**63), 2**63 - 1).map(fields.int64),
    st.just(fields.timestamp(datetime.now(UTC))),
    st.booleans().map(fields.boolean),
    st.just(b"V"),
    st.lists(st.binary(max_size=5).map(fields.longstr), max_size=3).map(fields.array),
    st.just(fields.table({"queue": fields.longstr("q")})),
)
anybodys = st.dictionaries(st.sampled_from((*headers.WRITTEN, "x-death", "CC", "own")), values)


def delivery(put: dict[str, bytes], body: bytes = b"{}") -> Delivery:
    raw = Properties.empty().with_headers(put).raw
    return Delivery(1, True, "shop", "order.created", raw, body)


@given(anybodys, st.sampled_from(OUTCOMES))
def test_no_header_keeps_a_message_from_its_way(put: dict[str, bytes], outcome: Outcome) -> None:
    message = delivery(put)
    for read in ("retry_count", "deaths", "first_failed_at", "letter", "routing_key", "headers"):
        getattr(Message(message, "q", "/"), read)
    Receipts("redrive-receipts", "q").of(message)
    try:
        sent = [COPIES.of(message, outcome), COPIES.alone(message), COPIES.again(message)]
    except Unpublishable:
        return
    for copy in sent:
        properties = Properties.read(copy.properties)
        assert properties.header(headers.QUEUE) == "q"
        assert isinstance(properties.header(headers.ID), (str, bytes))
        assert properties.header("x-death") is None


def sent_for(outcome: Outcome, put: dict[str, bytes] | None = None) -> tuple[Publish, Properties]:
    copy = COPIES.of(delivery(put or {}), outcome)
    return copy, Properties.read(copy.properties)


def test_each_outcome_has_its_way() -> None:
    ways = [(copy.exchange, copy.routing_key) for copy, _ in map(sent_for, OUTCOMES)]
    assert ways == [
        ("route-delay", "binding.order.created.2"),
        ("", "redrive-after-256000ms"),
        ("retry-exchange", "retry-routing-key"),
        ("dlq-exchange", "dlq-routing-key"),
    ]


def test_what_was_noted_in_another_queue_starts_anew() -> None:
    noted = {
        headers.QUEUE: fields.longstr("other"),
        headers.ATTEMPT: fields.int32(7),
        headers.ROUTING_KEY: fields.longstr("old"),
        headers.LETTER: fields.longstr("0192"),
    }
    _, properties = sent_for(DeadLettered(FAILURE), noted)
    assert properties.header(headers.ATTEMPT) is None
    assert properties.header(headers.LETTER) is None
    assert properties.header(headers.PARENT) == "0192"
    assert properties.header(headers.ROUTING_KEY) == "order.created"
    assert Message(delivery(noted), "q", "/").retry_count == 0
    assert Receipts("r", "q").of(delivery(noted)) is None


def test_a_copy_that_another_queues_retry_brought_counts_on() -> None:
    noted = {
        headers.QUEUE: fields.longstr("other"),
        headers.EXCHANGE: fields.longstr("shop"),
        headers.ROUTING_KEY: fields.longstr("order.created"),
        headers.ATTEMPT: fields.int32(2),
        headers.BY_EXCHANGE: fields.longstr("other"),
    }
    assert Message(delivery(noted), "q", "/").retry_count == 2
    properties = Properties.read(COPIES.again(delivery(noted)).properties)
    assert properties.header(headers.QUEUE) == "q"
    assert properties.header(headers.ATTEMPT) == 2
    assert properties.header(headers.BY_EXCHANGE) == "other"


def test_a_crash_is_remembered_until_the_message_is_dead() -> None:
    crashed = Failure(error_type=CRASH, reason="ended")
    _, once = sent_for(Retried(crashed, 1, 1))
    assert once.header(headers.CRASHES) == 1
    again = {headers.QUEUE: fields.longstr("q"), headers.CRASHES: fields.int32(1)}
    _, twice = sent_for(Retried(crashed, 1, 1), again)
    assert twice.header(headers.CRASHES) == 2
    _, dead = sent_for(DeadLettered(crashed), again)
    assert dead.header(headers.CRASHES) is None
    assert dead.header(headers.ERROR_STACK) is None


def test_a_routing_key_that_nobody_can_have_published_with_is_not_used() -> None:
    forged = {headers.QUEUE: fields.longstr("q"), headers.ROUTING_KEY: fields.longstr("k" * 300)}
    own = Copies(DECLARED, TopologySettings(), user="guest", dead_letter_exchange="dlx")
    copy = own.of(delivery(forged), DeadLettered(FAILURE))
    assert (copy.exchange, copy.routing_key) == ("dlx", "order.created")


def test_counts_that_nobody_can_have_reached_are_cut_to_what_can_be_written() -> None:
    forged = {
        headers.QUEUE: fields.longstr("q"),
        headers.ATTEMPT: fields.int64(2**40),
        headers.CRASHES: fields.int64(2**62),
    }
    attempt = Message(delivery(forged), "q", "/").retry_count
    crashed = Failure(error_type=CRASH, reason="ended")
    _, properties = sent_for(Retried(crashed, 1, attempt + 1), forged)
    most = 2**31 - 1
    assert (properties.header(headers.ATTEMPT), properties.header(headers.CRASHES)) == (most, most)
