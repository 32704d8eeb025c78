"""The letter that a request names."""

from __future__ import annotations

from fastapi import Request

from redrive.domain.letter import Kept
from redrive.server.callers import desk_of
from redrive.server.problems import not_found


async def kept_of(request: Request, letter_id: str) -> Kept:
    """A letter whole; 404 if there is none."""
    kept = await desk_of(request).store.letters.kept(letter_id)
    if kept is None:
        raise not_found(f"letter {letter_id}")
    return kept
