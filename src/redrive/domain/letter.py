"""A letter: a dead message as it is kept. What it is made of; nothing here reads or writes.

A letter never holds the message itself: that is the `Envelope`, kept byte for byte and never
changed. What is in the letter was understood from it, is made safe to store and show (no NUL, no
half of a surrogate pair), and changes with the letter's life.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from redrive.domain.deaths import Death
from redrive.domain.lifecycle import State


class Resolution(StrEnum):
    """How it is known that a letter was consumed."""

    RECEIPT = "receipt"
    SILENCE = "silence"
    OPERATOR = "operator"
    UNKNOWN = "unknown"


class Result(StrEnum):
    """What became of one sending of a letter."""

    SENDING = "sending"
    SENT = "sent"
    IN_DOUBT = "in_doubt"
    REFUSED = "refused"
    RETURNED = "returned"
    FAILED = "failed"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A message as it was on the wire. Names that were not UTF-8 have their bytes as surrogates."""

    vhost: str
    queue: str
    """Where it was taken from."""
    exchange: str
    routing_key: str
    redelivered: bool
    properties: bytes
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead message in the store."""

    id: str
    message_id: str
    status: State
    vhost: str
    queue: str | None
    """The origin: where it failed. None where nothing tells."""
    exchange: str
    routing_key: str
    collected_from: str
    error_type: str
    error_reason: str
    error_stack: str | None
    fingerprint: str
    deaths: tuple[Death, ...]
    """Oldest first."""
    retry_count: int
    """Retries that the retrier made before the message was dead."""
    first_failed_at: datetime
    last_failed_at: datetime
    source: str
    priority: int
    tags: tuple[str, ...]
    content_type: str | None
    content_encoding: str | None
    size: int
    cpu_usage: float | None
    memory_usage: float | None
    created_at: datetime
    updated_at: datetime
    dlq_retry_count: int = 0
    """Revivals: how often it was sent again and came back."""
    generation: int = 0
    """How many times it was sent."""
    locked_by: str | None = None
    locked_at: datetime | None = None
    strategy: str | None = None
    """How it is to be revived; None until a worker has looked at it."""
    next_retry_at: datetime | None = None
    """When a worker has to look at it; only of a pending letter."""
    verdict_due_at: datetime | None = None
    resolution: Resolution | None = None
    possible_duplicate: bool = False
    duplicate_of: str | None = None
    parent_id: str | None = None
    previous_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a message says of the letter it was sent for, by its headers. Anybody can copy those."""

    letter: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A dead message on its way into the store: the letter it makes, unless it is known."""

    letter: Letter
    envelope: Envelope
    redrive_id: str | None
    digest: bytes
    """Of all that a redelivery of the same message has in common with the first one."""
    replayed: Replayed | None
    named: bool = False
    """Whether its producer gave it a message id. If not, another of its content may be its equal
    and no copy."""
    marked: bool = False
    """Whether it says that it may be a second copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry of a letter's history."""

    at: datetime
    actor: str
    before: State | None
    """None for the arrival."""
    after: State
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One sending of a letter."""

    at: datetime
    worker_id: str
    strategy: str
    generation: int
    result: Result
    queue: str | None
    """Where it was sent; None for an exchange, unless what came back from there has told since."""
    body_digest: bytes
    before: State = State.PENDING
    """What the letter was before it was claimed."""
    reason: str | None = None
    """Why it was not sent, if it was not."""
    replay_id: str | None = None
    """The replay that sent it, if it was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A message as a person changed it: what is sent instead of the original, which is kept."""

    number: int
    at: datetime
    actor: str
    reason: str
    properties: bytes
    body: bytes
    undone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A letter as far as a sender has to know it: reading all of a letter costs more than sending
    it."""

    id: str
    status: State
    vhost: str
    queue: str | None
    exchange: str
    routing_key: str
    collected_from: str
    fingerprint: str
    size: int
    generation: int
    dlq_retry_count: int
    possible_duplicate: bool
    resolution: Resolution | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A letter in the hands of a sender: its generation is noted, and whatever happens to the
    sender, it is known that it may have been sent."""

    letter: Letter | Head
    """As it was before."""
    generation: int
    """Of this sending."""
    envelope: Envelope
    """What is to be sent: as received, or as edited."""
    queue: str | None
    """Where to; None for an exchange."""
    exchange: str | None
    """Where to, if not to a queue."""


class Fate(StrEnum):
    """What a delivery turned out to be."""

    NEW = "new"
    DUPLICATE = "duplicate"
    """A new letter, which may be a second copy of another."""
    DERIVED = "derived"
    """A new letter whose message carries the headers of another letter."""
    SUCCESSOR = "successor"
    """A new letter for one that was deleted before its message came back."""
    RETURNED = "returned"
    """No new letter: a known one came back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What became of one arrival."""

    fate: Fate
    letter: Letter
    """As it is in the store now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """All that is kept of one letter: what an export holds and an import gives back."""

    letter: Letter
    envelope: Envelope
    history: tuple[Change, ...]
    """Oldest first, the arrival too."""
    attempts: tuple[Attempt, ...]
    """Oldest first."""
    edits: tuple[Edit, ...] = ()
    """Oldest first, those that were undone too."""
