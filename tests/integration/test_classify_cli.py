"""`redrive classify` on a real store: which strategy, by which rule, why and when."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from redrive.domain.letter import Arrival
from redrive.domain.lifecycle import State
from redrive.store.schema import redrive_letter
from tests.services.commands import Redrive
from tests.services.letters import arrival, failed, letter_store

Add = Callable[..., list[str]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/redrive.db"


@pytest.fixture
def redrive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str
) -> Redrive:
    for name in os.environ:
        if name.startswith("REDRIVE_"):
            monkeypatch.delenv(name)
    return Redrive(tmp_path, capsys, f'[store]\nurl = "{url}"\n')


@pytest.fixture
def add(url: str) -> Add:
    """Puts letters into the store, changed as a test says; gives their ids."""

    def add(*arrivals: Arrival, **changes: object) -> list[str]:
        async def work() -> list[str]:
            async with letter_store(url) as store:
                ids = [each.letter.id for each in await store.letters.add(arrivals)]
                if changes:
                    async with store.database.writing() as connection:
                        change = update(redrive_letter).where(redrive_letter.c.id.in_(ids))
                        await connection.execute(change.values(**changes))
                return ids

        return asyncio.run(work())

    return add


def test_the_table_has_a_line_for_each_letter_in_the_order_asked_for(
    redrive: Redrive, add: Add
) -> None:
    timeout, rejected = add(failed("Order 1 took too long"), arrival())
    ran = redrive("classify", rejected, timeout)
    assert (ran.code, ran.err) == (0, "")
    heading, first, second = ran.out.splitlines()
    assert heading.split("  ")[0] == "LETTER"
    assert first.startswith(f"{rejected}  manual     [worker] default_strategy")
    assert first.rstrip().endswith("not by itself: a person")
    assert second.startswith(f"{timeout}  immediate  built-in: timeouts")
    assert "error type 'TIMEOUT_ERROR' says 'timeout'" in second


def test_json_tells_strategy_rule_why_and_when(redrive: Redrive, add: Add) -> None:
    before = datetime.now(UTC)
    (letter,) = add(failed("Order 1 took too long"))
    (item,) = redrive("classify", letter, "--output", "json").document["items"]
    when = datetime.fromisoformat(item.pop("nextRetryAt"))
    assert timedelta(seconds=59) <= when - before <= timedelta(minutes=2)
    assert item == {
        "id": letter,
        "status": "dlq_pending",
        "strategy": "immediate",
        "rule": "built-in: timeouts",
        "why": "error type 'TIMEOUT_ERROR' says 'timeout'",
        "revivals": 0,
        "waitsFor": None,
    }


def test_a_users_rule_is_named_by_its_place(redrive: Redrive, add: Add) -> None:
    (letter,) = add(arrival())
    redrive.settings += (
        '[[classify]]\nqueue = "payments"\nstrategy = "manual"\n'
        '[[classify]]\nqueue = "order*"\nerror_type = "REJECTED"\nstrategy = "conditional"\n'
    )
    (item,) = redrive("classify", letter, "--output", "json").document["items"]
    assert (item["strategy"], item["rule"]) == ("conditional", "[[classify]] 2")
    assert (
        item["why"]
        == "error type 'REJECTED' matches 'REJECTED' and queue 'orders' matches 'order*'"
    )


def test_the_default_strategy_is_a_setting(redrive: Redrive, add: Add) -> None:
    (letter,) = add(arrival())
    redrive.settings += (
        '[worker]\ndefault_strategy = "scheduled"\nschedule = [7]\nzone = "Asia/Tokyo"\n'
    )
    (item,) = redrive("classify", letter, "--output", "json").document["items"]
    assert item["strategy"] == "scheduled"
    assert item["nextRetryAt"].endswith("T22:00:00.000Z")


def test_a_letter_that_was_revived_too_often_is_not_sent_by_itself(
    redrive: Redrive, add: Add
) -> None:
    (letter,) = add(failed("Order 1 took too long"), dlq_retry_count=5)
    (item,) = redrive("classify", letter, "--output", "json").document["items"]
    assert (item["nextRetryAt"], item["waitsFor"]) == (None, "5 revivals failed")


def test_a_letter_that_is_not_pending_is_not_sent_by_itself(redrive: Redrive, add: Add) -> None:
    (letter,) = add(failed("Order 1 took too long"), status=State.RESOLVED.value)
    (item,) = redrive("classify", letter, "--output", "json").document["items"]
    assert (item["nextRetryAt"], item["waitsFor"]) == (None, "it is resolved")


def test_the_beginning_of_an_id_will_do(redrive: Redrive, add: Add) -> None:
    (letter,) = add(failed("Order 1 took too long"))
    assert redrive("classify", letter[:13]).code == 0


def test_a_letter_that_is_named_twice_is_told_once(redrive: Redrive, add: Add) -> None:
    (letter,) = add(failed("Order 1 took too long"))
    ran = redrive("classify", letter, letter[:23], "--output", "json")
    assert len(ran.document["items"]) == 1


def test_where_no_letter_matches_the_exit_code_is_3(redrive: Redrive, add: Add) -> None:
    add(arrival())
    ran = redrive("classify", "ffffffff")
    assert (ran.code, ran.out) == (3, "")
    assert "no letter has an id that begins with 'ffffffff'" in ran.err


def test_without_a_letter_it_is_wrong_use(redrive: Redrive) -> None:
    assert redrive("classify").code == 2


def test_words_of_a_hidden_reason_are_not_shown(redrive: Redrive, add: Add) -> None:
    (letter,) = add(failed("connection refused by hunter2", error_type="Error"))
    redrive.settings += '[redaction]\nheaders = ["redrive-error-reason"]\n'
    ran = redrive("classify", letter)
    assert "connection refused" not in ran.out
    assert "the reason, which [redaction] hides, says so" in ran.out
