"""Checks before an upgrade: what changes on the way to a version, of what this broker has.

The changes are from RabbitMQ's release notes up to 4.3, and those that could be were tried on 3.10,
4.0 and 4.3. What changes and is not in use here is not mentioned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from redrive.broker.doctor import advice
from redrive.broker.doctor.dead_lettering import about
from redrive.broker.doctor.finding import Command, Finding, Kind, Severity, Subject
from redrive.broker.doctor.routes import DELAYED_TYPE, Routes
from redrive.broker.doctor.view import SeenQueue, View
from redrive.broker.enrollment import Policy
from redrive.broker.looking import Version
from redrive.broker.topology import DELIVERY_LIMIT

NEWEST: Final[Version] = (4, 3)
"""The newest version whose changes are known here."""
_V4: Final[Version] = (4, 0)
_KHEPRI: Final = "khepri_db"
_LARGEST: Final = 16 * 1024 * 1024
_THREES: Final[tuple[Version, ...]] = tuple((3, minor) for minor in range(8, 14))
_ENABLE_ALL: Final = Command("rabbitmqctl enable_feature_flag all")
UpgradeCheck = Callable[[View, Routes, Version], Iterator[Finding]]


def path(current: Version, target: Version) -> list[Version]:
    """The versions to go through, in place: one of the 3s after the other up to 3.13, from there
    to any 4 up to 4.2, and to 4.3 from 4.2 only."""
    steps = [step for step in _THREES if current < step < min(target, _V4)]
    if target > (4, 2) and current < (4, 2):
        steps.append((4, 2))
    return [*steps, target]


def crosses(view: View, target: Version, version: Version) -> bool:
    """Whether a change that came with a version is on the way."""
    return view.version < version <= target


def the_path(view: View, routes: Routes, target: Version) -> Iterator[Finding]:
    """Which versions to go through."""
    if target <= view.version:
        return
    steps = " → ".join(
        f"{major}.{minor}" for major, minor in [view.version, *path(view.version, target)]
    )
    khepri = f" On 4.2, {_KHEPRI!r} too." if crosses(view, target, (4, 3)) else ""
    newer = "" if target <= NEWEST else " What comes after 4.3 is not known here."
    yield Finding(
        check="upgrade-path",
        severity=Severity.NOTE,
        subject=Subject(Kind.BROKER, view.vhost),
        reason=f"In place, the way is {steps}; before each step every stable feature flag has to"
        f" be on.{khepri}{newer}",
        commands=(_ENABLE_ALL,),
    )


def feature_flags(view: View, routes: Routes, target: Version) -> Iterator[Finding]:
    """Flags that are off: the next version does not start."""
    if target <= view.version or view.flags is None:
        return
    off = sorted(name for name, state in view.flags.items() if state != "enabled")
    needed = [name for name in off if name != _KHEPRI]
    if needed:
        yield _flags_off(view, needed, _ENABLE_ALL)
    if _KHEPRI in off and view.version >= _V4 and target >= (4, 3):
        yield _flags_off(view, [_KHEPRI], Command(f"rabbitmqctl enable_feature_flag {_KHEPRI}"))


def _flags_off(view: View, names: list[str], command: Command) -> Finding:
    return Finding(
        check="upgrade-feature-flags",
        severity=Severity.WARNING,
        subject=Subject(Kind.BROKER, view.vhost),
        reason=f"These feature flags are off, and a newer broker does not start without them:"
        f" {', '.join(names)}.",
        commands=(command,),
    )


# What 4.0 changes


def delivery_limit(view: View, routes: Routes, target: Version) -> Iterator[Finding]:
    """Quorum queues get a limit of 20."""
    if not crosses(view, target, _V4):
        return
    for queue in view.users_queues:
        if queue.kind != "quorum" or queue.facts.limits:
            continue
        if queue.dead_letter_exchange == view.names.retry_exchange:
            continue  # Redrive takes what reaches a limit
        drops = queue.dead_letter_exchange is None
        goes = "deleted, without a dead letter exchange" if drops else "dead-lettered"
        raised = (advice.policy_for(view, queue, {"delivery-limit": DELIVERY_LIMIT}),)
        enrolls = drops and queue.name not in routes.ends
        yield Finding(
            check="upgrade-delivery-limit",
            severity=Severity.WARNING if drops else Severity.NOTE,
            subject=about(queue),
            reason="From RabbitMQ 4.0 on there is a delivery limit of 20: a message that comes"
            f" back more often is {goes}.",
            commands=advice.enroll(view, queue) if enrolls else raised,
        )


def mirrored_queues(view: View, routes: Routes, target: Version) -> Iterator[Finding]:
    """Mirrors of classic queues are gone."""
    if not crosses(view, target, _V4):
        return
    for policy in view.policies:
        if not any(key.startswith("ha-") for key in policy.definition):
            continue
        kept = {key: val for key, val in policy.definition.items() if not key.startswith("ha-")}
        queues = sum(queue.live.policy_name == policy.name for queue in view.queues.values())
        bare = Policy(policy.name, policy.pattern, policy.apply_to, policy.priority, kept)
        yield Finding(
            check="upgrade-mirrored-queues",
            severity=Severity.WARNING,
            subject=Subject(Kind.POLICY, policy.name),
            reason="RabbitMQ 4.0 has no mirrored classic queues: the policy's ha- keys have no"
            f" effect, and its queues ({queues:,} now) have one copy. Quorum queues have several.",
            advice="Make the queues that matter quorum queues, then take the keys out:",
            commands=(
                advice.set_policy(view.vhost, bare)
                if kept
                else advice.clear_policy(view.vhost, policy.name),
            ),
        )


def deaths_of_clients(view: View, routes: Routes, target: Version) -> Iterator[Finding]:
    """Counts in x-death that clients publish again start anew."""
    if not crosses(view, target, _V4):
        return
    loops = [queue.name for queue in view.users_queues if queue.dead_letter_exchange is not None]
    if loops:
        yield Finding(
            check="upgrade-x-death",
            severity=Severity.NOTE,
            subject=Subject(Kind.BROKER, view.vhost),
            reason=f"RabbitMQ 4.0 ignores an x-death header that a client publishes: who retries by"
            f" publishing again and counts by x-death never gets past 1. {len(loops):,} queues"
            " dead-letter here. Redrive counts in a header of its own.",
            advice="Look at consumers that publish failed messages again themselves.",
        )


def large_messages(view: View, routes: Routes, target: Version) -> Iterator[Finding]:
    """Messages of more than 16 MiB are refused."""
    if not crosses(view, target, _V4):
        return
    for queue in view.queues.values():
        if queue.messages and queue.bytes / queue.messages > _LARGEST:
            yield Finding(
                check="upgrade-message-size",
                severity=Severity.WARNING,
                subject=about(queue),
                reason="Messages here are larger than 16 MiB on average, the most that RabbitMQ"
                " 4.0 takes by default.",
                advice="Set max_message_size in rabbitmq.conf before the upgrade.",
            )


# What 4.3 changes


def transient_queues(view: View, routes: Routes, target: Version) -> Iterator[Finding]:
    """Queues that are neither durable nor exclusive may not be declared."""
    if not crosses(view, target, (4, 3)):
        return
    for queue in view.queues.values():
        if queue.live.durable or queue.facts.exclusive or queue.kind != "classic":
            continue
        anew, commands = advice.rebuild(view, queue, queue.live.arguments)
        yield Finding(
            check="upgrade-transient-queue",
            severity=Severity.WARNING,
            subject=about(queue),
            reason="Queues that are neither durable nor exclusive are deprecated, and RabbitMQ"
            " 4.3.0 refuses to declare them.",
            advice="Permit them by deprecated_features.permit.transient_nonexcl_queues = true in"
            " rabbitmq.conf, or have durable ones, with x-expires if they are to go by"
            f" themselves. {anew}",
            commands=commands,
        )


_GONE: Final[dict[str, tuple[Any, str]]] = {
    "queue-version": (1, "RabbitMQ 4.3 refuses to declare a queue with x-queue-version 1"),
    "queue-mode": (None, "RabbitMQ 4.3.0 refuses to declare a queue with an x-queue-mode"),
    "queue-master-locator": (
        None,
        "RabbitMQ 4.3 closes the connection that declares a queue with x-queue-master-locator",
    ),
}
"""Key → the value that is no longer taken (None: any), and what happens."""


def gone_arguments(view: View, routes: Routes, target: Version) -> Iterator[Finding]:
    """Queue arguments that no longer exist."""
    if not crosses(view, target, (4, 3)):
        return
    for queue in view.queues.values():
        gone = [key for key in _GONE if _is_gone(queue, key)]
        if not gone or queue.facts.exclusive:
            continue
        arguments = {
            name: value
            for name, value in queue.live.arguments.items()
            if name.removeprefix("x-") not in gone
        }
        anew, commands = advice.rebuild(view, queue, arguments)
        yield Finding(
            check="upgrade-queue-arguments",
            severity=Severity.WARNING,
            subject=about(queue),
            reason="; ".join(_GONE[key][1] for key in gone) + ".",
            advice=anew,
            commands=commands,
        )


def _is_gone(queue: SeenQueue, key: str) -> bool:
    value, only = queue.live.arguments.get(f"x-{key}"), _GONE[key][0]
    return value is not None and only in (None, value)


def delayed_messages(view: View, routes: Routes, target: Version) -> Iterator[Finding]:
    """The delayed-message plugin does not work without Mnesia."""
    used = [name for name, live in view.exchanges.items() if live.kind == DELAYED_TYPE]
    if crosses(view, target, (4, 3)):
        for name in used:
            yield Finding(
                check="upgrade-delayed-message-plugin",
                severity=Severity.CRITICAL,
                subject=Subject(Kind.EXCHANGE, name),
                reason="RabbitMQ 4.3 has no delayed-message plugin: what is delayed at the upgrade"
                " is lost, and the exchange takes nothing.",
                advice="See delayed-message-plugin.",
            )


def global_prefetch(view: View, routes: Routes, target: Version) -> Iterator[Finding]:
    """basic.qos with global=true is refused."""
    if crosses(view, target, (4, 3)) and view.global_qos:
        shown = ", ".join(view.global_qos[:3]) + (", …" if len(view.global_qos) > 3 else "")
        yield Finding(
            check="upgrade-global-qos",
            severity=Severity.WARNING,
            subject=Subject(Kind.BROKER, view.vhost),
            reason="RabbitMQ 4.3 refuses a prefetch limit for a whole channel (basic.qos with"
            f" global=true), which these connections use: {shown}.",
            advice="Set the limit for each consumer: basic.qos with global=false. Or permit it:"
            " deprecated_features.permit.global_qos = true in rabbitmq.conf.",
        )


UPGRADE_CHECKS: Final[tuple[UpgradeCheck, ...]] = (
    the_path,
    feature_flags,
    delivery_limit,
    mirrored_queues,
    deaths_of_clients,
    large_messages,
    transient_queues,
    gone_arguments,
    delayed_messages,
    global_prefetch,
)
