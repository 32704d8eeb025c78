"""Where a page of a list ended, as people hand it back."""

from __future__ import annotations

from uuid import UUID

from redrive.errors import CursorRefused


def read_cursor(text: str) -> str:
    """The id that a page ended with; `CursorRefused` if it cannot be one."""
    try:
        return str(UUID(text))
    except ValueError:
        raise CursorRefused(f"{text!r} is not where a page ends") from None
