"""What a replay says while it waits, and before it begins."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime

import pytest

from redrive.cli.replay import question
from redrive.cli.replaying import Ended, Lines, breaker_hint
from redrive.domain.breaker import Breaker, Position, held_by
from redrive.domain.letter import Result
from redrive.domain.replay import IS_OUTSTANDING, Destination, Replay, ReplayState
from redrive.work.replay import Progress
from redrive.work.replay_report import Report

NOW = datetime(2026, 2, 11, 12, 0, tzinfo=UTC)
WAITS = held_by("orders")


class Hints:
    """What is known of a breaker, as the test says it."""

    def __init__(self, hint: str) -> None:
        self.hint = hint

    async def about(self, _: str) -> str:
        return self.hint


def looks(lines: Lines, number: int, done: int) -> None:
    """A job that waits looks again and again; between two looks it waits for nothing."""

    async def run() -> None:
        for _ in range(number):
            for waits_for in (WAITS, ""):
                lines.show(Progress(done=done, waits_for=waits_for))
                await asyncio.sleep(0.001)
        await lines.close()

    asyncio.run(run())


def test_a_job_that_waits_says_so_once_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    hints = Hints("the next letter is tried at noon")
    lines = Lines(31, hints)
    looks(lines, 5, done=7)
    hints.hint = "the next letter is tried at two"
    looks(lines, 5, done=7)
    looks(lines, 5, done=8)
    assert capsys.readouterr().err.splitlines() == [
        f"redrive: waits at 7 of 31: {WAITS}; the next letter is tried at noon",
        f"redrive: waits at 7 of 31: {WAITS}; the next letter is tried at two",
        f"redrive: waits at 8 of 31: {WAITS}; the next letter is tried at two",
    ]


def test_what_a_job_waits_for_comes_with_the_time_and_the_remedy() -> None:
    hint = breaker_hint("new orders", Breaker().on_failure(NOW, 5), "0190a0b1")
    assert hint == (
        "the next letter is tried at 2026-02-11 12:01:00 UTC;"
        " mended? 'redrive breakers force 'new orders' closed';"
        " or end this with 'redrive replays pause 0190a0b1' or 'cancel'"
    )
    forced = breaker_hint("orders", Breaker().force(Position.OPEN), "0190a0b1")
    assert "'redrive breakers release orders'" in forced
    assert "is tried at" not in forced


def test_the_question_names_three_destinations_and_counts_the_rest() -> None:
    going: Counter[Destination | None] = Counter(
        {Destination(queue=f"q{number}"): number for number in range(1, 8)}
    )
    assert question(going) == (
        "Send 28 letters: 7 to queue:q7, 6 to queue:q6, 5 to queue:q5, and 4 more?"
    )


def replay(skipped: int) -> Replay:
    return Replay(
        id="0190a0b1",
        created_at=NOW,
        updated_at=NOW,
        vhost="/",
        actor="cli:ann",
        state=ReplayState.DONE,
        reason="",
        filters="",
        destination=None,
        batch_size=100,
        pause=1.0,
        rate=None,
        doubtful=False,
        ordered_by=None,
        letters=3,
        position=3,
        skipped=skipped,
    )


@pytest.mark.parametrize(
    ("results", "left_out", "named", "code"),
    [
        ({Result.SENT: 3}, {}, False, 0),
        ({Result.SENT: 3}, {}, True, 0),
        ({Result.SENT: 2}, {IS_OUTSTANDING: 1}, False, 0),
        ({Result.SENT: 2}, {IS_OUTSTANDING: 1}, True, 1),
        ({}, {IS_OUTSTANDING: 3}, False, 1),
        ({Result.SENT: 2}, {"it may be a second copy of another letter": 1}, False, 1),
        ({Result.SENT: 2, Result.REFUSED: 1}, {}, False, 1),
        ({Result.SENT: 2, Result.IN_DOUBT: 1}, {}, False, 1),
    ],
)
def test_exit_0_is_that_nothing_is_left_to_do(
    results: dict[Result, int], left_out: dict[str, int], named: bool, code: int
) -> None:
    report = Report(
        replay=replay(skipped=sum(left_out.values())),
        results=results,
        refusals=Counter(),
        left_out=Counter(left_out),
    )
    assert Ended(report, interrupted=False).code(named=named) == code
