"""`redrive alerts`: how alerts stand, whether sinks can be reached, and silences.

Guarantees: `test` sends a message that says it is a test, at once and from here, to every sink that
the alert has, and exits 1 if one of them did not take it. A silence hides messages, nothing else,
and is in the audit log.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.actor import actor
from redrive.cli.app import group
from redrive.cli.auditing import audited
from redrive.cli.filters import NOTHING_MATCHED
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import Cell, Column, Marked, note, one_line, print_json, print_table
from redrive.domain.alerting import LONGEST_SILENCE, Phase, Rule, Telling, Told
from redrive.domain.durations import format_duration, parse_duration
from redrive.errors import OrderRefused, SinkFailed

if TYPE_CHECKING:
    from redrive.settings import Settings

app = group("alerts")

_FAILED: Final = 1
_COLUMNS: Final = (
    Column("ALERT", whole=True),
    Column("SEVERITY", whole=True),
    Column("PHASE", whole=True),
    Column("SINCE", whole=True),
    Column("VALUE", right=True, whole=True),
    Column("CONDITION", cut=True),
)
_STYLES: Final = {Phase.FIRING: "bold red", Phase.PENDING: "yellow", Phase.QUIET: "green"}
_Alert = Annotated[str, typer.Argument(metavar="NAME", help="The alert.")]


@app.command("list")
@invoked
def list_(invocation: Invocation) -> None:
    """List every alert and how it stands, those that fire first."""
    found = runtime.run_async(_list(invocation.load().settings))
    if invocation.output is Output.JSON:
        print_json(found)
        return
    now = datetime.now(UTC)
    print_table(_COLUMNS, [[_row(item, now) for item in found["items"]]])
    if not any(item["judgedAt"] for item in found["items"]):
        note("nobody has judged them yet: 'redrive run' does, with the role janitor")
    for waiting in found["waiting"]:
        why = f": {waiting['error']}" if waiting["error"] else ""
        note(
            f"sink {waiting['sink']} has not taken"
            f" {wording.plural(waiting['messages'], 'message')} yet{why}"
        )


async def _list(settings: Settings) -> dict[str, Any]:
    from redrive.settings.alerts import rules_by  # noqa: PLC0415
    from redrive.work.alert_list import list_alerts  # noqa: PLC0415

    async with runtime.store(settings) as store:
        return await list_alerts(store, rules_by(settings.alert))


def _row(item: dict[str, Any], now: datetime) -> tuple[Cell, ...]:
    phase = Phase(item["phase"])
    silenced = ", silenced" if item["silence"] else ""
    since = item["since"] and datetime.fromisoformat(item["since"])
    return (
        item["name"],
        item["severity"],
        Marked(phase.value + silenced, _STYLES[phase]),
        wording.ago(since, now) if since and phase is not Phase.QUIET else "-",
        "-" if item["value"] is None else f"{item['value']:,.4g}",
        one_line(item["condition"]),
    )


@app.command()
@invoked
def test(invocation: Invocation, name: _Alert) -> None:
    """Send a test message of an alert to its sinks, now; exit 1 if one does not take it."""
    from redrive.cli.logs import configure_logs  # noqa: PLC0415  (the log is one of the sinks)

    configure_logs()
    settings = invocation.load().settings
    outcomes = runtime.run_async(_test(settings, _rule(settings, name)))
    if invocation.output is Output.JSON:
        print_json({"items": [{"sink": sink, "error": error} for sink, error in outcomes]})
    else:
        rows = [
            (sink, Marked("sent", "green") if error is None else Marked(one_line(error), "red"))
            for sink, error in outcomes
        ]
        print_table((Column("SINK", whole=True), Column("OUTCOME", cut=True)), [rows])
    if any(error is not None for _, error in outcomes):
        raise typer.Exit(_FAILED)


def _rule(settings: Settings, name: str) -> Rule:
    from redrive.settings.alerts import rules_by  # noqa: PLC0415

    rules = {rule.name: rule for rule in rules_by(settings.alert)}
    if name not in rules:
        raise OrderRefused(
            f"there is no alert {name!r}", remedy=f"there are {', '.join(sorted(rules))}"
        )
    return rules[name]


async def _test(settings: Settings, rule: Rule) -> list[tuple[str, str | None]]:
    from redrive.work.alert_watch import new_message_id  # noqa: PLC0415

    async with runtime.store(settings) as store:
        now, groups = await store.alerts.at_fault()
        alerts = runtime.alerting(settings, store)
    told = Told(
        alert=rule.name,
        telling=Telling.TEST,
        severity=rule.severity,
        summary=rule.summary,
        condition=rule.condition.text,
        value=None,
        since=now,
        at=now,
        groups=groups,
    )
    document = {"id": new_message_id(now), **alerts.words.document(told)}

    async def send(name: str) -> tuple[str, str | None]:
        try:
            await alerts.sinks.by_name[name].send(document)
        except SinkFailed as error:
            return name, str(error)
        return name, None

    try:
        names = [name for name in alerts.sinks.by_name if rule.tells(name)]
        return list(await asyncio.gather(*(send(name) for name in names)))
    finally:
        alerts.sinks.close()


@app.command()
@invoked
def silence(
    invocation: Invocation,
    name: _Alert,
    *,
    lasts: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="For how long, from now on.")
    ] = "2h",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for others to see.")] = "",
    end: Annotated[bool, typer.Option("--end", help="End the silence instead.")] = False,
) -> None:
    """Tell nobody of an alert for a while; what was told to fire is still told to be resolved."""
    settings = invocation.load().settings
    _rule(settings, name)
    if end:
        if not runtime.run_async(_end(settings, name)):
            note(f"{name} was not silenced")
            raise typer.Exit(NOTHING_MATCHED)
    else:
        runtime.run_async(_silence(settings, name, _duration(lasts), reason))
    found = runtime.run_async(_list(settings))
    (item,) = (each for each in found["items"] if each["name"] == name)
    if invocation.output is Output.JSON:
        print_json(item)
    else:
        print_table(_COLUMNS, [[_row(item, datetime.now(UTC))]])


def _duration(text: str) -> timedelta:
    try:
        lasts = parse_duration(text.strip())
    except ValueError:
        lasts = timedelta()
    if not timedelta() < lasts <= LONGEST_SILENCE:
        raise typer.BadParameter(f"--for: expected a duration up to 365d, got {text!r}")
    return lasts


async def _silence(settings: Settings, name: str, lasts: timedelta, reason: str) -> None:
    told = {"name": name, "for": format_duration(lasts), "reason": reason}
    async with runtime.store(settings) as store, audited(store.audit_log, "alerts.silence", told):
        await store.alerts.silence(name, lasts, reason, actor())


async def _end(settings: Settings, name: str) -> bool:
    async with (
        runtime.store(settings) as store,
        audited(store.audit_log, "alerts.hear", {"name": name}),
    ):
        return await store.alerts.end_silence(name)
