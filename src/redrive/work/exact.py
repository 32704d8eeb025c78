"""Dataclasses as JSON and back, without loss: what an export's lines are made of.

    document = to_document(kept)
    kept == from_document(Kept, document)

Guarantees: the way back gives an equal object, for every field there is; a field that is added to a
class needs nothing here. Names are those of the class in camelCase, times have microseconds, bytes
are base64. Text that is not valid Unicode (a name of the wire that was not UTF-8) is
`{"base64": …}` of its bytes. A field that the document lacks has its default. A document of another
shape raises `NotExact`, which names the place.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from redrive.work.headers import camel_case

_Kind = TypeVar("_Kind")


class NotExact(ValueError):
    """A document that is not what it should be: `place` and what was expected there."""

    def __init__(self, place: str, expected: str) -> None:
        super().__init__(f"{place}: expected {expected}" if place else f"expected {expected}")


def to_document(value: Any) -> Any:
    """A dataclass, or anything that one may hold, as JSON."""
    document: Any
    match value:
        case StrEnum():
            document = value.value
        case str():
            document = _text_document(value)
        case bytes():
            document = base64.b64encode(value).decode()
        case datetime():
            naive = value.astimezone(UTC).replace(tzinfo=None)
            document = naive.isoformat(timespec="microseconds") + "Z"
        case tuple():
            document = [to_document(item) for item in value]
        case None | bool() | int() | float():
            document = value
        case _:
            document = {
                written: to_document(getattr(value, name))
                for name, written, *_ in _fields(type(value))
            }
    return document


def from_document(kind: type[_Kind], document: Any, place: str = "") -> _Kind:
    """The dataclass that `to_document` was given; `NotExact` if it is not such a document."""
    if not isinstance(document, Mapping):
        raise NotExact(place, "an object")
    values: dict[str, Any] = {}
    written_names: set[str] = set()
    for name, written, hint, required in _fields(kind):
        written_names.add(written)
        inner = f"{place}.{written}" if place else written
        if written in document:
            values[name] = _read(hint, document[written], inner)
        elif required:
            raise NotExact(inner, "a value, and there is none")
    for name in document:
        if name not in written_names:
            raise NotExact(f"{place}.{name}" if place else name, "no such field")
    return kind(**values)


_known: dict[type, list[tuple[str, str, Any, bool]]] = {}


def _fields(kind: type) -> list[tuple[str, str, Any, bool]]:
    """Each field's name, its name in a document, its type, and whether it must be there."""
    if kind in _known:
        return _known[kind]
    hints = get_type_hints(kind)
    missing = dataclasses.MISSING
    _known[kind] = [
        (
            field.name,
            camel_case(field.name),
            hints[field.name],
            field.default is missing and field.default_factory is missing,
        )
        for field in dataclasses.fields(kind)
    ]
    return _known[kind]


def _text_document(text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"base64": base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()}
    return text


def _read(hint: Any, value: Any, place: str) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        if value is None:
            return None
        hint = next(one for one in get_args(hint) if one is not types.NoneType)
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise NotExact(place, "a list")
        inner = get_args(hint)[0]
        return tuple(_read(inner, item, f"{place}[{index}]") for index, item in enumerate(value))
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return from_document(hint, value, place)
    if issubclass(hint, StrEnum):
        if value not in list(hint):
            raise NotExact(place, "one of " + ", ".join(hint))
        return hint(value)
    return _READERS[hint](value, place)


def _read_text(value: Any, place: str) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise NotExact(place, "text without half of a surrogate pair") from None
        return value
    if isinstance(value, dict) and list(value) == ["base64"]:
        return _read_bytes(value["base64"], place).decode("utf-8", "surrogateescape")
    raise NotExact(place, "text")


def _read_bytes(value: Any, place: str) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise NotExact(place, "base64")


def _read_time(value: Any, place: str) -> datetime:
    try:
        if isinstance(value, str) and value.endswith("Z"):
            return datetime.fromisoformat(value)
    except ValueError:
        pass
    raise NotExact(place, "a time in UTC such as 2026-02-11T12:00:07.000000Z")


def _read_bool(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise NotExact(place, "true or false")
    return value


def _read_int(value: Any, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotExact(place, "a whole number")
    return value


def _read_float(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NotExact(place, "a number")
    return float(value)


_READERS = {
    str: _read_text,
    bytes: _read_bytes,
    datetime: _read_time,
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
}
