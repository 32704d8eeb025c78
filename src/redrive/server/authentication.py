"""Finds out who calls, before anything else is done with a request.

Guarantees:
- A token counts as long as it is neither revoked nor expired, a session as long as its user is
  there. Both are looked up in the store with every request, whatever process made them.
- Without either, a request goes on only if the server listens on loopback and nobody can log in
  because there is no user and no token. Then it must come from this machine and not through a
  proxy, which could bring anybody; and the Host must be this machine's own name: a page elsewhere
  whose name was made to point here is sent away.
- Who is not known may ask whether a login is needed, and log in, with a request of a few KiB.
- A change that is sent with a cookie needs the session's `X-CSRF-Token`; one that is sent without
  anything must not come from a page of another origin. Tokens are not sent by browsers by
  themselves and need neither.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from redrive.domain.access import Role
from redrive.domain.filters import Searched
from redrive.errors import RedriveError
from redrive.server.callers import CALLER, DESK, Caller, redaction_for
from redrive.server.inputs import SEARCHED
from redrive.server.problems import Problem, answer_problem, problem_for_anybody
from redrive.server.protection import MOST_BYTES_OF_NOBODY, Measured, announced, too_large
from redrive.work.desk import Desk
from redrive.work.passwords import digest

COOKIE: Final = "redrive_session"
CSRF_HEADER: Final = "X-CSRF-Token"
API: Final = "/api/v1"
METRICS: Final = "/metrics"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN: Final = frozenset({("GET", f"{API}/session"), ("POST", f"{API}/session")})
"""What can be called without a role: who am I, and the login."""
_BY_PROXY: Final = frozenset({"forwarded", "via", "x-real-ip"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Authentication:
    """Middleware: sets the caller and the desk of every request of the API, and of /metrics."""

    def __init__(self, app: ASGIApp, desk: Callable[[], Desk | None], *, loopback: bool) -> None:
        self._app = app
        self._desk = desk
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_guarded(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            await self._admit(scope)
        except Problem as problem:
            await answer_problem(problem)(scope, receive, send)
            return
        except RedriveError as error:
            await answer_problem(problem_for_anybody(error))(scope, receive, send)
            return
        if scope[CALLER] is None:
            receive = Measured(receive, MOST_BYTES_OF_NOBODY)
        limited = SEARCHED.set(_searched(Request(scope)))
        try:
            await self._app(scope, receive, send)
        finally:
            SEARCHED.reset(limited)

    async def _admit(self, scope: Scope) -> None:
        desk = self._desk()
        if desk is None:
            raise Problem(
                503, "starting", "the store has not been reached yet", remedy="try again later"
            )
        request = Request(scope)
        caller = await self._caller(request, desk)
        scope[DESK], scope[CALLER] = desk, caller
        is_open = (request.method, request.url.path) in _OPEN
        if caller is None and not is_open:
            problem = Problem(
                401, "not-logged-in", "nobody is logged in", remedy="log in, or send a token"
            )
            problem.headers = {"WWW-Authenticate": "Bearer"}
            raise problem
        if caller is None and announced(scope) > MOST_BYTES_OF_NOBODY:
            raise too_large(MOST_BYTES_OF_NOBODY)
        if request.method not in _SAFE:
            _require_own_page(request, caller)

    async def _caller(self, request: Request, desk: Desk) -> Caller | None:
        address = request.client.host if request.client else ""
        access = desk.store.access
        kind, _, secret = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            token = await access.token(digest(secret.strip()))
            return None if token is None else Caller(token.name, token.role, address, "token")
        if cookie := request.cookies.get(COOKIE):
            session = await access.session(digest(cookie))
            if session is not None:
                return Caller(session.user, session.role, address, "session", session.csrf)
        if self._loopback and not await access.anybody():
            if not _is_from_here(request):
                raise Problem(
                    403,
                    "wrong-host",
                    "without a login the API answers to this machine only, not through a proxy",
                    remedy="make a user with 'redrive user set', and log in",
                )
            if not _is_own_name(request):
                raise Problem(
                    403,
                    "wrong-host",
                    "without a login the API answers to this machine's own name only",
                    remedy="call it as localhost or 127.0.0.1, or set up a user",
                )
            return Caller("local", Role.ADMIN, address, "nothing")
        return None


def _searched(request: Request) -> Searched:
    """Where who has sent a request may search."""
    return Searched() if request.scope[CALLER] is None else redaction_for(request).searched()


def _is_guarded(path: str) -> bool:
    return path.startswith(API) or path == METRICS


def _is_from_here(request: Request) -> bool:
    """Whether a request comes from this machine, as far as can be told."""
    if any(name in _BY_PROXY or name.startswith("x-forwarded-") for name in request.headers):
        return False
    try:
        return request.client is not None and ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _is_own_name(request: Request) -> bool:
    try:
        return urlsplit(f"//{request.headers.get('Host', '')}").hostname in _LOOPBACK
    except ValueError:
        return False


def _is_own_origin(request: Request) -> bool:
    origin = request.headers.get("Origin")
    try:
        return origin is None or urlsplit(origin).netloc == request.headers.get("Host")
    except ValueError:
        return False


def _require_own_page(request: Request, caller: Caller | None) -> None:
    if caller is not None and caller.by == "token":
        return
    if not _is_own_origin(request) or request.headers.get("Sec-Fetch-Site", "none") not in (
        "same-origin",
        "none",
    ):
        raise Problem(403, "wrong-origin", "this request comes from another page than the console")
    if caller is not None and caller.by == "session":
        sent = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(sent.encode(), (caller.csrf or "").encode()):
            raise Problem(
                403,
                "csrf",
                f"the header {CSRF_HEADER} is missing, or is not this session's",
                remedy=f"send the csrfToken of GET {API}/session",
            )
