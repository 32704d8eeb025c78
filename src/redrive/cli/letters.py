"""`redrive letters`: what is kept of dead messages.

Guarantees: nothing here changes a letter: the commands that do are in `letter_edits` and
`letter_changes`. Redaction rules apply to all that is shown and exported, unless an export is asked
to be exact. An export to a file is there whole or not at all; an import takes every letter of a
file, or none if one of its lines is not sound. Memory does not grow with the number of letters.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.app import group
from redrive.cli.filters import NOTHING_MATCHED, Selection, filtered, whole_id
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.letter_changes import archive, discard, resolve, restore
from redrive.cli.letter_edits import edit
from redrive.cli.rendering import (
    Cell,
    Column,
    Marked,
    console,
    note,
    one_line,
    print_json,
    print_table,
)
from redrive.cli.short_ids import short_ids
from redrive.domain.filters import Page
from redrive.domain.letter import Kept, Letter
from redrive.work.redact import NO_REDACTION, Redaction
from redrive.work.show import letter_document, letter_summary

if TYPE_CHECKING:
    from redrive.settings import Settings

app = group("letters")

_PAGE = 50
_FAILED = 1
COLUMNS = (
    Column("ID", whole=True),
    Column("STATE", whole=True),
    Column("ERROR", cut_front=True),
    Column("REASON", cut=True),
    Column("QUEUE", cut=True),
    Column("SIZE", right=True, whole=True, spare=True),
    Column("COLLECTED", whole=True),
)


# List


@app.command("list")
@invoked
@filtered
def list_(
    invocation: Invocation,
    selection: Selection,
    *,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on after this: 'next' of a page.")
    ] = None,
) -> None:
    """List letters, newest first; 50 at a time unless --limit says otherwise."""
    settings = invocation.load().settings
    table = invocation.output is Output.TABLE
    page, ids = runtime.run_async(_page(settings, selection, after, shorten=table))
    if not table:
        items = [letter_summary(letter) for letter in page.items]
        print_json({"items": items, "next": page.next})
    elif page.items:
        now = datetime.now(UTC)
        print_table(COLUMNS, [[row(letter, ids[letter.id], now) for letter in page.items]])
        if page.next:
            note(f"there are more: go on with --after {page.next}")
    if not page.items:
        note("no letter matches")
        raise typer.Exit(NOTHING_MATCHED)


async def _page(
    settings: Settings, selection: Selection, after: str | None, *, shorten: bool
) -> tuple[Page[Letter], dict[str, str]]:
    async with runtime.store(settings) as store:
        filters = await selection.filters(store.letters)
        page = await store.letters.page(filters, limit=selection.limit or _PAGE, after=after)
        shown = Redaction.by(settings.redaction).letter
        page = Page(tuple(map(shown, page.items)), page.next)
        ids = [letter.id for letter in page.items]
        return page, await short_ids(store.letters, ids) if shorten else {}


def row(letter: Letter, shown_id: str, now: datetime) -> tuple[Cell, ...]:
    """A letter's cells under `COLUMNS`."""
    state = wording.state(letter.status)
    if letter.possible_duplicate:
        state = Marked(f"{state.text}, copy?", state.style)
    return (
        shown_id,
        state,
        one_line(letter.error_type),
        one_line(letter.error_reason),
        one_line(letter.queue) if letter.queue is not None else "(unknown)",
        wording.size(letter.size),
        wording.ago(letter.created_at, now),
    )


# Show


@app.command()
@invoked
def show(
    invocation: Invocation,
    letter: Annotated[str, typer.Argument(metavar="LETTER", help="Its id, or how it begins.")],
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Cut nothing, however long the body or the stack is.")
    ] = False,
) -> None:
    """Show one letter: what failed, where it died, its message and its history."""
    settings = invocation.load().settings
    kept = runtime.run_async(_kept(settings, letter))
    redaction = Redaction.by(settings.redaction)
    if invocation.output is Output.JSON:
        print_json(letter_document(kept, redaction=redaction))
        return
    from redrive.cli.letter_view import LetterView  # noqa: PLC0415  (the other commands do without)

    kept = replace(kept, letter=redaction.letter(kept.letter))
    LetterView(kept, redaction, datetime.now(UTC), console(), full=full).print()


async def _kept(settings: Settings, beginning: str) -> Kept:
    async with runtime.store(settings) as store:
        letter_id = await whole_id(store.letters, beginning)
        kept = await store.letters.kept(letter_id)
    if kept is None:
        note(f"letter {letter_id} was deleted meanwhile")
        raise typer.Exit(NOTHING_MATCHED)
    return kept


# Change

for _command in (edit, discard, archive, restore, resolve):
    app.command()(_command)


# Export and import


@app.command()
@invoked
@filtered
def export(
    invocation: Invocation,
    selection: Selection,
    *,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write this new file; stdout by default."),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Originals, whatever [redaction] hides: for a backup."),
    ] = False,
) -> None:
    """Write letters as JSON lines, oldest first.

    Every line holds the whole letter, byte for byte, and 'letters import' gives it back. A line
    that a redaction rule touches is marked and cannot be imported: --exact applies no rule.
    """
    from redrive.cli.carrying import export_letters  # noqa: PLC0415  (the others do without)

    settings = invocation.load().settings
    redaction = NO_REDACTION if exact else Redaction.by(settings.redaction)
    done = runtime.run_async(export_letters(settings, selection, to, redaction))
    if not done.letters:
        note("no letter matches; nothing was written")
        raise typer.Exit(NOTHING_MATCHED)
    if to is not None and invocation.output is Output.JSON:
        print_json({"exported": done.letters, "redacted": done.redacted, "file": str(to)})
    else:
        note(f"exported {wording.plural(done.letters, 'letter')}" + (f" to {to}" if to else ""))
    if done.redacted:
        note(
            f"{wording.plural(done.redacted, 'letter')} redacted, and not fit for an import;"
            " --exact keeps them as they are"
        )


@app.command("import")
@invoked
def import_(
    invocation: Invocation,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An export; - for stdin.")],
) -> None:
    """Bring exported letters into the store: all of a file, or none if a line is not sound.

    A letter whose id is there already is left as it is.
    """
    from redrive.cli.carrying import import_letters  # noqa: PLC0415  (the others do without)

    settings = invocation.load().settings
    done = runtime.run_async(import_letters(settings, file))
    if done.problems:
        for problem in done.problems:
            note(problem)
        note("nothing was imported")
        raise typer.Exit(_FAILED)
    if invocation.output is Output.JSON:
        print_json({"read": done.read, "added": done.added, "present": done.read - done.added})
    else:
        there = done.read - done.added
        also = f"; {wording.plural(there, 'letter')} there already" if there else ""
        note(f"imported {wording.plural(done.added, 'letter')}{also}")
    if not done.read:
        note(f"{file} holds no letter")
        raise typer.Exit(NOTHING_MATCHED)
