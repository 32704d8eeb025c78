"""The storm's own arithmetic: a seed gives one plan, and accounts that are wrong say so."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import pytest
from pamqp import base, body, commands, frame, header

from redrive.domain.letter import Result
from redrive.domain.lifecycle import State
from tests.faults.storm.accounts import Accounts, Filed, Found, InQueue, Sending, settle_accounts
from tests.faults.storm.blame import Blame
from tests.faults.storm.journal import Consumed, Done, Published, Struck
from tests.faults.storm.liveliness import idle
from tests.faults.storm.messages import KEYS, ORDERS, Message, mended, takes
from tests.faults.storm.plan import BROKER, DATABASE, Act, Deed, Fault, Trouble, make_plan
from tests.faults.storm.wiretap import THE_BROKER, Held, Life, Wiretap
from tests.services.proxy import Direction, Proxy, ProxyConnection

IDENTITY, DIGEST, LETTER = "passes-1", "d1", "l1"
PUBLISHED = Published(Message(0.0, IDENTITY, ORDERS, 10), at=100.0, confirmed=True)
TAKEN = Consumed(IDENTITY, DIGEST, ORDERS, KEYS[ORDERS], None, 0, at=101.0)
DEAD = Filed(
    LETTER, IDENTITY, DIGEST, State.MANUAL, ORDERS, KEYS[ORDERS], "dlq-queue", 105.0, marked=False
)
HELD = Held(Life(IDENTITY), "everything", since=102.0, until=103.5)
KILL = Struck(Fault(1.0, Trouble.PROCESS_KILLED, "everything", 1.0), began=103.0, ended=104.0)
NOTHING = Found(
    published=[PUBLISHED],
    consumed=[],
    in_queues=[],
    witnessed={IDENTITY: 1},
    letters=[],
    struck=[],
    held=[],
    ended=200.0,
)


def accounts(**changes: object) -> Accounts:
    return settle_accounts(replace(NOTHING, **changes), lambda _: {DIGEST})  # type: ignore[arg-type]


# Plans


def test_a_seed_gives_the_same_plan_every_time() -> None:
    assert make_plan(7, 30, 3) == make_plan(7, 30, 3)
    assert make_plan(7, 30, 3) != make_plan(8, 30, 3)


@pytest.mark.parametrize("seed", range(20))
def test_a_short_plan_has_every_fault_that_one_node_can_have(seed: int) -> None:
    plan = make_plan(seed, 20, 1)
    struck = {fault.trouble for lane in plan.lanes for fault in lane}
    assert struck == {*Trouble} - {Trouble.LEADER_LOST, Trouble.MAJORITY_LOST}


def test_the_faults_of_a_lane_never_overlap_and_the_end_is_calm() -> None:
    plan = make_plan(7, 1800, 3)
    for lane in plan.lanes:
        for before, after in pairwise(lane):
            assert before.at + before.lasts < after.at
        assert lane[-1].at < 1800 - 15


def test_each_message_has_an_identity_and_bytes_of_its_own() -> None:
    messages = make_plan(7, 60, 1).messages
    assert len({each.identity for each in messages}) == len(messages)
    (broken, *_) = [each for each in messages if each.kind == "mended"]
    body = broken.body(7)
    assert body == broken.body(7) != broken.body(8)
    assert not takes(broken.identity, body, 5, replayed=True)
    assert takes(broken.identity, mended(body), 0, replayed=True)


# Accounts


def test_a_confirmed_message_that_is_nowhere_is_lost() -> None:
    assert accounts().lost == [IDENTITY]
    assert accounts(published=[replace(PUBLISHED, confirmed=False)]).problems == []


@pytest.mark.parametrize(
    "where",
    [
        {"consumed": [TAKEN]},
        {"letters": [DEAD]},
    ],
)
def test_a_message_that_is_somewhere_is_accounted_for(where: dict[str, object]) -> None:
    assert accounts(**where).problems == []


def test_a_message_that_lies_in_a_queue_is_not_lost_but_stuck() -> None:
    found = accounts(in_queues=[InQueue(IDENTITY, DIGEST, "retry-queue", None, 0)])
    assert (found.lost, found.problems) == ([], [f"{IDENTITY} got stuck in retry-queue"])


def test_a_letter_that_counts_as_consumed_although_nobody_took_it_is_lost() -> None:
    sent = (Sending(1, 110.0, Result.RESOLVED),)
    resolved = replace(DEAD, state=State.RESOLVED, sendings=sent)
    assert accounts(letters=[resolved]).lost == [f"{IDENTITY} (letter {LETTER} is resolved)"]
    taken = replace(TAKEN, letter=LETTER, generation=1, at=111.0)
    assert accounts(letters=[resolved], consumed=[taken]).problems == []


def test_a_sending_that_counts_as_refused_was_in_no_queue() -> None:
    refused = replace(DEAD, sendings=(Sending(1, 110.0, Result.REFUSED),))
    assert accounts(letters=[refused]).problems == []
    taken = replace(TAKEN, letter=LETTER, generation=1, at=111.0)
    found = accounts(letters=[refused], consumed=[taken])
    assert found.problems == [f"letter {LETTER} of {IDENTITY} was sent, and counts as refused"]


def test_a_storm_in_which_messages_do_not_end_as_they_are_meant_to_is_wrong() -> None:
    assert idle(replace(NOTHING, consumed=[TAKEN]), []) == []
    four = [replace(PUBLISHED, message=Message(0.0, f"passes-{n}", ORDERS, 10)) for n in range(4)]
    assert idle(replace(NOTHING, published=four, letters=[DEAD]), []) == [
        "none of 4 of 'passes' in orders ended as they should",
        "only 0 of 4 of 'passes' ended as they should",
    ]
    taken = [replace(TAKEN, identity=f"passes-{n}") for n in range(2)]
    (told,) = idle(replace(NOTHING, published=four, consumed=taken), [])
    assert told == "only 2 of 4 of 'passes' ended as they should"
    (told,) = idle(replace(NOTHING, published=[replace(PUBLISHED, confirmed=False)]), [])
    assert told == "only 0 of 1 publishes were confirmed"


def test_a_storm_in_which_nothing_that_operators_do_is_ever_done_is_wrong() -> None:
    taken = replace(NOTHING, consumed=[TAKEN])
    failed = [Done(Act(1.0, Deed.SWEEP, 1), 101.0, "exit 1")] * 4
    assert idle(taken, failed) == ["'sweep' was never done: exit 1"]
    assert idle(taken, [*failed, replace(failed[0], outcome="exit 0")]) == []
    assert idle(taken, failed[:3]) == []


def test_a_duplicate_is_explained_by_a_fault_that_struck_whoever_held_the_message() -> None:
    twice = {"consumed": [TAKEN, replace(TAKEN, at=106.0)]}
    assert "no fault explains it" in accounts(**twice).problems[0]
    settled = replace(HELD, safe=True)
    (told,) = accounts(**twice, struck=[KILL], held=[settled]).problems
    assert f"meanwhile: {KILL.fault.trouble.value} ({KILL.fault.target})" in told
    found = accounts(**twice, struck=[KILL], held=[HELD])
    assert [each.why for each in found.duplicates] == [Blame(KILL, "everything")]
    assert found.problems == []


def test_a_hand_that_took_the_message_after_the_copy_was_there_explains_nothing() -> None:
    cut = Struck(Fault(1.0, Trouble.HALF_OPEN, BROKER, 1.0), began=105.9, ended=121.0)
    twice = [TAKEN, replace(TAKEN, at=106.0)]
    later = replace(HELD, since=124.0, until=130.0)
    assert len(accounts(consumed=twice, struck=[cut], held=[later]).problems) == 1


def test_a_hand_that_lost_a_message_explains_one_copy_more() -> None:
    thrice = [TAKEN, replace(TAKEN, at=106.0), replace(TAKEN, at=107.0)]
    assert len(accounts(consumed=thrice, struck=[KILL], held=[HELD]).problems) == 1
    again = replace(HELD, since=103.2)
    assert accounts(consumed=thrice, struck=[KILL], held=[HELD, again]).problems == []


def test_a_killed_node_explains_what_was_in_hand_then_and_not_what_came_after_it_was_back() -> None:
    struck = Struck(Fault(1.0, Trouble.BROKER_KILLED, "0", 1.0), began=103.0, ended=120.0)
    twice = [TAKEN, replace(TAKEN, at=126.0)]
    settled = replace(HELD, until=102.5, safe=True)
    assert accounts(consumed=twice, struck=[struck], held=[settled]).problems == []
    later = replace(HELD, since=121.0, until=122.0)
    assert len(accounts(consumed=twice, struck=[struck], held=[later]).problems) == 1


@pytest.mark.parametrize(
    ("trouble", "target", "holder"),
    [
        (Trouble.CUT, BROKER, "plain"),
        (Trouble.HALF_OPEN, BROKER, "plain"),
        (Trouble.BROKER_KILLED, "0", "plain"),
        (Trouble.LEADER_LOST, "orders", THE_BROKER),
        (Trouble.MAJORITY_LOST, "0", THE_BROKER),
    ],
)
def test_the_broker_and_the_way_to_it_are_everybodys(
    trouble: Trouble, target: str, holder: str
) -> None:
    struck = Struck(Fault(1.0, trouble, target, 1.0), began=103.0, ended=103.5)
    held = replace(HELD, holder=holder)
    twice = [TAKEN, replace(TAKEN, at=106.0)]
    assert accounts(consumed=twice, struck=[struck], held=[held]).problems == []


@pytest.mark.parametrize(
    ("trouble", "target", "at", "holder"),
    [
        (Trouble.PROCESS_KILLED, "everything", 107.0, "everything"),  # after the second end
        (Trouble.PROCESS_KILLED, "everything", 101.0, "everything"),  # before it held the message
        (Trouble.PROCESS_KILLED, "everything", 104.0, "everything"),  # after its ack
        (Trouble.PROCESS_KILLED, "everything", 103.0, "plain"),  # somebody else held it
        (Trouble.CUT, BROKER, 103.0, THE_BROKER),  # which needs no network to move it
        (Trouble.BROKER_KILLED, "0", 90.0, "everything"),  # long before
        (Trouble.DATABASE_KILLED, DATABASE, 103.0, "everything"),
        (Trouble.CUT, DATABASE, 103.0, "everything"),
        (Trouble.SLOW_CONSUMERS, BROKER, 103.0, "everything"),
    ],
)
def test_no_other_fault_explains_a_duplicate(
    trouble: Trouble, target: str, at: float, holder: str
) -> None:
    struck = Struck(Fault(1.0, trouble, target, 1.0), began=at, ended=at + 0.5)
    twice = [TAKEN, replace(TAKEN, at=106.0)]
    found = accounts(consumed=twice, struck=[struck], held=[replace(HELD, holder=holder)])
    assert "no fault explains it" in found.problems[0]


@pytest.mark.parametrize(
    ("trouble", "target", "began", "problems"),
    [
        (Trouble.CUT, BROKER, 103.8, 0),
        (Trouble.HALF_OPEN, BROKER, 103.8, 0),
        (Trouble.CUT, BROKER, 104.2, 1),  # the connection had ended by something else
        (Trouble.PROCESS_KILLED, "everything", 103.8, 1),  # what it has sent arrives all the same
        (Trouble.BROKER_KILLED, "0", 105.8, 1),  # its node had two seconds to write it down
    ],
)
def test_only_the_network_takes_an_ack_that_was_sent_right_before(
    trouble: Trouble, target: str, began: float, problems: int
) -> None:
    struck = Struck(Fault(1.0, trouble, target, 1.0), began=began, ended=began + 0.5)
    held = replace(HELD, in_doubt_until=104.0)
    twice = [TAKEN, replace(TAKEN, at=106.0)]
    found = accounts(consumed=twice, struck=[struck], held=[held])
    assert len(found.problems) == problems


def test_a_second_end_of_a_sending_is_explained_by_who_held_that_sending_only() -> None:
    sent = (Sending(1, 110.0, Result.RESOLVED), Sending(2, 120.0, Result.RESOLVED))
    letter = replace(DEAD, state=State.RESOLVED, sendings=sent)
    taken = [
        replace(TAKEN, letter=LETTER, generation=generation, at=at)
        for generation, at in ((1, 111.0), (2, 121.0), (2, 126.0))
    ]
    kill = replace(KILL, began=122.0, ended=123.0)
    held = replace(HELD, since=121.0, until=122.0)
    for generation, problems in ((1, 1), (2, 0)):
        of_it = replace(held, life=Life(IDENTITY, LETTER, generation))
        found = accounts(letters=[letter], consumed=taken, struck=[kill], held=[of_it])
        assert len(found.problems) == problems, found.problems


# The wiretap


Headers = dict[str, str | int]


class Wire:
    """What passes over one link, as the tap hears it."""

    def __init__(self) -> None:
        self.tap = Wiretap()
        self.link = ProxyConnection(Proxy("127.0.0.1", 1), 0)
        self._hook = self.tap.hook_of("plain")

    def delivered(self, tag: int, identity: str, headers: Headers | None = None) -> None:
        method = commands.Basic.Deliver("consumer", tag, False, "", "orders")
        self._content(Direction.RECEIVED, method, identity, headers or {})

    def published(self, exchange: str, identity: str) -> None:
        method = commands.Basic.Publish(exchange=exchange, routing_key="key")
        self._content(Direction.SENT, method, identity, {})

    def said(self, method: base.Frame) -> None:
        self._hook(self.link, Direction.SENT, frame.marshal(method, 1))

    def _content(self, way: Direction, method: base.Frame, identity: str, headers: Headers) -> None:
        properties = commands.Basic.Properties(message_id=identity, headers=dict(headers))
        parts = (method, header.ContentHeader(0, 2, properties), body.ContentBody(b"{}"))
        for part in parts:
            self._hook(self.link, way, frame.marshal(part, 1))


def test_who_had_a_message_is_known_until_it_is_settled_or_the_connection_ends() -> None:
    wire = Wire()
    for tag in range(1, 6):
        wire.delivered(tag, f"passes-{tag}")
    wire.said(commands.Basic.Ack(2, multiple=True))
    wire.said(commands.Basic.Reject(3, requeue=False))
    wire.link.ended = time.time() + 1000
    ours = {held.life.identity: held for held in wire.tap.held() if held.holder == "plain"}
    brokers = {held.life.identity for held in wire.tap.held() if held.holder == THE_BROKER}
    assert [held.safe for held in ours.values()] == [True, True, True, False, False]
    lost = [name for name, held in ours.items() if held.until == wire.link.ended]
    assert (len(ours), lost) == (5, ["passes-4", "passes-5"])
    assert brokers == {"passes-3", "passes-4", "passes-5"}


def test_what_is_settled_just_before_the_end_or_in_no_commit_may_be_lost() -> None:
    wire = Wire()
    for tag in range(1, 4):
        wire.delivered(tag, f"passes-{tag}")
    wire.said(commands.Tx.Select())
    wire.said(commands.Basic.Ack(1))
    wire.said(commands.Tx.Commit())
    wire.said(commands.Basic.Ack(2))
    wire.said(commands.Basic.Nack(3, requeue=True))
    for after, safe in ((1000.0, [True, False, False]), (0.1, [False, False, False])):
        wire.link.ended = time.time() + after
        hands = [held for held in wire.tap.held() if held.holder == "plain"]
        assert [held.safe for held in hands] == safe
    assert hands[0].until < hands[0].in_doubt_until == wire.link.ended


def test_the_broker_carries_what_waits_in_a_tier_until_it_is_delivered_again() -> None:
    wire = Wire()
    wire.published("route-delay", "twice-1")
    wire.published("dlq-exchange", "twice-2")
    wire.delivered(1, "twice-1")
    (carried,) = [held for held in wire.tap.held() if held.holder == THE_BROKER]
    (again,) = [held for held in wire.tap.held() if held.holder == "plain"]
    assert (carried.life.identity, carried.until) == ("twice-1", again.since)


def test_a_sending_of_a_letter_is_told_from_the_first_life() -> None:
    wire = Wire()
    wire.delivered(1, IDENTITY)
    wire.delivered(2, IDENTITY, {"redrive-letter": LETTER, "redrive-generation": 70_000})
    lives = [held.life for held in wire.tap.held()]
    assert lives == [Life(IDENTITY), Life(IDENTITY, LETTER, 70_000)]


def test_second_letters_of_one_message_must_say_so() -> None:
    second = replace(DEAD, id="l2")
    assert (
        "do not say so" in accounts(letters=[DEAD, second], struck=[KILL], held=[HELD]).problems[0]
    )
    marked = replace(second, marked=True)
    assert accounts(letters=[DEAD, marked], struck=[KILL], held=[HELD]).problems == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"consumed": [replace(TAKEN, digest="other")]}, "another body"),
        ({"consumed": [replace(TAKEN, key="other")]}, "belongs to orders"),
        ({"consumed": [replace(TAKEN, queue="invoices")]}, "belongs to orders"),
        ({"consumed": [TAKEN], "witnessed": {IDENTITY: 2}}, "came 2 times by its exchange"),
        ({"consumed": [TAKEN], "witnessed": {}}, "came 0 times by its exchange"),
        ({"letters": [replace(DEAD, state=State.PROCESSING)]}, "is processing still"),
        ({"letters": [replace(DEAD, identity="strange")]}, "was never published"),
        (
            {
                "letters": [
                    replace(
                        DEAD,
                        sendings=(
                            Sending(1, 110.0, Result.IN_DOUBT),
                            Sending(2, 120.0, Result.SENT),
                        ),
                    )
                ]
            },
            "was in doubt, and was sent again",
        ),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, object], problem: str) -> None:
    assert any(problem in each for each in accounts(**changes).problems)
