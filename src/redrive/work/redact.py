"""What people must not see of a message: headers by name, parts of JSON bodies by JSONPath.

Guarantees: applies to what is shown, logged and exported, never to what is stored or sent. A rule
that touches a body replaces the whole shown text by a new rendering without the hidden parts, so
that neither the original bytes nor a repeated key give them away; where no rule touches, every byte
is as it was. A body that is no JSON has no parts to hide and is shown as it is. Where a rule cannot
be applied, more is hidden rather than less: a body that says to be JSON or begins like it, and that
cannot be searched (cut off, of several documents, nested too deep, in an encoding that cannot be
undone), is hidden as a whole, and so is a property section, or a table or array in a header, that
cannot be read; a rule for any header that failures are read from hides the reason and the stack of
every letter.
"""

from __future__ import annotations

import copy
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from redrive.amqp import fields
from redrive.amqp.properties import Properties
from redrive.domain.failure import TEXTS
from redrive.domain.filters import Group, Searched
from redrive.domain.headers import TAGS
from redrive.domain.letter import Envelope, Letter
from redrive.domain.masking import MASK
from redrive.errors import MalformedData
from redrive.work.decode import Decoded, Kind, decode_body, parse_any_json

if TYPE_CHECKING:
    from jsonpath import CompoundJSONPath, JSONPath

    from redrive.settings.sections import RedactionSettings

_TABLE: Final = ord("F")
_ARRAY: Final = ord("A")

Place = tuple[str | int, ...]
"""The keys and indexes that lead to a part of a document."""


@dataclass(frozen=True, slots=True)
class RedactedBody:
    """A body as it may be shown."""

    text: str
    document: Any
    """None where it is no JSON by the standard: NaN, a number beyond a double."""
    note: str | None = None
    """Why it is hidden as a whole; None if it is not."""


class Redaction:
    """The rules of one set of settings."""

    def __init__(self, headers: Sequence[str] = (), json_paths: Sequence[str] = ()) -> None:
        self._names = re.compile(
            "|".join(map(_glob, headers)) or r"(?!)", re.IGNORECASE | re.DOTALL
        )
        self._paths = _compile(json_paths) if json_paths else []
        self.hides_headers = bool(headers)
        self._hides_failures = any(map(self.hides, TEXTS))
        self._hides_tags = self.hides(TAGS)
        self.hides_in_bodies = bool(self._paths)

    @staticmethod
    def by(settings: RedactionSettings) -> Redaction:
        """The rules that the settings have."""
        return _of(tuple(settings.headers), tuple(settings.json_paths))

    def searched(self) -> Searched:
        """Where people may search who do not see what is hidden: a search that reads it would tell
        it, character by character."""
        return Searched(
            bodies=not self.hides_in_bodies,
            failures=not self._hides_failures,
            tags=not self._hides_tags,
        )

    def hides(self, header: str) -> bool:
        """Whether the value of a header, or of an entry of a table in one, is hidden."""
        return self._names.fullmatch(header) is not None

    def letter(self, letter: Letter) -> Letter:
        """A letter without the texts that came from hidden headers; the very same if none does."""
        if self._hides_failures:
            stack = None if letter.error_stack is None else MASK
            letter = replace(letter, error_reason=MASK, error_stack=stack)
        if self._hides_tags and letter.tags:
            letter = replace(letter, tags=(MASK,))
        return letter

    def group(self, group: Group) -> Group:
        """A group without a reason that came from a hidden header."""
        return replace(group, reason=MASK) if self._hides_failures else group

    def reason(self, text: str) -> str:
        """A reason that may have come from a hidden header."""
        return MASK if self._hides_failures else text

    def body(self, decoded: Decoded) -> RedactedBody | None:
        """The body without what is hidden; None if nothing of it is."""
        if not self._paths or not decoded.may_be_json:
            return None
        try:
            found, repeats_keys = _searchable(decoded)
        except ValueError as error:
            return _hidden(str(error))
        places = self.places(found)
        if places is None:
            return _hidden("makes a rule fail")
        if not places and not repeats_keys:
            return None
        document = copy.deepcopy(found)
        for place in sorted(places, key=len, reverse=True):
            document = put_at(document, place, MASK)
        return RedactedBody(_render(document), document if decoded.kind is Kind.JSON else None)

    def places(self, document: Any) -> list[Place] | None:
        """Where a document has what is hidden; None if a rule cannot be applied to it."""
        try:
            return [match.parts for path in self._paths for match in path.finditer(document)]
        except Exception:  # noqa: BLE001  (the library's own, of many kinds; see the docstring)
            return None

    def properties(self, raw: bytes) -> bytes:
        """A property section with the hidden headers' values replaced; all of one that cannot be
        read."""
        if not self.hides_headers:
            return raw
        try:
            properties = Properties.read(raw)
        except MalformedData:
            return MASK.encode()
        entries = properties.entries()
        shown = [(name, self._field(name, field)) for name, field in entries]
        touched = {name for (name, new), (_, old) in zip(shown, entries, strict=True) if new != old}
        if not touched:
            return raw
        # Of repeated names the first stays: it may be the one that nothing touched.
        put = {name: field for name, field in reversed(shown) if name in touched}
        return properties.with_headers(put).raw

    def envelope(self, envelope: Envelope) -> Envelope:
        """A message as it may leave; the very same if no rule touches it."""
        properties = self.properties(envelope.properties)
        body = envelope.body
        if self._paths:
            content_type, content_encoding = content_of(envelope)
            redacted = self.body(decode_body(body, content_type, content_encoding))
            if redacted is not None:
                body = redacted.text.encode("utf-8", "surrogatepass")
        if properties == envelope.properties and body is envelope.body:
            return envelope
        return replace(envelope, properties=properties, body=body)

    def _field(self, name: str, field: bytes) -> bytes:
        return fields.longstr(MASK) if self.hides(name) else self._inside(field, 0)

    def _inside(self, field: bytes, depth: int) -> bytes:
        """A table or array with what is hidden in it replaced; any other field as it is."""
        if field[0] not in (_TABLE, _ARRAY):
            return field
        if depth == fields.MAX_DEPTH:
            return fields.longstr(MASK)
        parts: list[bytes] = []
        try:
            if field[0] == _TABLE:
                for name, start, stop in fields.table_entries(field, 5, len(field)):
                    hidden = self.hides(fields.text(name))
                    value = (
                        fields.longstr(MASK)
                        if hidden
                        else self._inside(field[start:stop], depth + 1)
                    )
                    parts.append(fields.entry(name, value))
            else:
                start = 5
                while start < len(field):
                    stop = fields.field_end(field, start, len(field))
                    parts.append(self._inside(field[start:stop], depth + 1))
                    start = stop
        except (MalformedData, IndexError):
            return fields.longstr(MASK)
        inside = b"".join(parts)
        return field[:1] + len(inside).to_bytes(4, "big") + inside


