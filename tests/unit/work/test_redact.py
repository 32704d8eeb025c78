"""Redaction: what a rule touches is nowhere to be seen, and what none touches is exact."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import fields
from redrive.amqp.properties import Properties
from redrive.domain.masking import MASK
from redrive.settings import RedactionSettings
from redrive.work.decode import decode_body
from redrive.work.redact import NO_REDACTION, Redaction
from tests.services.letters import arrival
from tests.unit.work.letters import an_envelope

SECRET = "hunter2"


def redacted(paths: list[str], document: Any) -> Any:
    decoded = decode_body(json.dumps(document).encode(), "application/json", None)
    body = Redaction((), paths).body(decoded)
    assert body is None or json.loads(body.text) == body.document
    return body.document if body else None


@pytest.mark.parametrize(
    ("path", "document", "shown"),
    [
        ("$.a", {"a": SECRET, "b": 1}, {"a": "****", "b": 1}),
        ("$.a", {"a": {"deep": SECRET}}, {"a": "****"}),
        ("$..a", {"b": [{"a": 1}, {"a": {"a": 2}}]}, {"b": [{"a": "****"}, {"a": "****"}]}),
        ("$[-1]", [1, 2, SECRET], [1, 2, "****"]),
        ("$['a','b']", {"a": 1, "b": 2, "c": 3}, {"a": "****", "b": "****", "c": 3}),
        ("$[?@.kind == 'card'].number", [{"kind": "card", "number": 1}], None),
        ("$", {"a": 1}, "****"),
        ("$.*", {"a": 1}, {"a": "****"}),
        ("$.missing", {"a": 1}, None),
        ("$.a", [1], None),
        ("$.a", 2**70, None),
    ],
)
def test_a_rule_hides_what_it_finds(path: str, document: Any, shown: Any) -> None:
    if "?@" in path:
        shown = [{"kind": "card", "number": "****"}]
    assert redacted([path], document) == shown


def test_the_parsed_document_itself_stays_as_it_is() -> None:
    decoded = decode_body(b'{"a": 1}', None, None)
    Redaction((), ["$.a"]).body(decoded)
    assert decoded.document == {"a": 1}


def test_a_repeated_key_gives_nothing_away() -> None:
    decoded = decode_body(b'{"a": {"secret": "hunter2"}, "a": 5}', None, None)
    body = Redaction((), ["$.a.secret"]).body(decoded)
    assert body is not None
    assert SECRET not in body.text


def test_a_rule_that_cannot_be_applied_hides_everything() -> None:
    depth = 99
    decoded = decode_body(b"[" * depth + b'"hunter2"' + b"]" * depth, None, None)
    body = Redaction((), ["$..a"]).body(decoded)
    assert body is None or SECRET not in body.text


def test_what_is_no_json_is_shown_as_it_is() -> None:
    assert Redaction((), ["$..*"]).body(decode_body(b"a: 1", None, None)) is None


def test_half_of_a_surrogate_pair_is_no_obstacle() -> None:
    decoded = decode_body(b'{"a": "\\ud800", "b": 1}', None, None)
    body = Redaction((), ["$.b"]).body(decoded)
    assert body is not None
    body.text.encode()


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("Authorization", True),
        ("x-authorization", True),
        ("COOKIE", True),
        ("cookies-eaten", False),
        ("X-Api-Key", True),
        ("db_password_old", True),
        ("my.token", True),
        ("x-death", False),
        ("redrive-error-reason", False),
    ],
)
def test_the_default_rules_hide_headers_that_usually_hold_secrets(name: str, hidden: bool) -> None:
    assert Redaction.by(RedactionSettings()).hides(name) is hidden


def test_a_glob_takes_brackets_and_dots_literally() -> None:
    rules = Redaction(["a.[b]?*"])
    assert rules.hides("a.[b]c.d")
    assert not rules.hides("axb1")


def test_hidden_headers_are_replaced_also_in_tables_and_arrays_and_where_repeated() -> None:
    inner = fields.table({"secret": fields.longstr(SECRET), "open": fields.int32(1)})
    raw = b"".join(
        fields.entry(name, field)
        for name, field in [
            (b"token", fields.longstr(SECRET)),
            (b"token", fields.longstr(SECRET)),
            (b"nested", fields.array([inner, fields.longstr("kept")])),
            (b"open", fields.longstr("as it is")),
        ]
    )
    section = b"\x20\x00" + len(raw).to_bytes(4, "big") + raw
    shown = Redaction(["token", "secret"]).properties(section)
    assert SECRET.encode() not in shown
    assert Properties.read(shown).headers() == {
        "token": "****",
        "nested": [{"secret": "****", "open": 1}, "kept"],
        "open": "as it is",
    }


def test_an_envelope_that_no_rule_touches_is_the_very_same() -> None:
    envelope = an_envelope(open=fields.longstr("x"))
    assert Redaction(["token"], ["$.missing"]).envelope(envelope) is envelope


def test_an_encoded_body_that_a_rule_touches_is_not_left_in_its_encoding() -> None:
    envelope = an_envelope(gzip.compress(json.dumps({"pin": SECRET}).encode()))
    properties = Properties.read(envelope.properties).with_text("content_encoding", "gzip")
    packed = an_envelope(envelope.body)
    object.__setattr__(packed, "properties", properties.raw)
    assert Redaction((), ["$.pin"]).envelope(packed).body == b'{"pin": "****"}'


def test_where_no_header_is_hidden_one_that_cannot_be_read_stays_as_it_is() -> None:
    envelope = an_envelope(broken=b"A\x00\x00\x00\x01\x00")
    assert NO_REDACTION.envelope(envelope) is envelope


@given(st.binary(max_size=60))
def test_any_property_section_is_borne(raw: bytes) -> None:
    assert NO_REDACTION.properties(raw) == raw
    Redaction(["*"]).properties(raw)


def test_a_rule_for_a_header_that_failures_are_read_from_hides_reason_and_stack() -> None:
    letter = replace(arrival().letter, error_reason="token abc refused", error_stack="at abc")
    hidden = Redaction(headers=["x-exception-*"]).letter(letter)
    assert (hidden.error_reason, hidden.error_stack) == (MASK, MASK)
    assert Redaction(headers=["x-other"]).letter(letter) is letter


def test_a_rule_for_tags_hides_them() -> None:
    letter = replace(arrival().letter, tags=("vip",))
    assert Redaction(headers=["redrive-tags"]).letter(letter).tags == (MASK,)
