"""What enrolling a queue would do, for every kind of queue that a foreign broker may have."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.broker.drift import LiveExchange, LiveQueue
from redrive.broker.enrollment import (
    Candidate,
    Intent,
    Policy,
    Refusal,
    consider,
    exactly,
    matching,
)
from redrive.broker.topology import Binding
from redrive.settings.sections import TopologyNames

NAMES = TopologyNames()
SAFE = {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
OURS = {"dead-letter-exchange": "retry-exchange", "dead-letter-routing-key": "retry-routing-key"}
RETURN = Binding("redrive-return", "orders", "redrive-queue:orders")


def policy(name: str = "theirs", priority: int = 0, **definition: Any) -> Policy:
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    return Policy(name, ".*", "queues", priority, keys)


def considered(
    *,
    name: str = "orders",
    base: Policy | None = None,
    exchange: LiveExchange | None = None,
    bind_exchange: bool = False,
    kind: str = "quorum",
    exclusive: bool = False,
    **arguments: Any,
) -> Intent | Refusal:
    queue = LiveQueue(
        kind=kind,
        exclusive=exclusive,
        arguments={f"x-{key.replace('_', '-')}": value for key, value in arguments.items()},
    )
    candidate = Candidate(name, queue, base, base.priority + 1 if base else 1, exchange)
    return consider(candidate, NAMES, bind_exchange=bind_exchange)


def intent(**given: Any) -> Intent:
    answer = considered(**given)
    assert isinstance(answer, Intent)
    return answer


def refusal(**given: Any) -> str:
    answer = considered(**given)
    assert isinstance(answer, Refusal)
    return answer.reason


def test_a_plain_quorum_queue_is_connected_safely_and_without_a_word() -> None:
    plain = intent()
    assert plain.policy == Policy(
        "redrive-enroll:orders", "^orders$", "queues", 1, {**OURS, **SAFE}
    )
    assert plain.bindings == (RETURN,)
    assert (plain.base, plain.warnings, plain.consents) == (None, (), ())


def test_a_classic_queue_has_no_key_that_would_keep_the_policy_from_it_and_a_warning() -> None:
    classic = intent(kind="classic")
    assert classic.policy is not None
    assert classic.policy.definition == OURS
    assert "can lose or double" in classic.warnings[0]


def test_the_policy_in_force_is_merged_and_ours_is_of_higher_priority() -> None:
    merged = intent(base=policy(priority=7, queue_leader_locator="balanced", message_ttl=5))
    assert merged.policy is not None
    assert merged.policy.priority == 8
    assert merged.policy.definition == {
        "queue-leader-locator": "balanced",
        "message-ttl": 5,
        **OURS,
        **SAFE,
    }
    assert (merged.base, merged.consents) == ("theirs", ())


def test_a_queue_with_another_dead_letter_argument_is_refused_with_an_offer() -> None:
    reason = refusal(dead_letter_exchange="their-dlx")
    assert "'their-dlx'" in reason
    assert "--bind-exchange" in reason


def test_a_policy_that_dead_letters_elsewhere_is_replaced_only_with_consent() -> None:
    answer = intent(base=policy(dead_letter_exchange="their-dlx", dead_letter_routing_key="k"))
    assert "instead of 'their-dlx'" in answer.consents[0]
    assert answer.policy is not None
    assert answer.policy.definition == {**OURS, **SAFE}


def test_a_queue_that_dead_letters_here_by_its_arguments_only_gets_what_is_missing() -> None:
    answer = intent(dead_letter_exchange="retry-exchange")
    assert answer.policy is not None
    assert answer.policy.definition == SAFE
    safe = intent(
        dead_letter_exchange="retry-exchange",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )
    assert (safe.policy, safe.bindings, safe.warnings) == (None, (RETURN,), ())


def test_an_argument_that_makes_dead_lettering_unsafe_is_warned_of_and_publishers_left_alone() -> (
    None
):
    unsafe = intent(dead_letter_strategy="at-most-once", max_length=5)
    assert "dead-letter-strategy at-most-once and overflow drop-head" in unsafe.warnings[0]
    assert unsafe.policy is not None
    assert (unsafe.policy.definition, unsafe.consents) == (OURS, ())


@pytest.mark.parametrize("argument", ["drop-head", "reject-publish"])
def test_ours_says_what_overflows_whatever_an_argument_and_the_policy_in_force_say(
    argument: str,
) -> None:
    """In a quorum queue the policy's way to overflow beats the argument's."""
    answer = intent(overflow=argument, base=policy(overflow="drop-head"))
    assert answer.policy is not None
    assert answer.policy.definition == {**OURS, **SAFE}
    assert answer.warnings == ()


def test_a_policy_that_takes_at_least_once_from_a_queue_that_asked_for_it_is_outdone() -> None:
    arguments = {
        "dead_letter_exchange": "retry-exchange",
        "dead_letter_strategy": "at-least-once",
        "overflow": "reject-publish",
    }
    answer = intent(base=policy(overflow="drop-head"), **arguments)
    assert answer.policy is not None
    assert answer.policy.definition == {"overflow": "reject-publish"}
    assert answer.consents == ()
    (consent,) = intent(base=policy(overflow="drop-head", max_length=5), **arguments).consents
    assert "where it now drops the oldest" in consent


def test_where_only_its_exchange_is_bound_a_policy_that_makes_it_unsafe_is_warned_of() -> None:
    answer = intent(
        bind_exchange=True,
        exchange=LiveExchange(kind="fanout"),
        base=policy(overflow="drop-head"),
        dead_letter_exchange="dlx",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )
    assert "dead-letter-strategy at-least-once and overflow drop-head" in answer.warnings[0]


def test_our_policy_of_before_is_renewed_also_where_the_users_own_says_it_all_by_now() -> None:
    ours = policy("redrive-enroll:orders", overflow="drop-head", **_named(OURS))
    theirs = policy(**_named({**OURS, **SAFE}))
    queue = LiveQueue(kind="quorum", policy_name=ours.name, policy=ours.definition)
    answer = consider(Candidate("orders", queue, theirs, 1, None), NAMES)
    assert isinstance(answer, Intent)
    assert answer.policy is not None
    assert answer.policy.definition == {**OURS, **SAFE}


def _named(definition: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in definition.items()}


@pytest.mark.parametrize(
    "given", [{"max_length": 5}, {"max_length_bytes": 5}, {"base": policy(max_length=5)}]
)
def test_a_queue_with_a_length_limit_changes_for_its_publishers_so_they_are_asked(
    given: dict[str, Any],
) -> None:
    (consent,) = intent(**given).consents
    assert "refuse new messages" in consent


@pytest.mark.parametrize(
    "given",
    [
        {"max_length": 5, "overflow": "reject-publish"},
        {"base": policy(max_length=5, overflow="reject-publish")},
        {"max_length": 5, "kind": "classic"},
    ],
)
def test_a_limit_that_already_refuses_or_is_not_touched_needs_no_consent(
    given: dict[str, Any],
) -> None:
    assert intent(**given).consents == ()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"exclusive": True},
            (
                "cannot be enrolled: nobody else can bind it; declare it with the argument"
                " x-dead-letter-exchange: retry-exchange, by which it is retried and gets its"
                " messages back by its exchange, where its neighbours see every retry"
            ),
        ),
        (
            {"exclusive": True, "dead_letter_exchange": "retry-exchange"},
            "cannot be enrolled: nobody else can bind it; nothing is to be done",
        ),
        ({"kind": "stream"}, "is a stream"),
    ],
)
def test_what_cannot_be_enrolled_is_refused(given: dict[str, Any], reason: str) -> None:
    assert reason in refusal(**given)


@pytest.mark.parametrize(
    ("kind", "key", "bound_by"),
    [
        ("topic", None, "#"),
        ("topic", "dead", "dead"),
        ("fanout", None, ""),
        ("direct", "dead", "dead"),
    ],
)
def test_the_retry_queue_is_bound_to_their_dead_letter_exchange(
    kind: str, key: str | None, bound_by: str
) -> None:
    arguments = {"dead_letter_exchange": "dlx"}
    if key:
        arguments["dead_letter_routing_key"] = key
    answer = intent(bind_exchange=True, exchange=LiveExchange(kind=kind), **arguments)
    assert answer.policy is None
    assert answer.bindings == (RETURN, Binding("dlx", "retry-queue", bound_by))
    assert "still get their copy" in answer.warnings[-1]


@pytest.mark.parametrize(
    ("target", "exchange", "reason"),
    [
        ("", None, "default exchange"),
        ("gone", None, "does not exist"),
        ("dlx", LiveExchange(kind="direct"), "no single key"),
        ("dlx", LiveExchange(kind="headers"), "no single key"),
    ],
)
def test_where_no_binding_would_catch_the_dead_messages_it_is_refused(
    target: str, exchange: LiveExchange | None, reason: str
) -> None:
    assert reason in refusal(bind_exchange=True, dead_letter_exchange=target, exchange=exchange)


def test_with_bind_exchange_a_queue_that_dead_letters_nowhere_is_enrolled_as_usual() -> None:
    assert intent(bind_exchange=True) == intent()


def test_policies_that_match_are_sorted_by_priority_without_ours() -> None:
    policies = [
        Policy("low", "^ord", "all", 0, {}),
        Policy("high", "ers$", "quorum_queues", 9, {}),
        Policy("redrive-enroll:orders", "^orders$", "queues", 99, {}),
        Policy("other", "^x", "queues", 50, {}),
        Policy("exchanges", ".*", "exchanges", 50, {}),
        Policy("classic", ".*", "classic_queues", 50, {}),
    ]
    assert [found.name for found in matching(policies, "orders", "quorum")] == ["high", "low"]


@pytest.mark.parametrize("pattern", ["(?<n>ord)", "^[[:alpha:]]+$"])
def test_a_pattern_that_only_erlang_understands_may_match(pattern: str) -> None:
    theirs = Policy("erlang", pattern, "queues", 0, {})
    assert matching([theirs], "orders", "quorum") == [theirs]


@given(st.text(min_size=1, max_size=50), st.text(min_size=1, max_size=50))
def test_the_pattern_matches_exactly_one_queue(name: str, other: str) -> None:
    pattern = re.compile(exactly(name))
    assert pattern.search(name)
    if other.rstrip("\n") != name.rstrip("\n"):
        assert not pattern.search(other)
