"""What people and programs see of letters, groups and the books: the JSON documents.

Guarantees: the names are those of the reference (docs/reference/letter.md), the same for every
command and route. Times are RFC 3339, UTC, with milliseconds. `body` is authoritative: the stored
bytes, as text only if that loses nothing; unless a redaction rule touches them, which is marked.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from redrive.amqp.properties import Properties
from redrive.domain.breaker import Breaker
from redrive.domain.deaths import Death
from redrive.domain.editing import as_edited, standing
from redrive.domain.filters import Audit, Group, Ledger
from redrive.domain.letter import Attempt, Change, Envelope, Kept, Letter
from redrive.domain.lifecycle import State
from redrive.domain.masking import MASK
from redrive.domain.policy import PolicyEntry
from redrive.errors import MalformedData
from redrive.work.decode import Decoded, decode_body
from redrive.work.headers import header_documents, property_documents
from redrive.work.redact import RedactedBody, Redaction, content_of
from redrive.work.times import rfc3339, rfc3339_or_none


def letter_summary(letter: Letter) -> dict[str, Any]:
    """A letter as lists have it: without the message, its history and its attempts."""
    return {
        "id": letter.id,
        "messageId": letter.message_id,
        "status": letter.status.value,
        "contentType": letter.content_type,
        "contentEncoding": letter.content_encoding,
        "size": letter.size,
        "origin": {
            "vhost": letter.vhost,
            "queue": letter.queue,
            "exchange": letter.exchange,
            "routingKey": letter.routing_key,
        },
        "collectedFrom": letter.collected_from,
        "deaths": [_death(death) for death in letter.deaths],
        "errorType": letter.error_type,
        "errorReason": letter.error_reason,
        "errorStack": letter.error_stack,
        "fingerprint": letter.fingerprint,
        "retryCount": letter.retry_count,
        "dlqRetryCount": letter.dlq_retry_count,
        "generation": letter.generation,
        "firstFailedAt": rfc3339(letter.first_failed_at),
        "lastFailedAt": rfc3339(letter.last_failed_at),
        "lockedBy": letter.locked_by,
        "lockedAt": rfc3339_or_none(letter.locked_at),
        "nextRetryAt": rfc3339_or_none(letter.next_retry_at),
        "verdictDueAt": rfc3339_or_none(letter.verdict_due_at),
        "resolution": letter.resolution.value if letter.resolution else None,
        "possibleDuplicate": letter.possible_duplicate,
        "duplicateOf": letter.duplicate_of,
        "parentId": letter.parent_id,
        "previousId": letter.previous_id,
        "metadata": {
            "source": letter.source,
            "priority": letter.priority,
            "tags": list(letter.tags),
            "systemState": {"cpuUsage": letter.cpu_usage, "memoryUsage": letter.memory_usage},
        },
        "createdAt": rfc3339(letter.created_at),
        "updatedAt": rfc3339(letter.updated_at),
    }


def letter_document(
    kept: Kept, *, redaction: Redaction, most_body: int | None = None
) -> dict[str, Any]:
    """A letter whole. Of each body at most `most_body` bytes are shown; all of it by default."""
    letter, envelope = kept.letter, kept.envelope
    decoded = decode_body(envelope.body, letter.content_type, letter.content_encoding)
    redacted = redaction.body(decoded)
    document = letter_summary(redaction.letter(letter))
    moments = {name: document.pop(name) for name in ("createdAt", "updatedAt")}
    return {
        **document,
        "originalMessage": redacted.document if redacted else decoded.document,
        "body": body_document(envelope.body, redacted, most_body),
        "bodyNote": _note(decoded, redacted),
        **message_document(envelope, redaction),
        "replayAttempts": [_attempt(attempt) for attempt in kept.attempts],
        "edits": edit_documents(kept, redaction, most_body),
        "history": [_change(change) for change in kept.history],
        **moments,
    }


def edit_documents(kept: Kept, redaction: Redaction, most_body: int | None) -> list[dict[str, Any]]:
    """Every edit with its message; the one that `stands` is what is sent."""
    sent = standing(kept.edits)
    documents = []
    for edit in kept.edits:
        message = as_edited(kept.envelope, edit)
        redacted = redaction.body(decode_body(message.body, *content_of(message)))
        documents.append(
            {
                "number": edit.number,
                "at": rfc3339(edit.at),
                "actor": edit.actor,
                "reason": edit.reason,
                "undone": edit.undone,
                "stands": edit is sent,
                "body": body_document(message.body, redacted, most_body),
                **message_document(message, redaction),
            }
        )
    return documents


def body_document(body: bytes, redacted: RedactedBody | None, most: int | None) -> dict[str, Any]:
    """`{encoding, data, truncated}`: the bytes as they are stored; or `redacted`, as it may be."""
    if redacted is not None:
        body = redacted.text.encode("utf-8", "surrogatepass")
    truncated = most is not None and len(body) > most
    shown = body[:most] if truncated else body
    mark = {"redacted": True} if redacted else {}
    text = _as_text(body, shown)
    if text is not None:
        return {"encoding": "utf8", "data": text, "truncated": truncated, **mark}
    data = base64.b64encode(shown).decode()
    return {"encoding": "base64", "data": data, "truncated": truncated, **mark}


def _as_text(whole: bytes, shown: bytes) -> str | None:
    try:
        whole.decode()
    except UnicodeDecodeError:
        return None
    # A character that the cut went through is left out whole.
    return shown.decode("utf-8", "ignore")


def _note(decoded: Decoded, redacted: RedactedBody | None) -> str | None:
    if redacted is not None:
        return redacted.note
    return f"shown undecoded: {decoded.problem}" if decoded.problem else None


def message_document(envelope: Envelope, redaction: Redaction) -> dict[str, Any]:
    """Headers and properties; a section that cannot be read is given as its bytes, or hidden."""
    try:
        properties = Properties.read(envelope.properties)
    except MalformedData:
        unreadable = _unreadable(envelope.properties, redaction)
        return {"headers": [], "properties": {}, "unreadableProperties": unreadable}
    return {
        "headers": header_documents(properties, redaction),
        "properties": property_documents(properties),
    }


def _unreadable(raw: bytes, redaction: Redaction) -> dict[str, Any]:
    if redaction.hides_headers:
        return {"encoding": "utf8", "data": MASK, "redacted": True}
    return {"encoding": "base64", "data": base64.b64encode(raw).decode()}


def _death(death: Death) -> dict[str, Any]:
    return {
        "queue": death.queue,
        "reason": death.reason,
        "count": death.count,
        "exchange": death.exchange,
        "routingKeys": list(death.routing_keys),
        "at": rfc3339_or_none(death.at),
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "at": rfc3339(change.at),
        "actor": change.actor,
        "from": change.before.value if change.before else None,
        "to": change.after.value,
        "reason": change.reason,
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "timestamp": rfc3339(attempt.at),
        "workerId": attempt.worker_id,
        "strategy": attempt.strategy,
        "generation": attempt.generation,
        "result": attempt.result.value,
        "queue": attempt.queue,
    }


def group_document(group: Group) -> dict[str, Any]:
    """A group, without its letters."""
    return {
        "fingerprint": group.fingerprint,
        "errorType": group.error_type,
        "reason": group.reason,
        "queue": group.queue,
        "letters": group.letters,
        "counts": _counts(group.counts),
        "firstSeenAt": rfc3339(group.first_seen_at),
        "lastSeenAt": rfc3339(group.last_seen_at),
    }


def ledger_document(ledger: Ledger) -> dict[str, Any]:
    """The books."""
    return {
        "received": ledger.received,
        "returned": ledger.returned,
        "deleted": ledger.deleted,
        "states": _counts(ledger.states),
        "balanced": ledger.balanced,
    }


def audit_document(audit: Audit) -> dict[str, Any]:
    """The books against the rows."""
    return {
        "exact": audit.exact,
        "ledger": ledger_document(audit.ledger),
        "rows": _counts(audit.rows),
    }


def policy_document(entry: PolicyEntry) -> dict[str, Any]:
    """A policy, wherever it stands, and whether it counts."""
    return {
        "name": entry.name,
        "maxRetries": entry.max_retries,
        "returnTo": entry.return_to,
        "retryExpired": entry.retry_expired,
        "source": entry.source,
        "place": entry.place,
        "state": entry.state,
        "reason": entry.reason or None,
    }


def breaker_document(queue: str, breaker: Breaker) -> dict[str, Any]:
    """The breaker of a destination."""
    return {
        "queue": queue,
        "state": breaker.state.value,
        "forced": breaker.forced.value if breaker.forced else None,
        "failures": breaker.failures,
        "openedAt": rfc3339_or_none(breaker.opened_at),
        "nextProbeAt": rfc3339_or_none(breaker.next_probe_at()),
    }


def _counts(counts: Mapping[State, int]) -> dict[str, int]:
    return {state.value: counts.get(state, 0) for state in State}
