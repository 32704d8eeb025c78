"""CPU and memory as shares of what this process may have: its control group's, or the machine's."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from redrive.work.cgroup import ControlGroup
from redrive.work.system_state import SystemWatch

GB = 10**9


class Groups:
    """A tree of control groups as the kernel shows it, in a folder of the test's own."""

    def __init__(self, root: Path) -> None:
        self.mount = root / "cgroup"
        self.mount.mkdir()
        self.membership = root / "membership"

    def write(self, file: str, text: str) -> None:
        path = self.mount / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def group(self, membership: str = "0::/") -> ControlGroup:
        self.membership.write_text(membership + "\n")
        return ControlGroup(self.mount, self.membership)


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path)


def test_memory_is_a_share_of_the_groups_limit(groups: Groups) -> None:
    groups.write("memory.max", str(2 * GB))
    groups.write("memory.current", str(GB))
    assert groups.group().memory_usage(16 * GB) == 0.5


def test_memory_that_is_only_cached_is_not_used(groups: Groups) -> None:
    groups.write("memory.max", str(2 * GB))
    groups.write("memory.current", str(2 * GB))
    groups.write("memory.stat", f"anon 5\ninactive_file {GB}\nactive_file 7")
    assert groups.group().memory_usage(16 * GB) == 0.5


def test_memory_of_version_1_is_a_share_of_the_groups_limit(groups: Groups) -> None:
    groups.write("memory/docker/a/memory.limit_in_bytes", str(4 * GB))
    groups.write("memory/docker/a/memory.usage_in_bytes", str(4 * GB))
    groups.write("memory/docker/a/memory.stat", f"inactive_file 1\ntotal_inactive_file {GB}")
    group = groups.group("4:memory:/docker/a\n0::/")
    assert group.memory_usage(16 * GB) == 0.75


def test_a_container_that_sees_its_group_as_the_root_is_limited_by_it(groups: Groups) -> None:
    groups.write("memory/memory.limit_in_bytes", str(2 * GB))
    groups.write("memory/memory.usage_in_bytes", str(GB))
    group = groups.group("4:memory:/kubepods/pod1/container1")
    assert group.memory_usage(16 * GB) == 0.5


def test_of_nested_groups_the_tightest_counts(groups: Groups) -> None:
    groups.write("pod/memory.max", str(4 * GB))
    groups.write("pod/memory.current", str(3 * GB))
    groups.write("pod/container/memory.max", str(2 * GB))
    groups.write("pod/container/memory.current", str(GB))
    assert groups.group("0::/pod/container").memory_usage(16 * GB) == 0.75


@pytest.mark.parametrize("limit", ["max", str(16 * GB), "9223372036854771712", "", "nonsense"])
def test_a_limit_that_is_none_leaves_the_machines_memory(groups: Groups, limit: str) -> None:
    groups.write("memory.max", limit)
    groups.write("memory.current", str(GB))
    assert groups.group().memory_usage(16 * GB) is None


def test_cpus_are_those_of_the_tightest_quota(groups: Groups) -> None:
    groups.write("pod/cpu.max", "300000 100000")
    groups.write("pod/container/cpu.max", "150000 100000")
    assert groups.group("0::/pod/container").cpus(8) == 1.5


def test_cpus_of_version_1_are_those_of_the_quota(groups: Groups) -> None:
    groups.write("cpu,cpuacct/a/cpu.cfs_quota_us", "50000")
    groups.write("cpu,cpuacct/a/cpu.cfs_period_us", "100000")
    groups.write("cpu,cpuacct/a/cpuacct.usage", "2500000000")
    group = groups.group("3:cpu,cpuacct:/a")
    assert (group.cpus(8), group.cpu_seconds()) == (0.5, 2.5)


@pytest.mark.parametrize("limit", ["max 100000", "800000 100000", "", "-1"])
def test_a_quota_of_no_less_than_all_cpus_is_none(groups: Groups, limit: str) -> None:
    groups.write("cpu.max", limit)
    assert groups.group().cpus(8) is None


def test_where_there_are_no_groups_there_are_no_limits(tmp_path: Path) -> None:
    group = ControlGroup(tmp_path / "none", tmp_path / "neither")
    assert (group.memory_usage(GB), group.cpus(8), group.cpu_seconds()) == (None, None, None)


class Clock:
    """Time that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("redrive.work.system_state.time.monotonic", lambda: self.now)


def test_cpu_is_a_share_of_what_the_group_may_use_meanwhile(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 8)
    groups.write("cpu.max", "200000 100000")
    groups.write("cpu.stat", "usage_usec 1000000")
    watch = SystemWatch(groups.group())
    clock.now += 10
    groups.write("cpu.stat", "usage_usec 6000000\nuser_usec 5")
    # 5 s of CPU time in 10 s, of 2 CPUs.
    assert watch.state().cpu_usage == 0.25


def test_without_limits_it_is_the_machine_that_counts(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    watch = SystemWatch(groups.group())
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 37.5)
    clock.now += 10
    assert watch.state().cpu_usage == 0.375


def test_it_looks_once_a_second_at_most(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    groups.write("memory.max", "1000")
    groups.write("memory.current", "100")
    watch = SystemWatch(groups.group())
    clock.now += 10
    assert watch.state().memory_usage == 0.1
    groups.write("memory.current", "200")
    clock.now += 0.9
    assert watch.state().memory_usage == 0.1
    clock.now += 0.1
    assert watch.state().memory_usage == 0.2


def test_right_after_the_start_nothing_is_said_of_the_cpu_and_soon_it_is(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    watch = SystemWatch(groups.group())
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 50.0)
    assert watch.state().cpu_usage == 0.0
    clock.now += watch.settles_in()
    assert watch.settles_in() == 0
    assert watch.state().cpu_usage == 0.5
