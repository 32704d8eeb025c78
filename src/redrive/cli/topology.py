"""`redrive topology`: Redrive's queues and exchanges on the broker, and queues that are connected.

Guarantees: `plan`, `check` and `export` change nothing; `apply` makes only what is missing;
`delete`, and what changes a queue for its users, is done only with `--yes` or after a question.
A management API that is set and does not answer is said on stderr, and the wire is asked instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive import runtime
from redrive.broker.apply import Applied
from redrive.broker.delete import Deleted, Obstacle, Permission
from redrive.broker.documents import finding_document, part_document
from redrive.broker.drift import Drift, Finding, Standing
from redrive.broker.enroll import Consideration, Unenrolled
from redrive.broker.enrollment import Intent
from redrive.broker.export import definitions, shell
from redrive.broker.site import Site
from redrive.broker.topology import Binding, Exchange, Part, Queue, describe
from redrive.cli.app import group
from redrive.cli.asking import ask
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import print_json

if TYPE_CHECKING:
    from redrive.settings import Settings

app = group("topology")

_FAILED = 1
_NOTHING_MATCHED = 3
_SIGNS = {
    Standing.SAME: "=",
    Standing.MISSING: "+",
    Standing.DIFFERS: "~",
    Standing.UNKNOWN: "?",
    Standing.LEFT_OVER: "-",
}
_COUNTED = {
    Standing.SAME: "as they should be",
    Standing.MISSING: "missing",
    Standing.DIFFERS: "different",
    Standing.UNKNOWN: "unknown",
    Standing.LEFT_OVER: "left over",
}
_Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_Queues = Annotated[list[str], typer.Argument(metavar="QUEUE…", help="Names of queues.")]


class Format(StrEnum):
    """What `export` writes."""

    DEFINITIONS = "definitions"
    SHELL = "shell"


@asynccontextmanager
async def _site(settings: Settings, *, fall_back: bool = True) -> AsyncIterator[Site]:
    connection = await runtime.connect(settings, "redrive topology")
    try:
        site = Site(settings, connection, runtime.management(settings))
        if fall_back:
            site, error = await site.without_silent_management()
            if error is not None:
                _note(f"{error}; asking the broker itself, which does not tell everything")
        yield site
    finally:
        await connection.close()


# Plan, check, apply


@app.command()
@invoked
def plan(
    invocation: Invocation,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list what is as it should be.")
    ] = False,
) -> None:
    """Show how the broker differs from what the settings ask for. Changes nothing."""
    drift = runtime.run_async(_drift(invocation.load().settings))
    _show(drift, invocation.output, everything=everything)


@app.command()
@invoked
def check(invocation: Invocation) -> None:
    """Exit 1 if the broker differs from what the settings ask for. Changes nothing."""
    drift = runtime.run_async(_drift(invocation.load().settings))
    _show(drift, invocation.output)
    if not drift.clean:
        raise typer.Exit(_FAILED)


async def _drift(settings: Settings) -> Drift:
    async with _site(settings) as site:
        return await site.drift()


@app.command("apply")
@invoked
def apply_(invocation: Invocation) -> None:
    """Make what is missing on the broker. What exists is never changed."""
    applied = runtime.run_async(_apply(invocation.load().settings))
    if invocation.output is Output.JSON:
        print_json(
            {
                "made": [part_document(part) for part in applied.made],
                "assured": [part_document(part) for part in applied.assured],
                "differing": [finding_document(finding) for finding in applied.differing],
                "heldBack": [part_document(part) for part in applied.held_back],
            }
        )
    else:
        _show_applied(applied)
    if not applied.complete:
        raise typer.Exit(_FAILED)


async def _apply(settings: Settings) -> Applied:
    async with _site(settings) as site:
        return await site.apply()


def _show_applied(applied: Applied) -> None:
    for part in applied.made:
        typer.echo(f"+ {_line(part)}")
    for finding in applied.differing:
        _show_finding(finding)
    for binding in applied.held_back:
        typer.echo(f"  {_line(binding)} (not made: see above)")
    assured = f", {len(applied.assured)} bindings assured" if applied.assured else ""
    if applied.made or applied.assured:
        typer.echo(f"{len(applied.made)} made{assured}")
    elif applied.complete:
        typer.echo("nothing to do: the broker has it all")
    _say_how_to_migrate(applied.differing)


# Export


@app.command()
@invoked
def export(
    invocation: Invocation,
    *,
    format_: Annotated[
        Format,
        typer.Option(
            "--format", help="A definitions.json, or a script that has rabbitmqctl import it."
        ),
    ] = Format.DEFINITIONS,
) -> None:
    """Write the topology for other tools. Asks no broker."""
    settings = invocation.load().settings
    topology = describe(settings.topology, settings.queue)
    vhost = runtime.addresses(settings)[0].vhost
    if format_ is Format.SHELL:
        if invocation.output is Output.JSON:
            raise typer.BadParameter("a script is not JSON: leave out --output json")
        typer.echo(shell(topology, vhost), nl=False)
    else:
        print_json(definitions(topology, vhost))


# Delete


@app.command("delete")
@invoked
def delete_(
    invocation: Invocation,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME…]", help="Only these queues and exchanges; else all."),
    ] = None,
    *,
    yes: _Yes = False,
    even_with_messages: Annotated[
        bool, typer.Option("--even-with-messages", help="Delete the messages in them, too.")
    ] = False,
    even_if_used: Annotated[
        bool,
        typer.Option("--even-if-used", help="Even if queues of yours dead-letter into them."),
    ] = False,
) -> None:
    """Delete Redrive's queues and exchanges. Yours stay."""
    settings = invocation.load().settings
    if not yes:
        ask(
            "Delete Redrive's queues and exchanges?" if not names else f"Delete {', '.join(names)}?"
        )
    permission = Permission(
        names=tuple(names or ()), even_with_messages=even_with_messages, even_if_used=even_if_used
    )
    deleted = runtime.run_async(_delete(settings, permission))
    if invocation.output is Output.JSON:
        print_json(
            {
                "deleted": [part_document(part) for part in deleted.deleted],
                "left": [_obstacle_document(obstacle) for obstacle in deleted.left],
                "refused": [_obstacle_document(obstacle) for obstacle in deleted.refused],
                "lost": deleted.lost,
            }
        )
    else:
        _show_deleted(deleted)
    if deleted.refused:
        _note(
            "nothing was deleted; empty and free what is named above, or give --even-with-messages"
            " or --even-if-used"
        )
    if deleted.refused or any(not obstacle.part.users for obstacle in deleted.left):
        raise typer.Exit(_FAILED)


