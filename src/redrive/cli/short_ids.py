"""Short ids: as much of each id as no other letter begins with, for people to copy.

Guarantees: a short id was the beginning of one letter only when it was shown; every command takes
it for the whole id. Outside a terminal ids are whole, for programs to read.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from redrive.cli.filters import Ids

# Where a UUID has its dashes: in between, a length gains nothing that people would notice.
_LENGTHS: Final = (8, 13, 18, 23, 36)


async def short_ids(letters: Ids, ids: Sequence[str]) -> dict[str, str]:
    """What to show of each id."""
    if not sys.stdout.isatty():
        return {each: each for each in ids}
    return await shortened(letters, ids)


async def shortened(letters: Ids, ids: Sequence[str]) -> dict[str, str]:
    """The shortest beginnings that no other letter has."""
    shown: dict[str, str] = {}
    for length in _LENGTHS:
        left = [each for each in ids if each not in shown]
        # What this list has twice need not be looked up.
        beginnings = Counter(each[:length] for each in left)
        for each in left:
            short = each[:length]
            if length == _LENGTHS[-1] or (
                beginnings[short] == 1 and len(await letters.ids_beginning(short, 2)) < 2
            ):
                shown[each] = short
    return shown
