"""Publishes copies, each confirmed, and waits for what the broker says of them.

A publish to an exchange that is missing, or that we may not write to, closes the channel, and with
it go the confirms of all that is on its way there: it is in doubt, and sent again. So each exchange
has a lane of its own: what is refused takes along only its like, which is refused as well. And what
handlers publish goes by others than copies do: a body that is too large closes the channel, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from redrive.amqp import Connection, Publish
from redrive.amqp.lane import Connect, Lane, LaneOutcome, Poison
from redrive.errors import BrokerError, ConnectionLost

_MOST_LANES: Final = 100
"""Each is a channel. What goes to further exchanges shares that of the default exchange."""


class Sending:
    """Many may wait at a time; `run` says when no outcome comes any more. All lanes are on one
    connection."""

    def __init__(self, connect: Connect, name: str) -> None:
        self._connect = connect
        self._name = name
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._turns = asyncio.Lock()
        self._lanes: dict[tuple[str, bool], Lane] = {}
        self._handing_out: list[asyncio.Task[None]] = []
        self._waiting: set[asyncio.Future[LaneOutcome]] = set()
        self._lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._ended = False

    async def open(self, exchanges: Iterable[str]) -> None:
        """Connect, and open the lanes that copies go by: while the broker blocks publishers, it
        opens none."""
        for exchange in {*exchanges, ""}:
            await self._open_lane((exchange, False))

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    @property
    def user(self) -> str:
        """Whom the broker knows us as."""
        assert self._connection is not None
        return self._connection.user

    @property
    def lost(self) -> bool:
        """Whether no outcome comes any more."""
        return self._lost.done()

    async def send(self, publish: Publish, *, by_handler: bool = False) -> LaneOutcome:
        """Publish one message; what became of it. Waits while the broker blocks publishers. Raises
        `ConnectionLost` if this ends before that is known."""
        way = (publish.exchange, by_handler)
        try:
            lane = self._lanes.get(way) or await self._open_lane(way)
            await lane.ready()
        except ConnectionLost as lost:
            raise _not_published() from lost
        if self._ended:
            raise _not_published()
        answer: asyncio.Future[LaneOutcome] = asyncio.get_running_loop().create_future()
        publish.context = answer
        for _, error in lane.publish_all((publish,)):
            return Poison(BrokerError(str(error)))
        self._waiting.add(answer)
        try:
            return await answer
        finally:
            self._waiting.discard(answer)

    def end(self) -> None:
        """Have nobody wait for an answer that does not come any more."""
        self._ended = True
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(
                    ConnectionLost(
                        "the consumer ended, or lost the broker, before the broker confirmed",
                        remedy="publish it again once it serves; the broker may have it already",
                    )
                )

    async def run(self) -> None:
        """Until a lane is lost; then its error is raised."""
        try:
            raise await asyncio.shield(self._lost)
        finally:
            for task in self._handing_out:
                task.cancel()

    async def _open_lane(self, way: tuple[str, bool]) -> Lane:
        async with self._opening:
            if way not in self._lanes and len(self._lanes) >= _MOST_LANES:
                way = ("", way[1])
            if way not in self._lanes:
                if self._connection is not None:
                    await self._connection.unblocked()
                lane = Lane(self._to_one, f"{self._name} publish", self._turns)
                await lane.open()
                self._lanes[way] = lane
                self._handing_out.append(asyncio.create_task(self._hand_out(lane)))
            return self._lanes[way]

    async def _to_one(self, name: str) -> Connection:
        """The connection of all lanes, or another once that is closed."""
        async with self._connecting:
            if self._ended:
                raise _not_published()
            if self._connection is None or not self._connection.is_open:
                self._connection = await self._connect(name)
            return self._connection

    async def _hand_out(self, lane: Lane) -> None:
        try:
            while True:
                for publish, outcome in await lane.next_outcomes():
                    answer = publish.context
                    assert isinstance(answer, asyncio.Future)
                    if not answer.done():
                        answer.set_result(outcome)
        except Exception as error:  # `run` raises it  # noqa: BLE001
            if not self._lost.done():
                self._lost.set_result(error)


def _not_published() -> ConnectionLost:
    return ConnectionLost(
        "the consumer ended, or lost the broker: it was not published",
        remedy="publish it again once it serves",
    )
