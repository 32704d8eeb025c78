"""The circuit breaker: when it opens, what it admits, and that there is always a way out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.breaker import (
    Admission,
    Breaker,
    BreakerLimits,
    Position,
    read_breaker,
    write_breaker,
)

NOON = datetime(2026, 2, 11, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
OPEN = Breaker().on_failure(NOON, 5)


def test_four_failures_leave_it_closed() -> None:
    assert Breaker().on_failure(NOON, 4).admits(NOON) is Admission.ALL


def test_five_failures_in_a_row_open_it() -> None:
    breaker = Breaker()
    for _ in range(5):
        breaker = breaker.on_failure(NOON)
    assert (breaker.state, breaker.opened_at) == (Position.OPEN, NOON)
    assert breaker.admits(NOON) is Admission.NONE


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = Breaker().on_failure(NOON, 4).on_success().on_failure(NOON, 4)
    assert breaker.state is Position.CLOSED


def test_after_a_minute_one_letter_is_admitted() -> None:
    assert OPEN.admits(NOON + MINUTE - SECOND) is Admission.NONE
    assert OPEN.admits(NOON + MINUTE) is Admission.ONE


def test_while_a_probe_is_out_nothing_else_is_admitted() -> None:
    probing = OPEN.on_probe(NOON + MINUTE)
    assert probing.state is Position.HALF_OPEN
    assert probing.admits(NOON + MINUTE) is Admission.NONE


def test_a_probe_that_succeeds_closes_it() -> None:
    closed = OPEN.on_probe(NOON + MINUTE).on_success()
    assert closed == Breaker()


def test_a_probe_that_fails_opens_it_for_twice_as_long_and_never_for_more_than_the_longest() -> (
    None
):
    breaker, now, waits = OPEN, NOON, []
    for _ in range(7):
        waits.append(breaker.wait)
        now += breaker.wait
        breaker = breaker.on_probe(now).on_failure(now)
    assert waits == [minutes * MINUTE for minutes in (1, 2, 4, 8, 15, 15, 15)]


def test_the_wait_is_short_again_after_it_was_closed() -> None:
    twice = OPEN.on_probe(NOON + MINUTE).on_failure(NOON + MINUTE)
    again = twice.on_probe(NOON + 9 * MINUTE).on_success().on_failure(NOON + 9 * MINUTE, 5)
    assert again.wait == MINUTE


def test_verdicts_of_earlier_sendings_change_nothing_while_it_is_open() -> None:
    assert OPEN.on_failure(NOON + SECOND, 100) == OPEN
    assert OPEN.on_success() == OPEN


def test_a_probe_without_a_verdict_is_given_up_and_another_admitted() -> None:
    sent = NOON + MINUTE
    limits = BreakerLimits.with_verdicts_after(10 * MINUTE)
    probing = replace(OPEN, limits=limits).on_probe(sent)
    assert probing.admits(sent + 20 * MINUTE - SECOND) is Admission.NONE
    assert probing.admits(sent + 20 * MINUTE) is Admission.ONE
    assert probing.on_probe(sent + 20 * MINUTE).probed_at == sent + 20 * MINUTE


def test_a_probe_that_was_not_admitted_is_no_probe() -> None:
    assert OPEN.on_probe(NOON) == OPEN
    assert Breaker().on_probe(NOON) == Breaker()


def test_it_tells_when_it_admits_again() -> None:
    assert Breaker().next_probe_at() is None
    assert OPEN.next_probe_at() == NOON + MINUTE


@pytest.mark.parametrize("breaker", [Breaker(), OPEN, OPEN.on_probe(NOON + MINUTE)])
def test_an_operator_can_force_it_either_way_and_release_it(breaker: Breaker) -> None:
    assert breaker.force(Position.OPEN).admits(NOON + MINUTE * 60) is Admission.NONE
    assert breaker.force(Position.CLOSED).admits(NOON) is Admission.ALL
    assert breaker.force(Position.OPEN).release() == breaker


def test_beneath_a_forced_position_it_goes_on_counting() -> None:
    breaker = Breaker().force(Position.CLOSED).on_failure(NOON, 5)
    assert breaker.admits(NOON) is Admission.ALL
    assert breaker.release().admits(NOON) is Admission.NONE


def test_it_cannot_be_forced_half_open() -> None:
    with pytest.raises(ValueError, match="open or closed"):
        Breaker().force(Position.HALF_OPEN)


def test_limits_can_be_others() -> None:
    limits = BreakerLimits(failures=1, wait=SECOND)
    assert Breaker(limits=limits).on_failure(NOON).admits(NOON + SECOND) is Admission.ONE


# Anything may happen in any order

_happenings = st.lists(
    st.tuples(
        st.sampled_from(["failure", "success", "probe", "open", "closed", "release"]),
        st.integers(0, 3600),
        st.integers(0, 9),
    ),
    max_size=40,
)


def after(happenings: list[tuple[str, int, int]]) -> tuple[Breaker, datetime]:
    breaker, now = Breaker(), NOON
    for what, seconds, number in happenings:
        now += seconds * SECOND
        match what:
            case "failure":
                breaker = breaker.on_failure(now, number)
            case "success":
                breaker = breaker.on_success()
            case "probe":
                breaker = breaker.on_probe(now)
            case "release":
                breaker = breaker.release()
            case forced:
                breaker = breaker.force(Position(forced))
    return breaker, now


@given(_happenings)
def test_whatever_happened_something_is_admitted_again_in_the_end(
    happenings: list[tuple[str, int, int]],
) -> None:
    breaker, now = after(happenings)
    patience = max(breaker.limits.longest_wait, breaker.limits.probe_patience)
    assert breaker.release().admits(now + patience) is not Admission.NONE


@given(_happenings)
def test_whatever_happened_five_failures_close_the_way_and_one_probe_opens_it(
    happenings: list[tuple[str, int, int]],
) -> None:
    breaker, now = after(happenings)
    failed = breaker.release().on_success().on_failure(now, 5)
    assert failed.admits(now) is not Admission.ALL
    due = failed.next_probe_at()
    assert due is not None
    assert failed.on_probe(max(due, now)).on_success() == Breaker()


@given(_happenings)
def test_only_one_of_many_who_ask_at_a_time_may_send_a_probe(
    happenings: list[tuple[str, int, int]],
) -> None:
    breaker, now = after(happenings)
    released = breaker.release()
    if released.admits(now) is Admission.ONE:
        assert released.on_probe(now).admits(now) is Admission.NONE


@given(_happenings)
def test_what_is_written_is_read_back(happenings: list[tuple[str, int, int]]) -> None:
    breaker, _ = after(happenings)
    assert read_breaker(write_breaker(breaker)) == breaker
