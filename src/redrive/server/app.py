"""The app: routes, the console, what stands before them, and the OpenAPI document.

Guarantees: a request goes through protection (headers, size, defects), then authentication, then
its route, in this order. The document at /openapi.json is complete: every route, answer and error.
"""

from __future__ import annotations

import time
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp

from redrive._version import __version__
from redrive.server import (
    alerts,
    audit,
    breakers,
    events,
    groups,
    health,
    letter_changes,
    letter_edits,
    letter_reading,
    letters,
    metrics,
    policies,
    replays,
    session,
    stats,
    tokens,
    topology,
    users,
)
from redrive.server.authentication import API, COOKIE, Authentication
from redrive.server.callers import is_known
from redrive.server.closed_buckets import ClosedBuckets
from redrive.server.console_files import console
from redrive.server.live import Live
from redrive.server.login_limits import LoginLimits
from redrive.server.long_reads import LongReads
from redrive.server.problems import ProblemDocument, tell_problems
from redrive.server.protection import Protection
from redrive.work.desk import Desk
from redrive.work.passwords import Passwords

_ROUTERS: Final = (
    letter_changes,  # before letters: its paths are longer
    letter_edits,
    letter_reading,
    letters,
    groups,
    replays,
    stats,
    alerts,
    breakers,
    policies,
    topology,
    audit,
    session,
    tokens,
    users,
    events,
    health,
)
_SUMMARY: Final = "Dead letters of RabbitMQ: seen, understood, fixed and replayed."


class Application:
    """The app, which has a desk as soon as somebody hands it one."""

    def __init__(self, *, loopback: bool) -> None:
        self._desk: Desk | None = None
        self.api = _api()
        checkup = health.Checkup(lambda: self._desk)
        self.api.state.checkup = checkup
        self.api.state.closed_buckets = ClosedBuckets()
        setattr(self.api.state, session.LIMITS, LoginLimits(time.monotonic))
        setattr(self.api.state, session.PASSWORDS, Passwords())
        setattr(self.api.state, LongReads.NAME, LongReads())
        self.api.include_router(health.probes(checkup))
        self.api.include_router(metrics.router)
        self.api.include_router(console())
        guarded = Authentication(self.api, lambda: self._desk, loopback=loopback)
        self.asgi: ASGIApp = Protection(guarded)

    def open(self, desk: Desk) -> None:
        """From now on requests are answered."""
        self.api.state.live = Live(desk)
        self._desk = desk

    def close(self) -> None:
        """End what would go on for ever."""
        live = getattr(self.api.state, "live", None)
        if isinstance(live, Live):
            live.close()


def _api() -> FastAPI:
    api = FastAPI(
        title="Redrive",
        version=__version__,
        summary=_SUMMARY,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        generate_unique_id_function=lambda route: route.name,
    )
    tell_problems(api, is_known)
    for module in _ROUTERS:
        api.include_router(module.router, prefix=API)

    def described() -> dict[str, Any]:
        if api.openapi_schema is None:
            api.openapi_schema = _describe(api)
        return api.openapi_schema

    api.openapi = described  # type: ignore[method-assign]
    return api


def _describe(api: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=api.title, version=api.version, summary=api.summary, routes=api.routes
    )
    parts = document.setdefault("components", {})
    problem = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = parts.setdefault("schemas", {})
    schemas.update(problem.pop("$defs", {}))
    schemas["Problem"] = problem
    parts["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
    }
    for operations in document["paths"].values():
        for operation in operations.values():
            if "x-role" in operation:
                operation["security"] = [{"token": []}, {"session": []}]
    return document
