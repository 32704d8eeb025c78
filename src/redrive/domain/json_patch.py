"""JSON Patch (RFC 6902) on the text of a document: only what an operation names changes.

    patch = read_patch('[{"op": "replace", "path": "/amount", "value": 1.10}]')
    patch.apply('{"id": 12345678901234567890, "amount": 1.1}')

Guarantees: what no operation touches is the same text as before, character for character; a value
goes in as the patch writes it. A document that is parsed after a patch equals the parsed document
with the patch applied. All operations apply, or `PatchDoesNotApply` says which one does not and
why. Nothing is guessed: of a key that stands twice in an object it cannot be told which is meant.

What is added takes the white space of its neighbours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from redrive.domain.json_spans import Member, Span, key_of, members, require_json, whole
from redrive.errors import EditRefused, PatchDoesNotApply

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_BROKEN_ESCAPE: Final = re.compile(r"~(?![01])")
_END: Final = "-"
_NEEDS_VALUE: Final = ("add", "replace", "test")
_NEEDS_FROM: Final = ("move", "copy")
_OPERATIONS: Final = ("add", "remove", "replace", "move", "copy", "test")


@dataclass(frozen=True, slots=True)
class Pointer:
    """A place in a document (RFC 6901)."""

    text: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return self.text or '""'

    def is_before(self, other: Pointer) -> bool:
        """Whether the other one is inside of what this one names."""
        return len(self.steps) < len(other.steps) and other.steps[: len(self.steps)] == self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One step of a patch."""

    op: str
    path: Pointer
    value: str = ""
    """As the patch writes it."""
    source: Pointer | None = None
    """Where `move` and `copy` take it from."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Operations that follow one another."""

    operations: tuple[Operation, ...]

    def apply(self, text: str) -> str:
        """The document with every operation applied."""
        try:
            require_json(text)
        except ValueError as error:
            raise PatchDoesNotApply(f"the body {error}") from None
        for number, operation in enumerate(self.operations, start=1):
            try:
                text = _APPLIED[operation.op](text, operation)
            except _Unfit as unfit:
                place = f"operation {number} ({operation.op} {operation.path})"
                raise PatchDoesNotApply(f"{place}: {unfit}") from None
        return text


class _Unfit(Exception):
    """Why an operation does not apply."""


# Reading a patch


def read_patch(text: str) -> Patch:
    """The patch of a JSON text; `EditRefused` with the reason if it is none."""
    text = text.removeprefix("\ufeff")
    try:
        require_json(text)
    except ValueError as error:
        raise EditRefused(f"the patch {error}") from None
    outer = whole(text)
    if text[outer.start] != "[":
        raise EditRefused("the patch is no JSON Patch: expected a list of operations")
    found = [
        _read_operation(text, member.value, number)
        for number, member in enumerate(members(text, outer), start=1)
    ]
    if not found:
        raise EditRefused("the patch has no operation")
    return Patch(tuple(found))


def _read_operation(text: str, span: Span, number: int) -> Operation:
    def refused(expected: str) -> EditRefused:
        return EditRefused(f"operation {number} of the patch: expected {expected}")

    if text[span.start] != "{":
        raise refused("an object")
    given: dict[str, str] = {}
    for member in members(text, span):
        name = key_of(text, member)
        if name in given:
            raise refused(f"{name!r} only once")
        given[name] = member.value.of(text)
    op = _string(given.get("op"))
    if op not in _OPERATIONS:
        raise refused(f"an op, one of {', '.join(_OPERATIONS)}")
    if op in _NEEDS_VALUE and "value" not in given:
        raise refused(f"a value for {op}")
    source = _read_pointer(given.get("from")) if op in _NEEDS_FROM else None
    path = _read_pointer(given.get("path"))
    if path is None:
        raise refused("a path such as /items/0/name")
    if op in _NEEDS_FROM and source is None:
        raise refused(f"a from for {op}, such as /items/0/name")
    return Operation(op=op, path=path, value=given.get("value", ""), source=source)


def _string(text: str | None) -> str | None:
    return json.loads(text) if text is not None and text.startswith('"') else None


def _read_pointer(written: str | None) -> Pointer | None:
    text = _string(written)
    if text is None or (text and not text.startswith("/")) or _BROKEN_ESCAPE.search(text):
        return None
    steps = [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]
    return Pointer(text, tuple(steps))


# Finding the place


def _find(text: str, pointer: Pointer) -> Span:
    span = whole(text)
    for depth, step in enumerate(pointer.steps):
        span = _entry(text, span, step, _shown(pointer, depth)).value
    return span


def _shown(pointer: Pointer, depth: int) -> str:
    """The container of the step at `depth`, for people."""
    return "/" + "/".join(pointer.text.split("/")[1 : depth + 1]) if depth else "the document"


def _entry(text: str, span: Span, step: str, where: str) -> Member:
    entries = list(members(text, span))
    if text[span.start] == "{":
        found = _named(text, entries, step, where)
        if found is None:
            raise _Unfit(f"{where} has no {json.dumps(step)}")
        return found
    _require_list(text, span, where)
    return entries[_index(step, len(entries) - 1, where)]


def _require_list(text: str, span: Span, where: str) -> None:
    if text[span.start] != "[":
        raise _Unfit(f"{where} is neither an object nor a list")


def _named(text: str, entries: list[Member], name: str, where: str) -> Member | None:
    found = [entry for entry in entries if key_of(text, entry) == name]
    if len(found) > 1:
        times = "twice" if len(found) == 2 else f"{len(found)} times"
        raise _Unfit(f"{where} has {json.dumps(name)} {times}: it cannot be told which is meant")
    return found[0] if found else None


