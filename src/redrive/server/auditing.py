"""The audit log, written around what a route does.

    async with audited(request, "letters.discard", chosen.told()) as entry:
        ...
        entry["discarded"] = 12

Guarantees: the entry is in the store before the change begins, and what became of it after; an
error is noted with the status that it is answered with. If the store does not take what became of
it, that is logged, and the entry stays without an outcome: what was done is done. A route that
changes things and does not use this fails a test.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
from fastapi import Request

from redrive.domain.texts import storable
from redrive.errors import RedriveError
from redrive.server.callers import caller_of, desk_of
from redrive.server.problems import Problem, problem_of

log = structlog.get_logger()

_LONGEST: Final = 20_000
_NAMED: Final = 100
_UNFORESEEN: Final = 500
_BEGUN: Final = "change_has_begun"


@asynccontextmanager
async def audited(
    request: Request, action: str, detail: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    """Log an action. What is put into the entry is added to its detail."""
    caller, entries = caller_of(request), desk_of(request).store.audit_log
    entry = dict(detail)
    number = await entries.begin(caller.actor, caller.role, caller.address, action, _text(entry))
    setattr(request.state, _BEGUN, True)
    outcome = _UNFORESEEN
    try:
        yield entry
        outcome = 200
    except Problem as problem:
        outcome = problem.status
        raise
    except RedriveError as error:
        outcome = problem_of(error).status
        raise
    finally:
        try:
            await entries.end(number, outcome, _text(entry))
        except RedriveError as error:
            log.warning(
                "server.outcome_not_noted",
                entry=number,
                action=action,
                outcome=outcome,
                error=str(error),
                remedy=error.remedy,
            )


def has_begun(request: Request) -> bool:
    """Whether the change that a request asks for may have been made, wholly or in part."""
    return getattr(request.state, _BEGUN, False) is True


def _text(detail: dict[str, Any]) -> str:
    text = json.dumps(detail)
    if len(text) > _LONGEST:
        text = json.dumps(_with_shorter_lists(detail))
    if len(text) > _LONGEST:
        text = json.dumps({"cut": storable(text, _LONGEST // 2)})
    return text


def _with_shorter_lists(detail: Any) -> Any:
    """Of many letters the first: what stands beside them, the reason and the outcome, is worth
    more than the last ids."""
    if isinstance(detail, dict):
        return {name: _with_shorter_lists(each) for name, each in detail.items()}
    if isinstance(detail, list) and len(detail) > _NAMED:
        return [*detail[:_NAMED], f"and {len(detail) - _NAMED:,} more"]
    return detail


async def note_view(request: Request, letter_id: str) -> None:
    """Somebody looks at a message, which is in the log if that was asked for."""
    if desk_of(request).settings.server.audit_views:
        async with audited(request, "letters.view", {"id": letter_id}):
            pass
