"""`redrive peek`: the first messages of a queue, shown as letters are, and left in it.

Guarantees: as `work/peek.py` has them. Redaction rules apply to all that is shown. Ctrl-C and
SIGTERM end it in good order; what was seen is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive import runtime
from redrive.amqp import Properties
from redrive.broker.looking import SPEND_DELIVERIES
from redrive.cli import wording
from redrive.cli.app import single
from redrive.cli.filters import NOTHING_MATCHED
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.letter_view import LetterView
from redrive.cli.passes import FAILED, INTERRUPTED, say_what_a_signal_does
from redrive.cli.rendering import console, note, one_line, print_json
from redrive.domain.letter import Arrival, Kept
from redrive.errors import MalformedData
from redrive.work.peek import Peeked
from redrive.work.peek import peek as look
from redrive.work.redact import Redaction
from redrive.work.show import letter_document

if TYPE_CHECKING:
    from redrive.settings import Settings

app = single("peek")

_MOST = 1000
# Of a letter, and not of a message: it has not been collected.
_LETTERS_OWN = frozenset(
    {
        *("id", "status", "fingerprint", "dlqRetryCount", "generation", "lockedBy", "lockedAt"),
        *("nextRetryAt", "verdictDueAt", "resolution", "possibleDuplicate", "duplicateOf"),
        *("parentId", "previousId", "replayAttempts", "edits", "history", "createdAt"),
        *("updatedAt", "collectedFrom"),
    }
)


@dataclass(frozen=True, slots=True)
class MessageView(LetterView):
    """How one message of a queue is printed: a letter without a life in the store."""

    number: int = 1
    present: int = 1

    def print(self) -> None:
        letter, envelope = self.kept.letter, self.kept.envelope
        again = ", delivered before" if envelope.redelivered else ""
        self._line(
            (f"Message {self.number:,} of {self.present:,}", "bold"),
            (f"  in {one_line(envelope.queue)}{again}", "dim"),
        )
        key = f"exchange {envelope.exchange or '(default)'}, key {envelope.routing_key or '(none)'}"
        self._line(("  came by     ", "dim"), (one_line(key), ""))
        if letter.queue is not None:
            origin = f"queue {letter.queue}, key {letter.routing_key or '(none)'}"
            self._line(("  origin      ", "dim"), (one_line(origin), ""))
        self._failure()
        if letter.deaths:
            self._title("Deaths")
            self._deaths(max(len(one_line(death.queue)) for death in letter.deaths))
        self._message()
        self._body()


@app.command()
@invoked
def peek(
    invocation: Invocation,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue to look into.")],
    *,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=_MOST, help="Look at so many messages.")
    ] = 10,
    full: Annotated[
        bool, typer.Option("--full", help="Cut nothing, however long the body or the stack is.")
    ] = False,
    spend_deliveries: Annotated[
        bool,
        typer.Option(
            SPEND_DELIVERIES, help="Look even where each look counts towards a delivery limit."
        ),
    ] = False,
) -> None:
    """Show the first messages of a queue, and leave them in it."""
    settings = invocation.load().settings
    from redrive.cli.logs import silence_logs  # noqa: PLC0415  (not needed for --help)

    silence_logs()
    peeked, interrupted = runtime.run_async(_peek(settings, queue, limit, spend=spend_deliveries))
    redaction = Redaction.by(settings.redaction)
    if invocation.output is Output.JSON:
        items = [_document(each, redaction) for each in peeked.messages]
        print_json(
            {
                "queue": queue,
                "present": peeked.present,
                "interrupted": interrupted,
                "items": items,
            }
        )
    else:
        _show(peeked, redaction, full=full)
    for text in peeked.notes:
        note(f"{queue}: {text}")
    if peeked.error:
        note(f"{queue}: {peeked.error}")
        raise typer.Exit(FAILED)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if not peeked.messages:
        empty = "is empty" if not peeked.present else "has no message that could be shown"
        note(f"{queue} {empty}")
        raise typer.Exit(NOTHING_MATCHED)


async def _peek(settings: Settings, queue: str, limit: int, *, spend: bool) -> tuple[Peeked, bool]:
    with runtime.stopped_by_signals(say_what_a_signal_does) as stopping:
        async with runtime.queue_site(settings) as (site, silent):
            if silent is not None:
                note(f"{silent}; the queue's type and limits are unknown")
            peeked = await look(
                site,
                queue,
                runtime.understanding(settings),
                most=limit,
                spend_deliveries=spend,
                limits=runtime.limits(settings),
                stopping=stopping,
            )
            return peeked, stopping.is_set()


def _show(peeked: Peeked, redaction: Redaction, *, full: bool) -> None:
    now, out = datetime.now(UTC), console()
    for number, each in enumerate(peeked.messages, start=1):
        if number > 1:
            typer.echo()
        kept = Kept(letter=each.letter, envelope=each.envelope, history=(), attempts=())
        MessageView(
            kept, redaction, now, out, full=full, number=number, present=peeked.present
        ).print()
    rest = peeked.present - len(peeked.messages)
    if rest > 0:
        note(f"{wording.plural(rest, 'message')} more; --limit shows more of them")


def _document(arrival: Arrival, redaction: Redaction) -> dict[str, Any]:
    kept = Kept(letter=arrival.letter, envelope=arrival.envelope, history=(), attempts=())
    document = letter_document(kept, redaction=redaction)
    envelope = arrival.envelope
    came = {
        "exchange": envelope.exchange,
        "routingKey": envelope.routing_key,
        "redelivered": envelope.redelivered,
    }
    shown = {name: value for name, value in document.items() if name not in _LETTERS_OWN}
    shown["metadata"].pop("systemState", None)
    shown["messageId"] = _message_id(envelope.properties)  # a letter without one is given one
    return came | shown


def _message_id(properties: bytes) -> str | None:
    try:
        return str(Properties.read(properties).get("message_id") or "") or None
    except MalformedData:
        return None
