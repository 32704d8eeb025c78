"""What became of a letter that was sent: by a receipt, by silence. A return is in `returning.py`.

Silence counts only from when the destination was seen idle: with a consumer, and without a message
that waits. Until then nothing tells whether the letter was even looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from redrive.domain.letter import Attempt, Letter, Resolution, Result
from redrive.domain.lifecycle import State

OUTSTANDING: Final = frozenset({Result.SENDING, Result.SENT, Result.IN_DOUBT})
"""Results of sendings that have no verdict yet."""


def newest_sending(attempts: Sequence[Attempt]) -> Attempt | None:
    """Of a letter's attempts, oldest first, the one that a verdict is on: the newest that was not
    refused. What is in no queue settles nothing."""
    return next((each for each in reversed(attempts) if each.result is not Result.REFUSED), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A consumer says that it has handled a letter."""

    letter: str
    generation: int
    queue: str | None = None
    """Where it was handled, if the consumer tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a letter becomes, and the sending that it is about."""

    status: State
    result: Result
    resolution: Resolution | None
    reason: str


def on_receipt(
    letter: Letter, attempt: Attempt, receipt: Receipt, *, last_sent: int | None = None
) -> Verdict | None:
    """A receipt resolves the letter that it names; None if it says nothing of it. `last_sent` is
    the newest generation that was not refused, if that is not the letter's own."""
    if receipt.queue is not None and attempt.queue not in (None, receipt.queue):
        return None  # somebody copied the headers onto another message
    last = letter.generation if last_sent is None else last_sent
    if attempt.result not in OUTSTANDING or attempt.generation != last:
        return None
    if letter.status not in (State.PROCESSING, State.MANUAL):
        return None
    return Verdict(
        status=State.RESOLVED,
        result=Result.RESOLVED,
        resolution=Resolution.RECEIPT,
        reason="its consumer sent a receipt",
    )


def on_silence(attempt: Attempt, *, dead_letters: bool) -> Verdict:
    """A sending of which nothing was heard for long. `dead_letters`: what fails in its destination
    is known to come back."""
    if attempt.result is not Result.SENT:
        # Whatever is said of it elsewhere: only what was confirmed can have been consumed.
        unsettled = attempt.result in OUTSTANDING
        return Verdict(
            status=State.MANUAL,
            result=Result.IN_DOUBT if unsettled else attempt.result,
            resolution=None,
            reason="in doubt: it may have been sent, and nothing was heard of it",
        )
    if attempt.queue is None:
        return _resolved(Resolution.UNKNOWN, "nothing was heard of it, and its queue is not known")
    if not dead_letters:
        reason = f"nothing was heard of it, but {attempt.queue} may not dead-letter what fails"
        return _resolved(Resolution.UNKNOWN, reason)
    return _resolved(Resolution.SILENCE, "consumed: it did not come back")


def _resolved(resolution: Resolution, reason: str) -> Verdict:
    return Verdict(
        status=State.RESOLVED, result=Result.RESOLVED, resolution=resolution, reason=reason
    )


def has_died_in(letter: Letter, queue: str) -> bool:
    """Whether the broker itself has dead-lettered this message out of that queue before."""
    return any(death.queue == queue for death in letter.deaths)
