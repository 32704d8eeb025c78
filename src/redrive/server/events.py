"""Live events, as server-sent events: what changed, so that a page knows what to read again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse

from redrive.domain.access import Role
from redrive.server.answers import render
from redrive.server.callers import desk_of, route
from redrive.server.inputs import Text
from redrive.server.live import Live, Told

router = APIRouter(tags=["events"])

_AGAIN: Final = b"retry: 2000\n\n"
_BEAT: Final = b": still here\n\n"
_DESCRIPTION: Final = """Server-sent events.

| event | data |
|---|---|
| `stats` | the ledger: first thing on every connection, and whenever it changes |
| `letters` | `ids` of letters that came or changed, newest first; `more` if there are others |
| `replay` | a replay that changed, as the list has it |
| `changed` | `resources` that somebody changed by the API: `policies`, `groups`, `breakers`, … |
| `resync` | too much was missed: read everything again |

`id` is a place in time that every process of the server understands: sent as `Last-Event-ID`, what
happened since comes first. A change may be told twice."""


@router.get(
    "/events",
    description=_DESCRIPTION,
    **route(
        Role.VIEWER,
        None,
        responses={
            200: {
                "description": "A stream without an end.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            }
        },
        response_class=StreamingResponse,
    ),
)
async def stream_events(
    request: Request,
    last_event_id: Annotated[Text | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """What changes, as it changes."""
    desk_of(request)
    live: Live = request.app.state.live
    return StreamingResponse(
        _stream(live, last_event_id),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


async def _stream(live: Live, since: str | None) -> AsyncIterator[bytes]:
    yield _AGAIN
    async for told in live.listen(since):
        yield _BEAT if told is None else _written(told)


def _written(told: Told) -> bytes:
    head = f"id: {told.place}\nevent: {told.name}\ndata: ".encode()
    return head + render(told.data) + b"\n\n"
