"""What the API answers with: letters, groups and numbers, as the OpenAPI document has them.

These describe; the documents themselves are made by `redrive.work.show` and its neighbours, and a
test holds the one against the other.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from redrive.domain.access import Role
from redrive.domain.alerting import Phase, Severity
from redrive.domain.letter import Resolution, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import ReplayState
from redrive.domain.strategy import Strategy

Time = str
"""RFC 3339, UTC, milliseconds."""


class Document(BaseModel):
    """Something that the API answers with: camelCase, and nothing that is not described."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        populate_by_name=True,
        json_schema_serialization_defaults_required=True,
    )


class Origin(Document):
    vhost: str
    queue: str | None
    exchange: str
    routing_key: str


class Death(Document):
    queue: str
    reason: str
    count: int
    exchange: str
    routing_keys: list[str]
    at: Time | None


class SystemState(Document):
    cpu_usage: float | None
    memory_usage: float | None


class Metadata(Document):
    source: str
    priority: int
    tags: list[str]
    system_state: SystemState


class LetterSummary(Document):
    """A letter as lists have it: without the message, its history and its attempts."""

    id: str
    message_id: str
    status: State
    content_type: str | None
    content_encoding: str | None
    size: int
    origin: Origin
    collected_from: str
    deaths: list[Death]
    error_type: str
    error_reason: str
    error_stack: str | None
    fingerprint: str
    retry_count: int
    dlq_retry_count: int
    generation: int
    first_failed_at: Time
    last_failed_at: Time
    locked_by: str | None
    locked_at: Time | None
    next_retry_at: Time | None
    verdict_due_at: Time | None
    resolution: Resolution | None
    possible_duplicate: bool
    duplicate_of: str | None
    parent_id: str | None
    previous_id: str | None
    metadata: Metadata
    created_at: Time
    updated_at: Time


class LetterPage(Document):
    items: list[LetterSummary]
    next: str | None


class Body(Document):
    encoding: Literal["utf8", "base64"]
    data: str
    truncated: bool
    redacted: bool = Field(False, description="A redaction rule has hidden parts of it.")


class Header(Document):
    model_config = ConfigDict(extra="allow")

    name: str
    type: str
    value: Any


class UnreadableProperties(Document):
    encoding: Literal["utf8", "base64"]
    data: str
    redacted: bool = Field(False, description="A redaction rule hides all of it.")


class Attempt(Document):
    timestamp: Time
    worker_id: str
    strategy: str
    generation: int
    result: Result
    queue: str | None


class Change(Document):
    at: Time
    actor: str
    from_: State | None = Field(alias="from")
    to: State
    reason: str


class Edit(Document):
    number: int
    at: Time
    actor: str
    reason: str
    undone: bool
    stands: bool = Field(description="It is what is sent.")
    body: Body
    headers: list[Header]
    properties: dict[str, Any]
    unreadable_properties: UnreadableProperties | None = None


class LetterDocument(LetterSummary):
    """A letter whole."""

    original_message: Any = Field(
        description="The body, parsed, where it is JSON and shown whole; else null."
    )
    body: Body
    body_note: str | None
    headers: list[Header]
    properties: dict[str, Any]
    unreadable_properties: UnreadableProperties | None = None
    replay_attempts: list[Attempt]
    edits: list[Edit]
    history: list[Change]


class Content(Document):
    """A body as people read it. What is sent is `body`, byte for byte; this is for eyes."""

    kind: Literal["empty", "json", "text", "binary"]
    text: str | None = Field(description="In its charset, encodings undone; null if it is binary.")
    pretty: str | None = Field(description="JSON on many lines; only white space is added.")
    hex: str | None = Field(description="The first bytes of what is no text.")
    undone: list[str] = Field(description="Content encodings, the outermost first.")
    problem: str | None = Field(
        description="Why it is hidden as a whole, or a content encoding could not be undone."
    )
    size: int = Field(description="Bytes, with the encodings undone.")
    truncated: bool
    redacted: bool = Field(description="A redaction rule has hidden parts of it.")
    editable: bool = Field(description="`text`, sent back as an edit, is the same bytes.")


class Neighbours(Document):
    newer: str | None
    older: str | None


class Count(Document):
    letters: int


class Classification(Document):
    id: str
    status: State
    strategy: Strategy
    rule: str
    why: str
    revivals: int
    next_retry_at: Time | None
    waits_for: str | None


