"""The tables. Migrations lead here, and a test compares the two.

`dlq_event_config` is exactly what teams have had before Redrive: no default for its id, no unique
name, no further column. It may be a team's own: Redrive makes it only where it is missing and never
alters or drops it. What Redrive adds to a policy is in `redrive_policy`.

A letter is in two tables: `redrive_letter` has what is understood of it and changes with its life,
`redrive_envelope` the message itself, which never changes and may be large. There are no foreign
keys between them: every letter is written and removed in one transaction by one function each, and
a check per row would cost a tenth of the collector's speed.

An edit is a whole message beside the envelope: the newest that is not undone is what is sent. A
replay is a job: its letters are listed once, in the order in which they go, and only its position
moves.

`redrive_ledger` has append-only deltas, written in the transaction of the change that they book:
counters as shared rows would make writers wait for each other. The janitor sums them up.

`redrive_count` has append-only deltas as well, for metrics that the books do not tell: written with
the change that they count, or by a process of what it counted itself, and summed up by the janitor.
`redrive_sample` has what the metrics were, every 15 s of the last day, so that alerts know rates.
A message about an alert is a row for each sink, written with the change of the alert that it tells.

What people need to log in is kept as digests only: of passwords by argon2, of tokens and sessions,
which are random and long, by SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    false,
    text,
)

from redrive.domain.access import Role
from redrive.domain.alerting import Phase
from redrive.domain.letter import Resolution, Result
from redrive.domain.lifecycle import State
from redrive.domain.policy import LONGEST_NAME
from redrive.domain.replay import ReplayState
from redrive.store.types import LetterId, Moment

REVISION: Final = "0008"
"""The newest migration. Revisions are numbers that grow."""
VERSION_TABLE: Final = "redrive_version"

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ck": "%(table_name)s_%(constraint_name)s",
        "ix": "%(table_name)s_%(column_0_name)s",
    }
)


def one_of(column: str, values: Iterable[str]) -> str:
    """The text of a constraint: only these values."""
    return f"{column} IN ({', '.join(repr(str(value)) for value in values)})"


def _only(condition: str) -> dict[str, Any]:
    """An index of some rows, on both engines."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}


# Counts up by itself on both engines; SQLite does so only for a column that is plain INTEGER.
_COUNTING = BigInteger().with_variant(Integer, "sqlite")

dlq_event_config = Table(
    "dlq_event_config",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", String(LONGEST_NAME)),
    Column("max_retries", Integer),
)

redrive_policy = Table(
    "redrive_policy",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("return_to", String(8), nullable=False),
    Column("retry_expired", Boolean, nullable=False),
    CheckConstraint("return_to IN ('queue', 'exchange')", name="return_to"),
)

