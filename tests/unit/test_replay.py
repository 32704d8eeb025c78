"""Where replays send letters, and which they leave out."""

from __future__ import annotations

import itertools

import pytest

from redrive.domain.lifecycle import State, may_become
from redrive.domain.replay import REPLAYED_BY_DEFAULT, Destination, read_destination, why_not
from redrive.errors import OrderRefused
from tests.unit.work.letters import a_letter

SOUND = {"in_doubt": False, "has_copy": False, "doubtful": False}


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("queue:orders", Destination(queue="orders")),
        ("exchange:shop", Destination(exchange="shop")),
        ("queue:a:b", Destination(queue="a:b")),
        ("queue:" + "é" * 127, Destination(queue="é" * 127)),
    ],
)
def test_a_destination_is_read_and_written(text: str, destination: Destination) -> None:
    assert read_destination(text) == destination
    assert str(destination) == text


@pytest.mark.parametrize(
    "text",
    ["", "orders", "queue", "queue:", "exchange:", "topic:x", "Queue:x", "queue:" + "é" * 128],
)
def test_what_is_no_destination_is_refused(text: str) -> None:
    with pytest.raises(OrderRefused, match="expected queue:NAME or exchange:NAME"):
        read_destination(text)


@pytest.mark.parametrize("state", State)
def test_letters_are_sent_from_the_states_that_allow_it(state: State) -> None:
    reason = why_not(a_letter(status=state), **SOUND)
    assert (reason is None) is may_become(state, State.PROCESSING)


@pytest.mark.parametrize("state", REPLAYED_BY_DEFAULT)
def test_what_is_taken_by_default_can_be_sent(state: State) -> None:
    assert may_become(state, State.PROCESSING)


@pytest.mark.parametrize("doubtful", [True, False])
@pytest.mark.parametrize("state", [State.PROCESSING, State.ARCHIVED])
def test_no_wish_sends_what_is_outstanding_or_archived(state: State, doubtful: bool) -> None:
    assert why_not(a_letter(status=state), **(SOUND | {"doubtful": doubtful})) is not None


@pytest.mark.parametrize("doubtful", [True, False])
def test_what_was_resolved_meanwhile_is_left_out(doubtful: bool) -> None:
    wish = SOUND | {"doubtful": doubtful, "resolved_since": True}
    assert why_not(a_letter(status=State.RESOLVED), **wish) is not None
    assert why_not(a_letter(status=State.PENDING), **wish) is None


@pytest.mark.parametrize(
    ("in_doubt", "has_copy", "is_copy"), [*itertools.product([True, False], repeat=3)]
)
def test_what_may_have_been_consumed_is_sent_only_when_asked_for(
    in_doubt: bool, has_copy: bool, is_copy: bool
) -> None:
    letter = a_letter(possible_duplicate=is_copy)
    doubts = {"in_doubt": in_doubt, "has_copy": has_copy}
    left_out = why_not(letter, **doubts, doubtful=False) is not None
    assert left_out is any((in_doubt, has_copy, is_copy))
    assert why_not(letter, **doubts, doubtful=True) is None
