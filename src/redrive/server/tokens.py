"""Tokens for programs: listed, made, revoked. For admins only."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from redrive.domain.access import LONGEST_USER, Role
from redrive.domain.ids import letter_id
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import audited
from redrive.server.callers import caller_of, desk_of, route
from redrive.server.idempotency import IdempotentRoute, answer_again_with
from redrive.server.inputs import VISIBLE, Id, Input
from redrive.server.problems import Problem, not_found
from redrive.work.passwords import PREFIX, digest, new_secret
from redrive.work.show_access import token_document

router = APIRouter(tags=["access"], route_class=IdempotentRoute)

TokenName = Annotated[str, Field(min_length=1, max_length=LONGEST_USER, pattern=VISIBLE)]


class NewToken(Input):
    """A token that is to be made."""

    name: TokenName
    role: Role
    days: Annotated[int, Field(ge=1, le=3650)] | None = Field(
        None, description="How long it may be used; for ever without."
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
    told_once = Problem(
        409,
        "told-once",
        f"token {token.id} was made with this key, and its secret told then",
        remedy="if nobody has it, revoke that token and make another, with a new key",
    )
    answer_again_with(request, told_once)
    return answer({**token_document(token), "token": secret}, 201)


@router.delete("/tokens/{token_id}", **route(Role.ADMIN, documents.Token))
async def revoke_token(request: Request, token_id: Id) -> Response:
    """Revoke a token: the next request with it is refused."""
    async with audited(request, "tokens.revoke", {"id": token_id}):
        token = await desk_of(request).store.access.revoke(token_id)
        if token is None:
            raise not_found(f"token {token_id}")
    return answer(token_document(token))
