"""What may be edited, when, and what an edited message must still be."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from redrive.domain.editing import objection, standing, was_sent, why_not_edited, why_not_set
from redrive.domain.letter import Attempt, Edit, Result
from redrive.domain.lifecycle import State

NOON = datetime(2026, 2, 11, 12, tzinfo=UTC)
EDIT = Edit(number=1, at=NOON, actor="cli:ann", reason="typo", properties=b"\x00\x00", body=b"x")
ATTEMPT = Attempt(
    at=NOON + timedelta(seconds=1),
    worker_id="worker-1",
    strategy="immediate",
    generation=1,
    result=Result.SENT,
    queue="orders",
    body_digest=bytes(16),
)


@pytest.mark.parametrize("state", State)
def test_a_letter_is_edited_unless_it_is_outstanding_or_archived(state: State) -> None:
    refused = state in (State.PROCESSING, State.ARCHIVED)
    assert (why_not_edited(state) is not None) is refused


def test_the_newest_edit_that_is_not_undone_stands() -> None:
    edits = [EDIT, replace(EDIT, number=2), replace(EDIT, number=3, undone=True)]
    assert standing(edits) == edits[1]


def test_without_edits_the_original_stands() -> None:
    assert standing([replace(EDIT, undone=True)]) is None


@pytest.mark.parametrize("result", Result)
def test_an_edit_was_sent_unless_every_sending_since_was_refused(result: Result) -> None:
    attempts = [replace(ATTEMPT, result=result)]
    assert was_sent(EDIT, attempts) is (result is not Result.REFUSED)


def test_a_sending_before_the_edit_did_not_send_it() -> None:
    assert not was_sent(EDIT, [replace(ATTEMPT, at=NOON - timedelta(milliseconds=1))])


@pytest.mark.parametrize(
    "name", ["redrive-id", "Redrive-Letter", "redrive-tags", "x-death", "X-Death", "", "x" * 256]
)
def test_headers_of_redrive_and_the_broker_are_not_set_by_hand(name: str) -> None:
    assert why_not_set(name)


@pytest.mark.parametrize("name", ["token", "x-retries", "x" * 255, "é"])
def test_other_headers_are(name: str) -> None:
    assert why_not_set(name) is None


@pytest.mark.parametrize("content_type", ["application/json", "application/problem+json; v=1"])
def test_a_body_of_a_json_type_must_be_json(content_type: str) -> None:
    assert objection(content_type, '{"a": 1.10}') is None
    assert objection(content_type, "\ufeff{}") is None
    assert "is no JSON" in (objection(content_type, "{") or "")
    assert "is no text" in (objection(content_type, None) or "")


@pytest.mark.parametrize(
    ("content_type", "text"),
    [(None, None), (None, "{"), ("application/octet-stream", None), ("text/plain", "{")],
)
def test_a_body_of_another_type_may_be_anything(content_type: str | None, text: str | None) -> None:
    assert objection(content_type, text) is None


def test_a_body_of_a_text_type_must_be_text() -> None:
    assert objection("text/plain; charset=utf-8", None)


def test_without_a_content_type_what_was_a_document_stays_one() -> None:
    said = objection(None, '{"a": 1,}', before='{"a": 1}')
    assert said is not None
    assert said.endswith("though the body before is")
    assert objection(None, '{"a": 2}', before='{"a": 1}') is None


@pytest.mark.parametrize("before", ["plain", "17", "{a: 1}", None])
def test_without_a_content_type_what_was_no_document_may_be_anything(before: str | None) -> None:
    assert objection(None, "{", before=before) is None
    assert objection("application/x-own", "{", before="[]") is None
