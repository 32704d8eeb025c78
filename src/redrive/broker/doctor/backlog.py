"""Checks of what waits: dead letter queues that nobody reads, and delays that block each other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from redrive.broker.doctor import advice
from redrive.broker.doctor.dead_lettering import about
from redrive.broker.doctor.finding import Command, Finding, Severity
from redrive.broker.doctor.routes import Routes
from redrive.broker.doctor.view import GROWTH_OVER, SeenQueue, View
from redrive.broker.topology import MAX_TIERS
from redrive.domain.durations import format_duration


def unread(view: View, routes: Routes) -> Iterator[Finding]:
    """Dead letter queues, and Redrive's own, in which messages lie and nobody consumes."""
    read_by_retrier = _read_by_retrier(view)
    for name in sorted(routes.certain_ends | read_by_retrier):
        queue = view.queues.get(name)
        if queue is None or queue.consumers or not queue.messages:
            continue
        if queue.kind not in ("classic", "quorum") or queue.facts.exclusive:
            continue
        yield _unread(view, queue, is_retried=name in read_by_retrier)


def _read_by_retrier(view: View) -> set[str]:
    names = view.names
    delayed = (names.delayed_queue.replace("{n}", str(tier)) for tier in range(1, MAX_TIERS + 1))
    return {names.retry_queue, *delayed} & view.topology.queue_names()


def _unread(view: View, queue: SeenQueue, *, is_retried: bool) -> Finding:
    minutes = int(GROWTH_OVER.total_seconds() // 60)
    held = f"It holds {queue.messages:,} messages" if queue.messages > 1 else "It holds a message"
    grows = queue.grown is not None and queue.grown > 0
    growth = f", {queue.grown:,} more than {minutes} minutes ago" if grows else ""
    if is_retried:
        what, role = "nobody retries them", "retrier"
    else:
        what, role = "nobody consumes it", "collector"
    command = Command(f"redrive run --roles {role}")
    said = ""
    if not is_retried and not view.is_collected(queue.name):
        queues = ",".join([*view.collected, queue.name])
        command = Command(f"REDRIVE_COLLECTOR__QUEUES={advice.quoted(queues)} {command.text}")
        said = (
            f"See why they died with 'redrive peek {advice.quoted(queue.name)}'. The collector"
            " keeps them as letters, to be fixed and replayed ([collector] queues):"
        )
    return Finding(
        check="unread",
        severity=Severity.WARNING if grows or is_retried else Severity.NOTE,
        subject=about(queue),
        reason=f"{held}{growth}, and {what}.",
        advice=said,
        commands=(command,),
    )


def mixed_ttls(view: View, routes: Routes) -> Iterator[Finding]:
    """A message leaves a queue by its TTL only at the front: short delays wait behind long."""
    for name, waiting in view.waiting.items():
        queue = view.queues[name]
        longest, blocked = _blocked(waiting.ttls)
        if waiting.overdue and waiting.ttls:
            what = (
                f"{_messages(waiting.overdue)} had waited long enough and stood behind one that"
                f" waits {_span(longest)}; this look has let them go."
            )
        elif blocked:
            what = (
                f"{_messages(len(blocked))} to wait {_span(min(blocked))} or so, behind one that"
                f" waits {_span(longest)}."
            )
        else:
            continue
        targets = tuple(routes.targets(queue))
        yield Finding(
            check="mixed-ttls",
            severity=Severity.WARNING,
            subject=about(queue),
            reason=f"Messages leave a delay queue from the front only, and theirs differ: {what}",
            advice="Give each delay a queue of its own with one x-message-ttl, or let Redrive"
            f" retry.{' To let go now all that is in it:' if len(targets) == 1 else ''}",
            commands=(advice.move(view, name, *targets),) if len(targets) == 1 else (),
        )


def _messages(number: int) -> str:
    return "1 message" if number == 1 else f"{number:,} messages"


def _blocked(ttls: tuple[timedelta | None, ...]) -> tuple[timedelta | None, list[timedelta]]:
    """The longest wait, and the shorter ones that stand behind a longer one."""
    longest: timedelta | None = timedelta(0)
    blocked = []
    for ttl in ttls:
        if ttl is not None and (longest is None or ttl < longest):
            blocked.append(ttl)
        elif longest is not None:
            longest = ttl
    return longest, blocked


def _span(wait: timedelta | None) -> str:
    return "for ever" if wait is None else format_duration(wait)
