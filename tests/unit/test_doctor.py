"""The doctor's decisions, without a broker: routes, alike findings, commands, ways to upgrade."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from redrive.broker.doctor import advice
from redrive.broker.doctor.checks import CHECKS, ON_THE_WIRE, diagnose, only
from redrive.broker.doctor.finding import Command, Finding, Kind, Severity, Subject, alike
from redrive.broker.doctor.routes import Routes
from redrive.broker.doctor.upgrade import path
from redrive.broker.doctor.view import (
    Need,
    Permissions,
    SeenQueue,
    View,
    Waiting,
    drift_snapshot,
)
from redrive.broker.drift import LiveExchange, LiveQueue, compare
from redrive.broker.enrollment import Policy
from redrive.broker.ladder import describe_ladder
from redrive.broker.topology import describe
from redrive.settings.sections import TopologySettings

SETTINGS = TopologySettings()
TOPOLOGY = describe(SETTINGS)
Bound = tuple[str, str, str]


def a_queue(name: str, *, kind: str = "quorum", **found: Any) -> SeenQueue:
    """As the management API shows it; `x_…` are arguments."""
    arguments = {
        key.replace("_", "-"): found.pop(key) for key in list(found) if key.startswith("x_")
    }
    document = {
        "name": name,
        "type": kind,
        "durable": True,
        "auto_delete": False,
        "arguments": arguments,
        "policy": None,
        "message_stats": {"ack": 1},
        **found,
    }
    return SeenQueue.read(document)


def a_view(*queues: SeenQueue, version: tuple[int, int] = (3, 10), **seen: Any) -> View:
    """A broker with Redrive's topology, and these queues."""
    own = {
        part.name: SeenQueue(
            name=part.name,
            live=LiveQueue(kind=part.kind, arguments=part.arguments),
            facts=a_queue(part.name).facts,
        )
        for part in TOPOLOGY.queues
    }
    exchanges = {part.name: LiveExchange(kind=part.kind) for part in TOPOLOGY.exchanges}
    exchanges |= seen.pop("exchanges", {})
    bindings = [
        {
            "source": source,
            "destination": destination,
            "destination_type": "queue" if destination not in exchanges else "exchange",
            "routing_key": key,
            "arguments": {},
        }
        for source, destination, key in [
            *((each.exchange, each.queue, each.routing_key) for each in TOPOLOGY.bindings),
            *seen.pop("bindings", []),
        ]
    ]
    everything = {**own, **{queue.name: queue for queue in queues}}
    return View(
        version=version,
        full_version=f"{version[0]}.{version[1]}.0",
        vhost="/",
        user="guest",
        topology=TOPOLOGY,
        names=SETTINGS.names,
        drift=compare(TOPOLOGY, drift_snapshot(everything, exchanges, bindings)),
        own=TOPOLOGY.queue_names(),
        queues=everything,
        exchanges=exchanges,
        bindings=bindings,
        **seen,
    )


def checks_of(view: View, target: tuple[int, int] | None = None) -> list[tuple[str, str]]:
    return [(each.check, each.subject.name) for each in diagnose(view, target)]


def test_nothing_is_found_on_a_broker_with_the_topology_alone() -> None:
    assert checks_of(a_view()) == []
    assert checks_of(a_view(version=(4, 3))) == []


def test_without_the_management_api_fewer_checks_are_made() -> None:
    assert set(ON_THE_WIRE) < set(CHECKS)
    blind = replace(a_view(a_queue("orders")), complete=False)
    assert checks_of(blind) == []


# Queues


@pytest.mark.parametrize(
    "name",
    ["orders.dlq", "dlq.orders", "orders_error", "Dead-Letters", "a.parking-lot.b", "poison"],
)
def test_a_queue_whose_name_says_that_messages_end_there_needs_no_dead_letter_exchange(
    name: str,
) -> None:
    assert checks_of(a_view(a_queue(name))) == []


@pytest.mark.parametrize("name", ["deadlines", "terrors", "orders.failedover", "errorless"])
def test_a_name_that_only_contains_such_a_word_does_not_say_so(name: str) -> None:
    assert checks_of(a_view(a_queue(name))) == [("no-dead-letter-exchange", name)]


