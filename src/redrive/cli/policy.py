"""`redrive policy`: how often messages of a routing key are retried.

Guarantees: `list` shows everything that is configured, wherever it stands, and of each entry
whether it counts and why not. `set` and `delete` change the table `dlq_event_config` and nothing
else, and are in the audit log; running retriers follow within 5 seconds. `delete` asks first.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive import runtime
from redrive.cli.app import group
from redrive.cli.asking import ask
from redrive.cli.auditing import audited, require
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import note, print_json, print_table
from redrive.domain.policy import DEFAULT_MAX_RETRIES, PolicyEntry, refusal, slip

if TYPE_CHECKING:
    from redrive.settings import Settings

app = group("policy")

_NOTHING_MATCHED = 3


class ReturnTo(StrEnum):
    """Where a retried message goes."""

    QUEUE = "queue"
    EXCHANGE = "exchange"


@app.command("list")
@invoked
def list_(invocation: Invocation) -> None:
    """List every policy, where it stands and whether it counts."""
    from redrive.work.show import policy_document  # noqa: PLC0415  (not needed for --help)

    book = runtime.run_async(runtime.policy_book(invocation.load().settings))
    if invocation.output is Output.JSON:
        print_json({"items": [policy_document(entry) for entry in book.entries]})
        return
    print_table(
        ("NAME", "MAX RETRIES", "RETURN TO", "RETRY EXPIRED", "SOURCE", "STATE"),
        [[_cells(entry) for entry in book.entries]],
    )


@app.command("set")
@invoked
def set_(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(help="A routing key, or a pattern with * and #.")],
    *,
    max_retries: Annotated[int, typer.Option(metavar="N", help="0: no retry.")],
    return_to: Annotated[
        ReturnTo | None,
        typer.Option(help="To the queue where it failed, or to its exchange again."),
    ] = None,
    retry_expired: Annotated[
        bool | None, typer.Option(help="Also retry what expired in its queue.")
    ] = None,
) -> None:
    """Add a policy to the database, or change it; other options not given stay as they are."""
    problem = refusal(name, max_retries)
    if problem:
        raise typer.BadParameter(problem)
    settings = invocation.load().settings
    outcome = runtime.run_async(_set(settings, name, max_retries, return_to, retry_expired))
    if invocation.output is Output.JSON:
        print_json({"name": name, "maxRetries": max_retries, "outcome": outcome})
    else:
        way = f", return to {return_to.value}" if return_to else ""
        typer.echo(f"{outcome} {name}: max retries {max_retries}{way}")
    if suspect := slip(name):
        note(suspect)


async def _set(
    settings: Settings,
    name: str,
    max_retries: int,
    return_to: ReturnTo | None,
    retry_expired: bool | None,
) -> str:
    told: dict[str, Any] = {"name": name, "maxRetries": max_retries}
    if return_to is not None:
        told["returnTo"] = return_to.value
    if retry_expired is not None:
        told["retryExpired"] = retry_expired
    async with (
        runtime.store(settings, make=True) as store,
        audited(store.audit_log, "policies.set", told),
    ):
        return await runtime.set_policy(
            settings,
            name,
            max_retries,
            return_to=return_to.value if return_to else None,
            retry_expired=retry_expired,
        )


@app.command()
@invoked
def delete(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(help="The name, exactly as the list shows it.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a policy from the database, all rows of that name."""
    settings = invocation.load().settings
    if not yes:
        _ask(name)
    rows = runtime.run_async(_delete(settings, name))
    if invocation.output is Output.JSON:
        print_json({"name": name, "rows": rows})
    elif rows:
        typer.echo(f"deleted {name}: {rows} {'row' if rows == 1 else 'rows'}")
    if not rows:
        typer.echo(f"redrive: the database has no policy {name!r}", err=True)
        raise typer.Exit(_NOTHING_MATCHED)


async def _delete(settings: Settings, name: str) -> int:
    # Where the table is a team's own, there may be no store yet to note it in.
    async with runtime.store(settings, make=settings.policy_table.url is not None) as store:
        try:
            async with audited(store.audit_log, "policies.delete", {"name": name}):
                rows = await runtime.delete_policy(settings, name)
                require(rows, name)
        except LookupError:
            return 0
    return rows


def _ask(name: str) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("this deletes, and nobody is there to ask: give --yes")
    ask(f"Delete the policy {name!r}?")


def _cells(entry: PolicyEntry) -> tuple[str, ...]:
    if entry.max_retries is not None:
        retries = str(entry.max_retries)
    else:
        refused = entry.state in ("refused", "ignored")
        retries = "(none)" if refused else f"{DEFAULT_MAX_RETRIES} (default)"
    where = f"{entry.source} ({entry.place})" if entry.source != "file" else "file"
    return (
        entry.name or '""',
        retries,
        entry.return_to,
        "yes" if entry.retry_expired else "no",
        where,
        f"{entry.state} {entry.reason}".rstrip(),
    )
