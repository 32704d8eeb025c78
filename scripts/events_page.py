"""docs/reference/events.md: the events of the log, read from the calls that write them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "redrive"
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "events.md"
_LEVELS = ("info", "warning", "error", "exception")
_WRITTEN_BY_NAME = {"_say": "warning", "_open_book": "info"}
"""Functions that are given the name of an event, and the level they log it with."""
_ALERT = ("alert", "severity", "summary", "condition", "value", "since", "groups")
_SWEPT = ("queue", "target", "examined", "moved", "left", "failed", "notes", "error")
_SETTLED = ("queue", "handler", "routing_key", "message_id", "redrive_id", "letter", "retry_count")
ELSEWHERE: dict[str, tuple[str, tuple[str, ...], str]] = {
    "alert.firing": ("warning", _ALERT, "An alert fires"),
    "alert.still_firing": ("warning", _ALERT, "It fires still, after `repeat`"),
    "alert.resolved": ("info", _ALERT, "It does not fire any more"),
    "letter.sent": (
        "info",
        ("letter", "result", "generation", "queue", "exchange", "reason"),
        "A letter was sent, or was not; `result` says which",
    ),
    "message.dead_lettered": (
        "warning",
        _SETTLED,
        "A handler gave up a message, or it may not be tried again",
    ),
    "message.delayed": ("info", _SETTLED, "A handler asked for a message later"),
    "message.left_to_policy": ("info", _SETTLED, "A message failed; the retrier decides by policy"),
    "message.retried": ("info", _SETTLED, "A message failed in a handler, and is retried"),
    "sweep.done": ("info", _SWEPT, "What a pass of a watching sweep did with a queue"),
    "sweep.failed": ("error", _SWEPT, "A pass did not get through a queue"),
}
"""Events whose names, levels or fields do not stand in the call that writes them."""

MEANINGS = {
    "alert.given_up": "A sink did not take a message for three days",
    "alert.recipient_refused": (
        "The mail server took a message for others, and not for this recipient"
    ),
    "alert.sink_away": "A sink does not take messages; it is tried again",
    "alert.sink_back": "It takes them again",
    "collector.back": "The collector consumes its queue again",
    "collector.globs_unused": "Wildcards of `collector.queues` need the management API",
    "collector.held": "The store does not take a message at all; it stays in its queue",
    "collector.lost": "The broker is lost; the collector comes back by itself",
    "collector.not_understood": (
        "A message could not be read; it is a letter with less in it. Please report it"
    ),
    "collector.prefetch_lowered": "Large messages and a slow store: fewer are taken at a time"
    " until there is room",
    "collector.prefetch_raised": "There was room for a minute: up to twice as many are taken at a"
    " time",
    "collector.queues_unread": "Queues could not be listed; the next look is in 30 seconds",
    "collector.ready": "The collector consumes its queue",
    "collector.stream": "A queue to be collected is a stream, which cannot be emptied",
    "collector.rests": "The store answers and takes no messages; nothing is collected for a while",
    "collector.store_away": "The store does not take a batch, which is tried again for half a"
    " minute; then everything goes back to the broker",
    "collector.store_back": "It is back",
    "collector.store_failed": "An unforeseen failure of the store. Please report it",
    "consumer.back": "A consumer of the SDK is connected again",
    "consumer.cannot_handle_alone": (
        "A message that may have killed a process waits, because others do not end"
    ),
    "consumer.defect": "An unforeseen failure in the SDK. Please report it",
    "consumer.drained": (
        "A consumer that was told to stop has settled so many of what it had, and given back the"
        " others"
    ),
    "consumer.no_dead_letter_exchange": (
        "A handler's queue has a dead letter exchange that is not there: what expires in it, or is"
        " rejected, is dropped or held out of sight; told once, and again if it was back meanwhile"
    ),
    "consumer.no_retrier": (
        "Retries have waited, and nobody brings them back: no retrier runs; told once"
    ),
    "consumer.ended_from_within": "A task that a handler left behind called sys.exit: it drains",
    "consumer.ended_by_force": "Handlers did not end in time, and the process does",
    "consumer.ends_while_handling": (
        "So many messages are still being handled at the end; they come again"
    ),
    "consumer.handler_waits": (
        "The queue of one handler cannot be used; it is tried again, the others go on"
    ),
    "consumer.lost": "The broker is lost; the consumer comes back by itself",
    "consumer.not_set_aside": "The queue beside does not take what was redelivered; it is handled",
    "consumer.receipt_not_taken": "A receipt did not arrive; silence settles the letter",
    "consumer.stuck": "The dead letter queue takes nothing; what failed is tried again",
    "consumer.prefetch_lowered": (
        "The budget is spent by slow handlers of large messages: fewer are taken ahead"
    ),
    "consumer.queue_used_as_it_is": "A queue exists otherwise than it would be declared",
    "consumer.ready": "A handler gets messages",
    "consumer.set_aside": "Redelivered messages go to a queue beside, to be counted",
    "consumer.threads_left_behind": (
        "Of a sync handler so many threads go on after their timeout that further messages wait"
        " until one ends"
    ),
    "consumer.timeout_ignored": (
        "A handler goes on after its timeout has cancelled it, and keeps its place; told once"
    ),
    "janitor.put_off": "A chore cannot be done for now; it is tried at its next turn",
    "lease.ended": "Leases ended while letters were being sent; they are in doubt",
    "letter.collected": "A dead message was stored; `fate` says as what",
    "letter.left_to_person": "A letter needs a person, and why",
    "letter.verdict": "What became of a letter that was sent",
    "live.waits": "Live events wait for the store",
    "library.said": "What a library logged by itself: `library` is which, `text` what it said",
    "message.parked": (
        "A message cannot be published again; it was rejected into the dead letter queue"
    ),
    "message.stays": "A message can neither be settled nor parked; it stays",
    "mover.back": "A queue of the retrier is consumed again",
    "mover.decision_failed": "A decision about a message failed; it is parked. Please report it",
    "mover.lost": "The broker is lost, or refuses; it is tried again",
    "mover.parked": (
        "A message cannot be published again; it is in the dead letter queue, unchanged"
    ),
    "mover.prefetch_lowered": "Large messages wait in hand: fewer are taken at a time beside them"
    " until there is room",
    "mover.prefetch_raised": "There was room for a minute: up to twice as many are taken at a time",
    "mover.ready": "A queue of the retrier is consumed",
    "mover.stays": "A message cannot go anywhere; it stays in its queue, and why",
    "policies.changed": "Policies changed, and are in force",
    "policies.loaded": "Policies were read for the first time",
    "policies.reachable": "A source of policies answers again",
    "policies.refresh_failed": "An unforeseen failure while policies were read. Please report it",
    "policies.refused": "A row or a line that is no policy; the others count",
    "policies.unreachable": "A source of policies is away; those that were last read stay in force",
    "receipts.lost": "The broker is lost; receipts are read again later",
    "receipts.store_away": "The store is away; receipts wait",
    "receipts.unreadable": "Something in the queue of receipts is none; it was rejected, or stays",
    "replay.left": "This process does not run the replay any more",
    "replay.taken": "This process runs a replay, with so many letters left",
    "replay.waits": "A replay waits for the broker or the store",
    "replay.way_back_not_assured": (
        "The exchange of the way back could not be made; it may be there"
    ),
    "retention.archived": "Letters were written to cold storage",
    "retention.cold_storage": "Cold storage cannot be written; letters stay in the store",
    "retention.deleted": "Letters, or a replay's list, were kept long enough",
    "retention.left": "A letter could not be written to cold storage; it stays",
    "retention.written_again": "A file was not what was written; it is written anew",
    "return_path.exchange_forbidden": (
        "The retrier may not write to `redrive-return`, and messages go to the dead letter queue;"
        " or not to `amq.default`, and those of `RetryAfter` come back early. Said every five"
        " minutes"
    ),
    "return_path.exchange_missing": (
        "The exchange by which messages go back to their queues is missing; they wait until it is"
        " made again"
    ),
    "room.unknown": (
        "The management API does not tell of length limits; letters are sent as if queues had none,"
        " but for those that are known"
    ),
    "run.cut_short": "Roles did not end in time, and are left as a kill -9 would",
    "run.manager_not_told": "`NOTIFY_SOCKET` does not take messages",
    "run.not_counted": "Counts for metrics could not be written",
    "run.ready": "Every role works",
    "run.started": "The process begins",
    "run.stopped": "It has ended in good order",
    "run.stopping": "It was told to end, and drains",
    "run.unavailable": "Something that a role needs is not there yet; it is tried again",
    "sender.not_recorded": "Letters were sent and could not be recorded; they are in doubt",
    "server.answer_not_kept": "A change was answered; with its key nobody hears that answer again",
    "server.defect": "An unforeseen failure of a request. Please report it",
    "server.failed": "A request failed for a reason that is known",
    "server.key_not_dropped": "A change did not begin, and its key cannot be used again for a day",
    "server.listening": "The address of the API, and whether people have to log in",
    "server.outcome_not_noted": "A change has ended, and its entry in the audit log has no outcome",
    "sweep.not_counted": "What a sweep did could not be added to the metrics",
    "sweep.nothing_matched": "No queue matches a pattern",
    "sweep.unavailable": "A sweep that watches waits for the broker",
    "topology.differs": "Something on the broker is otherwise than described; it is left as it is",
    "topology.left_over": "A queue of a tier that the settings do not have any more",
    "topology.made": "What was missing on the broker was made",
    "topology.not_assured": "This user may not declare; what is there is used",
    "topology.unread": "The management API does not tell whether queues dead-letter",
    "verdict.management_away": "Whether destinations dead-letter is not known for now",
    "verdict.no_look": "A destination could not be looked at; its letters wait",
    "worker.back": "The worker can send again",
    "worker.lost": "The broker is lost; the worker comes back by itself",
    "worker.queue_full": (
        "A queue would drop its oldest messages for letters; they stay pending, and that counts as"
        " no revival. Told once, until all that is due has found room"
    ),
    "worker.ready": "The worker can send",
    "worker.return_exchange_missing": "Letters found no exchange to go back by; they wait until it"
    " is made again, and that counts as no revival",
    "worker.store_away": "The store is away; the worker waits",
}

_HEAD = """# Events of the log

