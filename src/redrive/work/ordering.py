"""Letters that belong together, by a header or a JSONPath of their bodies, and keep their order.

A path is of RFC 9535 and of one value at most. Anybody who may replay gives one, and it is applied
to bodies that nobody trusts, in a process that does much else: filters would run regular
expressions over them, which may take for ever, and `..` and `*` can find far more than a body has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import jsonpath

from redrive.amqp import Properties
from redrive.domain.letter import Claim, Envelope
from redrive.errors import MalformedData, OrderRefused
from redrive.work.decode import decode_body

_HEADER: Final = "header:"

Key = Callable[[Envelope], str | None]


def read_ordering(text: str) -> Key:
    """What tells the key of a message: `header:NAME`, or a JSONPath that begins with `$`."""
    if text.startswith(_HEADER) and len(text) > len(_HEADER):
        name = text.removeprefix(_HEADER)
        return lambda envelope: _header(envelope, name)
    if text.startswith("$"):
        path = _path_of_one_value(text)
        return lambda envelope: _found(envelope, path)
    raise OrderRefused(f"expected header:NAME or a JSONPath such as $.order.id, got {text!r}")


def _path_of_one_value(text: str) -> jsonpath.JSONPath:
    try:
        path = jsonpath.compile(text, strict=True)
    except Exception as error:  # noqa: BLE001  (of many kinds, and not all are the library's own)
        reason = str(error).partition("\n")[0]  # a picture of the place follows
        raise OrderRefused(
            f"{text!r} is no JSONPath: {reason}; expected the path of one value, such as $.order.id"
        ) from None
    if not isinstance(path, jsonpath.JSONPath) or not path.singular_query():
        raise OrderRefused(
            f"{text!r} may find several values: expected the path of one, such as $.order.id or"
            " $.lines[0].sku, without *, '..', slices and filters"
        )
    return path


def _header(envelope: Envelope, name: str) -> str | None:
    try:
        value = Properties.read(envelope.properties).header(name)
    except MalformedData:
        return None
    return None if value is None else repr(value)


def _found(envelope: Envelope, path: jsonpath.JSONPath) -> str | None:
    properties = None
    try:
        properties = Properties.read(envelope.properties)
        kind, encoding = properties.get("content_type"), properties.get("content_encoding")
    except MalformedData:
        kind = encoding = None
    decoded = decode_body(
        envelope.body,
        str(kind) if kind is not None else None,
        str(encoding) if encoding is not None else None,
    )
    try:
        values = path.findall(decoded.document) if decoded.document is not None else []
    except Exception:  # noqa: BLE001  (the library's own, of many kinds: no key, then)
        return None
    return json.dumps(values) if values else None


def in_waves(claims: Sequence[Claim], key: Key) -> Iterator[list[tuple[str | None, Claim]]]:
    """Claims in turns: each key at most once in a turn, in order; those without a key at once."""
    turns: list[list[tuple[str | None, Claim]]] = []
    seen: dict[str, int] = {}
    for claim in claims:
        name = key(claim.envelope)
        turn = 0 if name is None else seen.get(name, 0)
        if name is not None:
            seen[name] = turn + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append((name, claim))
    yield from turns
