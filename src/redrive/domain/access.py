"""Who may do what: roles, the people and programs that have them, and what the audit log says.

A role may do all that the one before it may: a viewer sees, an operator changes letters, an admin
changes policies, people and tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

LONGEST_USER: Final = 100
LEAST_PASSWORD: Final = 8
MOST_PASSWORD: Final = 1000


class Role(StrEnum):
    """What somebody may do, from the least to the most."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        """Whether who has this role may do what that one is needed for."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person with a password."""

    name: str
    role: Role
    password: str
    """Hashed."""
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a program shows instead of a password. Its secret is nowhere, only a digest of it."""

    id: str
    name: str
    role: Role
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        expired = self.expires_at is not None and self.expires_at <= now
        return self.revoked_at is None and not expired


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A person who has logged in."""

    user: str
    role: Role
    csrf: str
    """What a page must send with every change."""
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Something that somebody did, or tried to do."""

    id: int
    at: datetime
    actor: str
    role: Role | None
    """None: nobody knew who it was, as of a login that was refused."""
    address: str
    """Where the request came from; of a command, the name of its machine."""
    action: str
    """What was done: `letters.discard`."""
    detail: str
    """With what: a JSON object, such as the filter and the count."""
    outcome: int | None
    """The HTTP status it was answered with, or would have been if a command had been a request;
    None: it was not, so it may or may not be done."""


LOGIN: Final = "session.begin"
"""The action of the audit log that has a role only once it is done."""


def role_then(action: str, outcome: int | None, role: Role) -> Role | None:
    """The role that somebody had in an entry: who is not let in has none."""
    let_in = outcome is not None and outcome < 400
    return role if action != LOGIN or let_in else None


def why_not_user(name: str, password: str) -> str | None:
    """Why there cannot be such a user; None if there can."""
    if not 1 <= len(name) <= LONGEST_USER:
        return f"expected a name of 1 to {LONGEST_USER} characters, got {len(name)}"
    if not name.isprintable() or name != name.strip():
        return "expected a name of printable characters, without space around it"
    if not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
        return f"expected a password of {LEAST_PASSWORD} to {MOST_PASSWORD} characters"
    return None
