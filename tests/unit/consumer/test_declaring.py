"""What is asked of the broker while handlers run, and what its refusals make of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redrive.consumer import queues as module
from redrive.consumer.queues import Declaring, Unsure
from redrive.errors import AccessRefused, BrokerError, ConnectionLost, NotFound
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


class Refuses:
    """A connection, and its channels: each is closed by a refusal, with all that is asked on it."""

    def __init__(self) -> None:
        self.refusals = 1
        self.open: list[Asked] = []

    async def channel(self) -> Asked:
        await asyncio.sleep(0)
        self.open.append(Asked(self))
        return self.open[-1]


class Asked:
    error: BrokerError | None = None

    def __init__(self, connection: Refuses) -> None:
        self._connection = connection

    async def declare_queue(self, name: str, **_: Any) -> str:
        await asyncio.sleep(0)
        if self.error is None and self._connection.refusals:
            self._connection.refusals -= 1
            self.error = AccessRefused(403, f"configure access to queue {name!r} refused")
            self._connection.open.remove(self)
        if self.error is not None:
            raise self.error
        return name

    async def inspect_queue(self, name: str) -> tuple[int, int]:
        await asyncio.sleep(0)
        raise NotFound(404, f"no queue {name!r}")


async def test_what_is_refused_to_one_who_wants_the_ladder_is_not_refused_to_the_others() -> None:
    connection = Refuses()
    declares = declaring(connection)
    await declares._spare.open()
    outcomes = await asyncio.gather(*(declares.ladder() for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in outcomes] == [AccessRefused, type(None), type(None)]
    assert len(connection.open) == 1
