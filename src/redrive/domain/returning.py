"""What a letter's coming back means for it. A return is the verdict that a revival failed."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final

from redrive.domain.failure import GENERAL_TYPES
from redrive.domain.letter import Attempt, Letter, Result
from redrive.domain.lifecycle import State

OPEN: Final = frozenset({Result.SENDING, Result.SENT, Result.IN_DOUBT, Result.RESOLVED})
"""Results that a return settles: as far as was known, the message might have been consumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What becomes of a letter that came back."""

    status: State
    revivals: int
    reason: str


def is_return(attempt: Attempt | None, *, queue: str | None, body_digest: bytes) -> bool:
    """Whether a message is the one that was sent: consumers copy headers onto other messages."""
    return (
        attempt is not None
        and attempt.queue in (None, queue)
        and attempt.body_digest == body_digest
    )


def is_anothers_copy(letter: Letter, attempt: Attempt, queue: str | None, *, newest: bool) -> bool:
    """Whether a message that came back is not the letter, but a copy that another queue has of it.

    What a person sends to an exchange is in every queue of that, and what workers send later goes
    to one: so the letter is the copy that comes back first, and belongs to that queue from then on.
    Any other would be nobody's, if it were taken for the letter. `newest`: the letter was not sent
    since; if it was, the letter is what comes back of that."""
    first = newest and attempt.result in OPEN
    return attempt.queue is None and queue != letter.queue and not first


def may_be_there_twice(
    copy: Attempt, sendings: Iterable[Attempt], queue: str | None, to_all: Container[str]
) -> bool:
    """Whether a queue that has a copy of what a person sent to an exchange may have been sent
    another since. `sendings`: all of the letter; `to_all`: the replays by which a person sent to an
    exchange."""
    return copy.replay_id in to_all and any(
        later.generation > copy.generation
        and later.result is not Result.REFUSED
        and (later.queue in (None, queue) or later.replay_id in to_all)
        for later in sendings
    )


def on_return(status: State, revivals: int, max_revivals: int) -> Returned:
    """Where a letter goes that failed again. One that a person has in hand stays there."""
    revivals += 1
    if status is State.PROCESSING and revivals >= max_revivals:
        return Returned(
            status=State.FAILED, revivals=revivals, reason=f"failed again, {revivals} times by now"
        )
    if status is State.PROCESSING:
        return Returned(status=State.PENDING, revivals=revivals, reason="failed again")
    if status is State.RESOLVED:
        return Returned(status=State.PENDING, revivals=revivals, reason="came back late")
    return Returned(status=status, revivals=revivals, reason="its message came back")


def group_of_return(letter: Letter, came: Letter) -> str:
    """The group of a letter that came back: by what failed this time. Where nobody told what, then
    or now, that is what failed before."""
    tells_nothing = came.error_type in GENERAL_TYPES and came.error_type == letter.error_type
    return letter.fingerprint if tells_nothing else came.fingerprint
