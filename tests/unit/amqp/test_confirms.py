"""Confirms against a model of the broker that answers in every lawful way."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp.confirms import Confirmed, Outcome, Publish, Refused, Returned, Unconfirmed
from redrive.amqp.properties import Properties
from redrive.errors import MalformedData
from tests.strategies import Entry, inside_of, sized

NO_ROUTE = Returned(312, "NO_ROUTE")


def section(entries: list[Entry], message_id: bytes) -> bytes:
    inside = inside_of(entries)
    return (
        b"\x20\x80"
        + struct.pack(">I", len(inside))
        + inside
        + bytes((len(message_id),))
        + message_id
    )


def normalised(entries: list[Entry]) -> list[Entry]:
    """What RabbitMQ 4 does to headers: sort, first of repeated names, one integer type, no BCC."""
    first: dict[bytes, bytes] = {}
    for name, value in entries:
        first.setdefault(name, value)
    first.pop(b"BCC", None)
    return sorted((name, _normalised_field(value)) for name, value in first.items())


def _normalised_field(value: bytes) -> bytes:
    if value[:1] == b"L":
        return b"l" + value[1:]
    if value[:1] == b"t":
        return b"t\x01" if value[1] else b"t\x00"
    return value


@dataclass
class Kind:
    """Messages that nobody can tell apart: few kinds, so that duplicates are common."""

    key: str
    entries: list[Entry]
    message_id: bytes
    body: bytes

    def sent(self) -> Publish:
        return Publish("e", self.key, section(self.entries, self.message_id), self.body, self)

    def given_back(self, *, normalise: bool) -> Publish:
        entries = normalised(self.entries) if normalise else self.entries
        return Publish("e", self.key, section(entries, self.message_id), self.body)

    @property
    def identity(self) -> object:
        """What tells it apart for a broker that normalises."""
        return (self.key, tuple(normalised(self.entries)), self.message_id, self.body)


FIELDS = st.sampled_from(
    [b"t\x01", b"t\x05", b"t\x00", b"l" + bytes(7) + b"\x07", b"L" + bytes(7) + b"\x07", b"V"]
)
KINDS = st.builds(
    Kind,
    key=st.sampled_from(["k", "gone"]),
    entries=st.lists(
        st.tuples(st.sampled_from([b"a", b"b", b"c"]), FIELDS)
        | st.just((b"BCC", sized(b"A", sized(b"S", b"queue")))),
        max_size=4,
    ),
    message_id=st.sampled_from([b"1", b"2"]),
    body=st.sampled_from([b"", b"x"]),
)


@dataclass
class Broker:
    """One confirming channel as a broker sees it: what it did with each message, told in order."""

    normalise: bool
    unconfirmed: Unconfirmed = field(default_factory=Unconfirmed)
    kinds: list[Kind] = field(default_factory=list)
    fates: dict[int, type[Outcome]] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)
    returned: set[int] = field(default_factory=set)
    heard: Counter[tuple[object, type]] = field(default_factory=Counter)

    def publish(self, kind: Kind, fate: type[Outcome]) -> None:
        self.kinds.append(kind)
        self.fates[len(self.kinds)] = fate
        self.unconfirmed.add(kind.sent())

    @property
    def open(self) -> list[int]:
        return [tag for tag in self.fates if tag not in self.answered]

    def give_back_up_to(self, last: int) -> None:
        """Returns go out in the order of publishing, each before its ack."""
        for tag in range(1, last + 1):
            if self.fates[tag] is Returned and tag not in self.returned:
                self.returned.add(tag)
                kind = self.kinds[tag - 1]
                self.unconfirmed.returned(NO_ROUTE, kind.given_back(normalise=self.normalise))

    def answer(self, tag: int, *, multiple: bool) -> None:
        """Ack or nack a tag, or all up to it if they share their fate."""
        confirmed = self.fates[tag] is not Refused
        tags = [each for each in self.open if each <= tag] if multiple else [tag]
        if any((self.fates[each] is not Refused) is not confirmed for each in tags):
            tags, multiple = [tag], False
        self.give_back_up_to(max(tags))
        self.answered.update(tags)
        for publish, outcome in self.unconfirmed.answered(
            tag, multiple=multiple, confirmed=confirmed
        ):
            assert isinstance(publish.context, Kind)
            self.heard[publish.context.identity, type(outcome)] += 1

    def expected(self) -> Counter[tuple[object, type]]:
        return Counter(
            (kind.identity, self.fates[tag])
            for tag, kind in enumerate(self.kinds, 1)
            if tag in self.answered
        )


@st.composite
def runs(draw: st.DrawFn, *, with_nacks: bool = True, by_key: bool = False) -> Broker:
    """Publishes and answers in turn, until everything is answered."""
    broker = Broker(normalise=draw(st.booleans()))
    few = draw(st.lists(KINDS, min_size=1, max_size=4))
    fates = [Confirmed, Returned, Refused] if with_nacks else [Confirmed, Returned]
    for _ in range(draw(st.integers(1, 4))):
        for kind in draw(st.lists(st.sampled_from(few), min_size=1, max_size=8)):
            fate = draw(st.sampled_from(fates))
            if by_key:
                fate = (
                    Returned if kind.key == "gone" else fate if fate is not Returned else Confirmed
                )
            broker.publish(kind, fate)
        for _ in range(draw(st.integers(0, 4))):
            if broker.open:
                _answer_one(draw, broker)
    while broker.open:
        _answer_one(draw, broker)
    return broker


def _answer_one(draw: st.DrawFn, broker: Broker) -> None:
    if draw(st.booleans()):
        broker.give_back_up_to(draw(st.integers(1, len(broker.kinds))))
    broker.answer(draw(st.sampled_from(broker.open)), multiple=draw(st.booleans()))


@given(runs(with_nacks=False))
def test_every_outcome_of_acks_and_returns_is_right_among_messages_alike(broker: Broker) -> None:
    assert broker.heard == broker.expected()


@given(runs(by_key=True))
def test_every_outcome_is_right_where_equal_messages_take_equal_ways(broker: Broker) -> None:
    assert broker.heard == broker.expected()


@given(runs(by_key=True))
def test_nothing_stays_unanswered_once_the_broker_has_answered_everything(broker: Broker) -> None:
    assert broker.unconfirmed.publishes() == []


def plain(key: str = "k", context: object = None) -> Publish:
    return Publish("e", key, b"\x00\x00", b"x", context)


def test_a_return_is_not_lost_to_an_equal_message_that_a_full_queue_refused() -> None:
    unconfirmed = Unconfirmed()
    unconfirmed.add(plain())  # its queue is full: the nack comes late
    unconfirmed.add(plain())  # its queue was deleted meanwhile
    unconfirmed.returned(NO_ROUTE, plain())
    outcomes = unconfirmed.answered(1, multiple=False, confirmed=False)
    outcomes += unconfirmed.answered(2, multiple=False, confirmed=True)
    assert [outcome for _, outcome in outcomes] == [Refused(), NO_ROUTE]


def test_a_return_whose_properties_were_changed_beyond_recognition_goes_to_the_same_body() -> None:
    unconfirmed = Unconfirmed()
    unconfirmed.add(Publish("e", "other", b"\x00\x00", b"x"))
    unconfirmed.add(plain())
    unconfirmed.returned(NO_ROUTE, Publish("e", "k", b"\x10\x00\x02", b"x"))
    outcomes = unconfirmed.answered(2, multiple=True, confirmed=True)
    assert [outcome for _, outcome in outcomes] == [Confirmed(), NO_ROUTE]


def test_a_return_with_properties_that_cannot_be_read_goes_to_the_same_body() -> None:
    unconfirmed = Unconfirmed()
    unconfirmed.add(plain())
    unconfirmed.returned(NO_ROUTE, Publish("e", "k", b"\xff", b"x"))
    ((_, outcome),) = unconfirmed.answered(1, multiple=False, confirmed=True)
    assert outcome == NO_ROUTE


def test_a_return_of_what_was_never_sent_is_malformed() -> None:
    unconfirmed = Unconfirmed()
    unconfirmed.add(plain())
    with pytest.raises(MalformedData, match="not sent"):
        unconfirmed.returned(NO_ROUTE, plain("another"))


@pytest.mark.parametrize(("tag", "multiple"), [(0, False), (2, False), (2, True), (-1, False)])
def test_an_answer_to_what_was_never_sent_is_malformed(tag: int, multiple: bool) -> None:
    unconfirmed = Unconfirmed()
    unconfirmed.add(plain())
    with pytest.raises(MalformedData, match="of 1"):
        unconfirmed.answered(tag, multiple=multiple, confirmed=True)


def test_tag_zero_with_multiple_answers_everything_so_far() -> None:
    unconfirmed = Unconfirmed()
    for number in range(5):
        unconfirmed.add(plain(context=number))
    settled = unconfirmed.answered(0, multiple=True, confirmed=True)
    assert [publish.context for publish, _ in settled] == [0, 1, 2, 3, 4]


def test_what_is_unanswered_is_told_oldest_first() -> None:
    unconfirmed = Unconfirmed()
    for number in range(5):
        unconfirmed.add(plain(context=number))
    unconfirmed.answered(3, multiple=False, confirmed=True)
    assert [publish.context for publish in unconfirmed.publishes()] == [0, 1, 3, 4]


def test_an_answer_given_twice_settles_once() -> None:
    unconfirmed = Unconfirmed()
    unconfirmed.add(plain())
    unconfirmed.answered(1, multiple=False, confirmed=True)
    assert unconfirmed.answered(1, multiple=True, confirmed=True) == []


class Counting(dict[int, Publish]):
    """How often it was looked into."""

    looks = 0

    def get(self, tag: int, default: Publish | None = None) -> Publish | None:  # type: ignore[override]
        self.looks += 1
        return super().get(tag, default)

    def __contains__(self, tag: object) -> bool:
        self.looks += 1
        return super().__contains__(tag)


def test_a_return_costs_no_more_however_much_was_answered_singly_before() -> None:
    unconfirmed, pending = Unconfirmed(), Counting()
    unconfirmed._pending = pending
    for tag in range(1, 1001):
        unconfirmed.add(plain())
        if tag % 2:
            assert unconfirmed.answered(tag, multiple=False, confirmed=True)
        else:
            unconfirmed.returned(NO_ROUTE, plain())
            assert unconfirmed.answered(tag, multiple=False, confirmed=True)[0][1] == NO_ROUTE
    first = pending.looks
    unconfirmed.add(plain())
    unconfirmed.returned(NO_ROUTE, Publish("e", "k", b"\x10\x00\x02", b"x"))  # alike, not the same
    assert pending.looks - first < 10
    assert first < 5 * 1000


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), FIELDS), max_size=5))
def test_what_the_model_makes_of_headers_has_their_normal_form(entries: list[Entry]) -> None:
    one, two = section(entries, b""), section(normalised(entries), b"")
    assert Properties.read(one).normal_form() == Properties.read(two).normal_form()
