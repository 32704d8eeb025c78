"""`redrive topology` on a real broker: plan, apply, check, export, delete."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from redrive import amqp
from redrive.broker.apply import apply
from redrive.broker.ladder import describe_ladder
from redrive.broker.management import Management
from redrive.broker.topology import describe
from redrive.cli import asking
from redrive.errors import ManagementError
from redrive.settings.sections import TopologySettings
from tests.services.commands import Ran, Redrive
from tests.services.eventually import eventually
from tests.services.patient import folder_with_rabbitmqctl
from tests.services.plugin import OwnNode, Vhost

PER_QUEUE = '[[queue]]\nname = "orders"\nexchange = "shop"\ndelay = "30s"\n'
ALL_NAMES = 26


@pytest.fixture(params=["quorum", "classic"])
def queue_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["management", "wire"])
def told_by(request: pytest.FixtureRequest) -> str:
    """Whether the management API is there to read the broker by."""
    return str(request.param)


def settings(vhost: Vhost, *, told_by: str = "management", url: str = "", more: str = "") -> str:
    management = f'management_url = "{vhost.management_url}"\n' if told_by == "management" else ""
    return f'[broker]\nurl = "{url or vhost.url}"\n{management}{more}'


@pytest.fixture
def redrive(
    vhost: Vhost,
    queue_type: str,
    told_by: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Redrive:
    typed = f'[topology]\nqueue_type = "{queue_type}"\n'
    return Redrive(tmp_path, capsys, settings(vhost, told_by=told_by, more=typed))


@pytest.fixture
def quorum(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    return Redrive(tmp_path, capsys, settings(vhost))


@contextmanager
def channel(vhost: Vhost) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
        yield connection.channel()


def names(vhost: Vhost) -> set[str]:
    """Every queue and exchange that the broker did not make itself."""
    found = [part for kind in ("queues", "exchanges") for part in listed(vhost, kind)]
    return {part["name"] for part in found if part["name"] and not part["name"].startswith("amq.")}


def listed(vhost: Vhost, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = vhost.node.api("GET", f"{kind}/{quote(vhost.name, safe='')}")
    return found


def shown(vhost: Vhost, queue: str) -> dict[str, Any]:
    """A queue as the management API shows it."""
    (found,) = [each for each in listed(vhost, "queues") if each["name"] == queue]
    return found


def eventually_fails(redrive: Redrive, *arguments: str) -> Ran:
    """Repeat a command that the broker's lagging statistics may let pass at first."""
    ran = redrive(*arguments)

    def fails() -> bool:
        nonlocal ran
        ran = ran if ran.code else redrive(*arguments)
        return ran.code == 1

    eventually(fails)
    return ran


# Plan, apply, check


def test_on_an_empty_broker_everything_is_missing_and_planning_makes_nothing(
    redrive: Redrive, vhost: Vhost
) -> None:
    planned = redrive("topology", "plan")
    assert planned.code == 0
    assert f"{ALL_NAMES} missing" in planned.out
    assert planned.out.count("\n+ ") + planned.out.startswith("+ ") == ALL_NAMES
    assert "redrive topology apply" in planned.err
    assert redrive("topology", "check").code == 1
    assert names(vhost) == set()


def test_apply_makes_what_is_missing_and_a_second_time_nothing(
    redrive: Redrive, vhost: Vhost, told_by: str
) -> None:
    first = redrive("topology", "apply", "--output", "json")
    assert (first.code, first.err) == (0, "")
    assert len(first.document["made"]) == ALL_NAMES
    before = names(vhost)
    second = redrive("topology", "apply", "--output", "json")
    assert second.code == 0
    assert second.document["made"] == []
    assert len(second.document["assured"]) == (0 if told_by == "management" else 10)
    assert names(vhost) == before
    checked = redrive("topology", "check")
    assert (checked.code, "missing" in checked.out) == (0, False)
    # What the wire cannot tell is said, not passed over.
    assert ("bindings are unknown" in checked.err) == (told_by == "wire")


