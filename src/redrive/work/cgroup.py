"""The limits of the control group that this process is in: a container has less than its machine.

Guarantees: understands version 2 and version 1, also side by side, and a container that sees its
own group as the root. Of nested groups the tightest counts. A limit that is not set, or a file that
cannot be read, is no limit; nothing raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOUNT: Final = Path("/sys/fs/cgroup")
MEMBERSHIP: Final = Path("/proc/self/cgroup")


class ControlGroup:
    """What this process may have of CPU and memory, and what it has."""

    def __init__(self, mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> None:
        paths = dict(_memberships(membership))
        self._unified = tuple(_levels(mount, paths.get("")))
        self._memory = tuple(_levels(mount / "memory", paths.get("memory")))
        self._cpu = tuple(
            _levels(_first_folder(mount, "cpu", "cpu,cpuacct", "cpuacct,cpu"), paths.get("cpu"))
        )
        self._cpuacct = tuple(
            _levels(
                _first_folder(mount, "cpuacct", "cpu,cpuacct", "cpuacct,cpu"),
                paths.get("cpuacct"),
            )
        )

    def memory_usage(self, machine: int) -> float | None:
        """The share of the tightest limit that is used, from 0 to 1; None where there is no limit
        below the machine's own memory. What is only cached is not used."""
        shares = [
            max(0, used - cached) / limit
            for limit, used, cached in self._memories()
            if 0 < limit < machine
        ]
        return min(1.0, max(shares)) if shares else None

    def _memories(self) -> Iterator[tuple[int, int, int]]:
        for folders, limit, used, cached in (
            (self._unified, "memory.max", "memory.current", "inactive_file"),
            (
                self._memory,
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            ),
        ):
            for folder in folders:
                most, now = _number(folder / limit), _number(folder / used)
                if most is not None and now is not None:
                    yield most, now, _entry(folder / "memory.stat", cached) or 0

    def cpus(self, machine: int) -> float | None:
        """How many CPUs' time the tightest limit allows; None where that is no less than all."""
        limits = []
        for folder in self._unified:
            quota, _, period = _text(folder / "cpu.max").partition(" ")
            if quota.isdecimal() and period.isdecimal() and int(period):
                limits.append(int(quota) / int(period))
        for folder in self._cpu:
            granted = _number(folder / "cpu.cfs_quota_us")
            each = _number(folder / "cpu.cfs_period_us")
            if granted is not None and granted > 0 and each:
                limits.append(granted / each)
        tightest = min(limits, default=None)
        return tightest if tightest is not None and 0 < tightest < machine else None

    def cpu_seconds(self) -> float | None:
        """CPU time that the group has used so far; None where nothing tells."""
        for folder in self._unified:
            used = _entry(folder / "cpu.stat", "usage_usec")
            if used is not None:
                return used / 1e6
        for folder in self._cpuacct:
            spent = _number(folder / "cpuacct.usage")
            if spent is not None:
                return spent / 1e9
        return None


def _memberships(file: Path) -> Iterator[tuple[str, str]]:
    """Controller → path; version 2 has no name for its one hierarchy."""
    for line in _text(file).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            yield controller, path


def _levels(mount: Path, path: str | None) -> Iterator[Path]:
    """The group's folder and those above it, up to the mount."""
    if path is None or not mount.is_dir():
        return
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        folder = mount.joinpath(*parts[:depth])
        # Without a namespace of its own a container is told a path that it does not see.
        if folder.is_dir():
            yield folder


def _first_folder(mount: Path, *names: str) -> Path:
    return next((mount / name for name in names if (mount / name).is_dir()), mount / names[0])


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.removeprefix("-").isdecimal() else None


def _entry(file: Path, name: str) -> int | None:
    for line in _text(file).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return None
