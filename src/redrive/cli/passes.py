"""What sweep and move have in common: a summary for each queue, notes, progress, the exit code.

Guarantees: the summary is data and goes to stdout; notes and errors go to stderr, a line each, with
the queue's name. Progress is shown only where stderr is a terminal, and gone when it is done.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from redrive.cli.rendering import Column, note, one_line, print_table
from redrive.work.look import Outcome

if TYPE_CHECKING:
    from redrive.work.one_pass import OnePass

FAILED: Final = 1
INTERRUPTED: Final = 130
_LOOK_EVERY: Final = 0.1

UnderWay = Callable[[], "OnePass | None"]
"""The pass that is running, if one is."""


def show_outcomes(outcomes: Sequence[Outcome], *, dry_run: bool) -> None:
    """The summary, one line a queue."""
    columns = (
        Column("QUEUE", cut=True),
        Column("TO", cut=True),
        Column("EXAMINED", right=True, whole=True),
        Column("WOULD MOVE" if dry_run else "MOVED", right=True, whole=True),
        Column("LEFT", right=True, whole=True),
        Column("FAILED", right=True, whole=True),
    )
    rows = [
        (
            one_line(each.queue),
            one_line(each.target),
            f"{each.examined:,}",
            f"{each.would_move if dry_run else each.moved:,}",
            f"{each.left:,}",
            f"{each.failed:,}",
        )
        for each in outcomes
    ]
    print_table(columns, [rows])


def say(outcomes: Sequence[Outcome]) -> None:
    """What is to be said beside the summary."""
    for each in outcomes:
        for text in each.notes:
            note(f"{each.queue}: {text}")
        if each.error:
            named = "" if each.error.startswith(f"{each.queue} ") else f"{each.queue}: "
            note(f"{named}{each.error}" + (f"; {each.remedy}" if each.remedy else ""))


def outcome_document(outcome: Outcome, *, dry_run: bool) -> dict[str, Any]:
    """One queue's summary as JSON."""
    return {
        "queue": outcome.queue,
        "target": outcome.target,
        "present": outcome.present,
        "examined": outcome.examined,
        "moved": outcome.moved,
        **({"wouldMove": outcome.would_move} if dry_run else {}),
        "left": outcome.left,
        "failed": outcome.failed,
        "underWay": outcome.under_way,
        "mayBeInBoth": outcome.may_be_in_both,
        "notLookedAt": outcome.not_looked_at,
        "notes": outcome.notes,
        "error": outcome.error or None,
        "remedy": outcome.remedy or None,
    }


def say_what_a_signal_does() -> None:
    """At the first Ctrl-C, where somebody can see it."""
    if sys.stderr.isatty():
        note(
            "giving back what was taken, which takes ten seconds at most; Ctrl-C again leaves that"
            " to the broker, which counts it as a delivery in quorum queues"
        )


@asynccontextmanager
async def progress(under_way: UnderWay) -> AsyncIterator[None]:
    """A bar on stderr for the pass that is running, where somebody can see it."""
    if not sys.stderr.isatty():
        yield
        return
    showing = asyncio.create_task(_show(under_way))
    try:
        yield
    finally:
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing


async def _show(under_way: UnderWay) -> None:
    from rich.console import Console  # noqa: PLC0415  (slow to import: only on a terminal)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=None)
        while True:
            look = under_way()
            if look is not None and look.passed.present:
                bars.update(
                    bar,
                    description=one_line(look.queue),
                    completed=look.passed.examined,
                    total=look.passed.present,
                )
            await asyncio.sleep(_LOOK_EVERY)
