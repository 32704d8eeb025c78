"""The `redrive-id` of copies that a broker's crash makes, without waiting for one.

A broker that is killed while a queue's dead letters are on their way (at-least-once) sends some of
them again after its restart, and stamps the death anew: the copies differ in the time of their
death and in nothing else. Seen on 3.10 in test_retrier_killed.py, in some runs on every copy.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from redrive.amqp import Delivery, Properties, Publish, fields
from redrive.domain import headers
from redrive.domain.policy import Policy, PolicyBook
from redrive.settings.sections import TopologySettings
from redrive.work.retrier import retry_names
from redrive.work.retry_plan import RetryPlan
from tests.unit.work.stub_path import StubPath

BEFORE = datetime(2026, 11, 16, 2, 48, 31, tzinfo=UTC)
AFTER_THE_CRASH = BEFORE + timedelta(seconds=10)


def dead(at: datetime, *, message_id: str | None, body: bytes = b"{}", count: int = 1) -> Delivery:
    """A message as it comes to the retry queue."""
    death = fields.table(
        {
            "count": fields.int64(count),
            "reason": fields.longstr("rejected"),
            "queue": fields.longstr("failing"),
            "time": fields.timestamp(at),
            "exchange": fields.longstr("work"),
            "routing-keys": fields.array([fields.longstr("k")]),
        }
    )
    properties = Properties.empty().persistent().with_headers({"x-death": fields.array([death])})
    if message_id is not None:
        properties = properties.with_text("message_id", message_id)
    return Delivery(1, False, "retry-exchange", "k", properties.raw, body)


def id_of(delivery: Delivery) -> object:
    book = PolicyBook(file=[Policy(name="#", max_retries=1)])
    plan = RetryPlan(retry_names(TopologySettings(), ()), lambda: book, StubPath())
    sent = plan.decide(delivery, "guest")
    assert isinstance(sent, Publish)
    return Properties.read(sent.properties).header(headers.ID)


def test_copies_whose_deaths_differ_only_in_time_have_one_id() -> None:
    first, second = (id_of(dead(at, message_id="m")) for at in (BEFORE, AFTER_THE_CRASH))
    assert first == second


def test_other_messages_have_other_ids() -> None:
    ids = [
        id_of(dead(BEFORE, message_id="m")),
        id_of(dead(BEFORE, message_id="n")),
        id_of(dead(BEFORE, message_id="m", body=b"[]")),
        id_of(dead(BEFORE, message_id="m", count=2)),
        id_of(dead(BEFORE, message_id=None)),
    ]
    assert len(set(ids)) == len(ids)


def test_without_a_message_id_equal_messages_of_different_times_are_told_apart() -> None:
    """A tick that says the same every minute is no duplicate of itself. The price: copies of such
    a message that a broker's crash makes are not recognised by their id."""
    first, second = (id_of(dead(at, message_id=None)) for at in (BEFORE, AFTER_THE_CRASH))
    assert first != second
