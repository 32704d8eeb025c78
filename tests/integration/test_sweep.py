"""`redrive sweep` on a real broker: what is over the limit leaves, the rest stays as it was."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from redrive.amqp import Delivery, Properties, Publish, fields
from redrive.work.mover import Hold
from redrive.work.transfer import Transfer
from tests.services.commands import Redrive
from tests.services.eventually import eventually
from tests.services.letters import death, letter_store
from tests.services.moving import Kind, channel_to, declare, identity, publish, ready, take_all
from tests.services.plugin import OwnNode, Vhost
from tests.services.sweeping import (
    COUNTS,
    DLQ,
    FINAL,
    SPENDS,
    command_line,
    counts_looks,
    dead,
    few_permissions,
    fill,
    in_queue,
    version_of,
)

KINDS: tuple[Kind, ...] = ("classic", "quorum")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def redrive(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    return command_line(vhost, tmp_path, capsys)


def version(vhost: Vhost) -> tuple[int, int]:
    return asyncio.run(version_of(vhost.url))


def told(vhost: Vhost, kind: Kind) -> tuple[str, ...]:
    """The option that is needed where a look costs."""
    return (SPENDS,) if counts_looks(version(vhost), kind) else ()


def test_three_over_the_limit_are_moved_and_two_are_left_in_order(
    vhost: Vhost, redrive: Redrive, kind: Kind
) -> None:
    asyncio.run(fill(vhost.url, kind))
    if counts_looks(version(vhost), kind):
        refused = redrive("sweep", DLQ, "--max-retries", "3")
        assert refused.code == 1
        assert "was not looked into" in refused.err
        assert SPENDS in refused.err
        for message in asyncio.run(peeked_raw(vhost.url)):
            assert "x-delivery-count" not in Properties.read(message).header_names
    ran = redrive("sweep", DLQ, "--max-retries", "3", "--output", "json", *told(vhost, kind))
    assert ran.code == 0, ran.err
    (item,) = ran.document["items"]
    assert {key: item[key] for key in ("present", "examined", "moved", "left", "failed")} == {
        "present": 5,
        "examined": 5,
        "moved": 3,
        "left": 2,
        "failed": 0,
    }
    assert asyncio.run(in_queue(vhost.url, DLQ)) == ["0", "4"]
    moved = asyncio.run(take_all(vhost.url, FINAL))
    assert [identity(each) for each in moved] == ["1", "2", "3"]
    properties = Properties.read(moved[0].properties)
    assert properties.get("delivery_mode") == 2
    assert properties.header("redrive-queue") == "orders"
    assert properties.header("redrive-routing-key") == "order.created"


async def peeked_raw(url: str) -> list[bytes]:
    """The properties of what is in the queue now, which goes back."""
    async with channel_to(url) as channel:
        found = []
        while (delivery := await channel.get(DLQ)) is not None:
            found.append(delivery.properties)
        return found


def test_fifty_sweeps_in_a_row_lose_nothing_and_move_nothing_twice(
    vhost: Vhost, redrive: Redrive, kind: Kind
) -> None:
    asyncio.run(fill(vhost.url, kind))
    # A look costs where the broker says so: there only as many as the messages live through.
    times = 15 if counts_looks(version(vhost), kind) else 50
    moved = 0
    for _ in range(times):
        ran = redrive("sweep", DLQ, "--max-retries", "3", "--output", "json", *told(vhost, kind))
        assert ran.code == 0, ran.err
        (item,) = ran.document["items"]
        assert item["examined"] == item["present"]
        moved += item["moved"]
    assert moved == 3
    assert asyncio.run(in_queue(vhost.url, DLQ)) == ["0", "4"]
    assert asyncio.run(in_queue(vhost.url, FINAL)) == ["1", "2", "3"]


def test_what_is_left_of_a_long_queue_keeps_its_order_and_is_looked_at_once(
    vhost: Vhost, redrive: Redrive, kind: Kind
) -> None:
    counts = [5 if number % 3 == 0 else 1 for number in range(1500)]
    asyncio.run(fill(vhost.url, kind, counts))
    ran = redrive("sweep", DLQ, "--max-retries", "3", "--output", "json", *told(vhost, kind))
    (item,) = ran.document["items"]
    assert (item["examined"], item["moved"], item["left"]) == (1500, 500, 1000)
    left = [str(number) for number, count in enumerate(counts) if count == 1]
    assert asyncio.run(in_queue(vhost.url, DLQ)) == left
    over = [str(number) for number, count in enumerate(counts) if count == 5]
    assert sorted(asyncio.run(in_queue(vhost.url, FINAL)), key=int) == over


def test_a_long_queue_is_swept_by_as_many_channels_as_the_broker_lets_a_connection_have(
    own_node: OwnNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = own_node("channel_max = 4")
    counts = [5 if number % 10 == 0 else 1 for number in range(5000)]
    for kind in KINDS:
        queue = f"dlq.{kind}"
        asyncio.run(fill(node.url(), kind, counts, queue))
        redrive = Redrive(tmp_path, capsys, f'[broker]\nurl = "{node.url()}"\n')
        ran = redrive("sweep", queue, "--max-retries", "3", "--output", "json", SPENDS)
        assert ran.code == 0, ran.err
        (item,) = ran.document["items"]
        assert (item["examined"], item["moved"], item["left"]) == (5000, 500, 4500)
        assert asyncio.run(ready(node.url(), queue)) == 4500


def test_patterns_mean_several_queues_and_a_target_pattern_their_targets(
    vhost: Vhost, redrive: Redrive
) -> None:
    for queue in ("dlq.orders", "dlq.users", "mail-dlq", "orders"):
        asyncio.run(fill(vhost.url, "classic", (9, 1), queue))
    asyncio.run(declare(vhost.url, "retry-queue", "classic"))
    ran = redrive("sweep", "dlq.*", "*-dlq", "--target", "dead.*", "--limit", "1")
    assert ran.code == 0, ran.err
    for name in ("orders", "users", "mail"):
        assert asyncio.run(in_queue(vhost.url, f"dead.{name}")) == ["0"]
    assert asyncio.run(ready(vhost.url, "orders")) == 2
    arguments = vhost.node.api("GET", f"queues/{quote(vhost.name, safe='')}/dead.users")
    assert arguments["durable"]
    assert arguments["arguments"]["x-queue-type"] == "classic"


def test_a_target_is_of_the_sources_type_and_keeps_what_it_gets(
    vhost: Vhost, redrive: Redrive, kind: Kind
) -> None:
    asyncio.run(fill(vhost.url, kind))
    assert redrive("sweep", DLQ, "--no-create", *told(vhost, kind)).code == 1
    assert asyncio.run(ready(vhost.url, DLQ)) == 5
    assert redrive("sweep", DLQ, *told(vhost, kind)).code == 0
    found = vhost.node.api("GET", f"queues/{quote(vhost.name, safe='')}/{FINAL}")["arguments"]
    assert found["x-queue-type"] == kind
    assert found.get("x-delivery-limit") == (1_000_000 if kind == "quorum" else None)


def test_a_dry_run_counts_and_changes_nothing(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    ran = redrive("sweep", DLQ, "--dry-run")
    assert ran.code == 0
    assert "WOULD MOVE" in ran.out
    assert ran.out.split("\n")[1].split() == [DLQ, FINAL, "5", "3", "2", "0"]
    assert redrive("peek", FINAL).code == 1  # it was not made
    assert asyncio.run(in_queue(vhost.url, DLQ)) == list("01234")


def test_a_dry_run_promises_nothing_that_could_not_be_done(
    vhost: Vhost, redrive: Redrive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    missing = redrive("sweep", DLQ, "--dry-run", "--no-create")
    assert (missing.code, missing.err) == (
        1,
        f"redrive: {DLQ}: the target '{FINAL}' does not exist; make it, or leave --no-create out\n",
    )
    assert (
        f"the classic queue {FINAL} would be made, if we may"
        in redrive("sweep", DLQ, "--dry-run").err
    )
    with somebody(vhost) as channel:
        channel.queue_declare("mine", exclusive=True)
        exclusive = redrive("sweep", DLQ, "--dry-run", "--target", "mine")
    assert exclusive.code == 1
    assert "is exclusive to another connection" in exclusive.err
    with few_permissions(vhost, configure="^$", write="^$", read=".*") as url:
        forbidden = command_line(vhost, tmp_path, capsys, url=url)("sweep", DLQ, "--dry-run")
    assert forbidden.code == 1
    assert "ACCESS_REFUSED" in forbidden.err
    assert asyncio.run(in_queue(vhost.url, DLQ)) == list("01234")


def test_limits_of_single_queues_come_from_the_file_and_the_command_line(
    vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept = f'[sweep]\nqueues = ["{DLQ}"]\nmax_retries_of = ["dlq.*=5"]\ntarget = "final"\n'
    redrive = command_line(vhost, tmp_path, capsys, more=swept)
    asyncio.run(fill(vhost.url, "classic"))
    assert redrive("sweep", "--output", "json").document["items"][0]["moved"] == 0
    ran = redrive("sweep", "--max-retries-of", f"{DLQ}=0", "--output", "json")
    assert ran.document["items"][0]["moved"] == 5
    assert asyncio.run(in_queue(vhost.url, "final")) == list("01234")


def test_deaths_in_all_entries_of_the_origin_queue_count_together(
    vhost: Vhost, redrive: Redrive
) -> None:
    entries = [death("orders", count=2), death(DLQ, reason="expired", count=9)]
    entries.append(death("orders", reason="expired", count=2))
    asyncio.run(fill(vhost.url, "classic", ()))
    split = dead("split", 1, put={"x-death": fields.array(entries)})
    own = dead("own", 1, put={"redrive-attempt": fields.int32(4)})
    asyncio.run(publish(vhost.url, [split, own]))
    by = ("--max-retries", "3", "--output", "json", "--dry-run", "--count-by")
    counted = {
        name: redrive("sweep", DLQ, *by, name).document["items"][0]["wouldMove"]
        for name in ("largest", "deaths", "header", "deliveries")
    }
    assert counted == {"largest": 2, "deaths": 1, "header": 1, "deliveries": 0}


def test_what_a_full_target_refuses_stays_and_the_sweep_fails(
    vhost: Vhost, redrive: Redrive
) -> None:
    asyncio.run(declare(vhost.url, FINAL, "classic", x_max_length=1, x_overflow="reject-publish"))
    asyncio.run(fill(vhost.url, "classic"))
    ran = redrive("sweep", DLQ, "--output", "json")
    assert ran.code == 1
    (item,) = ran.document["items"]
    assert (item["moved"], item["failed"], item["left"]) == (1, 2, 2)
    assert "is full" in ran.err
    assert asyncio.run(in_queue(vhost.url, DLQ)) == ["0", "2", "3", "4"]


def test_poison_stays_and_what_is_behind_it_is_moved(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(fill(vhost.url, "classic", ()))
    huge = dead("huge", 9, put={"filler": fields.longstr("x" * 130_820)})
    asyncio.run(publish(vhost.url, [dead("a", 9), huge, dead("b", 9)]))
    ran = redrive("sweep", DLQ, "--output", "json")
    assert ran.code == 1
    assert ran.document["items"][0]["failed"] == 1
    assert asyncio.run(in_queue(vhost.url, DLQ)) == ["huge"]
    assert asyncio.run(in_queue(vhost.url, FINAL)) == ["a", "b"]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_two_sweeps_at_once_move_everything_once(
    vhost: Vhost, tmp_path: Path, kind: Kind
) -> None:
    counts = [5 if number % 2 else 1 for number in range(600)]
    await fill(vhost.url, kind, counts)
    arguments = ("-m", "redrive", "sweep", DLQ, "--broker-url", vhost.url, SPENDS)
    env = os.environ | {"REDRIVE_BROKER__MANAGEMENT_URL": vhost.management_url}
    both = [
        await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=tmp_path, env=env, stdout=-1, stderr=-1
        )
        for _ in range(2)
    ]
    for each in both:
        out, err = await each.communicate()
        assert each.returncode == 0, (out, err)
    left = [str(number) for number, count in enumerate(counts) if count == 1]
    assert sorted(await in_queue(vhost.url, DLQ), key=int) == left
    over = [str(number) for number, count in enumerate(counts) if count == 5]
    assert sorted(await in_queue(vhost.url, FINAL), key=int) == over


@contextmanager
def somebody(vhost: Vhost) -> Iterator[BlockingChannel]:
    """A channel of somebody else's connection, which stays open meanwhile."""
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
        yield connection.channel()


