"""The storm's own arithmetic: a seed gives one plan, and accounts that are wrong say so."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from redrive.domain.letter import Result
from redrive.domain.lifecycle import State
from tests.faults.storm.accounts import Accounts, Filed, Found, InQueue, Sending, settle_accounts
from tests.faults.storm.journal import Consumed, Published, Struck
from tests.faults.storm.messages import KEYS, ORDERS, Message, mended, takes
from tests.faults.storm.plan import BROKER, DATABASE, Fault, Trouble, make_plan

IDENTITY, DIGEST, LETTER = "passes-1", "d1", "l1"
PUBLISHED = Published(Message(0.0, IDENTITY, ORDERS, 10), at=100.0, confirmed=True)
TAKEN = Consumed(IDENTITY, DIGEST, ORDERS, KEYS[ORDERS], None, 0, at=101.0)
DEAD = Filed(
    LETTER, IDENTITY, DIGEST, State.MANUAL, ORDERS, KEYS[ORDERS], "dlq-queue", 105.0, marked=False
)
KILL = Struck(Fault(1.0, Trouble.PROCESS_KILLED, "everything", 1.0), began=103.0, ended=104.0)
NOTHING = Found(
    published=[PUBLISHED],
    consumed=[],
    in_queues=[],
    witnessed={IDENTITY: 1},
    letters=[],
    struck=[],
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


def test_a_duplicate_is_explained_by_a_fault_within_its_life() -> None:
    twice = {"consumed": [TAKEN, replace(TAKEN, at=106.0)]}
    assert "no fault explains it" in accounts(**twice).problems[0]
    found = accounts(**twice, struck=[KILL])
    assert [each.why for each in found.duplicates] == [KILL]
    assert found.problems == []


@pytest.mark.parametrize(
    ("trouble", "target", "at"),
    [
        (Trouble.PROCESS_KILLED, "everything", 107.0),  # after the second end
        (Trouble.PROCESS_KILLED, "everything", 50.0),  # long before the message
        (Trouble.DATABASE_KILLED, DATABASE, 103.0),
        (Trouble.CUT, DATABASE, 103.0),
        (Trouble.SLOW_CONSUMERS, BROKER, 103.0),
    ],
)
def test_no_other_fault_explains_a_duplicate(trouble: Trouble, target: str, at: float) -> None:
    struck = Struck(Fault(1.0, trouble, target, 1.0), began=at, ended=at + 0.5)
    found = accounts(consumed=[TAKEN, replace(TAKEN, at=106.0)], struck=[struck])
    assert "no fault explains it" in found.problems[0]


def test_second_letters_of_one_message_must_say_so() -> None:
    second = replace(DEAD, id="l2")
    assert "do not say so" in accounts(letters=[DEAD, second], struck=[KILL]).problems[0]
    marked = replace(second, marked=True)
    assert accounts(letters=[DEAD, marked], struck=[KILL]).problems == []


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
