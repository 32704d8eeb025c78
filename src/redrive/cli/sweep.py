"""`redrive sweep`: what was tried too often leaves its dead letter queue (seed 002).

Guarantees: wrong use touches nothing. A message within its limit stays where it was, one over it
is moved and acked after the confirm, or stays. Ctrl-C and SIGTERM end a pass in good order.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import structlog
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
from redrive.cli.rendering import dump_json, note, print_json
from redrive.domain import metrics
from redrive.domain.durations import parse_duration
from redrive.domain.globs import is_glob
from redrive.domain.retry_count import CountBy
from redrive.errors import BrokerError, StoreError
from redrive.work.look import Outcome
from redrive.work.sweep import Itinerary, Sweeper, SweepOrder

if TYPE_CHECKING:
    from redrive.settings import Settings

app = single("sweep")
log = structlog.get_logger()

_SHORTEST_WATCH = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Swept:
    """One pass over all queues."""

    itinerary: Itinerary
    outcomes: tuple[Outcome, ...]
    interrupted: bool = False
    not_counted: str = ""
    """Why the metrics do not know of it."""

    @property
    def not_begun(self) -> list[str]:
        """Queues that it did not come to."""
        begun = {each.queue for each in self.outcomes}
        return [leg.queue for leg in self.itinerary.legs if leg.queue not in begun]

    @property
    def code(self) -> int:
        if not all(each.is_sound for each in self.outcomes):
            return FAILED
        if not self.itinerary.legs:
            return NOTHING_MATCHED
        if not all(map(is_glob, self.itinerary.unmatched)):  # a queue that was named is not there
            return FAILED
        return INTERRUPTED if self.interrupted else 0


@app.command()
@invoked
def sweep(  # noqa: PLR0913  (each is an option)
    invocation: Invocation,
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATTERN…", help="Queues, by name or with * and ?; [sweep] queues by default."
        ),
    ] = None,
    *,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE", help="Where to; dead.* makes dead.orders of what dlq.* found."
        ),
    ] = None,
    max_retries: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="More tries than this: moved.")
    ] = None,
    max_retries_of: Annotated[
        list[str] | None,
        typer.Option(metavar="QUEUE=N", help="Another limit for some queues; or more."),
    ] = None,
    count_by: Annotated[
        CountBy | None, typer.Option(help="What tells how often a message was tried.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Move at most so many of each queue.")
    ] = None,
    create: Annotated[
        bool | None, typer.Option("--create/--no-create", help="Make a target that is missing.")
    ] = None,
    watch: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Sweep again and again, as a service.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Look and count; move and make nothing.")
    ] = False,
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
    """Move what was tried too often out of dead letter queues; what was not, stays in its order."""
    loaded = invocation.load()
    settings = loaded.settings
    given = settings.sweep
    order = SweepOrder(
        queues=tuple(dict.fromkeys(patterns or given.queues)),
        target=given.target if target is None else target,
        max_retries=given.max_retries if max_retries is None else max_retries,
        max_retries_of=_limits_of(max_retries_of or list(given.max_retries_of)),
        count_by=CountBy(given.count_by) if count_by is None else count_by,
        create=given.create if create is None else create,
        queue_type=settings.topology.queue_type,
        spend_deliveries=spend_deliveries,
        drop_oldest=drop_oldest,
        dry_run=dry_run,
        most=limit,
    )
    if not order.queues:
        raise typer.BadParameter("name the queues to sweep, or set [sweep] queues")
    if not order.target:
        raise typer.BadParameter("--target: expected the name of a queue, got nothing")
    order.check()
    every = given.watch if watch is None else _duration(watch)
    if every is None:
        _quiet()
        swept = runtime.run_async(_once(settings, order))
        _show(swept, order, invocation.output)
        raise typer.Exit(swept.code)
    from redrive.cli.logs import configure_logs  # noqa: PLC0415  (a service logs, a command shows)

    configure_logs()
    named = loaded.sources.get("store.url")
    counts = named is not None and named.kind != "default"
    runtime.run_async(_watch(settings, order, every, invocation.output, counts=counts))


def _quiet() -> None:
    from redrive.cli.logs import silence_logs  # noqa: PLC0415  (not needed for --help)

    silence_logs()


def _limits_of(texts: list[str]) -> tuple[tuple[str, int], ...]:
    found = []
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal():
            raise typer.BadParameter(
                f"--max-retries-of: expected QUEUE=N such as dlq.orders=5, got {text!r}"
            )
        found.append((name, int(number)))
    return tuple(found)


def _duration(text: str) -> timedelta:
    try:
        every = parse_duration(text.strip())
    except ValueError:
        every = timedelta()
    if every < _SHORTEST_WATCH:
        raise typer.BadParameter(f"--watch: expected a duration from 1s on, got {text!r}")
    return every


async def _once(settings: Settings, order: SweepOrder) -> _Swept:
    with runtime.stopped_by_signals(say_what_a_signal_does) as stopping:
        return await _pass(settings, order, stopping)


async def _pass(settings: Settings, order: SweepOrder, stopping: asyncio.Event) -> _Swept:
    lists = any(map(is_glob, order.queues))
    async with runtime.queue_site(settings, lists=lists) as (site, silent):
        if silent is not None:
            note(f"{silent}; the queues' types and limits are unknown")
        sweeper = Sweeper(order, site, runtime.limits(settings))
        itinerary = await sweeper.itinerary()
        outcomes = list(itinerary.refused)
        async with progress(lambda: sweeper.under_way):
            for leg in itinerary.legs:
                if stopping.is_set():
                    break
                outcomes.append(await sweeper.sweep(leg, stopping))
        swept = _Swept(itinerary, tuple(outcomes), stopping.is_set())
    return swept if order.dry_run else replace(swept, not_counted=await _count(settings, swept))


async def _count(settings: Settings, swept: _Swept) -> str:
    """For the metrics, if there is a store; a sweep needs none. Why it was not done, or nothing."""
    counts = {
        (metrics.SWEEPS.name, ""): len(swept.outcomes),
        (metrics.SWEPT.name, "moved"): sum(each.moved for each in swept.outcomes),
        (metrics.SWEPT.name, "left"): sum(each.left for each in swept.outcomes),
        (metrics.SWEPT.name, "failed"): sum(each.failed for each in swept.outcomes),
    }
    try:
        async with runtime.store(settings) as store:
            await store.counts.add(counts)
    except StoreError as error:
        return str(error)
    return ""


async def _watch(
    settings: Settings, order: SweepOrder, every: timedelta, output: Output, *, counts: bool
) -> None:
    """`counts` if a store is named: else nobody expects that it is counted."""
    not_counted = ""
    with runtime.stopped_by_signals() as stopping:
        while not stopping.is_set():
            try:
                swept = await _pass(settings, order, stopping)
            except BrokerError as error:
                log.warning("sweep.unavailable", error=str(error), remedy=error.remedy)
            else:
                _log(swept)
                if counts and swept.not_counted not in ("", not_counted):  # one line for an outage
                    log.warning("sweep.not_counted", error=swept.not_counted)
                not_counted = swept.not_counted
                if output is Output.JSON:
                    sys.stdout.write(dump_json(_document(swept, order)) + "\n")
                    sys.stdout.flush()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), every.total_seconds())


def _log(swept: _Swept) -> None:
    for pattern in swept.itinerary.unmatched:
        log.warning("sweep.nothing_matched", pattern=pattern)
    for each in swept.outcomes:
        write = log.info if each.is_sound else log.error
        write(
            "sweep.done" if each.is_sound else "sweep.failed",
            queue=each.queue,
            target=each.target,
            examined=each.examined,
            moved=each.moved,
            left=each.left,
            failed=each.failed,
            notes=each.notes,
            error=each.error or None,
            remedy=each.remedy or None,
        )


def _show(swept: _Swept, order: SweepOrder, output: Output) -> None:
    if output is Output.JSON:
        print_json(_document(swept, order))
    elif swept.outcomes:
        show_outcomes(swept.outcomes, dry_run=order.dry_run)
    say(swept.outcomes)
    if swept.not_begun:
        note(f"interrupted: not looked into: {', '.join(swept.not_begun)}")
    if swept.itinerary.skipped:
        note(f"left out: {', '.join(swept.itinerary.skipped)} (exclusive queues and streams)")
    for pattern in swept.itinerary.unmatched:
        kind = "matches" if is_glob(pattern) else "is called"
        note(f"no queue {kind} {pattern!r}; check the name, the vhost and your permissions")


def _document(swept: _Swept, order: SweepOrder) -> dict[str, object]:
    return {
        "dryRun": order.dry_run,
        "interrupted": swept.interrupted,
        "items": [outcome_document(each, dry_run=order.dry_run) for each in swept.outcomes],
        "unmatched": list(swept.itinerary.unmatched),
        "skipped": list(swept.itinerary.skipped),
        "notBegun": swept.not_begun,
    }
