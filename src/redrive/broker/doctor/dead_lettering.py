"""Checks of how queues dead-letter: whether at all, to where, and how safely."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from redrive.broker.doctor import advice
from redrive.broker.doctor.finding import Command, Finding, Kind, Severity, Subject
from redrive.broker.doctor.routes import Routes, routing_kind
from redrive.broker.doctor.view import SeenQueue, View
from redrive.broker.enrollment import Policy, matching, policy_name
from redrive.broker.looking import Version
from redrive.broker.topology import DELIVERY_LIMIT

_FLAG: Final = "stream_queue"
_FLAG_UNTIL: Final[Version] = (3, 12)
_CLASSIC_ONLY: Final = ("x-queue-mode", "x-queue-version", "x-queue-master-locator")
_PRIORITIES: Final = (
    "It has priorities (x-max-priority {}), and only a quorum queue dead-letters at least once:"
    " quorum queues have none before RabbitMQ 4.0, and others from then on. Make it a quorum queue"
    " yourself if its consumers do without."
)


def about(queue: SeenQueue) -> Subject:
    return Subject(Kind.QUEUE, queue.name)


# Whether at all


def without_dead_letter_exchange(view: View, routes: Routes) -> Iterator[Finding]:
    """What a consumer rejects, or what expires, is dropped."""
    for queue in view.users_queues:
        if queue.dead_letter_exchange is not None or queue.name in routes.ends:
            continue
        if _drops_at(view, queue) is not None:
            continue  # the delivery limit's finding says it too, and is mended by the same
        yield Finding(
            check="no-dead-letter-exchange",
            severity=Severity.WARNING,
            subject=about(queue),
            reason="No dead letter exchange: what consumers reject, and what expires, is dropped.",
            commands=advice.enroll(view, queue),
        )


def delivery_limits(view: View, routes: Routes) -> Iterator[Finding]:
    """Messages that come back too often are removed."""
    for queue in view.users_queues:
        if queue.kind != "quorum":
            continue
        if queue.facts.removes_at_once(view.version):
            yield _removed_at_once(view, queue)
        elif (drops_at := _drops_at(view, queue)) is not None:
            yield _dropped(view, queue, drops_at, is_end=queue.name in routes.ends)


def _drops_at(view: View, queue: SeenQueue) -> int | None:
    """After how many returns a message of this queue is gone; None if never."""
    if queue.kind != "quorum" or queue.dead_letter_exchange is not None:
        return None
    limit = queue.facts.delivery_limit(view.version)
    return None if limit is None or limit >= DELIVERY_LIMIT else limit


def _removed_at_once(view: View, queue: SeenQueue) -> Finding:
    goes = "dead-letters" if queue.dead_letter_exchange is not None else "removes"
    # By argument: a policy of -1 is not taken by such a broker.
    arguments = {**queue.live.arguments, "x-delivery-limit": DELIVERY_LIMIT}
    said, commands = advice.rebuild(view, queue, arguments)
    return Finding(
        check="delivery-limit",
        severity=Severity.CRITICAL,
        subject=about(queue),
        reason=f"A delivery limit of -1 means none from RabbitMQ 4.0 on only; this broker {goes} a"
        " message at its first return.",
        advice=said,
        commands=commands,
    )


def _dropped(view: View, queue: SeenQueue, limit: int, *, is_end: bool) -> Finding:
    raised = {"delivery-limit": DELIVERY_LIMIT}
    why = "the queue's delivery limit" if queue.facts.limits else "the broker's default limit"
    said = ""
    if not is_end:
        commands = advice.enroll(view, queue)
    elif "x-delivery-limit" in queue.live.arguments:
        arguments = {**queue.live.arguments, "x-delivery-limit": DELIVERY_LIMIT}
        said, commands = advice.rebuild(view, queue, arguments)
    else:
        commands = (advice.policy_for(view, queue, raised),)
    what = (
        "Dead messages end here; one" if is_end else "There is no dead letter exchange; a message"
    )
    return Finding(
        check="delivery-limit",
        severity=Severity.WARNING,
        subject=about(queue),
        reason=f"{what} that comes back {limit} times ({why}) is deleted. Rejects with requeue and"
        " lost connections count.",
        advice=said,
        commands=commands,
    )


# To where


def targets(view: View, routes: Routes) -> Iterator[Finding]:
    """Dead letter exchanges that are not there or lead nowhere, and queues stuck behind them."""
    for queue in view.users_queues:
        exchange = queue.dead_letter_exchange
        if exchange is None:
            continue
        if not routes.exists(exchange):
            what = f"The dead letter exchange {exchange!r} does not exist"
            commands = _made_exchange(view, queue, exchange)
            yield _astray(view, queue, what, commands)
        elif patterns := routes.lost_patterns(queue):
            lost = (*routes.lost_keys(queue), *patterns)
            what = f"The dead letter exchange {exchange!r} brings {_by(lost)} to no queue"
            if exchange == "":
                what = f"Dead messages go to queues named like {_by(patterns)}, and there are none"
            said, commands = _way_for_any_key(view, queue, exchange)
            yield _astray(view, queue, what, commands, said)
        elif keys := routes.lost_keys(queue):
            what = f"The dead letter exchange {exchange!r} brings {_by(keys)} to no queue"
            if exchange == "":
                what = f"Dead messages go to the queue {_shown(keys)}, which does not exist"
            yield _astray(view, queue, what, _way(view, queue, exchange, keys))


def own_without_a_way(view: View, routes: Routes) -> Iterator[Finding]:
    """Redrive's own queues that keep messages because the way on is missing. That it is, the check
    of the topology says; this says where messages wait for it."""
    for queue in view.queues.values():
        exchange = queue.dead_letter_exchange
        if queue.name not in view.own or exchange is None or not queue.dead_lettering:
            continue
        if not routes.exists(exchange):
            what = f"The dead letter exchange {exchange!r} does not exist"
        elif routes.lost_patterns(queue) or routes.lost_keys(queue):
            what = f"The dead letter exchange {exchange!r} leads to no queue"
        else:
            continue
        yield _astray(view, queue, what, (advice.APPLY,))


def _by(keys: tuple[str, ...]) -> str:
    return "any key" if "#" in keys else f"the key {_shown(keys)}"


def _shown(keys: tuple[str, ...]) -> str:
    return ", ".join(repr(key) for key in keys[:3]) + (", …" if len(keys) > 3 else "")


def _astray(
    view: View, queue: SeenQueue, what: str, commands: tuple[Command, ...], said: str = ""
) -> Finding:
    stuck = queue.dead_lettering and is_at_least_once(view, queue)
    number = queue.dead_lettering
    waits = "1 message waits" if number == 1 else f"{number:,} messages wait"
    if stuck:
        check, then = "wedged", f"{waits} in the queue until there is a way"
    elif is_at_least_once(view, queue):
        check, then = "dead-letter-target", "what fails stays in the queue and fills it"
    else:
        check, then = "dead-letter-target", "what fails is dropped"
    return Finding(
        check=check,
        severity=Severity.CRITICAL,
        subject=about(queue),
        reason=f"{what}: {then}.",
        advice=said,
        commands=commands,
    )


def _made_exchange(view: View, queue: SeenQueue, exchange: str) -> tuple[Command, ...]:
    if exchange == view.names.retry_exchange:
        return (advice.APPLY,)
    if "x-dead-letter-exchange" not in queue.live.arguments:
        return advice.enroll(view, queue, "--yes")
    listens = advice.enroll(view, queue, "--bind-exchange")
    return (advice.make_exchange(view.vhost, exchange), *listens)


def _way(view: View, queue: SeenQueue, exchange: str, keys: tuple[str, ...]) -> tuple[Command, ...]:
    """A way for keys that are known."""
    if exchange == view.names.retry_exchange:
        return (advice.APPLY,)
    if exchange == "":
        return tuple(advice.make_queue(view.vhost, name) for name in keys)
    kind = view.exchanges[exchange].kind
    if kind in ("topic", "fanout") or (kind == "direct" and queue.dead_letter_key is not None):
        return advice.enroll(view, queue, "--bind-exchange")
    bound = advice.bind(view.vhost, exchange, view.names.retry_queue, keys)
    return (*advice.apply_first(view), bound)


def _way_for_any_key(
    view: View, queue: SeenQueue, exchange: str
) -> tuple[str, tuple[Command, ...]]:
    """A way for keys that nobody knows: what it changes, and the commands.

    No binding of a direct exchange takes them, so there the dead messages get one key.
    """
    if exchange == view.names.retry_exchange:
        return "", (advice.APPLY,)
    kind = "" if exchange == "" else view.exchanges[exchange].kind
    listens = advice.enroll(view, queue, "--bind-exchange")
    if kind in ("topic", "fanout"):
        return "", listens
    routed_by = "direct" if exchange == "" else routing_kind(view.exchanges[exchange])
    if routed_by != "direct":
        bound = advice.bind(view.vhost, exchange, view.names.retry_queue, ("#",))
        return "", (*advice.apply_first(view), bound)
    key = view.names.retry_queue if exchange == "" else queue.name
    said = (
        f"All dead messages of this queue go by the key {key!r} then; their own key stays in the"
        " header x-death."
    )
    given = advice.policy_for(view, queue, {"dead-letter-routing-key": key})
    if exchange == "":
        return said, (*advice.apply_first(view), given)
    if kind == "direct":
        return said, (given, *listens)
    bound = advice.bind(view.vhost, exchange, view.names.retry_queue, (key,))
    return said, (*advice.apply_first(view), bound, given)


def wedged_by_full_targets(view: View, routes: Routes) -> Iterator[Finding]:
    """At-least-once queues whose target has no room: their dead messages stay."""
    for queue in view.queues.values():
        if not queue.dead_lettering or not is_at_least_once(view, queue):
            continue
        for name in sorted(routes.targets(queue)):
            target = view.queues.get(name)
            if target is None or not target.is_full:
                continue
            more = f"{name}.more"
            yield Finding(
                check="wedged",
                severity=Severity.CRITICAL,
                subject=about(queue),
                reason=f"{queue.dead_lettering:,} of its dead messages cannot leave: {name!r} is"
                f" full ({target.messages:,} messages) and refuses them.",
                advice=f"Start the consumers of {name!r}, or bring what is in it elsewhere:",
                commands=(advice.make_queue(view.vhost, more), advice.move(view, name, more)),
            )


# How safely


def is_at_least_once(view: View, queue: SeenQueue) -> bool:
    """Whether the broker confirms what this queue dead-letters."""
    return (
        queue.kind == "quorum"
        and queue.asks_at_least_once
        and queue.live.overflow == "reject-publish"
        and not _lacks_flag(view)
    )


def _lacks_flag(view: View) -> bool:
    return (
        view.version < _FLAG_UNTIL
        and view.flags is not None
        and view.flags.get(_FLAG, "enabled") != "enabled"
    )


def at_most_once(view: View, routes: Routes) -> Iterator[Finding]:
    """What is on its way when the broker crashes may be lost."""
    for queue in view.users_queues:
        exchange = queue.dead_letter_exchange
        if exchange is None or queue.asks_at_least_once or not routes.exists(exchange):
            continue
        if queue.kind == "classic":
            if _unapplied(view, queue) is None:
                yield _classic(view, queue)
            continue
        said, commands = _made_safe(view, queue)
        yield Finding(
            check="at-most-once",
            severity=Severity.WARNING,
            subject=about(queue),
            reason="Dead-lettering is at most once: a crash of the broker loses what is on its"
            " way to the dead letter exchange.",
            advice=said,
            commands=commands,
        )


def _classic(view: View, queue: SeenQueue) -> Finding:
    said, commands = _as_quorum(view, queue)
    return Finding(
        check="classic-dead-letters",
        severity=Severity.NOTE,
        subject=about(queue),
        reason="Classic queues dead-letter without confirms: a crash of the broker can lose or"
        " double what is on its way.",
        advice=said,
        commands=commands,
    )


def _as_quorum(view: View, queue: SeenQueue) -> tuple[str, tuple[Command, ...]]:
    """What a classic queue loses as a quorum queue, and the commands where it is nothing."""
    priorities = queue.live.arguments.get("x-max-priority")
    if priorities is not None:
        return _PRIORITIES.format(priorities), ()
    arguments = {**queue.live.arguments, "x-queue-type": "quorum"}
    for argument in _CLASSIC_ONLY:
        arguments.pop(argument, None)
    arguments |= {f"x-{key}": value for key, value in advice.AT_LEAST_ONCE.items()}
    said, commands = advice.rebuild(view, queue, arguments)
    return f"{_refuses(queue)} {said}".strip(), commands


def _refuses(queue: SeenQueue) -> str:
    """What reject-publish changes for the publishers of a queue; nothing if it has no limit."""
    limited = any(queue.limit(key) is not None for key in ("max-length", "max-length-bytes"))
    overflow = queue.live.overflow
    if not limited or overflow == "reject-publish":
        return ""
    now = "dead-letter them" if overflow == "reject-publish-dlx" else "drop the oldest"
    return f"The queue has a limit: when full it will refuse new messages, not {now}."


def _made_safe(view: View, queue: SeenQueue) -> tuple[str, tuple[Command, ...]]:
    """At least once: what that changes for others, and the commands."""
    said = _refuses(queue)
    if not advice.can_by_policy(queue, advice.AT_LEAST_ONCE):
        safe = {f"x-{key}": value for key, value in advice.AT_LEAST_ONCE.items()}
        arguments = {**queue.live.arguments, **safe}
        anew, commands = advice.rebuild(view, queue, arguments)
        return f"{said} {anew}".strip(), commands
    if queue.dead_letter_exchange == view.names.retry_exchange:
        return said, advice.enroll(view, queue, "--yes" if said else "")
    return said, (advice.policy_for(view, queue, advice.AT_LEAST_ONCE),)


def at_least_once_that_is_not(view: View, routes: Routes) -> Iterator[Finding]:
    """Asked for, and silently not given."""
    for queue in view.users_queues:
        if queue.kind == "classic" and (policy := _unapplied(view, queue)) is not None:
            yield _ignored(view, queue, policy)
    for queue in (*view.users_queues, *view.undescribed):
        if (
            queue.kind == "quorum"
            and queue.asks_at_least_once
            and queue.dead_letter_exchange is not None
            and queue.live.overflow != "reject-publish"
        ):
            yield _overflowing(view, queue)
    if _lacks_flag(view) and any(queue.asks_at_least_once for queue in view.queues.values()):
        yield Finding(
            check="at-least-once-is-not",
            severity=Severity.WARNING,
            subject=Subject(Kind.BROKER, view.vhost),
            reason=f"The feature flag {_FLAG!r} is off, so queues that ask for at-least-once"
            " dead-lettering do not get it. The broker says so in its log only.",
            advice="Queues take it up when their policy changes or the broker restarts.",
            commands=(Command(f"rabbitmqctl enable_feature_flag {_FLAG}"),),
        )


def _overflowing(view: View, queue: SeenQueue) -> Finding:
    said, commands = _made_safe(view, queue)
    by = f" by the policy {queue.live.policy_name!r}" if "overflow" in queue.live.policy else ""
    if by and "x-overflow" in queue.live.arguments:
        by += ", which beats the argument in a quorum queue"
    return Finding(
        check="at-least-once-is-not",
        severity=Severity.WARNING,
        subject=about(queue),
        reason="At-least-once dead-lettering is asked for and not given: it needs overflow"
        f" 'reject-publish', and this is {queue.live.overflow!r}{by}. The broker does not say so.",
        advice=said,
        commands=commands,
    )


def _unapplied(view: View, queue: SeenQueue) -> Policy | None:
    """The policy that should apply to a classic queue, and does not for its strategy."""
    strategic = [policy for policy in view.policies if "dead-letter-strategy" in policy.definition]
    if not strategic:
        return None
    first = next(iter(matching(view.policies, queue.name, queue.kind)), None)
    in_force = queue.live.policy_name
    if first not in strategic or in_force in (first.name, policy_name(queue.name)):
        return None
    return first


def _ignored(view: View, queue: SeenQueue, policy: Policy) -> Finding:
    changes = {**policy.definition, "dead-letter-strategy": None}
    return Finding(
        check="at-least-once-is-not",
        severity=Severity.WARNING,
        subject=about(queue),
        reason=f"The policy {policy.name!r} matches this classic queue and is not applied to it at"
        " all: classic queues know no dead-letter-strategy, so the rest of it is void too.",
        advice="Only a quorum queue dead-letters at least once; the rest of the policy can hold:",
        commands=(advice.policy_for(view, queue, changes),),
    )
