"""How busy this machine is, as letters note it: looked up once a second at most.

Guarantees: shares are of what this process may have. In a control group with a limit, as containers
are, that limit counts and not the machine's size; each of CPU and memory for itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import Final

import psutil

from redrive.work.cgroup import ControlGroup

_GOOD_FOR: Final = 1.0
_SETTLES: Final = 0.5
"""What is measured over less time says little of the CPU."""


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

    def __init__(self, group: ControlGroup | None = None) -> None:
        psutil.cpu_percent(interval=None)  # the first answer is about nothing
        self._group = group or ControlGroup()
        self._began = self._looked = time.monotonic()
        self._cpu_seconds = self._group.cpu_seconds()
        self._state = SystemState(0.0, 0.0)
        self._good_until = 0.0

    def state(self) -> SystemState:
        """The state now, or a moment ago."""
        now = time.monotonic()
        if now >= self._good_until:
            settled = self.settles_in() <= 0
            self._good_until = now + _GOOD_FOR if settled else self._began + _SETTLES
            cpu = self._cpu(now) if settled else 0.0
            self._state = SystemState(round(cpu, 3), round(self._memory(), 3))
        return self._state

    def settles_in(self) -> float:
        """Seconds until a state says something of the CPU, which is 0 before; then none."""
        return max(0.0, self._began + _SETTLES - time.monotonic())

    def _cpu(self, now: float) -> float:
        of_the_machine = psutil.cpu_percent(interval=None) / 100
        used, before = self._group.cpu_seconds(), self._cpu_seconds
        passed = now - self._looked
        self._looked, self._cpu_seconds = now, used
        cpus = self._group.cpus(psutil.cpu_count() or 1)
        if cpus is None or used is None or before is None or passed <= 0:
            return of_the_machine
        return min(1.0, max(0.0, used - before) / passed / cpus)

    def _memory(self) -> float:
        machine = psutil.virtual_memory()
        of_the_group = self._group.memory_usage(machine.total)
        return machine.percent / 100 if of_the_group is None else of_the_group
