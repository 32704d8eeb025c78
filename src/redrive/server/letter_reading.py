"""What helps a person to read letters one by one: the body as text, and the letters beside one."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from redrive.domain.access import Role
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import note_view
from redrive.server.callers import desk_of, redaction_for, route
from redrive.server.inputs import Id, Selection
from redrive.server.kept import kept_of
from redrive.server.long_reads import read_by
from redrive.work.content import content_document
from redrive.work.edit import as_sent

router = APIRouter(tags=["letters"])

_SHOWN: Final = 256 * 1024
_MOST: Final = 4 * 2**20


@router.get("/letters/{letter_id}/content", **route(Role.VIEWER, documents.Content))
async def read_content(
    request: Request,
    letter_id: Id,
    edited: Annotated[
        bool, Query(description="As it would be sent now, with the edit that stands.")
    ] = False,
    limit: Annotated[int, Query(ge=0, le=_MOST, description="At most so many characters.")] = (
        _SHOWN
    ),
) -> Response:
    """The body as people read it: encodings undone, JSON on many lines. Numbers stay as written."""
    kept = await kept_of(request, letter_id)
    await note_view(request, letter_id)
    envelope = as_sent(kept) if edited else kept.envelope
    return answer(
        await asyncio.to_thread(content_document, envelope, redaction_for(request), limit)
    )


@router.get("/letters/{letter_id}/neighbours", **route(Role.VIEWER, documents.Neighbours))
async def find_neighbours(
    request: Request, letter_id: Id, query: Annotated[Selection, Query()]
) -> Response:
    """The letters before and after one in the list of those that match."""
    letters, filters = desk_of(request).store.letters, query.filters()
    newer, older = await read_by(request, filters, lambda: letters.neighbours(letter_id, filters))
    return answer({"newer": newer, "older": older})
