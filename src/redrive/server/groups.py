"""Groups: letters that failed alike, what people note of them, and who looks after them.

Guarantees: a note says which one it was made from (`madeFrom`); if another one stands by then,
nothing is written, and that is 409.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import AwareDatetime, Field

from redrive.domain.access import LONGEST_USER, Role
from redrive.domain.filters import Filters, Group, GroupNote
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import audited
from redrive.server.callers import caller_of, desk_of, redaction_for, route
from redrive.server.idempotency import IdempotentRoute
from redrive.server.inputs import NO_NUL, Fingerprint, Input, Paging
from redrive.server.problems import not_found
from redrive.work.redact import Redaction
from redrive.work.show import group_document, letter_summary
from redrive.work.times import rfc3339

router = APIRouter(tags=["groups"], route_class=IdempotentRoute)

_NEWEST: Final = 10
_LONGEST_NOTE: Final = 10_000


class Note(Input):
    """What is noted of a group. Both empty: nothing."""

    note: Annotated[str, Field(max_length=_LONGEST_NOTE, pattern=NO_NUL)] = ""
    assignee: (
        Annotated[str, Field(min_length=1, max_length=LONGEST_USER, pattern=NO_NUL)] | None
    ) = None
    made_from: AwareDatetime | None = Field(
        description="`updatedAt` of the note that it replaces; null if there was none."
    )


@router.get("/groups", **route(Role.VIEWER, documents.GroupPage))
async def list_groups(request: Request, paging: Annotated[Paging, Query()]) -> Response:
    """Groups that have letters, the one that was hit last first."""
    store, redaction = desk_of(request).store, redaction_for(request)
    page = await store.groups.page(limit=paging.limit, after=paging.after)
    notes = await store.notes.of([group.fingerprint for group in page.items])
    items = [_document(group, notes.get(group.fingerprint), redaction) for group in page.items]
    return answer({"items": items, "next": page.next})


@router.get("/groups/{fingerprint}", **route(Role.VIEWER, documents.GroupDocument))
async def get_group(request: Request, fingerprint: Fingerprint) -> Response:
    """One group, with its newest letters."""
    store, redaction = desk_of(request).store, redaction_for(request)
    group = await _group(request, fingerprint)
    notes = await store.notes.of([fingerprint])
    page = await store.letters.page(Filters(group=fingerprint), limit=_NEWEST)
    newest = [letter_summary(redaction.letter(letter)) for letter in page.items]
    return answer({**_document(group, notes.get(fingerprint), redaction), "newest": newest})


@router.put("/groups/{fingerprint}/note", **route(Role.OPERATOR, documents.Group))
async def set_group_note(request: Request, fingerprint: Fingerprint, note: Note) -> Response:
    """Note something of a group, and say who looks after it."""
    group = await _group(request, fingerprint)
    told = {"group": fingerprint, "note": note.note, "assignee": note.assignee}
    async with audited(request, "groups.note", told):
        written = await desk_of(request).store.notes.set(
            fingerprint,
            note.note,
            note.assignee,
            caller_of(request).actor,
            made_from=note.made_from,
        )
    return answer(_document(group, written, redaction_for(request)))


async def _group(request: Request, fingerprint: str) -> Group:
    group = await desk_of(request).store.groups.get(fingerprint)
    if group is None:
        raise not_found(f"group {fingerprint}")
    return group


def _document(group: Group, note: GroupNote | None, redaction: Redaction) -> dict[str, Any]:
    written = None
    if note is not None:
        written = {
            "note": note.note,
            "assignee": note.assignee,
            "updatedAt": rfc3339(note.updated_at),
            "updatedBy": note.updated_by,
        }
    return {**group_document(redaction.group(group)), "note": written}
