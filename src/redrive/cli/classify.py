"""`redrive classify`: which strategy letters have, by which rule, why, and when they go next.

Guarantees: reads only. What is said is what a worker with these settings would do now. Words of a
reason that [redaction] hides are not shown.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.app import single
from redrive.cli.filters import NOTHING_MATCHED, whole_id
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import Cell, Column, note, one_line, print_json, print_table
from redrive.cli.short_ids import short_ids
from redrive.domain.letter import Letter
from redrive.work.classify import (
    Classification,
    Classified,
    classified_document,
    shown_why,
)
from redrive.work.redact import Redaction

if TYPE_CHECKING:
    from redrive.settings import Settings

app = single("classify")

COLUMNS = (
    Column("LETTER", whole=True),
    Column("STRATEGY", whole=True),
    Column("RULE"),
    Column("WHY"),
    Column("SENT NEXT", whole=True),
)


@app.command()
@invoked
def classify(
    invocation: Invocation,
    letters: Annotated[
        list[str], typer.Argument(metavar="LETTER…", help="Their ids, or how these begin.")
    ],
) -> None:
    """Explain how letters are revived: the strategy, the rule that chose it, why, and when."""
    settings = invocation.load().settings
    table = invocation.output is Output.TABLE
    found, ids = runtime.run_async(_letters(settings, letters, shorten=table))
    now = datetime.now(UTC)
    classification = Classification.by(settings)
    redaction = Redaction.by(settings.redaction)
    explained = [
        (each, shown_why(each, redaction))
        for each in (classification.of(letter, now) for letter in found)
    ]
    if not table:
        print_json({"items": [classified_document(each, why) for each, why in explained]})
    elif explained:
        rows = [_row(each, why, ids[each.letter.id], now) for each, why in explained]
        print_table(COLUMNS, [rows])
    if not found:
        note("no letter matches")
        raise typer.Exit(NOTHING_MATCHED)


async def _letters(
    settings: Settings, beginnings: list[str], *, shorten: bool
) -> tuple[list[Letter], dict[str, str]]:
    async with runtime.store(settings) as store:
        whole = dict.fromkeys([await whole_id(store.letters, each) for each in beginnings])
        found = [letter for each in whole if (letter := await store.letters.get(each))]
        ids = [letter.id for letter in found]
        return found, await short_ids(store.letters, ids) if shorten else {}


def _row(each: Classified, why: str, shown_id: str, now: datetime) -> tuple[Cell, ...]:
    if each.next_at is None:
        when = f"not by itself: {each.waits_for}"
    elif each.next_at <= now:
        when = "now"
    else:
        when = f"{wording.clock(each.next_at)} ({wording.relative(each.next_at, now)})"
    return shown_id, each.chosen.strategy.value, each.chosen.rule, one_line(why), when
