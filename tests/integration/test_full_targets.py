"""Queues that push out their oldest messages to make room: nothing is brought there at their cost.

A length limit with drop-head, the default, confirms every publish and drops what was there.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from redrive.amqp import Publish, fields
from redrive.broker.management import Management
from redrive.errors import ManagementError
from redrive.work import queue_site
from tests.services.commands import Redrive
from tests.services.eventually import DEADLINE, eventually
from tests.services.letters import death
from tests.services.moving import Kind, declare, publish, ready
from tests.services.plugin import Vhost
from tests.services.sweeping import (
    DLQ,
    FINAL,
    SPENDS,
    command_line,
    counts_looks,
    dead,
    fill,
    in_queue,
    version_of,
    without_management,
)

DROPS = "--drop-oldest"
KINDS: tuple[Kind, ...] = ("classic", "quorum")
LIMITED: dict[str, dict[str, str | int]] = {
    "messages": {"x_max_length": 3},
    "said": {"x_max_length": 3, "x_overflow": "drop-head"},
    "bytes": {"x_max_length_bytes": 35_000},
}


@pytest.fixture(autouse=True)
def _statistics_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else tells how many bytes are in a queue, and a busy broker is slow to."""
    monkeypatch.setattr(queue_site, "_STATISTICS_WITHIN", DEADLINE)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def redrive(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    return command_line(vhost, tmp_path, capsys)


def told(vhost: Vhost, kind: Kind) -> tuple[str, ...]:
    """The option that is needed where a look costs."""
    return (SPENDS,) if counts_looks(asyncio.run(version_of(vhost.url)), kind) else ()


def policy(vhost: Vhost, definition: dict[str, Any], *, of: str = "policies") -> None:
    body = {"pattern": f"^({FINAL}|orders)$", "definition": definition, "apply-to": "queues"}
    vhost.node.api("PUT", f"{of}/{quote(vhost.name, safe='')}/limited", body)


def in_force(vhost: Vhost) -> dict[str, Any]:
    """The policy that the statistics show of the target: where they are late, the worse counts."""
    found = vhost.node.api("GET", f"queues/{quote(vhost.name, safe='')}/{FINAL}")
    return found.get("effective_policy_definition") or {}


def there(vhost: Vhost, queue: str) -> list[str]:
    return asyncio.run(in_queue(vhost.url, queue))


def died_in(queue: str, body: str = "body of 1") -> Publish:
    """A message of ten bytes at most that died there, and is named so."""
    message = dead(queue, 1, put={"x-death": fields.array([death(queue)])})
    message.body = body.encode()
    return message


@pytest.mark.parametrize("limit", LIMITED)
@pytest.mark.parametrize("command", ["sweep", "move"])
def test_what_would_push_out_others_stays_in_order_and_is_a_failure(
    vhost: Vhost, redrive: Redrive, kind: Kind, limit: str, command: str
) -> None:
    large = [dead(number, 5) for number in range(5)]
    large.append(dead("first", 5, FINAL))
    for each in large:
        each.body = bytes(10_000)
    asyncio.run(declare(vhost.url, DLQ, kind))
    asyncio.run(declare(vhost.url, FINAL, kind, **LIMITED[limit]))
    asyncio.run(publish(vhost.url, large))
    words = {"sweep": ("sweep", DLQ), "move": ("move", DLQ, FINAL)}[command]
    for dry in (("--dry-run",), ()):
        ran = redrive(*words, *dry, "--output", "json", *told(vhost, kind))
        item = ran.document if command == "move" else ran.document["items"][0]
        assert (ran.code, item["examined"], item["left"], item["failed"]) == (1, 5, 0, 3), ran.err
        assert item["wouldMove" if dry else "moved"] == 2
        assert "would drop its oldest ones for the rest" in ran.err
        assert DROPS in ran.err
    assert there(vhost, DLQ) == ["2", "3", "4"]
    assert there(vhost, FINAL) == ["first", "0", "1"]


@pytest.mark.parametrize("of", ["policies", "operator-policies"])
def test_a_limit_that_was_just_set_by_a_policy_is_known(
    vhost: Vhost, redrive: Redrive, kind: Kind, of: str
) -> None:
    asyncio.run(fill(vhost.url, kind, (5,) * 5))
    asyncio.run(declare(vhost.url, FINAL, kind))
    policy(vhost, {"max-length": 2}, of=of)
    ran = redrive("sweep", DLQ, "--output", "json", *told(vhost, kind))
    (item,) = ran.document["items"]
    assert (item["moved"], item["failed"]) == (2, 3), ran.err
    assert (there(vhost, FINAL), there(vhost, DLQ)) == (["0", "1"], ["2", "3", "4"])


@pytest.mark.parametrize("dry", [True, False])
def test_a_policy_also_limits_a_target_that_is_still_to_be_made(
    vhost: Vhost, redrive: Redrive, dry: bool
) -> None:
    asyncio.run(fill(vhost.url, "classic", (5,) * 3))
    policy(vhost, {"max-length": 2})
    ran = redrive("sweep", DLQ, "--output", "json", *(("--dry-run",) if dry else ()))
    (item,) = ran.document["items"]
    assert (item["wouldMove" if dry else "moved"], item["failed"]) == (2, 1), ran.err


def test_what_is_pushed_out_to_a_dead_letter_exchange_is_said_to_be(
    vhost: Vhost, redrive: Redrive
) -> None:
    asyncio.run(fill(vhost.url, "classic", (5,) * 3))
    asyncio.run(
        declare(vhost.url, FINAL, "classic", x_max_length=1, x_dead_letter_exchange="elsewhere")
    )
    ran = redrive("move", DLQ, FINAL)
    assert ran.code == 1
    assert "would dead-letter its oldest ones to the exchange 'elsewhere'" in ran.err
    assert there(vhost, DLQ) == ["1", "2"]


def test_told_to_it_moves_all_and_the_oldest_go(vhost: Vhost, redrive: Redrive, kind: Kind) -> None:
    asyncio.run(fill(vhost.url, kind, (5,) * 3))
    asyncio.run(declare(vhost.url, FINAL, kind, x_max_length=2))
    ran = redrive("sweep", DLQ, DROPS, *told(vhost, kind))
    assert ran.code == 0, ran.err
    assert there(vhost, FINAL) == ["1", "2"]
    asyncio.run(fill(vhost.url, kind, (5,) * 3))
    assert redrive("move", DLQ, FINAL, DROPS, *told(vhost, kind)).code == 0
    assert there(vhost, FINAL) == ["1", "2"]


def test_each_origin_gets_no_more_than_it_has_room_for(
    vhost: Vhost, redrive: Redrive, kind: Kind
) -> None:
    asyncio.run(fill(vhost.url, kind, (1,) * 4))
    asyncio.run(declare(vhost.url, "orders", kind, x_max_length=2))
    for dry in (("--dry-run",), ()):
        ran = redrive("move", DLQ, "--to-origin", *dry, "--output", "json", *told(vhost, kind))
        document = ran.document
        assert (ran.code, document["failed"]) == (1, 2), ran.err
        assert document["wouldMove" if dry else "moved"] == 2
        assert "the queue 'orders' has room for 2 more messages" in ran.err
    assert (there(vhost, "orders"), there(vhost, DLQ)) == (["0", "1"], ["2", "3"])
    asyncio.run(fill(vhost.url, kind, (1,) * 3))
    assert redrive("move", DLQ, "--to-origin", DROPS, *told(vhost, kind)).code == 0
    assert there(vhost, "orders") == ["1", "2"]


def test_however_many_origins_have_a_limit_in_bytes_each_is_known(
    vhost: Vhost, redrive: Redrive
) -> None:
    origins = [f"orders.{number}" for number in range(10)]
    asyncio.run(declare(vhost.url, DLQ, "classic"))
    for origin in origins:
        asyncio.run(declare(vhost.url, origin, "classic", x_max_length_bytes=20))
        asyncio.run(publish(vhost.url, [dead("first", 5, origin)]))
    asyncio.run(publish(vhost.url, [died_in(origin) for origin in origins * 2]))
    for dry in (("--dry-run",), ()):
        ran = redrive("move", DLQ, "--to-origin", *dry, "--output", "json")
        document = ran.document
        assert (document["wouldMove" if dry else "moved"], document["failed"]) == (10, 10), ran.err
        assert "may be full" not in ran.err
    for origin in origins:
        assert there(vhost, origin) == ["first", origin]


def test_only_of_origins_that_turn_up_is_it_asked_what_is_in_them(
    vhost: Vhost, redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    find = Management.queue

    async def noted(management: Management, name: str) -> dict[str, Any] | None:
        asked.append(name)
        return await find(management, name)

    asyncio.run(declare(vhost.url, DLQ, "classic"))
    for origin in ("orders.0", "orders.1", "orders.2"):
        asyncio.run(declare(vhost.url, origin, "classic", x_max_length_bytes=20))
        asyncio.run(publish(vhost.url, [dead("first", 5, origin)]))
    monkeypatch.setattr(Management, "queue", noted)
    asyncio.run(publish(vhost.url, [died_in("orders.0", "meant"), died_in("orders.1", "meant")]))
    asyncio.run(publish(vhost.url, [died_in("orders.2")]))
    ran = redrive("move", DLQ, "--to-origin", "--limit", "1", "--search", "meant")
    assert ran.code == 0, ran.err
    assert there(vhost, "orders.0") == ["first", "orders.0"]
    assert set(asked) == {DLQ, "orders.0"}


def test_where_nobody_answers_what_is_in_an_origin_the_move_ends_and_all_stays(
    vhost: Vhost, redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = Management.queue

    async def silent(management: Management, name: str) -> dict[str, Any] | None:
        if name == "orders.0":
            raise ManagementError("the management API does not answer")
        return await find(management, name)

    asyncio.run(declare(vhost.url, DLQ, "classic"))
    asyncio.run(declare(vhost.url, "orders.0", "classic", x_max_length_bytes=20))
    asyncio.run(publish(vhost.url, [dead("first", 5, "orders.0")]))
    asyncio.run(publish(vhost.url, [died_in("orders.0"), dead("other", 1)]))
    monkeypatch.setattr(Management, "queue", silent)
    ran = redrive("move", DLQ, "--to-origin")
    assert ran.code == 1, ran.err
    assert "the management API does not answer" in ran.err
    assert there(vhost, DLQ) == ["orders.0", "other"]


@pytest.mark.parametrize(
    ("argument", "by_policy", "refusing"),
    [
        ("reject-publish", "drop-head", "classic"),
        ("drop-head", "reject-publish", "quorum"),
        ("reject-publish-dlx", "", "classic"),
    ],
)
def test_who_decides_what_overflows_is_the_argument_in_classic_and_the_policy_in_quorum_queues(
    vhost: Vhost, redrive: Redrive, kind: Kind, argument: str, by_policy: str, refusing: str
) -> None:
    asyncio.run(fill(vhost.url, kind, (5,) * 6))
    asyncio.run(declare(vhost.url, FINAL, kind, x_max_length=2, x_overflow=argument))
    if by_policy:
        policy(vhost, {"overflow": by_policy})
        eventually(lambda: in_force(vhost).get("overflow") == by_policy)
    ran = redrive("move", DLQ, FINAL, "--output", "json", *told(vhost, kind))
    assert ("would drop its oldest" in ran.err) == (kind != refusing), ran.err
    moved = ran.document["moved"]  # a quorum queue refuses too late what comes fast, and keeps it
    assert there(vhost, FINAL) == [str(number) for number in range(moved)]
    assert there(vhost, DLQ) == [str(number) for number in range(moved, 6)]


def test_a_dry_run_foresees_what_a_full_queue_would_refuse(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(fill(vhost.url, "classic", (5,) * 3))
    for queue in (FINAL, "orders"):
        full: dict[str, str | int] = {"x_max_length": 1, "x_overflow": "reject-publish"}
        asyncio.run(declare(vhost.url, queue, "classic", **full))
    for words in (("sweep", DLQ), ("move", DLQ, FINAL), ("move", DLQ, "--to-origin")):
        ran = redrive(*words, "--dry-run")
        assert ran.code == 1
        assert "2 would not be moved: the queue" in ran.err
        assert "has room for 1 more message, and refuses the rest" in ran.err
    assert there(vhost, DLQ) == ["0", "1", "2"]


def test_a_dry_run_says_that_a_quorum_queue_may_refuse_and_does_not_count_it_as_failed(
    vhost: Vhost, redrive: Redrive
) -> None:
    """It notices late that it is full: all that came fast was taken."""
    asyncio.run(fill(vhost.url, "classic", (5,) * 3))
    for queue in (FINAL, "orders"):
        full: dict[str, str | int] = {"x_max_length": 1, "x_overflow": "reject-publish"}
        asyncio.run(declare(vhost.url, queue, "quorum", **full))
    for words in (("sweep", DLQ), ("move", DLQ, FINAL), ("move", DLQ, "--to-origin")):
        ran = redrive(*words, "--dry-run", "--output", "json")
        assert ran.code == 0, ran.err
        assert "2 may not be moved: the queue" in ran.err
        assert "has room for 1 more message, and may refuse the rest" in ran.err
        item = ran.document.get("items", [ran.document])[0]
        assert (item["wouldMove"], item["failed"]) == (3, 0)
    assert there(vhost, DLQ) == ["0", "1", "2"]


def test_queues_that_share_a_target_share_its_room_also_in_a_dry_run(
    vhost: Vhost, redrive: Redrive
) -> None:
    for queue in ("dlq.a", "dlq.b"):
        asyncio.run(fill(vhost.url, "classic", (5, 5), queue))
    asyncio.run(declare(vhost.url, FINAL, "classic", x_max_length=3))
    for dry in (("--dry-run",), ()):
        ran = redrive("sweep", "dlq.*", *dry, "--output", "json")
        found = [(item["queue"], item["failed"]) for item in ran.document["items"]]
        assert sorted(found) == [("dlq.a", 0), ("dlq.b", 1)], ran.err
    assert asyncio.run(ready(vhost.url, FINAL)) == 3


def test_without_a_management_api_it_says_that_it_does_not_know(
    vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(vhost.url, "classic"))
    asyncio.run(declare(vhost.url, FINAL, "classic"))
    redrive = without_management(vhost, tmp_path, capsys)
    says = "drops its oldest messages to make room: whether the new place does so is not known"
    assert says in redrive("sweep", DLQ, "--max-retries", "3", "--dry-run").err
    assert says in redrive("sweep", DLQ, "--max-retries", "3").err
    assert says not in redrive("sweep", DLQ, "--max-retries", "3").err  # nothing was moved
    assert says in redrive("move", DLQ, FINAL).err
    assert asyncio.run(ready(vhost.url, FINAL)) == 5
