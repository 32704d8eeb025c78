"""Users and tokens, as programs see them: without a secret."""

from __future__ import annotations

from typing import Any

from redrive.domain.access import Token, User
from redrive.work.times import rfc3339, rfc3339_or_none


def token_document(token: Token) -> dict[str, Any]:
    """A token, without its secret."""
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        "createdAt": rfc3339(token.created_at),
        "createdBy": token.created_by,
        "expiresAt": rfc3339_or_none(token.expires_at),
        "revokedAt": rfc3339_or_none(token.revoked_at),
    }


def user_document(user: User) -> dict[str, Any]:
    """A user, without the password."""
    return {"name": user.name, "role": user.role.value, "createdAt": rfc3339(user.created_at)}
