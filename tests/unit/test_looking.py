"""What a look costs, by broker version and queue: never guessed in favour of harm."""

from __future__ import annotations

import pytest

from redrive.broker.looking import QueueFacts, read_version

QUORUM = QueueFacts(name="q", kind="quorum")


@pytest.mark.parametrize(
    ("text", "version"),
    [("3.10.8", (3, 10)), ("4.3.6", (4, 3)), ("4.1.0-rc.1", (4, 1)), ("?", (4, 0)), (None, (4, 0))],
)
def test_a_version_that_cannot_be_read_is_the_one_that_forgives_least(
    text: str | None, version: tuple[int, int]
) -> None:
    assert read_version(text) == version


@pytest.mark.parametrize(
    ("kind", "limit", "version", "costs"),
    [
        ("classic", None, (4, 0), False),
        ("quorum", None, (3, 10), False),
        ("quorum", 5, (3, 10), True),
        ("quorum", None, (4, 0), True),
        ("quorum", None, (4, 2), True),
        ("quorum", -1, (4, 2), False),
        ("quorum", -1, (3, 10), True),
        ("quorum", -1, (3, 13), True),
        ("quorum", -1, (4, 3), False),
        ("quorum", 0, (3, 10), True),
        ("classic", -1, (3, 10), False),
        ("quorum", 1_000_000, (4, 0), False),
        ("quorum", 3, (4, 3), False),
        (None, None, (3, 10), True),
        (None, None, (3, 13), True),
        (None, None, (4, 0), True),
        (None, None, (4, 3), False),
    ],
)
def test_a_look_costs_where_the_broker_counts_it_towards_a_limit(
    kind: str | None, limit: int | None, version: tuple[int, int], costs: bool
) -> None:
    facts = QueueFacts(name="q", kind=kind, limits=() if limit is None else (limit,))
    assert bool(facts.cost(version)) is costs


def test_order_is_kept_but_by_quorum_queues_of_version_3() -> None:
    limited = QueueFacts(name="q", kind="quorum", limits=(1_000_000,))
    costly = QueueFacts(name="q", kind="quorum", limits=(5,))
    assert not QUORUM.order((4, 0), 1000)
    assert not QueueFacts(name="q", kind="classic").order((3, 10), 1000)
    assert "behind what arrived" in QUORUM.order((3, 10), 1)
    assert "behind the 2 that were not looked at" in QUORUM.order((3, 10), 1, 2)
    assert not limited.order((3, 10), 32)
    assert "did not keep the order" in limited.order((3, 10), 33)
    assert not costly.order((3, 10), 33)


def test_a_quorum_queue_is_turned_by_a_look_that_ends_among_what_was_given_back_before() -> None:
    limited = QueueFacts(name="q", kind="quorum", limits=(1_000_000,))
    says = "behind what else had been given back to this quorum queue before"
    for facts, version in ((QUORUM, (4, 0)), (QUORUM, (4, 3)), (limited, (3, 10))):
        assert says in facts.order(version, 1, 2, again=True)
        assert not facts.order(version, 1, 0, again=True)
        assert not facts.order(version, 1, 2)
    assert not QueueFacts(name="q", kind="classic").order((4, 3), 1, 2, again=True)


@pytest.mark.parametrize(
    ("argument", "policy", "on_3", "on_4"),
    [
        (None, None, None, 20),
        (5, None, 5, 5),
        (None, 7, 7, 7),
        (5, 7, 5, 5),
        (-1, None, 0, None),
        (-1, 7, 0, 7),
        (-1, 1_000_000, 0, 1_000_000),
        (5, -1, 0, 5),
    ],
)
def test_the_stricter_of_argument_and_policy_is_the_limit_and_on_version_3_minus_one_is_strict(
    argument: int | None, policy: int | None, on_3: int | None, on_4: int | None
) -> None:
    found = {
        "name": "q",
        "type": "quorum",
        "durable": True,
        "auto_delete": False,
        "arguments": {} if argument is None else {"x-delivery-limit": argument},
        "effective_policy_definition": {} if policy is None else {"delivery-limit": policy},
    }
    facts = QueueFacts.from_management(found)
    assert facts.delivery_limit((3, 10)) == facts.delivery_limit((3, 13)) == on_3
    assert facts.delivery_limit((4, 0)) == facts.delivery_limit((4, 3)) == on_4


def test_the_refusal_of_a_limit_of_minus_one_says_that_a_look_removes() -> None:
    unlimited = QueueFacts(name="q", kind="quorum", limits=(-1, 1_000_000))
    assert unlimited.cost((3, 10)) == (
        "by the delivery limit of this quorum queue, -1, RabbitMQ 3.10 removes every message that"
        " is looked at and not moved"
    )
    assert unlimited.removes_at_once((3, 13))
    assert not unlimited.removes_at_once((4, 0))


def test_the_count_at_which_a_return_removes_is_the_limit_where_a_look_costs() -> None:
    limited = QueueFacts(name="q", kind="quorum", limits=(5,))
    assert [limited.removed_at(version) for version in ((3, 10), (4, 2), (4, 3))] == [5, 5, None]
    assert [QUORUM.removed_at(version) for version in ((3, 10), (4, 2))] == [None, 20]
    assert QueueFacts(name="q", kind="quorum", limits=(-1,)).removed_at((3, 10)) == 0
    assert QueueFacts(name="q", kind="classic", limits=(5,)).removed_at((3, 10)) is None
    assert QueueFacts(name="q").removed_at((3, 10)) is None
