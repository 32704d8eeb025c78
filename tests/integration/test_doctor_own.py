"""`redrive doctor` about what waits, Redrive's own topology, enrolled queues, permissions and
upgrades: each mistake is made on a real broker, found, and gone after its own advice."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest

from redrive.broker.looking import NACK_IS_FREE
from redrive.broker.private import PrivateNode
from tests.services.commands import Redrive
from tests.services.eventually import eventually
from tests.services.foreign import Foreign
from tests.services.patient import Found, Patient
from tests.services.plugin import Vhost

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def settings_of(vhost: Vhost, folder: Path) -> str:
    return (
        f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "{vhost.management_url}"\n'
        f'[store]\nurl = "sqlite:///{folder}/redrive.db"\n'
    )


@pytest.fixture
def patient(foreign: Foreign, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Patient:
    """A broker with Redrive's topology."""
    redrive = Redrive(tmp_path, capsys, settings_of(foreign.vhost, tmp_path))
    assert redrive("topology", "apply").code == 0
    return Patient(foreign, redrive, tmp_path)


def publish(foreign: Foreign, queue: str, *expirations: str | None) -> None:
    with foreign.channel() as channel:
        channel.confirm_delivery()
        for expiration in expirations:
            properties = pika.BasicProperties(delivery_mode=2, expiration=expiration)
            channel.basic_publish("", queue, b"x", properties, mandatory=True)
    eventually(lambda: foreign.queue(queue).get("messages") == len(expirations))


# What waits


@contextmanager
def running(patient: Patient, command: str) -> Iterator[None]:
    """A command that runs until it is told to end; what it said is shown if the test fails."""
    said = patient.folder / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", f"exec env {command}"],
            env=patient.environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        sys.stdout.write(said.read_text())


@pytest.mark.parametrize("queue", ["dlq-queue", "payments.dlq"])
def test_a_dead_letter_queue_that_grows_and_nobody_reads_is_collected(
    patient: Patient, queue: str
) -> None:
    if queue != "dlq-queue":
        patient.foreign.declare(queue, delivery_limit=1_000_000)
    publish(patient.foreign, queue, None, None)
    found = patient.diagnosed("unread", queue)
    assert found["reason"] == (
        "It holds 2 messages, 2 more than 10 minutes ago, and nobody consumes it."
    )
    assert found["severity"] == "warning"
    (command,) = found["commands"]
    with running(patient, command):
        patient.is_cured("unread", queue)


def test_messages_that_nobody_retries_are_reported_also_without_the_management_api(
    patient: Patient,
) -> None:
    publish(patient.foreign, "retry-queue", None)
    patient.redrive.settings = patient.redrive.settings.replace("management_url", "# ")
    found = patient.diagnosed("unread", "retry-queue")
    with running(patient, found["commands"][0]):
        patient.is_cured("unread", "retry-queue")


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_messages_with_mixed_ttls_block_a_delay_queue(patient: Patient, kind: str) -> None:
    patient.foreign.declare(
        "wait", kind, dead_letter_exchange="", dead_letter_routing_key="dlq-queue"
    )
    publish(patient.foreign, "wait", "600000", "300000", "600000")
    if kind == "quorum" and patient.version < NACK_IS_FREE:
        (unseen,) = patient.doctor().document["notLookedAt"]
        assert unseen["what"] == "TTLs of messages in wait"
        return
    found = patient.diagnosed("mixed-ttls", "wait")
    assert "1 message to wait 5m or so, behind one that waits 10m" in found["reason"]
    again = patient.diagnosed("mixed-ttls", "wait")
    assert again["reason"] == found["reason"]  # a look leaves the queue as it was
    assert found["commands"] == ["redrive move wait dlq-queue"]
    patient.follow(found)
    patient.is_cured("mixed-ttls", "wait")
    assert patient.foreign.take("dlq-queue") == b"x"


