"""Publishes copies, each confirmed, and waits for what the broker says of them."""

from __future__ import annotations

import asyncio

from redrive.amqp import Publish
from redrive.amqp.lane import Lane, LaneOutcome, Poison
from redrive.errors import BrokerError


class Sending:
    """Many may wait at a time; `run` hands the outcomes out."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.lost = False
        """Whether no outcome comes any more."""

    @property
    def user(self) -> str:
        """Whom the broker knows us as."""
        return self._lane.user

    async def send(self, publish: Publish) -> LaneOutcome:
        """Publish one message; what became of it. Waits while the broker blocks publishers."""
        await self._lane.ready()
        answer: asyncio.Future[LaneOutcome] = asyncio.get_running_loop().create_future()
        publish.context = answer
        for _, error in self._lane.publish_all((publish,)):
            return Poison(BrokerError(str(error)))
        return await answer

    async def run(self) -> None:
        """Until the lane is lost; then its error is raised, and nobody's wait ends."""
        try:
            while True:
                for publish, outcome in await self._lane.next_outcomes():
                    answer = publish.context
                    assert isinstance(answer, asyncio.Future)
                    if not answer.done():
                        answer.set_result(outcome)
        finally:
            self.lost = True
