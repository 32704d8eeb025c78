"""The commands that mend what was found, ready for a shell on a machine that reaches the broker.

Pure. `redrive` commands need what Redrive needs; `rabbitmqctl` runs where the broker does, as its
user. Policies are made for one queue alone, one priority above what is in force and with its
definition merged, as `redrive topology enroll` does: the policy of others is not touched.

What deletes a queue is one line with what must have worked before: it goes on only if that did, and
if the queue holds nothing, unacked messages too, and has no consumer.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from redrive.broker.doctor.finding import Command, Finding, PolicyChanges
from redrive.broker.doctor.view import SeenQueue, View
from redrive.broker.enrollment import Policy, exactly, matching, policy_name
from redrive.broker.looking import SPEND_DELIVERIES
from redrive.broker.topology import DELIVERY_LIMIT

AT_LEAST_ONCE: Final = {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
APPLY: Final = Command("redrive topology apply")
_MENDS: Final = "mended:"
_REBUILD: Final = (
    "Arguments of a queue cannot be changed. Stop publishers and consumers, change what they"
    " declare, then make the queue anew. The line stops at the first step that fails, and before a"
    " queue that is not empty would be deleted."
)
_MEANWHILE: Final = (
    "Until it ends, messages are in the queue named .rebuilding too: where it stopped, look there."
)
_WHEN_EMPTY: Final = (
    "Arguments of a queue cannot be changed, and a move would take their TTLs from the messages in"
    " it: make the queue anew when it is empty. The commands are shown then."
)
_IS_EMPTY: Final = 'BEGIN{n=ARGV[1];ARGV[1]=""} $1""==n""&&$2$3=="00"{found=1} END{exit found?0:1}'
"""For awk: whether a line is of this name, of no messages and no consumers."""
_KEEPS: Final = {"x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT}


def apply_first(view: View) -> tuple[Command, ...]:
    """Make Redrive's topology, where it is not there: queues are enrolled only then."""
    return () if view.is_applied else (APPLY,)


def enroll(view: View, queue: SeenQueue, options: str = "") -> tuple[Command, ...]:
    """Connect a queue to Redrive."""
    return (*apply_first(view), Command("redrive topology enroll", (queue.name,), options))


def unenroll(queue: str) -> tuple[Command, ...]:
    return (Command("redrive topology unenroll", (queue,)),)


def set_policy(vhost: str, policy: Policy) -> Command:
    """Make or replace one policy."""
    words = ["-p", vhost, "--priority", str(policy.priority), "--apply-to", policy.apply_to]
    words += [policy.name, policy.pattern, _json(policy.definition)]
    return Command("rabbitmqctl set_policy " + shlex.join(words))


def clear_policy(vhost: str, name: str) -> Command:
    return Command("rabbitmqctl clear_policy " + shlex.join(["-p", vhost, name]))


def policy_for(view: View, queue: SeenQueue, changes: Mapping[str, Any]) -> Command:
    """A policy for this queue alone: what is in force on it, with changes; None takes away."""
    ours = [policy for policy in view.policies if policy.name == policy_name(queue.name)]
    matches = [*ours, *matching(view.policies, queue.name, queue.kind)]
    definition = {**queue.live.policy, **changes}
    policy = Policy(
        f"{_MENDS}{queue.name}",
        exactly(queue.name),
        "queues",
        max((policy.priority for policy in matches), default=0) + 1,
        {key: value for key, value in definition.items() if value is not None},
    )
    command = set_policy(view.vhost, policy)
    return replace(command, changes=PolicyChanges(queue.name, changes))


def put_together(view: View, findings: Iterable[Finding]) -> list[Finding]:
    """The findings, where all that wants a policy for one queue gets it by the same policy: only
    one applies to a queue, so the second would undo the first."""
    findings = list(findings)
    keys: dict[str, dict[str, Any]] = {}
    for finding in findings:
        for command in finding.commands:
            if command.changes is not None:
                keys.setdefault(command.changes.queue, {}).update(command.changes.keys)
    return [
        replace(
            finding,
            commands=tuple(
                policy_for(view, view.queues[each.changes.queue], keys[each.changes.queue])
                if each.changes is not None
                else each
                for each in finding.commands
            ),
        )
        for finding in findings
    ]


def can_by_policy(queue: SeenQueue, changes: Mapping[str, Any]) -> bool:
    """Whether no argument of the queue stands against a policy with these keys."""
    changed = replace(queue.live, policy={**queue.live.policy, **changes})
    return all(changed.in_force(key) == value for key, value in changes.items())


def rebuild(
    view: View, queue: SeenQueue, arguments: Mapping[str, Any]
) -> tuple[str, tuple[Command, ...]]:
    """Delete a queue and make it anew with other arguments: a broker cannot change them.

    What to know before, and the commands. Its messages are in another queue meanwhile, but not
    those that wait by a TTL of their own, which they would lose.
    """
    if queue.messages and queue.waits_by_messages:
        return _WHEN_EMPTY, ()
    vhost, waiting = view.vhost, f"{queue.name}.rebuilding"
    document = {
        "queues": [_queue(vhost, queue.name, arguments)],
        "bindings": [
            {
                "source": binding["source"],
                "vhost": vhost,
                "destination": queue.name,
                "destination_type": "queue",
                "routing_key": binding["routing_key"],
                "arguments": binding.get("arguments") or {},
            }
            for binding in view.bindings_to.get(queue.name, [])
            if binding["source"] != ""
        ],
    }
    anew = (delete_empty(vhost, queue.name, queue.kind), import_definitions(document))
    earlier = view.queues.get(waiting)
    if not queue.messages and not (earlier and earlier.messages):
        return _REBUILD, (_each_if_the_last(*anew),)
    there = (make_queue(vhost, waiting), move(view, queue.name, waiting)) if queue.messages else ()
    back = (move(view, waiting, queue.name), delete_empty(vhost, waiting, "quorum"))
    return f"{_REBUILD} {_MEANWHILE}", (_each_if_the_last(*there, *anew, *back),)


