"""How busy this machine is, as letters note it: looked up once a second at most."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import Final

import psutil

_GOOD_FOR: Final = 1.0


@dataclass(frozen=True, slots=True)
class SystemState:
    """Shares of what there is, from 0 to 1."""

    cpu_usage: float
    memory_usage: float


@cache
def system_watch() -> SystemWatch:
    """The one watch of this process: two would take each other's share of the CPU's time."""
    return SystemWatch()


class SystemWatch:
    """Looks now and then."""

    def __init__(self) -> None:
        psutil.cpu_percent(interval=None)  # the first answer is about nothing
        self._state = SystemState(0.0, 0.0)
        self._good_until = 0.0

    def state(self) -> SystemState:
        """The state now, or a moment ago."""
        now = time.monotonic()
        if now >= self._good_until:
            self._good_until = now + _GOOD_FOR
            self._state = SystemState(
                round(psutil.cpu_percent(interval=None) / 100, 3),
                round(psutil.virtual_memory().percent / 100, 3),
            )
        return self._state
