"""What the command line asked for."""

from __future__ import annotations

from dataclasses import dataclass

QUEUE_TYPES = ("classic", "quorum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The same for every bench."""

    quick: bool = False
    queue_types: tuple[str, ...] = QUEUE_TYPES
