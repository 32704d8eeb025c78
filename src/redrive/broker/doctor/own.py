"""Checks of Redrive's own: its topology, the queues that it was given, its permissions; and of the
plugin that it replaces."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from redrive.broker import drift as drifting
from redrive.broker.doctor import advice
from redrive.broker.doctor.finding import Command, Finding, Kind, Severity, Subject
from redrive.broker.doctor.routes import DELAYED_TYPE, Routes
from redrive.broker.doctor.view import View
from redrive.broker.drift import Standing
from redrive.broker.enrollment import POLICY_PREFIX
from redrive.broker.topology import DELIVERY_LIMIT, Binding, Exchange, Part, Queue, return_key

_SHOWN: Final = 4
_BY_POLICY: Final = " by the policy "


# The topology


def topology(view: View, routes: Routes) -> Iterator[Finding]:
    """Redrive's queues, exchanges and bindings as the settings describe them."""
    missing = view.drift.of(Standing.MISSING)
    if missing:
        yield _missing(view, [finding.part for finding in missing])
    for finding in view.drift.of(Standing.DIFFERS):
        yield _different(view, finding)
    for finding in view.drift.of(Standing.LEFT_OVER):
        yield _left_over(view, finding)


def _missing(view: View, parts: list[Part]) -> Finding:
    here = [part for part in view.topology.parts() if part not in parts]
    untouched = not any(isinstance(part, Queue | Exchange) for part in here)
    if untouched:
        severity = Severity.NOTE
        reason = "Redrive's queues and exchanges are not on this broker yet."
    else:
        severity = Severity.CRITICAL
        named = [_named(part) for part in parts[:_SHOWN]]
        more = f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
        reason = (
            f"Redrive's topology lacks {', '.join(named)}{more}: messages on their way there are"
            " dropped or stay."
        )
    return Finding(
        check="topology",
        severity=severity,
        subject=Subject(Kind.BROKER, view.vhost),
        reason=reason,
        commands=(advice.APPLY,),
    )


def _different(view: View, finding: drifting.Finding) -> Finding:
    part = finding.part
    assert not isinstance(part, Binding)
    kind = Kind.QUEUE if isinstance(part, Queue) else Kind.EXCHANGE
    differences = "; ".join(str(each) for each in finding.differences) or finding.note
    ruled = bool(finding.differences) and all(
        _BY_POLICY in each.what for each in finding.differences
    )
    if ruled:
        said, commands = _freed(view, part.name, finding)
    elif part.users:
        said, commands = "It is yours: make it anew as the settings say, or change them.", ()
    else:
        said = "Stop 'redrive run' and empty it first; or change the settings to what is there."
        names = shlex.quote(part.name)
        commands = (Command(f"redrive topology delete {names} --yes"), advice.APPLY)
    return Finding(
        check="topology",
        severity=Severity.WARNING,
        subject=Subject(kind, part.name),
        reason=f"It is not as Redrive needs it: {differences}.",
        advice=said,
        commands=commands,
    )


def _freed(view: View, name: str, finding: drifting.Finding) -> tuple[str, tuple[Command, ...]]:
    """A policy of its own for a queue that somebody's pattern caught by accident."""
    queue = view.queues.get(name)
    harmful = {each.what.split(_BY_POLICY)[0] for each in finding.differences}
    if queue is None or queue.kind != "quorum":
        return "Narrow the pattern of that policy, so that it does not match this queue.", ()
    if not any(policy.name == queue.live.policy_name for policy in view.policies):
        return "It is an operator policy: let an administrator narrow its pattern.", ()
    changes = {**dict.fromkeys(harmful), "delivery-limit": DELIVERY_LIMIT}
    said = "Narrow the pattern of that policy; or put one above it for this queue alone:"
    return said, (advice.policy_for(view, queue, changes),)


def _left_over(view: View, finding: drifting.Finding) -> Finding:
    part = finding.part
    assert isinstance(part, Queue)
    queue = view.queues.get(part.name)
    commands = [Command(f"redrive topology delete {shlex.quote(part.name)} --yes")]
    if queue is not None and queue.messages:
        first = view.names.delayed_queue.replace("{n}", "1")
        commands.insert(0, advice.move(view, part.name, first))
    return Finding(
        check="topology",
        severity=Severity.WARNING if len(commands) > 1 else Severity.NOTE,
        subject=Subject(Kind.QUEUE, part.name),
        reason="It is left over from a tier that the settings no longer have: nobody reads it"
        f" ({finding.note}).",
        commands=tuple(commands),
    )


