"""Whether a failed message is retried."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.policy import Policy
from redrive.domain.retry import Dead, Failed, Retry, decide

FAILED = Failed(queue="q", routing_key="k", reason="rejected", attempt=0, replayed=False)
THREE = Policy(name="k", max_retries=3)


@given(attempt=st.integers(0, 50), limit=st.integers(0, 50), tiers=st.integers(1, 10))
def test_a_message_is_retried_exactly_as_often_as_its_policy_says(
    attempt: int, limit: int, tiers: int
) -> None:
    policy = Policy(name="k", max_retries=limit)
    decision = decide(FAILED._replace(attempt=attempt), policy, tiers)
    if attempt < limit:
        assert decision == Retry(tier=min(attempt + 1, tiers), attempt=attempt + 1)
    else:
        assert isinstance(decision, Dead)


def test_an_unconfigured_routing_key_is_not_retried() -> None:
    decision = decide(FAILED, None, 3)
    assert decision == Dead("REJECTED", "no policy for routing key 'k': not retried")


def test_an_expired_message_is_stale() -> None:
    assert isinstance(decide(FAILED._replace(reason="expired"), THREE, 3), Dead)


def test_an_expired_message_is_retried_where_its_policy_says_so() -> None:
    policy = replace(THREE, retry_expired=True)
    assert decide(FAILED._replace(reason="expired"), policy, 3) == Retry(tier=1, attempt=1)


@pytest.mark.parametrize("reason", ["rejected", "maxlen", "delivery_limit", "of another broker"])
def test_every_other_reason_is_a_failure_and_retried(reason: str) -> None:
    assert decide(FAILED._replace(reason=reason), THREE, 3) == Retry(tier=1, attempt=1)


@pytest.mark.parametrize(
    ("reason", "error_type"),
    [
        ("rejected", "REJECTED"),
        ("expired", "EXPIRED"),
        ("maxlen", "MAX_LENGTH"),
        ("delivery_limit", "DELIVERY_LIMIT"),
        ("of another broker", "UNKNOWN"),
    ],
)
def test_the_error_type_tells_the_brokers_reason(reason: str, error_type: str) -> None:
    decision = decide(FAILED._replace(reason=reason), None, 3)
    assert isinstance(decision, Dead)
    assert decision.error_type == error_type


def test_a_replayed_letter_is_left_to_its_own_strategy() -> None:
    assert isinstance(decide(FAILED._replace(replayed=True), THREE, 3), Dead)