def test_queues_of_the_collectors_globs_are_ends() -> None:
    view = a_view(a_queue("graves.eu"), collected=("graves.*",))
    assert checks_of(view) == []


def test_a_queue_that_shows_no_policy_yet_has_the_one_that_matches() -> None:
    policies = (
        Policy("low", "^o", "queues", 1, {"message-ttl": 1}),
        Policy("high", "^orders$", "all", 2, {"dead-letter-exchange": "dlx"}),
        Policy("other", "^x", "queues", 9, {}),
    )
    found = {"name": "orders", "type": "quorum", "durable": True, "auto_delete": False}
    assert SeenQueue.read(found, policies).dead_letter_exchange == "dlx"
    shown = {**found, "policy": "low", "effective_policy_definition": {"message-ttl": 1}}
    assert SeenQueue.read(shown, policies).dead_letter_exchange is None


def test_arguments_beat_policies_and_of_two_limits_the_smaller_holds() -> None:
    queue = a_queue(
        "q",
        x_dead_letter_exchange="theirs",
        x_max_length=10,
        effective_policy_definition={"dead-letter-exchange": "other", "max-length": 5},
    )
    assert queue.in_force("dead-letter-exchange") == "theirs"
    assert queue.limit("max-length") == 5


@pytest.mark.parametrize(
    ("kind", "in_force"), [("quorum", "reject-publish"), ("classic", "drop-head")]
)
def test_a_policy_beats_the_argument_in_the_overflow_of_a_quorum_queue(
    kind: str, in_force: str
) -> None:
    said = {"overflow": "reject-publish"}
    queue = a_queue("q", kind=kind, x_overflow="drop-head", effective_policy_definition=said)
    assert queue.in_force("overflow") == in_force


def under_a_policy(queue: SeenQueue, policy: Policy) -> SeenQueue:
    live = replace(queue.live, policy_name=policy.name, policy=policy.definition)
    return replace(queue, live=live)


def test_a_queue_that_a_policy_keeps_from_at_least_once_is_not_called_safe() -> None:
    theirs = Policy("all", ".*", "queues", 0, {"overflow": "drop-head"})
    queue = a_queue(
        "orders",
        x_dead_letter_exchange="retry-exchange",
        x_dead_letter_strategy="at-least-once",
        x_overflow="reject-publish",
    )
    assert checks_of(a_view(queue)) == []
    (found,) = diagnose(a_view(under_a_policy(queue, theirs), policies=(theirs,)))
    assert (found.check, found.subject.name) == ("at-least-once-is-not", "orders")
    assert "this is 'drop-head' by the policy 'all', which beats the argument" in found.reason
    assert [str(each) for each in found.commands] == ["redrive topology enroll orders"]


def test_an_argument_that_pushes_out_does_not_stand_against_a_policy_that_refuses() -> None:
    queue = a_queue(
        "orders", x_dead_letter_exchange="retry-exchange", x_overflow="drop-head", x_max_length=9
    )
    (found,) = diagnose(a_view(queue))
    assert [str(each) for each in found.commands] == ["redrive topology enroll orders --yes"]
    assert "when full it will refuse new messages, not drop the oldest" in found.advice


def test_a_rung_that_a_policy_keeps_from_at_least_once_is_reported_like_the_topology() -> None:
    theirs = Policy("all", ".*", "queues", 0, {"overflow": "drop-head"})
    rung = describe_ladder(SETTINGS)[0]
    live = LiveQueue(kind=rung.kind, arguments=rung.arguments)
    seen = SeenQueue(name=rung.name, live=live, facts=a_queue(rung.name).facts)
    own = TOPOLOGY.queue_names() | {rung.name}
    assert diagnose(replace(a_view(seen), own=own)) == []
    ruled = a_view(under_a_policy(seen, theirs), policies=(theirs,))
    assert checks_of(replace(ruled, own=own)) == [("at-least-once-is-not", rung.name)]


