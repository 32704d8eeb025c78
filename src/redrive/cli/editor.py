"""A text in the editor of the person at the terminal.

Guarantees: the text is in a file that only this user can read, gone afterwards. An editor that does
not end well has changed nothing. The line end that most editors add to a last line without one is
taken off again.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from redrive.errors import RedriveError


def edited(text: str, suffix: str) -> str:
    """What the person made of a text."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    descriptor, name = tempfile.mkstemp(prefix="redrive-", suffix=suffix)
    file = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as out:
            out.write(text)
        try:
            done = subprocess.run([*shlex.split(command), name], check=False)  # noqa: S603
        except (OSError, ValueError) as error:
            raise RedriveError(
                f"the editor {command!r} cannot be started: {error}", remedy="set EDITOR"
            ) from None
        if done.returncode:
            raise RedriveError(
                f"the editor {command!r} ended with {done.returncode}; nothing was changed"
            )
        try:
            with file.open(encoding="utf-8", newline="") as changed:
                found = changed.read()
        except UnicodeDecodeError:
            raise RedriveError(
                "the editor has written something else than UTF-8; nothing was changed"
            ) from None
    finally:
        file.unlink(missing_ok=True)
    return found if text.endswith("\n") else found.removesuffix("\n")
