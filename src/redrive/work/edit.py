"""Edits are made: a patch, a new body, other headers, on a message as it would be sent now.

Guarantees: nothing is written here. What an edit does not name stays byte for byte. A body that is
changed must be what its content type says: JSON that can be parsed, text in its charset. Where an
edit cannot be made, `EditRefused` says why, without a word of what the message holds.

A header keeps its type: an `int32` that is set stays one, and must be given a number. New ones, and
those that are removed and set at once, are text.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from redrive.amqp import fields
from redrive.amqp.properties import Properties
from redrive.domain.editing import (
    LONGEST_NAME,
    Editable,
    PreparedEdit,
    as_edited,
    editable,
    objection,
    standing,
    why_not_edited,
    why_not_set,
)
from redrive.domain.json_patch import Patch
from redrive.domain.letter import Envelope, Kept
from redrive.errors import EditRefused, MalformedData, PatchDoesNotApply
from redrive.work.decode import Decoded, charset_of, decode_body
from redrive.work.headers import TYPES
from redrive.work.hidden_parts import HiddenParts
from redrive.work.redact import NO_REDACTION, Redaction, content_of

_INTEGERS: Final = {
    ord(letter): struct.Struct(f">{code}")
    for letter, code in zip("bBsUuIilL", "bBhhHiIqq", strict=True)
}
_FLOATS: Final = {ord("f"): struct.Struct(">f"), ord("d"): struct.Struct(">d")}
_BOOL: Final = ord("t")
_AS_TEXT: Final = frozenset(b"SV")
_MARK: Final = "\ufeff"


@dataclass(frozen=True, slots=True, kw_only=True)
class EditOrder:
    """What is to be changed in a message."""

    body: bytes | None = None
    """All of it."""
    patch: Patch | None = None
    set_headers: tuple[tuple[str, str], ...] = ()
    remove_headers: tuple[str, ...] = ()
    content_type: str | None = None
    """Empty: none."""

    @property
    def is_empty(self) -> bool:
        return self == EditOrder()

    @property
    def touches_body(self) -> bool:
        """Whether it changes the body, or how the body is read."""
        return (self.body, self.patch, self.content_type) != (None, None, None)

    def check(self) -> None:
        """`EditRefused` if it could be meant for no message."""
        if self.body is not None and self.patch is not None:
            raise EditRefused("a new body and a patch of the old one: give one of them")
        for name in (*(name for name, _ in self.set_headers), *self.remove_headers):
            reason = why_not_set(name)
            if reason is not None:
                raise EditRefused(f"header {name!r} cannot be changed by hand: {reason}")
        if self.content_type is not None and len(fields.octets(self.content_type)) > LONGEST_NAME:
            raise EditRefused(f"a content type has at most {LONGEST_NAME} bytes")


def as_sent(kept: Kept) -> Envelope:
    """A letter's message as it would be sent now: with the edit that stands."""
    return as_edited(kept.envelope, standing(kept.edits))


def editable_of(kept: Kept) -> Editable:
    """What an edit of a letter is made from."""
    return editable(kept.letter.id, kept.letter.status, kept.envelope, kept.edits)


def prepare(
    given: Editable, order: EditOrder, redaction: Redaction = NO_REDACTION
) -> PreparedEdit | None:
    """The edit that an order makes of a letter; None if it changes nothing, as far as who does not
    see what the rules hide may know."""
    reason = why_not_edited(given.status)
    if reason is not None:
        raise EditRefused(reason)
    before = given.message
    hidden = HiddenParts.of(before, redaction) if order.touches_body else None
    if hidden is not None and order.patch is not None:
        hidden = hidden.patched(order.patch)
    properties, body = _properties(before.properties, order), _body(before, order)
    after = replace(before, properties=properties, body=body)
    if hidden is not None and order.body is None:
        hidden.require_hidden_in(after)
    guessed = hidden is not None or any(redaction.hides(name) for name, _ in order.set_headers)
    if (properties, body) == (before.properties, before.body) and not guessed:
        return None
    if body != before.body or order.content_type is not None:
        # Whoever takes the content type away wants it so.
        _require_fit(before, after, as_before=order.content_type is None)
    return PreparedEdit(
        letter_id=given.letter_id, made_from=given.number, properties=properties, body=body
    )


# The body


def text_to_edit(envelope: Envelope) -> str:
    """The body as text that a person can change; `EditRefused` if it is none."""
    content_type, content_encoding = content_of(envelope)
    decoded = decode_body(envelope.body, content_type, content_encoding)
    if decoded.undone or decoded.problem:
        raise EditRefused(
            f"the body has the content encoding {content_encoding}",
            remedy="give the whole body, encoded so, with --body",
        )
    text = _text(envelope.body, content_type, content_encoding)
    if text is None:
        raise EditRefused("the body is no text", remedy="give the whole body with --body")
    return text


