"""What may be edited, when, and what an edited message must still be.

An edit changes no state. It is a whole message beside the original, which is kept; what is sent is
the newest edit that was not undone. A letter that is outstanding is not edited, for nobody could
tell which message its verdict is on; nor is one that is archived, which is restored first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from redrive.domain.headers import BROKERS_OWN
from redrive.domain.json_spans import require_json
from redrive.domain.letter import Attempt, Edit, Envelope, Result
from redrive.domain.lifecycle import State

LONGEST_NAME: Final = 255
"""Bytes that the wire has for the name of a header and for a content type."""
LONGEST_REASON: Final = 2000

_OWN: Final = "redrive-"
_JSON_TYPE: Final = re.compile(r"\s*[^;\s]*[/+]json\s*(;|$)", re.IGNORECASE)
_TEXT_TYPE: Final = re.compile(r"\s*text/", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Editable:
    """A letter's message as it would be sent now, to make an edit from."""

    letter_id: str
    status: State
    message: Envelope
    number: int
    """Of the edit that stands; 0 for the original."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEdit:
    """A message that is to be sent instead of the one it was made from."""

    letter_id: str
    made_from: int
    """The number of the standing edit it was made from; 0 for the original."""
    properties: bytes
    body: bytes


def editable(letter_id: str, status: State, original: Envelope, edits: Sequence[Edit]) -> Editable:
    """What an edit of a letter is made from."""
    edit = standing(edits)
    return Editable(
        letter_id=letter_id,
        status=status,
        message=as_edited(original, edit),
        number=0 if edit is None else edit.number,
    )


def as_edited(original: Envelope, edit: Edit | None) -> Envelope:
    """A message with an edit in the place of what was received."""
    if edit is None:
        return original
    return replace(original, properties=edit.properties, body=edit.body)


def standing(edits: Sequence[Edit]) -> Edit | None:
    """The edit that is sent: the newest that is not undone; None for the original."""
    return next((edit for edit in reversed(edits) if not edit.undone), None)


def why_not_edited(state: State) -> str | None:
    """Why a letter in that state is not edited; None if it may be."""
    if state is State.PROCESSING:
        return "it is outstanding: one copy was sent, and has no verdict yet"
    if state is State.ARCHIVED:
        return "it is archived: restore it first"
    return None


def was_sent(edit: Edit, attempts: Sequence[Attempt]) -> bool:
    """Whether an edited message left, or may have left."""
    return any(
        attempt.at >= edit.at and attempt.result is not Result.REFUSED for attempt in attempts
    )


def why_not_set(header: str) -> str | None:
    """Why a header cannot be set or removed by hand; None if it can."""
    name = header.lower()
    if not header:
        return "a header has a name"
    if len(header.encode("utf-8", "surrogateescape")) > LONGEST_NAME:
        return f"the name of a header has at most {LONGEST_NAME} bytes"
    if name.startswith(_OWN):
        return f"{header} is Redrive's own, and written when a letter is sent"
    if name in BROKERS_OWN:
        return f"{header} is the broker's own, and never sent"
    return None


def is_json_type(content_type: str | None) -> bool:
    """`application/json`, `application/problem+json; charset=utf-8` and the like."""
    return content_type is not None and _JSON_TYPE.match(content_type) is not None


def is_text_type(content_type: str | None) -> bool:
    """`text/plain` and the like."""
    return content_type is not None and _TEXT_TYPE.match(content_type) is not None


def objection(
    content_type: str | None, text: str | None, *, before: str | None = None
) -> str | None:
    """Why a body is not what its content type says; None if it is. `text` is None for a body that
    is no text in its charset. Without a content type it is to be JSON if the body before it is."""
    if is_json_type(content_type):
        because = "its content type is JSON"
    elif content_type is None and before is not None and _is_document(before):
        because = "the body before is"
    elif is_text_type(content_type) and text is None:
        return "is no text in its charset, though its content type says so"
    else:
        return None
    if text is None:
        return f"is no text, though {because}"
    try:
        require_json(text.removeprefix("\ufeff"))
    except ValueError as error:
        return f"{error}, though {because}"
    return None


def _is_document(text: str) -> bool:
    """Whether it is JSON by intent: an object or a list, not a word or a number."""
    plain = text.removeprefix("\ufeff").strip()
    try:
        require_json(plain)
    except ValueError:
        return False
    return plain[:1] in ("{", "[")