@pytest.mark.parametrize(
    ("messages", "size", "overflow", "full"),
    [
        (10, 0, "reject-publish", True),
        (9, 0, "reject-publish", False),
        (0, 100, "reject-publish-dlx", True),
        (10, 100, "drop-head", False),
    ],
)
def test_a_queue_is_full_only_if_it_refuses(
    messages: int, size: int, overflow: str, full: bool
) -> None:
    queue = a_queue(
        "q",
        kind="classic",
        x_overflow=overflow,
        x_max_length=10,
        x_max_length_bytes=100,
        messages=messages,
        message_bytes=size,
    )
    assert queue.is_full is full


# Routes


def routed(exchanges: dict[str, str], bindings: list[Bound], **arguments: str) -> Routes:
    live = {
        name: LiveExchange(
            kind=kind,
            arguments={"alternate-exchange": arguments[name]} if name in arguments else {},
        )
        for name, kind in exchanges.items()
    }
    return Routes(a_view(a_queue("a"), a_queue("b"), exchanges=live, bindings=bindings))


def test_a_key_is_followed_through_exchanges_and_past_them() -> None:
    exchanges = {"first": "direct", "second": "topic", "spare": "fanout"}
    bindings = [("first", "second", "k"), ("second", "a", "#"), ("spare", "b", "")]
    routes = routed(exchanges, bindings, first="spare")
    assert routes.reached("first", "k").queues == {"a"}
    assert routes.reached("first", "other").queues == {"b"}
    assert routes.reached("", "a").queues == {"a"}
    assert routes.reached("", "nobody").is_nowhere


def test_exchanges_that_are_bound_in_a_circle_end() -> None:
    routes = routed({"x": "fanout", "y": "fanout"}, [("x", "y", ""), ("y", "x", "")])
    assert routes.reached("x", "k").is_nowhere


def test_of_a_headers_exchange_nothing_is_certain() -> None:
    reached = routed({"h": "headers"}, [("h", "a", "")]).reached("h", "k")
    assert reached.queues == {"a"}
    assert not reached.certain
    assert not reached.is_nowhere
    assert routed({"h": "headers"}, []).reached("h", "k").is_nowhere


def test_a_message_keeps_its_own_keys_and_those_that_lead_nowhere_are_lost() -> None:
    queue = a_queue("orders", kind="classic", x_dead_letter_exchange="dlx")
    view = a_view(
        queue,
        a_queue("orders.dlq"),
        exchanges={"dlx": LiveExchange(kind="direct"), "shop": LiveExchange(kind="topic")},
        bindings=[
            ("shop", "orders", "order.new"),
            ("shop", "orders", "order.old"),
            ("dlx", "orders.dlq", "order.new"),
        ],
    )
    assert Routes(view).lost_keys(queue) == ("order.old",)
    (found,) = [each for each in diagnose(view) if each.check == "dead-letter-target"]
    assert "the key 'order.old' to no queue" in found.reason


def a_dead_letter_exchange(
    kind: str, *keys: str, source: str = "topic", bound: str = "order.#"
) -> tuple[View, SeenQueue]:
    """A queue bound by a pattern, and its dead letter exchange with a queue bound by some keys."""
    queue = a_queue("orders", x_dead_letter_exchange="dlx")
    exchanges = {"dlx": LiveExchange(kind=kind), "shop": LiveExchange(kind=source)}
    bindings = [("shop", "orders", bound), *(("dlx", "x.dlq", key) for key in keys)]
    return a_view(queue, a_queue("x.dlq"), exchanges=exchanges, bindings=bindings), queue


@pytest.mark.parametrize(
    ("kind", "keys", "lost"),
    [
        ("direct", [], ("order.#",)),
        ("direct", ["#"], ("order.#",)),
        ("direct", ["order.*"], ("order.#",)),
        ("direct", ["stock.new"], ("order.#",)),
        ("direct", ["#", "order.new"], ()),
        ("topic", [], ("order.#",)),
        ("topic", ["#"], ()),
        ("headers", [], ("order.#",)),
        ("headers", [""], ()),
    ],
)
def test_of_a_pattern_nobody_knows_the_keys_so_only_what_takes_none_of_them_is_wrong(
    kind: str, keys: list[str], lost: tuple[str, ...]
) -> None:
    view, queue = a_dead_letter_exchange(kind, *keys)
    assert Routes(view).lost_patterns(queue) == lost
    assert Routes(view).targets(queue) == (set() if lost else {"x.dlq"})


