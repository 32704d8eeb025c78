"""What a message that says which letter it was sent for is to that letter, and what becomes of one
that came back. A return is the verdict that a revival failed.

A message is the letter if it is what was sent: of that generation, from that queue, with that body.
Consumers copy headers onto other messages; what differs is a letter of its own.

What was sent to an exchange is in every queue of that. By a policy, so is all that is sent later,
and whatever queue it comes back from, it is the letter. A person means it once: what workers send
later goes to one queue. So the letter is the copy that comes back first, and belongs to that queue
from then on; the copy of any other queue would be nobody's, if it were taken for the letter.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from redrive.domain.failure import GENERAL_TYPES
from redrive.domain.letter import Attempt, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.verdict import newest_sending

OPEN: Final = frozenset({Result.SENDING, Result.SENT, Result.IN_DOUBT, Result.RESOLVED})
"""Results that a return settles: as far as was known, the message might have been consumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What a message says of the sending that it is of, and what it is."""

    generation: int
    queue: str | None
    """Where it failed."""
    body_digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CameBack:
    """A message is the letter."""

    sending: Attempt
    newest: bool
    """Whether the letter was not sent since. Else it waits for a later verdict than this one."""
    moves: bool
    """Whether the letter belongs to the queue where it failed, if this is the first to say so."""

    @property
    def settles(self) -> bool:
        """Whether nothing has told before that it failed."""
        return self.sending.result in OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A message is a letter of its own, whose parent the letter is."""

    possible_duplicate: bool = False
    """Whether its queue may have been sent another copy since."""


def what_came(
    letter: Letter, came: Came, sendings: Sequence[Attempt], to_all: Container[str]
) -> CameBack | Derived:
    """What a message is to a letter. `sendings`: all of that, oldest first; `to_all`: the replays
    by which a person sent to an exchange."""
    sent = next((each for each in sendings if each.generation == came.generation), None)
    if sent is None or sent.body_digest != came.body_digest:
        return Derived()
    by_person, newest = sent.replay_id in to_all, sent is newest_sending(sendings)
    back = CameBack(sending=sent, newest=newest, moves=by_person and sent.queue is None)
    if sent.queue is not None:
        is_it = came.queue == sent.queue
    elif by_person:
        is_it = came.queue == letter.queue or (newest and back.settles)
    else:
        is_it = True
    if is_it:
        return back
    return Derived(possible_duplicate=by_person and _was_sent_since(came, sendings, to_all))


def _was_sent_since(came: Came, sendings: Sequence[Attempt], to_all: Container[str]) -> bool:
    """Whether a later sending may have brought a copy to that queue too."""
    return any(
        later.generation > came.generation
        and later.result is not Result.REFUSED
        and (later.queue in (None, came.queue) or later.replay_id in to_all)
        for later in sendings
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What becomes of a letter that came back."""

    status: State
    revivals: int
    reason: str


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
