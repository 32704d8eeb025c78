"""A body as people read it: content encodings undone, text in its charset, JSON on many lines.

Guarantees: what is shown is written as it was sent; only white space between the parts of JSON is
added, so a number of any length stays itself. Nothing that a redaction rule hides is in it. Of a
large body the beginning is shown, and `truncated` says so.
"""

from __future__ import annotations

from typing import Any, Final

from redrive.domain.letter import Envelope
from redrive.errors import EditRefused
from redrive.work.decode import Kind, decode_body, hex_dump, indent_json
from redrive.work.edit import text_to_edit
from redrive.work.redact import Redaction, content_of

_MOST_INDENTED: Final = 2 * 2**20
"""Characters of JSON that are put on many lines: beyond, it takes long enough to be felt."""
_MOST_BYTES: Final = 16 * 1024
"""Bytes of what is no text that are shown; each is four characters then."""


def content_document(envelope: Envelope, redaction: Redaction, most: int) -> dict[str, Any]:
    """What a body says, of which at most `most` characters are shown of each form."""
    decoded = decode_body(envelope.body, *content_of(envelope))
    redacted = redaction.body(decoded)
    text = decoded.text if redacted is None else redacted.text
    kind = decoded.kind if redacted is None else Kind.JSON
    pretty, dump = None, None
    if kind is Kind.JSON and text is not None and len(text) <= _MOST_INDENTED:
        pretty = indent_json(text)
    if kind is Kind.BINARY:
        text, dump = None, "\n".join(hex_dump(decoded.content[:_MOST_BYTES]))
    shown = len(decoded.content) if text is None else len(text)
    limit = _MOST_BYTES if text is None else most
    return {
        "kind": kind.value,
        "text": None if text is None else text[:most],
        "pretty": None if pretty is None else pretty[:most],
        "hex": dump,
        "undone": list(decoded.undone),
        "problem": decoded.problem if redacted is None else redacted.note,
        "size": len(decoded.content),
        "truncated": shown > limit or (pretty is not None and len(pretty) > most),
        "redacted": redacted is not None,
        "editable": redacted is None and shown <= limit and text == _text_to_edit(envelope),
    }


def _text_to_edit(envelope: Envelope) -> str | None:
    try:
        return text_to_edit(envelope)
    except EditRefused:
        return None
