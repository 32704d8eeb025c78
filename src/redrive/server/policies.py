"""Policies: how often messages of a routing key are retried; listed, set, deleted."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from redrive.domain.access import Role
from redrive.domain.policy import LONGEST_NAME, MOST_RETRIES
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import audited
from redrive.server.callers import desk_of, route
from redrive.server.idempotency import IdempotentRoute
from redrive.server.inputs import NO_NUL, Input
from redrive.server.problems import not_found
from redrive.work.show import policy_document

router = APIRouter(tags=["policies"], route_class=IdempotentRoute)

PolicyName = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=NO_NUL)]


class NewPolicy(Input):
    """A policy of the database. What is left out stays as it is."""

    name: PolicyName = Field(description="A routing key, or a pattern with `*` and `#`.")
    max_retries: Annotated[int, Field(ge=0, le=MOST_RETRIES)]
    return_to: Literal["queue", "exchange"] | None = None
    retry_expired: bool | None = None


@router.get("/policies", **route(Role.VIEWER, documents.Policies))
async def list_policies(request: Request) -> Response:
    """Every policy, where it stands and whether it counts."""
    book = await desk_of(request).policy_book()
    return answer({"items": [policy_document(entry) for entry in book.entries]})


@router.put("/policies", **route(Role.ADMIN, documents.PolicySet))
async def set_policy(request: Request, policy: NewPolicy) -> Response:
    """Add a policy to the database, or change it; retriers follow within 5 seconds."""
    told = policy.model_dump(by_alias=True, exclude_unset=True)
    async with audited(request, "policies.set", told):
        outcome = await desk_of(request).set_policy(
            policy.name,
            policy.max_retries,
            return_to=policy.return_to,
            retry_expired=policy.retry_expired,
        )
    return answer({"name": policy.name, "outcome": outcome})


@router.delete("/policies", **route(Role.ADMIN, documents.PolicyDeleted))
async def delete_policy(request: Request, name: Annotated[PolicyName, Query()]) -> Response:
    """Remove a policy from the database, all rows of that name."""
    async with audited(request, "policies.delete", {"name": name}):
        rows = await desk_of(request).delete_policy(name)
        if not rows:
            raise not_found(f"policy {name!r} in the database")
    return answer({"name": name, "rows": rows})