def test_another_consumer_is_noticed_and_named(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(fill(vhost.url, "classic", (1,) * 30))
    with somebody(vhost) as channel:
        channel.basic_qos(prefetch_count=10)
        channel.basic_consume(DLQ, lambda *_: None, consumer_tag="their-worker")

        def named(queue: str) -> bool:  # the broker's statistics lag behind
            ran = redrive("sweep", queue)
            assert ran.code == 0, ran.err
            assert "others consume it too" in ran.err
            assert "and did not" not in ran.err
            return "their-worker of guest" in ran.err

        eventually(lambda: named(DLQ))
        assert named(DLQ[:-1] + "*")


def test_a_count_that_sweeps_raise_moves_nothing_unless_told(
    vhost: Vhost, redrive: Redrive, kind: Kind
) -> None:
    asyncio.run(fill(vhost.url, kind))
    raises = kind == "quorum" and version(vhost) < (4, 3)
    words = ("sweep", DLQ, "--count-by", "deliveries", "--max-retries", "1", "--output", "json")
    for _ in range(4):
        ran = redrive(*words)
        assert ran.code == (1 if raises else 0), ran.err
        assert ran.document["items"][0]["moved"] == 0
        assert ("they were swept" in ran.err) == raises
    if raises:
        swept = [redrive(*words, SPENDS) for _ in range(3)]
        assert [ran.document["items"][0]["moved"] for ran in swept] == [0, 0, 5]
        assert all("counts sweeps and looks too" in ran.err for ran in swept)
        assert asyncio.run(in_queue(vhost.url, FINAL)) == list("01234")
    else:
        assert asyncio.run(in_queue(vhost.url, DLQ)) == list("01234")


# Bad input: one line, nothing touched


@pytest.fixture
def swept(vhost: Vhost) -> Iterator[None]:
    """A queue that must be as it was afterwards, and nothing beside it."""
    asyncio.run(fill(vhost.url, "classic"))
    yield
    assert asyncio.run(in_queue(vhost.url, DLQ)) == list("01234")
    there = vhost.node.api("GET", f"queues/{quote(vhost.name, safe='')}")
    assert [queue["name"] for queue in there] == [DLQ]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nothing.*"], 3, "no queue matches 'nothing.*'"),
        (["nothing"], 3, "no queue is called 'nothing'"),
        ([DLQ, "--target", "amq.dead"], 2, "are the broker's own"),
        ([DLQ, "--target", 256 * "x"], 2, "at most 255 bytes"),
        ([DLQ, "--target", DLQ], 2, "is the queue itself"),
        (["dlq.*", "--target", "dlq.final"], 2, "is one of 'dlq.*'"),
        (["dlq.*", "--target", "dlq.dead.*"], 2, "is one of 'dlq.*'"),
        ([DLQ, "--target", "dead.*"], 2, "does not fit"),
        ([DLQ, "--max-retries", "-1"], 2, "--max-retries"),
        ([DLQ, "--watch", "soon"], 2, "--watch"),
        ([DLQ, "--max-retries-of", "x"], 2, "QUEUE=N"),
        ([], 2, "name the queues"),
    ],
)
@pytest.mark.usefixtures("swept")
def test_wrong_use_is_said_in_one_line_and_touches_nothing(
    redrive: Redrive, arguments: list[str], code: int, says: str
) -> None:
    ran = redrive("sweep", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_a_name_that_no_queue_has_fails_the_sweep_of_the_others_and_a_pattern_does_not(
    vhost: Vhost, redrive: Redrive
) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    by_name, by_pattern = redrive("sweep", DLQ, "zzz"), redrive("sweep", DLQ, "zzz*")
    assert "no queue is called 'zzz'" in by_name.err
    assert (by_name.code, by_pattern.code) == (1, 0)
    assert asyncio.run(in_queue(vhost.url, FINAL)) == ["1", "2", "3"]


@pytest.mark.usefixtures("swept")
def test_a_wrong_password_and_a_management_api_that_is_away_are_said_in_one_line(
    vhost: Vhost, redrive: Redrive
) -> None:
    wrong = redrive.settings.replace("guest:guest", "guest:wrong")
    away = redrive.settings.replace(vhost.management_url, "http://127.0.0.1:1")
    none = "\n".join(redrive.settings.splitlines()[:2])
    for settings, says in (
        (wrong, "ACCESS_REFUSED"),
        (away, "does not answer"),
        (none, "needs the management API"),
    ):
        ran = redrive("sweep", "dlq.*", settings=settings)
        assert (ran.code, ran.err.count("\n")) == (1, 1), ran.err
        assert says in ran.err


def test_a_watching_sweep_takes_what_comes_later_and_says_an_outage_of_the_store_once(
    vhost: Vhost, redrive: Redrive, tmp_path: Path
) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    file = tmp_path / "watching.toml"
    file.write_text(f'{redrive.settings}[store]\nurl = "postgresql://127.0.0.1:1/away"\n')
    command = [sys.executable, "-m", "redrive", "sweep", DLQ, "--max-retries", "3"]
    with subprocess.Popen(
        [*command, "--watch", "1s", "--output", "json", "--config", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        moved = [moved_in_a_pass(watching.stdout.readline())]
        asyncio.run(publish(vhost.url, [dead("late", 9)]))
        while moved[-1] != 1 and watching.poll() is None:
            moved.append(moved_in_a_pass(watching.stdout.readline()))
        watching.send_signal(signal.SIGTERM)
        _, err = watching.communicate(timeout=30)
    assert (moved[0], moved[-1], watching.returncode) == (3, 1, 0)
    assert err.count("sweep.not_counted") == 1
    assert asyncio.run(in_queue(vhost.url, FINAL)) == ["1", "2", "3", "late"]


def test_a_watching_sweep_does_not_miss_a_store_that_nobody_named(
    vhost: Vhost, redrive: Redrive, tmp_path: Path
) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    file = tmp_path / "watching.toml"
    file.write_text(redrive.settings)
    command = [sys.executable, "-m", "redrive", "sweep", DLQ, "--watch", "1s", "--output", "json"]
    env = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        [*command, "--config", str(file)], env=env, stdout=-1, stderr=-1, text=True
    ) as watching:
        assert watching.stdout is not None
        for _ in range(2):
            assert watching.stdout.readline()
        watching.send_signal(signal.SIGTERM)
        _, err = watching.communicate(timeout=30)
    assert "sweep.done" in err
    assert "sweep.not_counted" not in err


def test_a_queue_is_named_once_where_the_error_names_it(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(declare(vhost.url, "log", "stream"))
    ran = redrive("sweep", "log")
    assert ran.err.startswith("redrive: log is a stream")


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_others_took_before_it_was_looked_at_is_told(
    vhost: Vhost, redrive: Redrive, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    asyncio.run(fill(vhost.url, kind, (1,) * 30))
    monkeypatch.setenv("REDRIVE_BROKER__PREFETCH", "4")
    decide = Transfer.decide

    def while_others_take(plan: Transfer, delivery: Delivery, user: str) -> Publish | Hold:
        if not plan.chosen:
            plan.chosen += 1
            with somebody(vhost) as channel:
                for _ in range(10):
                    method, _, _ = channel.basic_get(DLQ)
                    channel.basic_ack(method.delivery_tag)
        return decide(plan, delivery, user)

    monkeypatch.setattr(Transfer, "decide", while_others_take)
    ran = redrive("sweep", DLQ, "--output", "json", *told(vhost, kind))
    assert ran.document["items"][0]["examined"] == 20
    assert "10 of the 30 messages that were there were not looked at: others took" in ran.err


def moved_in_a_pass(line: str) -> int:
    (item,) = json.loads(line)["items"]
    return int(item["moved"])


# Somebody else's broker


@pytest.fixture
def little(vhost: Vhost) -> Iterator[str]:
    """The URL of a user who may read the dead letter queue, and nothing else."""
    name = f"little-{secrets.token_hex(4)}"
    api = vhost.node.api
    api("PUT", f"users/{name}", {"password": name, "tags": ""})
    allowed = {"configure": "^$", "write": "^$", "read": "^dlq"}
    api("PUT", f"permissions/{quote(vhost.name, safe='')}/{name}", allowed)
    yield vhost.url.replace("guest:guest", f"{name}:{name}")
    api("DELETE", f"users/{name}")


def test_a_user_who_may_not_write_moves_nothing_and_is_told_what_is_missing(
    vhost: Vhost, little: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    redrive = Redrive(tmp_path, capsys, f'[broker]\nurl = "{little}"\n')
    cannot_make = redrive("sweep", DLQ)
    assert cannot_make.code == 1
    assert "ACCESS_REFUSED" in cannot_make.err
    asyncio.run(declare(vhost.url, FINAL, "classic"))
    cannot_write = redrive("sweep", DLQ, "--output", "json")
    assert cannot_write.code == 1
    assert "is refused to us" in cannot_write.err
    assert cannot_write.document["items"][0]["failed"] == 3
    assert asyncio.run(in_queue(vhost.url, DLQ)) == list("01234")
    assert asyncio.run(ready(vhost.url, FINAL)) == 0


def test_a_foreign_queue_with_its_own_limits_is_swept_without_a_management_api(
    vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own: dict[str, str | int] = {
        "x_max_length": 100,
        "x_message_ttl": 3_600_000,
        "x_dead_letter_exchange": "gone",
    }
    asyncio.run(declare(vhost.url, DLQ, "classic", **own))
    asyncio.run(declare(vhost.url, FINAL, "classic"))
    asyncio.run(publish(vhost.url, [dead(number, count) for number, count in enumerate(COUNTS)]))
    redrive = Redrive(tmp_path, capsys, f'[broker]\nurl = "{vhost.url}"\n')
    ran = redrive("sweep", DLQ)
    assert ran.code == 0, ran.err
    assert asyncio.run(in_queue(vhost.url, DLQ)) == ["0", "4"]
    assert asyncio.run(in_queue(vhost.url, FINAL)) == ["1", "2", "3"]


def test_a_pattern_means_no_queue_in_which_messages_of_handlers_wait(
    vhost: Vhost, redrive: Redrive
) -> None:
    waiting = ("redrive-again-orders", "redrive-alone-orders", "redrive-after-125ms")
    for queue in (DLQ, *waiting):
        asyncio.run(fill(vhost.url, "classic", queue=queue))
    ran = redrive("sweep", "*orders", "redrive-*", "--max-retries", "3", "--output", "json")
    assert ran.code == 0, ran.err
    assert [item["queue"] for item in ran.document["items"]] == [DLQ]
    for queue in waiting:
        assert len(asyncio.run(in_queue(vhost.url, queue))) == len(COUNTS)


def test_an_exclusive_queue_is_left_out_of_a_pattern_and_named_as_such(
    vhost: Vhost, redrive: Redrive
) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    with somebody(vhost) as channel:
        channel.queue_declare("dlq.mine", exclusive=True)
        by_pattern = redrive("sweep", "dlq.*")
        by_name = redrive("sweep", "dlq.mine")
    assert by_pattern.code == 0, by_pattern.err
    assert "left out: dlq.mine" in by_pattern.err
    assert by_name.code == 1
    assert "RESOURCE_LOCKED" in by_name.err
    assert "; it belongs to another connection, and only that one can read it" in by_name.err
    assert by_name.err.count("\n") == 1


def test_a_named_queue_in_trouble_does_not_keep_the_others_from_being_swept(
    vhost: Vhost, redrive: Redrive
) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    with somebody(vhost) as channel:
        channel.queue_declare("mine", exclusive=True)
        ran = redrive("sweep", "mine", DLQ, "--max-retries", "3")
    assert ran.code == 1
    assert "mine: the broker refused: 405 RESOURCE_LOCKED" in ran.err
    assert asyncio.run(in_queue(vhost.url, FINAL)) == ["1", "2", "3"]


def test_a_target_that_is_exclusive_or_too_long_a_name_is_what_the_error_names(
    vhost: Vhost, redrive: Redrive
) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    with somebody(vhost) as channel:
        channel.queue_declare("mine", exclusive=True)
        exclusive = redrive("sweep", DLQ, "--target", "mine")
    assert exclusive.code == 1
    assert "the target 'mine' is exclusive to another connection" in exclusive.err
    too_long = redrive("sweep", f"{DLQ[:-1]}*", "--target", f"{250 * 'x'}-long-*")
    assert too_long.code == 1
    assert f"{DLQ}: a name of 257 bytes does not fit" in too_long.err
    assert len(asyncio.run(in_queue(vhost.url, DLQ))) == 5


def test_what_was_swept_is_counted_where_there_is_a_store_and_a_dry_run_is_not(
    vhost: Vhost, redrive: Redrive, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/counted.db"

    async def counted() -> dict[str, dict[str, int]]:
        async with letter_store(url) as store:
            return await store.counts.sums()

    assert asyncio.run(counted()) == {}
    asyncio.run(fill(vhost.url, "classic"))
    words = ("sweep", DLQ, "--max-retries", "3", "--store-url", url, *told(vhost, "classic"))
    assert redrive(*words, "--dry-run").code == 0
    assert asyncio.run(counted()) == {}
    assert redrive(*words).code == 0
    assert asyncio.run(counted()) == {
        "redrive_sweeps_total": {"": 1},
        "redrive_sweep_messages_total": {"moved": 3, "left": 2},
    }
