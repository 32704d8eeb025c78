"""How long it is waited for what the management API tells late, as no broker shows it on demand."""

from __future__ import annotations

from typing import Any, cast

import pytest

from redrive.broker import not_taken as module
from redrive.broker.management import Management
from redrive.broker.not_taken import not_taken

TIER = "queue.delay.1"
AT_LEAST_ONCE = {
    "x-dead-letter-exchange": "retry-exchange-1",
    "x-dead-letter-strategy": "at-least-once",
}
WITHOUT_A_WAY = "what it dead-letters has no way on, and the management API does not tell in time"


class Late:
    """Shows one measure after the other, (messages_dlx, reductions), and stays at the last."""

    def __init__(self, *measures: tuple[int, int] | None, has_way: bool = False) -> None:
        self.measures = list(measures)
        self.has_way = has_way
        self.questions = 0

    async def queues(self, *_: str) -> list[dict[str, Any]]:
        self.questions += 1
        measure = self.measures.pop(0) if len(self.measures) > 1 else self.measures[0]
        row: dict[str, Any] = {"name": TIER, "arguments": AT_LEAST_ONCE}
        if measure is not None:
            row["messages_dlx"], row["reductions"] = measure
        return [row, {"name": "another", "arguments": []}]

    async def bindings_from(self, _exchange: str) -> list[dict[str, Any]]:
        return [{"destination": "retry-queue-1"}] if self.has_way else []


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEP", 0.001)
    monkeypatch.setattr(module, "_WITHIN", 0.2)


async def asked(late: Late, *, patient: bool = True) -> str:
    found = await not_taken([TIER], cast("Management", late), patient=patient)
    return found.get(TIER, "")


async def test_the_first_new_measure_may_be_older_than_the_question_and_is_not_believed() -> None:
    late = Late((0, 100), (0, 100), (0, 200), (0, 200), (1, 300))
    assert await asked(late) == "1 of its messages are dead-lettered, and not taken yet"


async def test_the_figures_of_a_measure_that_come_one_by_one_are_read_together() -> None:
    late = Late((0, 100), (0, 200), (0, 300), (1, 300))
    assert "1 of its messages" in await asked(late)


async def test_a_queue_that_two_new_measures_find_empty_holds_nothing() -> None:
    assert await asked(Late((0, 100), (0, 200), (0, 300))) == ""


@pytest.mark.parametrize("measure", [None, (0, 100)])
async def test_where_no_new_measure_comes_in_time_a_queue_without_a_way_may_hold_some(
    measure: tuple[int, int] | None,
) -> None:
    assert WITHOUT_A_WAY in await asked(Late(measure))


async def test_a_queue_whose_messages_have_a_way_on_is_not_waited_for() -> None:
    late = Late((0, 100), (0, 200), has_way=True)
    assert await asked(late) == ""
    assert late.questions == 1


async def test_a_queue_that_is_not_shown_yet_is_waited_for_also_where_there_is_a_way() -> None:
    late = Late(None, None, (2, 100), has_way=True)
    assert "2 of its messages" in await asked(late)


async def test_a_queue_that_is_never_shown_is_taken_for_empty_where_there_is_a_way() -> None:
    assert await asked(Late(None, has_way=True)) == ""


async def test_who_has_no_patience_is_told_what_is_shown_now() -> None:
    late = Late((0, 100), (1, 200))
    assert await asked(late, patient=False) == ""
    assert late.questions == 1
