"""What counts as a difference between the description and a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redrive.broker.drift import (
    Difference,
    Drift,
    LiveExchange,
    LiveQueue,
    Snapshot,
    Standing,
    compare,
)
from redrive.broker.live import live_queue, refused
from redrive.broker.topology import Topology, describe
from redrive.errors import PreconditionFailed, ResourceLocked
from redrive.settings.sections import QueueSettings, TopologySettings

TOPOLOGY = describe(TopologySettings(), (QueueSettings(name="orders", exchange="shop"),))


def as_described(topology: Topology = TOPOLOGY) -> Snapshot:
    return Snapshot(
        exchanges={part.name: LiveExchange(kind=part.kind) for part in topology.exchanges},
        queues={
            part.name: LiveQueue(kind=part.kind, arguments=part.arguments)
            for part in topology.queues
        },
        bindings=frozenset(topology.bindings),
    )


def with_queue(name: str, **changes: Any) -> Drift:
    snapshot = as_described()
    queue = replace(snapshot.queues[name], **changes)
    return compare(TOPOLOGY, replace(snapshot, queues={**snapshot.queues, name: queue}))


def differences(drift: Drift) -> list[Difference]:
    (finding,) = drift.of(Standing.DIFFERS)
    return list(finding.differences)


def test_a_broker_as_described_is_clean() -> None:
    drift = compare(TOPOLOGY, as_described())
    assert drift.clean
    assert len(drift.of(Standing.SAME)) == len(TOPOLOGY.parts())


def test_of_an_empty_broker_everything_is_missing() -> None:
    drift = compare(TOPOLOGY, Snapshot())
    assert not drift.clean
    assert [finding.part for finding in drift.of(Standing.MISSING)] == list(TOPOLOGY.parts())


def test_an_argument_that_differs_is_named_with_both_values() -> None:
    arguments = as_described().queues["queue.delay.1"].arguments
    drift = with_queue("queue.delay.1", arguments={**arguments, "x-message-ttl": 60_000})
    assert differences(drift) == [Difference("x-message-ttl", 10_000, 60_000)]
    assert str(differences(drift)[0]) == "x-message-ttl: expected 10000, got 60000"


def test_an_argument_too_many_and_one_too_few_are_differences() -> None:
    arguments = dict(as_described().queues["retry-queue"].arguments)
    del arguments["x-overflow"]
    drift = with_queue("retry-queue", arguments={**arguments, "x-max-length": 5})
    assert set(differences(drift)) == {
        Difference("x-max-length", None, 5),
        Difference("x-overflow", "reject-publish", None),
    }


def test_a_classic_queue_that_was_declared_without_its_type_is_the_same() -> None:
    topology = describe(TopologySettings(queue_type="classic"))
    snapshot = as_described(topology)
    untyped = {
        name: replace(
            queue,
            arguments={key: x for key, x in queue.arguments.items() if key != "x-queue-type"},
        )
        for name, queue in snapshot.queues.items()
    }
    assert compare(topology, replace(snapshot, queues=untyped)).clean


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kind": "classic"}, Difference("x-queue-type", "quorum", "classic")),
        ({"durable": False}, Difference("durable", True, False)),
        ({"exclusive": True}, Difference("exclusive", False, True)),
        ({"auto_delete": True}, Difference("auto-delete", False, True)),
    ],
)
def test_a_queue_of_another_kind_differs(changes: dict[str, Any], expected: Difference) -> None:
    assert differences(with_queue("dlq-queue", **changes)) == [expected]


@pytest.mark.parametrize(
    ("queue", "policy", "difference"),
    [
        ("dlq-queue", {"max-length": 1000}, Difference("max-length", None, 1000)),
        ("dlq-queue", {"max-length-bytes": 9}, Difference("max-length-bytes", None, 9)),
        ("dlq-queue", {"message-ttl": 60_000}, Difference("message-ttl", None, 60_000)),
        ("retry-queue", {"expires": 60_000}, Difference("expires", None, 60_000)),
        ("queue.delay.2", {"message-ttl": 1}, Difference("message-ttl", 15_000, 1)),
        ("retry-queue", {"delivery-limit": 5}, Difference("delivery-limit", 1_000_000, 5)),
        (
            "queue.delay.1",
            {"overflow": "drop-head"},
            Difference("overflow", "reject-publish", "drop-head"),
        ),
        (
            "retry-queue",
            {"overflow": "reject-publish-dlx"},
            Difference("overflow", "reject-publish", "drop-head"),
        ),
    ],
)
def test_a_policy_that_would_lose_messages_of_a_redrive_queue_is_a_difference(
    queue: str, policy: dict[str, Any], difference: Difference
) -> None:
    named = replace(difference, what=f"{difference.what} by the policy 'all'")
    assert differences(with_queue(queue, policy_name="all", policy=policy)) == [named]


@pytest.mark.parametrize(
    ("queue", "policy"),
    [
        ("dlq-queue", {"ha-mode": "all", "queue-leader-locator": "balanced"}),
        ("queue.delay.2", {"message-ttl": 60_000}),
        ("retry-queue", {"delivery-limit": 2_000_000}),
        ("retry-queue", {"overflow": "reject-publish"}),
        ("dlq-queue", {"overflow": "drop-head"}),
        ("orders", {"max-length": 10, "message-ttl": 1}),
    ],
)
def test_a_policy_that_harms_nothing_or_only_the_users_own_queue_is_none(
    queue: str, policy: dict[str, Any]
) -> None:
    assert with_queue(queue, policy_name="all", policy=policy).clean


@pytest.mark.parametrize(
    "exchange",
    [
        LiveExchange(kind="direct"),
        LiveExchange(kind="topic", durable=False),
        LiveExchange(kind="topic", internal=True),
        LiveExchange(kind="topic", arguments={"alternate-exchange": "x"}),
    ],
)
def test_an_exchange_of_another_kind_differs(exchange: LiveExchange) -> None:
    snapshot = as_described()
    drift = compare(
        TOPOLOGY,
        replace(snapshot, exchanges={**snapshot.exchanges, "retry-exchange": exchange}),
    )
    assert len(differences(drift)) == 1


def test_bindings_of_others_to_our_queues_are_no_drift_and_a_missing_one_is() -> None:
    snapshot = as_described()
    ours = TOPOLOGY.bindings[0]
    other = replace(ours, exchange="amq.topic", routing_key="x")
    assert compare(TOPOLOGY, replace(snapshot, bindings=snapshot.bindings | {other})).clean
    drift = compare(TOPOLOGY, replace(snapshot, bindings=snapshot.bindings - {ours}))
    assert [finding.part for finding in drift.of(Standing.MISSING)] == [ours]


@pytest.mark.parametrize(
    ("what", "said", "expected"),
    [
        (
            "arg 'x-message-ttl' for queue 'q' in vhost '/'",
            "the value '10000' of type 'signedint' but current is the value '9' of type 'long'",
            Difference("x-message-ttl", "10000", "9"),
        ),
        (
            "arg 'x-overflow' for queue 'it's' in vhost '/'",
            "the value 'reject-publish' of type 'longstr' but current is none",
            Difference("x-overflow", "reject-publish", None),
        ),
        (
            "arg 'type' for exchange 'x' in vhost '/'",
            "'topic' but current is 'fanout'",
            Difference("type", "topic", "fanout"),
        ),
    ],
)
def test_the_brokers_refusal_to_redeclare_is_read(
    what: str, said: str, expected: Difference
) -> None:
    text = f"PRECONDITION_FAILED - inequivalent {what}: received {said}"
    finding = refused(TOPOLOGY.queues[0], PreconditionFailed(406, text))
    assert (finding.standing, finding.differences) == (Standing.DIFFERS, (expected,))


def test_a_refusal_in_other_words_is_shown_as_it_is() -> None:
    finding = refused(TOPOLOGY.queues[0], PreconditionFailed(406, "no, because"))
    assert (finding.standing, finding.note) == (Standing.DIFFERS, "no, because")
    locked = refused(TOPOLOGY.queues[0], ResourceLocked(405, "cannot obtain exclusive access"))
    assert locked.differences == (Difference("exclusive", False, True),)


def test_a_queue_is_read_from_the_management_apis_json() -> None:
    found = {"durable": True, "auto_delete": False, "arguments": [], "type": "rabbit_stream_queue"}
    assert live_queue(found) == LiveQueue(kind="stream")