redrive_letter = Table(
    "redrive_letter",
    metadata,
    Column("id", LetterId, primary_key=True),
    Column("message_id", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("vhost", Text, nullable=False),
    Column("queue", Text),
    Column("exchange", Text, nullable=False),
    Column("routing_key", Text, nullable=False),
    Column("collected_from", Text, nullable=False),
    Column("error_type", Text, nullable=False),
    Column("error_reason", Text, nullable=False),
    Column("error_stack", Text),
    Column("fingerprint", String(16), nullable=False),
    Column("deaths", Text, nullable=False),
    Column("retry_count", Integer, nullable=False),
    Column("first_failed_at", Moment, nullable=False),
    Column("last_failed_at", Moment, nullable=False),
    Column("source", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("tags", Text, nullable=False),
    Column("content_type", Text),
    Column("content_encoding", Text),
    Column("size", BigInteger, nullable=False),
    Column("cpu_usage", Float),
    Column("memory_usage", Float),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("dlq_retry_count", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("locked_by", Text),
    Column("locked_at", Moment),
    Column("strategy", String(16)),
    # Only of pending letters: when a worker has to look at it.
    Column("next_retry_at", Moment),
    Column("verdict_due_at", Moment),
    Column("resolution", String(8)),
    Column("possible_duplicate", Boolean, nullable=False),
    Column("duplicate_of", LetterId),
    Column("parent_id", LetterId),
    Column("previous_id", LetterId),
    Column("digest", LargeBinary(16), nullable=False),
    CheckConstraint(one_of("status", State), name="status"),
    CheckConstraint(one_of("resolution", Resolution), name="resolution"),
    CheckConstraint("priority BETWEEN 0 AND 255", name="priority"),
    CheckConstraint("generation >= 0 AND dlq_retry_count >= 0", name="counts"),
    CheckConstraint("(locked_by IS NULL) = (locked_at IS NULL)", name="lock"),
    CheckConstraint("duplicate_of IS NULL OR possible_duplicate", name="duplicate"),
    # Each ends with the id, so that a page of a filtered list is a stretch of the index.
    Index(None, "status", "id"),
    Index(None, "queue", "id"),
    Index(None, "routing_key", "id"),
    Index(None, "error_type", "id"),
    Index(None, "fingerprint", "id"),
    Index(None, "digest", "id"),
    # The letters that a worker will look at: those of a priority in the order they become due.
    Index(
        "redrive_letter_due",
        "vhost",
        "priority",
        "next_retry_at",
        "id",
        **_only("next_retry_at IS NOT NULL"),
    ),
    Index(None, "duplicate_of", **_only("duplicate_of IS NOT NULL")),
    # Few letters are. SQLite, which keeps no statistics, knows by the equality that they are few.
    Index(
        None,
        "possible_duplicate",
        "id",
        postgresql_where=text("possible_duplicate"),
        sqlite_where=text("possible_duplicate = 1"),
    ),
    # A sending changes a row twice: the second time in place, and no index has to know.
    postgresql_with={"fillfactor": 60},
)

redrive_envelope = Table(
    "redrive_envelope",
    metadata,
    Column("letter_id", LetterId, primary_key=True),
    Column("exchange", LargeBinary, nullable=False),
    Column("routing_key", LargeBinary, nullable=False),
    Column("redelivered", Boolean, nullable=False),
    Column("properties", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

redrive_tag = Table(
    "redrive_tag",
    metadata,
    Column("tag", Text, primary_key=True),
    Column("letter_id", LetterId, primary_key=True),
)

RESOLVED_ONLY: Final = "after = 'dlq_resolved' AND before <> 'dlq_resolved'"

redrive_history = Table(
    "redrive_history",
    metadata,
    Column("id", _COUNTING, primary_key=True),
    Column("letter_id", LetterId, nullable=False),
    Column("at", Moment, nullable=False),
    Column("actor", Text, nullable=False),
    Column("before", String(16)),
    Column("after", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    CheckConstraint(one_of("before", State), name="before"),
    CheckConstraint(one_of("after", State), name="after"),
    Index(None, "letter_id"),
    # When letters were resolved, to count them by time.
    Index(None, "at", **_only(RESOLVED_ONLY)),
)

redrive_attempt = Table(
    "redrive_attempt",
    metadata,
    Column("letter_id", LetterId, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("at", Moment, nullable=False),
    Column("worker_id", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column("result", String(8), nullable=False),
    Column("queue", Text),
    Column("body_digest", LargeBinary(16), nullable=False),
    Column("before", String(16), nullable=False),
    Column("reason", Text),
    Column("replay_id", LetterId),
    CheckConstraint(one_of("result", Result), name="result"),
    CheckConstraint(one_of("before", State), name="before"),
    postgresql_with={"fillfactor": 50},
)

redrive_edit = Table(
    "redrive_edit",
    metadata,
    Column("letter_id", LetterId, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Moment, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("properties", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("undone", Boolean, nullable=False),
)

redrive_replay = Table(
    "redrive_replay",
    metadata,
    Column("id", LetterId, primary_key=True),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("vhost", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("filters", Text, nullable=False),
    Column("destination", Text),
    Column("batch_size", Integer, nullable=False),
    Column("pause", Float, nullable=False),
    Column("rate", Float),
    Column("doubtful", Boolean, nullable=False),
    Column("ordered_by", Text),
    Column("letters", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("skipped", Integer, nullable=False),
    Column("locked_by", Text),
    Column("locked_at", Moment),
    Column("drop_oldest", Boolean, nullable=False, server_default=false()),
    CheckConstraint(one_of("state", ReplayState), name="state"),
    CheckConstraint("(locked_by IS NULL) = (locked_at IS NULL)", name="lock"),
)

redrive_replay_letter = Table(
    "redrive_replay_letter",
    metadata,
    Column("replay_id", LetterId, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("letter_id", LetterId, nullable=False),
)

redrive_breaker = Table(
    "redrive_breaker",
    metadata,
    Column("vhost", Text, primary_key=True),
    Column("destination", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("updated_at", Moment, nullable=False),
)

redrive_identity = Table(
    "redrive_identity",
    metadata,
    # Of the redrive-id and the queue it failed in, and more: see `identity.py`.
    Column("key", LargeBinary(16), primary_key=True),
    Column("letter_id", LetterId, nullable=False),
)

redrive_group = Table(
    "redrive_group",
    metadata,
    Column("fingerprint", String(16), primary_key=True),
    Column("error_type", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("queue", Text),
    Column("first_seen_at", Moment, nullable=False),
)

RECEIVED, RETURNED, DELETED = "received", "returned", "deleted"
ACCOUNTS: Final = (RECEIVED, RETURNED, DELETED, *State)

redrive_ledger = Table(
    "redrive_ledger",
    metadata,
    Column("id", _COUNTING, primary_key=True),
    Column("fingerprint", String(16), nullable=False),
    Column("account", String(16), nullable=False),
    Column("delta", BigInteger, nullable=False),
    CheckConstraint(one_of("account", ACCOUNTS), name="account"),
)

redrive_group_note = Table(
    "redrive_group_note",
    metadata,
    Column("fingerprint", String(16), primary_key=True),
    Column("note", Text, nullable=False),
    Column("assignee", Text),
    Column("updated_at", Moment, nullable=False),
    Column("updated_by", Text, nullable=False),
)

redrive_user = Table(
    "redrive_user",
    metadata,
    Column("name", Text, primary_key=True),
    Column("role", String(8), nullable=False),
    Column("password", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    CheckConstraint(one_of("role", Role), name="role"),
)

redrive_token = Table(
    "redrive_token",
    metadata,
    Column("id", LetterId, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", String(8), nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", Moment),
    Column("revoked_at", Moment),
    CheckConstraint(one_of("role", Role), name="role"),
    Index(None, "digest", unique=True),
)

redrive_session = Table(
    "redrive_session",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("user_name", Text, nullable=False),
    Column("csrf", Text, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Index(None, "user_name"),
)

redrive_audit = Table(
    "redrive_audit",
    metadata,
    Column("id", _COUNTING, primary_key=True),
    Column("at", Moment, nullable=False),
    Column("actor", Text, nullable=False),
    Column("role", String(8), nullable=False),
    Column("address", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("outcome", Integer),
    CheckConstraint(one_of("role", Role), name="role"),
    Index(None, "actor", "id"),
    Index(None, "action", "id"),
)

redrive_request = Table(
    "redrive_request",
    metadata,
    # An answer to a request that was sent with an Idempotency-Key; none while it is under way.
    Column("actor", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("digest", LargeBinary(32), nullable=False),
    Column("at", Moment, nullable=False),
    Column("status", Integer),
    Column("body", LargeBinary),
    Index(None, "at"),
)

redrive_count = Table(
    "redrive_count",
    metadata,
    Column("id", _COUNTING, primary_key=True),
    Column("name", String(64), nullable=False),
    Column("label", Text, nullable=False),
    Column("delta", BigInteger, nullable=False),
)

redrive_process = Table(
    "redrive_process",
    metadata,
    Column("id", Text, primary_key=True),
    Column("roles", Text, nullable=False),
    Column("levels", Text, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
)

redrive_sample = Table(
    "redrive_sample",
    metadata,
    # Whole steps since 1970: of several processes, one writes each.
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Moment, nullable=False),
    Column("counters", Text, nullable=False),
    Column("levels", Text, nullable=False),
)

redrive_alert = Table(
    "redrive_alert",
    metadata,
    Column("name", Text, primary_key=True),
    Column("severity", String(16), nullable=False),
    Column("phase", String(8), nullable=False),
    Column("since", Moment, nullable=False),
    Column("told_at", Moment),
    Column("value", Float),
    Column("updated_at", Moment, nullable=False),
    CheckConstraint(one_of("phase", Phase), name="phase"),
)

redrive_silence = Table(
    "redrive_silence",
    metadata,
    Column("alert", Text, primary_key=True),
    Column("until", Moment, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", Text, nullable=False),
)

redrive_alert_message = Table(
    "redrive_alert_message",
    metadata,
    # Also what a receiver recognises a second copy by.
    Column("id", LetterId, primary_key=True),
    Column("alert", Text, nullable=False),
    Column("sink", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("due_at", Moment),
    Column("tries", Integer, nullable=False),
    Column("locked_by", Text),
    Column("locked_at", Moment),
    Column("sent_at", Moment),
    Column("error", Text, nullable=False),
    CheckConstraint("(locked_by IS NULL) = (locked_at IS NULL)", name="lock"),
    CheckConstraint("(sent_at IS NULL) = (due_at IS NOT NULL)", name="due"),
    Index(None, "due_at", **_only("due_at IS NOT NULL")),
)
