"""`redrive replay`: letters are sent again, one or many, by whoever fixed what made them fail.

Guarantees: wrong use sends nothing and makes no job. What is sent is a job, which outlives this
process and never sends a letter while a copy of it is outstanding. A dry run changes nothing, in
the store or on the broker. See `replaying` for what happens when things fail.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, Protocol

import typer

from redrive import runtime
from redrive.broker.room import DROP_OLDEST
from redrive.cli import wording
from redrive.cli.actor import actor
from redrive.cli.app import single
from redrive.cli.asking import ask, is_somebody_there
from redrive.cli.filters import NOTHING_MATCHED, Selection, filtered
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rates import read_rate
from redrive.cli.rendering import note, one_line, print_json
from redrive.cli.replaying import (
    Asked,
    nothing_sent_if_interrupted,
    require_health,
    run_here,
    show_ended,
)
from redrive.domain.durations import parse_duration
from redrive.domain.filter_words import described
from redrive.domain.ids import letter_id
from redrive.domain.replay import (
    BATCH_SIZE,
    PAUSE,
    Destination,
    Replay,
    ReplayOrder,
    read_destination,
)
from redrive.work.destinations import destinations
from redrive.work.replay_report import replay_document

if TYPE_CHECKING:
    from redrive.settings import Settings
    from redrive.work.replay_session import ReplaySession, Which

app = single("replay")

_LARGEST_BATCH: Final = 10_000
_LONGEST_PAUSE: Final = 86_400.0
_MOST_NAMED: Final = 3


@app.command()
@invoked
@filtered
def replay(  # noqa: PLR0913  (each is an option)
    invocation: Invocation,
    selection: Selection,
    letters: Annotated[
        list[str] | None,
        typer.Argument(metavar="LETTER…", help="These letters, by their ids or how these begin."),
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go where, and send nothing.")
    ] = False,
    batch_size: Annotated[
        int, typer.Option(metavar="N", min=1, max=_LARGEST_BATCH, help="Send so many at a time.")
    ] = BATCH_SIZE,
    pause: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Wait so long between batches; 1s, or none with --rate."
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N/s", help="Send at most so many a second.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="queue:Q|exchange:E", help="All of them there, not where they failed."
        ),
    ] = None,
    ordered_by: Annotated[
        str | None,
        typer.Option(
            metavar="header:NAME|$.PATH",
            help="Keep the order of letters with the same value there.",
        ),
    ] = None,
    with_doubtful: Annotated[
        bool,
        typer.Option(
            "--with-doubtful",
            help="Also what may have been consumed already, and both of possible copies.",
        ),
    ] = False,
    drop_oldest: Annotated[
        bool,
        typer.Option(
            DROP_OLDEST, help="Send even where a full queue drops its oldest messages for it."
        ),
    ] = False,
    ignore_health: Annotated[
        bool, typer.Option("--ignore-health", help="Even if the system is not well.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Only make the job; a worker runs it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Send letters again: to the queues where they failed, in batches, as a job.

    Letters that are named, by LETTER or --id, are sent even if they may have been consumed already.
    Those that filters find are not, unless --with-doubtful says so.
    """
    selection = replace(selection, ids=(*(letters or ()), *selection.ids))
    if ordered_by is not None:
        from redrive.work.ordering import read_ordering  # noqa: PLC0415  (not needed for --help)

        read_ordering(ordered_by)
    asked = Asked(
        selection=selection,
        ignore_health=ignore_health,
        order=ReplayOrder(
            actor=actor(),
            described=described(selection.given, selection.ids, selection.limit),
            destination=None if to is None else read_destination(to),
            batch_size=batch_size,
            pause=_pause(pause, rate),
            rate=read_rate(rate),
            doubtful=with_doubtful or bool(selection.ids),
            ordered_by=ordered_by,
            drop_oldest=drop_oldest,
        ),
    )
    asks = not (yes or dry_run)
    if asks and selection.is_empty and not is_somebody_there():
        raise typer.BadParameter("this sends every letter, and nobody is there to ask: give --yes")
    settings = invocation.load().settings
    from redrive.cli.logs import silence_logs  # noqa: PLC0415  (not needed for --help)

    silence_logs()
    if dry_run:
        from redrive.cli.replay_preview import preview  # noqa: PLC0415

        preview(settings, asked, invocation.output)
        return
    made: Replay | None = None
    with nothing_sent_if_interrupted():
        which = _prepare(settings, asked, asks=asks and is_somebody_there())
        if detach:
            made = runtime.run_async(_detach(settings, asked, which))
    if detach:
        _show_detached(made, invocation.output)
        return

    async def take(session: ReplaySession, _stopping: asyncio.Event) -> Replay | None:
        return await _create(settings, session.replays, asked, which, session.worker_id)

    ended = runtime.run_async(run_here(settings, take))
    if ended is None:
        _nothing()
    show_ended(ended, invocation.output)
    raise typer.Exit(ended.code(named=asked.named))