@lru_cache(maxsize=8)
def _of(headers: tuple[str, ...], json_paths: tuple[str, ...]) -> Redaction:
    """Every request asks for the rules, and to compile them takes a while."""
    return Redaction(headers, json_paths)


def content_of(envelope: Envelope) -> tuple[str | None, str | None]:
    """Content type and content encoding of a message."""
    try:
        properties = Properties.read(envelope.properties)
    except MalformedData:
        return None, None
    found = [properties.get(name) for name in ("content_type", "content_encoding")]
    content_type, content_encoding = (one if isinstance(one, str) else None for one in found)
    return content_type, content_encoding


def put_at(document: Any, place: Place, value: Any) -> Any:
    """The document, with a value put at a place that it has."""
    if not place:
        return value
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return document


def _glob(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


def _compile(paths: Sequence[str]) -> list[JSONPath | CompoundJSONPath]:
    import jsonpath  # noqa: PLC0415  (slow to import, and few settings have such rules)

    return [jsonpath.compile(path, strict=True) for path in paths]


def _searchable(decoded: Decoded) -> tuple[Any, bool]:
    """The document, and whether it repeats keys; `ValueError` if it cannot be known."""
    if decoded.kind is Kind.JSON:
        return decoded.document, decoded.repeats_keys
    if decoded.problem is not None:
        raise ValueError(decoded.problem)
    if decoded.text is None:
        raise ValueError("is no text")
    return parse_any_json(decoded.text)


def _hidden(why: str) -> RedactedBody:
    note = f"hidden as a whole, since redaction.json_paths cannot be applied: it {why}"
    return RedactedBody(json.dumps(MASK), MASK, note)


def _render(document: Any) -> str:
    text = _dumps(document, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can write
        return _dumps(document, ensure_ascii=True)
    return text


def _dumps(document: Any, *, ensure_ascii: bool) -> str:
    """JSON, with a `Decimal` as the number that it is, which `json` has no way to write."""
    mark = secrets.token_hex(16)
    text = json.dumps(document, ensure_ascii=ensure_ascii, default=lambda number: f"{mark}{number}")
    return re.sub(f'"{mark}([^"]*)"', r"\1", text)


NO_REDACTION: Final = Redaction()
