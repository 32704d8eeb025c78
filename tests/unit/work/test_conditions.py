"""What must hold before more is sent, and what is said of it when it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from redrive.errors import StoreUnreachable
from redrive.work.conditions import Conditions
from redrive.work.system_state import SystemState, SystemWatch


@dataclass
class Machine:
    """A machine that is as busy as a test says."""

    cpu: float = 0.1
    memory: float = 0.1

    def state(self) -> SystemState:
        return SystemState(self.cpu, self.memory)

    def settles_in(self) -> float:
        return 0.0


@dataclass
class Connections:
    """A database with so many connections to spare."""

    spare: int | StoreUnreachable | None

    async def spare_connections(self) -> int | None:
        if isinstance(self.spare, StoreUnreachable):
            raise self.spare
        return self.spare


async def unmet(
    machine: Machine | None = None,
    spare: int | StoreUnreachable | None = None,
    *,
    blocked: bool = False,
) -> list[str]:
    watch = cast("SystemWatch", machine or Machine())
    conditions = Conditions(system=watch, capacity=Connections(spare))
    return await conditions.unmet(broker_blocked=blocked)


async def test_all_is_well() -> None:
    assert await unmet(Machine(cpu=0.799, memory=0.849), spare=1) == []


async def test_a_busy_cpu_is_told() -> None:
    found = await unmet(Machine(cpu=0.8))
    assert found == ["the CPU is 80 % busy, expected less than 80 %"]


async def test_full_memory_is_told() -> None:
    found = await unmet(Machine(memory=0.91))
    assert found == ["memory is 91 % used, expected less than 85 %"]


@pytest.mark.parametrize("spare", [0, -2])
async def test_a_database_without_spare_connections_is_told(spare: int) -> None:
    found = await unmet(spare=spare)
    assert found == ["the database has 0 connections to spare, expected 1 or more"]


async def test_a_store_that_does_not_answer_is_told() -> None:
    why = "postgresql://h/db: too many clients already"
    found = await unmet(spare=StoreUnreachable(why))
    assert found == [f"the store does not tell whether connections are free: {why}"]


async def test_a_blocked_broker_is_told() -> None:
    found = await unmet(blocked=True)
    assert found == ["the broker blocks publishers: it is short of memory or disk space"]


async def test_all_that_does_not_hold_is_told() -> None:
    assert len(await unmet(Machine(cpu=1.0, memory=1.0), spare=0, blocked=True)) == 4
