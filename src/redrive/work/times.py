"""Moments as text for programs: RFC 3339, UTC, milliseconds, `Z`."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at: datetime) -> str:
    """`2026-02-11T12:00:07.000Z`."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def rfc3339_or_none(at: datetime | None) -> str | None:
    """The same, of a moment that may not be known."""
    return None if at is None else rfc3339(at)
