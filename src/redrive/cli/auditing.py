"""The audit log, written around what a command changes, in the words of the API.

    async with audited(store.audit_log, "policies.delete", {"name": name}):
        ...

Guarantees: those of `work/auditing.py`. Not here: what people do to letters, and replays that they
order, which have the name of who did it themselves.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from redrive.cli.actor import actor
from redrive.cli.rendering import note
from redrive.domain.access import Role
from redrive.errors import RedriveError
from redrive.work.auditing import Doer, Entries, Telling, noted

_NOTHING_THERE: Final = 404


@asynccontextmanager
async def audited(
    entries: Entries, action: str, detail: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    """Log an action. What is put into the entry is added to its detail."""
    # Who can read the settings may do everything: there is no lower role on this side.
    doer = Doer(actor=actor(), role=Role.ADMIN, address=socket.gethostname())
    telling = Telling(status_of=_status_of, on_unnoted=_say)
    async with noted(entries, doer, action, detail, telling) as entry:
        yield entry


def require(found: object, name: str) -> None:
    """Inside: there was something of that name, or `LookupError`, which is noted as such."""
    if not found:
        raise LookupError(name)


def _status_of(error: Exception) -> int:
    from redrive.server.problems import status_of  # noqa: PLC0415  (slow, and seldom needed)

    return _NOTHING_THERE if type(error) is LookupError else status_of(error)


def _say(number: int, _outcome: int, error: RedriveError) -> None:
    note(f"entry {number} of the audit log has no outcome: {error}")
