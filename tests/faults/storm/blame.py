"""Which fault made a duplicate: one that struck whoever had the message in hand at that time.

Pure. A kill of a process explains only what that process held, and had not settled; a cut or
half-open network what any process held so. A killed node also explains what was settled just
before, and what the broker itself was carrying from queue to queue. What lies ready in a queue
meanwhile is not doubled by anything.
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
"""Seconds after a fault in which what it did to connections and queues is still found out."""


@dataclass(frozen=True, slots=True)
class Blame:
    """A fault, and who held the message when it struck."""

    struck: Struck
    holder: str


def blame(struck: Iterable[Struck], held: Iterable[Held], before: float) -> Blame | None:
    """The last fault that can have made a second copy, which was there at that time; `held` is
    what was held of that message."""
    hands = list(held)
    found = [
        Blame(fault, hand.holder)
        for fault in struck
        if fault.began <= before
        for hand in hands
        if _could_lose(fault, hand) and _meet(fault, hand)
    ]
    return max(found, key=lambda each: each.struck.began, default=None)


def _could_lose(struck: Struck, held: Held) -> bool:
    trouble, target = struck.fault.trouble, struck.fault.target
    if trouble is Trouble.PROCESS_KILLED:
        return held.holder == target and not held.safe
    if trouble in NETWORK:
        return target == BROKER and held.holder != THE_BROKER and not held.safe
    return trouble in NODES_KILLED


def _meet(struck: Struck, held: Held) -> bool:
    early = UNSYNCED if struck.fault.trouble in NODES_KILLED else 0.0
    late = AFTERMATH if struck.fault.trouble in {*NODES_KILLED, Trouble.HALF_OPEN} else 0.0
    return struck.began <= held.until + early and held.since <= struck.ended + late
