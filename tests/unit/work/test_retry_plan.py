"""What the retrier decides from headers that can be anybody's, without a broker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive.amqp import (
    Budget,
    Connection,
    Delivery,
    Properties,
    Publish,
    Refused,
    Returned,
    fields,
)
from redrive.domain import headers
from redrive.domain.policy import Policy, PolicyBook
from redrive.settings.sections import QueueSettings, TopologySettings
from redrive.work import dead_letters
from redrive.work.dead_letters import DeadLetters, Route
from redrive.work.mover import Later, Limits, Park, Stay
from redrive.work.retrier import Retrier, retry_names
from redrive.work.retry_plan import RetryPlan
from redrive.work.turns import Turns
from tests.unit.work.stub_path import StubPath

BOOK = PolicyBook(file=[Policy(name="#", max_retries=2)])
FAILED_AT = datetime(2026, 11, 16, 2, 48, 31, tzinfo=UTC)
NO_ROUTE = Returned(312, "NO_ROUTE")
FORBIDDEN = Returned(403, "ACCESS_REFUSED - write access to exchange 'route-delay' refused")
MISSING = Returned(404, "NOT_FOUND - no exchange 'dlq-exchange' in vhost '/'")


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(dead_letters, "Turns", lambda: Turns(found))
    return found


def plan(**options: Any) -> RetryPlan:
    return RetryPlan(retry_names(TopologySettings(), ()), lambda: BOOK, StubPath(), **options)


def delivery(
    put: dict[str, bytes] | None = None, queue: str = "failing", reason: str = "rejected"
) -> Delivery:
    """A message as a queue's dead letter exchange brings it to the retry queue."""
    death = fields.table(
        {
            "count": fields.int64(1),
            "reason": fields.longstr(reason),
            "queue": fields.longstr(queue),
            "time": fields.timestamp(FAILED_AT),
            "exchange": fields.longstr("work"),
            "routing-keys": fields.array([fields.longstr("k")]),
        }
    )
    found = {headers.QUEUE: fields.longstr("failing"), "x-death": fields.array([death])}
    properties = Properties.empty().persistent().with_headers(found | (put or {}))
    return Delivery(1, False, "retry-exchange", "k", properties.raw, b"{}")


@pytest.mark.parametrize("attempt", [0, 2], ids=["it waits", "it is dead"])
def test_a_body_goes_on_as_its_bytes(attempt: int) -> None:
    no_text = bytes(range(256))
    properties = delivery({headers.ATTEMPT: fields.int32(attempt)}).properties
    sent = plan().decide(Delivery(1, False, "retry-exchange", "k", properties, no_text), "guest")
    assert isinstance(sent, Publish)
    assert sent.exchange == ("dlq-exchange" if attempt else "route-delay")
    assert sent.body == no_text


def decided(message: Delivery) -> tuple[str, Properties]:
    """Where it goes, and with which properties."""
    sent = plan().decide(message, "guest")
    assert isinstance(sent, Publish)
    return sent.exchange, Properties.read(sent.properties)


WRONG = {
    "a letter that is a number": (headers.LETTER, fields.int32(1)),
    "a letter that is nothing": (headers.LETTER, b"V"),
    "a generation that is text": (headers.GENERATION, fields.longstr("1")),
    "an error type that is a table": (headers.ERROR_TYPE, fields.table({})),
    "a reason that is a number": (headers.ERROR_REASON, fields.int64(7)),
    "a stack that is an array": (headers.ERROR_STACK, fields.array([])),
    "a time that is text": (headers.FIRST_FAILED_AT, fields.longstr("yesterday")),
    "an id that is a number": (headers.ID, fields.int32(1)),
    "an attempt that is text": (headers.ATTEMPT, fields.longstr("2")),
    "deaths that are text": (headers.DEATHS, fields.longstr("many")),
    "a mark that is text": (headers.REDELIVERED, fields.longstr("yes")),
}


@pytest.mark.parametrize(("name", "field"), WRONG.values(), ids=WRONG.keys())
def test_a_header_of_a_wrong_type_counts_as_not_there(name: str, field: bytes) -> None:
    without = decided(delivery())
    assert decided(delivery({name: field})) == without
    assert without[0] == "route-delay"
    assert without[1].header(headers.FIRST_FAILED_AT) == FAILED_AT


