"""Questions before what cannot be taken back, or touches much.

Guarantees: nothing happens without an answer: where nobody is there to ask, `--yes` must be given,
which is wrong use and says so.
"""

from __future__ import annotations

import sys

import typer

from redrive.cli.rendering import note

_FAILED = 1


def ask(question: str) -> None:
    """Go on if the person says yes; else the command ends."""
    require_somebody()
    if not typer.confirm(question, err=True):
        note("nothing was changed")
        raise typer.Exit(_FAILED)


def require_somebody() -> None:
    """Wrong use if there is no terminal to ask at."""
    if not is_somebody_there():
        raise typer.BadParameter("nobody is there to ask: give --yes")


def is_somebody_there() -> bool:
    """Whether a person can answer."""
    return sys.stdin.isatty()