def _named(part: Part) -> str:
    match part:
        case Binding():
            return f"the binding of {part.queue} to {part.exchange} by {part.routing_key!r}"
        case Exchange():
            return f"exchange {part.name}"
        case Queue():
            return f"queue {part.name}"


# Enrolled queues


def enrolled(view: View, routes: Routes) -> Iterator[Finding]:
    """Queues that were enrolled, and no longer are in full."""
    for policy in view.policies:
        if not policy.name.startswith(POLICY_PREFIX):
            continue
        name = policy.name.removeprefix(POLICY_PREFIX)
        queue = view.queues.get(name)
        if queue is None:
            yield Finding(
                check="enrolled",
                severity=Severity.NOTE,
                subject=Subject(Kind.POLICY, policy.name),
                reason="It enrolls a queue that is no longer there.",
                commands=advice.unenroll(name),
            )
        elif queue.live.policy_name != policy.name:
            instead = f"{queue.live.policy_name!r} is" if queue.live.policy_name else "none is"
            yield Finding(
                check="enrolled",
                severity=Severity.CRITICAL,
                subject=Subject(Kind.QUEUE, name),
                reason=f"It was enrolled, but its policy is not in force; {instead}. What fails"
                " does not come to Redrive.",
                commands=advice.enroll(view, queue, "--yes"),
            )
        elif not any(
            each["source"] == view.names.return_exchange and each["routing_key"] == return_key(name)
            for each in view.bindings_to.get(name, [])
        ):
            yield Finding(
                check="enrolled",
                severity=Severity.WARNING,
                subject=Subject(Kind.QUEUE, name),
                reason=f"It is enrolled, but not bound to {view.names.return_exchange!r}: what was"
                " retried comes back only if Redrive may bind it.",
                commands=advice.enroll(view, queue),
            )


# Permissions


def permissions(view: View, routes: Routes) -> Iterator[Finding]:
    """What Redrive would do and may not."""
    if not view.lacking:
        return
    said, commands = advice.grant(view)
    yield Finding(
        check="permissions",
        severity=Severity.WARNING,
        subject=Subject(Kind.USER, view.user),
        reason="Redrive connects as this user, which lacks "
        + "; ".join(
            f"{need.permission} on {need.kind} {need.name} ({need.purpose})"
            for need in view.lacking
        )
        + ".",
        advice=said,
        commands=commands,
    )


# The plugin for delayed messages


def delayed_message_plugin(view: View, routes: Routes) -> Iterator[Finding]:
    """Its messages live in one table of one node, and RabbitMQ 4.3 has no such table any more."""
    disable = Command("rabbitmq-plugins disable rabbitmq_delayed_message_exchange")
    used = [name for name, live in view.exchanges.items() if live.kind == DELAYED_TYPE]
    for name in used:
        path = "/".join(quote(part, safe="") for part in (view.vhost, name))
        url = shlex.quote(f"{view.management_url}/api/exchanges/{path}")
        yield Finding(
            check="delayed-message-plugin",
            severity=Severity.WARNING,
            subject=Subject(Kind.EXCHANGE, name),
            reason="It needs the delayed-message plugin, which is archived: delayed messages are"
            " kept on one node without a copy, and RabbitMQ 4.3 lacks the store that it uses.",
            advice="Let its publishers use delay queues, or Redrive's retries, and wait until"
            " nothing is delayed any more; then delete it:",
            commands=(Command(f"curl -u {shlex.quote(view.user)} -X DELETE {url}"),),
        )
    if DELAYED_TYPE in view.exchange_types and not used:
        yield Finding(
            check="delayed-message-plugin",
            severity=Severity.NOTE,
            subject=Subject(Kind.BROKER, view.vhost),
            reason="The delayed-message plugin is on. It is archived and does not work on RabbitMQ"
            " 4.3; no exchange of this vhost uses it.",
            advice="If other vhosts do not use it either:",
            commands=(disable,),
        )
