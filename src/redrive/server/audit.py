"""The audit log, to read: who did what, when and from where."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, model_validator

from redrive.domain.access import Role
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.callers import desk_of, route
from redrive.server.inputs import Paging, Text, moment
from redrive.work.times import rfc3339

router = APIRouter(tags=["audit"])


class AuditQuery(Paging):
    """Which entries."""

    actor: Text | None = Field(None, description="`*` and `?` are wildcards, here and below.")
    action: Text | None = None
    start_date: Text | None = Field(None, description="A time, a day, or how long ago: `2h`.")
    end_date: Text | None = Field(None, description="The same; a day counts whole.")

    @model_validator(mode="after")
    def _times_can_be_read(self) -> AuditQuery:
        self.times(datetime.now(UTC))
        return self

    def times(self, now: datetime) -> tuple[datetime | None, datetime | None]:
        """From when and until when."""
        return (
            moment("startDate", self.start_date, now),
            moment("endDate", self.end_date, now, end_of_day=True),
        )


@router.get("/audit", **route(Role.OPERATOR, documents.AuditPage))
async def list_audit(request: Request, query: Annotated[AuditQuery, Query()]) -> Response:
    """Entries of the audit log, newest first."""
    start, end = query.times(datetime.now(UTC))
    page = await desk_of(request).store.audit_log.page(
        limit=query.limit,
        after=query.after,
        actor=query.actor,
        action=query.action,
        from_=start,
        until=end,
    )
    items = [
        {
            "id": entry.id,
            "at": rfc3339(entry.at),
            "actor": entry.actor,
            "role": None if entry.role is None else entry.role.value,
            "address": entry.address,
            "action": entry.action,
            "detail": json.loads(entry.detail),
            "outcome": entry.outcome,
        }
        for entry in page.items
    ]
    return answer({"items": items, "next": page.next})