def test_messages_that_are_overdue_behind_another_are_let_go_and_reported(
    patient: Patient,
) -> None:
    patient.foreign.declare(
        "wait", "classic", dead_letter_exchange="", dead_letter_routing_key="dlq-queue"
    )
    publish(patient.foreign, "wait", "600000", "1", "1")
    found = patient.diagnosed("mixed-ttls", "wait")
    assert (
        "2 messages had waited long enough and stood behind one that waits 10m" in (found["reason"])
    )
    assert patient.foreign.take("dlq-queue") == b"x"


def test_a_delay_queue_with_one_ttl_blocks_nothing(patient: Patient) -> None:
    patient.foreign.declare(
        "wait",
        "classic",
        dead_letter_exchange="",
        dead_letter_routing_key="dlq-queue",
        message_ttl=300_000,
    )
    publish(patient.foreign, "wait", None, "600000", None)
    assert patient.findings("mixed-ttls") == []


# Redrive's own


def test_a_binding_that_is_missing_is_made_again(patient: Patient) -> None:
    with patient.foreign.channel() as channel:
        channel.queue_unbind("retry-queue", "retry-exchange", "#")
    found = patient.cure("topology", patient.foreign.vhost.name)
    assert found["severity"] == "critical"
    assert "the binding of retry-queue to retry-exchange by '#'" in found["reason"]
    assert found["commands"] == ["redrive topology apply"]


def test_a_queue_of_redrives_that_is_different_is_made_anew(patient: Patient) -> None:
    with patient.foreign.channel() as channel:
        channel.queue_delete("queue.delay.1")
    patient.foreign.declare("queue.delay.1", "classic")
    found = patient.cure("topology", "queue.delay.1")
    assert "x-queue-type: expected quorum, got classic" in found["reason"]


def test_a_policy_that_catches_redrives_queues_is_kept_off_them(patient: Patient) -> None:
    patient.foreign.policy("all", {"max-length": 5, "delivery-limit": 3})
    found = patient.diagnosed("topology", "dlq-queue")
    assert "max-length by the policy 'all': expected none, got 5" in found["reason"]
    patient.follow(found)
    patient.is_cured("topology", "dlq-queue")


def test_a_policy_that_undoes_at_least_once_is_kept_off_redrives_queues(patient: Patient) -> None:
    patient.foreign.policy("all", {"overflow": "drop-head"})
    found = patient.diagnosed("topology", "queue.delay.1")
    said = "overflow by the policy 'all': expected reject-publish, got drop-head"
    assert said in found["reason"]
    patient.follow(found)
    patient.is_cured("topology", "queue.delay.1")


def test_a_tier_that_is_left_over_is_emptied_and_deleted(patient: Patient) -> None:
    patient.redrive.settings += '[topology]\ntiers = ["10s", "15s"]\n'
    publish(patient.foreign, "retry-queue-3", None)
    found = patient.cure("topology", "retry-queue-3")
    assert found["commands"][0] == "redrive move retry-queue-3 retry-queue-1"
    assert patient.foreign.take("retry-queue-1") == b"x"


def test_an_enrolled_queue_that_another_policy_took_is_enrolled_again(patient: Patient) -> None:
    patient.foreign.declare("orders")
    assert patient.redrive("topology", "enroll", "orders").code == 0
    patient.foreign.policy("newer", {"max-length": 100}, pattern="^orders", priority=50)
    found = patient.cure("enrolled", "orders")
    assert "its policy is not in force; 'newer' is" in found["reason"]


def test_an_enrolled_queue_whose_way_back_is_gone_is_enrolled_again(patient: Patient) -> None:
    patient.foreign.declare("orders")
    assert patient.redrive("topology", "enroll", "orders").code == 0
    with patient.foreign.channel() as channel:
        channel.queue_unbind("orders", "redrive-return", "redrive-queue:orders")
    found = patient.cure("enrolled", "orders")
    assert found["severity"] == "warning"


def test_the_policy_of_an_enrolled_queue_that_is_gone_is_removed(patient: Patient) -> None:
    patient.foreign.declare("orders")
    assert patient.redrive("topology", "enroll", "orders").code == 0
    with patient.foreign.channel() as channel:
        channel.queue_delete("orders")
    found = patient.cure("enrolled", "redrive-enroll:orders")
    assert found["object"]["kind"] == "policy"


