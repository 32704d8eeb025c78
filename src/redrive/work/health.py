"""Whether letters may be sent in numbers now: looked at before a replay begins."""

from __future__ import annotations

from typing import Final

from redrive.broker.management import Management
from redrive.errors import ManagementError
from redrive.work.conditions import Conditions
from redrive.work.sender import Sender

_ALARM: Final = 503


async def unmet_conditions(
    conditions: Conditions, sender: Sender, management: Management | None
) -> list[str]:
    """The conditions that do not hold. Raises `BrokerError` if the broker cannot be reached."""
    try:
        await sender.open()
        blocked = sender.is_blocked or await _has_alarm(management)
        unmet = await conditions.unmet(broker_blocked=blocked)
        await sender.close()
    finally:
        sender.abort()
    return unmet


async def _has_alarm(management: Management | None) -> bool:
    """Whether the broker is short of memory or disk space. It tells a connection only when that
    publishes; the management API tells before."""
    if management is None:
        return False
    try:
        await management.call("GET", "health/checks/alarms")
    except ManagementError as error:
        return error.status == _ALARM
    return False
