"""Before a replay: the system is looked at, and the broker's alarms, where they can be known."""

from __future__ import annotations

from typing import Any, cast

import pytest

from redrive.broker.management import Management
from redrive.errors import ManagementError
from redrive.work.conditions import Conditions
from redrive.work.health import unmet_conditions
from redrive.work.sender import Sender
from redrive.work.system_state import SystemState

BLOCKS = "the broker blocks publishers: it is short of memory or disk space"


class Idle:
    def settles_in(self) -> float:
        return 0.0

    def state(self) -> SystemState:
        return SystemState(0.1, 0.1)


class Roomy:
    async def spare_connections(self) -> int | None:
        return None


class Open:
    """A sender that can be opened."""

    is_blocked = False
    aborted = False

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def abort(self) -> None:
        self.aborted = True


class Api:
    """A management API that refuses, or not."""

    def __init__(self, status: int | None) -> None:
        self._status = status

    async def call(self, method: str, path: str) -> Any:
        assert (method, path) == ("GET", "health/checks/alarms")
        if self._status is not None:
            raise ManagementError("it refused", status=self._status)


async def unmet(sender: Open, api: Api | None) -> list[str]:
    conditions = Conditions(system=cast("Any", Idle()), capacity=Roomy())
    return await unmet_conditions(
        conditions, cast("Sender", sender), cast("Management | None", api)
    )


@pytest.mark.parametrize(
    ("status", "found"), [(503, [BLOCKS]), (None, []), (0, []), (401, []), (404, [])]
)
async def test_an_alarm_of_the_broker_counts_and_an_api_that_does_not_tell_does_not(
    status: int | None, found: list[str]
) -> None:
    sender = Open()
    assert await unmet(sender, Api(status)) == found
    assert sender.aborted


async def test_without_the_management_api_the_connection_tells() -> None:
    sender = Open()
    assert await unmet(sender, None) == []
    sender.is_blocked = True
    assert await unmet(sender, None) == [BLOCKS]
