"""When a letter would be sent next, by the settings in force and what a worker has set."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redrive.domain.lifecycle import State
from redrive.settings import Settings
from redrive.work.classify import Classification
from tests.unit.work.letters import NOON, a_letter

MINUTE = timedelta(minutes=1)


def classification(**worker: Any) -> Classification:
    document = {"store": {"url": "sqlite:////redrive.db"}, "worker": worker}
    return Classification.by(Settings.model_validate(document))


def test_a_letter_that_no_worker_has_seen_goes_by_the_timetable() -> None:
    assert classification().of(a_letter(dlq_retry_count=1), NOON).next_at == NOON + 5 * MINUTE


def test_what_a_worker_has_set_stands() -> None:
    letter = a_letter(strategy="immediate", next_retry_at=NOON + 3 * MINUTE)
    assert classification().of(letter, NOON).next_at == NOON + 3 * MINUTE


def test_what_is_overdue_goes_now() -> None:
    letter = a_letter(strategy="immediate", next_retry_at=NOON - MINUTE)
    assert classification().of(letter, NOON).next_at == NOON


def test_what_was_set_for_another_strategy_does_not_count() -> None:
    letter = a_letter(strategy="scheduled", next_retry_at=NOON + 300 * MINUTE)
    assert classification().of(letter, NOON).next_at == NOON + MINUTE


@pytest.mark.parametrize("state", sorted(set(State) - {State.PENDING}))
def test_only_a_pending_letter_is_sent_by_itself(state: State) -> None:
    found = classification().of(a_letter(status=state), NOON)
    assert (found.next_at, found.waits_for) == (None, f"it is {state.word}")


def test_how_many_revivals_are_too_many_is_a_setting() -> None:
    letter = a_letter(dlq_retry_count=2)
    assert classification(max_revivals=3).of(letter, NOON).waits_for is None
    assert classification(max_revivals=2).of(letter, NOON).waits_for == "2 revivals failed"
