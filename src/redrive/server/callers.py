"""Who calls, and what they may do.

Guarantees: a route says which role it needs (`route`), and no route of the API is without one; a
test reads the same mark from the OpenAPI document. Who has no role is stopped before the body of a
request is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from fastapi import Depends, Request
from pydantic import BaseModel

from redrive.domain.access import Role
from redrive.server.problems import Problem
from redrive.work.desk import Desk
from redrive.work.passwords import digest
from redrive.work.redact import NO_REDACTION, Redaction

CALLER: Final = "redrive.caller"
DESK: Final = "redrive.desk"
ROLE_MARK: Final = "x-role"
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "What is wrong, and what to do.",
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        },
    }
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who may call."""

    name: str
    role: Role
    address: str
    by: Literal["token", "session", "nothing"]
    """How it is known who it is; `nothing`: on this machine, where nobody has to log in."""
    csrf: str | None = None

    @property
    def actor(self) -> str:
        """As the history of letters and the audit log have it."""
        return {"token": f"token:{self.name}", "session": f"user:{self.name}"}.get(
            self.by, self.name
        )


def is_known(request: Request) -> bool:
    """Whether it is known who has sent a request."""
    return isinstance(request.scope.get(CALLER), Caller)


def caller_of(request: Request) -> Caller:
    """Who has sent a request."""
    caller = request.scope.get(CALLER)
    if not isinstance(caller, Caller):
        raise Problem(401, "not-logged-in", "nobody is logged in", remedy="log in, or send a token")
    return caller


def sender_of(request: Request) -> str:
    """Who has sent a request, told from everybody else: two tokens may have one name."""
    caller = caller_of(request)
    if caller.by != "token":
        return caller.actor
    _, _, secret = request.headers.get("Authorization", "").partition(" ")
    return f"token:{digest(secret.strip()).hex()}"


def desk_of(request: Request) -> Desk:
    """What requests work with."""
    desk = request.scope[DESK]
    assert isinstance(desk, Desk)
    return desk


def redaction_for(request: Request) -> Redaction:
    """What is hidden from who has sent a request."""
    settings = desk_of(request).settings
    sees_all = caller_of(request).role is Role.ADMIN and settings.server.originals_for_admin
    return NO_REDACTION if sees_all else Redaction.by(settings.redaction)


def require_role(request: Request, needed: Role) -> None:
    """Send away who has a lower role than is needed."""
    caller = caller_of(request)
    if not caller.role.covers(needed):
        raise Problem(
            403,
            "not-allowed",
            f"this needs the role {needed.value}, and {caller.name} is {caller.role.value}",
            remedy="ask an admin",
        )


def route(
    needed: Role, answers_with: type[BaseModel] | None, status: int = 200, **more: Any
) -> dict[str, Any]:
    """What every route of the API has: the role it needs, its answer, and how it fails."""

    def check(request: Request) -> None:
        require_role(request, needed)

    return {
        "dependencies": [Depends(check)],
        "openapi_extra": {ROLE_MARK: needed.value},
        "response_model": answers_with,
        "status_code": status,
        "responses": PROBLEMS | more.pop("responses", {}),
        **more,
    }
