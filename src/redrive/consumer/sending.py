"""Publishes copies, each confirmed, and waits for what the broker says of them."""

from __future__ import annotations

import asyncio

from redrive.amqp import Publish
from redrive.amqp.lane import Lane, LaneOutcome, Poison
from redrive.errors import BrokerError, ConnectionLost


class Sending:
    """Many may wait at a time; `run` hands the outcomes out."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._waiting: set[asyncio.Future[LaneOutcome]] = set()
        self._ended = False

    @property
    def user(self) -> str:
        """Whom the broker knows us as."""
        return self._lane.user

    async def send(self, publish: Publish) -> LaneOutcome:
        """Publish one message; what became of it. Waits while the broker blocks publishers. Raises
        `ConnectionLost` if this ends before that is known."""
        await self._lane.ready()
        if self._ended:
            raise ConnectionLost(
                "the consumer ended, or lost the broker: it was not published",
                remedy="publish it again once it serves",
            )
        answer: asyncio.Future[LaneOutcome] = asyncio.get_running_loop().create_future()
        publish.context = answer
        for _, error in self._lane.publish_all((publish,)):
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
        """Until the lane is lost; then its error is raised."""
        while True:
            for publish, outcome in await self._lane.next_outcomes():
                answer = publish.context
                assert isinstance(answer, asyncio.Future)
                if not answer.done():
                    answer.set_result(outcome)