def _index(step: str, last: int, where: str) -> int:
    if not _INDEX.fullmatch(step):
        raise _Unfit(f"{where} is a list, and {json.dumps(step)} is no index")
    if int(step) > last:
        raise _Unfit(f"{where} is a list of {last + 1}, without an index {step}")
    return int(step)


def _container(text: str, pointer: Pointer) -> tuple[Span, str, str]:
    """What the last step of a pointer is a step of, that step, and the container for people."""
    *_, last = pointer.steps
    depth = len(pointer.steps) - 1
    outer = Pointer(pointer.text, pointer.steps[:depth])
    return _find(text, outer), last, _shown(pointer, depth)


# The operations


def _add(text: str, pointer: Pointer, value: str) -> str:
    if not pointer.steps:
        return _put(text, whole(text), value)
    span, step, where = _container(text, pointer)
    entries = list(members(text, span))
    if text[span.start] == "{":
        there = _named(text, entries, step, where)
        if there is not None:
            return _put(text, there.value, value)
        return _insert_key(text, span, entries, step, value)
    _require_list(text, span, where)
    index = len(entries) if step == _END else _index_to_add(step, len(entries), where)
    if index < len(entries):
        at = entries[index].start
        gap = _gap(text, span, entries, index)
        return f"{text[:at]}{value},{gap}{text[at:]}"
    return _append(text, span, entries, value)


def _index_to_add(step: str, length: int, where: str) -> int:
    if _INDEX.fullmatch(step) and int(step) > length:
        raise _Unfit(f"{where} is a list of {length}: nothing can be added at index {step}")
    return _index(step, length, where)


def _insert_key(text: str, span: Span, entries: list[Member], name: str, value: str) -> str:
    colon = ": "
    if entries:
        last = entries[-1]
        assert last.key is not None
        colon = text[last.key.end : last.value.start]
    return _append(text, span, entries, f"{json.dumps(name, ensure_ascii=True)}{colon}{value}")


def _append(text: str, span: Span, entries: list[Member], entry: str) -> str:
    if not entries:
        at = span.start + 1
        return text[:at] + entry + text[at:]
    at = entries[-1].end
    gap = _gap(text, span, entries, len(entries))
    return f"{text[:at]},{gap}{entry}{text[at:]}"


def _gap(text: str, span: Span, entries: list[Member], index: int) -> str:
    """The white space between a comma and what follows it, as the neighbours have it."""
    if len(entries) > 1:
        right = entries[min(max(index, 1), len(entries) - 1)]
        before = text[: right.start]
        return before[len(before.rstrip(" \t\n\r")) :]
    first = entries[0]
    opening = text[span.start + 1 : first.start]
    if "\n" in opening or first.key is None:
        return opening
    return " " if text[first.key.end : first.value.start].endswith(" ") else ""


def _remove(text: str, pointer: Pointer) -> str:
    if not pointer.steps:
        raise _Unfit("the whole document cannot be removed")
    span, step, where = _container(text, pointer)
    entries = list(members(text, span))
    index = entries.index(_entry(text, span, step, where))
    if index + 1 < len(entries):
        return text[: entries[index].start] + text[entries[index + 1].start :]
    before = entries[index - 1].end if index else span.start + 1
    return text[:before] + text[entries[index].end :]


def _put(text: str, span: Span, value: str) -> str:
    return text[: span.start] + value + text[span.end :]


def _replaced(text: str, operation: Operation) -> str:
    return _put(text, _find(text, operation.path), operation.value)


def _moved(text: str, operation: Operation) -> str:
    source, path = operation.source, operation.path
    assert source is not None
    if source.is_before(path):
        raise _Unfit(f"{source} cannot be moved into itself")
    value = _taken(text, source)
    return text if source.steps == path.steps else _add(_remove(text, source), path, value)


def _copied(text: str, operation: Operation) -> str:
    assert operation.source is not None
    return _add(text, operation.path, _taken(text, operation.source))


def _taken(text: str, source: Pointer) -> str:
    try:
        return _find(text, source).of(text)
    except _Unfit as unfit:
        raise _Unfit(f"from {source}: {unfit}") from None


def _tested(text: str, operation: Operation) -> str:
    if not _equal(_find(text, operation.path).of(text), operation.value):
        # What it is instead may be something that people must not see.
        raise _Unfit(f"it is not {_cut(operation.value)}")
    return text


def _cut(text: str, length: int = 60) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= length else shown[: length - 1] + "…"


_APPLIED: Final[dict[str, Callable[[str, Operation], str]]] = {
    "add": lambda text, operation: _add(text, operation.path, operation.value),
    "remove": lambda text, operation: _remove(text, operation.path),
    "replace": _replaced,
    "move": _moved,
    "copy": _copied,
    "test": _tested,
}


# Equality


def _equal(one: str, other: str) -> bool:
    """Whether two texts say the same: numbers by value and exactly, objects in any order."""
    pairs = [(_exact(one), _exact(other))]
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, dict):
            if left.keys() != right.keys():
                return False
            pairs.extend((left[key], right[key]) for key in left)
        elif isinstance(left, list):
            if len(left) != len(right):
                return False
            pairs.extend(zip(left, right, strict=True))
        elif left != right:
            return False
    return True


def _exact(text: str) -> Any:
    return json.loads(text, parse_int=_number, parse_float=_number)


def _number(digits: str) -> Any:
    try:
        return Decimal(digits)
    except ArithmeticError:  # an exponent that no arithmetic has
        return (digits,)
