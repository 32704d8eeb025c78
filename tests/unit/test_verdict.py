"""What a receipt and silence mean for a letter that was sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redrive.domain.letter import Attempt, Letter, Resolution, Result
from redrive.domain.lifecycle import State, may_become
from redrive.domain.verdict import (
    OUTSTANDING,
    Receipt,
    has_died_in,
    newest_sending,
    on_receipt,
    on_silence,
)
from tests.unit.work.letters import LETTER_ID, NOON, a_letter

QUEUE = "payments"
ATTEMPT = Attempt(
    at=NOON,
    worker_id="worker-1",
    strategy="immediate",
    generation=2,
    result=Result.SENT,
    queue=QUEUE,
    body_digest=b"digest",
)
RECEIPT = Receipt(letter=LETTER_ID, generation=2)


def outstanding(status: State = State.PROCESSING) -> Letter:
    return a_letter(status=status, generation=2)


@pytest.mark.parametrize("result", Result)
def test_a_verdict_is_on_the_newest_sending_that_was_not_refused(result: Result) -> None:
    newest = replace(ATTEMPT, generation=3, result=result)
    refused = replace(ATTEMPT, generation=4, result=Result.REFUSED)
    expected = ATTEMPT if result is Result.REFUSED else newest
    assert newest_sending([ATTEMPT, newest, refused]) is expected
    assert newest_sending([refused]) is None


# Receipts


@pytest.mark.parametrize("result", Result)
def test_a_receipt_counts_for_a_sending_without_a_verdict(result: Result) -> None:
    verdict = on_receipt(outstanding(), replace(ATTEMPT, result=result), RECEIPT)
    assert (verdict is not None) is (result in OUTSTANDING)


@pytest.mark.parametrize("status", State)
def test_a_receipt_counts_for_what_is_outstanding_or_with_a_person(status: State) -> None:
    verdict = on_receipt(outstanding(status), ATTEMPT, RECEIPT)
    assert (verdict is not None) is (status in (State.PROCESSING, State.MANUAL))
    assert verdict is None or may_become(status, verdict.status)


def test_what_has_a_receipt_is_resolved() -> None:
    verdict = on_receipt(outstanding(), ATTEMPT, RECEIPT)
    assert verdict is not None
    assert (verdict.status, verdict.result) == (State.RESOLVED, Result.RESOLVED)
    assert verdict.resolution is Resolution.RECEIPT


def test_a_receipt_of_an_earlier_sending_says_nothing_of_the_newest() -> None:
    assert on_receipt(outstanding(), replace(ATTEMPT, generation=1), RECEIPT) is None


@pytest.mark.parametrize(
    ("sent_to", "handled_in", "counts"),
    [
        (QUEUE, QUEUE, True),
        (QUEUE, None, True),
        (QUEUE, "billing", False),
        (None, "billing", True),
        (None, None, True),
    ],
)
def test_a_receipt_counts_unless_it_is_of_another_queue(
    sent_to: str | None, handled_in: str | None, counts: bool
) -> None:
    attempt, receipt = replace(ATTEMPT, queue=sent_to), replace(RECEIPT, queue=handled_in)
    assert (on_receipt(outstanding(), attempt, receipt) is not None) is counts


# Silence


def test_silence_of_a_queue_that_dead_letters_means_consumed() -> None:
    verdict = on_silence(ATTEMPT, dead_letters=True)
    assert (verdict.status, verdict.resolution) == (State.RESOLVED, Resolution.SILENCE)


def test_silence_of_a_queue_that_may_not_dead_letter_tells_nothing_for_sure() -> None:
    verdict = on_silence(ATTEMPT, dead_letters=False)
    assert (verdict.status, verdict.resolution) == (State.RESOLVED, Resolution.UNKNOWN)
    assert QUEUE in verdict.reason


@pytest.mark.parametrize("dead_letters", [True, False])
def test_silence_behind_an_exchange_tells_nothing_for_sure(dead_letters: bool) -> None:
    verdict = on_silence(replace(ATTEMPT, queue=None), dead_letters=dead_letters)
    assert (verdict.status, verdict.resolution) == (State.RESOLVED, Resolution.UNKNOWN)


@pytest.mark.parametrize("dead_letters", [True, False])
@pytest.mark.parametrize("result", [each for each in Result if each is not Result.SENT])
def test_silence_never_resolves_what_was_not_confirmed(result: Result, dead_letters: bool) -> None:
    verdict = on_silence(replace(ATTEMPT, result=result), dead_letters=dead_letters)
    assert (verdict.status, verdict.resolution) == (State.MANUAL, None)
    assert verdict.result is (Result.IN_DOUBT if result in OUTSTANDING else result)


def test_a_letter_has_died_where_its_deaths_say() -> None:
    assert has_died_in(a_letter(), QUEUE)
    assert not has_died_in(a_letter(), "billing")
