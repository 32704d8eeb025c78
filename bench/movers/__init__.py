"""The clients that are compared: each moves the messages of one queue to another.

All but the shovel run in a process of their own (`python -m bench.movers`), all on the same event
loop (uvloop), with the same prefetch, publishing mandatory and acking after the confirm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PREFETCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Order:
    """What to move where."""

    url: str
    source: str
    target: str
    key: str = ""
    """If given, the target is an exchange, and this the routing key; else it is a queue."""


class NotTaken(Exception):
    """The broker returned or refused a copy: what follows would measure nothing."""
