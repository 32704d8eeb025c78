"""Every check, in one table; and what all of them together say of a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from redrive.broker.doctor import advice, backlog, dead_lettering, own
from redrive.broker.doctor.finding import Finding, Kind
from redrive.broker.doctor.routes import Routes
from redrive.broker.doctor.upgrade import UPGRADE_CHECKS
from redrive.broker.doctor.view import View
from redrive.broker.looking import Version
from redrive.domain import globs

Check = Callable[[View, Routes], Iterator[Finding]]

ON_THE_WIRE: Final[tuple[Check, ...]] = (own.topology, own.permissions, backlog.unread)
"""Those that need no management API."""
CHECKS: Final[tuple[Check, ...]] = (
    own.topology,
    own.enrolled,
    own.permissions,
    dead_lettering.targets,
    dead_lettering.own_without_a_way,
    dead_lettering.wedged_by_full_targets,
    dead_lettering.delivery_limits,
    dead_lettering.without_dead_letter_exchange,
    dead_lettering.at_least_once_that_is_not,
    dead_lettering.at_most_once,
    backlog.mixed_ttls,
    backlog.unread,
    own.delayed_message_plugin,
)


def diagnose(view: View, target: Version | None = None) -> list[Finding]:
    """All findings, in the order of the checks."""
    routes = Routes(view)
    checks = CHECKS if view.complete else ON_THE_WIRE
    found = [finding for check in checks for finding in check(view, routes)]
    if target is not None:
        found += [each for check in UPGRADE_CHECKS for each in check(view, routes, target)]
    return advice.put_together(view, found)


def only(findings: list[Finding], patterns: list[str]) -> list[Finding]:
    """The findings about queues that one of these globs means."""
    return [
        finding
        for finding in findings
        if finding.subject.kind is Kind.QUEUE
        and any(globs.matching(pattern, [finding.subject.name]) for pattern in patterns)
    ]