# Permissions


@pytest.mark.parametrize("tags", ["", "administrator"])
def test_permissions_that_redrive_lacks_are_granted(patient: Patient, tags: str) -> None:
    vhost, user = patient.foreign.vhost, f"robot-{secrets.token_hex(4)}"
    vhost.node.api("PUT", f"users/{user}", {"password": "secret", "tags": tags})
    allowed = {"configure": "^mine$", "write": "^route-delay$", "read": "^(retry-queue)$"}
    path = vhost.name.replace("/", "%2F")
    vhost.node.api("PUT", f"permissions/{path}/{user}", allowed)
    patient.redrive.settings = patient.redrive.settings.replace("guest:guest@", f"{user}:secret@")
    patient.redrive.settings += '[collector]\nqueues = ["graves.*"]\n'
    patient.foreign.declare("graves.eu", delivery_limit=1_000_000)
    publish(patient.foreign, "dlq-queue", None)
    found = patient.diagnosed("permissions", user)
    assert "read on queue dlq-queue (to collect what is dead)" in found["reason"]
    assert ("read on queue graves.eu" in found["reason"]) == bool(tags)  # the API lists it
    assert "write on exchange redrive-return (to give messages back)" in found["reason"]
    assert "on exchange route-delay" not in found["reason"]
    assert "on queue retry-queue (" not in found["reason"]
    if tags:
        patient.follow(found)
    else:  # what the user has is not known, so no command would keep it: an administrator adds
        assert found["commands"] == []
        added = dict(each.split(" ", 1) for each in found["advice"].split(" yet: ")[1].split("; "))
        assert set(added) == {"write", "read"}
        more = {name: f"{allowed[name]}|{pattern}" for name, pattern in added.items()}
        vhost.node.api("PUT", f"permissions/{path}/{user}", allowed | more)
    patient.is_cured("permissions", user)
    (listed,) = vhost.node.api("GET", f"users/{user}/permissions")
    assert listed["configure"] == "^mine$"
    for name in ("configure", "write", "read"):  # what it had, it has
        assert allowed[name] in listed[name]
    # To ask for a permission took nothing, and put nothing anywhere.
    for queue, messages in (("dlq-queue", 1), ("retry-queue", 0), ("queue.delay.1", 0)):
        with patient.foreign.channel() as channel:
            declared = channel.queue_declare(queue, passive=True)
            assert declared.method.message_count == messages


# The plugin


def test_the_delayed_message_plugin_is_reported_by_exchange_and_by_itself(
    patient: Patient,
) -> None:
    # The plugin itself is not to be had here: its exchange type, served by another module.
    node = patient.foreign.vhost.node
    kind = 'exchange, <<"x-delayed-message">>'
    node.ctl("eval", f"rabbit_registry:register({kind}, rabbit_exchange_type_topic).")
    try:
        with patient.foreign.channel() as channel:
            channel.exchange_declare(
                "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"}
            )
        found = patient.diagnosed("delayed-message-plugin", "later")
        assert "archived" in found["reason"]
        (command,) = found["commands"]
        patient.run(command.replace("-u guest", "-f -u guest:guest"))
        patient.is_cured("delayed-message-plugin", "later")
        unused = patient.diagnosed("delayed-message-plugin", patient.foreign.vhost.name)
        assert unused["severity"] == "note"
        assert unused["commands"] == ["rabbitmq-plugins disable rabbitmq_delayed_message_exchange"]
    finally:
        node.ctl("eval", f"rabbit_registry:unregister({kind}).")
    assert patient.findings("delayed-message-plugin") == []


# Upgrades


def upgrade_findings(patient: Patient, target: str) -> dict[str, list[Found]]:
    found: dict[str, list[Found]] = {}
    for item in patient.doctor("--target-version", target).document["items"]:
        if item["check"].startswith("upgrade-"):
            found.setdefault(item["check"].removeprefix("upgrade-"), []).append(item)
    return found


