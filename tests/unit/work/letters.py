"""Letters to show and to carry: one with everything said, and strategies for any."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from redrive.amqp import fields
from redrive.amqp.properties import Properties
from redrive.domain.deaths import Death
from redrive.domain.ids import letter_id
from redrive.domain.letter import (
    Attempt,
    Change,
    Edit,
    Envelope,
    Kept,
    Letter,
    Resolution,
    Result,
)
from redrive.domain.lifecycle import State
from redrive.errors import MalformedData
from tests.strategies import sections

NOON = datetime(2026, 2, 11, 12, 0, 7, 123456, tzinfo=UTC)
LETTER_ID = letter_id(NOON, 1)


def an_envelope(body: bytes = b'{"amount": 99.99}', **headers: bytes) -> Envelope:
    properties = Properties.empty().with_text("content_type", "application/json")
    return Envelope(
        vhost="/",
        queue="dlq-queue",
        exchange="dlq-exchange",
        routing_key="dlq-routing-key",
        redelivered=False,
        properties=properties.with_headers(headers).raw,
        body=body,
    )


def a_letter(**changes: Any) -> Letter:
    letter = Letter(
        id=LETTER_ID,
        message_id="msg_1707658080_abc123",
        status=State.PENDING,
        vhost="/",
        queue="payments",
        exchange="shop",
        routing_key="payment.created",
        collected_from="dlq-queue",
        error_type="TIMEOUT_ERROR",
        error_reason="External API timeout after 5000ms",
        error_stack="Error: timeout\n  at processPayment",
        fingerprint="0123456789abcdef",
        deaths=(
            Death(
                queue="payments",
                reason="rejected",
                exchange="shop",
                routing_keys=("payment.created",),
                at=NOON - timedelta(seconds=30),
            ),
            Death(queue="queue.delay.1", reason="expired", count=3, at=NOON),
        ),
        retry_count=3,
        first_failed_at=NOON - timedelta(seconds=30),
        last_failed_at=NOON,
        source="payment-service",
        priority=1,
        tags=("payment", "critical"),
        content_type="application/json",
        content_encoding=None,
        size=17,
        cpu_usage=0.75,
        memory_usage=0.6,
        created_at=NOON,
        updated_at=NOON,
        generation=1,
    )
    return replace(letter, **changes)


def a_kept(envelope: Envelope | None = None, **changes: Any) -> Kept:
    envelope = envelope or an_envelope()
    return Kept(
        letter=a_letter(**{"size": len(envelope.body), **changes}),
        envelope=envelope,
        history=(
            Change(at=NOON, actor="collector", before=None, after=State.PENDING, reason="arrived"),
        ),
        attempts=(
            Attempt(
                at=NOON,
                worker_id="worker_node_2",
                strategy="immediate",
                generation=1,
                result=Result.FAILED,
                queue="payments",
                body_digest=b"\x00" * 16,
            ),
        ),
    )


def an_edit(number: int = 1, body: bytes = b'{"amount": 1.10}', **changes: Any) -> Edit:
    edit = Edit(
        number=number,
        at=NOON + timedelta(minutes=number),
        actor="cli:ann",
        reason="the amount was wrong",
        properties=an_envelope().properties,
        body=body,
    )
    return replace(edit, **changes)


# Any letter that a store can hold

_texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
_names = st.binary(max_size=20).map(fields.text)
_moments = st.datetimes(timezones=st.just(UTC))
_counts = st.integers(0, 2**31 - 1)
_shares = st.none() | st.floats(0, 1)
_ids = st.uuids().map(str)
_deaths = st.builds(
    Death,
    queue=_texts,
    reason=_texts,
    count=st.integers(1, 2**63 - 1),
    exchange=_texts,
    routing_keys=st.lists(_texts, max_size=3).map(tuple),
    at=st.none() | _moments,
)
_letters = st.builds(
    Letter,
    id=_ids,
    message_id=_texts,
    status=st.sampled_from(State),
    vhost=_texts,
    queue=st.none() | _texts,
    exchange=_texts,
    routing_key=_texts,
    collected_from=_texts,
    error_type=_texts,
    error_reason=_texts,
    error_stack=st.none() | _texts,
    fingerprint=st.text("0123456789abcdef", max_size=16),
    deaths=st.lists(_deaths, max_size=3).map(tuple),
    retry_count=_counts,
    first_failed_at=_moments,
    last_failed_at=_moments,
    source=_texts,
    priority=st.integers(0, 255),
    tags=st.lists(_texts, max_size=3).map(tuple),
    content_type=st.none() | _texts,
    content_encoding=st.none() | _texts,
    size=st.integers(0, 2**63 - 1),
    cpu_usage=_shares,
    memory_usage=_shares,
    created_at=_moments,
    updated_at=_moments,
    dlq_retry_count=_counts,
    generation=_counts,
    next_retry_at=st.none() | _moments,
    verdict_due_at=st.none() | _moments,
    resolution=st.none() | st.sampled_from(Resolution),
    possible_duplicate=st.just(True),
    duplicate_of=st.none() | _ids,
    parent_id=st.none() | _ids,
    previous_id=st.none() | _ids,
)


def _with_its_attempt(kept: Kept) -> Kept:
    """Sent no more often than the letter says; and what waits for a verdict was sent."""
    letter = kept.letter
    generations = {attempt.generation for attempt in kept.attempts}
    letter = replace(letter, generation=max(letter.generation, *generations, 0))
    if letter.status is State.PROCESSING and letter.generation not in generations:
        letter = replace(letter, status=State.MANUAL)
    return replace(kept, letter=letter)


def _as_read(kept: Kept) -> Kept:
    """Of a message of this size; of one that cannot be read nothing else is known."""
    letter = replace(kept.letter, size=len(kept.envelope.body))
    try:
        Properties.read(kept.envelope.properties)
    except MalformedData:
        letter = replace(letter, deaths=(), content_type=None, content_encoding=None)
    return replace(kept, letter=letter)


any_kept = (
    st.builds(
        Kept,
        letter=_letters
        | st.builds(
            lambda letter, by, at: replace(letter, locked_by=by, locked_at=at),
            _letters,
            _texts,
            _moments,
        ),
        envelope=st.builds(
            Envelope,
            vhost=_names,
            queue=_names,
            exchange=_names,
            routing_key=_names,
            redelivered=st.booleans(),
            properties=st.binary() | sections().map(lambda each: each.raw),
            body=st.binary() | st.text().map(str.encode),
        ),
        history=st.lists(
            st.builds(
                Change,
                at=_moments,
                actor=_texts,
                before=st.none() | st.sampled_from(State),
                after=st.sampled_from(State),
                reason=_texts,
            ),
            max_size=3,
        ).map(tuple),
        attempts=st.lists(
            st.builds(
                Attempt,
                at=_moments,
                worker_id=_texts,
                strategy=_texts,
                generation=_counts,
                result=st.sampled_from(Result),
                queue=st.none() | _texts,
                body_digest=st.binary(min_size=16, max_size=16),
                before=st.sampled_from(State),
                reason=st.none() | _texts,
                replay_id=st.none() | _ids,
            ),
            max_size=3,
            unique_by=lambda attempt: attempt.generation,
        ).map(tuple),
        edits=st.lists(
            st.builds(
                Edit,
                number=_counts,
                at=_moments,
                actor=_texts,
                reason=_texts,
                properties=st.binary(),
                body=st.binary() | st.text().map(str.encode),
                undone=st.booleans(),
            ),
            max_size=3,
            unique_by=lambda edit: edit.number,
        ).map(lambda edits: tuple(sorted(edits, key=lambda edit: edit.number))),
    )
    .map(_with_its_attempt)
    .map(_as_read)
)
