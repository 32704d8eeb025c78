"""What a consumer looks at each minute, beside its work, to say it: what is missing on the broker,
and makes no call fail.

Retries that wait and that nobody brings back: no retrier runs. A dead letter exchange that a
handler's queue names and that is not there: what expires or is rejected is dropped by a classic
queue and held out of sight by a quorum queue, without a word. Nothing is made here. An exchange
that an argument names may be somebody else's to make.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from redrive.amqp import Connection
from redrive.broker.live import SpareChannel, can_exist
from redrive.consumer.logs import log
from redrive.consumer.serving import Known, Serving
from redrive.errors import BrokerError, NotFound
from redrive.settings.sections import TopologySettings

_EVERY: Final = 60.0


class Looks:
    """Looks, on the connection that asks the questions, until it is cancelled."""

    def __init__(
        self,
        connection: Connection,
        servings: Sequence[Serving],
        topology: TopologySettings,
        known: Known,
        *,
        all_open: asyncio.Event,
    ) -> None:
        """`servings` are those of the handlers that are open just then."""
        self._spare = SpareChannel(connection)
        self._servings = servings
        self._topology = topology
        self._known = known
        self._all_open = all_open

    async def run(self) -> None:
        """What a lost connection means is the others' to tell."""
        # A handler that is not open may be about to declare the exchange that another one names. It
        # may also wait for ever, for a queue that is not there.
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_open.wait(), _EVERY)
        while True:
            await self._for_exchanges()
            await asyncio.sleep(_EVERY)
            await self._for_a_retrier()

    async def _for_a_retrier(self) -> None:
        if self._known.no_retrier_told:
            return
        for queue in self._topology.of_each_tier(self._topology.names.delayed_queue):
            found = None
            with suppress(BrokerError):
                found = await self._spare.count(queue)
            messages, consumers = found or (0, 0)
            if messages and not consumers:
                self._known.no_retrier_told = True
                log.warning(
                    "consumer.no_retrier",
                    queue=queue,
                    messages=messages,
                    remedy="start 'redrive run', which brings retries back to their queues",
                )
                return

    async def _for_exchanges(self) -> None:
        for declared in [serving.declared for serving in self._servings]:
            exchange = declared.dead_letters_to
            if not can_exist(exchange):  # not known, the default one, or what closes a connection
                continue
            missing = (declared.name, exchange)
            try:
                await (await self._spare.open()).inspect_exchange(exchange)
            except NotFound:
                if missing not in self._known.dropping:
                    self._known.dropping.add(missing)
                    log.warning(
                        "consumer.no_dead_letter_exchange",
                        handler=declared.handler,
                        queue=declared.name,
                        exchange=exchange,
                        remedy=self._how_to_make(exchange),
                    )
            except BrokerError:
                continue
            else:
                self._known.dropping.discard(missing)

    def _how_to_make(self, exchange: str) -> str:
        by = (
            "'redrive topology apply' makes it"
            if exchange == self._topology.names.dlq_exchange
            else "declare it; Queue(dead_letter_exchange=...) does when a consumer starts"
        )
        return (
            "what expires in that queue, or is rejected, is dropped if it is classic, and held out"
            f" of sight if it is quorum; {by}"
        )