class Classifications(Document):
    items: list[Classification]


class Counts(Document):
    """How many letters are in each state."""

    dlq_pending: int = Field(alias="dlq_pending")
    dlq_processing: int = Field(alias="dlq_processing")
    dlq_resolved: int = Field(alias="dlq_resolved")
    dlq_failed: int = Field(alias="dlq_failed")
    dlq_manual: int = Field(alias="dlq_manual")
    dlq_archived: int = Field(alias="dlq_archived")


class GroupNote(Document):
    note: str
    assignee: str | None
    updated_at: Time
    updated_by: str


class PlainGroup(Document):
    fingerprint: str
    error_type: str
    reason: str
    queue: str | None
    letters: int
    counts: Counts
    first_seen_at: Time
    last_seen_at: Time


class Group(PlainGroup):
    note: GroupNote | None


class GroupPage(Document):
    items: list[Group]
    next: str | None


class GroupDocument(Group):
    newest: list[LetterSummary]


class Ledger(Document):
    received: int
    returned: int
    deleted: int
    states: Counts
    balanced: bool


class Named(Document):
    name: str | None
    letters: int


class Waited(Document):
    """Seconds from arrival to resolution, of the letters that were resolved last."""

    letters: int
    median: float | None
    p95: float | None


class Stats(Ledger):
    possible_duplicates: int = Field(
        description="Letters that were marked as such when they were collected, of all time."
    )
    groups: list[PlainGroup] = Field(description="Those with the most open letters.")
    error_types: list[Named]
    queues: list[Named]
    oldest: dict[State, Time] = Field(description="When the oldest letter of each state arrived.")
    time_to_resolve: Waited


class LedgerCheck(Document):
    exact: bool
    ledger: Ledger
    rows: Counts


class Series(Document):
    start: Time
    seconds: int = Field(description="How long a bucket is.")
    arrivals: list[int]
    resolutions: list[int] | None = Field(description="Null for one group.")


class Trend(Document):
    group: str
    arrivals: list[int]


class Trends(Document):
    start: Time
    seconds: int = Field(description="How long a bucket is.")
    items: list[Trend]


class Replay(Document):
    id: str
    state: ReplayState
    reason: str
    actor: str
    filters: str
    destination: str | None
    batch_size: int
    pause: float
    rate: float | None
    doubtful: bool
    ordered_by: str | None
    drop_oldest: bool
    letters: int
    position: int
    skipped: int
    locked_by: str | None
    locked_at: Time | None
    created_at: Time
    updated_at: Time


class ReplayPage(Document):
    items: list[Replay]
    next: str | None


class Why(Document):
    reason: str
    letters: int


class ReplayReport(Replay):
    sent: int
    refused: int
    in_doubt: int
    sending: int
    left: int
    results: dict[Result, int]
    refusals: list[Why]
    left_out: list[Why]


class ReplayLetter(Document):
    id: str
    position: int
    result: Result | None = Field(description="Null: it was left out, or was not taken yet.")
    reason: str | None = Field(description="Why it was refused.")
    at: Time | None
    status: State | None = Field(description="Null: it was deleted since.")
    error_type: str | None
    error_reason: str | None
    queue: str | None


class ReplayLetterPage(Document):
    items: list[ReplayLetter]
    next: str | None


class DestinationLook(Document):
    queue: str | None
    exchange: str | None
    letters: int
    bytes: int
    exists: bool | None
    ready: int | None
    consumers: int | None
    bound: bool | None
    max_length: int | None
    max_length_bytes: int | None
    overflow: str | None
    message_ttl: int | None
    not_taken: int
    obstacles: list[str]
    warnings: list[str]


class ReplayPreview(Document):
    dry_run: Literal[True]
    matched: int = Field(description="The count to confirm with.")
    letters: int
    not_taken: int
    destinations: list[DestinationLook]
    skipped: int
    left_out: list[Why]
    without_order: int = Field(
        description="How many letters have no value at `orderedBy`, and so keep no order."
    )
    unmet: list[str] = Field(description="Why a replay would not begin now.")
    note: str | None


class Unchanged(Document):
    reason: str
    letters: int
    example: str


class Discarded(Document):
    discarded: int
    unchanged: list[Unchanged]


class Archived(Document):
    archived: int
    unchanged: list[Unchanged]


class Restored(Document):
    restored: int
    unchanged: list[Unchanged]


class Resolved(Document):
    resolved: int
    unchanged: list[Unchanged]


