"""Which routing keys an exchange would bring to a queue, by its type and its bindings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any


def is_routed(kind: str, bindings: Sequence[dict[str, Any]], routing_key: str) -> bool | None:
    """Whether a message with this key finds a queue; None where the key alone does not tell.

    `bindings` are those that lead away from the exchange, as the management API tells them.
    """
    if not bindings:
        return False
    keys = [str(binding["routing_key"]) for binding in bindings]
    match kind:
        case "fanout":
            found = True
        case "direct":
            found = routing_key in keys
        case "topic":
            found = matches_any(keys, routing_key)
        case _:
            return None
    further = any(binding.get("destination_type") != "queue" for binding in bindings)
    return None if found and further else found


def matches_any(patterns: Iterable[str], routing_key: str) -> bool:
    """Whether one of a topic exchange's patterns means this key."""
    return any(_compiled(pattern).fullmatch(_words(routing_key)) for pattern in patterns)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """`*` is one word, `#` any number of them, also none."""
    signs = {"*": r"\.[^.]*", "#": r"(?:\.[^.]*)*"}
    words = pattern.split(".") if pattern else []
    text = "".join(signs.get(word, r"\." + re.escape(word)) for word in words)
    return re.compile(text, re.DOTALL)


def _words(key: str) -> str:
    """A key whose every word has a dot before it; the empty key has no words."""
    return f".{key}" if key else ""
