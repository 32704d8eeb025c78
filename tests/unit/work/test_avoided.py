"""Exchanges that are avoided: which are asked for, and when, without a broker."""

from __future__ import annotations

import time

import pytest

from redrive.errors import ConnectionLost
from redrive.work.avoided import Avoided
from redrive.work.return_path import ReturnPath
from tests.unit.work.stub_path import StubPath, no_broker


class TestManyThatAreMissing:
    """Names of exchanges come from headers: there can be any number."""

    @pytest.fixture(autouse=True)
    def _time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.path = StubPath(lambda: True)
        self.path.exchanges = False
        self.avoided = Avoided(self.path)

    async def look(self) -> list[str]:
        """Whom one look asks for."""
        self.now += 1.5
        self.path.asked.clear()
        await self.avoided.look()
        return list(self.path.asked)

    def note(self, *names: str) -> None:
        for name in names:
            self.avoided.note_gone(name, 404, "why")

    async def test_a_few_are_looked_for_at_a_time_and_all_in_turn(self) -> None:
        names = [f"e{number}" for number in range(10)]
        self.note(*names)
        looks = [await self.look() for _ in range(5)]
        assert [len(each) for each in looks] == [4] * 5
        assert [name for each in looks for name in each] == names * 2

    async def test_a_second_passes_after_a_look_however_long_it_took(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def slow(_exchange: str) -> bool:
            self.now += 5
            return False

        monkeypatch.setattr(self.path, "has_exchange", slow)
        self.note("e")
        await self.look()
        ended = self.now
        await self.avoided.look()
        assert self.now == ended

    async def test_what_no_message_is_for_is_forgotten(self) -> None:
        self.note("forged", "used")
        self.avoided.note_gone("forbidden", 403, "why")
        for _ in range(300):
            assert self.avoided.gone("used")
            asked = await self.look()
        assert asked == ["used"]
        assert list(self.avoided._gone) == ["used"]

    async def test_what_messages_were_for_is_looked_for_first_after_a_long_pause(self) -> None:
        self.note("used")
        await self.look()
        assert self.avoided.gone("used")
        self.now += 3600
        assert await self.look() == ["used"]
        assert self.avoided.gone("used")

    async def test_one_that_cannot_be_asked_for_stops_nobody_and_is_asked_for_after_the_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []

        async def has_exchange(exchange: str) -> bool:
            asked.append(exchange)
            if exchange == "fatal":
                raise ConnectionLost("it closed the connection")
            return True

        monkeypatch.setattr(self.path, "has_exchange", has_exchange)
        self.note("fatal", "back")
        await self.look()
        assert asked == ["fatal"]
        assert self.avoided.gone("fatal")
        await self.look()
        assert asked == ["fatal", "back", "fatal"]
        assert self.avoided.gone("back") is None


async def test_no_broker_is_asked_for_an_exchange_whose_name_cannot_be() -> None:
    path = ReturnPath("redrive-return", no_broker)
    assert not await path.has_exchange("\udcff\udcfe")
    assert not await path.has_exchange("")
    assert not await path.has_exchange("e" * 256)
