"""Who does it: the name that a letter's history has for the person at the command line."""

from __future__ import annotations

import os
import pwd


def actor() -> str:
    """`cli:ann`; the number of a user who has no name, as in many containers."""
    user = os.getuid()
    try:
        return f"cli:{pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"cli:{user}"
