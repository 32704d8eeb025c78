"""Breakers: which destinations are held back; forced open or closed, and released."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response

from redrive.domain.access import Role
from redrive.domain.breaker import Breaker, Position
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import audited
from redrive.server.callers import desk_of, route
from redrive.server.idempotency import IdempotentRoute
from redrive.server.inputs import Input, Name
from redrive.server.problems import not_found
from redrive.work.show import breaker_document

router = APIRouter(tags=["breakers"], route_class=IdempotentRoute)


class Force(Input):
    """A breaker is held."""

    queue: Name
    position: Literal["open", "closed"]


class Release(Input):
    """A breaker is let go."""

    queue: Name


@router.get("/breakers", **route(Role.VIEWER, documents.Breakers))
async def list_breakers(request: Request) -> Response:
    """The breakers of destinations where something failed lately, or that are forced."""
    found = await _all(request)
    return answer({"items": [breaker_document(queue, each) for queue, each in found.items()]})


@router.post("/breakers/force", **route(Role.OPERATOR, documents.Breaker))
async def force_breaker(request: Request, force: Force) -> Response:
    """Hold a breaker open or closed, whatever happens, until it is released."""
    desk = desk_of(request)
    async with audited(
        request, "breakers.force", {"queue": force.queue, "position": force.position}
    ):
        breaker = await desk.store.breakers.force(desk.vhost, force.queue, Position(force.position))
    return answer(breaker_document(force.queue, breaker))


@router.post("/breakers/release", **route(Role.OPERATOR, documents.Breaker))
async def release_breaker(request: Request, release: Release) -> Response:
    """Let a breaker be what it would be by itself."""
    desk = desk_of(request)
    if release.queue not in await _all(request):
        raise not_found(f"breaker of {release.queue!r}")
    async with audited(request, "breakers.release", {"queue": release.queue}):
        breaker = await desk.store.breakers.force(desk.vhost, release.queue, None)
    return answer(breaker_document(release.queue, breaker))


async def _all(request: Request) -> dict[str, Breaker]:
    desk = desk_of(request)
    found = await desk.store.breakers.all()
    return {each.queue: each.breaker for each in found if each.vhost == desk.vhost}
