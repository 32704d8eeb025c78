"""Whether the process is up, whether it can work, and what is wrong if it cannot.

`/healthz` and `/readyz` are for machines, need no login and tell nothing of hosts or errors; what
is wrong is in the API. Broker and store are asked at most every few seconds, however often somebody
asks, and an answer takes no longer than `_PATIENCE`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request, Response

from redrive._version import __version__
from redrive.domain.access import Role
from redrive.errors import RedriveError
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.callers import desk_of, route
from redrive.work.conditions import BLOCKED
from redrive.work.desk import Desk

router = APIRouter(tags=["health"])

_KEPT: Final = 3.0
_PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What works. None: it does; else why not."""

    store: str | None
    broker: str | None
    unmet: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.store is None and self.broker is None


class Checkup:
    """Looks at broker and store, for everybody who asks within a few seconds at once."""

    def __init__(self, desk: Callable[[], Desk | None]) -> None:
        self._desk = desk
        self._turn = asyncio.Lock()
        self._found = Parts("the store has not been reached yet", "it has not been asked yet")
        self._at = float("-inf")

    async def parts(self) -> Parts:
        async with self._turn:
            if time.monotonic() - self._at > _KEPT:
                self._found = await self._look()
                self._at = time.monotonic()
            return self._found

    async def _look(self) -> Parts:
        desk = self._desk()
        if desk is None:
            return Parts("the store has not been reached yet", "it has not been asked yet")
        unmet: list[str] = []

        async def ask_broker() -> None:
            unmet.extend(await desk.unmet_conditions())

        store = await _why_not(desk.store.series.now())
        broker = await _why_not(desk.require_broker() if store is not None else ask_broker())
        return Parts(store, broker, tuple(unmet))


async def _why_not(asking: Awaitable[object]) -> str | None:
    try:
        async with asyncio.timeout(_PATIENCE):
            await asking
    except TimeoutError:
        return f"no answer within {_PATIENCE:g} s"
    except RedriveError as error:
        return str(error)
    return None


def probes(checkup: Checkup) -> APIRouter:
    """The two that machines ask."""
    open_to_all = APIRouter(tags=["health"])

    @open_to_all.get("/healthz", response_model=documents.Alive)
    async def is_up() -> Response:
        """The process is up."""
        return answer({"status": "up", "version": __version__})

    @open_to_all.get(
        "/readyz", response_model=documents.Ready, responses={503: {"model": documents.Ready}}
    )
    async def is_ready() -> Response:
        """The store answers and the broker can be reached; 503 if not."""
        parts = await checkup.parts()
        return answer(
            {
                "status": "ready" if parts.ok else "not ready",
                "store": parts.store is None,
                "broker": parts.broker is None,
            },
            200 if parts.ok else 503,
        )

    return open_to_all


@router.get("/health", **route(Role.VIEWER, documents.Health))
async def get_health(request: Request) -> Response:
    """What works and what does not, with the reasons."""
    desk_of(request)
    checkup: Checkup = request.app.state.checkup
    parts = await checkup.parts()
    return answer(
        {
            "ok": parts.ok,
            "store": {"ok": parts.store is None, "detail": parts.store},
            "broker": {"ok": parts.broker is None, "detail": parts.broker},
            "blocked": BLOCKED in parts.unmet,
            "unmet": list(parts.unmet),
            "busy": [each for each in parts.unmet if each != BLOCKED],
            "version": __version__,
        }
    )
