"""What is sent when a message is published again (guarantee 3)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import Delivery, Properties, fields
from redrive.amqp.republish import marked_redelivered, republished
from redrive.domain import headers
from redrive.errors import Unpublishable
from tests.strategies import (
    DELIVERY_MODE,
    Entry,
    Section,
    header_entries,
    hostile_sections,
    inside_of,
    nested_to,
    not_finite,
    sections,
    sized,
)
from tests.strategies import fields as any_field

TOUCHED = {*map(fields.octets, (*headers.WRITTEN, *headers.BROKERS_OWN)), b"CC", b"BCC"}
FINITE = any_field(finite=True)
DEATH = sized(b"F", b"\x05queue" + sized(b"S", b"q"))


def delivered(raw: bytes, *, redelivered: bool = False) -> Delivery:
    return Delivery(1, redelivered, "e", "k", raw, b"body")


def with_headers(*entries: Entry) -> bytes:
    inside = inside_of(list(entries))
    return b"\x20\x00" + struct.pack(">I", len(inside)) + inside


def again(raw: bytes, *, redelivered: bool = False, user: str = "me") -> Properties:
    return Properties.read(republished(delivered(raw, redelivered=redelivered), user=user))


def entries_of(properties: Properties) -> list[Entry]:
    return [(fields.octets(name), field) for name, field in properties.entries()]


def death(number: int) -> bytes:
    return sized(b"F", b"\x01n" + b"I" + number.to_bytes(4))


def array(*items: bytes) -> bytes:
    return sized(b"A", b"".join(items))


# -- what stays ----------------------------------------------------------------------------------


@given(sections(entries=header_entries(FINITE)), st.booleans())
def test_every_header_of_the_publisher_stays_as_it_was(section: Section, redelivered: bool) -> None:
    found = entries_of(again(section.raw, redelivered=redelivered))
    theirs = [each for each in section.entries if each[0] not in TOUCHED]
    assert [each for each in found if each[0] not in TOUCHED] == theirs


@given(sections(entries=header_entries(FINITE)), st.booleans())
def test_every_property_but_those_set_aside_stays_as_it_was(
    section: Section, redelivered: bool
) -> None:
    found = Section(again(section.raw, redelivered=redelivered)._parts, []).others
    gone = {7, 11}  # expiration, user_id
    expected = {i: part for i, part in section.others.items() if i not in gone}
    assert found == expected | {DELIVERY_MODE: b"\x02"}


@given(sections(entries=st.just([]), without=frozenset({"user_id", "expiration"})))
def test_a_message_that_needs_nothing_is_only_made_persistent(section: Section) -> None:
    persistent = Section(section.parts | {DELIVERY_MODE: b"\x02"}, [])
    assert republished(delivered(section.raw), user="me") == persistent.raw


@given(hostile_sections(), st.booleans())
def test_any_bytes_are_sent_again_or_unpublishable(raw: bytes, redelivered: bool) -> None:
    try:
        sent = republished(delivered(raw, redelivered=redelivered), user="me")
    except Unpublishable:
        return
    assert isinstance(sent, bytes)


# -- what goes -----------------------------------------------------------------------------------


@given(st.sampled_from(headers.BROKERS_OWN), FINITE)
def test_a_header_of_the_brokers_own_goes_whatever_it_holds(name: str, field: bytes) -> None:
    found = again(with_headers((name.encode(), field), (b"mine", b"V")))
    assert name not in found.header_names


def test_a_header_that_only_begins_like_the_brokers_stays() -> None:
    assert again(with_headers((b"x-deaths", b"V"))).header_names == ["x-deaths"]


# -- deaths --------------------------------------------------------------------------------------


def test_deaths_are_kept_oldest_first() -> None:
    found = again(with_headers((b"x-death", array(death(3), death(2), death(1)))))
    assert found.header_field("redrive-deaths") == array(death(1), death(2), death(3))


def test_a_single_death_is_kept() -> None:
    found = again(with_headers((b"x-death", array(DEATH))))
    assert found.header_field("redrive-deaths") == array(DEATH)


def test_new_deaths_come_after_those_that_were_carried_along() -> None:
    raw = with_headers(
        (b"redrive-deaths", array(death(1), death(2))), (b"x-death", array(death(4), death(3)))
    )
    found = again(raw)
    assert found.header_field("redrive-deaths") == array(*map(death, range(1, 5)))


def test_deaths_carried_along_stay_when_there_are_no_new_ones() -> None:
    found = again(with_headers((b"redrive-deaths", array(death(1), death(2)))))
    assert found.header_field("redrive-deaths") == array(death(1), death(2))


@given(st.integers(0, 30), st.integers(1, 30))
def test_of_more_than_twenty_deaths_the_newest_are_kept(old: int, new: int) -> None:
    raw = with_headers(
        (b"redrive-deaths", array(*map(death, range(old)))),
        (b"x-death", array(*map(death, reversed(range(old, old + new))))),
    )
    expected = array(*map(death, range(max(0, old + new - 20), old + new)))
    assert again(raw).header_field("redrive-deaths") == expected


@given(FINITE, FINITE)
def test_forged_deaths_of_any_type_do_not_raise(x_death: bytes, known: bytes) -> None:
    again(with_headers((b"x-death", x_death), (b"redrive-deaths", known)))


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_forged_deaths_full_of_nonsense_do_not_raise(x_death: bytes, known: bytes) -> None:
    raw = with_headers((b"x-death", sized(b"A", x_death)), (b"redrive-deaths", sized(b"A", known)))
    republished_or_poison(raw)


@pytest.mark.parametrize("inside", [b"F", b"F\x00", b"F\x00\x00\x00\x05"])
def test_a_death_that_ends_within_its_own_length_adds_nothing(inside: bytes) -> None:
    found = again(with_headers((b"x-death", sized(b"A", inside))))
    assert found.header_field("redrive-deaths") == array()


def republished_or_poison(raw: bytes) -> None:
    try:
        republished(delivered(raw), user="me")
    except Unpublishable:
        return


# -- what is set aside ---------------------------------------------------------------------------

USER_ID = b"\x00\x10\x05alice"
EXPIRATION = b"\x01\x00\x0560000"


def test_the_user_id_of_someone_else_is_set_aside() -> None:
    found = again(USER_ID, user="me")
    assert (found.get("user_id"), found.header("redrive-user-id")) == (None, "alice")


def test_our_own_user_id_stays() -> None:
    found = again(USER_ID, user="alice")
    assert (found.get("user_id"), found.header_names) == ("alice", [])


def test_the_expiration_is_set_aside() -> None:
    found = again(EXPIRATION)
    assert (found.get("expiration"), found.header("redrive-expiration")) == (None, "60000")


def test_a_user_id_that_is_not_utf_8_is_set_aside_with_its_bytes() -> None:
    assert again(b"\x00\x10\x01\xff").header("redrive-user-id") == b"\xff"


@pytest.mark.parametrize("name", ["CC", "BCC"])
@given(field=FINITE)
def test_a_header_that_would_multiply_the_message_is_set_aside_as_it_is(
    name: str, field: bytes
) -> None:
    found = again(with_headers((name.encode(), field)))
    assert entries_of(found) == [(f"redrive-{name.lower()}".encode(), field)]


@given(st.sampled_from(headers.WRITTEN), FINITE)
def test_a_header_of_ours_is_carried_along(name: str, field: bytes) -> None:
    assert again(with_headers((name.encode(), field))).header_field(name) == field


def test_of_two_user_ids_the_newest_is_kept() -> None:
    raw = Properties.read(USER_ID).with_headers({"redrive-user-id": fields.longstr("bob")}).raw
    assert again(raw).header("redrive-user-id") == "alice"


# -- what is added -------------------------------------------------------------------------------


@given(sections(entries=header_entries(FINITE)))
def test_every_message_is_sent_persistent(section: Section) -> None:
    assert again(section.raw).get("delivery_mode") == 2


def test_a_copy_that_may_be_a_second_one_is_marked() -> None:
    assert again(b"\x00\x00", redelivered=True).header("redrive-redelivered") is True


def test_a_first_copy_is_not_marked() -> None:
    assert again(b"\x00\x00").header_names == []


def test_what_is_put_in_replaces_what_was_carried_along() -> None:
    raw = with_headers((b"redrive-attempt", fields.int32(1)))
    sent = republished(delivered(raw), user="me", put={b"redrive-attempt": fields.int32(2)})
    assert entries_of(Properties.read(sent)) == [(b"redrive-attempt", fields.int32(2))]


@given(sections(entries=header_entries(FINITE)))
def test_marking_what_was_sent_changes_nothing_else(section: Section) -> None:
    sent = republished(delivered(section.raw), user="me")
    marked = Properties.read(marked_redelivered(sent))
    assert marked.with_headers({}, remove=["redrive-redelivered"]).entries() == (
        Properties.read(sent).with_headers({}, remove=["redrive-redelivered"]).entries()
    )


def test_what_is_added_has_at_most_16_kib_and_the_stack_is_cut_first() -> None:
    put = {
        b"redrive-error-reason": fields.longstr("é" * 4_000),
        b"redrive-error-stack": fields.longstr("é" * 40_000),
    }
    found = Properties.read(republished(delivered(b"\x00\x00"), user="me", put=put))
    assert found.header_field("redrive-error-reason") == put[b"redrive-error-reason"]
    assert 15 * 1024 < sum(len(field) for _, field in found.entries()) <= 16 * 1024


def test_of_forged_deaths_that_are_too_many_the_newest_are_kept() -> None:
    forged = fields.array([b"V"] * 60_000 + [fields.int32(n) for n in range(20)])
    found = again(with_headers((b"redrive-deaths", forged)))
    assert found.header("redrive-deaths") == list(range(20))


def test_old_deaths_are_cut_before_the_reason() -> None:
    deaths = [sized(b"S", bytes((65 + n,)) * 1_000) for n in range(20)]
    raw = with_headers((b"x-death", array(*reversed(deaths))))
    put = {b"redrive-error-reason": fields.longstr("r" * 4_000)}
    found = Properties.read(republished(delivered(raw), user="me", put=put))
    assert found.header_field("redrive-error-reason") == put[b"redrive-error-reason"]
    kept = found.header("redrive-deaths")
    assert isinstance(kept, list)
    assert kept == fields.decode(array(*deaths[-len(kept) :]))


# -- what no broker takes ------------------------------------------------------------------------


@given(not_finite(), st.integers(0, 300), st.sampled_from([b"A", b"F"]))
def test_a_header_that_is_not_finite_at_any_depth_is_unpublishable(
    field: bytes, depth: int, letter: bytes
) -> None:
    raw = with_headers((b"n", nested_to(depth, field, letter=letter)))
    with pytest.raises(Unpublishable, match="NaN or infinite"):
        republished(delivered(raw), user="me")


CARRIED = ["CC", "BCC", "x-death", *headers.WRITTEN]


@pytest.mark.parametrize("name", CARRIED)
def test_a_header_that_is_not_finite_is_unpublishable_also_where_we_carry_it_along(
    name: str,
) -> None:
    raw = with_headers((name.encode(), array(b"d" + struct.pack(">d", float("nan")))))
    with pytest.raises(Unpublishable, match="NaN or infinite"):
        republished(delivered(raw), user="me")


@pytest.mark.parametrize("name", sorted(set(headers.BROKERS_OWN) - {"x-death"}))
def test_a_header_that_is_not_finite_does_no_harm_where_it_goes(name: str) -> None:
    raw = with_headers((name.encode(), b"d" + struct.pack(">d", float("nan"))))
    assert again(raw).header_names == []
