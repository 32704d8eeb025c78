"""What fits into a queue before it pushes out others: never guessed in favour of harm."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.broker.drift import LiveQueue
from redrive.broker.enrollment import Policy
from redrive.broker.policies import Policies
from redrive.broker.room import LengthLimit, Room


def limit_of(kind: str, arguments: dict[str, Any], policy: dict[str, Any]) -> LengthLimit | None:
    return LengthLimit.of(LiveQueue(kind=kind, arguments=arguments, policy=policy))


@pytest.mark.parametrize(
    ("argument", "policy", "classic", "quorum"),
    [
        (None, None, "drop-head", "drop-head"),
        ("reject-publish", None, "reject-publish", "reject-publish"),
        (None, "reject-publish", "reject-publish", "reject-publish"),
        ("reject-publish", "drop-head", "reject-publish", "drop-head"),
        ("drop-head", "reject-publish", "drop-head", "reject-publish"),
        ("reject-publish-dlx", None, "reject-publish-dlx", "drop-head"),
    ],
)
def test_the_argument_decides_in_classic_queues_and_the_policy_in_quorum_queues(
    argument: str | None, policy: str | None, classic: str, quorum: str
) -> None:
    arguments = {} if argument is None else {"x-overflow": argument}
    by_policy = {} if policy is None else {"overflow": policy}
    for kind, expected in (("classic", classic), ("quorum", quorum)):
        queue = LiveQueue(kind=kind, arguments=arguments, policy=by_policy)
        assert queue.overflow == expected


def test_the_lower_of_two_limits_counts_and_whether_it_refuses_or_pushes_out() -> None:
    assert limit_of("classic", {}, {}) is None
    refusing = limit_of("classic", {"x-max-length": 5, "x-overflow": "reject-publish"}, {})
    assert refusing == LengthLimit(5, None, None, "classic", refuses=True)
    assert limit_of("stream", {"x-max-length-bytes": 5}, {}) is None
    assert limit_of("quorum", {"x-max-length": 5}, {"max-length": 3, "max-length-bytes": 9}) == (
        LengthLimit(3, 9, None, "quorum")
    )
    elsewhere = limit_of("quorum", {"x-max-length": 5}, {"dead-letter-exchange": "dlx"})
    assert elsewhere == LengthLimit(5, None, "dlx", "quorum")


def test_room_is_taken_by_messages_and_by_their_bytes() -> None:
    room = Room("q", LengthLimit(5, 100, None), 3, 40, (4, 3))
    taken = [room.take(bytes(size), b"properties") for size in (30, 31, 30, 0)]
    assert taken == [True, False, True, False]
    assert "has room for 2 more messages and 60 more bytes" in room.full
    assert not Room("q", LengthLimit(5, None, None), 7, 0, (4, 3)).take(b"", b"")


@pytest.mark.parametrize(
    ("kind", "version", "fits"),
    [("classic", (4, 3), 10), ("quorum", (4, 0), 10), ("quorum", (4, 1), 5), ("quorum", (4, 3), 5)],
)
def test_quorum_queues_of_newer_brokers_weigh_properties_too(
    kind: str, version: tuple[int, int], fits: int
) -> None:
    room = Room("q", LengthLimit(None, 100, None, kind), 0, 0, version)
    assert [room.take(bytes(10), bytes(10)) for _ in range(11)].count(True) == fits


def test_a_size_that_is_not_known_leaves_no_room() -> None:
    room = Room("q", LengthLimit(None, 100, None), 3, None, (4, 3))
    assert not room.take(b"1", b"")
    assert "may be full" in room.full


def policy(definition: dict[str, Any], *, priority: int = 0, pattern: str = ".*") -> Policy:
    return Policy("p", pattern, "queues", priority, definition)


def shown(definition: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "q",
        "type": "quorum",
        "durable": True,
        "auto_delete": False,
        "effective_policy_definition": definition,
    }


@pytest.mark.parametrize(
    ("users", "operators", "in_force"),
    [
        ([policy({"max-length": 5})], [], {"max-length": 5}),
        ([policy({"max-length": 5}), policy({"expires": 1}, priority=1)], [], {"expires": 1}),
        ([policy({"max-length": 5}, pattern="^other$")], [], {}),
        ([policy({"max-length": 5})], [policy({"max-length": 3})], {"max-length": 3}),
        ([policy({"expires": 9})], [policy({"max-length": 3})], {"expires": 9, "max-length": 3}),
        *(
            ([policy({"delivery-limit": user})], [policy({"delivery-limit": operator})], in_force)
            for user, operator, in_force in (
                (-1, 20, {"delivery-limit": 20}),
                (20, -1, {"delivery-limit": 20}),
                (-1, -1, {"delivery-limit": -1}),
            )
        ),
        (
            [policy({"overflow": "reject-publish"})],
            [policy({"overflow": "drop-head"})],
            {"overflow": "drop-head"},
        ),
    ],
)
def test_the_policies_as_they_are_now_are_told_beside_what_is_shown(
    users: list[Policy], operators: list[Policy], in_force: dict[str, Any]
) -> None:
    policies = Policies(tuple(users), tuple(operators))
    late = [
        found["effective_policy_definition"] for found in policies.as_it_may_be(shown({"x": 1}))
    ]
    assert late == [{"x": 1}, in_force]
    assert policies.as_it_may_be(shown(in_force)) == [shown(in_force)]


def test_where_policies_may_not_be_listed_what_is_shown_counts() -> None:
    assert Policies().as_it_may_be(shown({"max-length": 5})) == [shown({"max-length": 5})]
