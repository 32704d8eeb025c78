"""Topology: how the broker differs from what the settings ask for, and what its queues hold."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from redrive.broker.documents import finding_document
from redrive.domain.access import Role
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.callers import desk_of, route

router = APIRouter(tags=["topology"])


@router.get("/topology", **route(Role.VIEWER, documents.Topology))
async def check_topology(request: Request) -> Response:
    """Every exchange, queue and binding of Redrive, and how it stands. Changes nothing."""
    look = await desk_of(request).look_at_topology()
    return answer(
        {
            "clean": look.drift.clean,
            "exact": look.drift.exact,
            "parts": [finding_document(finding) for finding in look.drift.findings],
            "counts": {
                name: {"ready": each.ready, "consumers": each.consumers}
                for name, each in look.counts.items()
            },
            "note": look.note,
        }
    )
