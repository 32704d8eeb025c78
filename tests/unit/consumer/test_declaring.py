"""What is asked of the broker while handlers run, and what its refusals make of it."""

from __future__ import annotations

import pytest

from redrive.consumer import queues as module
from redrive.consumer.queues import Declaring, Unsure
from redrive.errors import AccessRefused, BrokerError, ConnectionLost
from redrive.settings.sections import TopologySettings


def declaring(connection: object = None) -> Declaring:
    return Declaring(connection, TopologySettings(), set())  # type: ignore[arg-type]


def applying(error: BrokerError, monkeypatch: pytest.MonkeyPatch) -> None:
    async def apply(*_: object) -> None:
        raise error

    monkeypatch.setattr(module, "apply", apply)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (AccessRefused(403, "no"), "grant the user configure, write and read on what it names"),
        (BrokerError("no answer within 60 s", remedy="check the cluster"), "check the cluster"),
        (BrokerError("odd"), "'redrive topology check' says what differs, and what to do"),
    ],
    ids=["refused", "without a leader", "odd"],
)
async def test_who_cannot_tell_whether_dead_letters_are_kept_is_unsure(
    error: BrokerError, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    applying(error, monkeypatch)
    assert await declaring().dead_letters() == Unsure(str(error), remedy)


async def test_who_has_lost_the_broker_is_not_unsure_of_dead_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    applying(ConnectionLost("gone"), monkeypatch)
    with pytest.raises(ConnectionLost):
        await declaring().dead_letters()
