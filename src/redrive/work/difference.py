"""Two messages side by side: what differs, line by line, for people.

JSON is compared on many lines, so that white space between its parts does not count; nothing that a
redaction rule hides is shown.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator

from redrive.domain.letter import Envelope
from redrive.work.decode import Kind, decode_body, indent_json
from redrive.work.redact import Redaction, content_of
from redrive.work.show import message_document


def difference(before: Envelope, after: Envelope, redaction: Redaction) -> list[str]:
    """A unified diff, without the names of files."""
    lines = difflib.unified_diff(
        list(_lines(before, redaction)), list(_lines(after, redaction)), lineterm="", n=3
    )
    return list(lines)[2:]


def _lines(envelope: Envelope, redaction: Redaction) -> Iterator[str]:
    document = message_document(envelope, redaction)
    for name, value in document["properties"].items():
        yield f"{name}: {value}"
    for header in document["headers"]:
        yield f"header {header['name']} ({header['type']}): {_value(header['value'])}"
    yield ""
    yield from _body(envelope, redaction)


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _body(envelope: Envelope, redaction: Redaction) -> Iterator[str]:
    decoded = decode_body(envelope.body, *content_of(envelope))
    redacted = redaction.body(decoded)
    if redacted is not None:
        if redacted.note:
            yield f"({redacted.note})"
        yield from indent_json(redacted.text).splitlines()
    elif decoded.kind is Kind.JSON:
        yield from indent_json(decoded.text or "").splitlines()
    elif decoded.text is not None:
        yield from decoded.text.splitlines()
    else:
        yield f"({len(envelope.body):,} bytes)"
