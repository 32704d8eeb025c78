"""Users with passwords: listed, made, changed, deleted. For admins only.

These requests take no `Idempotency-Key`: what is kept of a request would tell of its password, and
to set or delete a user twice is to do it once.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from redrive.domain.access import (
    LEAST_PASSWORD,
    LONGEST_USER,
    MOST_PASSWORD,
    Role,
    why_not_user,
)
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import audited
from redrive.server.callers import caller_of, desk_of, route
from redrive.server.inputs import NO_NUL, Input
from redrive.server.problems import Problem, invalid, not_found
from redrive.server.session import PASSWORDS
from redrive.work.passwords import Passwords
from redrive.work.show_access import user_document

router = APIRouter(tags=["access"])


class NewUser(Input):
    """A user that is to be there. Without a password it stays as it was."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_USER, pattern=NO_NUL)]
    role: Role
    password: Annotated[str, Field(min_length=LEAST_PASSWORD, max_length=MOST_PASSWORD)] | None = (
        None
    )


@router.get("/users", **route(Role.ADMIN, documents.Users))
async def list_users(request: Request) -> Response:
    """Every user, by name."""
    users = await desk_of(request).store.access.users()
    return answer({"items": [user_document(user) for user in users]})


@router.put("/users", **route(Role.ADMIN, documents.User))
async def set_user(request: Request, wanted: NewUser) -> Response:
    """Add a user or change one, who has to log in again. The last admin stays one."""
    access = desk_of(request).store.access
    password = "x" * LEAST_PASSWORD if wanted.password is None else wanted.password
    reason = why_not_user(wanted.name, password)
    if reason is not None:
        raise invalid("body.name", reason)
    if wanted.password is None and await access.user(wanted.name) is None:
        raise invalid("body.password", "expected one for a new user")
    passwords: Passwords = getattr(request.app.state, PASSWORDS)
    hashed = None if wanted.password is None else await passwords.hash(wanted.password)
    told = {"name": wanted.name, "role": wanted.role.value, "password": hashed is not None}
    async with audited(request, "users.set", told):
        try:
            await access.set_user(wanted.name, wanted.role, hashed)
        except LookupError:
            raise not_found(f"user {wanted.name!r}") from None
    user = await access.user(wanted.name)
    if user is None:
        raise not_found(f"user {wanted.name!r}")
    return answer(user_document(user))


@router.delete("/users", **route(Role.ADMIN, None, 204))
async def delete_user(
    request: Request, name: Annotated[str, Field(min_length=1, max_length=LONGEST_USER)]
) -> Response:
    """Delete a user, who is logged out at once. The last admin among the users stays."""
    access = desk_of(request).store.access
    async with audited(request, "users.delete", {"name": name}):
        if await access.user(name) is None:
            raise not_found(f"user {name!r}")
        if caller_of(request).actor == f"user:{name}":
            raise Problem(
                409, "refused", "nobody deletes themselves", remedy="have another admin do it"
            )
        await access.delete_user(name)
    return Response(status_code=204)