@pytest.mark.parametrize("source", ["fanout", "headers"])
def test_what_comes_by_any_key_may_have_any_that_is_no_pattern(source: str) -> None:
    for key, lost in (("#", ("#",)), ("k", ())):
        view, queue = a_dead_letter_exchange("direct", key, source=source, bound="")
        assert Routes(view).lost_patterns(queue) == lost


def test_the_default_exchange_takes_a_pattern_only_to_queues_named_so() -> None:
    queue = a_queue("orders", x_dead_letter_exchange="")
    exchanges, bound = {"shop": LiveExchange(kind="topic")}, [("shop", "orders", "order.*")]
    nobody = a_view(queue, exchanges=exchanges, bindings=bound)
    assert Routes(nobody).lost_patterns(queue) == ("order.*",)
    somebody = a_view(queue, a_queue("order.new"), exchanges=exchanges, bindings=bound)
    assert Routes(somebody).lost_patterns(queue) == ()


# What waits


def test_nobody_is_told_to_collect_a_queue_of_work_that_delayed_messages_go_on_to() -> None:
    work = a_queue("invoices", messages=5, message_stats={})  # its consumer is down
    wait = a_queue(
        "invoices.wait",
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="invoices",
        message_stats={},
    )
    view = a_view(work, wait)
    assert not [each for each in diagnose(view) if each.check == "unread"]
    taken = a_queue("orders", x_dead_letter_exchange="", x_dead_letter_routing_key="invoices")
    assert [each.subject.name for each in diagnose(a_view(work, taken)) if each.check == "unread"]


def test_a_short_wait_behind_a_long_one_is_blocked() -> None:
    minute, hour = timedelta(minutes=1), timedelta(hours=1)
    queue = a_queue("wait", kind="classic", x_dead_letter_exchange="")

    def reasons(waiting: Waiting) -> list[str]:
        view = a_view(queue, waiting={"wait": waiting})
        return [each.reason for each in diagnose(view) if each.check == "mixed-ttls"]

    assert reasons(Waiting((minute, hour))) == []
    assert reasons(Waiting((minute, minute, minute))) == []
    assert (
        "1 message to wait 1m or so, behind one that waits 1h"
        in reasons(Waiting((hour, minute)))[0]
    )
    assert "waits for ever" in reasons(Waiting((None, minute)))[0]
    assert "3 messages had waited long enough" in reasons(Waiting((hour,), overdue=3))[0]
    assert Waiting((hour, minute, None)).within(minute).ttls == (minute, minute, minute)


# Commands


def test_names_are_quoted_for_a_shell_and_a_dash_is_no_option() -> None:
    assert str(Command("redrive topology enroll", ("it's",), "--yes")) == (
        "redrive topology enroll 'it'\"'\"'s' --yes"
    )
    assert str(Command("redrive topology enroll", ("-q",), "--yes")) == (
        "redrive topology enroll --yes -- -q"
    )


def test_all_that_wants_a_policy_for_one_queue_gets_one() -> None:
    queue = a_queue(
        "orders",
        x_dead_letter_exchange="dlx",
        policy="ttl",
        effective_policy_definition={"message-ttl": 5},
    )
    view = a_view(
        queue,
        a_queue("orders.dlq"),
        exchanges={"dlx": LiveExchange(kind="fanout")},
        bindings=[("dlx", "orders.dlq", "")],
        policies=(Policy("ttl", "^orders$", "queues", 4, {"message-ttl": 5}),),
    )
    found = [each for each in diagnose(view, (4, 0)) if each.subject.name == "orders"]
    assert {each.check for each in found} == {"at-most-once", "upgrade-delivery-limit"}
    (line,) = {str(command) for each in found for command in each.commands}
    words = shlex.split(line)
    assert words[:7] == ["rabbitmqctl", "set_policy", "-p", "/", "--priority", "5", "--apply-to"]
    assert words[-1] == (
        '{"message-ttl":5,"dead-letter-strategy":"at-least-once","overflow":"reject-publish",'
        '"delivery-limit":1000000}'
    )


