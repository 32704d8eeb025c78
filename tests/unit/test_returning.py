"""What a letter's coming back means for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from redrive.domain.letter import Attempt, Result
from redrive.domain.lifecycle import State, may_become
from redrive.domain.returning import OPEN, is_anothers_copy, is_return, on_return
from tests.services.letters import arrival

SENT = Attempt(
    at=datetime(2026, 2, 11, tzinfo=UTC),
    worker_id="worker-1",
    strategy="immediate",
    generation=1,
    result=Result.SENT,
    queue="orders",
    body_digest=b"digest",
)
TO_AN_EXCHANGE = Attempt(
    at=SENT.at,
    worker_id="worker-1",
    strategy="manual",
    generation=2,
    result=Result.SENT,
    queue=None,
    body_digest=b"digest",
)
LETTER = arrival().letter  # of `orders`


def test_what_comes_from_its_queue_with_its_body_is_what_was_sent() -> None:
    assert is_return(SENT, queue="orders", body_digest=b"digest")


@pytest.mark.parametrize(
    ("queue", "body_digest"), [("billing", b"digest"), ("orders", b"other"), (None, b"digest")]
)
def test_what_differs_in_queue_or_body_is_another_message(
    queue: str | None, body_digest: bytes
) -> None:
    assert not is_return(SENT, queue=queue, body_digest=body_digest)


@pytest.mark.parametrize("queue", ["orders", "billing", None])
def test_what_was_sent_to_an_exchange_may_come_back_from_any_queue(queue: str | None) -> None:
    assert is_return(TO_AN_EXCHANGE, queue=queue, body_digest=b"digest")
    assert not is_return(TO_AN_EXCHANGE, queue=queue, body_digest=b"other")


@pytest.mark.parametrize("queue", ["orders", "billing", None])
@pytest.mark.parametrize("result", sorted(OPEN))
def test_of_what_went_to_an_exchange_the_first_that_comes_back_is_the_letter(
    queue: str | None, result: Result
) -> None:
    sent = replace(TO_AN_EXCHANGE, result=result)
    assert not is_anothers_copy(LETTER, sent, queue, newest=True)


@pytest.mark.parametrize(
    ("result", "newest"), [(Result.RETURNED, True), (Result.SENT, False), (Result.RETURNED, False)]
)
def test_once_the_letter_is_back_or_sent_again_only_its_own_queue_has_more_copies_of_it(
    result: Result, newest: bool
) -> None:
    sent = replace(TO_AN_EXCHANGE, result=result)
    assert is_anothers_copy(LETTER, sent, "billing", newest=newest)
    assert not is_anothers_copy(LETTER, sent, "orders", newest=newest)


def test_what_was_never_sent_does_not_come_back() -> None:
    assert not is_return(None, queue="orders", body_digest=b"digest")


@pytest.mark.parametrize("revivals", range(4))
def test_a_letter_that_failed_again_is_pending_until_the_fifth_time(revivals: int) -> None:
    back = on_return(State.PROCESSING, revivals, 5)
    assert (back.status, back.revivals) == (State.PENDING, revivals + 1)


@pytest.mark.parametrize("revivals", [4, 5, 100])
def test_the_fifth_return_makes_a_letter_failed(revivals: int) -> None:
    back = on_return(State.PROCESSING, revivals, 5)
    assert (back.status, back.revivals) == (State.FAILED, revivals + 1)
    assert str(revivals + 1) in back.reason


def test_a_letter_that_was_taken_for_consumed_is_pending_again() -> None:
    back = on_return(State.RESOLVED, 4, 5)
    assert (back.status, back.revivals) == (State.PENDING, 5)


@pytest.mark.parametrize("status", [State.PENDING, State.MANUAL, State.FAILED, State.ARCHIVED])
def test_a_letter_that_a_person_has_in_hand_stays_there(status: State) -> None:
    back = on_return(status, 9, 5)
    assert (back.status, back.revivals) == (status, 10)


@pytest.mark.parametrize("status", State)
@pytest.mark.parametrize("revivals", [0, 4, 9])
def test_a_return_changes_a_state_only_as_the_lifecycle_allows(
    status: State, revivals: int
) -> None:
    back = on_return(status, revivals, 5)
    assert back.status is status or may_become(status, back.status)
    assert back.reason


def test_a_return_settles_what_might_have_been_consumed_and_nothing_else() -> None:
    settled = {Result.REFUSED, Result.RETURNED, Result.FAILED}
    assert set(Result) - settled == OPEN
