"""The JSON of a letter: the contract's names, exact bodies, headers with their types."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import fields
from redrive.amqp.properties import Properties
from redrive.domain.filters import Audit, Group, Ledger
from redrive.domain.letter import Envelope
from redrive.domain.lifecycle import State
from redrive.work import show
from redrive.work.headers import TYPES
from redrive.work.redact import NO_REDACTION, Redaction
from tests.unit.work.letters import (
    LETTER_ID,
    NOON,
    a_kept,
    an_edit,
    an_envelope,
    any_kept,
)

# As ../shared/DESIGN.md has it: "JSON of a letter".
CONTRACT = {
    *("id", "messageId", "originalMessage", "body", "contentType", "size", "headers", "origin"),
    *("deaths", "errorReason", "errorStack", "errorType", "fingerprint", "retryCount"),
    *("dlqRetryCount", "firstFailedAt", "lastFailedAt", "status", "lockedBy", "lockedAt"),
    *("nextRetryAt", "verdictDueAt", "resolution", "possibleDuplicate", "duplicateOf"),
    *("parentId", "previousId", "metadata", "replayAttempts", "edits", "history"),
    *("createdAt", "updatedAt"),
}
ONLY_WHOLE = {"originalMessage", "body", "headers", "replayAttempts", "edits", "history"}


def shown(
    envelope: Envelope | None = None, redaction: Redaction = NO_REDACTION, **changes: Any
) -> dict[str, Any]:
    return show.letter_document(a_kept(envelope, **changes), redaction=redaction)


def test_a_letter_has_every_name_of_the_contract() -> None:
    document = shown()
    assert set(document) >= CONTRACT
    assert document["id"] == LETTER_ID
    assert document["originalMessage"] == {"amount": 99.99}
    assert document["body"] == {
        "encoding": "utf8",
        "data": '{"amount": 99.99}',
        "truncated": False,
    }
    assert document["origin"] == {
        "vhost": "/",
        "queue": "payments",
        "exchange": "shop",
        "routingKey": "payment.created",
    }
    assert document["deaths"][0] == {
        "queue": "payments",
        "reason": "rejected",
        "count": 1,
        "exchange": "shop",
        "routingKeys": ["payment.created"],
        "at": "2026-02-11T11:59:37.123Z",
    }
    assert document["metadata"] == {
        "source": "payment-service",
        "priority": 1,
        "tags": ["payment", "critical"],
        "systemState": {"cpuUsage": 0.75, "memoryUsage": 0.6},
    }
    assert document["status"] == "dlq_pending"
    assert document["createdAt"] == "2026-02-11T12:00:07.123Z"
    (attempt,) = document["replayAttempts"]
    assert attempt["result"] == "failed"
    assert attempt["timestamp"] == "2026-02-11T12:00:07.123Z"
    assert document["history"] == [
        {
            "at": "2026-02-11T12:00:07.123Z",
            "actor": "collector",
            "from": None,
            "to": "dlq_pending",
            "reason": "arrived",
        }
    ]
    assert document["edits"] == []


def test_a_list_has_all_but_the_message_and_what_happened_to_it() -> None:
    summary = show.letter_summary(a_kept().letter)
    assert set(summary) >= CONTRACT - ONLY_WHOLE
    assert not set(summary) & ONLY_WHOLE
    assert summary.items() <= shown().items()


def test_bytes_that_are_no_text_are_base64() -> None:
    document = shown(an_envelope(b"\xff\x00"))
    assert document["body"] == {"encoding": "base64", "data": "/wA=", "truncated": False}
    assert document["originalMessage"] is None


@pytest.mark.parametrize(
    ("body", "most", "data", "truncated"),
    [
        (b"abc", 3, "abc", False),
        (b"abcd", 3, "abc", True),
        ("aé".encode(), 2, "a", True),
        (b"\xff\xff\xff\xff", 3, "////", True),
    ],
)
def test_a_body_that_is_cut_says_so(body: bytes, most: int, data: str, truncated: bool) -> None:
    document = show.body_document(body, None, most)
    assert (document["data"], document["truncated"]) == (data, truncated)


def test_a_body_that_a_rule_touches_is_marked_and_one_that_none_touches_is_exact() -> None:
    rules = Redaction((), ["$.pin"])
    exact = '{"a":  1.10}'
    assert shown(an_envelope(exact.encode()), rules)["body"]["data"] == exact
    document = shown(an_envelope(b'{"a":  1, "pin": 1234}'), rules)
    assert document["originalMessage"] == {"a": 1, "pin": "****"}
    assert document["body"] == {
        "encoding": "utf8",
        "data": '{"a": 1, "pin": "****"}',
        "truncated": False,
        "redacted": True,
    }


def test_a_content_encoding_that_could_not_be_undone_is_said() -> None:
    document = shown(an_envelope(b"plain"), content_encoding="gzip")
    assert document["bodyNote"] == (
        "shown undecoded: is not gzip, though its content encoding says so"
    )
    assert shown()["bodyNote"] is None


def test_headers_have_their_types_and_order_and_repeated_names() -> None:
    entries = [
        (b"a", fields.longstr("text")),
        (b"a", fields.longstr(b"\xff")),
        (b"b", fields.int32(-1)),
        (b"c", fields.boolean(True)),
        (b"d", fields.timestamp(NOON)),
        (b"e", b"d" + struct.pack(">d", math.nan)),
        (b"f", b"D" + b"\x02" + struct.pack(">i", 150)),
        (b"g", b"V"),
        (b"h", fields.table({"in": fields.array([fields.int64(2**60)])})),
        (b"\xff", b"x\x00\x00\x00\x01\x00"),
        (b"far", b"T" + b"\xff" * 8),
        (b"token", fields.int32(7)),
    ]
    raw = b"".join(fields.entry(name, field) for name, field in entries)
    envelope = an_envelope()
    object.__setattr__(envelope, "properties", b"\x20\x00" + len(raw).to_bytes(4, "big") + raw)
    assert shown(envelope, Redaction(["token"]))["headers"] == [
        {"name": "a", "type": "longstr", "value": "text"},
        {"name": "a", "type": "longstr", "value": "/w==", "encoding": "base64"},
        {"name": "b", "type": "int32", "value": -1},
        {"name": "c", "type": "bool", "value": True},
        {"name": "d", "type": "timestamp", "value": "2026-02-11T12:00:07.000Z"},
        {"name": "e", "type": "double", "value": "NaN"},
        {"name": "f", "type": "decimal", "value": "1.50"},
        {"name": "g", "type": "void", "value": None},
        {
            "name": "h",
            "type": "table",
            "value": [
                {"name": "in", "type": "array", "value": [{"type": "int64", "value": 2**60}]}
            ],
        },
        {
            "name": "/w==",
            "nameEncoding": "base64",
            "type": "bytes",
            "value": "AA==",
            "encoding": "base64",
        },
        {"name": "far", "type": "timestamp", "value": "VP//////////", "encoding": "base64"},
        {"name": "token", "type": "int32", "value": "****", "redacted": True},
    ]


def test_every_type_of_the_wire_has_a_word() -> None:
    assert set(TYPES) == {*fields.FIXED_SIZE, *fields.SIZED}


def test_other_properties_are_there_by_name() -> None:
    envelope = an_envelope()
    properties = Properties.empty().with_text("correlation_id", "c-1").with_text("app_id", "shop")
    object.__setattr__(envelope, "properties", properties.raw)
    assert shown(envelope)["properties"] == {"correlationId": "c-1", "appId": "shop"}


def test_a_property_section_that_cannot_be_read_is_given_as_its_bytes() -> None:
    envelope = an_envelope()
    object.__setattr__(envelope, "properties", b"\xff")
    document = shown(envelope)
    assert (document["headers"], document["properties"]) == ([], {})
    assert document["unreadableProperties"] == {"encoding": "base64", "data": "/w=="}


def test_nesting_beyond_what_is_read_is_given_as_its_bytes() -> None:
    field = fields.int32(1)
    for _ in range(fields.MAX_DEPTH + 10):
        field = fields.array([field])
    text = json.dumps(shown(an_envelope(deep=field))["headers"])
    assert '"encoding": "base64"' in text


@given(any_kept, st.sampled_from([NO_REDACTION, Redaction(["*"], ["$..*"])]))
def test_every_letter_can_be_shown(kept: Any, redaction: Redaction) -> None:
    document = show.letter_document(kept, redaction=redaction)
    json.dumps(document, allow_nan=False)


def test_edits_are_shown_with_their_messages_and_which_one_is_sent() -> None:
    edits = (an_edit(1, b"{}"), an_edit(2), an_edit(3, undone=True))
    kept = replace(a_kept(), edits=edits)
    first, second, third = show.letter_document(kept, redaction=NO_REDACTION)["edits"]
    assert second == {
        "number": 2,
        "at": "2026-02-11T12:02:07.123Z",
        "actor": "cli:ann",
        "reason": "the amount was wrong",
        "undone": False,
        "stands": True,
        "body": {"encoding": "utf8", "data": '{"amount": 1.10}', "truncated": False},
        "headers": [],
        "properties": {"contentType": "application/json"},
    }
    assert [edit["stands"] for edit in (first, second, third)] == [False, True, False]
    assert third["undone"]


def test_the_rules_hide_the_same_in_an_edit_as_in_the_original() -> None:
    hidden = an_envelope(token=fields.longstr("s3cret")).properties
    edit = an_edit(1, b'{"card": "s3cret"}', properties=hidden)
    document = show.letter_document(
        replace(a_kept(), edits=(edit,)), redaction=Redaction(["token"], ["$.card"])
    )
    assert "s3cret" not in json.dumps(document)
    assert document["edits"][0]["body"]["redacted"]


def test_a_group_counts_every_state() -> None:
    group = Group(
        fingerprint="f",
        error_type="T",
        reason="r",
        queue=None,
        counts={State.PENDING: 2},
        first_seen_at=NOON,
        last_seen_at=NOON,
    )
    document = show.group_document(group)
    assert document["letters"] == 2
    assert document["counts"] == {
        state.value: 2 if state is State.PENDING else 0 for state in State
    }
    assert "newest" not in document


def test_the_books_say_whether_they_are_right() -> None:
    states = dict.fromkeys(State, 1)
    ledger = Ledger(received=7, returned=0, states=states, deleted=1)
    assert show.audit_document(Audit(ledger=ledger, rows=states))["exact"]
    assert not show.audit_document(Audit(ledger=ledger, rows={**states, State.FAILED: 0}))["exact"]
