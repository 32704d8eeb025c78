"""Whether anything happened at all: accounts of a storm in which nothing worked would be right.

Pure. Of each kind of message most must have ended as they are meant to, and in each queue some; and
of what operators do again and again something must have been done. Others may fail: that is what
faults do, and a sweep takes what it finds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from tests.faults.storm.accounts import Found
from tests.faults.storm.journal import Done
from tests.faults.storm.plan import Deed

FEW: Final = 4
"""How many there have to be, or how often something was tried, before it says anything."""
DONE: Final = frozenset({"exit 0", "done"})
FOLLOWS_TO_THE_END: Final = Deed.REPLAY
"""It fails if a single letter fails again, as some always do; what it sent is among the ends."""


class Ends:
    """The identities of all messages that ended somewhere."""

    def __init__(self, found: Found) -> None:
        self.at_first: set[str] = {each.identity for each in found.consumed if each.letter is None}
        self.by_replay = {each.identity for each in found.consumed if each.letter is not None}
        self.letters = {each.identity for each in found.letters}


MEANT: Final[Mapping[str, Callable[[Ends], set[str]]]] = {
    "passes": lambda ends: ends.at_first,
    "twice": lambda ends: ends.at_first,
    "revived": lambda ends: ends.by_replay,
    "mended": lambda ends: ends.by_replay,
    "hopeless": lambda ends: ends.letters,
    "unwieldy": lambda ends: ends.letters,
    "ghost": lambda ends: ends.letters,
}
"""Where most messages of a kind end."""


def idle(found: Found, done: Iterable[Done]) -> list[str]:
    """What should have happened, and has not."""
    return [*_messages(found), *_deeds(done)]


def _messages(found: Found) -> Iterator[str]:
    sent: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in found.published:
        if each.confirmed:
            sent[each.message.kind, each.message.queue].append(each.message.identity)
    confirmed = sum(map(len, sent.values()))
    if confirmed <= len(found.published) / 2:
        yield f"only {confirmed} of {len(found.published)} publishes were confirmed"
    ends = Ends(found)
    all_of, right_of = Counter[str](), Counter[str]()
    for (kind, queue), identities in sent.items():
        right = len(MEANT[kind](ends).intersection(identities))
        all_of[kind] += len(identities)
        right_of[kind] += right
        if not right and len(identities) >= FEW:
            yield f"none of {len(identities)} of '{kind}' in {queue} ended as they should"
    for kind, number in all_of.items():
        if right_of[kind] <= number / 2 and number >= FEW:
            yield f"only {right_of[kind]} of {number} of '{kind}' ended as they should"


def _deeds(done: Iterable[Done]) -> Iterator[str]:
    outcomes: dict[Deed, Counter[str]] = defaultdict(Counter)
    for each in done:
        outcomes[each.act.deed][each.outcome] += 1
    for deed, counted in outcomes.items():
        if deed is FOLLOWS_TO_THE_END or counted.total() < FEW:
            continue
        if not DONE & counted.keys():
            yield f"'{deed}' was never done: {', '.join(sorted(counted))}"
