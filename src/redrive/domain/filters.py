"""Which letters: the same filters for every command, route and page.

All that are given must hold. Texts with `*` or `?` are globs (`*` crosses dots), others are taken
literally; upper and lower case differ. `search` looks for a text in what is understood of a letter,
whatever its case, and in its body byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from redrive.domain.letter import Letter
from redrive.domain.lifecycle import State

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """Where `search` looks, besides what everybody may see of a letter."""

    bodies: bool = True
    failures: bool = True
    """Reasons and stacks."""
    tags: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What letters must have in common. Nothing given: all of them."""

    ids: tuple[str, ...] = ()
    """Any of these, whole ids."""
    status: tuple[State, ...] = ()
    """Any of these."""
    error_type: str | None = None
    error_reason: str | None = None
    queue: str | None = None
    """The origin queue."""
    exchange: str | None = None
    routing_key: str | None = None
    group: str | None = None
    """A fingerprint."""
    source: str | None = None
    tag: str | None = None
    possible_duplicate: bool = False
    """Only letters that may be a second copy of another."""
    created_from: datetime | None = None
    """This moment or later."""
    created_until: datetime | None = None
    """This moment or earlier."""
    search: str | None = None
    searched: Searched = Searched()


@dataclass(frozen=True, slots=True)
class Page(Generic[_Item]):
    """Some of many, newest first; `next` is where the following page begins, None at the end."""

    items: tuple[_Item, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Letters that failed for the same reason in the same place."""

    fingerprint: str
    error_type: str
    reason: str
    """The reason without what differs from letter to letter."""
    queue: str | None
    counts: dict[State, int]
    """How many letters are in each state; states without any are left out."""
    first_seen_at: datetime
    last_seen_at: datetime
    newest: Letter | None = None
    """An example, where one was asked for."""

    @property
    def letters(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The books: what came in, and where it is."""

    received: int
    """Letters that were ever made."""
    returned: int
    """Deliveries that were known letters coming back."""
    states: dict[State, int]
    """How many letters are in each state, all states."""
    deleted: int

    @property
    def balanced(self) -> bool:
        """Whether every letter that was received is somewhere."""
        return self.received == sum(self.states.values()) + self.deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The books against the rows, in one snapshot."""

    ledger: Ledger
    rows: dict[State, int]
    """How many letters there really are in each state, all states."""

    @property
    def exact(self) -> bool:
        return self.ledger.balanced and self.ledger.states == self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNote:
    """What people say of a group, and who looks after it."""

    note: str
    assignee: str | None
    updated_at: datetime
    updated_by: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """Some of many letters: those of one name."""

    name: str | None
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Where open letters are, the most frequent first."""

    error_types: list[Bucket]
    queues: list[Bucket]
