"""`redrive replay --dry-run`: what would go where, and whether it would be taken there.

Guarantees: reads only. Exit 1 if some letters would not be taken now without harm, or are left to a
person, or none would be sent; 3 if there are none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.filters import NOTHING_MATCHED
from redrive.cli.invocation import Output
from redrive.cli.rendering import Cell, Column, Marked, note, one_line, print_json, print_table
from redrive.cli.replaying import FAILED, Asked, note_keyless
from redrive.work.destination_look import Look
from redrive.work.destinations import destinations
from redrive.work.ordering import read_ordering
from redrive.work.replay_preview import Preview, PreviewOrder, preview_document

if TYPE_CHECKING:
    from redrive.settings import Settings

_COLUMNS: Final = (
    Column("DESTINATION"),
    Column("LETTERS", right=True, whole=True),
    Column("SIZE", right=True, whole=True),
    Column("WAITING", right=True, whole=True),
    Column("CONSUMERS", right=True, whole=True),
    Column("TAKEN"),
)
_LEFT_OUT: Final = (Column("LEFT OUT", right=True, whole=True), Column("WHY"))


def preview(settings: Settings, asked: Asked, output: Output) -> None:
    """Show it, and end with its exit code."""
    found, unmet = runtime.run_async(_preview(settings, asked))
    if output is Output.JSON:
        print_json({**preview_document(found), "unmet": unmet})
    elif found.matched:
        _print(found)
    if not found.matched:
        note("no letter matches")
        raise typer.Exit(NOTHING_MATCHED)
    note_keyless(found.keyless, asked.order.ordered_by)
    for reason in unmet:
        note(f"a replay would not begin now: {reason}")
    note("nothing was sent: this was a dry run")
    if not found.all_would_go_well or (asked.named and found.skipped):
        raise typer.Exit(FAILED)


async def _preview(settings: Settings, asked: Asked) -> tuple[Preview, list[str]]:
    order = asked.order
    async with runtime.store(settings) as store:
        policies = await runtime.policy_book(settings)
        filters = await asked.filters(store.letters)
        async with runtime.replay_preview(settings, store) as (looking, silent):
            if silent is not None:
                note(f"{silent}; length limits and bindings are unknown")
            found = await looking.of(
                PreviewOrder(
                    vhost=runtime.addresses(settings)[0].vhost,
                    filters=filters,
                    limit=asked.selection.limit,
                    key=None if order.ordered_by is None else read_ordering(order.ordered_by),
                    doubtful=order.doubtful,
                    drop_oldest=order.drop_oldest,
                    destination_of=destinations(lambda: policies, order.destination),
                ),
                datetime.now(UTC),
            )
        if asked.ignore_health or not found.matched:
            return found, []
        return found, await runtime.unmet_conditions(settings, store)


def _print(found: Preview) -> None:
    if found.destinations:
        print_table(_COLUMNS, [[_row(each) for each in found.destinations]])
    for each in found.destinations:
        for text in each.warnings:
            typer.echo(f"{one_line(str(each.destination))}: {one_line(text)}")
    if found.left_out:
        rows = [(f"{number:,}", one_line(why)) for why, number in found.left_out.most_common()]
        print_table(_LEFT_OUT, [rows])


def _row(look: Look) -> tuple[Cell, ...]:
    if not look.obstacles:
        unknown = look.exists is None
        taken: Cell = Marked("not known", "yellow") if unknown else Marked("yes", "green")
    else:
        part = look.not_taken < look.expected.letters
        some = f"not {look.not_taken:,} of them" if part else "no"
        taken = Marked(one_line(f"{some}: {'; '.join(look.obstacles)}"), "bold red")
    return (
        one_line(str(look.destination)),
        f"{look.expected.letters:,}",
        wording.size(look.expected.size),
        "-" if look.ready is None else f"{look.ready:,}",
        "-" if look.consumers is None else f"{look.consumers:,}",
        taken,
    )
