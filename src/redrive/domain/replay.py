"""A replay: letters that a person sends again, one or many, as a job that outlives its process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from redrive.domain.letter import Head, Letter
from redrive.domain.lifecycle import State
from redrive.errors import OrderRefused

BATCH_SIZE: Final = 100
PAUSE: Final = 1.0

REPLAYED_BY_DEFAULT: Final = (State.PENDING, State.MANUAL, State.FAILED)
"""What a replay takes where no state is asked for. Resolved letters are sent again only when they
are asked for; archived ones are restored first."""


IS_OUTSTANDING: Final = "it is outstanding: one copy was sent, and has no verdict yet"
RESOLVED_SINCE: Final = "it was resolved after this replay was ordered"
SENT_BEFORE: Final = "this replay has sent it already, before it was stopped"
GONE: Final = "it was deleted meanwhile"
NO_ORIGIN: Final = "nothing tells in which queue it failed; say where to with --to"
NEEDS_NOBODY: Final = frozenset({IS_OUTSTANDING, RESOLVED_SINCE, SENT_BEFORE, GONE})
"""Why a letter is left out that nobody has to look after: it was sent already, or is done."""


class ReplayState(StrEnum):
    """Where a job is."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where letters go instead of the queue where they failed: a queue, or an exchange."""

    queue: str | None = None
    exchange: str | None = None

    def __str__(self) -> str:
        return f"queue:{self.queue}" if self.queue is not None else f"exchange:{self.exchange}"


def read_destination(text: str) -> Destination:
    """`queue:Q` or `exchange:E`; `OrderRefused` if it is neither."""
    kind, _, name = text.partition(":")
    if name and len(name.encode("utf-8", "surrogatepass")) <= 255:
        if kind == "queue":
            return Destination(queue=name)
        if kind == "exchange":
            return Destination(exchange=name)
    raise OrderRefused(f"expected queue:NAME or exchange:NAME as destination, got {text!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A job."""

    id: str
    created_at: datetime
    updated_at: datetime
    vhost: str
    actor: str
    state: ReplayState
    reason: str
    """Why it is in this state, or what it waits for."""
    filters: str
    """What was asked for, in words."""
    destination: str | None
    batch_size: int
    pause: float
    rate: float | None
    doubtful: bool
    """Whether letters go too that may have been consumed already."""
    ordered_by: str | None
    """`header:NAME` or a JSONPath: letters that have the same value there keep their order."""
    drop_oldest: bool = False
    """Whether full queues may push out their oldest messages for its letters."""
    letters: int
    position: int
    """How many of them were taken so far."""
    skipped: int = 0
    """How many were left out, being outstanding, doubtful or gone by then."""
    locked_by: str | None = None
    locked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """What a person asks for."""

    actor: str
    described: str
    """What was asked for, in words."""
    destination: Destination | None = None
    batch_size: int = BATCH_SIZE
    pause: float = PAUSE
    rate: float | None = None
    doubtful: bool = False
    ordered_by: str | None = None
    drop_oldest: bool = False
    letters: int | None = None
    """How many letters the person was told of; None: any number."""


def why_not(
    letter: Letter | Head,
    *,
    in_doubt: bool,
    has_copy: bool,
    doubtful: bool,
    resolved_since: bool = False,
    sent_before: bool = False,
) -> str | None:
    """Why a replay leaves a letter out; None if it is sent. `in_doubt`: its last sending has no
    verdict; `has_copy`: another letter may be a second copy of this one; `resolved_since`: it was
    resolved after the replay was ordered; `sent_before`: this replay has sent it."""
    if letter.status is State.PROCESSING:
        return IS_OUTSTANDING
    if letter.status is State.ARCHIVED:
        return "it is archived: restore it first"
    if letter.status is State.RESOLVED and resolved_since:
        return RESOLVED_SINCE
    doubts = (
        (in_doubt, "it may have been consumed already: its last sending has no verdict"),
        (letter.possible_duplicate, "it may be a second copy of another letter"),
        (has_copy, "another letter may be a second copy of it"),
    )
    doubt = next((reason for holds, reason in doubts if holds and not doubtful), None)
    return doubt or (SENT_BEFORE if sent_before else None)
