"""The audit log, written around what a route does.

    async with audited(request, "letters.discard", chosen.told()) as entry:
        ...
        entry["discarded"] = 12

Guarantees: those of `work/auditing.py`. A route that changes things and does not use this fails a
test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
from fastapi import Request

from redrive.errors import RedriveError
from redrive.server.callers import caller_of, desk_of
from redrive.server.problems import status_of
from redrive.work.auditing import Doer, Telling, noted

log = structlog.get_logger()

_BEGUN: Final = "change_has_begun"


@asynccontextmanager
async def audited(
    request: Request, action: str, detail: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    """Log an action. What is put into the entry is added to its detail."""
    caller = caller_of(request)
    doer = Doer(actor=caller.actor, role=caller.role, address=caller.address)

    def say(number: int, outcome: int, error: RedriveError) -> None:
        log.warning(
            "server.outcome_not_noted",
            entry=number,
            action=action,
            outcome=outcome,
            error=str(error),
            remedy=error.remedy,
        )

    telling = Telling(status_of=status_of, on_unnoted=say)
    async with noted(desk_of(request).store.audit_log, doer, action, detail, telling) as entry:
        setattr(request.state, _BEGUN, True)
        yield entry


def has_begun(request: Request) -> bool:
    """Whether the change that a request asks for may have been made, wholly or in part."""
    return getattr(request.state, _BEGUN, False) is True


async def note_view(request: Request, letter_id: str) -> None:
    """Somebody looks at a message, which is in the log if that was asked for."""
    if desk_of(request).settings.server.audit_views:
        async with audited(request, "letters.view", {"id": letter_id}):
            pass