def test_what_is_dead_has_the_real_reason_whatever_was_forged() -> None:
    wrong = {name: field for name, field in WRONG.values() if name != headers.LETTER}
    exchange, found = decided(delivery(wrong | {headers.ATTEMPT: fields.int32(2)}))
    assert exchange == "dlq-exchange"
    assert found.header(headers.ERROR_TYPE) == "REJECTED"
    assert "gave up after 2 retries" in str(found.header(headers.ERROR_REASON))
    assert found.header(headers.FIRST_FAILED_AT) == FAILED_AT
    assert found.header(headers.ERROR_STACK) is None


def test_what_the_consumer_said_of_its_failure_stays() -> None:
    said = {
        headers.ATTEMPT: fields.int32(2),
        headers.ERROR_TYPE: fields.longstr("TIMEOUT"),
        headers.ERROR_REASON: fields.longstr("no answer from the bank"),
    }
    _, found = decided(delivery(said))
    assert found.header(headers.ERROR_TYPE) == "TIMEOUT"
    assert found.header(headers.ERROR_REASON) == "no answer from the bank"


@pytest.mark.parametrize(
    ("reason", "error_type"),
    [("expired", "EXPIRED"), ("maxlen", "MAX_LENGTH"), ("delivery_limit", "DELIVERY_LIMIT")],
)
def test_what_a_consumer_said_before_is_not_why_a_message_died_without_one(
    reason: str, error_type: str
) -> None:
    said = {
        headers.ATTEMPT: fields.int32(2),
        headers.ERROR_TYPE: fields.longstr("TIMEOUT"),
        headers.ERROR_REASON: fields.longstr("no answer from the bank"),
        headers.ERROR_STACK: fields.longstr("at pay.py:7"),
    }
    _, found = decided(delivery(said, reason=reason))
    assert found.header(headers.ERROR_TYPE) == error_type
    assert "the bank" not in str(found.header(headers.ERROR_REASON))
    assert found.header(headers.ERROR_STACK) is None


async def test_a_tier_that_takes_nothing_does_not_overwrite_the_consumers_error_type() -> None:
    said = {
        headers.ERROR_TYPE: fields.longstr("TIMEOUT"),
        headers.ERROR_REASON: fields.longstr("no answer from the bank"),
    }
    message = delivery(said)
    sent = plan().decide(message, "guest")
    assert isinstance(sent, Publish)
    dead = await plan().reconsider(message, sent, NO_ROUTE)
    assert isinstance(dead, Publish)
    found = Properties.read(dead.properties)
    assert found.header(headers.ERROR_TYPE) == "TIMEOUT"
    reason = str(found.header(headers.ERROR_REASON))
    assert "is missing (NO_ROUTE)" in reason
    assert "no answer from the bank" in reason


async def test_what_got_stuck_has_no_more_of_our_headers_than_16_kib() -> None:
    said = {
        headers.ERROR_REASON: fields.longstr("r" * 9_000),
        headers.ERROR_STACK: fields.longstr("s" * 9_000),
        "own": fields.longstr("x" * 20_000),
    }
    message = delivery(said)
    sent = plan().decide(message, "guest")
    assert isinstance(sent, Publish)
    before = ours_in(Properties.read(sent.properties))
    assert before[headers.ERROR_STACK], "it had its 16 KiB, and they were full"
    dead = await plan().reconsider(message, sent, NO_ROUTE)
    assert isinstance(dead, Publish)
    found = Properties.read(dead.properties)
    after = ours_in(found)
    assert 15 * 1024 < sum(map(len, after.values())) <= 16 * 1024
    # The stack is cut first, and gives way to the reason.
    assert len(after[headers.ERROR_STACK]) < len(before[headers.ERROR_STACK])
    assert str(found.header(headers.ERROR_REASON)).startswith("the delay queue behind")
    assert str(found.header(headers.ERROR_REASON)).endswith(f"{'r' * 9_000})")
    assert found.header("own") == "x" * 20_000


def ours_in(properties: Properties) -> dict[str, bytes]:
    return {name: field for name, field in properties.entries() if name in headers.WRITTEN}


