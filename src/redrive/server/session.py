"""Log in, log out, and who am I."""

from __future__ import annotations

import math
from typing import Annotated, Final

from fastapi import APIRouter, Request, Response
from pydantic import Field

from redrive.domain.access import LOGIN, LONGEST_USER, MOST_PASSWORD, Role
from redrive.server import documents
from redrive.server.answers import answer, nothing
from redrive.server.auditing import audited
from redrive.server.authentication import COOKIE
from redrive.server.callers import CALLER, PROBLEMS, Caller, desk_of, route
from redrive.server.inputs import NO_NUL, Input
from redrive.server.login_limits import LoginLimits
from redrive.server.problems import Problem
from redrive.work.passwords import Passwords, digest, new_secret

router = APIRouter(tags=["session"])

LIMITS: Final = "redrive_login_limits"
PASSWORDS: Final = "redrive_passwords"


class Login(Input):
    """A name and a password."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_USER, pattern=NO_NUL)]
    password: Annotated[str, Field(min_length=1, max_length=MOST_PASSWORD)]


@router.get("/session", response_model=documents.Me, responses=PROBLEMS)
async def get_session(request: Request) -> Response:
    """Who calls. Works without a login, and says whether one is needed."""
    caller = request.scope.get(CALLER)
    if not isinstance(caller, Caller):
        return answer({"name": None, "role": None, "login": "needed", "csrfToken": None})
    login = "none" if caller.by == "nothing" else caller.by
    return answer(
        {
            "name": caller.name,
            "role": caller.role.value,
            "login": login,
            "csrfToken": caller.csrf,
        }
    )


@router.post("/session", response_model=documents.Me, responses=PROBLEMS)
async def log_in(request: Request, login: Login) -> Response:
    """Log in: sets a cookie, and answers with what changes must carry as `X-CSRF-Token`."""
    desk, address = desk_of(request), request.client.host if request.client else ""
    limits: LoginLimits = getattr(request.app.state, LIMITS)
    passwords: Passwords = getattr(request.app.state, PASSWORDS)
    user = await desk.store.access.user(login.name)
    # Nothing may be awaited between the look at the limit and the count.
    wait = limits.begin(login.name, address)
    if wait:
        problem = Problem(429, "too-many-tries", "too many wrong passwords", remedy="wait")
        problem.headers = {"Retry-After": str(math.ceil(wait))}
        raise problem
    right = await passwords.fits(login.password, None if user is None else user.password)
    if user is None or not right:
        # What is no name may be the password, typed into the wrong field.
        await _note(request, "?" if user is None else user.name, None, address, 401)
        raise Problem(401, "wrong-password", "the name or the password is wrong")
    limits.succeeded(login.name, address)
    secret, csrf = new_secret(), new_secret()
    lasts = desk.settings.server.session
    await desk.store.access.begin(digest(secret), user.name, csrf, lasts)
    await _note(request, user.name, user.role, address, 200)
    answered = answer(
        {"name": user.name, "role": user.role.value, "login": "session", "csrfToken": csrf}
    )
    answered.set_cookie(
        COOKIE,
        secret,
        max_age=int(lasts.total_seconds()),
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answered


@router.delete("/session", **route(Role.VIEWER, None, 204))
async def log_out(request: Request) -> Response:
    """Log out. Nothing happens if nobody was logged in by a cookie."""
    if cookie := request.cookies.get(COOKIE):
        async with audited(request, "session.end", {}):
            await desk_of(request).store.access.end(digest(cookie))
    answered = nothing()
    answered.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answered


async def _note(request: Request, name: str, role: Role | None, address: str, outcome: int) -> None:
    log = desk_of(request).store.audit_log
    number = await log.begin(f"user:{name}", role, address, LOGIN, "{}")
    await log.end(number, outcome, "{}")
