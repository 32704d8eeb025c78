"""`redrive doctor`: every mistake about dead-lettering, made on a real broker, is found; and gone
after the finding's own commands were run. A healthy broker has no findings."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from tests.services.commands import Redrive
from tests.services.eventually import eventually
from tests.services.foreign import Foreign
from tests.services.patient import Patient

AT_LEAST_ONCE = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}


@pytest.fixture
def patient(foreign: Foreign, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Patient:
    """A broker with Redrive's topology."""
    vhost = foreign.vhost
    settings = (
        f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "{vhost.management_url}"\n'
        f'[store]\nurl = "sqlite:///{tmp_path}/redrive.db"\n'
    )
    redrive = Redrive(tmp_path, capsys, settings)
    assert redrive("topology", "apply").code == 0
    return Patient(foreign, redrive, tmp_path)


def test_nothing_is_reported_of_a_healthy_broker(patient: Patient) -> None:
    patient.foreign.declare("orders")
    assert patient.redrive("topology", "enroll", "orders").code == 0
    looked = patient.doctor()
    assert (looked.code, looked.err) == (0, "")
    assert looked.document["items"] == []
    assert looked.document["notLookedAt"] == []
    assert looked.document["healthy"] is True
    shown = patient.redrive("doctor")
    assert shown.code == 0
    assert shown.out.startswith("nothing to report (RabbitMQ ")


# Whether at all


def test_a_queue_without_a_dead_letter_exchange_is_enrolled(patient: Patient) -> None:
    patient.foreign.declare("mails", "classic")
    found = patient.cure("no-dead-letter-exchange", "mails")
    assert found["commands"] == ["redrive topology enroll mails"]
    assert found["severity"] == "warning"


