"""Headers that cannot be read tell no secret, whoever shows them, while any header is hidden."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.console import Console

from redrive.amqp import fields
from redrive.cli.letter_view import LetterView
from redrive.domain.letter import Envelope, Kept
from redrive.settings import RedactionSettings
from redrive.work.difference import difference
from redrive.work.export import Unusable, read_line, write_line
from redrive.work.redact import NO_REDACTION, Redaction
from redrive.work.show import letter_document
from tests.unit.work.letters import NOON, a_kept, an_edit, an_envelope

SECRET = b"hunter2"
RULES = Redaction.by(RedactionSettings())
_ENTRY = fields.entry(b"Authorization", fields.longstr(SECRET))
_BASE64 = re.compile(r"[A-Za-z0-9+/]{4,}={0,2}")


def table_of(inside: bytes) -> bytes:
    return b"F" + len(inside).to_bytes(4, "big") + inside


def nested_too_deep() -> bytes:
    field = table_of(_ENTRY)
    for _ in range(fields.MAX_DEPTH):
        field = fields.table({"in": field})
    return field


NO_SECTION = b"\x20\x00" + table_of(_ENTRY)[1:] + b"more than it says"
CASES = {
    "nested too deep": an_envelope(outer=nested_too_deep()),
    "a table that is cut off": an_envelope(outer=table_of(_ENTRY + b"\x05cut")),
    "an array that is cut off": an_envelope(outer=fields.array([table_of(_ENTRY), b"S"])),
    "no property section": replace(an_envelope(), properties=NO_SECTION),
}


def kept_with(envelope: Envelope) -> Kept:
    edit = replace(an_edit(1), properties=envelope.properties)
    return replace(a_kept(envelope, content_type=None, deaths=()), edits=(edit,))


def viewed(envelope: Envelope, redaction: Redaction) -> str:
    out = Console(file=io.StringIO(), width=1_000)
    at = NOON + timedelta(minutes=3)
    LetterView(kept_with(envelope), redaction, at, out, full=True).print()
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


WAYS: dict[str, Callable[[Envelope, Redaction], str]] = {
    "show": lambda one, rules: json.dumps(letter_document(kept_with(one), redaction=rules)),
    "export": lambda one, rules: write_line(kept_with(one), rules).content.decode(),
    "difference": lambda one, rules: "\n".join(difference(one, an_envelope(), rules)),
    "view": viewed,
}


def told(text: str) -> bool:
    """Whether the secret is in a text, or in what base64 there is in it."""
    found = [each for each in _BASE64.findall(text) if len(each) % 4 == 0]
    return any(SECRET in each for each in (text.encode(), *map(base64.b64decode, found)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_no_way_of_showing_headers_that_cannot_be_read_tells_what_is_hidden(
    case: str, way: str
) -> None:
    assert not told(WAYS[way](CASES[case], RULES))


@pytest.mark.parametrize("case", CASES)
def test_headers_that_cannot_be_read_are_marked_as_hidden(case: str) -> None:
    document = letter_document(kept_with(CASES[case]), redaction=RULES)
    for message in (document, *document["edits"]):
        shown = message.get("unreadableProperties", message["headers"])
        assert '": "****", "redacted": true' in json.dumps(shown)
    line = write_line(kept_with(CASES[case]), RULES)
    assert line.redacted
    assert isinstance(read_line(line.content), Unusable)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (RULES, "the properties cannot be read, and are hidden by redaction.headers"),
        (NO_REDACTION, "the properties cannot be read: see --output json"),
    ],
    ids=["hidden", "shown"],
)
def test_who_looks_at_properties_that_cannot_be_read_is_sent_to_their_bytes_if_there_are_any(
    rules: Redaction, said: str
) -> None:
    assert said in viewed(CASES["no property section"], rules)
    document = letter_document(kept_with(CASES["no property section"]), redaction=rules)
    assert told(json.dumps(document)) is said.endswith("--output json")


@pytest.mark.parametrize("rules", [NO_REDACTION, Redaction((), ["$.card"])], ids=["none", "bodies"])
@pytest.mark.parametrize("case", CASES)
def test_where_no_header_is_hidden_they_are_shown_and_come_back_byte_for_byte(
    case: str, rules: Redaction
) -> None:
    kept = kept_with(CASES[case])
    assert told(json.dumps(letter_document(kept, redaction=rules)))
    line = write_line(kept, rules)
    assert not line.redacted
    assert read_line(line.content) == kept
