"""`redrive peek` on a real broker: the first messages are shown, and the queue is as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from redrive.amqp import Properties, fields
from tests.services.commands import Redrive
from tests.services.moving import Kind, publish, take_all
from tests.services.plugin import Vhost
from tests.services.sweeping import (
    DLQ,
    SPENDS,
    command_line,
    counts_looks,
    dead,
    fill,
    in_queue,
    version_of,
)

SECRET = "hunter2"


@pytest.fixture
def redrive(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    hidden = '[redaction]\nheaders = ["x-token"]\njson_paths = ["$.password"]\n'
    return command_line(vhost, tmp_path, capsys, more=hidden)


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


def test_an_empty_queue_and_a_missing_one_are_told_apart(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(fill(vhost.url, "classic", ()))
    empty, missing = redrive("peek", DLQ), redrive("peek", "nothing")
    assert (empty.code, missing.code) == (3, 1)
    assert "no queue 'nothing'" in missing.err
