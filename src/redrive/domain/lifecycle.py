"""The states of a letter and the only ways between them. No other code decides on a state.

    (arrives) ──► pending ──► processing ──► resolved ──► (deleted)
                     ▲  │         │  │  ▲
                     │  │         │  │  └─ manual, failed, resolved: sent again by a person
                     └──┼─────────┘  ├──► failed ──► archived
                        │            └──► manual ──► resolved, archived ──► manual
                        └──► manual, archived

A letter that came back is pending again, also when it had been taken for resolved. One that was in
doubt and left to a person is resolved when its receipt comes after all, or by that person's word.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from redrive.errors import TransitionRefused


class State(StrEnum):
    """Where a letter is in its life. The names are those that programs have known for long."""

    PENDING = "dlq_pending"
    PROCESSING = "dlq_processing"
    RESOLVED = "dlq_resolved"
    FAILED = "dlq_failed"
    MANUAL = "dlq_manual"
    ARCHIVED = "dlq_archived"

    @property
    def word(self) -> str:
        """The state as people say it: `pending`."""
        return self.value.removeprefix("dlq_")


TRANSITIONS: Final[dict[State, dict[State, str]]] = {
    State.PENDING: {
        State.PENDING: "a revival was scheduled",
        State.PROCESSING: "claimed for sending",
        State.MANUAL: "left to a person",
        State.ARCHIVED: "discarded",
    },
    State.PROCESSING: {
        State.RESOLVED: "consumed; or sent again, and refused",
        State.PENDING: "failed again",
        State.FAILED: "failed too often",
        State.MANUAL: "needs a person",
    },
    State.MANUAL: {
        State.PROCESSING: "sent by a person",
        State.RESOLVED: "consumed after all",
        State.ARCHIVED: "discarded",
    },
    State.FAILED: {
        State.PROCESSING: "sent by a person",
        State.MANUAL: "left to a person",
        State.ARCHIVED: "kept long enough",
    },
    State.RESOLVED: {
        State.PROCESSING: "sent again by a person",
        State.PENDING: "came back late",
    },
    State.ARCHIVED: {
        State.MANUAL: "restored",
    },
}
"""From each state where to, and what that means."""

REMEDIES: Final[dict[State, str]] = {
    State.PENDING: "'redrive replay' sends it, 'redrive letters discard' puts it away",
    State.PROCESSING: "wait for its verdict, or give yours with 'redrive letters resolve'",
    State.MANUAL: (
        "'redrive replay' sends it, 'redrive letters resolve' says that it was consumed,"
        " 'redrive letters discard' puts it away"
    ),
    State.FAILED: "'redrive replay' sends it, 'redrive letters discard' puts it away",
    State.RESOLVED: "'redrive replay' with its id sends it again",
    State.ARCHIVED: "'redrive letters restore' brings it back",
}
"""What a person can do with a letter in each state."""

OPEN_STATES: Final = (State.PENDING, State.PROCESSING, State.MANUAL, State.FAILED)
"""What somebody may still have to do something about."""
BACKLOG: Final = (State.PENDING, State.PROCESSING, State.MANUAL)
"""What is not decided yet: a worker or a person has to look at it, or a verdict is due."""

DELETABLE: Final = frozenset({State.RESOLVED, State.ARCHIVED})
"""What retention may remove. Pending and manual letters are never removed."""

FIRST: Final = State.PENDING
"""Every letter begins here."""


def remedy_of(state: State, *, origin_known: bool) -> str:
    """What a person can do with a letter: one whose origin nobody knows goes nowhere by itself."""
    remedy = REMEDIES[state]
    return (
        remedy
        if origin_known
        else remedy.replace("redrive replay", "redrive replay --to queue:NAME")
    )


def may_become(now: State, then: State) -> bool:
    """Whether a letter in one state may go to another."""
    return then in TRANSITIONS[now]


def require(now: State, then: State) -> State:
    """The new state, or `TransitionRefused` with what a person can do instead."""
    if not may_become(now, then):
        raise TransitionRefused(
            f"a letter that is {now.word} cannot become {then.word}", remedy=REMEDIES[now]
        )
    return then


def read_state(text: str) -> State | None:
    """A state by either of its names: `dlq_pending` or `pending`; None if it is neither."""
    for state in State:
        if text in (state.value, state.word):
            return state
    return None
