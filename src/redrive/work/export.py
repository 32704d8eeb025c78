"""Letters as lines of JSON, to keep or to carry elsewhere, and back.

Guarantees: a line holds all that is kept of a letter, byte for byte, and the way back gives the
same letter. A line that redaction rules have touched says so and is never taken back: it is not the
letter any more. Neither is one whose message is not what the letter was read from: its size
differs, or its properties cannot be read. What is wrong with a line is said with its place in it;
nothing is guessed.

A line is `{"format": 1, "redacted": false, "letter": …, "envelope": …, "history": […],
"attempts": […], "edits": […]}`, with the body as `{encoding, data}` like everywhere else.
"""

from __future__ import annotations

import base64
import json
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from redrive.amqp.properties import Properties
from redrive.domain.editing import as_edited
from redrive.domain.letter import Edit, Envelope, Kept
from redrive.domain.lifecycle import State
from redrive.errors import MalformedData
from redrive.work.exact import NotExact, from_document, to_document
from redrive.work.headers import camel_case
from redrive.work.redact import Redaction

FORMAT: Final = 1

_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NOT_STORED: Final = re.compile("[\x00\ud800-\udfff]")
_MOST_INT: Final = 2**31 - 1
_MOST_BIGINT: Final = 2**63 - 1
_MOST_PRIORITY: Final = 255
_DIGEST: Final = 16
_LONGEST_FINGERPRINT: Final = 16


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an export, with its end."""

    content: bytes
    redacted: bool


@dataclass(frozen=True, slots=True)
class Unusable:
    """A line that cannot be taken back, and why."""

    reason: str


def write_line(kept: Kept, redaction: Redaction) -> Line:
    """A letter as a line; without what the rules hide."""
    shown, letter = redaction.envelope(kept.envelope), redaction.letter(kept.letter)
    edits = tuple(_shown_edit(edit, kept.envelope, redaction) for edit in kept.edits)
    untouched = (kept.envelope, kept.letter, *kept.edits)
    redacted = any(map(operator.is_not, (shown, letter, *edits), untouched))
    document = to_document(replace(kept, envelope=shown, letter=letter, edits=edits))
    document["envelope"]["body"] = _body_document(shown.body)
    whole = {"format": FORMAT, "redacted": redacted, **document}
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    return Line(text.encode() + b"\n", redacted)


def _shown_edit(edit: Edit, original: Envelope, redaction: Redaction) -> Edit:
    """An edit without what the rules hide; the very same if none touches it."""
    message = as_edited(original, edit)
    shown = redaction.envelope(message)
    if shown is message:
        return edit
    return replace(edit, properties=shown.properties, body=shown.body)


def read_line(line: bytes) -> Kept | Unusable:
    """The letter of a line."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return Unusable("is no JSON")
    if not isinstance(document, dict):
        return Unusable("is no JSON object")
    written = document.pop("format", None)
    if written != FORMAT or isinstance(written, bool):
        return Unusable(f"has format {written!r}; this version reads {FORMAT}")
    if document.pop("redacted", None) is not False:
        return Unusable("was redacted: it is no longer the letter; export with --exact")
    try:
        envelope = document.get("envelope")
        if isinstance(envelope, dict):
            document["envelope"] = {**envelope, "body": _body_base64(envelope.get("body"))}
        kept = from_document(Kept, document)
    except NotExact as error:
        return Unusable(str(error))
    reason = next(_objections(kept), None)
    return Unusable(reason) if reason else kept


def _body_document(body: bytes) -> dict[str, str]:
    try:
        return {"encoding": "utf8", "data": body.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "data": base64.b64encode(body).decode()}


def _body_base64(body: Any) -> Any:
    """The body in the one form that all other bytes have."""
    match body:
        case {"encoding": "utf8", "data": str(text)} if len(body) == 2:
            try:
                return base64.b64encode(text.encode()).decode()
            except UnicodeEncodeError:
                raise NotExact("envelope.body.data", "valid text") from None
        case {"encoding": "base64", "data": data} if len(body) == 2:
            return data
        case _:
            raise NotExact("envelope.body", "an encoding, utf8 or base64, and data")


def _objections(kept: Kept) -> Iterator[str]:
    """What no store could hold, and what does not belong together; found before the first letter is
    written rather than by it."""
    letter = kept.letter
    for name in ("id", "duplicate_of", "parent_id", "previous_id"):
        value = getattr(letter, name)
        if value is not None and not _ID.fullmatch(value):
            yield f"letter.{camel_case(name)}: expected the id of a letter"
    if letter.priority > _MOST_PRIORITY:
        yield f"letter.priority: expected at most {_MOST_PRIORITY}"
    if len(letter.fingerprint) > _LONGEST_FINGERPRINT:
        yield f"letter.fingerprint: expected at most {_LONGEST_FINGERPRINT} characters"
    if (letter.locked_by is None) != (letter.locked_at is None):
        yield "letter.lockedBy: expected to be there if lockedAt is"
    newest = any(attempt.generation == letter.generation for attempt in kept.attempts)
    if letter.status is State.PROCESSING and not newest:
        yield f"attempts: expected generation {letter.generation}, whose verdict it waits for"
    if letter.duplicate_of is not None and not letter.possible_duplicate:
        yield "letter.possibleDuplicate: expected true where there is a duplicateOf"
    yield from _unfit_message(kept)
    yield from _wrong_details(kept)
    for part in ("letter", "history", "attempts", "edits"):
        yield from _unstorable(getattr(kept, part), part)


def _unfit_message(kept: Kept) -> Iterator[str]:
    letter, body = kept.letter, kept.envelope.body
    if letter.size != len(body):
        yield f"letter.size: expected {len(body)}, the bytes of envelope.body, got {letter.size}"
    if letter.deaths or letter.content_type is not None or letter.content_encoding is not None:
        try:
            Properties.read(kept.envelope.properties)
        except MalformedData as error:
            yield f"envelope.properties: expected those that the letter was read from: {error}"


def _wrong_details(kept: Kept) -> Iterator[str]:
    generations = [attempt.generation for attempt in kept.attempts]
    if len(set(generations)) < len(generations):
        yield "attempts: expected every generation once"
    newest, sent = max(generations, default=0), kept.letter.generation
    if newest > sent:  # its next sending would have a generation that is taken
        yield f"attempts: expected no generation above letter.generation, {sent}, got {newest}"
    if any(len(attempt.body_digest) != _DIGEST for attempt in kept.attempts):
        yield f"attempts: expected a bodyDigest of {_DIGEST} bytes"
    for attempt in kept.attempts:
        if attempt.replay_id is not None and not _ID.fullmatch(attempt.replay_id):
            yield "attempts: expected a replayId that is an id"
    numbers = [edit.number for edit in kept.edits]
    if numbers != sorted(set(numbers)):
        yield "edits: expected every number once, the lowest first"


def _unstorable(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, str):
        if _NOT_STORED.search(value):
            yield f"{place}: expected text without NUL and halves of characters"
    elif isinstance(value, int):
        large = place.startswith(("letter.size", "letter.deaths"))
        most = _MOST_BIGINT if large else _MOST_INT
        if not 0 <= value <= most:
            yield f"{place}: expected 0 to {most}"
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _unstorable(item, f"{place}[{index}]")
    elif is_dataclass(value):
        for field in fields(value):
            yield from _unstorable(getattr(value, field.name), f"{place}.{camel_case(field.name)}")
