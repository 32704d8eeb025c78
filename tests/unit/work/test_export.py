"""Export and import: a letter that went out comes back the same; what is not whole stays out."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import fields
from redrive.domain.letter import Kept
from redrive.domain.lifecycle import State
from redrive.work.export import Unusable, read_line, write_line
from redrive.work.redact import NO_REDACTION, Redaction
from tests.unit.work.letters import a_kept, an_edit, an_envelope, any_kept


@given(any_kept)
def test_every_letter_comes_back_the_same(kept: Kept) -> None:
    line = write_line(kept, NO_REDACTION)
    assert not line.redacted
    assert line.content.count(b"\n") == 1
    assert read_line(line.content) == kept


def test_a_body_that_is_text_can_be_read_in_the_line() -> None:
    document = json.loads(write_line(a_kept(), NO_REDACTION).content)
    assert document["format"] == 1
    assert document["redacted"] is False
    assert document["envelope"]["body"] == {"encoding": "utf8", "data": '{"amount": 99.99}'}
    assert document["letter"]["createdAt"] == "2026-02-11T12:00:07.123456Z"
    assert document["letter"]["status"] == "dlq_pending"


def test_names_that_are_not_utf_8_are_base64() -> None:
    kept = a_kept()
    object.__setattr__(kept.envelope, "routing_key", fields.text(b"\xff\x00"))
    line = write_line(kept, NO_REDACTION).content
    assert json.loads(line)["envelope"]["routingKey"] == {"base64": "/wA="}
    assert read_line(line) == kept


def test_a_line_that_a_rule_touches_is_marked_and_not_taken_back() -> None:
    rules = Redaction(["token"], ["$.card"])
    assert read_line(write_line(a_kept(), rules).content) == a_kept()
    for envelope in (
        an_envelope(token=fields.longstr("s3cret")),
        an_envelope(b'{"card": "s3cret"}'),
    ):
        line = write_line(a_kept(envelope), rules)
        assert line.redacted
        assert b"s3cret" not in line.content
        answer = read_line(line.content)
        assert isinstance(answer, Unusable)
        assert "--exact" in answer.reason


def test_a_rule_that_touches_only_an_edit_counts_too() -> None:
    kept = replace(a_kept(), edits=(an_edit(1, b'{"card": "s3cret"}'),))
    line = write_line(kept, Redaction([], ["$.card"]))
    assert line.redacted
    assert b"s3cret" not in line.content
    assert base64.b64encode(b"s3cret")[:7] not in line.content
    assert read_line(write_line(kept, NO_REDACTION).content) == kept


def changed(path: str, value: Any) -> bytes:
    kept = replace(a_kept(), edits=(an_edit(1), an_edit(2)))
    document = json.loads(write_line(kept, NO_REDACTION).content)
    *outer, last = path.split(".")
    inside = document
    for step in outer:
        inside = inside[int(step)] if isinstance(inside, list) else inside[step]
    if value is ...:
        del inside[last]
    else:
        inside[last] = value
    return json.dumps(document).encode()


def test_what_waits_for_a_verdict_needs_the_sending_that_it_is_on() -> None:
    """Or it would wait for ever."""
    kept = a_kept(status=State.PROCESSING, generation=2)
    lines = [
        write_line(replace(kept, attempts=attempts), NO_REDACTION).content
        for attempts in ((), tuple(replace(each, generation=1) for each in kept.attempts))
    ]
    for line in lines:
        answer = read_line(line)
        assert isinstance(answer, Unusable)
        assert answer.reason == "attempts: expected generation 2, whose verdict it waits for"
    sent = replace(kept, attempts=tuple(replace(each, generation=2) for each in kept.attempts))
    assert read_line(write_line(sent, NO_REDACTION).content) == sent


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("format", 2, "has format 2; this version reads 1"),
        ("format", ..., "has format None; this version reads 1"),
        ("redacted", True, "was redacted"),
        ("more", 1, "more: expected no such field"),
        ("letter", ..., "letter: expected a value, and there is none"),
        ("letter", [], "letter: expected an object"),
        ("letter.id", "../etc", "letter.id: expected the id of a letter"),
        ("letter.duplicateOf", "x", "letter.duplicateOf: expected the id of a letter"),
        ("letter.status", "dead", "letter.status: expected one of dlq_pending, "),
        ("letter.status", [], "letter.status: expected one of dlq_pending, "),
        ("letter.size", True, "letter.size: expected a whole number"),
        ("letter.size", 1.5, "letter.size: expected a whole number"),
        ("letter.size", 999, "letter.size: expected 17, the bytes of envelope.body, got 999"),
        (
            "envelope.body",
            {"encoding": "utf8", "data": "{}"},
            "letter.size: expected 2, the bytes of envelope.body, got 17",
        ),
        ("envelope.properties", "/w==", "envelope.properties: expected those that the letter"),
        ("letter.priority", 256, "letter.priority: expected at most 255"),
        ("letter.retryCount", 2**31, "letter.retryCount: expected 0 to 2147483647"),
        ("letter.retryCount", -1, "letter.retryCount: expected 0 to 2147483647"),
        ("letter.createdAt", "yesterday", "letter.createdAt: expected a time in UTC"),
        ("letter.createdAt", None, "letter.createdAt: expected a time in UTC"),
        ("letter.errorType", "a\x00b", "letter.errorType: expected text without NUL"),
        ("letter.errorType", "\ud800", "letter.errorType: expected text without half"),
        ("letter.errorType", {"base64": "/w=="}, "letter.errorType: expected text without NUL"),
        ("letter.tags", "a,b", "letter.tags: expected a list"),
        ("letter.deaths.0.queue", 1, "letter.deaths[0].queue: expected text"),
        ("letter.lockedBy", "me", "letter.lockedBy: expected to be there if lockedAt is"),
        ("envelope.body", "x", "envelope.body: expected an encoding"),
        ("envelope.body", {"encoding": "base64", "data": "*"}, "envelope.body: expected base64"),
        ("envelope.body", {"encoding": "utf8", "data": "\ud800"}, "envelope.body.data: expected"),
        ("envelope.properties", "not base64", "envelope.properties: expected base64"),
        ("envelope.properties", 1, "envelope.properties: expected base64"),
        ("attempts.0.bodyDigest", "AA==", "attempts: expected a bodyDigest of 16 bytes"),
        ("attempts.0.replayId", "?", "attempts: expected a replayId that is an id"),
        (
            "letter.generation",
            0,
            "attempts: expected no generation above letter.generation, 0, got 1",
        ),
        (
            "attempts.0.generation",
            2,
            "attempts: expected no generation above letter.generation, 1, got 2",
        ),
        ("edits.1.number", 1, "edits: expected every number once, the lowest first"),
        ("edits.0.number", 3, "edits: expected every number once, the lowest first"),
        ("edits.0.reason", "a\x00b", "edits[0].reason: expected text without NUL"),
        ("edits.0.body", "*", "edits[0].body: expected base64"),
        ("attempts.0.result", "?", "attempts[0].result: expected one of sending, "),
    ],
)
def test_what_is_wrong_with_a_line_is_said_with_its_place(
    path: str, value: Any, reason: str
) -> None:
    answer = read_line(changed(path, value))
    assert isinstance(answer, Unusable)
    assert answer.reason.startswith(reason)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_line_is_no_letter(line: bytes) -> None:
    assert isinstance(read_line(line), Unusable)


@given(st.binary())
def test_no_bytes_raise(line: bytes) -> None:
    assert isinstance(read_line(line), Unusable)