def body_of_text(envelope: Envelope, text: str) -> bytes:
    """The bytes of a text that is to be the body, in the charset of the body it was."""
    charset = charset_of(envelope.body, *content_of(envelope))
    try:
        return text.encode(charset)
    except UnicodeEncodeError:
        raise EditRefused(f"the new body cannot be written in its charset, {charset}") from None


def _body(envelope: Envelope, order: EditOrder) -> bytes:
    if order.body is not None:
        return order.body
    if order.patch is None:
        return envelope.body
    try:
        text = text_to_edit(envelope)
    except EditRefused as refused:
        raise PatchDoesNotApply(str(refused), remedy=refused.remedy) from None
    mark = _MARK if text.startswith(_MARK) else ""
    patched = order.patch.apply(text.removeprefix(_MARK))
    return body_of_text(envelope, mark + patched)


def _text(content: bytes, content_type: str | None, content_encoding: str | None) -> str | None:
    """The text of a content, if that can be written back the same."""
    charset = charset_of(content, content_type, content_encoding)
    try:
        text = content.decode(charset)
        return text if text.encode(charset) == content else None
    except (UnicodeError, LookupError):
        return None


def _require_fit(before: Envelope, after: Envelope, *, as_before: bool) -> None:
    """Whether the new body is what the content type and the content encoding say."""
    content_type, content_encoding = content_of(after)
    decoded = decode_body(after.body, content_type, content_encoding)
    if decoded.problem:
        # What could not be read before either is no fault of the edit.
        if not _decoded(before).problem:
            raise EditRefused(f"the new body {decoded.problem}")
        return
    reason = objection(
        content_type,
        _text(decoded.content, content_type, content_encoding),
        before=_text_before(before) if as_before else None,
    )
    if reason is not None:
        raise EditRefused(f"the new body {reason}", remedy="mend it, or set another content type")


def _text_before(envelope: Envelope) -> str | None:
    """The text of a body whose properties can be read, and so mended."""
    try:
        Properties.read(envelope.properties)
    except MalformedData:
        return None
    return _text(_decoded(envelope).content, *content_of(envelope))


def _decoded(envelope: Envelope) -> Decoded:
    return decode_body(envelope.body, *content_of(envelope))


# Headers and content type


def _properties(raw: bytes, order: EditOrder) -> bytes:
    if not order.set_headers and not order.remove_headers and order.content_type is None:
        return raw
    try:
        properties = Properties.read(raw)
    except MalformedData:
        raise EditRefused("its properties cannot be read, and so not be changed") from None
    _require_there(properties, order.remove_headers)
    put = {
        name: _field(name, value, None if name in order.remove_headers else properties)
        for name, value in order.set_headers
    }
    if put or order.remove_headers:
        properties = properties.with_headers(put, remove=order.remove_headers)
    if order.content_type == "":
        properties = properties.without("content_type")
    elif order.content_type is not None:
        properties = properties.with_text("content_type", order.content_type)
    return properties.raw


def _require_there(properties: Properties, names: Sequence[str]) -> None:
    for name in names:
        if properties.header_field(name) is None:
            raise EditRefused(f"it has no header {name!r} to remove")


def _field(name: str, text: str, properties: Properties | None) -> bytes:
    """The raw field of a header that is set: of the type it has."""
    there = None if properties is None else properties.header_field(name)
    if there is None or there[0] in _AS_TEXT:
        return fields.longstr(text)
    letter, kind = there[0], TYPES[there[0]]
    field: bytes | None = None
    if letter == _BOOL:
        field = {"true": fields.boolean(True), "false": fields.boolean(False)}.get(text.lower())
    elif letter in _INTEGERS or letter in _FLOATS:
        field = _number(letter, text)
    if field is None:
        raise EditRefused(
            f"header {name!r} is of type {kind}, and {text!r} is not",
            remedy="with --remove-header as well, it becomes text",
        )
    return field


def _number(letter: int, text: str) -> bytes | None:
    try:
        if letter in _INTEGERS:
            return bytes((letter,)) + _INTEGERS[letter].pack(int(text))
        packed = _FLOATS[letter].pack(float(text))
        finite = math.isfinite(_FLOATS[letter].unpack(packed)[0])
    except (ValueError, OverflowError, struct.error):
        return None
    return bytes((letter,)) + packed if finite else None