def test_a_missing_piece_is_found_and_made_again(redrive: Redrive, vhost: Vhost) -> None:
    redrive("topology", "apply")
    with channel(vhost) as ours:
        ours.queue_delete("queue.delay.2")
        ours.exchange_delete("dlq-exchange")
    planned = redrive("topology", "plan")
    assert "+ queue queue.delay.2" in planned.out
    assert "+ exchange dlq-exchange (topic)" in planned.out
    assert "+ binding dlq-exchange → dlq-queue by #" in planned.out
    assert redrive("topology", "apply").code == 0
    assert redrive("topology", "check").code == 0


def test_only_the_management_api_sees_that_a_binding_is_missing_and_apply_mends_it_anyway(
    redrive: Redrive, vhost: Vhost, told_by: str
) -> None:
    redrive("topology", "apply")
    with channel(vhost) as ours:
        ours.queue_unbind("retry-queue", "retry-exchange", "#")
    assert redrive("topology", "check").code == (1 if told_by == "management" else 0)
    assert redrive("topology", "apply").code == 0
    bound = {(found["source"], found["routing_key"]) for found in listed(vhost, "bindings")}
    assert ("retry-exchange", "#") in bound


def test_an_argument_that_differs_is_named_and_never_changed(
    redrive: Redrive, vhost: Vhost, queue_type: str
) -> None:
    with channel(vhost) as ours:
        ours.queue_declare(
            "dlq-queue",
            durable=True,
            arguments={"x-queue-type": queue_type, "x-max-length": 7}
            | ({"x-delivery-limit": 1_000_000} if queue_type == "quorum" else {}),
        )
    applied = redrive("topology", "apply")
    assert applied.code == 1
    assert "~ queue dlq-queue" in applied.out
    assert "x-max-length: expected none, got 7" in applied.out
    assert "redrive topology delete dlq-queue" in applied.err
    # Everything else was made, but a queue that may be somebody else's is bound to nothing.
    assert "queue.delay.3" in names(vhost)
    assert not [
        b for b in listed(vhost, "bindings") if b["destination"] == "dlq-queue" != b["routing_key"]
    ]
    assert redrive("topology", "check").code == 1
    # The way out that was named:
    assert redrive("topology", "delete", "dlq-queue", "--yes", "--even-if-used").code == 0
    assert redrive("topology", "apply").code == 0
    assert redrive("topology", "check").code == 0


def test_a_foreign_exchange_of_our_name_is_left_alone(redrive: Redrive, vhost: Vhost) -> None:
    with channel(vhost) as theirs:
        theirs.exchange_declare("retry-exchange", "fanout", durable=True)
    applied = redrive("topology", "apply")
    assert applied.code == 1
    assert "type: expected topic, got fanout" in applied.out
    assert "may be somebody else's" in applied.err
    assert not [b for b in listed(vhost, "bindings") if b["source"] == "retry-exchange"]
    deleted = redrive("topology", "delete", "--yes")
    assert "exchange retry-exchange stays" in deleted.out
    assert names(vhost) == {"retry-exchange"}


def test_a_foreign_exclusive_queue_of_our_name_is_said_to_differ(
    redrive: Redrive, vhost: Vhost
) -> None:
    with channel(vhost) as theirs:
        theirs.queue_declare("retry-queue", exclusive=True)
        planned = redrive("topology", "plan")
        assert "~ queue retry-queue" in planned.out
        assert "exclusive: expected no, got yes" in planned.out


def test_settings_with_fewer_tiers_leave_queues_over_that_can_be_deleted_by_name(
    redrive: Redrive, vhost: Vhost
) -> None:
    redrive("topology", "apply")
    with channel(vhost) as ours:
        ours.basic_publish("", "retry-queue-3", b"stranded")
    eventually(lambda: "(1 messages" in redrive("topology", "plan", settings=fewer(redrive)).out)
    checked = redrive("topology", "check", settings=fewer(redrive))
    assert checked.code == 1
    assert "- queue queue.delay.3 (0 messages wait in it)" in checked.out
    strays = ("retry-queue-3", "queue.delay.3", "retry-exchange-3")
    refused = redrive("topology", "delete", *strays, "--yes", settings=fewer(redrive))
    assert (refused.code, "1 message is in it" in refused.out) == (1, True)
    with channel(vhost) as ours:
        ours.queue_purge("retry-queue-3")
    assert redrive("topology", "delete", *strays, "--yes", settings=fewer(redrive)).code == 0
    assert redrive("topology", "check", settings=fewer(redrive)).code == 0


