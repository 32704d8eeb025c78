"""Passwords, tokens and sessions: made, hashed and compared.

Passwords are hashed by argon2id, in a thread: it takes some fifty milliseconds and 64 MiB on
purpose. Tokens and sessions are 256 random bits, so a plain digest is enough to look them up by.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import ARGON2_VERSION

PREFIX: Final = "rdv_"
"""What a token begins with, so that scanners for leaked secrets know it."""
_HASHER: Final = PasswordHasher()


def _of_nobody() -> str:
    """A hash that no password has. Made up: a real one would take as long as a login, each time
    that this module is imported."""
    salt, hashed = (
        base64.b64encode(secrets.token_bytes(length)).decode().rstrip("=")
        for length in (_HASHER.salt_len, _HASHER.hash_len)
    )
    costs = f"m={_HASHER.memory_cost},t={_HASHER.time_cost},p={_HASHER.parallelism}"
    return f"$argon2id$v={ARGON2_VERSION}${costs}${salt}${hashed}"


_NOBODY: Final = _of_nobody()
_TURNS: Final = 2
"""Hashes at a time: each takes 64 MiB."""


class Passwords:
    """Hashes passwords, a few at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(_TURNS)

    async def hash(self, password: str) -> str:
        async with self._turn:
            return await asyncio.to_thread(_HASHER.hash, password)

    async def fits(self, password: str, hashed: str | None) -> bool:
        """Whether a password is the one that was hashed. None: there is no such user, which takes
        as long to say."""
        async with self._turn:
            right = await asyncio.to_thread(_verify, password, hashed or _NOBODY)
        return right and hashed is not None


def _verify(password: str, hashed: str) -> bool:
    try:
        return _HASHER.verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False


def new_secret() -> str:
    """A token or a session that nobody can guess."""
    return secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    """What a secret is looked up by."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
