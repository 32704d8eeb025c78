"""`redrive doctor`: what on the broker loses, blocks or forgets dead messages, and what mends it.

Guarantees: nothing on the broker is changed. What could not be looked at is said. Commands are
printed on one line each, never cut or broken, so that they can be copied.

Exit: 0 if there is nothing or only notes, 1 if there are warnings or worse (or the broker, or a
management API that is set, cannot be reached), 2 wrong use, 3 if queues are named and there are
none.
"""

from __future__ import annotations

import re
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from redrive import runtime
from redrive.broker.doctor.checks import diagnose, only
from redrive.broker.doctor.finding import Alike, Finding, Severity, Unseen, alike
from redrive.cli.app import single
from redrive.cli.filters import NOTHING_MATCHED
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import console, note, one_line, print_json
from redrive.cli.wording import plural
from redrive.domain import globs

if TYPE_CHECKING:
    from rich.console import Console

    from redrive.broker.doctor.view import View

app = single("doctor")

_FAILED: Final = 1
_INDENT: Final = "  "
_STYLES: Final = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_NAMES_SHOWN: Final = 8
_COMMANDS_SHOWN: Final = 3
_NAMES_IN_COMMAND: Final = 20
_WIDEST: Final = 100
_VERSION: Final = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.\d{1,3})?")


@app.command()
@invoked
def doctor(
    invocation: Invocation,
    queues: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUEUE…]", help="Only these queues; * and ? are wildcards."),
    ] = None,
    *,
    target_version: Annotated[
        str | None,
        typer.Option(metavar="X.Y", help="Also say what an upgrade to this version changes."),
    ] = None,
) -> None:
    """Find what loses, blocks or forgets dead messages, and say what mends it.

    Changes no queue, exchange or policy.
    """
    target = _version(target_version)
    settings = invocation.load().settings
    from redrive.cli.logs import silence_logs  # noqa: PLC0415  (not needed for --help)

    silence_logs()
    view = runtime.run_async(runtime.look_at_broker(settings, target))
    findings = diagnose(view, target)
    if queues:
        if not any(globs.matching(pattern, view.queues) for pattern in queues):
            unknown = "" if view.complete else "; only the management API lists your queues"
            note(f"there is no queue {' or '.join(queues)}{unknown}")
            raise typer.Exit(NOTHING_MATCHED)
        findings = only(findings, queues)
    if invocation.output is Output.JSON:
        print_json(_document(view, findings))
    else:
        _show(view, findings)
    missed = not view.complete and settings.broker.management_url is not None
    if missed or _has_problems(findings):
        raise typer.Exit(_FAILED)


def _has_problems(findings: list[Finding]) -> bool:
    return any(finding.severity.is_problem for finding in findings)


def _version(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"--target-version: expected a version such as 4.3, got {text!r}")
    return int(found[1]), int(found[2])


# For programs


def _document(view: View, findings: list[Finding]) -> dict[str, Any]:
    return {
        "broker": {
            "version": view.full_version,
            "vhost": view.vhost,
            "user": view.user,
            "queues": len(view.queues),
        },
        "healthy": _healthy(view, findings),
        "items": [_finding_document(finding) for finding in findings],
        "notLookedAt": [
            {"what": each.what, "why": each.why, "remedy": each.remedy or None}
            for each in view.unseen
        ],
    }


def _healthy(view: View, findings: list[Finding]) -> bool | None:
    """None if nothing was found, and not everything looked at."""
    if _has_problems(findings):
        return False
    return True if view.complete else None


def _finding_document(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "severity": finding.severity.value,
        "object": {"kind": finding.subject.kind.value, "name": finding.subject.name},
        "reason": finding.reason,
        "advice": finding.advice or None,
        "commands": [str(command) for command in finding.commands],
    }


# For people


def _show(view: View, findings: list[Finding]) -> None:
    out = console()
    for group in alike(findings):
        _show_alike(out, group)
    for unseen in view.unseen:
        _show_unseen(out, unseen)
    counts = [
        plural(number, severity.value, severity.value if severity is Severity.CRITICAL else None)
        for severity in Severity
        if (number := sum(finding.severity is severity for finding in findings))
    ]
    seen = plural(len(view.queues), "queue") if view.complete else "Redrive's own queues only"
    said = ", ".join(counts) or ("nothing to report" if view.complete else "nothing found so far")
    out.print(f"{said} (RabbitMQ {view.full_version}, vhost {one_line(view.vhost)}, {seen})")


def _show_alike(out: Console, group: Alike) -> None:
    from rich.text import Text  # noqa: PLC0415  (slow to import)

    first = group.first
    head = Text(f"{first.severity.value:<9}", _STYLES[first.severity])
    head.append(f"{_subjects(group)}", "bold")
    head.append(f"  [{first.check}]", "dim")
    _print_line(out, head)
    for text in (first.reason, first.advice):
        if text:
            _print_paragraph(out, text)
    shown, left = group.commands(most=_COMMANDS_SHOWN, names=_NAMES_IN_COMMAND)
    for commands in shown:
        for command in commands:
            _print_line(out, Text(f"{_INDENT}$ {one_line(str(command))}"))
    if left:
        _print_paragraph(out, f"and likewise for the other {left:,}: --output json has them all")
    out.print()


def _subjects(group: Alike) -> str:
    names = [one_line(each.subject.name) for each in group.findings]
    kind = group.first.subject.kind.value
    if len(names) == 1:
        return f"{'vhost' if kind == 'broker' else kind} {names[0]}"
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return f"{plural(len(names), kind)}: {shown}{more}"


def _show_unseen(out: Console, unseen: Unseen) -> None:
    from rich.text import Text  # noqa: PLC0415

    _print_line(out, Text("not seen ", "magenta") + Text(unseen.what, "bold"))
    remedy = f"; {unseen.remedy}" if unseen.remedy else ""
    _print_paragraph(out, f"{unseen.why}{remedy}.")
    out.print()


def _print_paragraph(out: Console, text: str) -> None:
    """Wrapped between words for a terminal; outside one, a line."""
    width = min(out.width, _WIDEST) - len(_INDENT) if sys.stdout.isatty() else 1_000_000
    for line in textwrap.wrap(one_line(text), width, break_long_words=False) or [""]:
        out.print(f"{_INDENT}{line}", soft_wrap=True)


def _print_line(out: Console, text: Any) -> None:
    out.print(text, soft_wrap=True)
