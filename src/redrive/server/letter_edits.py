"""Edits: another body, other headers, for one letter or for all that match; and undo.

Guarantees: the original is kept. An edit of one letter can name the edit that it was made from
(`madeFrom`): if somebody else has edited it since, that is 409, with what changed meanwhile and the
edit to start from instead. So is an undo that names another edit than the one that stands. Of many
letters all are edited or none, unless those that it does not fit are to be left out.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field, model_validator

from redrive.domain.access import Role
from redrive.domain.editing import PreparedEdit, as_edited
from redrive.domain.json_patch import read_patch
from redrive.domain.letter import Kept
from redrive.errors import CountChanged, EditedMeanwhile, EditRefused
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import audited
from redrive.server.callers import caller_of, desk_of, redaction_for, route
from redrive.server.idempotency import IdempotentRoute
from redrive.server.inputs import Id, Input, Name, Reason, Selection, Text, Unmeant
from redrive.server.kept import kept_of
from redrive.server.long_reads import read_by
from redrive.server.problems import Problem, invalid
from redrive.work.difference import difference
from redrive.work.edit import EditOrder, as_sent, body_of_text, editable_of, prepare
from redrive.work.edit_group import Spool, survey
from redrive.work.edit_report import survey_document
from redrive.work.redact import Redaction

router = APIRouter(tags=["letters"], route_class=IdempotentRoute)


class NewBody(Input):
    """A body, whole."""

    encoding: Literal["utf8", "base64"] = Field(
        description="`utf8`: text, written in the charset that the body has."
    )
    data: str


class Changes(Input):
    """What is to be changed in messages."""

    patch: Annotated[list[dict[str, Any]], Field(max_length=1000)] | None = Field(
        None, description="A JSON Patch for the body (RFC 6902)."
    )
    patch_text: Annotated[str, Field(max_length=2**20)] | None = Field(
        None,
        description="The same as text, for numbers that a JSON parser would round on the way.",
    )
    set_headers: dict[Name, str] = Field({}, description="Each of the type that it has.")
    remove_headers: list[Name] = Field([])
    content_type: Text | None = Field(None, description="Empty: none.")
    reason: Reason = ""
    dry_run: bool = Field(False, description="Only show what it would do.")

    @model_validator(mode="after")
    def _one_patch(self) -> Changes:
        if self.patch is not None and self.patch_text is not None:
            raise ValueError("expected patch or patchText, not both")
        return self

    def order(self, body: bytes | None = None) -> EditOrder:
        """What to change; `EditRefused` if it could be meant for no message."""
        text = json.dumps(self.patch) if self.patch is not None else self.patch_text
        order = EditOrder(
            body=body,
            patch=None if text is None else read_patch(text),
            set_headers=tuple(self.set_headers.items()),
            remove_headers=tuple(self.remove_headers),
            content_type=self.content_type,
        )
        order.check()
        if order.is_empty:
            raise EditRefused("it changes nothing", remedy="give a body, a patch or headers")
        return order

    def told(self) -> dict[str, Any]:
        """What is changed, for the audit log: not the values, which may be secret."""
        patched = self.patch is not None or self.patch_text is not None
        return {
            "patched": patched,
            "setHeaders": sorted(self.set_headers),
            "removeHeaders": list(self.remove_headers),
            "reason": self.reason,
        }


class LetterEdit(Changes):
    """An edit of one letter."""

    body: NewBody | None = None
    made_from: Annotated[int, Field(ge=0)] | None = Field(
        None, description="The edit that stood when it was read; 0 for the original."
    )


class Undo(Input):
    """An edit is taken back."""

    edit: Annotated[int, Field(ge=1)] = Field(
        description="The edit that stood when it was read; if another one stands now, 409."
    )
    reason: Reason = ""


class ManyEdits(Changes):
    """One edit for all letters that match."""

    filter: Selection
    count: Annotated[int, Field(ge=0)] | None = Field(
        None, description="How many letters match; needed unless it is a dry run."
    )
    skip_unfit: bool = Field(False, description="Leave out letters that it does not fit.")

    @model_validator(mode="after")
    def _counted(self) -> ManyEdits:
        if not self.dry_run and self.count is None:
            raise Unmeant("count", "expected the number of letters that was shown")
        return self


@router.post("/letters/{letter_id}/edit", **route(Role.OPERATOR, documents.Edited))
async def edit_letter(request: Request, letter_id: Id, edit: LetterEdit) -> Response:
    """Change what is sent of a letter; the original is kept."""
    kept = await kept_of(request, letter_id)
    given = editable_of(kept)
    if edit.made_from is not None and edit.made_from != given.number:
        raise _edited_meanwhile(kept, edit.made_from, redaction_for(request))
    prepared = prepare(given, edit.order(_body(edit.body, kept)), redaction_for(request))
    diff: list[str] = []
    if prepared is not None:
        after = replace(given.message, properties=prepared.properties, body=prepared.body)
        diff = difference(given.message, after, redaction_for(request))
    number: int | None = given.number or None
    if prepared is not None and not edit.dry_run:
        told = {"id": letter_id, "body": edit.body is not None} | edit.told()
        async with audited(request, "letters.edit", told):
            store = desk_of(request).store
            left_out: list[tuple[str, str]] = []
            await store.edits.edit_all(
                _one([prepared]), caller_of(request).actor, edit.reason, left_out=left_out
            )
            kept = await kept_of(request, letter_id)
            number = editable_of(kept).number or None
            if left_out and number != (given.number or None):
                raise _edited_meanwhile(kept, given.number, redaction_for(request))
            if left_out:
                raise Problem(409, "refused", left_out[0][1])
    edited = prepared is not None and not edit.dry_run
    return answer({"id": letter_id, "edited": edited, "edit": number, "diff": diff})


@router.post("/letters/{letter_id}/undo", **route(Role.OPERATOR, documents.Undone))
async def undo_edit(request: Request, letter_id: Id, undo: Undo) -> Response:
    """Take the newest edit back, unless it was sent."""
    await kept_of(request, letter_id)
    told = {"id": letter_id, "edit": undo.edit, "reason": undo.reason}
    async with audited(request, "letters.undo", told):
        try:
            undone = await desk_of(request).store.edits.undo(
                letter_id, caller_of(request).actor, undo.reason, seen=undo.edit
            )
        except EditedMeanwhile:
            kept = await kept_of(request, letter_id)
            raise _edited_meanwhile(kept, undo.edit, redaction_for(request)) from None
        except EditRefused as refused:
            raise Problem(409, "refused", str(refused), remedy=refused.remedy) from None
    return answer({"id": letter_id, "undone": undone.number})


@router.post("/letters/edit", **route(Role.OPERATOR, documents.EditedMany))
async def edit_letters(request: Request, edit: ManyEdits) -> Response:
    """Change what is sent of all letters that match; first as a dry run, which shows one."""
    store, redaction, order = desk_of(request).store, redaction_for(request), edit.order()
    filters = edit.filter.filters(datetime.now(UTC))
    with Spool() as spool:
        found = await read_by(
            request,
            filters,
            lambda: survey(store.edits, filters, order, spool, redaction=redaction),
        )
        if edit.dry_run:
            return answer(survey_document(found, 0, redaction))
        told = {"filter": edit.filter.given(), "count": edit.count} | edit.told()
        async with audited(request, "letters.edit", told) as entry:
            if found.letters != edit.count:
                raise CountChanged(edit.count or 0, found.letters)
            if found.unfit and not edit.skip_unfit:
                raise Problem(
                    409,
                    "unfit",
                    f"it does not fit {found.unfit_letters:,} of them: {found.unfit[0].reason}",
                    remedy="with skipUnfit those are left out, and the others are edited",
                )
            left_out: list[tuple[str, str]] = []
            edited = await store.edits.edit_all(
                spool.batches(),
                caller_of(request).actor,
                edit.reason,
                left_out=left_out if edit.skip_unfit else None,
            )
            entry["edited"] = edited
        for letter_id, reason in left_out:
            found.leave_out(letter_id, reason)
    return answer(survey_document(found, edited, redaction))


def _body(given: NewBody | None, kept: Kept) -> bytes | None:
    if given is None:
        return None
    if given.encoding == "utf8":
        return body_of_text(editable_of(kept).message, given.data)
    try:
        return base64.b64decode(given.data, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("body.body.data", "expected base64") from None


def _edited_meanwhile(kept: Kept, made_from: int, redaction: Redaction) -> Problem:
    begun_with = next((edit for edit in kept.edits if edit.number == made_from), None)
    return Problem(
        409,
        "edited-meanwhile",
        f"letter {kept.letter.id} was changed by somebody else meanwhile",
        remedy="look at what changed, and begin from the edit that stands now",
        edit=editable_of(kept).number,
        diff=difference(as_edited(kept.envelope, begun_with), as_sent(kept), redaction),
    )


async def _one(prepared: Sequence[PreparedEdit]) -> AsyncIterator[Sequence[PreparedEdit]]:
    yield prepared