Generated from the code by `python -m scripts.reference`; a test checks that it is current.

`redrive run` logs to stderr: JSON, a line each, or for people where that is a terminal. Every
line has `event`, `level`, `timestamp` (UTC), mostly `role`, and the fields below. `error` says what
is wrong, `remedy` what to do. Passwords are masked. An outage is mostly one line when it begins and
one when it ends; while a role starts, `run.unavailable` is a line for each try. Events with the
level `error` need somebody; `exception` in a line is a traceback.

What happens to letters is also told by [live events](api.md#live-events); figures are in
[metrics](metrics.md).
"""


def page() -> str:
    """The whole page."""
    found = events()
    lines = [_HEAD, "| event | level | fields | meaning |", "|---|---|---|---|"]
    for name, (levels, fields) in sorted(found.items()):
        shown = ", ".join(f"`{each}`" for each in fields)
        meaning = ELSEWHERE[name][2] if name in ELSEWHERE else MEANINGS.get(name, "")
        lines.append(f"| `{name}` | {', '.join(levels)} | {shown} | {meaning} |")
    return "\n".join(lines) + "\n"


def events() -> dict[str, tuple[list[str], list[str]]]:
    """Every event: its levels and its fields."""
    levels: defaultdict[str, set[str]] = defaultdict(set)
    fields: defaultdict[str, set[str]] = defaultdict(set)
    for name, (level_of_it, fields_of_it, _) in ELSEWHERE.items():
        levels[name].add(level_of_it)
        fields[name] |= set(fields_of_it)
    for path in SOURCE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and (level := _level(call)) is not None:
                given = {each.arg for each in call.keywords if each.arg}
                for name in _names(call.args[0]) if call.args else ():
                    levels[name].add("error" if level == "exception" else level)
                    fields[name] |= given - {"exc_info"}
    return {name: (sorted(levels[name]), sorted(fields[name])) for name in levels}


def written_names() -> set[str]:
    """Every text of the code that reads like an event, whoever writes it."""
    kinds = "alert|consumer|letter|library|message|mover|run|sweep"
    name = re.compile(rf"(?:{kinds})\.[a-z_]+")
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and name.fullmatch(text):
                found.add(text)
    return found


def _level(call: ast.Call) -> str | None:
    """The level that a call logs with; None if it does not log."""
    if not isinstance(call.func, ast.Attribute):
        return None
    owner = call.func.value
    name = owner.id if isinstance(owner, ast.Name) else str(getattr(owner, "attr", ""))
    if name in ("log", "_log") and call.func.attr in _LEVELS:
        return call.func.attr
    return _WRITTEN_BY_NAME.get(call.func.attr) if name == "self" else None


def _names(written: ast.expr) -> Iterator[str]:
    if isinstance(written, ast.IfExp):
        yield from _names(written.body)
        yield from _names(written.orelse)
    elif isinstance(written, ast.Constant) and "." in str(written.value):
        yield str(written.value)
