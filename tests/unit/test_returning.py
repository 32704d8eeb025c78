"""What a letter's coming back means for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from redrive.domain.letter import Attempt, Result
from redrive.domain.lifecycle import State, may_become
from redrive.domain.returning import OPEN, Came, CameBack, Derived, on_return, what_came
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
BY_POLICY = replace(SENT, queue=None)
BY_PERSON = replace(SENT, queue=None, strategy="manual", replay_id="to-all")
LETTER = arrival().letter  # of `orders`


def told(
    *sendings: Attempt, queue: str | None = "orders", body_digest: bytes = b"digest"
) -> CameBack | Derived:
    """What a message of the first sending is; all have happened, and one replay went to all."""
    numbered = [replace(each, generation=place + 1) for place, each in enumerate(sendings)]
    came = Came(generation=1, queue=queue, body_digest=body_digest)
    return what_came(LETTER, came, numbered, {"to-all"})


def is_the_letter(*sendings: Attempt, queue: str | None = "orders") -> bool:
    return isinstance(told(*sendings, queue=queue), CameBack)


def test_what_comes_from_its_queue_with_its_body_is_what_was_sent() -> None:
    assert told(SENT) == CameBack(sending=SENT, newest=True, moves=False)


@pytest.mark.parametrize(
    ("queue", "body_digest"), [("billing", b"digest"), ("orders", b"other"), (None, b"digest")]
)
def test_what_differs_in_queue_or_body_is_another_message(
    queue: str | None, body_digest: bytes
) -> None:
    assert told(SENT, queue=queue, body_digest=body_digest) == Derived()


def test_what_was_never_sent_does_not_come_back() -> None:
    assert told() == Derived()


@pytest.mark.parametrize("queue", ["orders", "billing", None])
@pytest.mark.parametrize("result", sorted(Result))
@pytest.mark.parametrize("since", [(), (BY_POLICY,), (SENT,)])
def test_what_a_policy_sent_to_an_exchange_is_the_letter_whatever_queue_it_comes_from(
    queue: str | None, result: Result, since: tuple[Attempt, ...]
) -> None:
    sent = replace(BY_POLICY, result=result)
    back = CameBack(sending=sent, newest=not since and result is not Result.REFUSED, moves=False)
    assert told(sent, *since, queue=queue) == back
    assert told(sent, *since, queue=queue, body_digest=b"other") == Derived()


@pytest.mark.parametrize("queue", ["orders", "billing", None])
@pytest.mark.parametrize("result", sorted(OPEN))
def test_of_what_a_person_sent_to_an_exchange_the_first_that_comes_back_is_the_letter(
    queue: str | None, result: Result
) -> None:
    sent = replace(BY_PERSON, result=result)
    assert told(sent, queue=queue) == CameBack(sending=sent, newest=True, moves=True)


def test_so_it_is_where_what_was_sent_since_was_refused() -> None:
    refused = replace(SENT, result=Result.REFUSED)
    assert told(BY_PERSON, refused, queue="billing") == told(BY_PERSON, queue="billing")


@pytest.mark.parametrize(
    ("result", "since"), [(Result.RETURNED, ()), (Result.SENT, (SENT,)), (Result.RETURNED, (SENT,))]
)
def test_once_the_letter_is_back_or_sent_again_only_its_own_queue_has_more_copies_of_it(
    result: Result, since: tuple[Attempt, ...]
) -> None:
    sent = replace(BY_PERSON, result=result)
    assert told(sent, *since, queue="billing") == Derived()
    assert is_the_letter(sent, *since, queue="orders")


def test_once_it_is_known_where_it_failed_only_that_queue_has_more_copies_of_it() -> None:
    settled = replace(BY_PERSON, result=Result.RETURNED, queue="billing")
    assert is_the_letter(settled, queue="billing")
    assert told(settled, queue="orders") == Derived()


@pytest.mark.parametrize("first", [BY_PERSON, replace(BY_PERSON, queue="orders")])
@pytest.mark.parametrize(
    "since",
    [BY_PERSON, BY_POLICY, replace(BY_PERSON, queue="orders"), replace(SENT, queue="billing")],
)
def test_a_copy_whose_queue_may_have_been_sent_another_since_is_a_possible_duplicate(
    first: Attempt, since: Attempt
) -> None:
    doubtful = Derived(possible_duplicate=True)
    assert told(first, since, queue="billing") == doubtful
    assert told(first, since, SENT, queue="billing") == doubtful


@pytest.mark.parametrize("first", [BY_PERSON, replace(BY_PERSON, queue="orders")])
@pytest.mark.parametrize("since", [SENT, replace(BY_PERSON, result=Result.REFUSED)])
def test_a_copy_whose_queue_was_sent_nothing_since_is_no_duplicate(
    first: Attempt, since: Attempt
) -> None:
    assert told(first, since, SENT, queue="billing") == Derived()


def test_a_message_that_copied_the_headers_of_a_letter_is_no_duplicate() -> None:
    assert told(SENT, BY_PERSON, queue="billing") == Derived()
    assert told(BY_PERSON, BY_PERSON, queue="billing", body_digest=b"other") == Derived()


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
