"""Documents on their way out: JSON that every reader takes, whatever is in the messages.

Numbers of any length, halves of surrogate pairs and deep nesting occur in what people publish.
`<` is escaped, so that no document can be taken for HTML by whoever ignores its type.
"""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
from fastapi import Response


def answer(document: Any, status: int = 200) -> Response:
    """A document as an answer."""
    return Response(render(document), status, media_type="application/json")


def nothing() -> Response:
    """Done, and nothing to say."""
    return Response(status_code=204)


def render(document: Any) -> bytes:
    """The text of a document."""
    try:
        text = orjson.dumps(document)
    except TypeError:  # what orjson does not take: long integers, half characters, deep nesting
        text = json.dumps(_finite(document)).encode()
    return text.replace(b"<", b"\\u003c")


def _finite(value: Any) -> Any:
    """Without infinities and NaN, for which JSON has no word."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value
