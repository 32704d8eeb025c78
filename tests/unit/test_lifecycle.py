"""The life of a letter: every pair of states, against the list as people wrote it down."""

from __future__ import annotations

import itertools

import pytest

from redrive.domain.lifecycle import (
    DELETABLE,
    FIRST,
    TRANSITIONS,
    State,
    may_become,
    read_state,
    remedy_of,
    require,
)
from redrive.errors import TransitionRefused

SEED = """
dlq_pending     dlq_processing
dlq_pending     dlq_pending
dlq_processing  dlq_resolved
dlq_processing  dlq_pending
dlq_processing  dlq_failed
dlq_processing  dlq_manual
dlq_manual      dlq_processing
dlq_manual      dlq_archived
dlq_failed      dlq_archived
"""
WHAT_OPERATORS_NEED = """
dlq_pending     dlq_manual
dlq_pending     dlq_archived
dlq_failed      dlq_processing
dlq_failed      dlq_manual
dlq_manual      dlq_resolved
dlq_archived    dlq_manual
dlq_resolved    dlq_processing
dlq_resolved    dlq_pending
"""
ALLOWED = {
    (words[0], words[1])
    for line in (SEED + WHAT_OPERATORS_NEED).splitlines()
    if (words := line.split())
}
PAIRS = list(itertools.product(State, repeat=2))


def named(pair: tuple[State, State]) -> str:
    return f"{pair[0].word} to {pair[1].word}"


def test_there_are_six_states() -> None:
    assert {state.value for state in State} == {name for pair in ALLOWED for name in pair}


@pytest.mark.parametrize("pair", PAIRS, ids=named)
def test_a_letter_goes_only_the_ways_that_are_written_down(pair: tuple[State, State]) -> None:
    now, then = pair
    if (now.value, then.value) in ALLOWED:
        assert may_become(now, then)
        assert require(now, then) is then
        return
    assert not may_become(now, then)
    with pytest.raises(TransitionRefused) as refused:
        require(now, then)
    assert now.word in str(refused.value)
    assert then.word in str(refused.value)
    assert "'redrive " in refused.value.remedy


def test_every_way_says_what_it_means() -> None:
    assert all(meaning for ways in TRANSITIONS.values() for meaning in ways.values())


def test_a_letter_begins_as_pending() -> None:
    assert FIRST is State.PENDING


def test_pending_processing_manual_and_failed_letters_are_never_removed() -> None:
    assert {State.RESOLVED, State.ARCHIVED} == DELETABLE


@pytest.mark.parametrize("state", State)
def test_a_state_is_read_by_either_of_its_names(state: State) -> None:
    assert read_state(state.value) is state
    assert read_state(state.value.removeprefix("dlq_")) is state


@pytest.mark.parametrize("text", ["", "Pending", "dlq_", "dlq_dlq_pending", "pending "])
def test_what_is_no_state_is_none(text: str) -> None:
    assert read_state(text) is None


@pytest.mark.parametrize("state", State)
def test_a_letter_whose_origin_is_unknown_is_replayed_to_a_queue_that_is_named(
    state: State,
) -> None:
    known, unknown = (remedy_of(state, origin_known=known) for known in (True, False))
    assert "--to" not in known
    assert unknown.count("'redrive replay --to queue:NAME'") == known.count("'redrive replay'")
