"""What `replay` and `replays resume` have in common: the health check, a job run here, its report.

Guarantees: nothing is sent while a condition does not hold, unless asked. The job outlives the
command: Ctrl-C and SIGTERM pause it after the batch in hand, a lost broker is waited for, and what
else ends the command says how to go on. The report is data and goes to stdout.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.filters import Ids, Selection
from redrive.cli.invocation import Output
from redrive.cli.rendering import Column, note, one_line, print_json, print_table
from redrive.domain.breaker import Breaker, held_by
from redrive.domain.filters import Filters
from redrive.domain.lifecycle import State
from redrive.domain.replay import Replay, ReplayOrder, ReplayState
from redrive.errors import BrokerError, RedriveError, StoreError
from redrive.work.replay_report import Report, report_document

if TYPE_CHECKING:
    from redrive.settings import Settings
    from redrive.work.replay import Progress
    from redrive.work.replay_session import ReplaySession


class BreakerOf(Protocol):
    """A breaker and the queue it is of."""

    @property
    def vhost(self) -> str: ...

    @property
    def queue(self) -> str: ...

    @property
    def breaker(self) -> Breaker: ...


class Breakers(Protocol):
    """All breakers that have something to tell."""

    async def all(self) -> Sequence[BreakerOf]: ...


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
        report = self.report
        if report.replay.state is not ReplayState.DONE:
            return INTERRUPTED if self.interrupted else FAILED
        if not report.all_went_well or (named and report.replay.skipped):
            return FAILED
        return 0


@contextmanager
def nothing_sent_if_interrupted() -> Iterator[None]:
    """Around what comes before a job is made: who presses Ctrl-C then hears that it was in time."""
    try:
        yield
    except (KeyboardInterrupt, typer.Abort):
        _nothing_sent()


def _nothing_sent() -> NoReturn:
    note("interrupted; nothing was sent")
    raise typer.Exit(INTERRUPTED)


async def run_here(settings: Settings, take: Take) -> Ended | None:
    """Run a job in this process until it ends, or is told to stop; None if there is none."""
    with runtime.stopped_by_signals() as stopping:
        async with runtime.store(settings) as store:
            session = await runtime.replay_session(settings, store)
            if stopping.is_set():
                _nothing_sent()
            replay = await take(session, stopping)
            if replay is None:
                return None
            telling = asyncio.create_task(_tell_when(stopping))
            try:
                async with _shown(replay, _Hints(store.breakers, replay)) as view:
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


class Hints(Protocol):
    """Knows more of what a job waits for."""

    async def about(self, waits_for: str) -> str:
        """When it goes on, and what can be done; empty if nothing is known."""
        ...


class _Hints:
    """What the store knows of the breakers of a job's destinations."""

    def __init__(self, breakers: Breakers, replay: Replay) -> None:
        self._breakers = breakers
        self._replay = replay

    async def about(self, waits_for: str) -> str:
        try:
            known = await self._breakers.all()
        except StoreError:  # the job itself says so, if it lasts
            return ""
        for each in known:
            if each.vhost == self._replay.vhost and waits_for == held_by(each.queue):
                return breaker_hint(each.queue, each.breaker, self._replay.id)
        return ""


def breaker_hint(queue: str, breaker: Breaker, replay_id: str) -> str:
    """When a letter is tried, and what can be done before."""
    name = shlex.quote(queue)
    end = f"or end this with 'redrive replays pause {replay_id}' or 'cancel'"
    if breaker.forced is not None:
        return f"it is forced: let it go with 'redrive breakers release {name}', {end}"
    at = breaker.next_probe_at()
    when = "" if at is None else f"the next letter is tried at {wording.clock(at)}; "
    return f"{when}mended? 'redrive breakers force {name} closed'; {end}"


class Lines:
    """What a job waits for, and how far it is: a line for each change, not for each look."""

    def __init__(self, letters: int, hints: Hints) -> None:
        self._letters = letters
        self._hints = hints
        self._told = ""
        self._outage = ""
        self._telling: asyncio.Task[None] | None = None

    def show(self, progress: Progress) -> None:
        """Tell it, if there is something to tell; soon, since the store is asked first."""
        self._outage = ""
        if progress.waits_for and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell(progress.waits_for, progress.done))

    async def _tell(self, waits_for: str, done: int) -> None:
        hint = await self._hints.about(waits_for)
        line = f"waits at {done:,} of {self._letters:,}: {waits_for}" + (
            f"; {hint}" if hint else ""
        )
        if line != self._told:
            self._told = line
            note(line)

    def lost(self, error: BrokerError, _delay: timedelta) -> None:
        """The broker is away; one line for an outage, not one for every try."""
        if str(error) != self._outage:
            self._outage = str(error)
            note(f"waits: {error}")

    async def close(self) -> None:
        """Nothing more is told."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait((self._telling,))


class _Bar(Lines):
    """A bar, for who looks at it, beneath the lines."""

    def __init__(self, replay: Replay, hints: Hints, update: Callable[[int, str], None]) -> None:
        super().__init__(replay.letters, hints)
        self._update = update
        self._done = replay.position

    def show(self, progress: Progress) -> None:
        super().show(progress)
        self._done = progress.done
        waits = f"waits: {progress.waits_for}" if progress.waits_for else "sending"
        self._update(progress.done, one_line(waits))

    def lost(self, error: BrokerError, _delay: timedelta) -> None:
        self._update(self._done, one_line(f"waits: {error}"))


@asynccontextmanager
async def _shown(replay: Replay, hints: Hints) -> AsyncIterator[Lines]:
    if not sys.stderr.isatty():
        lines = Lines(replay.letters, hints)
        try:
            yield lines
        finally:
            await lines.close()
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

        shown = _Bar(replay, hints, update)
        try:
            yield shown
        finally:
            await shown.close()


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
        again = report.replay.state is ReplayState.PAUSED and report.refused
        among = "; what was refused is among them" if again else ""
        rows.append(("left", f"{report.left:,}", f"not taken yet{among}"))
    print_table(_REPORT, [rows])
    note_keyless(report.keyless, report.replay.ordered_by)


def note_keyless(keyless: int, ordered_by: str | None) -> None:
    """Say of letters that were to keep an order how many do not."""
    if keyless:
        letters = wording.plural(keyless, "letter")
        note(f"{letters} without a value at {ordered_by}: they keep no order")
