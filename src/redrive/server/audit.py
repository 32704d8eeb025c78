"""The audit log, to read: who did what, when and from where."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from redrive.domain.access import Role
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.callers import desk_of, route
from redrive.server.inputs import Paging, Text
from redrive.work.times import rfc3339

router = APIRouter(tags=["audit"])


class AuditQuery(Paging):
    """Which entries."""

    actor: Text | None = None
    action: Text | None = None


@router.get("/audit", **route(Role.OPERATOR, documents.AuditPage))
async def list_audit(request: Request, query: Annotated[AuditQuery, Query()]) -> Response:
    """Entries of the audit log, newest first."""
    page = await desk_of(request).store.audit_log.page(
        limit=query.limit, after=query.after, actor=query.actor, action=query.action
    )
    items = [
        {
            "id": entry.id,
            "at": rfc3339(entry.at),
            "actor": entry.actor,
            "role": entry.role.value,
            "address": entry.address,
            "action": entry.action,
            "detail": json.loads(entry.detail),
            "outcome": entry.outcome,
        }
        for entry in page.items
    ]
    return answer({"items": items, "next": page.next})