@pytest.mark.parametrize(("before", "after"), [(None, None), (0, None), (1, 1)])
@pytest.mark.parametrize("outcome", [Refused(), NO_ROUTE])
async def test_a_retry_that_no_tier_took_is_not_counted(
    outcome: Returned | Refused, before: int | None, after: int | None
) -> None:
    message = delivery({} if before is None else {headers.ATTEMPT: fields.int32(before)})
    sent = plan().decide(message, "guest")
    assert isinstance(sent, Publish)
    assert Properties.read(sent.properties).header(headers.ATTEMPT) == (before or 0) + 1
    dead = await plan().reconsider(message, sent, outcome)
    assert isinstance(dead, Publish)
    assert Properties.read(dead.properties).header(headers.ATTEMPT) == after


@pytest.mark.parametrize(
    ("outcome", "said"),
    [(Refused(), "is full"), (NO_ROUTE, "is missing"), (FORBIDDEN, "is refused to us")],
)
async def test_what_is_the_matter_with_a_tier_is_said(
    outcome: Returned | Refused, said: str
) -> None:
    message = delivery()
    sent = plan().decide(message, "guest")
    assert isinstance(sent, Publish)
    dead = await plan().reconsider(message, sent, outcome)
    assert isinstance(dead, Publish)
    found = Properties.read(dead.properties)
    assert said in str(found.header(headers.ERROR_REASON))
    assert found.header(headers.ERROR_TYPE) == "UNDELIVERABLE"


async def test_what_the_dead_letter_queue_refused_is_tried_by_name_and_marked_then_waits() -> None:
    decides, message = plan(), delivery()
    dead = Publish("dlq-exchange", "dlq-routing-key", delivery().properties, b"{}")
    by_name = await decides.reconsider(message, dead, Refused())
    assert isinstance(by_name, Publish)
    assert (by_name.exchange, by_name.routing_key) == ("", "dlq-queue")
    assert Properties.read(by_name.properties).header(headers.REDELIVERED) is True
    later = await decides.reconsider(message, by_name, Refused())
    assert isinstance(later, Later)
    assert later.reason.endswith("is full; make room in it, or raise its limit")
    assert (later.publish.exchange, later.publish.routing_key) == ("", "dlq-queue")


async def test_who_may_not_name_the_dead_letter_queue_is_refused_that_once() -> None:
    decides, message = plan(), delivery()
    dead = Publish("dlq-exchange", "dlq-routing-key", delivery().properties, b"{}")
    by_name = await decides.reconsider(message, dead, Refused())
    assert isinstance(by_name, Publish)
    later = await decides.reconsider(message, by_name, FORBIDDEN)
    assert isinstance(later, Later)
    assert later.publish.exchange == "dlq-exchange"
    again = await decides.reconsider(message, later.publish, Refused())
    assert isinstance(again, Later)
    assert again.publish.exchange == "dlq-exchange"


DEAD = delivery({headers.ATTEMPT: fields.int32(2)})


async def tries_in(
    decides: RetryPlan, clock: Clock, messages: int, outcome: Returned | Refused, span: timedelta
) -> int:
    """How often the exchange is tried with messages that it does not take, as the Mover would."""
    tries = 0
    waiting: list[tuple[float, Any]] = [
        (clock.now, decides.decide(DEAD, "guest")) for _ in range(messages)
    ]
    until = clock.now + span.total_seconds()
    while waiting:
        waiting.sort(key=lambda each: each[0])
        at, found = waiting.pop(0)
        if at > until:
            break
        clock.now = max(clock.now, at)
        if isinstance(found, Later):
            found = found.instead() or found.publish
        while isinstance(found, Publish):
            tries += found.exchange == "dlq-exchange"
            said = outcome if found.exchange else FORBIDDEN
            found = await decides.reconsider(DEAD, found, said)
        if isinstance(found, Stay):  # it is given back, and comes again
            found = decides.decide(DEAD, "guest")
        wait = found.wait.total_seconds() if isinstance(found, Later) else 0.0
        waiting.append((clock.now + wait, found))
    return tries


async def test_who_may_not_name_a_full_dead_letter_queue_tries_its_exchange_seldom(
    clock: Clock,
) -> None:
    """Another queue that is bound there gets a copy with each try."""
    decides = plan()
    assert await tries_in(decides, clock, 1, Refused(), timedelta(minutes=20)) <= 9
    assert await tries_in(decides, clock, 1, Refused(), timedelta(hours=10)) <= 62


