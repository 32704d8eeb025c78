"""What a delivery is answered with, and when: after the broker has what had to be published."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import structlog

from redrive.amqp import Delivery, Properties, Publish, Refused, Returned, fields
from redrive.amqp.confirms import CONFIRMED
from redrive.amqp.lane import LaneOutcome, Poison
from redrive.consumer import settling as module
from redrive.consumer.copies import Copies
from redrive.consumer.queues import Declared, Unsure
from redrive.consumer.receipts import Receipts
from redrive.consumer.settling import Settling
from redrive.domain import headers
from redrive.domain.failure import Failure
from redrive.domain.handling import Acked, DeadLettered, Delayed, LeftToPolicy, Outcome, Retried
from redrive.errors import AccessRefused, BrokerError, ChannelClosed, ConnectionLost
from redrive.settings.sections import TopologySettings
from tests.services.eventually import eventually_async

DECLARED = Declared("q", "again", "alone", parks=frozenset({"q"}), handler="settle")
DEAD = DeadLettered(Failure(error_type="ValueError", reason="no"))


class Told:
    """A source of deliveries and a way to publish, in one order of events."""

    user = "guest"

    def __init__(self, queue: str = "q") -> None:
        self.queue = queue
        self.events: list[str] = []
        self.sent: list[Publish] = []
        self.answer: LaneOutcome | BrokerError = CONFIRMED
        self.answers: list[LaneOutcome] = []
        """Those that come before."""
        self.void: BrokerError | None = None
        self.confirmed = asyncio.Event()
        self.confirmed.set()

    async def send(self, publish: Publish) -> LaneOutcome:
        self.events.append(f"sent to {publish.exchange or publish.routing_key}")
        self.sent.append(publish)
        await self.confirmed.wait()
        if self.answers:
            return self.answers.pop(0)
        if isinstance(self.answer, BrokerError):
            raise self.answer
        self.events.append("confirmed" if self.answer is CONFIRMED else "refused")
        return self.answer

    def check(self) -> None:
        if self.void is not None:
            raise self.void

    def ack(self, *deliveries: Delivery) -> None:
        self.events += ["acked"] * len(deliveries)

    def reject(self, delivery: Delivery) -> None:
        self.events.append("rejected")

    def requeue(self, delivery: Delivery) -> None:
        self.events.append("requeued")

    def flush(self) -> None:
        pass


class Declares:
    """What is behind the dead letter exchange, and may be unknown."""

    def __init__(self, unsure: Unsure | None = None) -> None:
        self._unsure = unsure

    async def ladder(self) -> None:
        raise AssertionError("no ladder is needed")

    async def dead_letters(self) -> Unsure | None:
        return self._unsure


def settling(told: Told, *, copies: Any = None, unsure: Unsure | None = None) -> Settling:
    return Settling(
        copies or Copies(DECLARED, TopologySettings(), user="guest"),
        told,  # type: ignore[arg-type]
        receipts=Receipts("receipts", "q"),
        declared=DECLARED,
        declares=Declares(unsure),
        stopping=asyncio.Event(),
    )


def delivered(put: dict[str, bytes] | None = None) -> Delivery:
    return Delivery(1, False, "", "q", Properties.empty().with_headers(put or {}).raw, b"")


REPLAY = {headers.LETTER: fields.longstr("a"), headers.GENERATION: fields.int32(1)}


async def test_a_replay_is_acked_only_after_its_receipt_is_confirmed() -> None:
    told = Told()
    told.confirmed.clear()
    settled = asyncio.create_task(settling(told).settle(delivered(REPLAY), Acked(), told))
    await eventually_async(lambda: told.events)
    assert told.events == ["sent to receipts"]
    told.confirmed.set()
    await settled
    assert told.events == ["sent to receipts", "confirmed", "acked"]


async def test_a_copy_is_confirmed_before_the_delivery_is_acked() -> None:
    told = Told()
    told.confirmed.clear()
    settled = asyncio.create_task(settling(told).settle(delivered(), DEAD, told))
    await eventually_async(lambda: told.events)
    assert told.events == ["sent to dlq-exchange"]
    told.confirmed.set()
    await settled
    assert told.events == ["sent to dlq-exchange", "confirmed", "acked"]


class Broken:
    """Copies of somebody who made a mistake."""

    def of(self, *_: object) -> Publish:
        raise RuntimeError("our mistake")

    again = alone = of


async def test_a_defect_of_ours_parks_the_one_message_that_met_it() -> None:
    told = Told()
    await settling(told, copies=Broken()).settle(delivered(), DEAD, told)
    assert await settling(told, copies=Broken()).set_alone(delivered(), told)
    assert await settling(told, copies=Broken()).set_again(delivered(), told)
    assert told.events == ["rejected", "rejected", "rejected"]


async def test_what_its_queue_does_not_take_is_not_set_aside_and_not_acked() -> None:
    told = Told()
    told.answer = Refused()
    assert not await settling(told).set_again(delivered(), told)
    assert not await settling(told).set_alone(delivered(), told)
    assert told.events == ["sent to again", "refused", "sent to alone", "refused"]


async def test_a_defect_in_a_receipt_does_not_keep_what_was_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Receipts, "of", Broken.of)
    told = Told()
    await settling(told).settle(delivered(REPLAY), Acked(), told)
    assert told.events == ["acked"]


async def test_a_lost_connection_is_no_defect() -> None:
    told = Told()
    told.answer = ConnectionLost("gone")
    with pytest.raises(ConnectionLost):
        await settling(told).settle(delivered(), DEAD, told)
    with pytest.raises(ConnectionLost):
        await settling(told).set_alone(delivered(), told)
    assert "acked" not in told.events


async def test_of_what_the_broker_has_taken_back_no_copy_is_sent() -> None:
    told = Told()
    told.void = ChannelClosed(406, "delivery acknowledgement on channel 1 timed out")
    for settles in (
        settling(told).settle(delivered(), DEAD, told),
        settling(told).set_again(delivered(), told),
        settling(told).set_alone(delivered(), told),
    ):
        with pytest.raises(ChannelClosed):
            await settles
    await settling(told).put_back_again(delivered(), told)
    await settling(told).put_back_alone(delivered(), told)
    assert told.events == []


async def test_the_log_says_which_message_it_was_and_where_it_was_published() -> None:
    properties = Properties.empty().with_text("message_id", "m-1")
    put = {
        headers.QUEUE: fields.longstr("q"),
        headers.ID: fields.longstr("id-1"),
        headers.ROUTING_KEY: fields.longstr("order.created"),
        headers.ATTEMPT: fields.int32(2),
    }
    delivery = Delivery(1, False, "", "redrive-alone-q", properties.with_headers(put).raw, b"")
    failure = Failure(error_type="ValueError", reason="no" * 1000)
    told = Told()
    with structlog.testing.capture_logs() as logs:
        await settling(told).settle(delivery, Retried(failure, tier=3, attempt=3), told)
        await settling(told).settle(delivery, DeadLettered(failure), told)
    common = {
        "queue": "q",
        "handler": "settle",
        "routing_key": "order.created",
        "message_id": "m-1",
        "redrive_id": "id-1",
        "retry_count": 2,
        "error_type": "ValueError",
        "reason": "no" * 150 + "…",
    }
    assert logs == [
        {"event": "message.retried", "log_level": "info", "retry": 3, **common},
        {"event": "message.dead_lettered", "log_level": "warning", **common},
    ]


async def test_the_log_says_what_came_about_and_not_before_the_broker_has_it() -> None:
    told = Told()
    told.confirmed.clear()
    retried = Retried(Failure(error_type="ValueError", reason="no"), tier=1, attempt=1)
    with structlog.testing.capture_logs() as logs:
        settled = asyncio.create_task(settling(told).settle(delivered(), retried, told))
        await eventually_async(lambda: told.events)
        assert not logs
        told.answers = [Returned(312, "NO_ROUTE")]
        told.confirmed.set()
        await settled
    assert told.events[-2:] == ["confirmed", "acked"]
    (line,) = logs
    assert line["event"] == "message.dead_lettered"
    assert "is missing (NO_ROUTE) (the failure before: no)" in line["reason"]


FAILURE = Failure(error_type="ValueError", reason="no")
SENT_ELSEWHERE: dict[str, tuple[Outcome, str]] = {
    "tier": (
        Retried(FAILURE, tier=2, attempt=2),
        "the delay queue behind 'route-delay' for the key 'binding.q.2'",
    ),
    "policy": (
        LeftToPolicy(FAILURE),
        "the retry queue behind 'retry-exchange' for the key 'retry-routing-key'",
    ),
    "rung": (
        Delayed(FAILURE, delay=timedelta(seconds=1), attempt=1),
        "the queue 'redrive-after-1000ms'",
    ),
}


@pytest.mark.parametrize("way", SENT_ELSEWHERE)
async def test_what_could_not_be_sent_says_which_queue_did_not_take_it(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SOON", timedelta(milliseconds=1))
    outcome, where = SENT_ELSEWHERE[way]
    told = Told()
    told.answers = [Refused()] * (4 if way == "rung" else 1)
    with structlog.testing.capture_logs() as logs:
        await settling(told).settle(delivered(), outcome, told)
    assert logs[0]["event"] == "message.dead_lettered"
    assert logs[0]["reason"] == f"{where} is full (the failure before: no)"


@pytest.mark.parametrize(
    ("way", "answer", "mark"),
    [
        ("tier", Refused(), True),
        ("policy", Refused(), True),
        ("tier", Returned(312, "NO_ROUTE"), None),
        ("rung", Refused(), None),  # by its name to one queue, which has it not
    ],
)
async def test_a_dead_letter_after_a_copy_that_another_queue_may_have_is_marked(
    way: str, answer: LaneOutcome, mark: bool | None
) -> None:
    told = Told()
    told.answers = [answer]
    settles = settling(told)
    settles._stopping.set()
    await settles.settle(delivered(), SENT_ELSEWHERE[way][0], told)
    first, dead = told.sent
    assert dead.exchange == "dlq-exchange"
    assert Properties.read(first.properties).header(headers.REDELIVERED) is None
    assert Properties.read(dead.properties).header(headers.REDELIVERED) is mark


RUNG = Delayed(FAILURE, delay=timedelta(seconds=1), attempt=1)


async def test_a_rung_that_refuses_a_message_at_first_gets_it_a_little_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SOON", timedelta(milliseconds=1))
    told = Told()
    told.answers = [Refused(), Refused(), Refused()]
    with structlog.testing.capture_logs() as logs:
        await settling(told).settle(delivered(), RUNG, told)
    assert told.events == ["sent to redrive-after-1000ms"] * 4 + ["confirmed", "acked"]
    assert [line["event"] for line in logs] == ["message.delayed"]


async def test_a_rung_that_was_just_made_may_refuse_a_message_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ladder(_: Declares) -> None:
        told.events.append("made")

    monkeypatch.setattr(module, "_SOON", timedelta(milliseconds=1))
    monkeypatch.setattr(Declares, "ladder", ladder)
    told = Told()
    told.answers = [Returned(312, "NO_ROUTE"), Refused()]
    await settling(told).settle(delivered(), RUNG, told)
    sent = "sent to redrive-after-1000ms"
    assert told.events == [sent, "made", sent, sent, "confirmed", "acked"]


@pytest.mark.parametrize(
    "error",
    [
        AccessRefused(403, "configure access to queue 'redrive-after-125ms' refused"),
        BrokerError("the broker did not answer queue.declare within 60 s"),
    ],
    ids=["refused", "without a leader"],
)
async def test_a_message_whose_rung_cannot_be_declared_is_dead_and_says_why(
    error: BrokerError, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ladder(_: Declares) -> None:
        raise error

    monkeypatch.setattr(Declares, "ladder", ladder)
    told = Told()
    told.answers = [Returned(312, "NO_ROUTE")]
    with structlog.testing.capture_logs() as logs:
        await settling(told).settle(delivered(), RUNG, told)
    sent = ["sent to redrive-after-1000ms", "sent to dlq-exchange"]
    assert told.events == [*sent, "confirmed", "acked"]
    (line,) = logs
    assert line["event"] == "message.dead_lettered"
    assert line["reason"] == (
        f"the queue 'redrive-after-1000ms' is missing (NO_ROUTE, and cannot be declared: {error})"
        " (the failure before: no)"
    )


async def test_a_connection_that_is_lost_while_a_rung_is_declared_makes_nothing_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ladder(_: Declares) -> None:
        raise ConnectionLost("gone")

    monkeypatch.setattr(Declares, "ladder", ladder)
    told = Told()
    told.answers = [Returned(312, "NO_ROUTE")]
    with pytest.raises(ConnectionLost):
        await settling(told).settle(delivered(), RUNG, told)
    assert told.events == ["sent to redrive-after-1000ms"]


async def test_one_that_stops_waits_for_no_rung() -> None:
    told = Told()
    told.answers = [Refused()]
    settles = settling(told)
    settles._stopping.set()
    await settles.settle(delivered(), RUNG, told)
    assert told.events == [
        "sent to redrive-after-1000ms",
        "sent to dlq-exchange",
        "confirmed",
        "acked",
    ]


async def test_what_the_broker_takes_back_meanwhile_is_not_sent_to_its_rung_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SOON", timedelta(milliseconds=500))
    told = Told()
    told.answers = [Refused()]
    settled = asyncio.create_task(settling(told).settle(delivered(), RUNG, told))
    await eventually_async(lambda: told.events)
    told.void = ChannelClosed(406, "delivery acknowledgement on channel 1 timed out")
    with pytest.raises(ChannelClosed):
        await settled
    assert told.events == ["sent to redrive-after-1000ms"]


async def test_a_queue_beside_that_takes_no_copy_is_told_with_what_to_do() -> None:
    for answer, trouble, remedy in (
        (Returned(312, "NO_ROUTE"), "is missing (NO_ROUTE)", "declares it anew"),
        (Returned(403, "ACCESS_REFUSED"), "may not be written to", "grant the user"),
        (Refused(), "is full", "make room"),
    ):
        told = Told()
        told.answer = answer
        with structlog.testing.capture_logs() as logs:
            await settling(told).set_again(delivered(), told)
        (line,) = logs
        assert line["event"] == "consumer.not_set_aside"
        assert f"the queue 'again' {trouble}" in line["reason"]
        assert remedy in line["remedy"]


async def test_a_receipt_that_nobody_takes_is_told_with_what_to_do() -> None:
    told = Told()
    told.answer = Returned(312, "NO_ROUTE")
    with structlog.testing.capture_logs() as logs:
        await settling(told).settle(delivered(REPLAY), Acked(), told)
    (line,) = logs
    assert line["event"] == "consumer.receipt_not_taken"
    assert line["reason"] == "the queue 'receipts' is missing (NO_ROUTE)"
    assert "redrive topology apply" in line["remedy"]


async def test_a_dead_letter_that_was_refused_goes_to_the_dead_letter_queue_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_AGAIN", timedelta(milliseconds=10))
    told = Told()
    told.answers = [Refused(), Refused(), Returned(312, "NO_ROUTE")]
    await settling(told).settle(delivered(), DEAD, told)
    assert told.events == [
        "sent to dlq-exchange",
        "sent to dlq-queue",
        "sent to dlq-queue",
        "sent to dlq-exchange",
        "confirmed",
        "acked",
    ]


def test_a_dead_letter_that_was_refused_is_marked_and_one_that_was_returned_is_not() -> None:
    copies = Copies(DECLARED, TopologySettings(), user="guest", dead_letter_exchange="orders.dlx")
    first = copies.of(delivered(), DEAD)
    returned = copies.once_more(first, first, refused=False)
    assert Properties.read(returned.properties).header(headers.REDELIVERED) is None
    refused = copies.once_more(first, first, refused=True)
    assert refused.exchange == "orders.dlx"
    assert Properties.read(refused.properties).header(headers.REDELIVERED) is True


async def test_what_no_broker_takes_is_parked() -> None:
    told = Told()
    told.answer = Poison(BrokerError("it closes the channel"))
    await settling(told).settle(delivered(), DEAD, told)
    assert told.events[-1] == "rejected"


async def test_what_no_broker_takes_stays_where_the_dead_letter_queue_may_not_get_it() -> None:
    told = Told()
    told.answer = Poison(BrokerError("it closes the channel"))
    settles = settling(told, unsure=Unsure("the exchange is gone", "mend it"))
    with structlog.testing.capture_logs() as logs:
        await settles.settle(delivered(), DEAD, told)
    assert "rejected" not in told.events
    assert not await settles.set_alone(delivered(), told)
    (line,) = logs
    assert line["event"] == "message.stays"
    assert line["reason"] == "it closes the channel; the exchange is gone"
    assert line["remedy"] == "mend it"


async def test_what_no_broker_takes_stays_where_nobody_parks_and_keeps_no_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_WAIT_FOR_A_PERSON", timedelta(seconds=0.1))
    told = Told("again")
    told.answer = Poison(BrokerError("it closes the channel"))
    await settling(told).settle(delivered(), DEAD, told)
    assert told.events[-1] == "refused"  # the worker has not waited for what comes later
    await eventually_async(lambda: told.events[-1] == "requeued")


async def test_what_stays_is_not_answered_by_one_that_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_WAIT_FOR_A_PERSON", timedelta(seconds=0.05))
    told = Told("again")
    told.answer = Poison(BrokerError("it closes the channel"))
    settles = settling(told)
    await settles.settle(delivered(), DEAD, told)
    settles._stopping.set()
    await asyncio.sleep(0.1)
    assert "requeued" not in told.events
