"""`redrive move`: messages from a queue to another, or back to where each failed.

Guarantees: wrong use touches nothing. What no filter means stays where it was. A message is acked
after its copy was confirmed; what its new place does not take stays.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from redrive import runtime
from redrive.broker.looking import SPEND_DELIVERIES
from redrive.broker.room import DROP_OLDEST
from redrive.cli.app import single
from redrive.cli.filters import NOTHING_MATCHED
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.passes import (
    FAILED,
    INTERRUPTED,
    outcome_document,
    progress,
    say,
    say_what_a_signal_does,
    show_outcomes,
)
from redrive.cli.rates import read_rate
from redrive.cli.rendering import note, print_json
from redrive.domain.durations import parse_duration
from redrive.work.look import Outcome
from redrive.work.matching import MessageFilters
from redrive.work.move import MoveOrder, QueueMove

if TYPE_CHECKING:
    from redrive.settings import Settings

app = single("move")


@app.command()
@invoked
def move(  # noqa: PLR0913  (each is an option)
    invocation: Invocation,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The queue to take from.")],
    target: Annotated[
        str | None, typer.Argument(metavar="TO", help="The queue to bring them to.")
    ] = None,
    *,
    to_origin: Annotated[
        bool, typer.Option("--to-origin", help="Each to the queue where it failed, instead.")
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="With this header; wildcards in VALUE; or more."),
    ] = None,
    routing_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="With this routing key; * crosses dots.")
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Dead for this reason, such as rejected; wildcards too."),
    ] = None,
    min_age: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Failed at least so long ago: 10m.")
    ] = None,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With this text in the body.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Move at most so many.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N/s", help="Move at most so many a second.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look and count; move nothing.")] = (
        False
    ),
    spend_deliveries: Annotated[
        bool,
        typer.Option(
            SPEND_DELIVERIES, help="Look even where each look counts towards a delivery limit."
        ),
    ] = False,
    drop_oldest: Annotated[
        bool,
        typer.Option(
            DROP_OLDEST, help="Move even where a full queue drops its oldest messages for it."
        ),
    ] = False,
) -> None:
    """Move messages from a queue to another, or back to the queues where they failed."""
    if to_origin == (target is not None):
        raise typer.BadParameter("name the queue to move to, or give --to-origin; one of them")
    if search == "":
        raise typer.BadParameter("--search: expected a text to look for, got nothing")
    order = MoveOrder(
        source=source,
        target=target,
        filters=MessageFilters(
            headers=tuple(_header(each) for each in header or ()),
            routing_key=routing_key,
            reason=reason,
            failed_until=_until(min_age),
            search=search,
        ),
        most=limit,
        rate=read_rate(rate),
        spend_deliveries=spend_deliveries,
        drop_oldest=drop_oldest,
        dry_run=dry_run,
    )
    order.check()
    settings = invocation.load().settings
    from redrive.cli.logs import silence_logs  # noqa: PLC0415  (not needed for --help)

    silence_logs()
    outcome, interrupted = runtime.run_async(_move(settings, order))
    if invocation.output is Output.JSON:
        print_json(
            {
                "dryRun": dry_run,
                "interrupted": interrupted,
                **outcome_document(outcome, dry_run=dry_run),
            }
        )
    else:
        show_outcomes([outcome], dry_run=dry_run)
    say([outcome])
    if not outcome.is_sound:
        raise typer.Exit(FAILED)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if not outcome.chosen:
        note(f"no message of {source} matches" if outcome.examined else f"{source} is empty")
        raise typer.Exit(NOTHING_MATCHED)


async def _move(settings: Settings, order: MoveOrder) -> tuple[Outcome, bool]:
    with runtime.stopped_by_signals(say_what_a_signal_does) as stopping:
        async with runtime.queue_site(settings) as (site, silent):
            if silent is not None:
                note(f"{silent}; the queue's type and limits are unknown")
            names = settings.topology.names
            moving = QueueMove(order, site, names.return_exchange, runtime.limits(settings))
            async with progress(lambda: moving.under_way):
                return await moving.run(stopping), stopping.is_set()


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"--header: expected NAME=VALUE, got {text!r}")
    return name, value


def _until(min_age: str | None) -> datetime | None:
    if min_age is None:
        return None
    try:
        return datetime.now(UTC) - parse_duration(min_age.strip())
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"--min-age: expected a duration such as 10m or 2h, got {min_age!r}"
        ) from None
