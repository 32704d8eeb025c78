"""Messages that one more look would remove: none is lost by sweep, move or peek that were told to.

Before RabbitMQ 4.3 a quorum queue counts every look towards its delivery limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.work import move, one_by_one, window
from tests.services.commands import Ran, Redrive
from tests.services.eventually import eventually
from tests.services.moving import declare, publish, ready
from tests.services.plugin import Vhost
from tests.services.sweeping import (
    DLQ,
    FINAL,
    SPENDS,
    command_line,
    dead,
    few_permissions,
    in_queue,
    version_of,
)

SPARED = "as a copy"
LOOKS = {
    "peek": ("peek", DLQ),
    "sweep": ("sweep", DLQ, "--max-retries", "3"),
    "dry sweep": ("sweep", DLQ, "--dry-run", "--max-retries", "3"),
    "move": ("move", DLQ, FINAL, "--search", "nowhere"),
}


@pytest.fixture
def redrive(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    return command_line(vhost, tmp_path, capsys)


@pytest.fixture
def counts(vhost: Vhost) -> bool:
    """Whether the broker counts looks. The queue lives through one of them."""
    asyncio.run(declare(vhost.url, DLQ, "quorum", x_delivery_limit=1))
    asyncio.run(declare(vhost.url, FINAL, "quorum"))
    return asyncio.run(version_of(vhost.url)) < (4, 3)


def fill_with(vhost: Vhost, number: int, tries: int = 1) -> None:
    asyncio.run(publish(vhost.url, [dead(each, tries) for each in range(number)]))


def all_there(vhost: Vhost, queue: str = DLQ) -> list[str]:
    return sorted(asyncio.run(in_queue(vhost.url, queue)), key=int)


def numbers(*of: int) -> list[str]:
    return [str(number) for number in range(*of)]


@pytest.mark.parametrize("look", LOOKS)
def test_the_last_look_that_a_message_would_live_through_does_not_remove_it(
    vhost: Vhost, redrive: Redrive, counts: bool, look: str
) -> None:
    fill_with(vhost, 5)
    ran = [redrive(*LOOKS[look], SPENDS) for _ in range(4)]
    done = 3 if look == "move" else 0  # it matches nothing
    assert [each.code for each in ran] == [done] * 4, ran
    assert [SPARED in each.err for each in ran] == [False, counts, False, counts], ran
    assert all_there(vhost) == numbers(5)
    assert asyncio.run(ready(vhost.url, FINAL)) == 0


def test_what_a_limit_leaves_unread_is_not_lost_either(
    vhost: Vhost, redrive: Redrive, counts: bool
) -> None:
    fill_with(vhost, 30, tries=5)
    assert redrive("peek", DLQ, "--limit", "30", SPENDS).code == 0
    ran = redrive("sweep", DLQ, "--max-retries", "3", "--limit", "2", SPENDS, "--output", "json")
    assert ran.code == 0, ran.err
    (item,) = ran.document["items"]
    assert (item["moved"], item["failed"]) == (2, 0)
    assert all_there(vhost, FINAL) == numbers(2)
    assert all_there(vhost) == numbers(2, 30)


def test_what_its_target_refuses_at_its_limit_stays_and_the_sweep_fails(
    vhost: Vhost, redrive: Redrive, counts: bool
) -> None:
    full: dict[str, str | int] = {"x_max_length": 1, "x_overflow": "reject-publish"}
    asyncio.run(declare(vhost.url, "full", "classic", **full))
    asyncio.run(publish(vhost.url, [dead("first", 1, "full")]))
    fill_with(vhost, 5, tries=5)
    sweep = ("sweep", DLQ, "--target", "full", "--max-retries", "3", "--output", "json", SPENDS)
    for _ in range(3):
        ran = redrive(*sweep)
        assert ran.code == 1
        (item,) = ran.document["items"]
        assert (item["moved"], item["failed"], item["error"]) == (0, 5, None)
    assert all_there(vhost) == numbers(5)


def test_the_order_of_many_is_kept(vhost: Vhost, redrive: Redrive) -> None:
    asyncio.run(declare(vhost.url, DLQ, "quorum", x_delivery_limit=5))
    fill_with(vhost, 300)
    for _ in range(3):
        ran = redrive("peek", DLQ, "--limit", "200", SPENDS)
        assert (ran.code, "keep the order" in ran.err) == (0, False), ran.err
    assert asyncio.run(in_queue(vhost.url, DLQ)) == numbers(300)


def test_a_slow_move_of_such_a_queue_moves_everything_however_long_it_takes(
    vhost: Vhost, redrive: Redrive, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for taking in (one_by_one, window):
        monkeypatch.setattr(taking, "LONGEST", 8.0)  # of one delivery, not of the move
    monkeypatch.setattr(move, "_MOVED_WITHIN", 0.2)
    fill_with(vhost, 100)
    ran = redrive("move", DLQ, FINAL, "--rate", "10/s", SPENDS)
    assert ran.code == 0, ran.err
    assert all_there(vhost, FINAL) == numbers(100)


def test_what_such_a_move_held_for_too_long_goes_back_and_is_a_failure(
    vhost: Vhost, redrive: Redrive, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for taking in (one_by_one, window):
        monkeypatch.setattr(taking, "LONGEST", 3.0)
    fill_with(vhost, 40)
    ran = redrive("move", DLQ, FINAL, "--rate", "10/s", "--search", "nowhere", SPENDS)
    # Where looks cost nothing, what is only looked at is not paced, and so not held for long.
    assert ran.code == (1 if counts else 3)
    assert ("were not looked at: a broker lets nobody hold" in ran.err) == counts
    assert all_there(vhost) == numbers(40)


@pytest.fixture
def reader(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Redrive]:
    """The command line of a user who may read and see, and write nothing."""
    with few_permissions(vhost, configure="^$", write="^$", read=".*") as url:
        yield command_line(vhost, tmp_path, capsys, url=url)


def test_who_may_not_write_is_refused_before_anything_is_taken(
    vhost: Vhost, reader: Redrive, counts: bool
) -> None:
    fill_with(vhost, 5)
    for _ in range(3):
        ran = reader("peek", DLQ, SPENDS)
        assert ran.code == (1 if counts else 0), ran.err
        assert ("we may not publish one" in ran.err) == counts
    assert all_there(vhost) == numbers(5)


def test_a_queue_that_takes_no_copy_is_said_to_lose_and_the_pass_ends(
    vhost: Vhost, redrive: Redrive, counts: bool
) -> None:
    fill_with(vhost, 20)
    assert redrive("peek", DLQ, "--limit", "20", SPENDS).code == 0
    definition = '{"max-length":1,"overflow":"reject-publish"}'
    vhost.node.ctl("set_policy", "-p", vhost.name, "full", f"^{DLQ}$", definition)
    fills: list[Ran] = []

    def refuses() -> bool:  # a policy takes a moment
        fills.append(redrive("peek", DLQ, "--limit", "1", SPENDS))
        return fills[-1].code == 1 or not counts

    eventually(refuses)
    if counts:
        assert "could not be kept" in fills[-1].err
        assert "Message 1 of" in fills[-1].out
        assert len(all_there(vhost)) >= 18
