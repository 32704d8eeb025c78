"""One letter on a terminal: what failed, where, when, the message, and what can be done.

Guarantees: what the message holds is shown as text and never obeyed by the terminal; redaction
rules apply. Long parts are cut, and say so, unless all of it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from redrive.cli import wording
from redrive.cli.rendering import dump_json, lines, one_line, print_table
from redrive.domain import headers
from redrive.domain.editing import standing
from redrive.domain.letter import Kept, Letter
from redrive.domain.lifecycle import remedy_of
from redrive.work.decode import Kind, decode_body, hex_dump, indent_json
from redrive.work.difference import difference
from redrive.work.edit import as_sent
from redrive.work.redact import Redaction
from redrive.work.show import message_document

if TYPE_CHECKING:
    from rich.console import Console

_STACK_LINES: Final = 15
_BODY_LINES: Final = 100
_LINE_LENGTH: Final = 2000
_BYTES: Final = 512
_HEADER_LENGTH: Final = 200
# Told by the timeline and the failure already.
_TOLD: Final = frozenset(
    {headers.X_DEATH, headers.DEATHS, headers.ERROR_TYPE, headers.ERROR_REASON, headers.ERROR_STACK}
)


@dataclass(frozen=True, slots=True)
class LetterView:
    """How one letter is printed."""

    kept: Kept
    redaction: Redaction
    now: datetime
    out: Console
    full: bool = False

    def print(self) -> None:
        """All of it, on stdout."""
        self._heading()
        self._failure()
        self._timeline()
        self._message()
        self._body()
        self._edits()
        self._past()
        self._next()

    # What it is

    def _heading(self) -> None:
        letter = self.kept.letter
        state = wording.state(letter.status)
        self._line(("Letter ", "bold"), (letter.id, "bold"), ("  ", ""), (state.text, state.style))
        for word, text in _facts(letter, self.now):
            self._line((f"  {word:<12}", "dim"), (one_line(text), ""))

    def _failure(self) -> None:
        letter = self.kept.letter
        self._title("Failure")
        self._line((f"  {one_line(letter.error_type)}", "bold red"))
        for line in lines(letter.error_reason) if letter.error_reason else ():
            self._line((f"  {line}", ""))
        if letter.error_stack:
            self._cut_lines(lines(letter.error_stack), _STACK_LINES, style="dim", indent=4)

    def _timeline(self) -> None:
        self._title("Deaths")
        letter = self.kept.letter
        queues = [*(death.queue for death in letter.deaths), letter.collected_from]
        width = max(len(one_line(queue)) for queue in queues)
        before = self._deaths(width)
        self._between(before, letter.created_at)
        collected = (
            f"{wording.clock(letter.created_at)}  {one_line(letter.collected_from):<{width}}"
        )
        self._line(("  ◆ ", "green"), (f"{collected}  ", ""), ("collected", "bold"))

    def _deaths(self, width: int) -> datetime | None:
        """The deaths, oldest first; when the last one was."""
        before: datetime | None = None
        for death in self.kept.letter.deaths:
            self._between(before, death.at)
            before = death.at or before
            at = wording.clock(death.at) if death.at else "at an unknown time".ljust(23)
            times = f" {death.count} times" if death.count > 1 else ""
            key = f"  key {one_line(death.routing_key)}" if death.routing_key is not None else ""
            exchange = f", exchange {one_line(death.exchange)}" if death.exchange else ""
            self._line(
                ("  ● ", "red"),
                (f"{at}  {one_line(death.queue):<{width}}  ", ""),
                (f"{one_line(death.reason)}{times}", "bold"),
                (f"{key}{exchange}", "dim"),
            )
        return before

    def _between(self, before: datetime | None, then: datetime | None) -> None:
        if before is not None and then is not None and then >= before:
            self._line((f"  │ {wording.span(then - before)} later", "dim"))

    # The message

    def _message(self) -> None:
        document = message_document(self.kept.envelope, self.redaction)
        if unreadable := document.get("unreadableProperties"):
            hidden = unreadable.get("redacted", False)
            more = ", and are hidden by redaction.headers" if hidden else ": see --output json"
            self._title("Headers")
            self._line((f"  the properties cannot be read{more}", "dim"))
            return
        if document["properties"]:
            self._title("Properties")
            for name, value in document["properties"].items():
                self._line((f"  {name:<16}", "dim"), (one_line(str(value)), ""))
        shown = [one for one in document["headers"] if self.full or one["name"] not in _TOLD]
        left_out = [one["name"] for one in document["headers"] if one not in shown]
        if not document["headers"]:
            return
        self._title("Headers")
        if shown:
            rows = [
                (f"  {one_line(one['name'])}", one["type"], self._cut(one_line(_plain(one))))
                for one in shown
            ]
            print_table(("  NAME", "TYPE", "VALUE"), [rows], out=self.out)
        if left_out:
            names = ", ".join(dict.fromkeys(left_out))
            self._line((f"  not repeated here: {names} (--full shows them)", "dim"))

    def _cut(self, text: str) -> str:
        if self.full or len(text) <= _HEADER_LENGTH:
            return text
        return f"{text[:_HEADER_LENGTH]}… ({len(text):,} characters)"

    def _body(self) -> None:
        envelope, letter = self.kept.envelope, self.kept.letter
        decoded = decode_body(envelope.body, letter.content_type, letter.content_encoding)
        redacted = self.redaction.body(decoded)
        facts = [letter.content_type or "no content type", wording.size(len(envelope.body))]
        if decoded.undone:
            facts.append(
                f"{wording.size(len(decoded.content))} without {', '.join(decoded.undone)}"
            )
        if redacted:
            facts.append("redacted")
        self._title("Body", one_line(", ".join(facts)))
        if redacted and redacted.note:
            self._line((f"  {one_line(redacted.note)}", "yellow"))
        elif decoded.problem:
            self._line((f"  it {one_line(decoded.problem)}; shown undecoded", "yellow"))
        if redacted:
            self._text(indent_json(redacted.text), json=True)
        elif decoded.kind is Kind.EMPTY:
            self._line(("  (empty)", "dim"))
        elif decoded.kind is Kind.BINARY:
            self._hex(decoded.content)
        else:
            text = decoded.text or ""
            is_json = decoded.kind is Kind.JSON
            self._text(indent_json(text) if is_json else text, json=is_json)

    def _text(self, text: str, *, json: bool) -> None:
        self._cut_lines(lines(text), _BODY_LINES, indent=2, json=json)

    def _hex(self, content: bytes) -> None:
        shown = content if self.full else content[:_BYTES]
        for line in hex_dump(shown):
            self._line((f"  {line}", ""))
        self._more(len(content) - len(shown), "byte")

    def _edits(self) -> None:
        if not self.kept.edits:
            return
        sent = standing(self.kept.edits)
        more = f"edit {sent.number} is sent instead of the above" if sent else "all were undone"
        self._title("Edits", more)
        rows = [
            (
                f"  {edit.number}",
                wording.clock(edit.at),
                "undone" if edit.undone else "stands" if edit is sent else "replaced",
                one_line(edit.actor),
                one_line(edit.reason) or "-",
            )
            for edit in self.kept.edits
        ]
        print_table(("  EDIT", "AT", "IT", "BY", "WHY"), [rows], out=self.out)
        if sent is None:
            return
        self._line(("", ""))
        changed = difference(self.kept.envelope, as_sent(self.kept), self.redaction)
        self._cut_lines([one_line(line) for line in changed], _BODY_LINES, indent=2)

    # What happened, and what can

    def _past(self) -> None:
        if self.kept.attempts:
            self._title("Replays")
            rows = [
                (
                    f"  {attempt.generation}",
                    wording.clock(attempt.at),
                    attempt.result.value,
                    one_line(attempt.strategy),
                    one_line(attempt.worker_id),
                    one_line(attempt.queue or "-"),
                )
                for attempt in self.kept.attempts
            ]
            columns = ("  GENERATION", "AT", "RESULT", "STRATEGY", "WORKER", "QUEUE")
            print_table(columns, [rows], out=self.out)
        self._title("History")
        rows_ = [
            (
                f"  {wording.clock(change.at)}",
                wording.state(change.after),
                one_line(change.actor),
                one_line(change.reason),
            )
            for change in self.kept.history
        ]
        print_table(("  AT", "STATE", "BY", "WHY"), [rows_], out=self.out)

    def _next(self) -> None:
        letter = self.kept.letter
        alike = f"'redrive letters list --group {letter.fingerprint}' lists those that failed alike"
        remedy = remedy_of(letter.status, origin_known=letter.queue is not None)
        self._title("Next", f"{remedy}; {alike}")

    # Printing

    def _title(self, title: str, more: str = "") -> None:
        self._line(("", ""))
        self._line((title, "bold"), (f"  {more}" if more else "", "dim"))

    def _line(self, *parts: tuple[str, str]) -> None:
        from rich.text import Text  # noqa: PLC0415  (slow to import: only where it is used)

        self.out.print(Text.assemble(*parts), soft_wrap=True)

    def _cut_lines(
        self,
        all_lines: Sequence[str],
        most: int,
        *,
        indent: int,
        style: str = "",
        json: bool = False,
    ) -> None:
        shown = all_lines if self.full else all_lines[:most]
        for line in shown:
            long = not self.full and len(line) > _LINE_LENGTH
            text = line[:_LINE_LENGTH] if long else line
            self._content(" " * indent + text, style, json=json)
            if long:
                self._more(len(line) - _LINE_LENGTH, "character")
        self._more(len(all_lines) - len(shown), "line")

    def _content(self, text: str, style: str, *, json: bool) -> None:
        from rich.highlighter import JSONHighlighter  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        content = Text(text, style)
        if json:
            JSONHighlighter().highlight(content)
        self.out.print(content, soft_wrap=True)

    def _more(self, number: int, word: str) -> None:
        if number > 0:
            self._line((f"    … {wording.plural(number, word)} more; --full shows all", "yellow"))


def _facts(letter: Letter, now: datetime) -> Iterator[tuple[str, str]]:
    yield "collected", f"{_when(letter.created_at, now)}, from {letter.collected_from}"
    queue = letter.queue if letter.queue is not None else "unknown"
    yield (
        "origin",
        (
            f"queue {queue}, exchange {letter.exchange or '(default)'},"
            f" key {letter.routing_key or '(none)'}, vhost {letter.vhost}"
        ),
    )
    yield "failed", f"first {_when(letter.first_failed_at, now)}"
    if letter.last_failed_at != letter.first_failed_at:
        yield "", f"last {_when(letter.last_failed_at, now)}"
    yield (
        "tries",
        (
            f"{wording.plural(letter.retry_count, 'retry', 'retries')} before it was dead,"
            f" {wording.plural(letter.dlq_retry_count, 'revival')} since"
        ),
    )
    yield "message id", letter.message_id
    tags = f", tags {', '.join(letter.tags)}" if letter.tags else ""
    yield "source", f"{letter.source}, priority {letter.priority}{tags}"
    yield "group", letter.fingerprint
    yield from _links(letter)
    yield from _times(letter, now)


def _links(letter: Letter) -> Iterable[tuple[str, str]]:
    if letter.possible_duplicate:
        other = letter.duplicate_of or "another letter"
        yield "duplicate?", f"may be a second copy of {other}"
    if letter.parent_id:
        yield "parent", f"{letter.parent_id}, whose headers its message carries"
    if letter.previous_id:
        yield "previous", f"{letter.previous_id}, deleted before its message came back"


def _times(letter: Letter, now: datetime) -> Iterable[tuple[str, str]]:
    if letter.locked_by and letter.locked_at:
        yield "locked", f"by {letter.locked_by}, {_when(letter.locked_at, now)}"
    if letter.next_retry_at:
        yield "next try", _when(letter.next_retry_at, now)
    if letter.verdict_due_at:
        yield "verdict due", _when(letter.verdict_due_at, now)
    if letter.resolution:
        yield "resolved by", letter.resolution.value


def _when(at: datetime, now: datetime) -> str:
    return f"{wording.clock(at)} ({wording.relative(at, now)})"


def _plain(document: dict[str, Any]) -> str:
    """A header's value in one line, without the types inside."""
    value = _untyped(document)
    return value if isinstance(value, str) else dump_json(value)


def _untyped(document: dict[str, Any]) -> Any:
    value = document["value"]
    if "encoding" in document:
        return f"base64:{value}"
    if document["type"] == "table" and isinstance(value, list):
        return {one["name"]: _untyped(one) for one in value}
    if document["type"] == "array" and isinstance(value, list):
        return [_untyped(one) for one in value]
    return value
