"""`redrive topology enroll` on a foreign broker: nothing is lost, and all of it comes back."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import secrets
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pika
import pytest

from tests.services.commands import Redrive
from tests.services.eventually import eventually
from tests.services.foreign import Foreign
from tests.services.pages import ROOT, lines_in
from tests.services.plugin import OwnNode, Vhost

OURS = {"dead-letter-exchange": "retry-exchange", "dead-letter-routing-key": "retry-routing-key"}
SAFE = {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}


@pytest.fixture
def redrive(foreign: Foreign, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    vhost = foreign.vhost
    settings = f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "{vhost.management_url}"\n'
    redrive = Redrive(tmp_path, capsys, settings)
    assert redrive("topology", "apply").code == 0
    return redrive


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_an_enrolled_queue_dead_letters_here_and_can_be_returned_to(
    redrive: Redrive, foreign: Foreign, kind: str
) -> None:
    foreign.declare("orders.eu+1 #", kind)
    enrolled = redrive("topology", "enroll", "orders.eu+1 #")
    assert enrolled.code == 0
    assert "enrolled orders.eu+1 #: policy 'redrive-enroll:orders.eu+1 #'" in enrolled.out
    assert ("classic queue" in enrolled.err) == (kind == "classic")
    name, definition = foreign.in_force("orders.eu+1 #")
    assert name == "redrive-enroll:orders.eu+1 #"
    assert definition == (OURS | SAFE if kind == "quorum" else OURS)
    foreign.reject_one("orders.eu+1 #", b"failed")
    assert foreign.take("retry-queue") == b"failed"
    with foreign.channel() as channel:
        channel.confirm_delivery()
        back = pika.BasicProperties(headers={"BCC": ["redrive-queue:orders%2Eeu+1 %23"]})
        channel.basic_publish("redrive-return", "the.original.key", b"again", back, mandatory=True)
    assert foreign.take("orders.eu+1 #") == b"again"


def test_the_policy_that_the_page_has_an_administrator_set_dead_letters_here(
    redrive: Redrive, foreign: Foreign
) -> None:
    page = ROOT / "docs" / "how-to" / "existing-queues.md"
    (line,) = [line for line in lines_in(page) if line.startswith("rabbitmqctl set_policy")]
    option, apply_to, priority, number, name, pattern, definition = shlex.split(line)[2:]
    assert (option, apply_to, priority) == ("--apply-to", "queues", "--priority")
    foreign.declare("orders")
    foreign.policy(name, json.loads(definition), pattern=pattern, priority=int(number))
    ours = {"dead-letter-exchange": OURS["dead-letter-exchange"]}
    assert foreign.in_force("orders") == (name, ours | SAFE)
    foreign.reject_one("orders", b"failed")
    assert foreign.take("retry-queue") == b"failed"


def test_a_queue_with_the_longest_of_names_can_be_enrolled(
    redrive: Redrive, foreign: Foreign
) -> None:
    longest = "q" * 255
    foreign.declare(longest)
    before = foreign.settled_view()
    assert redrive("topology", "enroll", longest).code == 0
    assert foreign.in_force(longest)[1] == OURS | SAFE
    foreign.reject_one(longest, b"failed")
    assert foreign.take("retry-queue") == b"failed"
    assert redrive("topology", "unenroll", longest).code == 0
    eventually(lambda: foreign.in_force(longest)[0] is None)
    assert foreign.settled_view() == before


def test_enroll_and_unenroll_leave_everything_exactly_as_it_was(
    redrive: Redrive, foreign: Foreign
) -> None:
    foreign.policy("limits", {"max-length": 100, "expires": 3_600_000}, pattern="^o", priority=3)
    foreign.policy("low", {"message-ttl": 9}, pattern="^o", priority=-1)
    foreign.declare("orders")
    foreign.declare("bills")
    eventually(lambda: foreign.in_force("orders")[0] == "limits")
    before = foreign.settled_view()
    assert redrive("topology", "enroll", "orders", "--yes").code == 0
    name, definition = foreign.in_force("orders")
    assert name == "redrive-enroll:orders"
    assert definition == {"max-length": 100, "expires": 3_600_000, **OURS, **SAFE}
    assert foreign.queue("bills")["policy"] is None
    assert redrive("topology", "unenroll", "orders").code == 0
    eventually(lambda: foreign.in_force("orders")[0] == "limits")
    assert foreign.settled_view() == before
    again = redrive("topology", "unenroll", "orders")
    assert (again.code, "was not enrolled" in again.err) == (3, True)


def test_unenroll_asks_while_messages_wait_that_may_come_back(
    redrive: Redrive, foreign: Foreign
) -> None:
    foreign.declare("orders")
    assert redrive("topology", "enroll", "orders").code == 0
    with foreign.channel() as channel:
        channel.confirm_delivery()
        channel.basic_publish("retry-exchange", "order.created", b"waits", mandatory=True)
    refused = redrive("topology", "unenroll", "orders")
    assert refused.code == 2
    assert "messages wait to come back to their queues: 1 in retry-queue" in refused.err
    assert "nobody is there to ask: give --yes" in refused.err
    assert foreign.in_force("orders")[0] == "redrive-enroll:orders"
    assert redrive("topology", "unenroll", "orders", "--yes").code == 0
    eventually(lambda: foreign.in_force("orders")[0] is None)
    assert redrive("topology", "unenroll", "orders").code == 3  # nothing is asked for nothing


def test_unenroll_asks_too_for_a_queue_whose_own_dead_letter_exchange_was_bound(
    redrive: Redrive, foreign: Foreign
) -> None:
    with foreign.channel() as channel:
        channel.exchange_declare("their-dlx", "topic", durable=True)
    foreign.declare("orders", dead_letter_exchange="their-dlx")
    assert redrive("topology", "enroll", "orders", "--bind-exchange").code == 0
    foreign.reject_one("orders", b"waits")
    foreign.shows("retry-queue", 1)
    refused = redrive("topology", "unenroll", "orders")
    assert (refused.code, "1 in retry-queue. What orders rejects" in refused.err) == (2, True)
    foreign.reject_one("orders", b"still comes")
    assert [foreign.take("retry-queue") for _ in range(2)] == [b"waits", b"still comes"]
    assert redrive("topology", "unenroll", "orders").code == 0


def test_enrolling_twice_follows_the_users_policy_that_changed_meanwhile(
    redrive: Redrive, foreign: Foreign
) -> None:
    foreign.policy("theirs", {"message-ttl": 60_000})
    foreign.declare("orders")
    assert redrive("topology", "enroll", "orders").code == 0
    foreign.policy("theirs", {"message-ttl": 90_000}, priority=50)
    enrolled = redrive("topology", "enroll", "orders", "--output", "json")
    (item,) = enrolled.document["items"]
    assert item["mergedPolicy"] == "theirs"
    assert item["definition"] == {"message-ttl": 90_000, **OURS, **SAFE}
    # Meanwhile theirs was in force, and the statistics may still say so.
    expected = ("redrive-enroll:orders", {"message-ttl": 90_000, **OURS, **SAFE})
    eventually(lambda: foreign.in_force("orders") == expected)


def test_a_policy_that_does_not_apply_to_this_type_of_queue_is_not_merged(
    redrive: Redrive, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What this broker shows is a second old at most, not twelve.
    monkeypatch.setattr("redrive.broker.enroll._STALE_FOR", 3.0)
    # A quorum queue passes over a policy with a key that only classic queues know, and takes the
    # next one; with that key in ours, ours would be passed over as well.
    foreign.policy("classics", {"queue-mode": "lazy"}, priority=9)
    foreign.policy("all", {"message-ttl": 60_000})
    foreign.declare("orders")
    shown = eventually(lambda: foreign.in_force("orders")[0])
    enrolled = redrive("topology", "enroll", "orders", "--output", "json")
    assert (enrolled.code, enrolled.err) == (0, "")
    (item,) = enrolled.document["items"]
    assert item["mergedPolicy"] == shown


def test_a_queue_with_its_own_dead_letter_argument_is_refused_and_none_is_enrolled(
    redrive: Redrive, foreign: Foreign
) -> None:
    with foreign.channel() as channel:
        channel.exchange_declare("their-dlx", "topic", durable=True)
    foreign.declare("orders", dead_letter_exchange="their-dlx")
    foreign.declare("fine")
    before = foreign.settled_view()
    refused = redrive("topology", "enroll", "fine", "orders")
    assert refused.code == 1
    assert "x-dead-letter-exchange sends dead messages to 'their-dlx'" in refused.err
    assert "--bind-exchange" in refused.err
    assert foreign.settled_view() == before


def test_their_dead_letter_exchange_is_bound_instead_and_their_own_queue_keeps_its_copy(
    redrive: Redrive, foreign: Foreign
) -> None:
    with foreign.channel() as channel:
        channel.exchange_declare("their-dlx", "topic", durable=True)
        channel.queue_declare("their-dlq", durable=True)
        channel.queue_bind("their-dlq", "their-dlx", "#")
    foreign.declare("orders", dead_letter_exchange="their-dlx")
    foreign.declare("bills", dead_letter_exchange="their-dlx")
    before = foreign.settled_view()
    assert redrive("topology", "enroll", "orders", "bills", "--bind-exchange").code == 0
    foreign.reject_one("orders", b"failed")
    assert foreign.take("retry-queue") == b"failed"
    assert foreign.take("their-dlq") == b"failed"
    # The binding of one stays when the other leaves.
    assert redrive("topology", "unenroll", "orders").code == 0
    foreign.reject_one("bills", b"too")
    assert foreign.take("retry-queue") == b"too"
    assert redrive("topology", "unenroll", "bills").code == 0
    assert foreign.settled_view() == before


@pytest.mark.usefixtures("redrive")
def test_ctrl_c_at_the_question_of_an_enroll_ends_it_and_changes_nothing(
    foreign: Foreign, tmp_path: Path
) -> None:
    foreign.declare("orders", max_length=2)
    before = foreign.settled_view()
    ours, theirs = pty.openpty()
    env = os.environ | {
        "REDRIVE_BROKER__URL": foreign.vhost.url,
        "REDRIVE_BROKER__MANAGEMENT_URL": foreign.vhost.management_url,
    }
    enroll = [sys.executable, "-m", "redrive", "topology", "enroll", "orders"]
    shown = b""
    with subprocess.Popen(enroll, cwd=tmp_path, env=env, stdin=theirs, stderr=theirs) as asking:
        os.close(theirs)
        with contextlib.suppress(OSError):  # a terminal ends with an error
            while some := os.read(ours, 4096):
                was_not_asked = b"Enroll all the same?" not in shown
                shown += some
                if was_not_asked and b"Enroll all the same?" in shown:
                    asking.send_signal(signal.SIGINT)
        assert asking.wait() == 130, shown
    os.close(ours)
    assert b"interrupted; nothing was changed" in shown
    assert foreign.settled_view() == before


def test_a_length_limit_needs_a_yes_because_publishers_will_be_refused(
    redrive: Redrive, foreign: Foreign
) -> None:
    foreign.declare("orders", max_length=2)
    before = foreign.settled_view()
    asked = redrive("topology", "enroll", "orders")
    assert asked.code == 2
    assert "it has a limit (max-length 2): when full it will refuse new messages" in asked.err
    assert "--yes" in asked.err
    assert foreign.settled_view() == before
    assert redrive("topology", "enroll", "orders", "--yes").code == 0


def test_a_policy_that_dead_letters_elsewhere_is_replaced_with_a_yes_and_comes_back(
    redrive: Redrive, foreign: Foreign
) -> None:
    foreign.policy("theirs", {"dead-letter-exchange": "their-dlx"}, pattern="^orders$")
    foreign.declare("orders")
    asked = redrive("topology", "enroll", "orders")
    assert asked.code == 2
    assert "instead of 'their-dlx', where the policy 'theirs' sends them" in asked.err
    assert redrive("topology", "enroll", "orders", "--yes").code == 0
    assert foreign.in_force("orders")[1]["dead-letter-exchange"] == "retry-exchange"
    assert redrive("topology", "unenroll", "orders").code == 0
    expected = ("theirs", {"dead-letter-exchange": "their-dlx"})
    eventually(lambda: foreign.in_force("orders") == expected)


@pytest.mark.parametrize(
    ("argument", "by_policy", "keeps"),
    [("reject-publish", "drop-head", False), ("drop-head", "reject-publish", True)],
)
def test_a_policy_decides_by_its_overflow_whether_a_quorum_queue_dead_letters_at_least_once(
    foreign: Foreign, argument: str, by_policy: str, keeps: bool
) -> None:
    foreign.policy("all", {"overflow": by_policy})
    asked = {"dead_letter_exchange": "dlx", "dead_letter_strategy": "at-least-once"}
    foreign.declare("orders", **asked, overflow=argument)
    assert foreign.in_force("orders")[0] == "all"
    assert kept_without_a_target(foreign, "orders", "dlx") is keeps


@pytest.mark.parametrize("arguments", [{}, {**SAFE, "dead-letter-exchange": "retry-exchange"}])
def test_a_policy_that_would_undo_at_least_once_does_not_reach_an_enrolled_queue(
    redrive: Redrive, foreign: Foreign, arguments: dict[str, str]
) -> None:
    foreign.policy("all", {"overflow": "drop-head"})
    named = {key.replace("-", "_"): value for key, value in arguments.items()}
    foreign.declare("orders", **{"overflow": "reject-publish", **named})
    enrolled = redrive("topology", "enroll", "orders")
    assert (enrolled.code, enrolled.err) == (0, "")
    assert foreign.in_force("orders")[1]["overflow"] == "reject-publish"
    with foreign.channel() as channel:
        for key in ("retry-routing-key", "#"):
            channel.queue_unbind("retry-queue", "retry-exchange", key)
    assert kept_without_a_target(foreign, "orders", "retry-exchange")


def kept_without_a_target(foreign: Foreign, queue: str, exchange: str) -> bool:
    """Whether dead messages stay while their dead letter exchange brings them nowhere: so they do
    only if the queue dead-letters at least once. A queue hears of a policy a moment after the
    management API shows it as in force, so one that is gone says nothing yet."""
    with foreign.channel() as channel:
        channel.exchange_declare(exchange, "topic", durable=True)
    return any(_kept_one(foreign, queue, after=number) for number in range(2, 7))


def _kept_one(foreign: Foreign, queue: str, *, after: int) -> bool:
    """`after` are more than were ever ready before, so what is then shown is new."""
    with foreign.channel() as channel:
        channel.queue_purge(queue)
    foreign.reject_one(queue, b"dead")
    with foreign.channel() as channel:
        channel.confirm_delivery()  # else the end of the channel may take some of them along
        for _ in range(after):
            channel.basic_publish("", queue, b"after it")
    shown = eventually(
        lambda: (found := foreign.queue(queue)).get("messages_ready") == after and found
    )
    assert shown
    return bool(shown["messages_dlx"])


def test_an_operator_policy_stays_in_force_beside_ours(redrive: Redrive, foreign: Foreign) -> None:
    foreign.operator_policy("ops", {"max-length": 50})
    foreign.declare("orders")
    eventually(lambda: foreign.in_force("orders")[1] == {"max-length": 50})
    asked = redrive("topology", "enroll", "orders")
    assert (asked.code, "max-length 50" in asked.err) == (2, True)
    assert redrive("topology", "enroll", "orders", "--yes").code == 0
    assert foreign.in_force("orders")[1] == {"max-length": 50, **OURS, **SAFE}


def test_exclusive_queues_streams_missing_ones_and_our_own_are_refused(
    redrive: Redrive, foreign: Foreign
) -> None:
    foreign.declare("log", "stream")
    with foreign.channel() as theirs:
        theirs.queue_declare("mine", exclusive=True)
        before = foreign.settled_view()
        refused = redrive("topology", "enroll", "mine", "log", "nowhere", "retry-queue")
        assert refused.code == 1
        assert "mine: it is exclusive to a connection, so it cannot be enrolled" in refused.err
        assert "declare it with the argument x-dead-letter-exchange: retry-exchange" in refused.err
        assert "log: it is a stream" in refused.err
        assert "nowhere: there is no such queue" in refused.err
        assert "retry-queue: it is one of Redrive's own" in refused.err
        assert foreign.settled_view() == before


def test_without_the_topology_nothing_is_enrolled(redrive: Redrive, foreign: Foreign) -> None:
    foreign.declare("orders")
    with foreign.channel() as channel:
        channel.queue_delete("retry-queue")
    refused = redrive("topology", "enroll", "orders")
    assert refused.code == 1
    assert "dead messages would be dropped; run 'redrive topology apply' first" in refused.err
    assert foreign.in_force("orders")[0] is None


def test_without_the_management_api_it_says_what_else_helps(
    redrive: Redrive, foreign: Foreign
) -> None:
    foreign.declare("orders")
    on_the_wire = f'[broker]\nurl = "{foreign.vhost.url}"\n'
    for command in ("enroll", "unenroll"):
        refused = redrive("topology", command, "orders", settings=on_the_wire)
        assert refused.code == 1
        assert refused.err.count("\n") == 1
        assert "set [broker] management_url" in refused.err


def test_a_user_who_may_not_set_policies_changes_nothing(
    redrive: Redrive, foreign: Foreign
) -> None:
    node, user = foreign.vhost.node, f"reader-{secrets.token_hex(4)}"
    node.api("PUT", f"users/{user}", {"password": "s3cret", "tags": "management"})
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    path = quote(foreign.vhost.name, safe="")
    node.api("PUT", f"permissions/{path}/{user}", rights)
    foreign.declare("orders")
    before = foreign.settled_view()
    of_reader = redrive.settings.replace("guest:guest", f"{user}:s3cret")
    refused = redrive("topology", "enroll", "orders", settings=of_reader)
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "'policymaker'" in refused.err
    assert foreign.settled_view() == before
    node.api("DELETE", f"users/{user}")


def test_unenroll_of_a_queue_that_is_gone_removes_its_policy(
    redrive: Redrive, foreign: Foreign
) -> None:
    foreign.declare("orders")
    assert redrive("topology", "enroll", "orders").code == 0
    with foreign.channel() as channel:
        channel.queue_delete("orders")
    assert redrive("topology", "unenroll", "orders").code == 0
    assert foreign.view()["policies"] == []


def test_on_a_broker_with_default_statistics_it_waits_until_the_policy_is_shown(
    own_node: OwnNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vhost = Vhost(own_node(), "/")
    foreign = Foreign(vhost)
    settings = f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "{vhost.management_url}"\n'
    redrive = Redrive(tmp_path, capsys, settings)
    redrive("topology", "apply")
    foreign.policy("theirs", {"message-ttl": 60_000})
    foreign.declare("orders")
    assert redrive("topology", "enroll", "orders").code == 0
    assert foreign.in_force("orders") == (
        "redrive-enroll:orders",
        {"message-ttl": 60_000, **OURS, **SAFE},
    )
