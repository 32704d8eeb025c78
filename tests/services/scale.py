"""How large the large figures are: in full with REDRIVE_SOAK=full, else a hundredth (see Makefile).

The same code runs at both scales; only these numbers differ.
"""

from __future__ import annotations

import os

FULL = os.environ.get("REDRIVE_SOAK") == "full"
_HUNDREDTH = 100


def messages(full: int) -> int:
    """So many messages in full; a hundredth of them, at least one, otherwise."""
    return full if FULL else max(1, full // _HUNDREDTH)


def faults(full: int, *, quick: int) -> int:
    """So many cuts or kills in full; `quick`, since a hundredth would be none, otherwise."""
    return full if FULL else quick


def seconds(full: float, *, quick: float) -> float:
    """A deadline that suits the figures."""
    return full if FULL else quick
