"""`redrive topology enroll` that fails half way: what it made goes, what was there before stays,
and what it could not take back is named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from redrive.broker.enroll import Enroller
from redrive.broker.management import Management
from redrive.errors import ManagementError
from tests.services.commands import Redrive
from tests.services.eventually import eventually
from tests.services.foreign import Foreign

Failing = Callable[[str], None]
SILENT = "the management API does not answer"


@pytest.fixture
def redrive(foreign: Foreign, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    vhost = foreign.vhost
    settings = f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "{vhost.management_url}"\n'
    redrive = Redrive(tmp_path, capsys, settings)
    assert redrive("topology", "apply").code == 0
    with foreign.channel() as channel:
        channel.exchange_declare("their-dlx", "topic", durable=True)
    return redrive


@pytest.fixture
def the_answer_is_lost(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """After the policy of this queue was set: nobody can know whether it was."""
    real = Management.set_policy

    def lose(queue: str) -> None:
        async def lost(management: Management, name: str, policy: dict[str, Any]) -> None:
            await real(management, name, policy)
            if name == f"redrive-enroll:{queue}":
                raise ManagementError(SILENT)

        monkeypatch.setattr(Management, "set_policy", lost)

    return lose


@pytest.fixture
def another_policy_wins(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Somebody sets one of a higher priority for this queue right before ours: after it, the
    statistics might show ours for a moment."""
    real = Management.set_policy
    impatient = partial(Enroller, shown_within=timedelta(seconds=10))
    monkeypatch.setattr("redrive.broker.site.Enroller", impatient)

    def outdo(queue: str) -> None:
        async def outdone(management: Management, name: str, policy: dict[str, Any]) -> None:
            if name == f"redrive-enroll:{queue}":
                rival = {**policy, "priority": 99, "definition": {"message-ttl": 60_000}}
                await real(management, "rival", rival)
            await real(management, name, policy)

        monkeypatch.setattr(Management, "set_policy", outdone)

    return outdo


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("the_answer_is_lost", SILENT),
        ("another_policy_wins", "did not come into force: 'rival' is in force instead"),
    ],
)
def test_an_enroll_that_fails_takes_back_nothing_of_earlier_ones(
    redrive: Redrive, foreign: Foreign, request: pytest.FixtureRequest, way: str, said: str
) -> None:
    foreign.declare("bound", dead_letter_exchange="their-dlx")
    foreign.declare(
        "told",
        dead_letter_exchange="retry-exchange",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )
    foreign.declare("ruled")
    earlier = ("bound", "told", "ruled")
    assert redrive("topology", "enroll", *earlier, "--bind-exchange").code == 0
    foreign.declare("new", dead_letter_exchange="their-dlx")
    foreign.declare("fails")
    before = foreign.settled_view()
    request.getfixturevalue(way)("fails")
    failed = redrive("topology", "enroll", *earlier, "new", "fails", "--bind-exchange")
    assert failed.code == 1
    assert f"{said}; nothing was changed" in failed.err
    if way == "another_policy_wins":
        foreign.delete_policy("rival")
    eventually(lambda: foreign.settled_view() == before)
    for queue in earlier:
        foreign.reject_one(queue, queue.encode())
        assert foreign.take("retry-queue") == queue.encode()


def test_a_policy_of_an_earlier_enroll_is_put_back_as_it_was(
    redrive: Redrive, foreign: Foreign, the_answer_is_lost: Failing
) -> None:
    foreign.declare("ruled")
    assert redrive("topology", "enroll", "ruled").code == 0
    before = foreign.in_force("ruled")
    foreign.policy("theirs", {"message-ttl": 60_000}, priority=7)
    foreign.declare("fails")
    the_answer_is_lost("fails")
    assert redrive("topology", "enroll", "ruled", "fails").code == 1
    foreign.delete_policy("theirs")
    eventually(lambda: foreign.in_force("ruled") == before)


def test_what_cannot_be_taken_back_is_named_and_the_rest_is_taken_back(
    redrive: Redrive,
    foreign: Foreign,
    the_answer_is_lost: Failing,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for queue in ("first one", "second", "fails"):
        foreign.declare(queue)
    before = foreign.settled_view()
    real = Management.delete_policy

    async def refused(management: Management, name: str) -> bool:
        if name == "redrive-enroll:first one":
            raise ManagementError("the management API refused DELETE")
        return await real(management, name)

    the_answer_is_lost("fails")
    with monkeypatch.context() as patched:
        patched.setattr(Management, "delete_policy", refused)
        failed = redrive("topology", "enroll", "first one", "second", "fails")
    assert failed.code == 1
    assert failed.err.count("\n") == 1
    assert f"{SILENT}; not all could be taken back (the management API refused" in failed.err
    assert "queues are left changed: 'first one'; when" in failed.err
    assert "run: redrive topology unenroll 'first one'\n" in failed.err
    policies, bindings = foreign.view()["policies"], foreign.view()["bindings"]
    assert [policy["name"] for policy in policies] == ["redrive-enroll:first one"]
    assert bindings == before["bindings"]
    assert redrive("topology", "unenroll", "first one").code == 0
    eventually(lambda: foreign.settled_view() == before)


def test_a_queue_of_an_earlier_enroll_that_is_left_changed_is_to_be_enrolled_again(
    redrive: Redrive, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in ("ruled", "fails"):
        foreign.declare(queue)
    assert redrive("topology", "enroll", "ruled").code == 0
    foreign.policy("theirs", {"message-ttl": 60_000}, priority=7)
    real, calls = Management.set_policy, list[str]()

    async def ever_less(management: Management, name: str, policy: dict[str, Any]) -> None:
        calls.append(name)
        if len(calls) > 1:
            raise ManagementError(SILENT)
        await real(management, name, policy)

    with monkeypatch.context() as patched:
        patched.setattr(Management, "set_policy", ever_less)
        failed = redrive("topology", "enroll", "ruled", "fails")
    assert calls == ["redrive-enroll:ruled", "redrive-enroll:fails", "redrive-enroll:ruled"]
    assert "queues are left changed: 'ruled'; when" in failed.err
    assert "run: redrive topology enroll ruled\n" in failed.err
    assert redrive("topology", "enroll", "ruled").code == 0
