"""How often somebody may try to log in: a few times, then ever more seldom.

Counted by name and by address, in each process: five tries in a row are free, and from then on each
costs a wait that doubles, up to a quarter of an hour. A try counts from its beginning, so that many
at once are no more than many in a row. Who logs in begins anew. What is remembered is bounded: the
oldest is forgotten first.
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
    made: int = 0
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

    def begin(self, name: str, address: str) -> float:
        """A try begins, and counts as a wrong one until it has succeeded; or, if it has to wait,
        does not begin: for how many seconds."""
        wait = self.wait(name, address)
        if not wait:
            self._count(name, address)
        return wait

    def succeeded(self, name: str, address: str) -> None:
        """Somebody logged in."""
        for key in _keys(name, address):
            self._known.pop(key, None)

    def _count(self, name: str, address: str) -> None:
        for key in _keys(name, address):
            tries = self._known.setdefault(key, _Tries())
            self._known.move_to_end(key)
            tries.made += 1
            if tries.made >= _FREE:
                wait = min(_FIRST_WAIT * 2.0 ** min(tries.made - _FREE, 20), _LONGEST_WAIT)
                tries.free_at = self._clock() + wait
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


def _keys(name: str, address: str) -> tuple[str, str]:
    return f"user {name}", f"address {address}"
