"""Several things are waited for, and one follows when all are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Awaited:
    """Calls `then` once, when every part is said to be there; a second word changes nothing."""

    def __init__(self, parts: Iterable[str], then: Callable[[], None] | None) -> None:
        self._missing = set(parts)
        self._then = then

    def here(self, part: str) -> None:
        self._missing.discard(part)
        if not self._missing and self._then is not None:
            then, self._then = self._then, None
            then()
