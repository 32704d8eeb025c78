"""Replays: letters are sent again, as jobs that workers run; previewed, paused, resumed, cancelled.

Guarantees: a job is made only if as many letters match as the caller was told, found out in the
transaction that lists them, and only while the system is well, unless asked. A preview changes
nothing. The server runs no job itself: a worker takes it within seconds.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator, Field

from redrive.domain.access import Role
from redrive.domain.filter_words import described
from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.letter import Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import (
    BATCH_SIZE,
    PAUSE,
    Replay,
    ReplayOrder,
    ReplayState,
    read_destination,
)
from redrive.errors import ManagementError, OrderRefused
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import audited
from redrive.server.callers import caller_of, desk_of, redaction_for, route
from redrive.server.idempotency import IdempotentRoute
from redrive.server.inputs import NO_NUL, Id, Input, Paging, Reason, Selection
from redrive.server.long_reads import read_by
from redrive.server.problems import Problem, not_found
from redrive.work.destinations import destinations
from redrive.work.ordering import read_ordering
from redrive.work.replay_preview import Preview, PreviewOrder, preview_document
from redrive.work.replay_report import (
    replay_document,
    replayed_letter_document,
    report_document,
    report_of,
)

router = APIRouter(tags=["replays"], route_class=IdempotentRoute)


def _destination(text: str) -> str:
    try:
        return str(read_destination(text))
    except OrderRefused as refused:
        raise ValueError(str(refused)) from None


def _ordering(text: str) -> str:
    try:
        read_ordering(text)
    except OrderRefused as refused:
        raise ValueError(str(refused)) from None
    return text


class ReplayWanted(Input):
    """Which letters are sent, where to and how. Without `status`: pending, manual and failed."""

    filter: Selection = Field(default_factory=lambda: Selection.model_validate({}))
    limit: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    to: (
        Annotated[
            str,
            Field(max_length=300, pattern=NO_NUL),
            AfterValidator(_destination),
        ]
        | None
    ) = Field(None, description="`queue:NAME` or `exchange:NAME`, not where they failed.")
    with_doubtful: bool | None = Field(
        None,
        description="Also what may have been consumed already, and both copies of what may be one"
        " message. Unless said otherwise, only where letters are named by id.",
    )
    ordered_by: (
        Annotated[str, Field(max_length=1000, pattern=NO_NUL), AfterValidator(_ordering)] | None
    ) = Field(
        None,
        description="`header:NAME`, or the JSONPath of one value: equal values keep their order.",
    )

    drop_oldest: bool = Field(
        False, description="Also where a full queue drops its oldest messages for a letter."
    )

    def filters(self) -> Filters:
        """Who names letters means them whatever their state is."""
        filters = self.filter.filters()
        if filters.ids and not filters.status:
            filters = replace(filters, status=tuple(State))
        return filters

    @property
    def doubtful(self) -> bool:
        return bool(self.filter.id) if self.with_doubtful is None else self.with_doubtful


class NewReplay(ReplayWanted):
    """A replay, confirmed."""

    count: Annotated[int, Field(ge=0)] = Field(
        description="How many letters it was said to send: `matched` of the preview."
    )
    batch_size: Annotated[int, Field(ge=1, le=10_000)] = BATCH_SIZE
    pause: Annotated[float, Field(ge=0, le=86_400)] | None = Field(
        None, description="Seconds between batches; 1, or 0 with a rate."
    )
    rate: Annotated[float, Field(gt=0, le=1_000_000)] | None = Field(
        None, description="At most so many letters a second."
    )
    ignore_health: bool = Field(False, description="Even if the system is not well.")


class Word(Input):
    """Why."""

    reason: Reason = ""


@router.get("/replays", **route(Role.VIEWER, documents.ReplayPage))
async def list_replays(request: Request, paging: Annotated[Paging, Query()]) -> Response:
    """Replays, newest first."""
    page = await desk_of(request).store.replays.page(limit=paging.limit, after=paging.after)
    return answer({"items": [replay_document(each) for each in page.items], "next": page.next})


@router.post("/replays/preview", **route(Role.VIEWER, documents.ReplayPreview))
async def preview_replay(request: Request, wanted: ReplayWanted) -> Response:
    """Where each letter would go now, and whether it would be taken there. Nothing is sent."""
    desk = desk_of(request)
    policies = await desk.policy_book()
    redirect = None if wanted.to is None else read_destination(wanted.to)
    order = PreviewOrder(
        vhost=desk.vhost,
        filters=wanted.filters(),
        limit=wanted.limit,
        key=None if wanted.ordered_by is None else read_ordering(wanted.ordered_by),
        doubtful=wanted.doubtful,
        drop_oldest=wanted.drop_oldest,
        destination_of=destinations(lambda: policies, redirect),
    )

    async def look() -> tuple[Preview, ManagementError | None]:
        async with desk.replay_preview() as (looking, silent):
            return await looking.of(order, datetime.now(UTC)), silent

    found, silent = await read_by(request, order.filters, look)
    note = None if silent is None else f"{silent}; length limits and bindings are unknown"
    return answer(
        {
            **preview_document(found),
            "matched": found.matched,
            "unmet": await desk.unmet_conditions(),
            "note": note,
        }
    )


@router.post("/replays", **route(Role.OPERATOR, documents.Replay, 201))
async def create_replay(request: Request, wanted: NewReplay) -> Response:
    """Send letters again, as a job that a worker runs."""
    desk = desk_of(request)
    filters = wanted.filters()
    pause = wanted.pause
    order = ReplayOrder(
        actor=caller_of(request).actor,
        described=described(filters if not filters.ids else wanted.filter.filters()),
        destination=None if wanted.to is None else read_destination(wanted.to),
        batch_size=wanted.batch_size,
        pause=(PAUSE if wanted.rate is None else 0.0) if pause is None else pause,
        rate=wanted.rate,
        doubtful=wanted.doubtful,
        ordered_by=wanted.ordered_by,
        drop_oldest=wanted.drop_oldest,
        letters=wanted.count,
    )
    told = {
        "filter": wanted.filter.given(),
        "count": wanted.count,
        "limit": wanted.limit,
        "to": wanted.to,
        "withDoubtful": wanted.doubtful,
        "orderedBy": wanted.ordered_by,
        "dropOldest": wanted.drop_oldest,
        "ignoreHealth": wanted.ignore_health,
    }
    async with audited(request, "replays.create", told) as entry:
        if not wanted.ignore_health:
            await _require_health(request)
        id_ = letter_id(datetime.now(UTC), secrets.randbits(74))
        made = await desk.store.replays.create(id_, desk.vhost, filters, order, limit=wanted.limit)
        if made is None:
            raise Problem(409, "nothing-matches", "no letter matches; nothing was sent")
        entry["replay"] = made.id
    return answer(replay_document(made), 201)


async def _require_health(request: Request) -> None:
    unmet = await desk_of(request).unmet_conditions()
    if unmet:
        raise Problem(
            409,
            "not-well",
            f"the system is not well enough: {'; '.join(unmet)}",
            remedy="wait until it is better, or ask for it with ignoreHealth",
        )


@router.get("/replays/{replay_id}", **route(Role.VIEWER, documents.ReplayReport))
async def get_replay(request: Request, replay_id: Id) -> Response:
    """One replay: how far it is, what became of its letters, and what it waits for."""
    desk = desk_of(request)
    found = await _replay(request, replay_id)
    report = await report_of(desk.store.replays, desk.replay_looks, found)
    return answer(report_document(report))


class LettersOfReplay(Paging):
    """Which letters of a replay."""

    result: Annotated[list[Result], Field(max_length=20)] = Field(
        [], description="May repeat; without one, every letter that was not sent well."
    )
    left_out: bool = Field(True, description="Also those that it left out.")


_FAILURES: Final = (Result.REFUSED, Result.IN_DOUBT, Result.RETURNED, Result.FAILED)


@router.get("/replays/{replay_id}/letters", **route(Role.VIEWER, documents.ReplayLetterPage))
async def list_letters_of_replay(
    request: Request, replay_id: Id, query: Annotated[LettersOfReplay, Query()]
) -> Response:
    """Letters of a replay, in its order: those that failed, or those with the results asked for.
    A page may have fewer than `limit`, or none, and a `next`: then the rest is further on."""
    redaction = redaction_for(request)
    page = await desk_of(request).replay_looks.letters(
        await _replay(request, replay_id),
        query.result or _FAILURES,
        left_out=query.left_out,
        limit=query.limit,
        after=query.after,
    )
    items = [replayed_letter_document(each, redaction) for each in page.items]
    return answer({"items": items, "next": page.next})


@router.post("/replays/{replay_id}/pause", **route(Role.OPERATOR, documents.Replay))
async def pause_replay(request: Request, replay_id: Id, word: Word) -> Response:
    """Pause a replay after the batch that is being sent."""
    await _replay(request, replay_id)
    async with audited(request, "replays.pause", {"replay": replay_id, "reason": word.reason}):
        changed = await desk_of(request).store.replays.pause(replay_id, word.reason)
    return answer(replay_document(changed))


@router.post("/replays/{replay_id}/resume", **route(Role.OPERATOR, documents.Replay))
async def resume_replay(request: Request, replay_id: Id) -> Response:
    """Have a replay go on where it was. One that runs already is left as it is."""
    found = await _replay(request, replay_id)
    async with audited(request, "replays.resume", {"replay": replay_id}):
        if found.state is not ReplayState.RUNNING:
            found = await desk_of(request).store.replays.resume(replay_id)
    return answer(replay_document(found))


@router.post("/replays/{replay_id}/cancel", **route(Role.OPERATOR, documents.Replay))
async def cancel_replay(request: Request, replay_id: Id, word: Word) -> Response:
    """End a replay after the batch that is being sent; what was not sent stays as it is."""
    await _replay(request, replay_id)
    async with audited(request, "replays.cancel", {"replay": replay_id, "reason": word.reason}):
        changed = await desk_of(request).store.replays.cancel(replay_id, word.reason)
    return answer(replay_document(changed))


async def _replay(request: Request, replay_id: str) -> Replay:
    found = await desk_of(request).store.replays.get(replay_id)
    if found is None:
        raise not_found(f"replay {replay_id}")
    return found