def test_an_upgrade_names_what_changes_of_what_is_in_use(patient: Patient) -> None:
    foreign, vhost = patient.foreign, patient.foreign.vhost
    if patient.version >= (4, 0):
        assert upgrade_findings(patient, f"{patient.version[0]}.{patient.version[1]}") == {}
        assert upgrade_findings(patient, "3.10") == {}
        return
    foreign.declare("orders")
    foreign.declare("mails", "classic", queue_version=1)
    foreign.policy("ha", {"ha-mode": "all", "max-length": 9}, pattern="^mails$")
    foreign.in_force("mails")
    with foreign.channel() as channel:
        channel.queue_declare("passing", durable=False)
        channel.basic_qos(prefetch_count=5, global_qos=True)
        found = eventually(
            lambda: (
                (all_of := upgrade_findings(patient, "4.3")) and "global-qos" in all_of and all_of
            ),
        )
    assert found
    (way,) = found.pop("path")
    assert "3.10 → 3.11 → 3.12 → 3.13 → 4.2 → 4.3" in way["reason"]
    patient.follow(way)
    assert set(found) == {
        "delivery-limit",
        "mirrored-queues",
        "queue-arguments",
        "transient-queue",
        "global-qos",
    }
    for check, name in (
        ("upgrade-delivery-limit", "orders"),
        ("upgrade-mirrored-queues", "ha"),
        ("upgrade-queue-arguments", "mails"),
        ("upgrade-transient-queue", "passing"),
    ):
        patient.cure(check, name, "--target-version", "4.3")
    patient.is_cured("upgrade-global-qos", vhost.name, "--target-version", "4.3")
    (policy,) = [each for each in foreign.view()["policies"] if each["name"] == "ha"]
    assert policy["definition"] == {"max-length": 9}


def test_the_last_keys_of_a_mirroring_policy_take_the_policy_with_them(patient: Patient) -> None:
    if patient.version < (4, 0):
        patient.foreign.policy("ha", {"ha-mode": "all"}, pattern="^mails$")
        patient.cure("upgrade-mirrored-queues", "ha", "--target-version", "4.0")


class OldNode(PrivateNode):
    """A node that was upgraded from an older one: its newer feature flags are still off."""

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {"RABBITMQ_FEATURE_FLAGS": "quorum_queue"}


def test_feature_flags_that_are_off_are_found_and_enabled(
    rabbitmq_root: Path | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if rabbitmq_root is not None:
        return  # from 4.0 on these flags cannot be off
    with OldNode(extra_config="collect_statistics_interval = 200") as node:
        vhost = Vhost(node, "/")
        redrive = Redrive(tmp_path, capsys, settings_of(vhost, tmp_path))
        assert redrive("topology", "apply").code == 0
        patient = Patient(Foreign(vhost), redrive, tmp_path)
        for check in ("at-least-once-is-not", "upgrade-feature-flags"):
            patient.cure(check, "/", "--target-version", "3.11")


# What people see


def test_many_alike_are_one_paragraph_with_one_command(patient: Patient) -> None:
    for number in range(12):
        patient.foreign.declare(f"mails-{number:02}", "classic")
    looked = patient.redrive("doctor")
    assert looked.code == 1
    assert "warning  12 queues: mails-00, mails-01," in looked.out
    assert "mails-07 and 4 more  [no-dead-letter-exchange]" in looked.out
    enrolls = [line for line in looked.out.splitlines() if "topology enroll" in line]
    assert len(enrolls) == 1
    assert enrolls[0].endswith("mails-10 mails-11")
    assert json.loads(patient.doctor().out)["healthy"] is False


def test_only_the_queues_that_are_named_are_shown(patient: Patient) -> None:
    for name in ("orders", "mails.eu", "mails.us"):
        patient.foreign.declare(name, "classic")
    shown: Any = patient.doctor("mails.*").document["items"]
    assert [item["object"]["name"] for item in shown] == ["mails.eu", "mails.us"]
    assert patient.doctor("dlq-queue").code == 0
    missing = patient.doctor("invoices*")
    assert (missing.code, missing.out) == (3, "")
    assert missing.err == "redrive: there is no queue invoices*\n"
