"""`redrive peek` on a real broker: the first messages are shown, and the queue is as it was."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from urllib.parse import quote

import pika
import pytest

from redrive.amqp import Delivery, Properties, Publish, fields
from redrive.broker.looking import NACK_IS_FREE
from redrive.work import window
from redrive.work.mover import Hold
from redrive.work.peek import Peek
from tests.services.commands import Redrive
from tests.services.moving import Kind, declare, identities, publish, take_all
from tests.services.plugin import Vhost
from tests.services.sweeping import (
    DLQ,
    SPENDS,
    command_line,
    counts_looks,
    dead,
    delivery_counts,
    fill,
    in_queue,
    version_of,
    without_management,
)

SECRET = "hunter2"


@pytest.fixture
def redrive(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    hidden = '[redaction]\nheaders = ["x-token"]\njson_paths = ["$.password"]\n'
    return command_line(vhost, tmp_path, capsys, more=hidden)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize(("first", "second", "turns"), [(6, 3, True), (3, 6, False)])
def test_a_look_at_some_of_what_was_given_back_before_is_said_to_turn_a_quorum_queue(
    vhost: Vhost, redrive: Redrive, kind: Kind, first: int, second: int, turns: bool
) -> None:
    asyncio.run(declare(vhost.url, DLQ, kind))  # with a limit that nothing reaches: looks are free
    asyncio.run(publish(vhost.url, [dead(number, 1) for number in range(12)]))
    says = "is now behind what else had been given back to this quorum queue before"
    assert says not in redrive("peek", DLQ, "--limit", str(first)).err
    ran = redrive("peek", DLQ, "--limit", str(second))
    turns = turns and kind == "quorum"
    assert (says in ran.err) == turns, ran.err
    order = [3, 4, 5, 0, 1, 2, *range(6, 12)] if turns else range(12)
    assert asyncio.run(in_queue(vhost.url, DLQ)) == [str(number) for number in order]


def test_looks_at_the_same_messages_of_a_queue_with_a_delivery_limit_do_not_turn_it(
    vhost: Vhost, redrive: Redrive
) -> None:
    asyncio.run(declare(vhost.url, DLQ, "quorum", x_delivery_limit=9))
    asyncio.run(publish(vhost.url, [dead(number, 1) for number in range(12)]))
    for _ in range(3):
        ran = redrive("peek", DLQ, "--limit", "5", SPENDS, "--output", "json")
        assert [item["messageId"] for item in ran.document["items"]] == list("01234")
    assert "given back to this quorum queue before, if anything had" in ran.err
    assert asyncio.run(in_queue(vhost.url, DLQ)) == [str(number) for number in range(12)]


def test_a_delivery_limit_that_was_just_set_by_a_policy_is_known(
    vhost: Vhost, redrive: Redrive
) -> None:
    """The statistics of the management API show it seconds later."""
    asyncio.run(declare(vhost.url, DLQ, "quorum"))
    asyncio.run(publish(vhost.url, [dead(0, 1)]))
    path = f"policies/{quote(vhost.name, safe='')}/limited"
    limit = {"pattern": "^dlq", "definition": {"delivery-limit": 5}, "apply-to": "queues"}
    assert redrive("peek", DLQ).code == 0
    vhost.node.api("PUT", path, limit)
    costs = asyncio.run(version_of(vhost.url)) < NACK_IS_FREE
    by_pattern = redrive("sweep", f"{DLQ}*", "--dry-run")
    for ran in (by_pattern, redrive("peek", DLQ)):
        assert ran.code == (1 if costs else 0), ran.err
        assert ("towards the delivery limit of this quorum queue, 5" in ran.err) == costs


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_thirty_peeks_change_neither_the_order_nor_the_messages(
    vhost: Vhost, redrive: Redrive, kind: Kind
) -> None:
    asyncio.run(fill(vhost.url, kind))
    costs = counts_looks(asyncio.run(version_of(vhost.url)), kind)
    if costs:
        assert redrive("peek", DLQ).code == 1
    for _ in range(10 if costs else 30):
        ran = redrive("peek", DLQ, "--output", "json", *((SPENDS,) if costs else ()))
        assert ran.code == 0, ran.err
        assert ran.document["present"] == 5
        assert [item["messageId"] for item in ran.document["items"]] == list("01234")
    assert asyncio.run(in_queue(vhost.url, DLQ)) == list("01234")


def test_no_more_messages_are_touched_than_are_shown(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    ran = redrive("peek", DLQ, "--limit", "2")
    assert "Message 2 of 5" in ran.out
    assert "3 messages more" in ran.err
    left = asyncio.run(take_all(vhost.url, DLQ))
    assert [each.redelivered for each in left] == [True, True, False, False, False]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_that_puts_what_was_shown_behind_the_rest_is_said_to(
    vhost: Vhost, redrive: Redrive, kind: Kind
) -> None:
    asyncio.run(fill(vhost.url, kind, [1] * 12))
    version = asyncio.run(version_of(vhost.url))
    told = (SPENDS,) if counts_looks(version, kind) else ()
    ran = redrive("peek", DLQ, "--limit", "3", "--output", "json", *told)
    assert [item["messageId"] for item in ran.document["items"]] == list("012")
    turns = kind == "quorum" and version < (4, 0)
    assert ("now behind the 9 that were not looked at" in ran.err) == turns, ran.err
    order = [*range(3, 12), 0, 1, 2] if turns else range(12)
    assert asyncio.run(in_queue(vhost.url, DLQ)) == [str(number) for number in order]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_an_interrupted_peek_gives_back_in_order_what_it_holds_and_shows_what_it_saw(
    vhost: Vhost, redrive: Redrive, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    asyncio.run(fill(vhost.url, kind))
    version = asyncio.run(version_of(vhost.url))
    decide = Peek.decide

    def interrupted(plan: Peek, delivery: Delivery, user: str) -> Hold:
        signal.raise_signal(signal.SIGINT)
        return decide(plan, delivery, user)

    monkeypatch.setattr(Peek, "decide", interrupted)
    spends = (SPENDS,) if counts_looks(version, kind) else ()
    ran = redrive("peek", DLQ, *spends)
    assert ran.code == 130
    assert "Message 1 of 5" in ran.out
    assert f"{DLQ}: interrupted: " in ran.err
    left = asyncio.run(take_all(vhost.url, DLQ))
    assert identities(left) == list("01234")
    if version >= NACK_IS_FREE:
        for each in left:
            assert "x-delivery-count" not in Properties.read(each.properties).header_names


def test_a_message_is_shown_as_a_letter_is_and_what_is_hidden_stays_hidden(
    vhost: Vhost, redrive: Redrive
) -> None:
    asyncio.run(fill(vhost.url, "classic", ()))
    secret = dead("a", 2, put={"x-token": fields.longstr(SECRET)})
    secret.body = b'{"password": "%s", "order": 1}' % SECRET.encode()
    secret.properties = (
        Properties.read(secret.properties).with_text("content_type", "application/json").raw
    )
    asyncio.run(publish(vhost.url, [secret]))
    shown = redrive("peek", DLQ)
    document = redrive("peek", DLQ, "--output", "json")
    for ran in (shown, document):
        assert ran.code == 0, ran.err
        assert SECRET not in ran.out
    assert "rejected 2 times" in shown.out
    assert "order.created" in shown.out
    (item,) = document.document["items"]
    assert item["originalMessage"] == {"password": "****", "order": 1}
    assert item["origin"]["queue"] == "orders"
    assert "id" not in item


def test_a_queue_that_others_have_for_themselves_is_no_empty_one(
    vhost: Vhost, redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "_GIVEN_NOTHING", 3)
    asyncio.run(declare(vhost.url, DLQ, "classic", x_single_active_consumer=True))
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as somebody:
        channel = somebody.channel()
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(DLQ, lambda *_: None)
        asyncio.run(publish(vhost.url, [dead(number, 1) for number in range(3)]))
        ran = redrive("peek", DLQ)
    assert ran.code == 1
    assert "were not looked at: the broker gives them to another consumer only" in ran.err


def test_a_message_without_an_id_is_shown_without_one(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(fill(vhost.url, "classic", ()))
    asyncio.run(publish(vhost.url, [Publish("", DLQ, Properties.empty().raw, b"{}"), dead("a", 1)]))
    items = redrive("peek", DLQ, "--output", "json").document["items"]
    assert [item["messageId"] for item in items] == [None, "a"]


def test_an_empty_queue_and_a_missing_one_are_told_apart(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(fill(vhost.url, "classic", ()))
    empty, missing = redrive("peek", DLQ), redrive("peek", "nothing")
    assert (empty.code, missing.code) == (3, 1)
    assert empty.err == f"redrive: {DLQ} is empty\n"
    assert "no queue 'nothing'" in missing.err


@pytest.mark.parametrize("limit", [-1, 2])
def test_without_a_management_api_a_queue_that_may_have_a_limit_is_not_looked_into_unless_told(
    vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: int
) -> None:
    asyncio.run(declare(vhost.url, DLQ, "quorum", x_delivery_limit=limit))
    asyncio.run(publish(vhost.url, [dead(number, 1) for number in range(5)]))
    redrive = without_management(vhost, tmp_path, capsys)
    refuses = asyncio.run(version_of(vhost.url)) < (4, 3)
    for command in (
        *[("peek", DLQ)] * 3,
        ("sweep", DLQ, "--dry-run"),
        ("move", DLQ, "elsewhere", "--search", "nowhere"),
    ):
        ran = redrive(*command)
        if refuses:
            assert ran.code == 1
            assert "limits are unknown without the management API" in ran.err
            assert "set [broker] management_url" in ran.err
            assert SPENDS in ran.err
    assert asyncio.run(delivery_counts(vhost.url, DLQ)) == [0] * 5


def test_without_a_management_api_a_classic_queue_is_known_as_one(
    vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    redrive = without_management(vhost, tmp_path, capsys)
    for _ in range(3):
        ran = redrive("peek", DLQ, "--limit", "2", "--output", "json")
        assert (ran.code, ran.err) == (0, "")
        assert ran.document["present"] == 5
    left = asyncio.run(take_all(vhost.url, DLQ))
    assert identities(left) == list("01234")
    assert [each.redelivered for each in left] == [True, True, False, False, False]
