"""Which fault made a duplicate: one that struck whoever had the message in hand at that time.

Pure. A kill of a process explains only what that process held, and had not settled; a cut or
half-open network what any process held so, or had settled right before it lost its connection.
Each such hand that lost it explains one copy more. A killed node explains what was in any hand at
that moment, settled just before or not, and what the broker itself was carrying from queue to
queue; it may double that more than once. What lies ready in a queue meanwhile is not doubled by
anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.faults.storm.journal import Struck
from tests.faults.storm.plan import BROKER, Trouble
from tests.faults.storm.wiretap import THE_BROKER, Held

NODES_KILLED: Final = frozenset({Trouble.BROKER_KILLED, Trouble.LEADER_LOST, Trouble.MAJORITY_LOST})
NETWORK: Final = frozenset({Trouble.CUT, Trouble.HALF_OPEN})
UNSYNCED: Final = 2.0
"""Seconds after an ack in which it may be lost with the node that had it."""
AFTERMATH: Final = 5.0
"""Seconds in which what a fault did to connections and queues is still found out: after a node was
killed, and after a network heals or a majority is there again."""


@dataclass(frozen=True, slots=True)
class Blame:
    """A fault, and who held the message when it struck."""

    struck: Struck
    holder: str


def blame(
    struck: Iterable[Struck], held: Iterable[Held], *, before: float, nth: int = 0
) -> Blame | None:
    """What made the nth copy too many (from 0), which was there at that time; `held` is what was
    held of that message."""
    hands = [each for each in held if each.since <= before]
    faults = [each for each in struck if each.began <= before]
    found = []
    for hand in hands:
        theirs = [each for each in faults if _could_lose(each, hand) and _meet(each, hand)]
        if theirs:
            found.append(Blame(max(theirs, key=lambda each: each.began), hand.holder))
    of_nodes = [each for each in found if each.struck.fault.trouble in NODES_KILLED]
    return next(iter(of_nodes or found[nth:]), None)


def _could_lose(struck: Struck, held: Held) -> bool:
    trouble, target = struck.fault.trouble, struck.fault.target
    if trouble is Trouble.PROCESS_KILLED:
        return held.holder == target and not held.safe
    if trouble in NETWORK:
        return target == BROKER and held.holder != THE_BROKER and not held.safe
    return trouble in NODES_KILLED


def _meet(struck: Struck, held: Held) -> bool:
    begins, ends, until = struck.began, struck.ended, held.until
    if struck.fault.trouble in NETWORK:  # it may have taken an ack that was on its way
        until = max(until, held.in_doubt_until)
    match struck.fault.trouble:
        case Trouble.BROKER_KILLED | Trouble.LEADER_LOST:  # the kill counts, not the way back
            begins, ends = begins - UNSYNCED, begins + AFTERMATH
        case Trouble.MAJORITY_LOST:
            begins, ends = begins - UNSYNCED, ends + AFTERMATH
        case Trouble.HALF_OPEN:
            ends += AFTERMATH
        case _:
            pass
    return begins <= until and held.since <= ends
