"""`redrive move` on a real broker: the messages that are meant, to a queue or back to their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from redrive.amqp import Properties, Publish, fields
from redrive.work import move, window
from tests.services.commands import Ran, Redrive
from tests.services.eventually import eventually
from tests.services.letters import death
from tests.services.moving import channel_to, declare, identities, publish, ready, take_all
from tests.services.plugin import Vhost
from tests.services.sweeping import (
    SPENDS,
    command_line,
    dead,
    few_permissions,
    in_queue,
    version_of,
)

FROM, TO = "broken", "mended"


@pytest.fixture
def redrive(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    for queue in (FROM, TO):
        asyncio.run(declare(vhost.url, queue, "classic"))
    return command_line(vhost, tmp_path, capsys)


def message(
    identity: str,
    *,
    body: bytes = b"{}",
    queue: str = "orders",
    reason: str = "rejected",
    key: str = "order.created",
    age: timedelta | None = None,
    put: Mapping[str, bytes] | None = None,
) -> Publish:
    """A dead message; `age` is since its death."""
    entry = death(queue, reason=reason, key=key)
    if age is not None:
        at = fields.timestamp(datetime.now(UTC) - age)
        position = entry.index(b"\x04timeT") + 5
        entry = entry[:position] + at + entry[position + 9 :]
    properties = Properties.empty().with_text("message_id", identity).persistent()
    headers = {"x-death": fields.array([entry]), **(put or {})}
    return Publish("", FROM, properties.with_headers(headers).raw, body)


def moved(vhost: Vhost, ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    return asyncio.run(in_queue(vhost.url, TO))


def test_filters_choose_by_header_key_reason_age_and_body(vhost: Vhost, redrive: Redrive) -> None:
    messages = [
        message("a", put={"tenant": fields.longstr("t-1")}, body=b'{"card": "4711"}'),
        message("b", reason="expired", key="invoice.sent", age=timedelta(hours=3)),
        message("c", put={"tenant": fields.int32(7)}, age=timedelta(minutes=1)),
        message("d", put={"redrive-error-reason": fields.longstr("connection timed out")}),
    ]
    asyncio.run(publish(vhost.url, messages))
    for filters, found in (
        (["--header", "tenant=t-*"], ["a"]),
        (["--header", "tenant=7"], ["c"]),
        (["--routing-key", "invoice.*"], ["b"]),
        (["--reason", "expired"], ["b"]),
        (["--reason", "*timed out"], ["d"]),
        (["--min-age", "1h", "--routing-key", "invoice.*"], ["b"]),
        (["--min-age", "2m", "--header", "tenant=*"], ["a"]),
        (["--search", "4711"], ["a"]),
    ):
        dry = redrive("move", FROM, TO, *filters, "--dry-run", "--output", "json")
        assert (dry.document["wouldMove"], dry.document["moved"]) == (len(found), 0), filters
    assert moved(vhost, redrive("move", FROM, TO, "--search", "4711")) == ["a"]
    assert moved(vhost, redrive("move", FROM, TO, "--reason", "expired")) == ["b"]
    assert redrive("move", FROM, TO, "--search", "nowhere").code == 3
    assert asyncio.run(in_queue(vhost.url, FROM)) == ["c", "d"]


def test_a_limit_and_a_rate_are_kept(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(publish(vhost.url, [message(str(number)) for number in range(40)]))
    began = time.monotonic()
    ran = redrive("move", FROM, TO, "--limit", "20", "--rate", "20/s")
    assert 0.9 <= time.monotonic() - began < 10
    assert moved(vhost, ran) == [str(number) for number in range(20)]
    assert asyncio.run(in_queue(vhost.url, FROM)) == [str(number) for number in range(20, 40)]


@pytest.mark.parametrize(("prefetch", "moved_within"), [(4, 300.0), (1000, 0.2)])
def test_a_slow_move_moves_everything_however_long_it_takes(
    vhost: Vhost,
    redrive: Redrive,
    monkeypatch: pytest.MonkeyPatch,
    prefetch: int,
    moved_within: float,
) -> None:
    monkeypatch.setattr(window, "LONGEST", 8.0)  # of one delivery, not of the move
    monkeypatch.setattr(move, "_MOVED_WITHIN", moved_within)
    monkeypatch.setenv("REDRIVE_BROKER__PREFETCH", str(prefetch))
    asyncio.run(publish(vhost.url, [message(str(number)) for number in range(100)]))
    ran = redrive("move", FROM, TO, "--rate", "10/s")
    assert moved(vhost, ran) == [str(number) for number in range(100)]


def test_what_a_move_had_no_time_for_is_a_failure_and_stays_in_order(
    vhost: Vhost, redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "LONGEST", 3.0)
    asyncio.run(publish(vhost.url, [message(str(number)) for number in range(40)]))
    ran = redrive("move", FROM, TO, "--rate", "10/s", "--output", "json")
    assert ran.code == 1
    assert "were not looked at: a broker lets nobody hold" in ran.err
    assert "run it again" in ran.err
    gone = ran.document["moved"]
    assert 1 <= gone < 40
    assert asyncio.run(in_queue(vhost.url, TO)) == [str(number) for number in range(gone)]
    assert asyncio.run(in_queue(vhost.url, FROM)) == [str(number) for number in range(gone, 40)]


def test_on_a_terminal_it_shows_how_far_it_is(vhost: Vhost, tmp_path: Path) -> None:
    for queue in (FROM, TO):
        asyncio.run(declare(vhost.url, queue, "classic"))
    asyncio.run(publish(vhost.url, [message(str(number)) for number in range(40)]))
    ours, theirs = pty.openpty()
    env = os.environ | {"REDRIVE_BROKER__URL": vhost.url, "TERM": "xterm", "COLUMNS": "100"}
    argv = [sys.executable, "-m", "redrive", "move", FROM, TO, "--rate", "20/s"]
    shown = b""
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=-1, stderr=theirs) as running:
        os.close(theirs)
        with contextlib.suppress(OSError):  # a terminal ends with an error
            while some := os.read(ours, 4096):
                shown += some
        os.close(ours)
        assert running.wait() == 0, shown
    assert re.search(rb"broken .*\b[1-3]?[0-9]/40\b", shown), shown
    assert len(asyncio.run(in_queue(vhost.url, TO))) == 40


def test_an_interrupted_move_says_at_once_what_it_does_and_then_what_it_did_not_come_to(
    vhost: Vhost, tmp_path: Path
) -> None:
    for queue in (FROM, TO):
        asyncio.run(declare(vhost.url, queue, "classic"))
    asyncio.run(publish(vhost.url, [message(str(number)) for number in range(40)]))
    ours, theirs = pty.openpty()
    env = os.environ | {"REDRIVE_BROKER__URL": vhost.url, "TERM": "xterm", "COLUMNS": "300"}
    argv = [sys.executable, "-m", "redrive", "move", FROM, TO, "--rate", "1/s", "--output", "json"]
    shown = b""
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=-1, stderr=theirs) as running:
        os.close(theirs)
        eventually(lambda: asyncio.run(ready(vhost.url, TO)) > 0)
        running.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # a terminal ends with an error
            while some := os.read(ours, 4096):
                shown += some
        os.close(ours)
        assert running.stdout is not None
        document = json.loads(running.stdout.read())
        assert running.wait() == 130, shown
    assert shown.index(b"giving back what was taken") < shown.index(b"interrupted: ")
    assert document["interrupted"]
    assert document["notLookedAt"] == 40 - document["examined"] > 0
    assert b"interrupted: %d of the 40 messages" % document["notLookedAt"] in shown
    assert len(asyncio.run(in_queue(vhost.url, FROM))) == 40 - document["moved"]


def test_each_goes_back_to_the_queue_where_it_failed_with_its_key_and_nowhere_else(
    vhost: Vhost, redrive: Redrive
) -> None:
    async def lay_out() -> None:
        async with channel_to(vhost.url) as channel:
            await channel.declare_exchange("shop", "topic")
            for queue in ("orders", "mail", "audit"):
                await channel.declare_queue(queue, arguments={"x-queue-type": "classic"})
                await channel.bind_queue(queue, "shop", "#")
        nowhere = message("nowhere", queue="deleted")
        unknown = Publish("", FROM, Properties.empty().with_text("message_id", "unknown").raw, b"")
        there = [message("o"), message("m", queue="mail", key="order.paid")]
        await publish(vhost.url, [*there, nowhere, unknown])

    asyncio.run(lay_out())
    ran = redrive("move", FROM, "--to-origin", "--output", "json")
    assert ran.code == 1
    assert (ran.document["moved"], ran.document["failed"]) == (2, 2)
    assert "is gone" in ran.err
    assert "no header says in which queue it failed" in ran.err
    (order,) = asyncio.run(take_all(vhost.url, "orders"))
    (mail,) = asyncio.run(take_all(vhost.url, "mail"))
    assert identities([order, mail]) == ["o", "m"]
    assert (order.routing_key, mail.routing_key) == ("order.created", "order.paid")
    assert "BCC" not in Properties.read(order.properties).header_names
    assert asyncio.run(ready(vhost.url, "audit")) == 0
    assert asyncio.run(in_queue(vhost.url, FROM)) == ["nowhere", "unknown"]


def test_what_its_origin_refuses_stays_in_order_and_the_rest_goes_back(
    vhost: Vhost, redrive: Redrive
) -> None:
    full: dict[str, str | int] = {"x_max_length": 1, "x_overflow": "reject-publish"}
    asyncio.run(declare(vhost.url, "orders", "classic", **full))
    asyncio.run(declare(vhost.url, "mail", "classic"))
    asyncio.run(publish(vhost.url, [Publish("", "orders", Properties.empty().raw, b"first")]))
    asyncio.run(publish(vhost.url, [message("a"), message("m", queue="mail"), message("b")]))
    ran = redrive("move", FROM, "--to-origin", "--output", "json")
    assert ran.code == 1
    assert (ran.document["moved"], ran.document["failed"]) == (1, 2)
    assert "'orders'" in ran.err
    assert asyncio.run(in_queue(vhost.url, "mail")) == ["m"]
    assert asyncio.run(ready(vhost.url, "orders")) == 1
    assert asyncio.run(in_queue(vhost.url, FROM)) == ["a", "b"]


def test_a_dry_run_back_to_where_each_failed_counts_who_would_find_no_way(
    vhost: Vhost, redrive: Redrive
) -> None:
    asyncio.run(declare(vhost.url, "orders", "classic"))
    unknown = Publish("", FROM, Properties.empty().with_text("message_id", "unknown").raw, b"")
    gone = message("gone", queue="deleted")
    asyncio.run(publish(vhost.url, [message("o"), gone, unknown]))
    ran = redrive("move", FROM, "--to-origin", "--dry-run", "--output", "json")
    assert ran.code == 1
    assert (ran.document["wouldMove"], ran.document["failed"]) == (1, 2), ran.err
    assert "1 would not be moved: its queue 'deleted' is gone" in ran.err
    assert "1 would not be moved: no header says in which queue it failed" in ran.err
    exchanges = vhost.node.api("GET", f"exchanges/{quote(vhost.name, safe='')}")
    assert "redrive-return" not in {each["name"] for each in exchanges}  # it was not made
    assert asyncio.run(in_queue(vhost.url, FROM)) == ["o", "gone", "unknown"]


@pytest.mark.parametrize("way", [[TO], ["--to-origin"]])
def test_a_dry_run_of_who_may_not_publish_is_refused(
    vhost: Vhost,
    tmp_path: Path,
    redrive: Redrive,
    capsys: pytest.CaptureFixture[str],
    way: list[str],
) -> None:
    asyncio.run(publish(vhost.url, [message("a")]))
    with few_permissions(vhost, configure="^$", write="^$", read=".*") as url:
        ran = command_line(vhost, tmp_path, capsys, url=url)("move", FROM, *way, "--dry-run")
    assert (ran.code, ran.err.count("\n")) == (1, 1), ran.err
    assert "ACCESS_REFUSED" in ran.err
    (left,) = asyncio.run(take_all(vhost.url, FROM))
    assert not left.redelivered  # it was not even looked at


def test_who_may_not_write_to_the_way_back_is_told_so_and_nothing_is_taken(
    vhost: Vhost, tmp_path: Path, redrive: Redrive, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(declare(vhost.url, "orders", "classic"))
    asyncio.run(publish(vhost.url, [message("a"), message("b")]))
    with few_permissions(vhost, configure="^$", write="^$", read=".*") as url:
        ran = command_line(vhost, tmp_path, capsys, url=url)("move", FROM, "--to-origin")
    assert ran.code == 1
    assert "the way back needs the exchange 'redrive-return'" in ran.err
    assert asyncio.run(in_queue(vhost.url, FROM)) == ["a", "b"]


def test_what_was_moved_still_knows_where_it_failed(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(declare(vhost.url, "orders", "classic"))
    asyncio.run(publish(vhost.url, [message("a")]))
    assert redrive("move", FROM, TO).code == 0
    assert redrive("move", TO, "--to-origin").code == 0
    (back,) = asyncio.run(take_all(vhost.url, "orders"))
    assert back.routing_key == "order.created"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([FROM], 2, "--to-origin"),
        ([FROM, TO, "--to-origin"], 2, "--to-origin"),
        ([FROM, FROM], 2, "onto itself"),
        ([FROM, 256 * "x"], 2, "at most 255 bytes"),
        (["nothing", TO], 1, "no queue 'nothing'"),
        ([FROM, "nothing"], 1, "no queue 'nothing' to move to"),
        ([FROM, TO, "--rate", "fast"], 2, "--rate"),
        ([FROM, TO, "--search", ""], 2, "--search"),
        ([FROM, TO, "--header", "tenant"], 2, "NAME=VALUE"),
        ([FROM, TO, "--min-age", "old"], 2, "--min-age"),
    ],
)
def test_wrong_use_is_said_in_one_line_and_touches_nothing(
    vhost: Vhost, redrive: Redrive, arguments: list[str], code: int, says: str
) -> None:
    asyncio.run(publish(vhost.url, [message("a")]))
    ran = redrive("move", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1
    names = {each["name"] for each in vhost.node.api("GET", f"queues/{quote(vhost.name)}")}
    assert names == {FROM, TO}
    assert asyncio.run(in_queue(vhost.url, FROM)) == ["a"]


def test_a_queue_whose_messages_looking_would_wear_out_is_not_moved_unless_told(
    vhost: Vhost, redrive: Redrive
) -> None:
    counted = asyncio.run(version_of(vhost.url)) < (4, 3)
    asyncio.run(declare(vhost.url, "worn", "quorum", x_delivery_limit=3))
    asyncio.run(declare(vhost.url, "orders", "classic"))
    ran = redrive("move", "worn", TO)
    assert ran.code == (1 if counted else 3)
    assert (SPENDS in ran.err) == counted
    assert redrive("move", "worn", TO, SPENDS).code == 3
    asyncio.run(publish(vhost.url, [dead(number, 1, "worn") for number in range(3)]))
    some = redrive("move", "worn", TO, SPENDS, "--limit", "1", "--dry-run")
    assert ("has one delivery less to live" in some.err) == counted
    assert "one delivery less" not in redrive("move", "worn", TO, SPENDS).err  # none is left


@pytest.mark.parametrize("policy", [None, 1_000_000])
def test_a_limit_of_minus_one_harms_nothing_on_any_version(
    vhost: Vhost, redrive: Redrive, policy: int | None
) -> None:
    """RabbitMQ 3 removes at the first return then, whatever a policy says."""
    asyncio.run(declare(vhost.url, "endless", "quorum", x_delivery_limit=-1))
    if policy is not None:
        definition = f'{{"delivery-limit":{policy}}}'
        vhost.node.ctl("set_policy", "-p", vhost.name, "raised", "^endless$", definition)
    asyncio.run(publish(vhost.url, [dead(number, 1, "endless") for number in range(3)]))
    removes = asyncio.run(version_of(vhost.url)) < (4, 0)
    for command in (
        ("peek", "endless"),
        ("move", "endless", TO, "--search", "nowhere"),
        ("sweep", "endless", "--target", TO, "--dry-run"),
    ):
        for told in ((), (SPENDS,)):
            ran = redrive(*command, *told)
            assert ("removes every message that is looked at" in ran.err) == removes, ran
    everything = redrive("move", "endless", TO, *((SPENDS,) if removes else ()))
    assert moved(vhost, everything) == list("012")
    assert asyncio.run(ready(vhost.url, "endless")) == 0