def fewer(redrive: Redrive) -> str:
    return redrive.settings + 'tiers = ["10s", "15s"]\n'


def test_the_per_queue_layout_is_made_checked_and_its_own_queue_never_deleted(
    redrive: Redrive, vhost: Vhost
) -> None:
    redrive.settings += PER_QUEUE
    assert redrive("topology", "apply").code == 0
    assert redrive("topology", "check").code == 0
    assert {"orders", "orders.retry", "orders.delay", "shop", "shop.retry"} < names(vhost)
    deleted = redrive("topology", "delete", "--yes", "--even-if-used")
    assert deleted.code == 0
    assert "queue orders stays: it is yours" in deleted.out
    assert names(vhost) == {"orders", "shop"}


async def test_two_may_apply_at_once(vhost: Vhost) -> None:
    addresses = amqp.parse_addresses(vhost.url)
    connections = [await amqp.connect(addresses, name="test") for _ in range(2)]
    topology = describe(TopologySettings())
    outcomes = await asyncio.gather(*(apply(topology, each) for each in connections))
    assert all(applied.complete for applied in outcomes)
    for connection in connections:
        await connection.close()


# What a policy of the broker does to our queues


def test_a_policy_that_would_drop_our_messages_is_drift(quorum: Redrive, vhost: Vhost) -> None:
    quorum("topology", "apply")
    vhost.node.api(
        "PUT",
        f"policies/{quote(vhost.name, safe='')}/everything",
        {"pattern": ".*", "definition": {"max-length": 1000}, "apply-to": "queues"},
    )
    # The broker shows policies with its statistics, which come every five seconds.
    checked = eventually_fails(quorum, "topology", "check")
    assert "max-length by the policy 'everything': expected none, got 1000" in checked.out
    assert "narrow the policy's pattern" in checked.err


def test_a_policy_that_undoes_at_least_once_in_our_queues_is_drift(
    quorum: Redrive, vhost: Vhost
) -> None:
    quorum("topology", "apply")
    vhost.node.api(
        "PUT",
        f"policies/{quote(vhost.name, safe='')}/everything",
        {"pattern": ".*", "definition": {"overflow": "drop-head"}, "apply-to": "queues"},
    )
    checked = eventually_fails(quorum, "topology", "check")
    said = "overflow by the policy 'everything': expected reject-publish, got drop-head"
    assert said in checked.out
    assert "narrow the policy's pattern" in checked.err


# Export


def test_exported_definitions_imported_into_a_fresh_vhost_give_a_clean_check(
    redrive: Redrive, vhost: Vhost
) -> None:
    redrive.settings += PER_QUEUE
    exported = redrive("topology", "export")
    assert (exported.code, exported.err) == (0, "")
    file = vhost.node.folder / f"{vhost.name}.json"
    file.write_text(exported.out)
    vhost.node.ctl("import_definitions", str(file))
    checked = redrive("topology", "check")
    assert (checked.code, "missing" in checked.out) == (0, False)


