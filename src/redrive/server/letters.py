"""Letters, to see: a list by filters, how many there are, one whole, its message as it is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from redrive.domain.access import Role
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import note_view
from redrive.server.callers import desk_of, redaction_for, route
from redrive.server.inputs import MOST_IDS, Id, Selection, SelectionPage
from redrive.server.kept import kept_of
from redrive.server.long_reads import read_by
from redrive.work.classify import Classification, classified_document, shown_why
from redrive.work.edit import as_sent
from redrive.work.show import letter_document, letter_summary

router = APIRouter(tags=["letters"])

_SHOWN: Final = 256 * 1024
_DEEPEST: Final = "it is nested too deeply to be parsed here; the body is as it was received"


@router.get("/letters", **route(Role.VIEWER, documents.LetterPage))
async def list_letters(request: Request, query: Annotated[SelectionPage, Query()]) -> Response:
    """Letters, newest first."""
    letters, redaction = desk_of(request).store.letters, redaction_for(request)
    filters = query.filters()
    page = await read_by(
        request, filters, lambda: letters.page(filters, limit=query.limit, after=query.after)
    )
    items = [letter_summary(redaction.letter(letter)) for letter in page.items]
    return answer({"items": items, "next": page.next})


@router.get("/letters/count", **route(Role.VIEWER, documents.Count))
async def count_letters(request: Request, query: Annotated[Selection, Query()]) -> Response:
    """How many letters match: the number that a bulk action wants to be told."""
    decisions, filters = desk_of(request).store.decisions, query.filters()
    count = await read_by(request, filters, lambda: decisions.count(filters))
    return answer({"letters": count})


@router.get("/classifications", **route(Role.VIEWER, documents.Classifications))
async def classify_letters(
    request: Request,
    id: Annotated[list[Id], Query(min_length=1, max_length=MOST_IDS)],  # noqa: A002
) -> Response:
    """How letters are revived: the strategy, the rule that chose it, why, and when."""
    desk, redaction = desk_of(request), redaction_for(request)
    classification, now = Classification.by(desk.settings), datetime.now(UTC)
    items = []
    for each in dict.fromkeys(id):
        letter = await desk.store.letters.get(each)
        if letter is not None:
            classified = classification.of(letter, now)
            items.append(classified_document(classified, shown_why(classified, redaction)))
    return answer({"items": items})


@router.get("/letters/{letter_id}", **route(Role.VIEWER, documents.LetterDocument))
async def get_letter(
    request: Request,
    letter_id: Id,
    body_limit: Annotated[
        int,
        Query(
            alias="bodyLimit",
            ge=0,
            le=16 * 2**20,
            description="At most so many bytes of each body; `truncated` says if there are more.",
        ),
    ] = _SHOWN,
) -> Response:
    """A letter whole: failure, deaths, message, attempts, edits and history."""
    kept = await kept_of(request, letter_id)
    await note_view(request, letter_id)
    # In a thread: to decode and mask megabytes takes long enough to be felt by other roles.
    document = await asyncio.to_thread(
        letter_document, kept, redaction=redaction_for(request), most_body=body_limit
    )
    if kept.letter.size > body_limit:
        # Whoever has asked for less than all of it does not want all of it parsed.
        document["originalMessage"] = None
    try:
        return answer(document)
    except RecursionError:
        document |= {"originalMessage": None, "bodyNote": _DEEPEST}
        return answer(document)


@router.get(
    "/letters/{letter_id}/body",
    **route(
        Role.VIEWER,
        None,
        responses={
            200: {
                "description": "The bytes, to be saved and not to be shown.",
                "content": {
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                },
            }
        },
        response_class=Response,
    ),
)
async def download_body(
    request: Request,
    letter_id: Id,
    edited: Annotated[
        bool, Query(description="As it would be sent now, with the edit that stands.")
    ] = False,
) -> Response:
    """The body of a letter, byte for byte, unless a redaction rule touches it."""
    kept = await kept_of(request, letter_id)
    await note_view(request, letter_id)
    redaction = redaction_for(request)
    message = as_sent(kept) if edited else kept.envelope
    envelope = await asyncio.to_thread(redaction.envelope, message)
    return Response(
        envelope.body,
        headers={
            "Content-Disposition": f'attachment; filename="letter-{letter_id}.bin"',
            # Should somebody open it nevertheless: nothing in it runs, and it knows no origin.
            "Content-Security-Policy": "sandbox; default-src 'none'",
        },
        media_type="application/octet-stream",
    )
