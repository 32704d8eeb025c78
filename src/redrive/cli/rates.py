"""How many a second, as people write it."""

from __future__ import annotations

import re

import typer


def read_rate(text: str | None) -> float | None:
    """`50/s` or `50`; wrong use if it is neither."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/s)?", text.strip(), re.ASCII)
    rate = float(found[1]) if found else 0.0
    if not 0.01 <= rate <= 1_000_000:
        raise typer.BadParameter(f"--rate: expected messages a second such as 50/s, got {text!r}")
    return rate
