"""A message's headers and properties as JSON, each with its AMQP type.

Guarantees: every header is there, in the wire's order, repeated names too. Bytes that are not UTF-8
are base64 and marked so, numbers that JSON does not have are text, and what cannot be read is given
as its bytes. Hidden values are masked and marked; where any header is hidden, so is a table or an
array that cannot be read: it may hold that header.
"""

from __future__ import annotations

import base64
import math
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from redrive.amqp import fields
from redrive.amqp.properties import NAMES, Properties
from redrive.domain.masking import MASK
from redrive.errors import MalformedData
from redrive.work.redact import Redaction
from redrive.work.times import rfc3339

TYPES: Final = {
    ord(letter): word
    for letter, word in {
        "t": "bool",
        "b": "int8",
        "B": "uint8",
        "s": "int16",
        "U": "int16",
        "u": "uint16",
        "I": "int32",
        "i": "uint32",
        "l": "int64",
        "L": "int64",
        "f": "float",
        "d": "double",
        "D": "decimal",
        "S": "longstr",
        "x": "bytes",
        "T": "timestamp",
        "V": "void",
        "A": "array",
        "F": "table",
    }.items()
}
"""What the type letters of the wire are called."""


def header_documents(properties: Properties, redaction: Redaction) -> list[dict[str, Any]]:
    """The headers, each as `{name, type, value}`."""
    return [_named(name, field, redaction, 0) for name, field in properties.entries()]


def property_documents(properties: Properties) -> dict[str, Any]:
    """The properties that are set, other than the headers, by their names in JSON."""
    found = {name: properties.get(name) for name in NAMES if name != "headers"}
    return {
        camel_case(name): rfc3339(value) if isinstance(value, datetime) else _plain(value)
        for name, value in found.items()
        if value is not None
    }


def camel_case(name: str) -> str:
    """`content_type` as `contentType`."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _plain(value: str | int | datetime | None) -> Any:
    # For people: bytes that are not UTF-8 are shown as such, the raw section has them exactly.
    return fields.octets(value).decode("utf-8", "replace") if isinstance(value, str) else value


def _named(name: str, field: bytes, redaction: Redaction, depth: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    try:
        name.encode()
        document["name"] = name
    except UnicodeEncodeError:
        document["name"] = _base64(fields.octets(name))
        document["nameEncoding"] = "base64"
    if redaction.hides(name):
        return document | {"type": TYPES[field[0]], "value": MASK, "redacted": True}
    return document | _typed(field, redaction, depth)


def _typed(field: bytes, redaction: Redaction, depth: int) -> dict[str, Any]:
    kind = TYPES[field[0]]
    if kind in ("table", "array"):
        inside = None if depth == fields.MAX_DEPTH else _inside(field, kind, redaction, depth + 1)
        if inside is not None:
            return {"type": kind, "value": inside}
        if redaction.hides_headers:
            return {"type": kind, "value": MASK, "redacted": True}
        return {"type": kind, "value": _base64(field), "encoding": "base64"}
    value = fields.decode(field)
    if isinstance(value, fields.Unreadable):
        return {"type": kind, "value": _base64(value.raw), "encoding": "base64"}
    if isinstance(value, bytes):
        return {"type": kind, "value": _base64(value), "encoding": "base64"}
    return {"type": kind, "value": _scalar(value)}


def _inside(
    field: bytes, kind: str, redaction: Redaction, depth: int
) -> list[dict[str, Any]] | None:
    """The entries of a table or an array; None if they cannot be told apart."""
    found: list[dict[str, Any]] = []
    end = len(field)
    try:
        if kind == "table":
            for name, start, stop in fields.table_entries(field, 5, end):
                found.append(_named(fields.text(name), field[start:stop], redaction, depth))
        else:
            start = 5
            while start < end:
                stop = fields.field_end(field, start, end)
                found.append(_typed(field[start:stop], redaction, depth))
                start = stop
    except (MalformedData, IndexError):
        return None
    return found


def _scalar(value: fields.Value) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