def test_a_queue_whose_messages_wait_by_themselves_is_not_emptied_to_be_made_anew() -> None:
    waiting = a_queue(
        "wait", kind="classic", x_dead_letter_exchange="", messages=3, message_stats={}
    )
    said, commands = advice.rebuild(a_view(waiting), waiting, {})
    assert commands == ()
    assert "when it is empty" in said


def test_a_queue_is_made_anew_by_one_line_that_deletes_only_what_is_empty() -> None:
    full = a_queue("orders", x_delivery_limit=-1, messages=3)
    _, (line,) = advice.rebuild(a_view(full), full, {})
    steps = str(line).split(" && ")
    assert "redrive move orders orders.rebuilding --spend-deliveries" in steps
    assert "redrive move orders.rebuilding orders" in steps
    assert "\n" not in str(line)
    for name in ("orders", "orders.rebuilding"):
        delete = steps.index(f"rabbitmqctl delete_queue -p / {name}")
        assert f"{name} is not deleted" in steps[delete - 1]
    _, (line,) = advice.rebuild(a_view(full, version=(4, 3)), full, {})
    assert "--spend-deliveries" not in str(line)


def test_a_classic_queue_is_deleted_by_a_broker_that_looks_once_more() -> None:
    empty = a_queue("orders", kind="classic")
    _, (line,) = advice.rebuild(a_view(empty), empty, {})
    assert " && rabbitmqctl delete_queue -p / --if-empty --if-unused orders && " in str(line)
    assert "redrive move" not in str(line)


def test_what_a_classic_queue_loses_as_a_quorum_queue_is_said_before() -> None:
    def told(**arguments: Any) -> Finding:
        queue = a_queue("orders", kind="classic", x_dead_letter_exchange="retry-exchange")
        live = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        live |= queue.live.arguments
        queue = replace(queue, live=replace(queue.live, arguments=live))
        (found,) = [each for each in diagnose(a_view(queue)) if each.subject.name == "orders"]
        assert found.check == "classic-dead-letters"
        return found

    refuses = "when full it will refuse new messages, not drop the oldest"
    assert refuses not in told().advice
    assert refuses in told(max_length=10).advice
    assert told(max_length=10).commands
    assert refuses not in told(max_length=10, overflow="reject-publish").advice
    dead = told(max_length=10, overflow="reject-publish-dlx").advice
    assert "refuse new messages, not dead-letter them" in dead
    priorities = told(max_priority=5, max_length=10)
    assert "x-max-priority 5" in priorities.advice
    assert priorities.commands == ()


def test_messages_of_a_queue_whose_making_anew_stopped_come_back_with_the_next() -> None:
    empty, waiting = a_queue("orders"), a_queue("orders.rebuilding", messages=3)
    said, (line,) = advice.rebuild(a_view(empty, waiting), empty, {})
    assert "redrive move orders orders.rebuilding" not in str(line)
    assert " && redrive move orders.rebuilding orders && " in str(line)
    assert ".rebuilding" in said


def test_permissions_that_are_known_are_kept_and_unknown_ones_not_replaced() -> None:
    lacking = (
        Need("read", "queue", "dlq-queue", "to collect"),
        Need("write", "exchange", "route.delay", "to wait"),
    )
    known = a_view(lacking=lacking, permissions=Permissions("", "^a$|^b$", "^mine"))
    _, (command,) = advice.grant(known)
    assert shlex.split(str(command))[-3:] == [
        "^$",
        r"(^a$|^b$)|^(route\.delay)$",
        "(^mine)|^(dlq-queue)$",
    ]
    said, commands = advice.grant(replace(known, permissions=None))
    assert commands == ()
    assert said.endswith(r"none yet: write ^(route\.delay)$; read ^(dlq-queue)$")


# What is shown