class Edited(Document):
    id: str
    edited: bool = Field(description="False: it is so already, or this was a dry run.")
    edit: int | None = Field(description="The number of the edit that stands now.")
    diff: list[str]


class Undone(Document):
    id: str
    undone: int


class Sample(Document):
    id: str
    diff: list[str]


class EditedMany(Document):
    letters: int = Field(description="The count to confirm with.")
    edited: int
    fit: int
    unchanged: int
    unfit: list[Unchanged]
    sample: Sample | None


class Breaker(Document):
    queue: str
    state: Literal["closed", "open", "half_open"]
    forced: Literal["closed", "open"] | None
    failures: int
    opened_at: Time | None
    next_probe_at: Time | None


class Breakers(Document):
    items: list[Breaker]


class Policy(Document):
    name: str
    max_retries: int | None
    return_to: Literal["queue", "exchange"]
    retry_expired: bool
    source: Literal["database", "file", "properties"]
    place: str
    state: Literal["in force", "shadowed", "refused", "ignored"]
    reason: str | None


class Policies(Document):
    items: list[Policy]


class PolicySet(Document):
    name: str
    outcome: Literal["added", "changed"]


class PolicyDeleted(Document):
    name: str
    rows: int


class Difference(Document):
    what: str
    expected: Any
    got: Any


class Finding(Document):
    part: Literal["exchange", "queue", "binding"]
    name: str | None = None
    type: str | None = None
    arguments: dict[str, Any] | None = None
    exchange: str | None = None
    queue: str | None = None
    routing_key: str | None = None
    standing: Literal["same", "missing", "differs", "unknown", "left over"]
    differences: list[Difference]
    note: str | None


class QueueCounts(Document):
    ready: int
    consumers: int


class Topology(Document):
    clean: bool
    exact: bool = Field(description="False: without the management API less is known.")
    parts: list[Finding]
    counts: dict[str, QueueCounts]
    note: str | None


class AuditEntry(Document):
    id: int
    at: Time
    actor: str
    role: Role | None = Field(
        description="Null: of a login that was refused. Of a command: `admin`."
    )
    address: str = Field(description="Of a command: the name of its machine.")
    action: str
    detail: dict[str, Any]
    outcome: int | None = Field(
        description="The HTTP status, of a command that of such a request; null: it has not ended,"
        " or died."
    )


class AuditPage(Document):
    items: list[AuditEntry]
    next: str | None


class Me(Document):
    name: str | None = Field(description="Null: nobody is logged in, and somebody has to.")
    role: Role | None
    login: Literal["none", "session", "token", "needed"]
    csrf_token: str | None


class Token(Document):
    id: str
    name: str
    role: Role
    created_at: Time
    created_by: str
    expires_at: Time | None
    revoked_at: Time | None


class Tokens(Document):
    items: list[Token]


class NewToken(Token):
    token: str = Field(description="The secret. It is shown once, and kept nowhere.")


class User(Document):
    name: str
    role: Role
    created_at: Time


class Users(Document):
    items: list[User]


class AlertSilence(Document):
    until: Time
    reason: str
    by: str
    at: Time


class Alert(Document):
    name: str
    severity: Severity
    summary: str
    condition: str
    hold: str = Field(alias="for", description="How long the condition holds before it fires.")
    phase: Phase
    since: Time | None = Field(description="Since when; while it fires, since its condition held.")
    told_at: Time | None
    value: float | None
    unit: str | None = Field(
        description="Of the value: `letters`, `seconds`, `a second`, `a share`, …; null if unknown."
    )
    judged_at: Time | None
    silence: AlertSilence | None


class WaitingSink(Document):
    """A sink that has not taken every message yet."""

    sink: str
    messages: int
    error: str | None


class Alerts(Document):
    items: list[Alert]
    waiting: list[WaitingSink]


class Part(Document):
    ok: bool
    detail: str | None


class Health(Document):
    ok: bool
    store: Part
    broker: Part
    blocked: bool = Field(description="The broker blocks publishers (`connection.blocked`).")
    unmet: list[str] = Field(description="Why letters should not be sent in numbers now.")
    busy: list[str] = Field(description="Those of `unmet` that `blocked` does not say.")
    version: str


class Alive(Document):
    status: Literal["up"]
    version: str


class Ready(Document):
    status: Literal["ready", "not ready"]
    store: bool
    broker: bool
