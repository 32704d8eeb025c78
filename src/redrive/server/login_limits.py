"""How often somebody may try to log in: a few times, then ever more seldom.

Counted by name and by address, in each process: five tries in a row are free, and from then on each
costs a wait that doubles, up to a quarter of an hour. Who logs in begins anew. What is remembered
is bounded: the oldest is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_FREE: Final = 5
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 900.0
_REMEMBERED: Final = 10_000


@dataclass(slots=True)
class _Tries:
    failed: int = 0
    free_at: float = 0.0


class LoginLimits:
    """Who has to wait. `clock` gives seconds that only grow."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[str, _Tries] = OrderedDict()

    def wait(self, name: str, address: str) -> float:
        """How many seconds must pass before the next try; 0 if it may be made now."""
        now = self._clock()
        return max(
            (
                max(0.0, tries.free_at - now)
                for key in _keys(name, address)
                if (tries := self._known.get(key))
            ),
            default=0.0,
        )

    def failed(self, name: str, address: str) -> None:
        """A try had a wrong password."""
        for key in _keys(name, address):
            tries = self._known.setdefault(key, _Tries())
            self._known.move_to_end(key)
            tries.failed += 1
            if tries.failed >= _FREE:
                wait = min(_FIRST_WAIT * 2.0 ** min(tries.failed - _FREE, 20), _LONGEST_WAIT)
                tries.free_at = self._clock() + wait
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def succeeded(self, name: str, address: str) -> None:
        """Somebody logged in."""
        for key in _keys(name, address):
            self._known.pop(key, None)


def _keys(name: str, address: str) -> tuple[str, str]:
    return f"user {name}", f"address {address}"
