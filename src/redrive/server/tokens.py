"""Tokens for programs, and users with passwords: listed, made, revoked. For admins only."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
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
from redrive.domain.ids import letter_id
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import audited
from redrive.server.callers import caller_of, desk_of, route
from redrive.server.inputs import NO_NUL, VISIBLE, Id, Input
from redrive.server.problems import Problem, invalid, not_found
from redrive.server.session import PASSWORDS
from redrive.work.passwords import PREFIX, Passwords, digest, new_secret
from redrive.work.show_access import token_document, user_document

router = APIRouter(tags=["access"])

TokenName = Annotated[str, Field(min_length=1, max_length=LONGEST_USER, pattern=VISIBLE)]


class NewToken(Input):
    """A token that is to be made."""

    name: TokenName
    role: Role
    days: Annotated[int, Field(ge=1, le=3650)] | None = Field(
        None, description="How long it may be used; for ever without."
    )


class NewUser(Input):
    """A user that is to be there. Without a password it stays as it was."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_USER, pattern=NO_NUL)]
    role: Role
    password: Annotated[str, Field(min_length=LEAST_PASSWORD, max_length=MOST_PASSWORD)] | None = (
        None
    )


@router.get("/tokens", **route(Role.ADMIN, documents.Tokens))
async def list_tokens(request: Request) -> Response:
    """Every token, newest first, revoked ones too. Their secrets are kept nowhere."""
    tokens = await desk_of(request).store.access.tokens()
    return answer({"items": [token_document(token) for token in tokens]})


@router.post("/tokens", **route(Role.ADMIN, documents.NewToken, 201))
async def create_token(request: Request, wanted: NewToken) -> Response:
    """Make a token. Its secret is in this answer, and never again."""
    secret = PREFIX + new_secret()
    told = {"name": wanted.name, "role": wanted.role.value, "days": wanted.days}
    async with audited(request, "tokens.create", told) as entry:
        token = await desk_of(request).store.access.add_token(
            letter_id(datetime.now(UTC), secrets.randbits(74)),
            digest(secret),
            name=wanted.name,
            role=wanted.role,
            by=caller_of(request).actor,
            lasts=None if wanted.days is None else timedelta(days=wanted.days),
        )
        entry["id"] = token.id
    return answer({**token_document(token), "token": secret}, 201)


@router.delete("/tokens/{token_id}", **route(Role.ADMIN, documents.Token))
async def revoke_token(request: Request, token_id: Id) -> Response:
    """Revoke a token: the next request with it is refused."""
    async with audited(request, "tokens.revoke", {"id": token_id}):
        token = await desk_of(request).store.access.revoke(token_id)
        if token is None:
            raise not_found(f"token {token_id}")
    return answer(token_document(token))


@router.get("/users", **route(Role.ADMIN, documents.Users))
async def list_users(request: Request) -> Response:
    """Every user, by name."""
    users = await desk_of(request).store.access.users()
    return answer({"items": [user_document(user) for user in users]})


@router.put("/users", **route(Role.ADMIN, documents.User))
async def set_user(request: Request, wanted: NewUser) -> Response:
    """Add a user or change one, who has to log in again."""
    access = desk_of(request).store.access
    reason = why_not_user(wanted.name, wanted.password or "x" * LEAST_PASSWORD)
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
    """Delete a user, who is logged out at once. The last one who can log in stays."""
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
