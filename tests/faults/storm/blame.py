"""Which fault made a duplicate: one that struck whoever had the message in hand at that time.

Pure. A kill of a process explains only what that process held; a cut or half-open network what any
process held that reaches the broker by it; a killed node that too, and what the broker itself was
carrying from queue to queue. What lies ready in a queue meanwhile is not doubled by anything.
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
UNSAFE: Final = 2.0
"""Seconds after an ack has passed in which it may still be lost with the broker or on its way."""
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
        if _could_lose(fault, hand.holder) and _meet(fault, hand)
    ]
    return max(found, key=lambda each: each.struck.began, default=None)


def _could_lose(struck: Struck, holder: str) -> bool:
    trouble, target = struck.fault.trouble, struck.fault.target
    if trouble is Trouble.PROCESS_KILLED:
        return holder == target
    if trouble in NETWORK:
        return target == BROKER and holder != THE_BROKER
    return trouble in NODES_KILLED


def _meet(struck: Struck, held: Held) -> bool:
    # A process that is gone, or a network that is cut, is noted when it is there again.
    late = AFTERMATH if struck.fault.trouble in {*NODES_KILLED, Trouble.HALF_OPEN} else 0.0
    return struck.began <= held.until + UNSAFE and held.since <= struck.ended + late
