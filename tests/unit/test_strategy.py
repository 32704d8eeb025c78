"""Which rule chooses a letter's strategy, and when the letter is tried next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive.domain.builtin_rules import BUILTIN_RULES
from redrive.domain.strategy import (
    DEFAULT,
    NO_ORIGIN,
    POSSIBLE_DUPLICATES,
    Rule,
    Rules,
    Strategy,
    Timetable,
)
from tests.unit.work.letters import a_letter

NOON = datetime(2026, 2, 11, 12, tzinfo=UTC)
LETTER = a_letter()  # TIMEOUT_ERROR in payments, payment.created


def rules(*users: Rule, default: Strategy = Strategy.MANUAL) -> Rules:
    return Rules(users, BUILTIN_RULES, default)


def rule(number: int = 1, strategy: Strategy = Strategy.SCHEDULED, **patterns: Any) -> Rule:
    return Rule(name=f"[[classify]] {number}", strategy=strategy, **patterns)


def test_a_users_rule_comes_before_the_builtin_ones() -> None:
    chosen = rules(rule(error_type="TIMEOUT*")).choose(LETTER)
    assert (chosen.strategy, chosen.rule) == (Strategy.SCHEDULED, "[[classify]] 1")
    assert chosen.why == "error type 'TIMEOUT_ERROR' matches 'TIMEOUT*'"


def test_the_first_rule_that_matches_wins() -> None:
    chosen = rules(
        rule(1, queue="orders"),
        rule(2, Strategy.CONDITIONAL, queue="pay*"),
        rule(3, Strategy.MANUAL, queue="payments"),
    ).choose(LETTER)
    assert (chosen.strategy, chosen.rule) == (Strategy.CONDITIONAL, "[[classify]] 2")


def test_where_no_users_rule_matches_the_builtin_ones_decide() -> None:
    chosen = rules(rule(queue="orders")).choose(LETTER)
    assert (chosen.strategy, chosen.rule) == (Strategy.IMMEDIATE, "built-in: timeouts")


def test_where_no_rule_matches_the_default_decides() -> None:
    letter = a_letter(error_type="ValueError", error_reason="bad amount")
    chosen = rules(default=Strategy.CONDITIONAL).choose(letter)
    assert (chosen.strategy, chosen.rule) == (Strategy.CONDITIONAL, DEFAULT)
    assert chosen.why == "no rule matches"


@pytest.mark.parametrize(
    "patterns",
    [
        {"error_type": "timeout*"},
        {"error_type": "TIMEOUT"},
        {"error_reason": "timeout"},
        {"queue": "pay"},
        {"routing_key": "payment.?"},
        {"error_type": "TIMEOUT*", "queue": "orders"},
    ],
)
def test_a_rule_applies_only_if_all_its_patterns_match_the_whole_text(
    patterns: dict[str, Any],
) -> None:
    assert rule(**patterns).choose(LETTER) is None


def test_all_patterns_that_matched_are_told() -> None:
    every = rule(
        error_type="TIMEOUT*", error_reason="*timeout*", queue="pay*", routing_key="payment.*"
    )
    chosen = every.choose(LETTER)
    assert chosen is not None
    assert chosen.why == (
        "error type 'TIMEOUT_ERROR' matches 'TIMEOUT*' and the reason matches '*timeout*'"
        " and queue 'payments' matches 'pay*' and routing key 'payment.created' matches 'payment.*'"
    )


def test_a_rule_by_queue_decides_for_letters_without_failure_information() -> None:
    letter = a_letter(error_type="REJECTED", error_reason="rejected without a reason")
    chosen = rules(rule(strategy=Strategy.IMMEDIATE, queue="payments")).choose(letter)
    assert chosen.strategy is Strategy.IMMEDIATE


def test_a_letter_without_an_origin_is_left_to_a_person_whatever_the_rules_say() -> None:
    chosen = rules(rule(error_type="*")).choose(a_letter(queue=None))
    assert (chosen.strategy, chosen.rule) == (Strategy.MANUAL, NO_ORIGIN)


def test_a_possible_duplicate_is_left_to_a_person_whatever_the_rules_say() -> None:
    letter = a_letter(possible_duplicate=True, duplicate_of="018d-1")
    chosen = rules(rule(error_type="*")).choose(letter)
    assert (chosen.strategy, chosen.rule) == (Strategy.MANUAL, POSSIBLE_DUPLICATES)
    assert chosen.why == "it may be a second copy of letter 018d-1"


# When


@dataclass
class EveryMidnight:
    """A schedule that is easy to see through."""

    def after(self, moment: datetime) -> datetime:
        return moment.replace(hour=0, minute=0) + timedelta(days=1)


TIMETABLE = Timetable(EveryMidnight())


@pytest.mark.parametrize(
    ("revivals", "minutes"), [(0, 1), (1, 5), (2, 15), (3, 30), (4, 60), (5, 60), (500, 60)]
)
def test_immediate_waits_longer_after_each_revival(revivals: int, minutes: int) -> None:
    due = TIMETABLE.next_try(Strategy.IMMEDIATE, revivals, NOON)
    assert due == NOON + timedelta(minutes=minutes)


def test_scheduled_waits_for_the_schedule() -> None:
    due = TIMETABLE.next_try(Strategy.SCHEDULED, 3, NOON)
    assert due == datetime(2026, 2, 12, tzinfo=UTC)


def test_conditional_is_due_at_once() -> None:
    assert TIMETABLE.next_try(Strategy.CONDITIONAL, 3, NOON) == NOON


def test_manual_is_never_due() -> None:
    assert TIMETABLE.next_try(Strategy.MANUAL, 0, NOON) is None
