"""Edits are made: what stays, what is refused, and what is shown of them."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from redrive.amqp import fields
from redrive.amqp.properties import Properties
from redrive.domain.editing import Editable, PreparedEdit
from redrive.domain.filters import Filters
from redrive.domain.json_patch import read_patch
from redrive.domain.letter import Envelope
from redrive.domain.lifecycle import State
from redrive.errors import EditRefused, PatchDoesNotApply
from redrive.work.difference import difference
from redrive.work.edit import (
    EditOrder,
    as_sent,
    body_of_text,
    editable_of,
    prepare,
    text_to_edit,
)
from redrive.work.edit_group import Spool, survey
from redrive.work.redact import NO_REDACTION, Redaction
from tests.unit.work.letters import a_kept, an_edit, an_envelope

AMOUNT = read_patch('[{"op": "replace", "path": "/amount", "value": 1.10}]')


def envelope(
    body: bytes,
    content_type: str | None = None,
    content_encoding: str | None = None,
    **headers: bytes,
) -> Envelope:
    properties = Properties.empty().with_headers(headers)
    if content_type is not None:
        properties = properties.with_text("content_type", content_type)
    if content_encoding is not None:
        properties = properties.with_text("content_encoding", content_encoding)
    return replace(an_envelope(body), properties=properties.raw)


def edited(message: Envelope, order: EditOrder) -> PreparedEdit:
    order.check()
    prepared = prepare(editable_of(a_kept(message)), order)
    assert prepared is not None
    return prepared


def refusal(message: Envelope, order: EditOrder) -> str:
    with pytest.raises(EditRefused) as refused:
        edited(message, order)
    return str(refused.value)


def headers_of(prepared: PreparedEdit) -> list[tuple[str, bytes]]:
    return Properties.read(prepared.properties).entries()


# The body


def test_a_patch_changes_the_body_and_no_property() -> None:
    before = an_envelope(b'{"id": 12345678901234567890, "amount": 1.1}')
    prepared = edited(before, EditOrder(patch=AMOUNT))
    assert prepared.body == b'{"id": 12345678901234567890, "amount": 1.10}'
    assert prepared.properties == before.properties


def test_an_edit_is_made_from_the_edit_that_stands() -> None:
    kept = replace(
        a_kept(), edits=(an_edit(1, b'{"amount": 2, "note": 1}'), an_edit(2, b"{}", undone=True))
    )
    prepared = prepare(editable_of(kept), EditOrder(patch=AMOUNT))
    assert prepared is not None
    assert (prepared.body, prepared.made_from) == (b'{"amount": 1.10, "note": 1}', 1)


def test_an_edit_that_changes_nothing_is_none() -> None:
    kept = a_kept(an_envelope(b'{"amount": 1.10}', n=fields.int32(1)))
    order = EditOrder(patch=AMOUNT, set_headers=(("n", "1"),), content_type="application/json")
    assert prepare(editable_of(kept), order) is None


@pytest.mark.parametrize("state", [State.PROCESSING, State.ARCHIVED])
def test_a_letter_that_may_not_be_edited_is_not(state: State) -> None:
    with pytest.raises(EditRefused):
        prepare(editable_of(a_kept(status=state)), EditOrder(patch=AMOUNT))


@pytest.mark.parametrize(
    ("body", "content_type", "content_encoding"),
    [
        ("\ufeff{}".encode(), "application/json", None),
        ("\ufeff{}".encode("utf-16-le"), "application/json", None),
        ("\ufeff{}".encode("utf-16-be"), "application/json", None),
        ("{}".encode("utf-32-be"), "application/json", None),
        ('{"é": 1}'.encode("latin-1"), "application/json; charset=iso-8859-1", None),
        ('{"é": 1}'.encode("latin-1"), "application/json", "iso-8859-1"),
        ('{"é": 1}'.encode(), None, "UTF-8"),
    ],
)
def test_a_patched_body_keeps_its_charset_and_its_byte_order_mark(
    body: bytes, content_type: str | None, content_encoding: str | None
) -> None:
    patch = read_patch('[{"op": "add", "path": "/new", "value": 1}]')
    undo = read_patch('[{"op": "remove", "path": "/new"}]')
    before = envelope(body, content_type, content_encoding)
    changed = edited(before, EditOrder(patch=patch))
    assert changed.body != body
    again = replace(before, body=changed.body)
    assert edited(again, EditOrder(patch=undo)).body == body


def test_a_value_that_the_charset_does_not_have_is_refused() -> None:
    before = envelope(b'{"a": 1}', "application/json; charset=iso-8859-1")
    patch = read_patch('[{"op": "replace", "path": "/a", "value": "€"}]')
    assert "cannot be written in its charset" in refusal(before, EditOrder(patch=patch))


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (envelope(b"\xff\xfe\x00"), "the body is no text"),
        (envelope(b"hello", "text/plain"), "the body is no JSON"),
        (envelope(gzip.compress(b"{}"), None, "gzip"), "has the content encoding gzip"),
        (envelope(b"{}", None, "br"), "has the content encoding br"),
    ],
)
def test_a_body_that_cannot_be_patched_says_why(before: Envelope, reason: str) -> None:
    with pytest.raises(PatchDoesNotApply) as refused:
        prepare(editable_of(a_kept(before)), EditOrder(patch=AMOUNT))
    assert reason in str(refused.value)


def test_a_new_body_must_be_what_its_content_type_says() -> None:
    before = an_envelope()
    assert "is no JSON" in refusal(before, EditOrder(body=b"{"))
    assert "is no JSON" in refusal(envelope(b"{"), EditOrder(content_type="application/json"))
    assert edited(before, EditOrder(body=b"{", content_type="text/plain")).body == b"{"
    assert "is no text" in refusal(before, EditOrder(body=b"\xff", content_type="text/plain"))
    assert edited(before, EditOrder(body=b"\xff", content_type="")).body == b"\xff"


def test_a_new_body_must_be_encoded_as_it_says() -> None:
    before = envelope(gzip.compress(b"{}"), "application/json", "gzip")
    assert "is not gzip" in refusal(before, EditOrder(body=b"{}"))
    assert "is no JSON" in refusal(before, EditOrder(body=gzip.compress(b"{")))
    new = gzip.compress(b'{"a": 1}')
    assert edited(before, EditOrder(body=new)).body == new


def test_headers_of_a_letter_with_a_broken_body_can_be_edited() -> None:
    assert edited(an_envelope(b"{"), EditOrder(set_headers=(("a", "b"),))).body == b"{"


def test_the_text_for_an_editor_goes_back_in_its_charset() -> None:
    before = envelope("größe".encode("latin-1"), "text/plain; charset=latin-1")
    assert text_to_edit(before) == "größe"
    assert body_of_text(before, "Größe") == "Größe".encode("latin-1")


# Headers


def test_headers_are_set_and_removed_and_the_others_stay() -> None:
    before = an_envelope(a=fields.longstr("1"), b=fields.int64(2), c=fields.longstr("3"))
    order = EditOrder(set_headers=(("a", "one"), ("d", "4")), remove_headers=("c",))
    assert headers_of(edited(before, order)) == [
        ("a", fields.longstr("one")),
        ("b", fields.int64(2)),
        ("d", fields.longstr("4")),
    ]


@pytest.mark.parametrize(
    ("there", "value", "expected"),
    [
        (fields.int32(1), "-7", fields.int32(-7)),
        (b"L" + bytes(8), "9", b"L" + bytes(7) + b"\x09"),
        (b"B\x01", "255", b"B\xff"),
        (fields.boolean(True), "False", fields.boolean(False)),
        (b"d\x7f\xf8\x00\x00\x00\x00\x00\x00", "1.5", b"d\x3f\xf8\x00\x00\x00\x00\x00\x00"),
        (b"V", "text", fields.longstr("text")),
    ],
)
def test_a_header_keeps_its_type(there: bytes, value: str, expected: bytes) -> None:
    order = EditOrder(set_headers=(("x", value),))
    assert headers_of(edited(an_envelope(x=there), order)) == [("x", expected)]


@pytest.mark.parametrize(
    ("there", "value"),
    [
        (fields.int32(1), "one"),
        (fields.int32(1), str(2**31)),
        (b"d" + bytes(8), "nan"),
        (b"f" + bytes(4), "1e39"),
        (fields.boolean(True), "1"),
        (fields.array([]), "[]"),
    ],
)
def test_a_value_that_is_not_of_the_headers_type_is_refused(there: bytes, value: str) -> None:
    message = an_envelope(x=there)
    assert "header 'x' is of type" in refusal(message, EditOrder(set_headers=(("x", value),)))
    as_text = EditOrder(set_headers=(("x", value),), remove_headers=("x",))
    assert headers_of(edited(message, as_text)) == [("x", fields.longstr(value))]


def test_a_header_that_is_not_there_cannot_be_removed() -> None:
    assert "no header 'x'" in refusal(an_envelope(), EditOrder(remove_headers=("x",)))


@pytest.mark.parametrize(
    "order",
    [
        EditOrder(set_headers=(("redrive-id", "1"),)),
        EditOrder(remove_headers=("x-death",)),
        EditOrder(body=b"", patch=AMOUNT),
        EditOrder(content_type="x" * 256),
    ],
)
def test_an_order_that_fits_no_message_is_refused(order: EditOrder) -> None:
    with pytest.raises(EditRefused):
        order.check()


def test_properties_that_cannot_be_read_keep_only_the_headers_from_being_edited() -> None:
    broken = replace(an_envelope(), properties=b"\xff")
    assert "cannot be read" in refusal(broken, EditOrder(set_headers=(("a", "b"),)))
    assert edited(broken, EditOrder(body=b"new")).properties == b"\xff"


# Many letters


@pytest.fixture
def spool() -> Iterator[Spool]:
    with Spool() as opened:
        yield opened


class Some:
    """Messages, as a store hands them out."""

    def __init__(self, *bodies: bytes, status: State = State.PENDING) -> None:
        self.kept = [
            a_kept(an_envelope(body), id=f"letter-{number}", status=status)
            for number, body in enumerate(bodies)
        ]

    async def editable(self, _: Filters) -> AsyncIterator[Editable]:
        for kept in self.kept:
            yield editable_of(kept)


async def test_a_survey_says_how_many_letters_an_edit_fits_and_why_not_the_others(
    spool: Spool,
) -> None:
    letters = Some(b"{}", b'{"amount": 1}', b'{"amount": 1.10}', b"[]", b"{}")
    found = await survey(letters, Filters(), EditOrder(patch=AMOUNT), spool)
    assert (found.letters, found.fit, found.unchanged, found.unfit_letters) == (5, 1, 1, 3)
    first, second = found.unfit
    assert (first.letters, first.example) == (2, "letter-0")
    assert "the document has no" in first.reason
    assert second.letters == 1
    assert found.sample is not None
    assert found.sample.letter_id == "letter-1"
    assert found.sample.after.body == b'{"amount": 1.10}'


async def test_a_survey_stops_at_the_limit(
    spool: Spool,
) -> None:
    letters = Some(*[b'{"amount": 1}'] * 5)
    found = await survey(letters, Filters(), EditOrder(patch=AMOUNT), spool, limit=3)
    assert found.letters == 3


async def test_reasons_beyond_number_are_counted_together(
    spool: Spool,
) -> None:
    letters = Some(*[b"[" + b"1," * number + b"1]" for number in range(1, 41)])
    patch = read_patch('[{"op": "remove", "path": "/99"}]')
    found = await survey(letters, Filters(), EditOrder(patch=patch), spool)
    assert found.unfit_letters == 40
    assert len(found.unfit) == 21
    assert found.unfit[0].reason == "for other reasons"


async def test_the_edits_of_a_survey_come_out_of_the_spool_as_they_went_in(spool: Spool) -> None:
    letters = Some(
        *[b'{"amount": 1}'] * 600, b"{}", b'{"amount": 1, "text": "' + b"x" * 2**20 + b'"}'
    )
    order = EditOrder(patch=AMOUNT)
    await survey(letters, Filters(), order, spool)
    batches = [batch async for batch in spool.batches()]
    assert [len(batch) for batch in batches] == [500, 101]
    fit = [letters.kept[index] for index in (*range(600), 601)]
    expected = [prepare(editable_of(kept), order) for kept in fit]
    assert [edit for batch in batches for edit in batch] == expected


async def test_a_letter_that_changed_since_the_survey_is_counted_as_unfit(spool: Spool) -> None:
    letters = Some(b'{"amount": 1}', b'{"amount": 2}')
    found = await survey(letters, Filters(), EditOrder(patch=AMOUNT), spool)
    found.leave_out("letter-1", "it is outstanding")
    assert (found.fit, found.unfit_letters, found.letters) == (1, 1, 2)


# What is shown


def test_a_difference_shows_lines_of_json_however_it_is_written() -> None:
    before = an_envelope(b'{"id":1,"amount":1.1}', n=fields.int32(1))
    after = an_envelope(b'{"id":1,"amount":1.10}', n=fields.int32(2))
    lines = difference(before, after, NO_REDACTION)
    assert "-header n (int32): 1" in lines
    assert "+header n (int32): 2" in lines
    assert '-  "amount": 1.1' in lines
    assert '+  "amount": 1.10' in lines


def test_a_difference_hides_what_the_rules_hide() -> None:
    before = an_envelope(b'{"card":"s3cret","a":1}', token=fields.longstr("s3cret"))
    after = an_envelope(b'{"card":"s3cret2","a":2}', token=fields.longstr("s3cret2"))
    lines = difference(before, after, Redaction(["token"], ["$.card"]))
    assert "s3cret" not in "\n".join(lines)
    assert '+  "a": 2' in lines


def test_what_is_sent_is_the_original_where_nothing_was_edited() -> None:
    assert as_sent(a_kept()) == a_kept().envelope