def make_queue(vhost: str, name: str) -> Command:
    """A queue that keeps what it gets."""
    return import_definitions({"queues": [_queue(vhost, name, _KEEPS)]})


def move(view: View, source: str, target: str) -> Command:
    """All messages of a queue to another, also where a look would cost: none is to come back."""
    queue = view.queues.get(source)
    costs = queue is not None and queue.facts.cost(view.version)
    options = [SPEND_DELIVERIES] if costs else []
    return Command("redrive move " + shlex.join([source, target, *options]))


def delete_empty(vhost: str, name: str, kind: str) -> Command:
    """Delete a queue unless it holds a message or has a consumer; what it holds unacked counts.

    Classic queues are asked once more by the broker at that moment, for messages that are ready.
    Quorum queues know no such flags, and their counts are up to five seconds old: so they are
    looked at after six, then again for a while, for a move may not show at once.
    """
    empty = (
        f"rabbitmqctl -q list_queues -p {quoted(vhost)} --no-table-headers name messages consumers"
        f" | awk -F '\\t' {quoted(_IS_EMPTY)} {quoted(name)}"
    )
    flags = ["--if-empty", "--if-unused"] if kind == "classic" else []
    if kind != "classic":
        empty = f"for s in 6 3 3 3; do sleep $s; {empty} && break; done"
    said = quoted(f"{name} is not deleted: it holds messages, has a consumer, or is not there")
    words = shlex.join(["-p", vhost, *flags, name])
    return Command(
        f"{{ {empty} || {{ echo {said} >&2; false; }}; }} && rabbitmqctl delete_queue {words}"
    )


def _each_if_the_last(*steps: Command) -> Command:
    """One line, of which nothing runs after a step that failed, however it is pasted."""
    return Command(" && ".join(map(str, steps)))


def make_exchange(vhost: str, name: str) -> Command:
    """A topic exchange of this name."""
    exchange = {
        "name": name,
        "vhost": vhost,
        "type": "topic",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
    }
    return import_definitions({"exchanges": [exchange]})


def bind(vhost: str, exchange: str, queue: str, keys: Sequence[str]) -> Command:
    """Bind a queue to an exchange with some keys."""
    bindings = [
        {
            "source": exchange,
            "vhost": vhost,
            "destination": queue,
            "destination_type": "queue",
            "routing_key": key,
            "arguments": {},
        }
        for key in keys
    ]
    return import_definitions({"bindings": bindings})


def import_definitions(document: Mapping[str, Any]) -> Command:
    """Make exchanges, queues and bindings; what exists is left alone.

    By a file, for on RabbitMQ 4 rabbitmqctl cannot read definitions from its input; readable, for
    rabbitmqctl may become the user that the broker runs as.
    """
    return Command(
        f"f=$(mktemp) && printf %s {shlex.quote(_json(document))} >$f && chmod 644 $f"
        " && rabbitmqctl import_definitions $f && rm $f"
    )


def grant(view: View) -> tuple[str, tuple[Command, ...]]:
    """What the user lacks, for an administrator to grant.

    Permissions are set all at once: where what the user has is not known, a command would take it
    away, so there is none, only the patterns to add.
    """
    names = {
        permission: [need.name for need in view.lacking if need.permission == permission]
        for permission in ("configure", "write", "read")
    }
    known = view.permissions
    if known is None:
        more = "; ".join(
            f"{each} {_pattern('', lacked)}" for each, lacked in names.items() if lacked
        )
        said = (
            "What the user has now only an administrator may see (rabbitmqctl"
            f" list_user_permissions {quoted(view.user)}), and permissions are set all at once. Add"
            f" to its patterns in vhost {view.vhost}, each behind a |, or alone where it has none"
            f" yet: {more}"
        )
        return said, ()
    patterns = [_pattern(getattr(known, each), lacked) for each, lacked in names.items()]
    words = ["-p", view.vhost, view.user, *patterns]
    command = Command("rabbitmqctl set_permissions " + shlex.join(words))
    return "An administrator can grant it. What the user may do now, it may then too.", (command,)


def quoted(text: str) -> str:
    """A word for a shell."""
    return shlex.quote(text)


def _pattern(before: str, names: Sequence[str]) -> str:
    if not names:
        return before or "^$"
    ours = "|".join(re.sub(r"([^\w-])", r"\\\1", name) for name in dict.fromkeys(names))
    return f"({before})|^({ours})$" if before not in ("", "^$") else f"^({ours})$"


def _queue(vhost: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "vhost": vhost,
        "durable": True,
        "auto_delete": False,
        "arguments": dict(arguments),
    }


def _json(document: Mapping[str, Any]) -> str:
    # ASCII only, so that no locale can change it on its way through a shell.
    return json.dumps(document, separators=(",", ":"))