def a_finding(name: str, *, severity: Severity = Severity.WARNING, command: str = "do") -> Finding:
    return Finding(
        check="c",
        severity=severity,
        subject=Subject(Kind.QUEUE, name),
        reason="because",
        commands=(Command(command, (name,)),),
    )


def test_alike_findings_are_put_together_the_worst_first() -> None:
    groups = alike(
        [
            a_finding("a", severity=Severity.NOTE),
            a_finding("b"),
            a_finding("c", severity=Severity.CRITICAL),
            a_finding("d"),
            a_finding("e", command="other"),
        ]
    )
    assert [[each.subject.name for each in group.findings] for group in groups] == [
        ["c"],
        ["b", "d", "e"],
        ["a"],
    ]

    def lines(**limits: int) -> tuple[list[str], int]:
        shown, left = groups[1].commands(**limits)
        return [str(command) for commands in shown for command in commands], left

    assert lines(most=3, names=9) == (["do b d", "other e"], 0)
    assert lines(most=1, names=1) == (["do b"], 2)


def test_only_findings_of_queues_that_are_named_stay() -> None:
    user = replace(a_finding("x"), subject=Subject(Kind.USER, "orders"))
    found = only([a_finding("orders"), a_finding("mails.eu"), user], ["mails.*", "o?ders"])
    assert [(each.subject.kind, each.subject.name) for each in found] == [
        (Kind.QUEUE, "orders"),
        (Kind.QUEUE, "mails.eu"),
    ]


# Upgrades


@pytest.mark.parametrize(
    ("current", "target", "steps"),
    [
        ((3, 10), (4, 3), [(3, 11), (3, 12), (3, 13), (4, 2), (4, 3)]),
        ((3, 10), (3, 11), [(3, 11)]),
        ((3, 12), (4, 0), [(3, 13), (4, 0)]),
        ((3, 13), (4, 2), [(4, 2)]),
        ((4, 0), (4, 3), [(4, 2), (4, 3)]),
        ((4, 2), (4, 3), [(4, 3)]),
    ],
)
def test_the_way_of_an_upgrade(
    current: tuple[int, int], target: tuple[int, int], steps: list[tuple[int, int]]
) -> None:
    assert path(current, target) == steps


def test_an_upgrade_mentions_only_what_is_in_use_and_on_the_way() -> None:
    view = a_view(
        a_queue("big.dlq", messages=2, message_bytes=40 << 20),
        a_queue("old.dlq", kind="classic", x_queue_mode="lazy"),
        exchanges={"later": LiveExchange(kind="x-delayed-message")},
        version=(3, 13),
    )

    def on_the_way(target: tuple[int, int]) -> set[str]:
        found = [check for check, _ in checks_of(view, target)]
        return {check.removeprefix("upgrade-") for check in found if "upgrade-" in check}

    assert on_the_way((3, 13)) == set()
    assert on_the_way((4, 0)) == {"path", "message-size", "delivery-limit"}
    assert on_the_way((4, 3)) == on_the_way((4, 0)) | {"queue-arguments", "delayed-message-plugin"}


def test_counts_that_clients_keep_in_x_death_are_noted_where_queues_dead_letter() -> None:
    retried = a_queue("orders", x_dead_letter_exchange="dlx")
    for view, noted in ((a_view(retried), True), (a_view(a_queue("orders")), False)):
        old = replace(view, version=(3, 13))
        assert ("upgrade-x-death" in dict(checks_of(old, (4, 0)))) is noted
        assert "upgrade-x-death" not in dict(checks_of(old, (3, 13)))
        assert "upgrade-x-death" not in dict(checks_of(replace(view, version=(4, 0)), (4, 3)))


def test_khepri_has_to_be_on_before_4_3() -> None:
    view = replace(
        a_view(version=(4, 2)), flags={"khepri_db": "disabled", "quorum_queue": "enabled"}
    )
    (found,) = [each for each in diagnose(view, (4, 3)) if each.check == "upgrade-feature-flags"]
    assert [str(each) for each in found.commands] == ["rabbitmqctl enable_feature_flag khepri_db"]
