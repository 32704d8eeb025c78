"""What says to be JSON and is hard to search, or cannot be, tells no secret, whoever shows it."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from redrive.amqp.properties import Properties
from redrive.cli.letter_view import LetterView
from redrive.domain.json_patch import read_patch
from redrive.domain.letter import Envelope, Kept
from redrive.errors import PatchDoesNotApply
from redrive.work.content import content_document
from redrive.work.decode import decode_body
from redrive.work.difference import difference
from redrive.work.edit import EditOrder, editable_of, prepare
from redrive.work.export import Unusable, read_line, write_line
from redrive.work.redact import Redaction, content_of
from redrive.work.show import letter_document
from tests.unit.work.letters import NOON, a_kept, an_edit, an_envelope

SECRET = "hunter2"
RULES = Redaction((), ["$.card.number", "$..password"])
CARD = b'{"card": {"number": "hunter2"}, "more": %s}'
PASSWORD = b'{"password": "hunter2"}'
JSON = "application/json"


def message(body: bytes, content_type: str | None, content_encoding: str | None) -> Envelope:
    properties = Properties.empty()
    if content_type is not None:
        properties = properties.with_text("content_type", content_type)
    if content_encoding is not None:
        properties = properties.with_text("content_encoding", content_encoding)
    return replace(an_envelope(body), properties=properties.raw)


SEARCHED = {
    "a number beyond a double": (message(CARD % b"1e400", JSON, None), "1E+400"),
    "more digits than Python reads": (message(CARD % (b"9" * 5000), JSON, None), "9" * 5000),
    "what Python writes": (message(CARD % b"[NaN, -Infinity]", JSON, None), "[NaN, -Infinity]"),
    "without a content type": (message(CARD % b"NaN", None, None), "NaN"),
    "encoded": (message(gzip.compress(CARD % b"1e400"), JSON, "gzip"), "1E+400"),
}
HIDDEN = {
    "deep": (message(b"[" * 2000 + PASSWORD + b"]" * 2000, JSON, None), "deeper than 100"),
    "rather deep": (message(b"[" * 101 + PASSWORD + b"]" * 101, None, None), "deeper than 100"),
    "a line each": (message(PASSWORD + b"\n" + PASSWORD, JSON, None), "extra data at line 2"),
    "ndjson": (message(b"1\n" + PASSWORD, "application/x-ndjson", None), "extra data at line 2"),
    "cut off": (message(PASSWORD[:-1], JSON, None), "is no JSON: expecting"),
    "only begins like it": (message(b"\n " + PASSWORD[:-1], "text/plain", None), "is no JSON"),
    "an exponent beyond all": (message(CARD % b"1e99999999999999999999", JSON, None), "exponent"),
    "said to be gzip": (message(PASSWORD[:-1], None, "gzip"), "is not gzip"),
    "cut gzip": (message(gzip.compress(PASSWORD)[:-4], JSON, "gzip"), "is not gzip"),
    "cut gzip of anything": (message(gzip.compress(PASSWORD)[:-4], None, "gzip"), "is not gzip"),
    "unknown encoding": (message(PASSWORD[:-1], "a/b+json", "br"), "'br' is not one that is read"),
    "another charset": (message('{"password": "hunter2 é"}'.encode("latin-1"), JSON, None), "text"),
    "utf-16": (message('{"password": "hunter2"}'.encode("utf-16"), None, None), "is no text"),
}
ALL = {name: envelope for name, (envelope, _) in {**SEARCHED, **HIDDEN}.items()}


def kept_with(envelope: Envelope) -> Kept:
    content_type, content_encoding = content_of(envelope)
    edit = replace(an_edit(1, envelope.body), properties=envelope.properties)
    kept = a_kept(envelope, content_type=content_type, content_encoding=content_encoding)
    return replace(kept, edits=(edit,))


def viewed(envelope: Envelope) -> str:
    out = Console(file=io.StringIO(), width=200)
    LetterView(kept_with(envelope), RULES, NOON + timedelta(minutes=3), out, full=True).print()
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


WAYS: dict[str, Callable[[Envelope], str]] = {
    "show": lambda one: json.dumps(
        letter_document(kept_with(one), redaction=RULES), allow_nan=False
    ),
    "export": lambda one: write_line(kept_with(one), RULES).content.decode(),
    "content": lambda one: json.dumps(content_document(one, RULES, 2**20), allow_nan=False),
    "difference": lambda one: "\n".join(difference(one, an_envelope(b"{}"), RULES)),
    "view": viewed,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", ALL)
def test_no_way_of_showing_a_body_tells_what_is_hidden(case: str, way: str) -> None:
    body = ALL[case].body
    text = WAYS[way](ALL[case])
    assert SECRET not in text
    assert base64.b64encode(body).decode()[:44] not in text
    assert body[:8].hex(" ") not in text


@pytest.mark.parametrize("case", SEARCHED)
def test_what_can_be_searched_keeps_its_other_parts(case: str) -> None:
    envelope, rest = SEARCHED[case]
    document = letter_document(kept_with(envelope), redaction=RULES)
    assert document["body"] == {
        "encoding": "utf8",
        "data": f'{{"card": {{"number": "****"}}, "more": {rest}}}',
        "truncated": False,
        "redacted": True,
    }
    assert (document["originalMessage"], document["bodyNote"]) == (None, None)


@pytest.mark.parametrize("case", HIDDEN)
def test_what_cannot_be_searched_is_hidden_as_a_whole_and_says_why(case: str) -> None:
    envelope, why = HIDDEN[case]
    document = letter_document(kept_with(envelope), redaction=RULES)
    assert document["body"]["data"] == '"****"'
    assert document["body"]["redacted"]
    content: dict[str, Any] = content_document(envelope, RULES, 1000)
    shown = {key: content[key] for key in ("kind", "text", "hex", "redacted", "editable")}
    assert shown == {
        "kind": "json",
        "text": '"****"',
        "hex": None,
        "redacted": True,
        "editable": False,
    }
    beginning = "hidden as a whole, since redaction.json_paths cannot be applied: it "
    for note in (document["bodyNote"], content["problem"]):
        assert note.startswith(beginning)
        assert why in note
    assert document["bodyNote"] in viewed(envelope)


@pytest.mark.parametrize("case", ALL)
def test_such_a_line_of_an_export_is_marked_and_not_taken_back(case: str) -> None:
    line = write_line(a_kept(ALL[case]), RULES)
    assert line.redacted
    assert isinstance(read_line(line.content), Unusable)


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize(
    "order",
    [
        EditOrder(content_type="text/plain"),
        EditOrder(patch=read_patch('[{"op": "move", "from": "/card", "path": "/shown"}]')),
    ],
)
def test_no_edit_brings_it_to_light(case: str, order: EditOrder) -> None:
    with pytest.raises(PatchDoesNotApply, match="a redaction rule hides parts of the body"):
        prepare(editable_of(a_kept(ALL[case])), order, RULES)


@pytest.mark.parametrize(
    ("body", "content_type", "content_encoding"),
    [
        (b"password: hunter2", "text/plain", None),
        (b"password: hunter2", None, None),
        (b"\x00\x00\x00\x00{password", "avro/binary", None),
        (b"\x89PNG{", None, None),
        (b"", JSON, "gzip"),
        (b"hunter2", "text/plain", "gzip"),
        (b'{"other": 1e400}', JSON, None),
    ],
)
def test_what_is_no_json_or_holds_nothing_hidden_is_shown_as_it_is(
    body: bytes, content_type: str | None, content_encoding: str | None
) -> None:
    assert RULES.body(decode_body(body, content_type, content_encoding)) is None


def test_a_rule_with_a_condition_on_a_number_finds_one_beyond_a_double() -> None:
    decoded = decode_body(b'[{"n": 1e400, "pin": "hunter2"}]', JSON, None)
    body = Redaction((), ["$[?@.n > 5].pin"]).body(decoded)
    assert body is not None
    assert body.text == '[{"n": 1E+400, "pin": "****"}]'
