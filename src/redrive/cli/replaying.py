"""What `replay` and `replays resume` have in common: the health check, a job run here, its report.

Guarantees: nothing is sent while a condition does not hold, unless asked. The job outlives the
command: Ctrl-C and SIGTERM pause it after the batch in hand, a lost broker is waited for, and what
else ends the command says how to go on. The report is data and goes to stdout.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import typer

from redrive import runtime
from redrive.cli.filters import Ids, Selection
from redrive.cli.invocation import Output
from redrive.cli.rendering import Column, note, one_line, print_json, print_table
from redrive.domain.filters import Filters
from redrive.domain.lifecycle import State
from redrive.domain.replay import Replay, ReplayOrder, ReplayState
from redrive.errors import BrokerError, RedriveError, StoreError
from redrive.work.replay_report import Report, report_document

if TYPE_CHECKING:
    from redrive.settings import Settings
    from redrive.work.replay import Progress
    from redrive.work.replay_session import ReplaySession

FAILED: Final = 1
INTERRUPTED: Final = 130
_REPORT: Final = (
    Column("RESULT", whole=True),
    Column("LETTERS", right=True, whole=True),
    Column("WHY"),
)

Take = Callable[["ReplaySession", asyncio.Event], Awaitable[Replay | None]]
"""Makes a job ours, a new one or one that is there; None if there is nothing to send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks for."""

    selection: Selection
    order: ReplayOrder
    ignore_health: bool = False

    @property
    def named(self) -> bool:
        """Whether the letters were named one by one."""
        return bool(self.selection.ids)

    async def filters(self, letters: Ids) -> Filters:
        """The filters with whole ids. Who names a letter means it whatever its state is: if it
        cannot be sent, the report says why."""
        filters = await self.selection.filters(letters)
        if self.named and not filters.status:
            filters = replace(filters, status=tuple(State))
        return filters


def require_health(unmet: Sequence[str]) -> None:
    """End the command, with every reason, if the system is not well enough to send."""
    for reason in unmet:
        note(reason)
    if unmet:
        note("nothing was sent; wait until it is better, or give --ignore-health")
        raise typer.Exit(FAILED)


# Running


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job stands when the command that ran it ends."""

    report: Report
    interrupted: bool

    def code(self, *, named: bool) -> int:
        """The exit code. `named`: each letter was asked for, so each that was left out counts."""
        report, state = self.report, self.report.replay.state
        if state is not ReplayState.DONE:
            return INTERRUPTED if self.interrupted else FAILED
        skipped = report.replay.skipped
        if not report.all_went_well or (skipped and (named or not report.sent)):
            return FAILED
        return 0


async def run_here(settings: Settings, take: Take) -> Ended | None:
    """Run a job in this process until it ends, or is told to stop; None if there is none."""
    with runtime.stopped_by_signals() as stopping:
        async with runtime.store(settings) as store:
            session = await runtime.replay_session(settings, store)
            replay = await take(session, stopping)
            if replay is None:
                return None
            telling = asyncio.create_task(_tell_when(stopping))
            try:
                with _shown(replay) as view:
                    report = await session.run(
                        replay.id, stopping, on_progress=view.show, on_lost=view.lost
                    )
            except StoreError as error:
                goes_on = f"go on with 'redrive replays resume {replay.id}'"
                remedy = f"{error.remedy}; then {goes_on}" if error.remedy else goes_on
                raise RedriveError(str(error), remedy=remedy) from error
            finally:
                telling.cancel()
            return Ended(report, stopping.is_set())


async def _tell_when(stopping: asyncio.Event) -> None:
    await stopping.wait()
    note("finishing the batch in hand; a second signal ends at once")


class _Lines:
    """What a job waits for, a line each, where nobody sees a bar."""

    def __init__(self) -> None:
        self._waits_for = ""
        self._outage = ""

    def show(self, progress: Progress) -> None:
        self._outage = ""
        if progress.waits_for and progress.waits_for != self._waits_for:
            note(f"waits: {progress.waits_for}")
        self._waits_for = progress.waits_for

    def lost(self, error: BrokerError, _delay: timedelta) -> None:
        if str(error) != self._outage:  # one line for an outage, not one for every try
            self._outage = str(error)
            note(f"waits: {error}")


class _Bar(_Lines):
    """A bar, for who looks at it."""

    def __init__(self, update: Callable[[int, str], None], done: int) -> None:
        super().__init__()
        self._update = update
        self._done = done

    def show(self, progress: Progress) -> None:
        self._done = progress.done
        waits = f"waits: {progress.waits_for}" if progress.waits_for else "sending"
        self._update(progress.done, one_line(waits))

    def lost(self, error: BrokerError, _delay: timedelta) -> None:
        self._update(self._done, one_line(f"waits: {error}"))


@contextmanager
def _shown(replay: Replay) -> Iterator[_Lines]:
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console  # noqa: PLC0415  (slow to import: only on a terminal)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("sending", total=replay.letters, completed=replay.position)

        def update(done: int, text: str) -> None:
            bars.update(bar, completed=done, description=text)

        yield _Bar(update, replay.position)


# Telling


def show_ended(ended: Ended, output: Output) -> None:
    """The report, and how to go on or follow."""
    report = ended.report
    replay = report.replay
    if output is Output.JSON:
        print_json(report_document(report))
    else:
        print_report(report)
    if replay.state is ReplayState.PAUSED:
        note(f"paused: {replay.reason}; go on with 'redrive replays resume {replay.id}'")
    elif replay.state is ReplayState.CANCELLED:
        note(f"cancelled: {replay.reason}" if replay.reason else "cancelled")
    elif replay.state is ReplayState.RUNNING:
        note(f"{replay.locked_by or 'another process'} goes on with it")
    note(f"see what becomes of them with 'redrive replays show {replay.id}'")


def print_report(report: Report) -> None:
    """What was sent, and why the rest was not."""
    rows = [("sent", f"{report.sent:,}", "")]
    rows += [
        ("refused", f"{number:,}", one_line(why)) for why, number in report.refusals.most_common()
    ]
    if report.in_doubt:
        rows.append(("in doubt", f"{report.in_doubt:,}", "no answer came: they may have been sent"))
    if report.sending:
        rows.append(("sending", f"{report.sending:,}", "in doubt, unless they are on their way"))
    told = 0
    for why, number in report.left_out.most_common():
        told += number
        rows.append(("skipped", f"{number:,}", one_line(why)))
    if report.replay.skipped > told:
        rows.append(("skipped", f"{report.replay.skipped - told:,}", "by an earlier process"))
    if report.left:
        rows.append(("left", f"{report.left:,}", "not taken yet"))
    print_table(_REPORT, [rows])