async def _delete(settings: Settings, permission: Permission) -> Deleted:
    async with _site(settings) as site:
        unknown = site.not_ours(permission.names)
        if unknown:
            raise typer.BadParameter(
                f"{', '.join(sorted(unknown))}: not a queue or exchange of Redrive's"
            )
        if site.management is None and not permission.even_if_used:
            _note(
                "without the management API nobody sees whether queues still dead-letter here, nor"
                " which queues stand beside those of handlers"
            )
        return await site.delete(permission)


def _show_deleted(deleted: Deleted) -> None:
    for part in deleted.deleted:
        typer.echo(f"- {_line(part, arguments=False)}")
    for obstacle in (*deleted.left, *deleted.refused):
        typer.echo(f"  {_line(obstacle.part, arguments=False)} stays: {obstacle.reason}")
    if not deleted.refused:
        lost = f", with {deleted.lost} messages" if deleted.lost else ""
        typer.echo(f"{len(deleted.deleted)} deleted{lost}")


# Enroll


@app.command()
@invoked
def enroll(
    invocation: Invocation,
    queues: _Queues,
    *,
    bind_exchange: Annotated[
        bool,
        typer.Option(
            "--bind-exchange",
            help="Leave where they dead-letter to; have Redrive's retry queue listen there.",
        ),
    ] = False,
    yes: _Yes = False,
) -> None:
    """Connect existing queues: what they dead-letter is retried. All of them, or none."""
    settings = invocation.load().settings
    intents = runtime.run_async(_enroll(settings, queues, bind_exchange=bind_exchange, yes=yes))
    if invocation.output is Output.JSON:
        print_json({"items": [_intent_document(intent) for intent in intents]})
        return
    for intent in intents:
        typer.echo(f"enrolled {intent.queue}: {_how(intent)}")


async def _enroll(
    settings: Settings, queues: list[str], *, bind_exchange: bool, yes: bool
) -> tuple[Intent, ...]:
    async with _site(settings, fall_back=False) as site:
        enroller = site.enroller()
        considered = await enroller.consider(
            list(dict.fromkeys(queues)), bind_exchange=bind_exchange
        )
        _refuse_or_ask(considered, yes=yes)
        await enroller.enroll(considered.intents)
        return considered.intents


def _refuse_or_ask(considered: Consideration, *, yes: bool) -> None:
    for refusal in considered.refusals:
        _note(f"{refusal.queue}: {refusal.reason}")
    if considered.refusals:
        _note("no queue was enrolled")
        raise typer.Exit(_FAILED)
    for intent in considered.intents:
        for text in (*intent.warnings, *intent.consents):
            _note(f"{intent.queue}: {text}")
    if any(intent.consents for intent in considered.intents) and not yes:
        ask("Enroll all the same?")


def _how(intent: Intent) -> str:
    by = [f"{binding.exchange} → {binding.queue}" for binding in intent.bindings]
    if intent.policy is not None:
        merged = f" (merged with {intent.base!r})" if intent.base else ""
        by.insert(0, f"policy {intent.policy.name!r}{merged}")
    return ", ".join(by)


