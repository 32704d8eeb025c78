"""`redrive replays`: the jobs that send letters again; what they did, and what they wait for.

Guarantees: pausing and cancelling take effect after the batch that is being sent; what was not sent
stays as it is. A job that another process runs is not run twice: `resume` takes it over only when
that process has given no sign of life for a whole lease. All three are in the audit log.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.app import group
from redrive.cli.auditing import audited
from redrive.cli.filters import NOTHING_MATCHED, whole_id
from redrive.cli.invocation import Invocation, Output, invoked
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
from redrive.cli.replaying import print_report, require_health, run_here, show_ended
from redrive.cli.short_ids import shortened
from redrive.domain.filters import Page
from redrive.domain.letter import Result
from redrive.domain.replay import Replay, ReplayState
from redrive.errors import OrderRefused
from redrive.work.replay_report import Report, replay_document, report_document, report_of

if TYPE_CHECKING:
    from redrive.settings import Settings
    from redrive.work.replay_session import ReplaySession

app = group("replays")

_PAGE: Final = 50
_STYLES: Final = {
    ReplayState.RUNNING: "cyan",
    ReplayState.PAUSED: "yellow",
    ReplayState.CANCELLED: "dim",
    ReplayState.DONE: "green",
}
_COLUMNS: Final = (
    Column("ID", whole=True),
    Column("STATE", whole=True),
    Column("PROGRESS", right=True, whole=True),
    Column("WHO", cut=True),
    Column("WHAT", cut=True),
    Column("BEGAN", whole=True),
)
_BECAME: Final = {
    Result.SENT: "sent, without a verdict yet",
    Result.RESOLVED: "resolved",
    Result.RETURNED: "came back",
    Result.FAILED: "failed",
    Result.REFUSED: "refused",
    Result.IN_DOUBT: "in doubt",
    Result.SENDING: "being sent",
}

_Id = Annotated[str, typer.Argument(metavar="REPLAY", help="Its id, or how it begins.")]
_Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for those who see it later.")]


# Seeing


@app.command("list")
@invoked
def list_(
    invocation: Invocation,
    *,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="At most so many.")
    ] = _PAGE,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on after this: 'next' of a page.")
    ] = None,
) -> None:
    """List replays, newest first."""
    settings = invocation.load().settings
    page, ids = runtime.run_async(_page(settings, limit, after))
    if invocation.output is Output.JSON:
        print_json({"items": [replay_document(each) for each in page.items], "next": page.next})
    elif page.items:
        now = datetime.now(UTC)
        print_table(_COLUMNS, [[_row(each, ids[each.id], now) for each in page.items]])
        if page.next:
            note(f"there are more: go on with --after {page.next}")
    if not page.items:
        note("there is no replay")
        raise typer.Exit(NOTHING_MATCHED)


async def _page(
    settings: Settings, limit: int, after: str | None
) -> tuple[Page[Replay], dict[str, str]]:
    async with runtime.store(settings) as store:
        page = await store.replays.page(limit=limit, after=after)
        ids = [each.id for each in page.items]
        if not sys.stdout.isatty():
            return page, {each: each for each in ids}
        return page, await shortened(runtime.replay_looks(store), ids)


def _row(replay: Replay, shown_id: str, now: datetime) -> tuple[Cell, ...]:
    to = "" if replay.destination is None else f", to {replay.destination}"
    return (
        shown_id,
        Marked(replay.state.value, _STYLES[replay.state]),
        f"{replay.position:,} of {replay.letters:,}",
        one_line(replay.actor),
        one_line(replay.filters + to),
        wording.ago(replay.created_at, now),
    )


@app.command()
@invoked
def show(invocation: Invocation, replay: _Id) -> None:
    """Show one replay: how far it is, what became of its letters, and what it waits for."""
    report = runtime.run_async(_report(invocation.load().settings, replay))
    if invocation.output is Output.JSON:
        print_json(report_document(report))
        return
    _heading(report.replay, datetime.now(UTC))
    print_report(report)
    became = [
        (text, f"{report.results[each]:,}")
        for each, text in _BECAME.items()
        if report.results.get(each)
    ]
    if became:
        columns = (Column("BECAME", whole=True), Column("LETTERS", right=True, whole=True))
        print_table(columns, [became])


async def _report(settings: Settings, beginning: str) -> Report:
    async with runtime.store(settings) as store:
        looks = runtime.replay_looks(store)
        replay_id = await whole_id(looks, beginning, "replay")
        found = await store.replays.get(replay_id)
        if found is None:
            note(f"replay {replay_id} was deleted meanwhile")
            raise typer.Exit(NOTHING_MATCHED)
        return await report_of(store.replays, looks, found)


def _heading(replay: Replay, now: datetime) -> None:
    out = console()
    out.print(f"Replay {replay.id}  {replay.state.value}", style="bold")
    lines = [
        ("of", replay.filters),
        ("to", replay.destination or "where they failed"),
        ("by", f"{replay.actor}, {wording.ago(replay.created_at, now)}"),
        ("progress", f"{replay.position:,} of {wording.plural(replay.letters, 'letter')}"),
    ]
    if replay.drop_oldest:
        lines.append(("room", "full queues may drop their oldest messages for it"))
    if replay.state is ReplayState.RUNNING:
        seen = "" if replay.locked_at is None else f", seen {wording.ago(replay.locked_at, now)}"
        lines.append(("run by", f"{replay.locked_by}{seen}" if replay.locked_by else "nobody now"))
        if replay.reason:
            lines.append(("waits", f"because {replay.reason}"))
    elif replay.reason:
        lines.append(("why", replay.reason))
    for name, text in lines:
        out.print(f"  {name:<10}{one_line(text)}")


# Changing


@app.command()
@invoked
def pause(invocation: Invocation, replay: _Id, *, reason: _Reason = "") -> None:
    """Pause a replay after the batch that is being sent; 'resume' goes on."""
    settings = invocation.load().settings
    _changed(runtime.run_async(_pause(settings, replay, reason)), invocation.output)


async def _pause(settings: Settings, beginning: str, reason: str) -> Replay:
    async with runtime.store(settings) as store:
        replay_id = await whole_id(runtime.replay_looks(store), beginning, "replay")
        told = {"replay": replay_id, "reason": reason}
        async with audited(store.audit_log, "replays.pause", told):
            return await store.replays.pause(replay_id, reason)


@app.command()
@invoked
def cancel(invocation: Invocation, replay: _Id, *, reason: _Reason = "") -> None:
    """End a replay after the batch that is being sent; what was not sent stays as it is."""
    settings = invocation.load().settings
    _changed(runtime.run_async(_cancel(settings, replay, reason)), invocation.output)


async def _cancel(settings: Settings, beginning: str, reason: str) -> Replay:
    async with runtime.store(settings) as store:
        replay_id = await whole_id(runtime.replay_looks(store), beginning, "replay")
        told = {"replay": replay_id, "reason": reason}
        async with audited(store.audit_log, "replays.cancel", told):
            return await store.replays.cancel(replay_id, reason)


def _changed(replay: Replay, output: Output) -> None:
    if output is Output.JSON:
        print_json(replay_document(replay))
    else:
        left = replay.letters - replay.position
        typer.echo(f"{replay.id} {replay.state.value}, {wording.plural(left, 'letter')} left")


# Going on


@app.command()
@invoked
def resume(
    invocation: Invocation,
    replay: _Id,
    *,
    detach: Annotated[
        bool, typer.Option("--detach", help="Do not run it here; a worker does.")
    ] = False,
    ignore_health: Annotated[
        bool, typer.Option("--ignore-health", help="Even if the system is not well.")
    ] = False,
) -> None:
    """Go on with a replay that was paused, or whose process died, where it was."""
    settings = invocation.load().settings
    from redrive.cli.logs import silence_logs  # noqa: PLC0415  (not needed for --help)

    silence_logs()
    if detach:
        _changed(runtime.run_async(_hand_over(settings, replay)), invocation.output)
        return
    replay_id = runtime.run_async(_prepare(settings, replay, ignore_health=ignore_health))

    async def take(session: ReplaySession, stopping: asyncio.Event) -> Replay:
        def wait(seen: Replay) -> None:
            lease = wording.span(session.lease)
            note(f"{seen.locked_by} has run it until now: waits {lease} for a sign of life")

        async with (
            runtime.store(settings) as store,
            audited(store.audit_log, "replays.resume", {"replay": replay_id}),
        ):
            return await session.take_over(replay_id, stopping, on_wait=wait)

    ended = runtime.run_async(run_here(settings, take))
    assert ended is not None
    show_ended(ended, invocation.output)
    raise typer.Exit(ended.code(named=False))


async def _prepare(settings: Settings, beginning: str, *, ignore_health: bool) -> str:
    async with runtime.store(settings) as store:
        replay_id = await whole_id(runtime.replay_looks(store), beginning, "replay")
        found = await store.replays.get(replay_id)
        if found is not None and found.state in (ReplayState.CANCELLED, ReplayState.DONE):
            raise OrderRefused(f"replay {replay_id} is {found.state.value}")
        if ignore_health:
            await runtime.require_broker(settings)
        else:
            require_health(await runtime.unmet_conditions(settings, store))
        return replay_id


async def _hand_over(settings: Settings, beginning: str) -> Replay:
    """A job for whatever worker takes it; one that runs is taken by itself, if its process died."""
    async with runtime.store(settings) as store:
        replay_id = await whole_id(runtime.replay_looks(store), beginning, "replay")
        found = await store.replays.get(replay_id)
        if found is not None and found.state is ReplayState.RUNNING:
            return found
        async with audited(store.audit_log, "replays.resume", {"replay": replay_id}):
            return await store.replays.resume(replay_id)
