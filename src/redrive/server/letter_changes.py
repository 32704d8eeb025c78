"""What people decide on letters: discard, archive, restore, resolve; by id, or all that match.

Guarantees: by a filter, nothing is touched unless as many letters match as the caller was told;
those are listed, and what comes to match from then on is not touched. A letter that may not change,
or has changed since, is left as it is and counted with the reason; that is no error, even if none
could be changed.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from redrive.domain.access import Role
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import audited
from redrive.server.callers import caller_of, desk_of, route
from redrive.server.idempotency import IdempotentRoute
from redrive.server.inputs import Chosen, Reason
from redrive.work.decide import DONE, Verb, decide, tally_document

router = APIRouter(tags=["letters"], route_class=IdempotentRoute)


class Decision(Chosen):
    """A decision on letters."""

    reason: Reason = ""


@router.post("/letters/discard", **route(Role.OPERATOR, documents.Discarded))
async def discard_letters(request: Request, decision: Decision) -> Response:
    """Discard letters that are of no use: they are archived, and gone when retention says so."""
    return await _decide(request, "discard", decision)


@router.post("/letters/archive", **route(Role.OPERATOR, documents.Archived))
async def archive_letters(request: Request, decision: Decision) -> Response:
    """Archive letters: no worker sends them, and they can be restored."""
    return await _decide(request, "archive", decision)


@router.post("/letters/restore", **route(Role.OPERATOR, documents.Restored))
async def restore_letters(request: Request, decision: Decision) -> Response:
    """Bring archived letters back, for a person to decide on."""
    return await _decide(request, "restore", decision)


@router.post("/letters/resolve", **route(Role.OPERATOR, documents.Resolved))
async def resolve_letters(request: Request, decision: Decision) -> Response:
    """Say that letters were consumed, where no receipt and no silence tells."""
    return await _decide(request, "resolve", decision)


async def _decide(request: Request, verb: Verb, decision: Decision) -> Response:
    decisions = desk_of(request).store.decisions
    filters = None if decision.filter is None else decision.filter.filters()
    told = decision.told() | {"reason": decision.reason}
    async with audited(request, f"letters.{verb}", told) as entry:
        tally = await decide(
            decisions,
            verb,
            decision.ids or ()
            if filters is None
            else await decisions.listed(filters, expected=decision.count),
            actor=caller_of(request).actor,
            reason=decision.reason,
        )
        entry[DONE[verb]] = tally.changed
    return answer(tally_document(tally, verb))