def test_the_exported_script_imports_by_rabbitmqctl_and_leaves_alone_what_exists(
    quorum: Redrive, vhost: Vhost, tmp_path: Path
) -> None:
    quorum.settings += PER_QUEUE
    with channel(vhost) as theirs:
        theirs.queue_declare("dlq-queue", durable=True, arguments={"x-queue-type": "classic"})
        theirs.basic_publish("", "dlq-queue", b"kept")
    script = quorum("topology", "export", "--format", "shell").out
    run = subprocess.run(
        ["sh"],
        input=script,
        env={
            "PATH": f"{folder_with_rabbitmqctl(vhost.node, tmp_path)}:/usr/bin:/bin",
            "TMPDIR": str(vhost.node.folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    planned = quorum("topology", "plan", "--output", "json").document
    differing = [found for found in planned["items"] if found["standing"] != "same"]
    assert [found["name"] for found in differing] == ["dlq-queue"]
    with channel(vhost) as theirs:
        assert theirs.basic_get("dlq-queue", auto_ack=True)[2] == b"kept"


def test_a_user_without_any_permission_can_check_and_learns_that_all_is_unknown(
    quorum: Redrive, vhost: Vhost
) -> None:
    assert quorum("topology", "apply").code == 0
    user = f"nobody-{secrets.token_hex(4)}"
    vhost.node.api("PUT", f"users/{user}", {"password": "secret", "tags": ""})
    nothing = {"configure": "^$", "write": "^$", "read": "^$"}
    vhost.node.api("PUT", f"permissions/{vhost.name}/{user}", nothing)
    url = vhost.url.replace("guest:guest@", f"{user}:secret@")
    checked = quorum("topology", "check", settings=f'[broker]\nurl = "{url}"\n')
    assert checked.code == 0
    assert checked.out.rstrip().endswith("unknown")
    assert "as they should be" not in checked.out


def test_export_needs_no_broker(quorum: Redrive) -> None:
    nowhere = '[broker]\nurl = "amqp://nowhere.invalid/v"\n'
    exported = quorum("topology", "export", settings=nowhere)
    assert exported.code == 0
    assert {queue["vhost"] for queue in json.loads(exported.out)["queues"]} == {"v"}


# Delete


def test_delete_takes_everything_away_and_a_second_time_finds_nothing(
    redrive: Redrive, vhost: Vhost
) -> None:
    redrive("topology", "apply")
    asked = redrive("topology", "delete")
    assert (asked.code, "--yes" in asked.err) == (2, True)
    deleted = redrive("topology", "delete", "--yes")
    assert deleted.code == 0
    assert "16 deleted" in deleted.out
    assert names(vhost) == set()
    assert "0 deleted" in redrive("topology", "delete", "--yes").out


def test_the_question_of_delete_names_the_queues(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []

    def say_no(question: str, **_: object) -> bool:
        questions.append(question)
        return False

    monkeypatch.setattr(asking, "is_somebody_there", lambda: True)
    monkeypatch.setattr("typer.confirm", say_no)
    assert redrive("topology", "delete", "queue.delay.4", "queue.delay.5").code == 1
    assert questions == ["Delete queue.delay.4, queue.delay.5?"]


def test_delete_refuses_while_a_queue_holds_messages_unless_told(
    redrive: Redrive, vhost: Vhost
) -> None:
    redrive("topology", "apply")
    before = names(vhost)
    with channel(vhost) as ours:
        ours.confirm_delivery()
        ours.basic_publish("dlq-exchange", "any.key", b"precious", mandatory=True)
    refused = redrive("topology", "delete", "--yes")
    assert refused.code == 1
    assert "queue dlq-queue stays: 1 message is in it" in refused.out
    assert "nothing was deleted" in refused.err
    assert names(vhost) == before
    deleted = redrive("topology", "delete", "--yes", "--even-with-messages")
    assert (deleted.code, "with 1 messages" in deleted.out) == (0, True)
    assert names(vhost) == set()


def test_delete_refuses_while_a_tier_waits_for_its_messages_to_be_taken(
    quorum: Redrive, vhost: Vhost
) -> None:
    """They are dead-lettered, and the exchange is gone: no count on the wire has them."""
    quorum.settings += '[topology]\ntiers = ["100ms"]\n'
    quorum("topology", "apply")
    with channel(vhost) as ours:
        ours.exchange_delete("retry-exchange-1")
        ours.confirm_delivery()
        ours.basic_publish("route-delay", "binding.k.1", b"precious", mandatory=True)

    def waits() -> bool:
        (tier,) = [each for each in listed(vhost, "queues") if each["name"] == "queue.delay.1"]
        return bool(tier.get("messages_dlx"))

    eventually(waits)
    refused = quorum("topology", "delete", "--yes")
    assert refused.code == 1
    assert "1 of its messages are dead-lettered, and not taken yet" in refused.out
    assert "queue.delay.1" in names(vhost)
    doctor = quorum("doctor", "queue.delay.*")
    assert doctor.code == 1
    assert "1 message waits in the queue until there is a way" in doctor.out


def test_delete_waits_until_the_management_api_knows_what_a_tier_holds_that_has_no_way_on(
    own_node: OwnNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default it shows seconds later what was dead-lettered."""
    vhost = Vhost(own_node(), "/")
    quorum = Redrive(tmp_path, capsys, settings(vhost, more='[topology]\ntiers = ["100ms"]\n'))
    quorum("topology", "apply")
    eventually(lambda: shown(vhost, "queue.delay.1").get("messages_dlx") == 0)
    with channel(vhost) as ours:
        ours.exchange_delete("retry-exchange-1")
        ours.confirm_delivery()
        ours.basic_publish("route-delay", "binding.k.1", b"precious", mandatory=True)
        eventually(
            lambda: ours.queue_declare("queue.delay.1", passive=True).method.message_count == 0
        )
    assert not shown(vhost, "queue.delay.1").get("messages_dlx")
    refused = quorum("topology", "delete", "--yes")
    assert refused.code == 1
    assert "1 of its messages are dead-lettered, and not taken yet" in refused.out
    assert "queue.delay.1" in names(vhost)


def test_delete_refuses_while_somebody_reads_a_queue(redrive: Redrive, vhost: Vhost) -> None:
    redrive("topology", "apply")
    before = names(vhost)
    with channel(vhost) as retrier:
        retrier.basic_consume("retry-queue", lambda *_: None)
        refused = redrive("topology", "delete", "--yes", "--even-with-messages")
        assert refused.code == 1
        assert "queue retry-queue stays: 1 consumer reads it; stop it first" in refused.out
        assert names(vhost) == before


def test_delete_refuses_while_a_queue_of_the_users_dead_letters_here(
    quorum: Redrive, vhost: Vhost
) -> None:
    quorum("topology", "apply")
    with channel(vhost) as theirs:
        theirs.queue_declare(
            "invoices", durable=True, arguments={"x-dead-letter-exchange": "retry-exchange"}
        )
    refused = quorum("topology", "delete", "--yes")
    assert refused.code == 1
    assert "it gets the dead messages of invoices" in refused.out
    refused = quorum("topology", "delete", "retry-queue", "--yes")
    assert (refused.code, "invoices" in refused.out) == (1, True)
    assert quorum("topology", "delete", "--yes", "--even-if-used").code == 0
    assert names(vhost) == {"invoices"}


def test_delete_leaves_an_exchange_that_something_else_is_bound_to(
    redrive: Redrive, vhost: Vhost
) -> None:
    redrive("topology", "apply")
    with channel(vhost) as theirs:
        theirs.queue_declare("audit", durable=True)
        theirs.queue_bind("audit", "dlq-exchange", "#")
        theirs.queue_bind("audit", "redrive-return", "redrive-queue:audit")
    deleted = redrive("topology", "delete", "--yes")
    assert deleted.code == 1
    assert "exchange dlq-exchange stays: something that is not Redrive's" in deleted.out
    assert names(vhost) == {"audit", "dlq-exchange"}


def test_delete_knows_no_names_but_redrives(quorum: Redrive, vhost: Vhost) -> None:
    with channel(vhost) as theirs:
        theirs.queue_declare("invoices", durable=True)
    refused = quorum("topology", "delete", "invoices", "--yes")
    assert (refused.code, "invoices" in refused.err) == (2, True)
    assert names(vhost) == {"invoices"}


# Delete: the queues of the SDK

LONG = "redrive-after-131072000ms"


def make_ladder(vhost: Vhost, queue_type: str) -> None:
    """As the SDK makes it when a handler first asks for RetryAfter."""
    settings = TopologySettings.model_validate({"queue_type": queue_type})
    with channel(vhost) as theirs:
        for rung in describe_ladder(settings):
            theirs.queue_declare(rung.name, durable=True, arguments=rung.arguments)


def make_beside(vhost: Vhost, queue: str, dead_letters: str = "dlq-exchange") -> None:
    """As the SDK makes it for a handler."""
    with channel(vhost) as theirs:
        arguments = {"x-queue-type": "quorum", "x-dead-letter-exchange": dead_letters}
        theirs.queue_declare(queue, durable=True, arguments=arguments)


def put(vhost: Vhost, queue: str) -> None:
    with channel(vhost) as ours:
        ours.confirm_delivery()
        ours.basic_publish("", queue, b"precious", mandatory=True)


def test_delete_takes_the_ladder_away_too(redrive: Redrive, vhost: Vhost, queue_type: str) -> None:
    redrive("topology", "apply")
    make_ladder(vhost, queue_type)
    assert redrive("topology", "check").code == 0, "it is made when it is needed"
    deleted = redrive("topology", "delete", "--yes")
    assert deleted.code == 0, deleted.out + deleted.err
    assert f"- queue {LONG}" in deleted.out
    assert names(vhost) == set()


def test_delete_refuses_while_a_message_waits_on_the_ladder_unless_told(
    redrive: Redrive, vhost: Vhost, queue_type: str
) -> None:
    redrive("topology", "apply")
    make_ladder(vhost, queue_type)
    put(vhost, LONG)
    before = names(vhost)
    for option in ((), ("--even-if-used",), (LONG,)):
        refused = redrive("topology", "delete", "--yes", *option)
        assert refused.code == 1
        assert f"queue {LONG} stays: 1 message is in it" in refused.out
        assert names(vhost) == before
    deleted = redrive("topology", "delete", "--yes", "--even-with-messages")
    assert (deleted.code, "with 1 messages" in deleted.out) == (0, True)
    assert names(vhost) == set()


def test_a_rung_is_deleted_by_its_name(redrive: Redrive, vhost: Vhost, queue_type: str) -> None:
    make_ladder(vhost, queue_type)
    before = names(vhost)
    assert redrive("topology", "delete", LONG, "--yes").code == 0
    assert names(vhost) == before - {LONG}


def test_delete_takes_the_queues_beside_handlers_away_once_they_are_empty(
    quorum: Redrive, vhost: Vhost
) -> None:
    quorum("topology", "apply")
    make_beside(vhost, "redrive-again-orders")
    make_beside(vhost, "redrive-alone-orders", dead_letters="orders-dlx")
    make_beside(vhost, "other.redrive-alone-orders", dead_letters="other.dlq-exchange")
    put(vhost, "redrive-alone-orders")
    before = names(vhost)
    refused = quorum("topology", "delete", "--yes")
    assert refused.code == 1
    assert "queue redrive-alone-orders stays: 1 message is in it" in refused.out
    assert names(vhost) == before
    with channel(vhost) as theirs:
        theirs.queue_purge("redrive-alone-orders")
    deleted = quorum("topology", "delete", "--yes")
    assert deleted.code == 0, deleted.out + deleted.err
    assert names(vhost) == {"other.redrive-alone-orders"}


def test_the_queues_beside_handlers_are_deleted_by_their_names_too(
    redrive: Redrive, vhost: Vhost, queue_type: str
) -> None:
    with channel(vhost) as theirs:
        arguments = {"x-queue-type": queue_type, "x-dead-letter-exchange": "dlq-exchange"}
        for queue in ("redrive-again-orders", "redrive-alone-orders", "orders"):
            theirs.queue_declare(queue, durable=True, arguments=arguments)
    deleted = redrive("topology", "delete", "redrive-again-orders", "--yes")
    assert deleted.code == 0, deleted.out + deleted.err
    assert names(vhost) == {"redrive-alone-orders", "orders"}
    assert redrive("topology", "delete", "orders", "--yes").code == 2


# Rights and errors


def test_a_delete_that_is_refused_half_way_says_what_was_deleted_and_goes_no_further(
    quorum: Redrive, vhost: Vhost
) -> None:
    quorum("topology", "apply")
    user = f"half-{vhost.name}"
    vhost.node.api("PUT", f"users/{user}", {"password": "s3cret", "tags": ""})
    rights = {"configure": "^(?!queue.delay.2$).*", "write": ".*", "read": ".*"}
    vhost.node.api("PUT", f"permissions/{quote(vhost.name, safe='')}/{user}", rights)
    before = names(vhost)
    try:
        url = vhost.url.replace("guest:guest", f"{user}:s3cret")
        of_half = settings(vhost, told_by="wire", url=url)
        halted = quorum("topology", "delete", "--yes", settings=of_half)
    finally:
        vhost.node.api("DELETE", f"users/{user}")
    gone = {"redrive-receipts", "queue.delay.3", "retry-queue-3"}
    assert halted.code == 1
    assert "queue queue.delay.2 stays: the broker refused: 403" in halted.out
    assert "retry-queue-2 stays: queue.delay.2 stays, and its messages may come here" in halted.out
    assert "3 deleted" in halted.out
    for name in gone:
        assert f"- queue {name}" in halted.out
    assert names(vhost) == before - gone, "what its messages would go to is there"


@pytest.fixture
def weak(vhost: Vhost) -> Iterator[str]:
    """The URL of a user who may read and write, and configure nothing."""
    user = f"weak-{vhost.name}"
    vhost.node.api("PUT", f"users/{user}", {"password": "s3cret", "tags": ""})
    rights = {"configure": "^$", "write": ".*", "read": ".*"}
    vhost.node.api("PUT", f"permissions/{quote(vhost.name, safe='')}/{user}", rights)
    yield vhost.url.replace("guest:guest", f"{user}:s3cret")
    vhost.node.api("DELETE", f"users/{user}")


def test_a_user_without_configure_permission_gets_one_line_that_says_so(
    quorum: Redrive, vhost: Vhost, weak: str
) -> None:
    refused = quorum("topology", "apply", settings=settings(vhost, told_by="wire", url=weak))
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.count("\n") == 1
    assert "403" in refused.err
    assert "grant the user configure" in refused.err
    assert names(vhost) == set()


def test_a_user_without_configure_permission_can_still_run_on_what_others_made(
    quorum: Redrive, vhost: Vhost, weak: str
) -> None:
    quorum("topology", "apply")
    of_weak = settings(vhost, told_by="wire", url=weak)
    checked = quorum("topology", "check", settings=of_weak)
    assert checked.code == 0
    assert "? queue retry-queue (it exists; its arguments cannot be read" in checked.out
    assert quorum("topology", "apply", settings=of_weak).code == 0


def test_a_management_api_that_does_not_answer_is_said_and_the_wire_asked(
    quorum: Redrive, vhost: Vhost
) -> None:
    quorum("topology", "apply")
    silent = f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "http://127.0.0.1:1"\n'
    checked = quorum("topology", "check", settings=silent)
    assert checked.code == 0
    assert "does not answer: connection refused" in checked.err
    assert "bindings are unknown" in checked.err


@pytest.mark.usefixtures("weak")
async def test_a_management_user_without_rights_is_refused_with_what_to_do(vhost: Vhost) -> None:
    user = f"weak-{vhost.name}"
    management = Management(vhost.management_url, user, "s3cret", vhost.name)
    with pytest.raises(ManagementError) as caught:
        await management.version()
    assert caught.value.status == 401
    assert "tag 'management'" in caught.value.remedy
    assert "s3cret" not in str(caught.value)


async def test_names_with_special_characters_are_found(vhost: Vhost) -> None:
    name = "a/b c%d?é#1"
    with channel(vhost) as theirs:
        theirs.queue_declare(name, durable=True)
    url = vhost.management_url.replace("http://", "http://guest:guest@")
    management = Management(url, "nobody", "wrong", vhost.name)
    found = await management.queue(name)
    assert found is not None
    assert found["name"] == name
    assert await management.queue("no such") is None