@app.command()
@invoked
def unenroll(invocation: Invocation, queues: _Queues, *, yes: _Yes = False) -> None:
    """Take back what enroll did: the policy and the bindings. What was before is in force again."""
    settings = invocation.load().settings
    outcomes = runtime.run_async(_unenroll(settings, list(dict.fromkeys(queues)), yes=yes))
    undone = [outcome for outcome in outcomes if outcome.policy or outcome.bindings]
    if invocation.output is Output.JSON:
        items = [
            {"queue": one.queue, "policy": one.policy, "bindings": one.bindings} for one in undone
        ]
        print_json({"items": items})
    else:
        for outcome in undone:
            typer.echo(f"unenrolled {outcome.queue}")
    for outcome in outcomes:
        if outcome not in undone:
            _note(f"{outcome.queue}: was not enrolled")
    if not undone:
        raise typer.Exit(_NOTHING_MATCHED)


async def _unenroll(settings: Settings, queues: list[str], *, yes: bool) -> list[Unenrolled]:
    async with _site(settings, fall_back=False) as site:
        enroller = site.enroller()
        enrolled = [queue for queue in queues if await enroller.is_enrolled(queue)]
        waiting = await site.waiting() if enrolled else {}
        if waiting:
            where = ", ".join(f"{ready} in {queue}" for queue, ready in waiting.items())
            _note(
                f"messages wait to come back to their queues: {where}. What"
                f" {', '.join(enrolled)} rejects of them is not retried any more, and dropped where"
                " no other dead letter exchange is in force: let them come back first"
            )
            if not yes:
                ask("Unenroll all the same?")
        return [await enroller.unenroll(queue) for queue in queues]


# What people see


def _note(text: str) -> None:
    typer.echo(f"redrive: {text}", err=True)


def _show(drift: Drift, output: Output, *, everything: bool = False) -> None:
    if output is Output.JSON:
        findings = [finding_document(finding) for finding in drift.findings]
        print_json({"clean": drift.clean, "exact": drift.exact, "items": findings})
        return
    unread = [
        finding for finding in drift.of(Standing.UNKNOWN) if isinstance(finding.part, Binding)
    ]
    for finding in drift.findings:
        hidden = finding.standing is Standing.SAME or finding in unread
        if everything or not hidden:
            _show_finding(finding)
    counts = [f"{len(found)} {_COUNTED[one]}" for one in Standing if (found := drift.of(one))]
    typer.echo(", ".join(counts))
    if unread:
        _note(f"{len(unread)} bindings are unknown: only the management API can read them")
    _say_how_to_migrate(drift.of(Standing.DIFFERS))
    if drift.of(Standing.MISSING):
        _note("'redrive topology apply' makes what is missing")
    if drift.of(Standing.LEFT_OVER):
        _note(
            "nobody reads what is left over: move its messages, then 'redrive topology delete' it"
        )


def _show_finding(finding: Finding) -> None:
    full = finding.standing is Standing.MISSING
    note = f" ({finding.note})" if finding.note else ""
    typer.echo(f"{_SIGNS[finding.standing]} {_line(finding.part, arguments=full)}{note}")
    for difference in finding.differences:
        typer.echo(f"      {difference}")


def _say_how_to_migrate(differing: tuple[Finding, ...]) -> None:
    ours, foreign, ruled = [], [], []
    for finding in differing:
        part = finding.part
        if isinstance(part, Binding):
            continue
        if all("by the policy" in difference.what for difference in finding.differences):
            ruled.append(part.name)
        elif isinstance(part, Queue) and not part.users:
            ours.append(part.name)
        else:
            foreign.append(part.name)
    if ruled:
        _note(f"a policy of the broker harms {', '.join(ruled)}; narrow the policy's pattern")
    if ours:
        names = " ".join(ours)
        _note(
            "a broker cannot change a queue: stop 'redrive run', empty the queue, then 'redrive"
            f" topology delete {names}' and 'redrive topology apply'; or set the settings to what"
            " the broker has"
        )
    if foreign:
        _note(
            f"{', '.join(foreign)} may be somebody else's; choose other names in the settings, or"
            " delete it yourself and run 'redrive topology apply'"
        )


def _line(part: Part, *, arguments: bool = True) -> str:
    match part:
        case Exchange():
            more = part.kind
        case Queue():
            more = ", ".join(f"{key}={value}" for key, value in part.arguments.items())
        case Binding():
            more = ""
    return f"{part} ({more})" if more and arguments else str(part)


def _obstacle_document(obstacle: Obstacle) -> dict[str, Any]:
    return {**part_document(obstacle.part), "reason": obstacle.reason}


def _intent_document(intent: Intent) -> dict[str, Any]:
    return {
        "queue": intent.queue,
        "policy": intent.policy.name if intent.policy else None,
        "mergedPolicy": intent.base,
        "definition": dict(intent.policy.definition) if intent.policy else None,
        "bindings": [part_document(binding) for binding in intent.bindings],
        "warnings": [*intent.warnings, *intent.consents],
    }