@pytest.mark.parametrize("outcome", [MISSING, FORBIDDEN])
async def test_what_waits_for_a_dead_letter_exchange_is_tried_one_at_a_time(
    clock: Clock, outcome: Returned
) -> None:
    """Each try closes the channel on all that is on its way."""
    decides = plan()
    first_tries = 100
    found = await tries_in(decides, clock, first_tries, outcome, timedelta(minutes=20))
    assert found <= first_tries + 25
    assert await tries_in(decides, clock, 100, outcome, timedelta(minutes=20)) <= 25


async def test_what_is_dead_while_others_wait_for_the_exchange_waits_with_them_unmarked(
    clock: Clock,
) -> None:
    decides = plan()
    sent = decides.decide(DEAD, "guest")
    assert isinstance(sent, Publish)
    first = await decides.reconsider(DEAD, sent, MISSING)
    second = decides.decide(DEAD, "guest")
    tier = decides.decide(delivery(), "guest")
    assert isinstance(tier, Publish)
    third = await decides.reconsider(delivery(), tier, Refused())
    for waits in (first, second, third):
        assert isinstance(waits, Later)
        assert waits.reason.endswith("run 'redrive topology apply'")
        assert waits.publish.exchange == "dlq-exchange"
    assert isinstance(first, Later)
    assert isinstance(second, Later)
    assert Properties.read(second.publish.properties).header(headers.REDELIVERED) is None
    clock.now += 5
    assert first.instead() is None, "it is its turn"
    assert isinstance(second.instead(), Later)
    clock.now += 5
    assert second.instead() is None, "of the first nothing was heard"


@pytest.mark.parametrize(
    ("outcome", "said", "remedy"),
    [
        (NO_ROUTE, "is missing", "; run 'redrive topology apply'"),
        (FORBIDDEN, "is refused to us", "; grant the user write permission on what the text names"),
    ],
)
async def test_what_the_dead_letter_exchange_cannot_deliver_waits_unmarked(
    outcome: Returned, said: str, remedy: str
) -> None:
    dead = Publish("dlq-exchange", "dlq-routing-key", delivery().properties, b"{}")
    later = await plan().reconsider(delivery(), dead, outcome)
    assert isinstance(later, Later)
    assert said in later.reason
    assert later.reason.endswith(remedy)
    assert later.publish.exchange == "dlq-exchange"
    assert Properties.read(later.publish.properties).header(headers.REDELIVERED) is None


async def test_what_has_waited_long_is_given_back_before_the_broker_takes_it_back() -> None:
    decides = plan()
    found: Any = Publish("dlq-exchange", "dlq-routing-key", delivery().properties, b"{}")
    waited = timedelta()
    for _ in range(1000):
        found = await decides.reconsider(delivery(), found, NO_ROUTE)
        if not isinstance(found, Later):
            break
        waited, found = waited + found.wait, found.publish
    assert isinstance(found, Stay)
    assert found.wait == timedelta()
    assert timedelta(minutes=15) < waited < timedelta(minutes=25)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not known to be"])
async def test_poison_parks_only_where_what_is_rejected_is_known_to_be_kept_by_then(
    kept: bool,
) -> None:
    async def parks() -> bool:
        return kept

    parking = plan(parks=parks).poisoned(delivery(), "why")
    assert isinstance(parking, Park)
    assert parking.reason == "why"
    assert await parking.instead() == (None if kept else plan().poisoned(delivery(), "why"))


def test_poison_stays_where_nobody_can_tell_what_becomes_of_the_rejected() -> None:
    stays = plan().poisoned(delivery(), "why")
    assert isinstance(stays, Stay)
    assert stays.reason.startswith("why; ")
    assert stays.wait.total_seconds() >= 60


def test_a_reason_of_a_wrong_type_is_replaced_when_a_message_gets_stuck() -> None:
    put = {headers.ERROR_TYPE: fields.int32(1), headers.ERROR_REASON: fields.table({})}
    sent = Publish("x", "k", Properties.empty().with_headers(put).raw, b"")
    dead = DeadLetters(Route("dlq-exchange", "dead"), "dlq-queue").after(sent, "gone")
    found = Properties.read(dead.properties)
    assert found.header(headers.ERROR_TYPE) == "UNDELIVERABLE"
    assert found.header(headers.ERROR_REASON) == "gone"


def test_every_queue_of_redrive_is_known_as_its_own() -> None:
    queues = (QueueSettings.model_validate({"name": "q", "exchange": "e", "delay": "1s"}),)
    own = retry_names(TopologySettings(), queues).own_queues
    shared = ("retry-queue", "dlq-queue", "queue.delay.1", "retry-queue-3")
    for queue in (*shared, "q.retry", "q.delay", "redrive-after-125ms", "redrive-again-q"):
        assert queue in own
    assert "q" not in own


