"""`redrive stats`: how many letters are where.

Guarantees: reads only. `--watch` on a terminal is a live view; elsewhere the numbers, again and
again. `--ledger` compares the books with the letters themselves, in one snapshot,
and exits 1 if they differ in anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from redrive import runtime
from redrive.cli import groups, wording
from redrive.cli.app import single
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import Cell, Column, Marked, dump_json, note, print_json, print_table
from redrive.domain.filters import Audit
from redrive.domain.lifecycle import State
from redrive.work.alert_list import list_alerts
from redrive.work.redact import Redaction
from redrive.work.stats import LOOKED_AT, Stats, read_stats, stats_document

if TYPE_CHECKING:
    from redrive.settings import Settings

app = single("stats")

_FAILED = 1
_EVERY = 2.0


@app.command()
@invoked
def stats(
    invocation: Invocation,
    *,
    ledger: Annotated[
        bool,
        typer.Option("--ledger", help="Compare the books with the letters; exit 1 if they differ."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show them every 2 seconds, until Ctrl-C.")
    ] = False,
) -> None:
    """Count letters by state, what came and went, and the largest groups."""
    settings = invocation.load().settings
    if watch:
        runtime.run_async(_watch(settings, invocation.output, ledger=ledger))
        return
    found = runtime.run_async(_once(settings, ledger=ledger))
    if invocation.output is Output.JSON:
        print_json(stats_document(found))
    else:
        _show(found)
    if found.audit is not None and not found.audit.exact:
        note("the books are not exact; please report it, with what is shown here")
        raise typer.Exit(_FAILED)


async def _once(settings: Settings, *, ledger: bool) -> Stats:
    async with contextlib.aclosing(_readings(settings, ledger=ledger)) as readings:
        return await anext(readings)


async def _watch(settings: Settings, output: Output, *, ledger: bool) -> None:
    # Closed here, while the event loop still runs as usual, and not when Ctrl-C ends it.
    async with contextlib.aclosing(_readings(settings, ledger=ledger)) as readings:
        if output is Output.JSON:
            async for found in readings:
                sys.stdout.write(dump_json(stats_document(found)) + "\n")
                sys.stdout.flush()
                await asyncio.sleep(_EVERY)
        elif sys.stdout.isatty():
            await _live(settings, readings)
        else:
            async for found in readings:
                typer.echo(wording.clock(datetime.now(UTC)))
                _show(found)
                sys.stdout.flush()
                await asyncio.sleep(_EVERY)


async def _live(settings: Settings, readings: AsyncGenerator[Stats, None]) -> None:
    """On a terminal: rates, backlog and groups, drawn anew in their place."""
    from rich.live import Live  # noqa: PLC0415  (slow to import: only on a terminal)

    from redrive.cli.stats_view import StatsView  # noqa: PLC0415
    from redrive.settings.alerts import rules_by  # noqa: PLC0415

    async with runtime.store(settings) as store:
        view = StatsView()
        with Live(view, screen=True, auto_refresh=False) as live:
            async for found in readings:
                alerts = await list_alerts(store, rules_by(settings.alert))
                view.see(found, await store.figures.read(), alerts["items"], time.monotonic())
                live.refresh()
                await asyncio.sleep(_EVERY)


async def _readings(settings: Settings, *, ledger: bool) -> AsyncGenerator[Stats, None]:
    """The numbers, each time somebody asks for the next."""
    redaction = Redaction.by(settings.redaction)
    async with runtime.store(settings) as store:
        while True:
            yield await read_stats(store, redaction, ledger=ledger)


def _show(found: Stats) -> None:
    if found.audit is not None:
        _show_audit(found.audit)
    else:
        rows = [(wording.state(state), f"{found.ledger.states.get(state, 0):,}") for state in State]
        print_table(("STATE", Column("LETTERS", right=True)), [rows])
    ledger = found.ledger
    typer.echo()
    typer.echo(
        f"{wording.plural(ledger.received, 'letter')} received, {ledger.deleted:,} deleted;"
        f" {wording.plural(ledger.returned, 'delivery', 'deliveries')} of letters that came back"
    )
    marked = wording.plural(found.possible_duplicates, "possible duplicate")
    where = "; see 'redrive letters list --possible-duplicate'" if found.possible_duplicates else ""
    typer.echo(f"{marked} marked{where}")
    if found.top:
        typer.echo()
        if not found.all_groups:
            typer.echo(f"Largest of the {LOOKED_AT} groups that were hit last:")
        now = datetime.now(UTC)
        print_table(groups.COLUMNS, [[groups.row(group, now) for group in found.top]])


def _show_audit(audit: Audit) -> None:
    rows: list[tuple[Cell, ...]] = []
    for state in State:
        booked, there = audit.ledger.states.get(state, 0), audit.rows.get(state, 0)
        verdict = Marked("exact", "green") if booked == there else Marked("DIFFERS", "bold red")
        rows.append((wording.state(state), f"{booked:,}", f"{there:,}", verdict))
    placed = sum(audit.ledger.states.values()) + audit.ledger.deleted
    balanced = Marked("exact", "green") if audit.ledger.balanced else Marked("DIFFERS", "bold red")
    total = ("received", f"{audit.ledger.received:,}", f"{placed:,}", balanced)
    print_table(
        ("STATE", Column("BOOKS", right=True), Column("LETTERS", right=True), ""), [rows, [total]]
    )