def test_without_the_topology_the_advice_begins_with_it(
    foreign: Foreign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vhost = foreign.vhost
    settings = f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "{vhost.management_url}"\n'
    patient = Patient(foreign, Redrive(tmp_path, capsys, settings), tmp_path)
    assert patient.doctor().code == 0
    (absent,) = patient.doctor().document["items"]
    assert (absent["check"], absent["severity"]) == ("topology", "note")
    foreign.declare("it's mine", "classic")
    patient.cure("no-dead-letter-exchange", "it's mine")
    assert patient.findings("topology") == []


def test_temporary_queues_and_dead_letter_queues_need_no_dead_letter_exchange(
    patient: Patient,
) -> None:
    with patient.foreign.channel() as channel:
        channel.queue_declare("", exclusive=True)
        channel.queue_declare("short", durable=True, arguments={"x-expires": 600_000})
        channel.queue_declare("gone", auto_delete=True, durable=True)
        channel.queue_declare("orders_error", durable=True)
        channel.exchange_declare("dlx", "fanout", durable=True)
        channel.queue_declare("graveyard", durable=True)
        channel.queue_bind("graveyard", "dlx", "")
        patient.foreign.declare("orders", dead_letter_exchange="dlx", **AT_LEAST_ONCE)
        assert patient.findings("no-dead-letter-exchange") == []


def test_a_delivery_limit_deletes_messages_where_nothing_dead_letters(patient: Patient) -> None:
    patient.foreign.declare("orders", delivery_limit=5)
    found = patient.cure("delivery-limit", "orders")
    assert "comes back 5 times" in found["reason"]
    assert patient.findings("no-dead-letter-exchange", "orders") == []


def test_the_default_delivery_limit_counts_from_rabbitmq_4_on(patient: Patient) -> None:
    patient.foreign.declare("orders")
    if patient.version >= (4, 0):
        found = patient.cure("delivery-limit", "orders")
        assert "20 times (the broker's default limit)" in found["reason"]
    else:
        patient.cure("no-dead-letter-exchange", "orders")


def test_the_delivery_limit_of_a_dead_letter_queue_is_raised_by_a_policy_of_its_own(
    patient: Patient,
) -> None:
    patient.foreign.declare("orders.dlq")
    patient.foreign.policy("limits", {"delivery-limit": 3, "max-length": 1000}, pattern="dlq$")
    found = patient.cure("delivery-limit", "orders.dlq")
    assert "Dead messages end here" in found["reason"]
    mended = {"delivery-limit": 1_000_000, "max-length": 1000}
    eventually(lambda: patient.foreign.in_force("orders.dlq") == ("mended:orders.dlq", mended))


def test_a_limit_of_minus_one_deletes_on_rabbitmq_3_and_the_queue_is_made_anew(
    patient: Patient,
) -> None:
    with patient.foreign.channel() as channel:
        channel.exchange_declare("shop", "topic", durable=True)
        patient.foreign.declare(
            "orders", delivery_limit=-1, dead_letter_exchange="retry-exchange", **AT_LEAST_ONCE
        )
        channel.queue_bind("orders", "shop", "order.#", {"x-mark": "kept"})
    patient.foreign.work_at("orders", [b"0", b"1", b"2"])
    if patient.version >= (4, 0):
        assert patient.findings("delivery-limit") == []
        return
    found = patient.cure("delivery-limit", "orders")
    assert found["severity"] == "critical"
    assert [patient.foreign.take("orders") for _ in range(3)] == [b"0", b"1", b"2"]
    bindings = patient.foreign.view()["bindings"]
    assert [each["arguments"] for each in bindings if each["source"] == "shop"] == [
        {"x-mark": "kept"}
    ]
    assert not [each for each in patient.foreign.queues() if "rebuilding" in each["name"]]


# To where


def test_a_dead_letter_exchange_by_argument_that_does_not_exist_is_made_and_listened_to(
    patient: Patient,
) -> None:
    patient.foreign.declare("orders", dead_letter_exchange="their.dlx")
    found = patient.cure("dead-letter-target", "orders")
    assert found["severity"] == "critical"
    assert "'their.dlx' does not exist: what fails is dropped" in found["reason"]
    patient.foreign.reject_one("orders", b"failed")
    assert patient.foreign.take("retry-queue") == b"failed"


def test_a_dead_letter_exchange_by_policy_that_does_not_exist_is_replaced(
    patient: Patient,
) -> None:
    patient.foreign.declare("orders")
    patient.foreign.policy("theirs", {"dead-letter-exchange": "nowhere"}, pattern="^orders$")
    found = patient.cure("dead-letter-target", "orders")
    assert found["commands"] == ["redrive topology enroll orders --yes"]
    patient.foreign.reject_one("orders", b"failed")
    assert patient.foreign.take("retry-queue") == b"failed"


@pytest.mark.parametrize(
    ("kind", "key"),
    [("topic", {}), ("direct", {}), ("direct", {"dead_letter_routing_key": "dead.orders"})],
)
def test_a_dead_letter_exchange_that_leads_nowhere_gets_a_listener(
    patient: Patient, kind: str, key: dict[str, str]
) -> None:
    with patient.foreign.channel() as channel:
        channel.exchange_declare("dlx", kind, durable=True)
        channel.exchange_declare("shop", "topic", durable=True)
        patient.foreign.declare("orders", "classic", dead_letter_exchange="dlx", **key)
        channel.queue_bind("orders", "shop", "order.new")
    found = patient.cure("dead-letter-target", "orders")
    assert "to no queue: what fails is dropped" in found["reason"]
    with patient.foreign.channel() as channel:
        channel.basic_publish("shop", "order.new", b"failed")
        tag = eventually(lambda: channel.basic_get("orders")[0]).delivery_tag
        channel.basic_reject(tag, requeue=False)
    assert patient.foreign.take("retry-queue") == b"failed"


@pytest.mark.parametrize(
    ("exchange", "source", "bound"),
    [("dlx", "topic", "order.#"), ("dlx", "fanout", ""), ("", "topic", "order.*")],
)
def test_dead_messages_of_unknown_keys_get_one_that_a_direct_exchange_can_take(
    patient: Patient, exchange: str, source: str, bound: str
) -> None:
    with patient.foreign.channel() as channel:
        channel.exchange_declare("shop", source, durable=True)
        if exchange:
            channel.exchange_declare(exchange, "direct", durable=True)
            channel.queue_bind("retry-queue", exchange, "#")  # a letter here, which nothing has
        patient.foreign.declare("orders", dead_letter_exchange=exchange)
        channel.queue_bind("orders", "shop", bound)
    patient.foreign.policy("ttl", {"message-ttl": 600_000}, pattern="^orders$", priority=7)
    patient.foreign.in_force("orders")
    found = patient.cure("dead-letter-target", "orders")
    assert found["severity"] == "critical"
    assert patient.foreign.in_force("orders")[1]["message-ttl"] == 600_000
    with patient.foreign.channel() as channel:
        channel.basic_publish("shop", "order.new", b"failed")
        tag = eventually(lambda: channel.basic_get("orders")[0]).delivery_tag
        channel.basic_reject(tag, requeue=False)
    assert patient.foreign.take("retry-queue") == b"failed"


def test_a_dead_letter_queue_that_does_not_exist_is_made(patient: Patient) -> None:
    patient.foreign.declare(
        "orders", "classic", dead_letter_exchange="", dead_letter_routing_key="orders.dead"
    )
    found = patient.cure("dead-letter-target", "orders")
    assert "the queue 'orders.dead', which does not exist" in found["reason"]


def test_an_alternate_exchange_and_an_exchange_behind_another_lead_somewhere(
    patient: Patient,
) -> None:
    with patient.foreign.channel() as channel:
        channel.exchange_declare("last", "fanout", durable=True)
        channel.exchange_declare(
            "dlx", "direct", durable=True, arguments={"alternate-exchange": "middle"}
        )
        channel.exchange_declare("middle", "topic", durable=True)
        channel.exchange_bind("last", "middle", "#")
        channel.queue_declare("orders.dlq", durable=True)
        channel.queue_bind("orders.dlq", "last", "")
    patient.foreign.declare("orders", dead_letter_exchange="dlx", **AT_LEAST_ONCE)
    assert patient.doctor("orders").document["items"] == []


def test_an_at_least_once_queue_whose_target_is_gone_is_wedged_until_it_is_back(
    patient: Patient,
) -> None:
    patient.foreign.declare("orders", dead_letter_exchange="gone", **AT_LEAST_ONCE)
    patient.foreign.reject_one("orders", b"stuck")
    found = patient.cure("wedged", "orders")
    assert "1 message waits in the queue until there is a way" in found["reason"]
    assert patient.findings("dead-letter-target", "orders") == []


def test_an_at_least_once_queue_whose_target_is_full_is_wedged_until_there_is_room(
    patient: Patient,
) -> None:
    with patient.foreign.channel() as channel:
        channel.exchange_declare("dlx", "fanout", durable=True)
        patient.foreign.declare("orders.dlq", max_length=1, overflow="reject-publish")
        channel.queue_bind("orders.dlq", "dlx", "")
        channel.confirm_delivery()
        for _ in range(2):  # a quorum queue takes one or so more than its limit
            _publish_as_far_as_it_goes(channel, "orders.dlq")
    patient.foreign.declare("orders", dead_letter_exchange="dlx", **AT_LEAST_ONCE)
    patient.foreign.reject_one("orders", b"stuck")
    found = patient.cure("wedged", "orders")
    assert "'orders.dlq' is full" in found["reason"]


def _publish_as_far_as_it_goes(channel: pika.channel.Channel, queue: str) -> None:
    try:
        for _ in range(10):
            channel.basic_publish("", queue, b"full")
    except pika.exceptions.NackError:
        return


# How safely


def test_at_most_once_to_a_foreign_exchange_becomes_at_least_once_by_a_policy(
    patient: Patient,
) -> None:
    with patient.foreign.channel() as channel:
        channel.exchange_declare("dlx", "fanout", durable=True)
        channel.queue_declare("orders.dlq", durable=True)
        channel.queue_bind("orders.dlq", "dlx", "")
    patient.foreign.declare("orders", dead_letter_exchange="dlx")
    patient.foreign.policy("ttl", {"message-ttl": 600_000}, pattern="^orders$", priority=7)
    patient.cure("at-most-once", "orders")
    _, definition = patient.foreign.in_force("orders")
    assert definition == {
        "message-ttl": 600_000,
        "dead-letter-strategy": "at-least-once",
        "overflow": "reject-publish",
    }


def test_at_most_once_to_redrive_is_mended_by_enrolling(patient: Patient) -> None:
    patient.foreign.declare("orders", dead_letter_exchange="retry-exchange")
    found = patient.cure("at-most-once", "orders")
    assert found["commands"] == ["redrive topology enroll orders"]


def test_arguments_against_at_least_once_make_the_queue_anew(patient: Patient) -> None:
    patient.foreign.declare(
        "orders",
        dead_letter_exchange="retry-exchange",
        dead_letter_strategy="at-most-once",
        max_length=10,
    )
    found = patient.cure("at-most-once", "orders")
    assert "make the queue anew" in found["advice"]
    assert "when full it will refuse new messages" in found["advice"]


def test_an_argument_that_undoes_at_least_once_is_outdone_by_enrolling(patient: Patient) -> None:
    patient.foreign.declare(
        "orders",
        dead_letter_exchange="retry-exchange",
        dead_letter_strategy="at-least-once",
        overflow="drop-head",
        max_length=10,
    )
    found = patient.cure("at-least-once-is-not", "orders")
    assert "this is 'drop-head'" in found["reason"]
    assert "when full it will refuse new messages" in found["advice"]
    assert found["commands"] == ["redrive topology enroll orders --yes"]


def test_a_policy_that_undoes_at_least_once_against_the_arguments_is_outdone(
    patient: Patient,
) -> None:
    patient.foreign.declare("orders", dead_letter_exchange="retry-exchange", **AT_LEAST_ONCE)
    patient.foreign.policy("all", {"overflow": "drop-head"}, pattern="^orders$")
    found = patient.cure("at-least-once-is-not", "orders")
    assert "this is 'drop-head' by the policy 'all', which beats the argument" in found["reason"]
    assert patient.foreign.in_force("orders")[1] == {"overflow": "reject-publish"}


def test_at_least_once_without_reject_publish_silently_is_not(patient: Patient) -> None:
    patient.foreign.declare(
        "orders", dead_letter_exchange="retry-exchange", dead_letter_strategy="at-least-once"
    )
    patient.cure("at-least-once-is-not", "orders")
    assert patient.findings("at-most-once") == []


def test_a_policy_with_a_strategy_is_void_on_a_classic_queue(patient: Patient) -> None:
    patient.foreign.declare("orders", "classic")
    safe = {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
    dead = {"dead-letter-exchange": "retry-exchange"}
    patient.foreign.policy("safe", {**safe, **dead}, pattern="^orders")
    patient.cure("at-least-once-is-not", "orders")
    rest = {**dead, "overflow": "reject-publish"}
    eventually(lambda: patient.foreign.in_force("orders")[1] == rest)


def test_a_classic_queue_that_dead_letters_is_noted_and_can_become_a_quorum_queue(
    patient: Patient,
) -> None:
    patient.foreign.declare("orders", "classic", dead_letter_exchange="retry-exchange")
    with patient.foreign.channel() as channel:
        channel.confirm_delivery()
        channel.basic_publish("", "orders", b"kept")
        tag = eventually(lambda: channel.basic_get("orders")[0]).delivery_tag
        channel.basic_ack(tag)
        channel.basic_publish("", "orders", b"kept")
        # While it is open: what a channel did since the last statistics goes with its close.
        eventually(
            lambda: (
                patient.foreign.queue("orders").get("messages") == 1
                and patient.foreign.queue("orders").get("message_stats", {}).get("ack")
            ),
        )
    found = patient.cure("classic-dead-letters", "orders")
    assert found["severity"] == "note"
    assert patient.foreign.queue("orders")["type"] == "quorum"
    assert patient.foreign.take("orders") == b"kept"


def test_what_two_findings_want_of_one_queue_goes_into_one_policy(patient: Patient) -> None:
    with patient.foreign.channel() as channel:
        channel.exchange_declare("dlx", "fanout", durable=True)
        channel.queue_declare("orders.dlq", durable=True)
        channel.queue_bind("orders.dlq", "dlx", "")
    patient.foreign.declare("orders", dead_letter_exchange="dlx")
    found = patient.cure("at-most-once", "orders", "--target-version", "4.3")
    assert ('"delivery-limit":1000000' in found["commands"][0]) == (patient.version < (4, 0))
    assert patient.doctor("orders", "--target-version", "4.3").document["items"] == []
