"""Filters in words, as a replay remembers what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from redrive.domain.filters import Filters


def described(filters: Filters, ids: Sequence[str] = (), limit: int | None = None) -> str:
    """What was asked for, in words. `ids`: letters that were named, as they were."""
    words = [f"letter {each}" for each in ids or filters.ids]
    words += [state.word for state in filters.status]
    words += ["possible duplicate"] if filters.possible_duplicate else []
    words += [
        f"{name} {value}"
        for name, value in (
            ("error type", filters.error_type),
            ("reason", filters.error_reason),
            ("queue", filters.queue),
            ("exchange", filters.exchange),
            ("routing key", filters.routing_key),
            ("group", filters.group),
            ("source", filters.source),
            ("tag", filters.tag),
            ("from", filters.created_from and _clock(filters.created_from)),
            ("until", filters.created_until and _clock(filters.created_until)),
            ("text", filters.search),
            ("at most", limit and f"{limit:,}"),
        )
        if value
    ]
    return ", ".join(words) or "every letter"


def _clock(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
