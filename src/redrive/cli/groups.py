"""`redrive groups`: letters that failed for the same reason in the same place.

Guarantees: reads only. A group is named by its fingerprint, which every filter `--group` takes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.app import group
from redrive.cli.filters import NOTHING_MATCHED
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.letters import COLUMNS as LETTER_COLUMNS
from redrive.cli.letters import row as letter_row
from redrive.cli.rendering import Cell, Column, note, one_line, print_json, print_table
from redrive.cli.short_ids import short_ids
from redrive.domain.filters import Filters, Group, Page
from redrive.domain.letter import Letter
from redrive.work.redact import Redaction
from redrive.work.show import group_document, letter_summary

if TYPE_CHECKING:
    from redrive.settings import Settings

app = group("groups")

_PAGE = 50
_NEWEST = 10
COLUMNS = (
    Column("GROUP", whole=True),
    Column("TYPE", cut_front=True),
    Column("REASON", cut=True),
    Column("QUEUE", cut=True),
    Column("LETTERS", cut=True),
    Column("FIRST SEEN", whole=True, spare=True),
    Column("LAST SEEN", whole=True),
)


@app.command("list")
@invoked
def list_(
    invocation: Invocation,
    *,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=1_000_000, help="At most so many.")
    ] = _PAGE,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on after this: 'next' of a page.")
    ] = None,
) -> None:
    """List the groups, the one that was hit last first."""
    page = runtime.run_async(_page(invocation.load().settings, limit, after))
    if invocation.output is Output.JSON:
        items = [group_document(each) for each in page.items]
        print_json({"items": items, "next": page.next})
    elif page.items:
        now = datetime.now(UTC)
        print_table(COLUMNS, [[row(each, now) for each in page.items]])
        if page.next:
            note(f"there are more: go on with --after {page.next}")
    if not page.items:
        note("there is no group")
        raise typer.Exit(NOTHING_MATCHED)


async def _page(settings: Settings, limit: int, after: str | None) -> Page[Group]:
    async with runtime.store(settings) as store:
        page = await store.groups.page(limit=limit, after=after)
    return Page(tuple(map(Redaction.by(settings.redaction).group, page.items)), page.next)


def row(each: Group, now: datetime) -> tuple[Cell, ...]:
    """A group's cells under `COLUMNS`."""
    return (
        each.fingerprint,
        one_line(each.error_type),
        one_line(each.reason),
        one_line(each.queue) if each.queue is not None else "(unknown)",
        wording.counts(each.counts),
        wording.ago(each.first_seen_at, now),
        wording.ago(each.last_seen_at, now),
    )


@app.command()
@invoked
def show(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(metavar="GROUP", help="As 'groups list' names it.")],
) -> None:
    """Show one group and its newest letters."""
    found = runtime.run_async(_group(invocation.load().settings, name.strip().lower()))
    if found is None:
        note(f"no group is called {name!r}")
        raise typer.Exit(NOTHING_MATCHED)
    one, letters, ids = found
    if invocation.output is Output.JSON:
        newest = [letter_summary(letter) for letter in letters.items]
        print_json({**group_document(one), "newest": newest})
        return
    now = datetime.now(UTC)
    facts = (
        ("GROUP", one.fingerprint),
        ("TYPE", one_line(one.error_type)),
        ("REASON", one_line(one.reason)),
        ("QUEUE", one_line(one.queue) if one.queue is not None else "(unknown)"),
        ("LETTERS", wording.counts(one.counts)),
        (
            "FIRST SEEN",
            f"{wording.clock(one.first_seen_at)} ({wording.ago(one.first_seen_at, now)})",
        ),
        ("LAST SEEN", f"{wording.clock(one.last_seen_at)} ({wording.ago(one.last_seen_at, now)})"),
    )
    for title, text in facts:
        typer.echo(f"{title:<10}  {text}")
    typer.echo()
    print_table(
        LETTER_COLUMNS, [[letter_row(letter, ids[letter.id], now) for letter in letters.items]]
    )
    if letters.next:
        note(f"these are the newest: 'redrive letters list --group {one.fingerprint}' lists all")


async def _group(
    settings: Settings, name: str
) -> tuple[Group, Page[Letter], dict[str, str]] | None:
    async with runtime.store(settings) as store:
        found = await store.groups.get(name)
        if found is None:
            return None
        page = await store.letters.page(Filters(group=name), limit=_NEWEST)
        redaction = Redaction.by(settings.redaction)
        page = Page(tuple(map(redaction.letter, page.items)), page.next)
        ids = await short_ids(store.letters, [each.id for each in page.items])
        return redaction.group(found), page, ids
