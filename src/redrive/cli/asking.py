"""Questions before what cannot be taken back, or touches much.

Guarantees: nothing happens without an answer, and Ctrl-C ends the question at once. Where nobody is
there to ask, `--yes` must be given, which is wrong use and says so.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from redrive.cli.rendering import note

_FAILED = 1


def ask(question: str) -> None:
    """Go on if the person says yes; else the command ends."""
    require_somebody()
    with _interruptible():
        said_yes = typer.confirm(question, err=True)
    if not said_yes:
        note("nothing was changed")
        raise typer.Exit(_FAILED)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends what waits for an answer. An event loop, where one runs, would take it and wait
    for the answer all the same."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def require_somebody() -> None:
    """Wrong use if there is no terminal to ask at."""
    if not is_somebody_there():
        raise typer.BadParameter("nobody is there to ask: give --yes")


def is_somebody_there() -> bool:
    """Whether a person can answer."""
    return sys.stdin.isatty()
