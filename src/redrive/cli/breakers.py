"""`redrive breakers`: which destinations are held back because everything fails there.

Guarantees: `force` holds until `release`, whatever happens; beneath it the breaker goes on
counting, and `release` gives it back to what it would be. Every process follows with its next
letter. Both are in the audit log.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.app import group
from redrive.cli.auditing import audited
from redrive.cli.filters import NOTHING_MATCHED
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import Cell, Column, Marked, note, one_line, print_json, print_table
from redrive.domain.breaker import Breaker, Position
from redrive.domain.filters import Filters
from redrive.errors import BrokerError
from redrive.work.show import breaker_document

if TYPE_CHECKING:
    from redrive.settings import Settings

app = group("breakers")

_COLUMNS: Final = (
    Column("QUEUE", cut=True),
    Column("BREAKER", whole=True),
    Column("FAILURES", right=True, whole=True),
    Column("OPENED", whole=True),
    Column("NEXT PROBE", whole=True),
)
_STYLES: Final = {Position.CLOSED: "green", Position.OPEN: "bold red", Position.HALF_OPEN: "yellow"}
_Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The destination.")]


class Forced(StrEnum):
    """What a breaker can be forced to."""

    OPEN = "open"
    CLOSED = "closed"


@app.command("list")
@invoked
def list_(invocation: Invocation) -> None:
    """List the breakers of destinations where something failed lately, or that are forced."""
    found = runtime.run_async(_all(invocation.load().settings))
    if invocation.output is Output.JSON:
        print_json(
            {"items": [breaker_document(queue, breaker) for queue, breaker in found.items()]}
        )
    elif found:
        now = datetime.now(UTC)
        print_table(_COLUMNS, [[_row(queue, each, now) for queue, each in found.items()]])
    if not found:
        note("nothing failed lately, so no breaker has anything to tell")
        raise typer.Exit(NOTHING_MATCHED)


async def _all(settings: Settings) -> dict[str, Breaker]:
    vhost = runtime.addresses(settings)[0].vhost
    async with runtime.store(settings) as store:
        return {
            each.queue: each.breaker for each in await store.breakers.all() if each.vhost == vhost
        }


@app.command()
@invoked
def force(
    invocation: Invocation,
    queue: _Queue,
    position: Annotated[
        Forced, typer.Argument(help="open: nothing is sent there; closed: everything is.")
    ],
) -> None:
    """Hold a breaker open or closed, whatever happens, until 'release'."""
    settings = invocation.load().settings
    forced = runtime.run_async(_force(settings, queue, Position(position)))
    _show(queue, forced, invocation.output)
    if runtime.run_async(_is_unknown(settings, queue)):
        note(f"no letter is of {queue!r}, and the broker has no such queue: is the name right?")
        note(f"take it back with 'redrive breakers release {shlex.quote(queue)}'")


@app.command()
@invoked
def release(invocation: Invocation, queue: _Queue) -> None:
    """Let a breaker be what it would be by itself."""
    settings = invocation.load().settings
    if queue not in runtime.run_async(_all(settings)):
        note(f"there is no breaker of {queue!r}")
        raise typer.Exit(NOTHING_MATCHED)
    _show(queue, runtime.run_async(_force(settings, queue, None)), invocation.output)


async def _force(settings: Settings, queue: str, position: Position | None) -> Breaker:
    action, told = "breakers.release", {"queue": queue}
    if position is not None:
        action, told = "breakers.force", {**told, "position": position.value}
    async with runtime.store(settings) as store, audited(store.audit_log, action, told):
        return await store.breakers.force(runtime.addresses(settings)[0].vhost, queue, position)


async def _is_unknown(settings: Settings, queue: str) -> bool:
    """Whether nobody knows a queue of that name; False where the broker does not tell."""
    async with runtime.store(settings) as store:
        if await store.decisions.count(Filters(queue=queue), 1):
            return False
    try:
        async with runtime.queue_site(settings) as (site, _):
            return await site.is_missing(queue)
    except BrokerError:
        return False


def _show(queue: str, breaker: Breaker, output: Output) -> None:
    if output is Output.JSON:
        print_json(breaker_document(queue, breaker))
    else:
        print_table(_COLUMNS, [[_row(queue, breaker, datetime.now(UTC))]])


def _row(queue: str, breaker: Breaker, now: datetime) -> tuple[Cell, ...]:
    position = breaker.forced or breaker.state
    word = position.value.replace("_", "-") + (", forced" if breaker.forced else "")
    probe = None if breaker.forced else breaker.next_probe_at()
    return (
        one_line(queue),
        Marked(word, _STYLES[position]),
        f"{breaker.failures:,}",
        "-" if breaker.opened_at is None else wording.ago(breaker.opened_at, now),
        "-" if probe is None else "now" if probe <= now else wording.relative(probe, now),
    )