async def _no_broker(_name: str) -> Connection:
    raise AssertionError("nobody should connect")


async def test_every_queue_has_its_own_share_of_the_bytes_so_that_none_stops_the_others() -> None:
    limits = Limits(budget=Budget(8_000_000))
    retrier = Retrier(TopologySettings(), (), lambda: BOOK, connect=_no_broker, limits=limits)
    shares = [mover._limits.budget for mover in retrier.movers]
    assert len(set(map(id, shares))) == len(shares) == 4
    assert sum(share.size for share in shares) == 8_000_000


def test_a_decision_is_by_the_policies_of_the_moment() -> None:
    strict, lenient = PolicyBook(), BOOK
    books = iter((lenient, lenient, strict, strict, lenient))
    changing = RetryPlan(retry_names(TopologySettings(), ()), lambda: next(books), StubPath())
    went = []
    for _ in range(5):
        sent = changing.decide(delivery(), "guest")
        assert isinstance(sent, Publish)
        went.append(sent.exchange)
    assert went == ["route-delay"] * 2 + ["dlq-exchange"] * 2 + ["route-delay"]


def test_a_decision_for_one_message_is_none_for_another() -> None:
    deciding = plan()
    messages = [
        delivery(),
        delivery({headers.ATTEMPT: fields.int32(1)}),
        delivery({headers.ATTEMPT: fields.int32(2)}),
        delivery({headers.LETTER: fields.longstr("l")}),
        delivery(queue="other"),
        delivery({"x-death": fields.array([])}),
    ]
    for message in (*messages, *messages):
        remembered, anew = deciding.decide(message, "guest"), plan().decide(message, "guest")
        assert isinstance(remembered, Publish)
        assert isinstance(anew, Publish)
        assert (remembered.exchange, remembered.routing_key, remembered.properties) == (
            anew.exchange,
            anew.routing_key,
            anew.properties,
        )


def test_decisions_that_are_remembered_are_bounded() -> None:
    deciding = plan()
    for number in range(5000):
        deciding.decide(delivery(queue=f"queue-{number}"), "guest")
    deciding.decide(delivery(queue="q" * 5000), "guest")
    assert len(deciding._decided) <= 4096
    assert all(len(failed.queue) < 1024 for failed in deciding._decided)


def test_a_consumer_that_sends_its_failure_here_itself_keeps_the_exchange_that_it_names() -> None:
    put = {headers.QUEUE: fields.longstr("failing"), headers.EXCHANGE: fields.longstr("work")}
    properties = Properties.empty().persistent().with_headers(put)
    _, sent = decided(Delivery(1, False, "retry-exchange", "k", properties.raw, b"{}"))
    assert sent.header(headers.EXCHANGE) == "work"
    assert sent.header(headers.ATTEMPT) == 1


@pytest.mark.parametrize("outcome", [FORBIDDEN, Returned(404, "no exchange 'route-delay'")])
async def test_an_exchange_before_the_tiers_that_closes_the_channel_is_not_tried_by_each_message(
    outcome: Returned,
) -> None:
    path = StubPath()
    path.exchanges = False
    retrying = RetryPlan(retry_names(TopologySettings(), ()), lambda: BOOK, path)
    sent = retrying.decide(delivery(), "guest")
    assert isinstance(sent, Publish)
    assert sent.exchange == "route-delay"
    await retrying.reconsider(delivery(), sent, outcome)
    await retrying.prepare(())
    dead = retrying.decide(delivery(), "guest")
    assert isinstance(dead, Publish)
    assert dead.exchange == "dlq-exchange"
    found = Properties.read(dead.properties)
    assert "behind 'route-delay'" in str(found.header(headers.ERROR_REASON))
    assert found.header(headers.ATTEMPT) is None, "no retry was made"


async def test_an_exchange_before_the_tiers_that_is_back_is_used_again() -> None:
    retrying = plan()
    sent = retrying.decide(delivery(), "guest")
    assert isinstance(sent, Publish)
    await retrying.reconsider(delivery(), sent, Returned(404, "no exchange 'route-delay'"))
    await retrying.prepare(())
    again = retrying.decide(delivery(), "guest")
    assert isinstance(again, Publish)
    assert again.exchange == "route-delay"