def _pause(text: str | None, rate: str | None) -> float:
    if text is None:
        return PAUSE if rate is None else 0.0
    try:
        seconds = 0.0 if text.strip() == "0" else parse_duration(text.strip()).total_seconds()
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_PAUSE:
        raise typer.BadParameter(f"--pause: expected a duration such as 1s or 500ms, got {text!r}")
    return seconds


# Before anything is sent


def _prepare(settings: Settings, asked: Asked, *, asks: bool) -> Which:
    """What may be sent. Where somebody may be asked, the letters that matched before they were:
    none that came to match while they read the question."""
    which, going = runtime.run_async(_look(settings, asked, asks=asks))
    if going.total() > 1:
        ask(question(going))
    return which


async def _look(
    settings: Settings, asked: Asked, *, asks: bool
) -> tuple[Which, Counter[Destination | None]]:
    """What may be sent, and how many letters go where, if that matters. The command ends if an id
    is none, nothing matches, or the system is not well; in this order, so that who asks for what
    there is not hears that at any time."""
    async with runtime.store(settings) as store:
        filters = await asked.filters(store.letters)
        vhost = runtime.addresses(settings)[0].vhost
        looks = runtime.replay_looks(store)
        if not await looks.count(vhost, filters, limit=1):
            _nothing()
        if asked.ignore_health:
            await runtime.require_broker(settings)
        else:
            require_health(await runtime.unmet_conditions(settings, store))
        if not asks:
            return filters, Counter()
        policies = await runtime.policy_book(settings)
        return await looks.listed(
            vhost,
            filters,
            destinations(lambda: policies, asked.order.destination),
            limit=asked.selection.limit,
            ordered=asked.order.ordered_by is not None,
        )


def question(going: Counter[Destination | None]) -> str:
    """What a person is asked: how many letters, and where to."""
    letters = wording.plural(going.total(), "letter")
    ranked = sorted(going.items(), key=lambda each: (-each[1], each[0] is None, str(each[0])))
    if len(ranked) == 1 and ranked[0][0] is not None:
        return f"Send {letters} to {one_line(str(ranked[0][0]))}?"
    parts = [
        f"{number:,} to {one_line(str(there))}"
        if there is not None
        else f"{number:,} that do not tell where they failed"
        for there, number in ranked[:_MOST_NAMED]
    ]
    if len(ranked) > _MOST_NAMED:
        parts.append(f"and {len(ranked) - _MOST_NAMED:,} more")
    return f"Send {letters}: {', '.join(parts)}?"


def _nothing() -> NoReturn:
    note("no letter matches; nothing was sent")
    raise typer.Exit(NOTHING_MATCHED)


# The job


class Creates(Protocol):
    """Where jobs are made: the replays of the store."""

    async def create(
        self,
        replay_id: str,
        vhost: str,
        which: Which,
        order: ReplayOrder,
        *,
        limit: int | None = None,
        worker: str | None = None,
    ) -> Replay | None: ...


async def _create(
    settings: Settings, replays: Creates, asked: Asked, which: Which, worker: str | None
) -> Replay | None:
    return await replays.create(
        letter_id(datetime.now(UTC), secrets.randbits(74)),
        runtime.addresses(settings)[0].vhost,
        which,
        asked.order,
        limit=asked.selection.limit,
        worker=worker,
    )


async def _detach(settings: Settings, asked: Asked, which: Which) -> Replay | None:
    async with runtime.store(settings) as store:
        return await _create(settings, store.replays, asked, which, None)


def _show_detached(made: Replay | None, output: Output) -> None:
    if made is None:
        _nothing()
    if output is Output.JSON:
        print_json(replay_document(made))
    else:
        typer.echo(made.id)
    note(
        f"a worker sends {wording.plural(made.letters, 'letter')};"
        f" follow it with 'redrive replays show {made.id}'"
    )
