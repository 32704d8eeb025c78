"""Receipts: consumers that tell when they have handled a letter resolve it at once.

    redrive-receipts → read → settle a batch in the store → ack

A receipt is `{"letter": ID, "generation": N}`, with `"queue"` where the consumer tells it. One
that is none is rejected, and so parks in the dead letter queue; where that is not known to keep it,
it stays. One that names no letter, or says what is known already, is passed over. Settled, then
acked: killed in between, it is settled once more, which changes nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol
from uuid import UUID

import structlog

from redrive.amqp import Consumer, Delivery
from redrive.amqp.lane import Connect
from redrive.amqp.supervision import supervise
from redrive.domain.verdict import Receipt
from redrive.errors import BrokerError, StoreError
from redrive.events import Events, LetterChanged
from redrive.store.verdicts import Settled
from redrive.work.parking import Parking

log = structlog.get_logger()

_PREFETCH: Final = 500
_LONGEST: Final = 10_000
_STORE_AGAIN: Final = 1.0


class ReceiptStore(Protocol):
    """Where receipts are settled."""

    async def settle_receipts(self, receipts: Sequence[Receipt]) -> list[Settled]: ...


class Receipts:
    """Settles the receipts of one queue, until stopped."""

    def __init__(
        self,
        queue: str,
        verdicts: ReceiptStore,
        connect: Connect,
        parking: Parking,
        events: Events | None = None,
    ) -> None:
        self._queue = queue
        self._parking = parking
        self._verdicts = verdicts
        self._connect = connect
        self._events = events or Events()
        self._stopping = asyncio.Event()
        self._outage = ""

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Settle until `stop`, through every loss of the broker and the store."""
        await supervise(self._session, on_lost=self._on_lost, stopping=self._stopping)

    def _on_lost(self, error: BrokerError, delay: timedelta) -> None:
        if str(error) != self._outage:
            self._outage = str(error)
            log.warning("receipts.lost", error=str(error), remedy=error.remedy)

    async def _session(self) -> None:
        connection = await self._connect("redrive receipts")
        try:
            channel = await connection.channel()
            consumer = await channel.consume(self._queue, prefetch=_PREFETCH)
            self._outage = ""
            stopped = asyncio.ensure_future(self._cancel_when_stopped(consumer))
            try:
                while batch := await consumer.next_batch():
                    await self._settle(consumer, batch)
            finally:
                stopped.cancel()
            await connection.close()
        finally:
            connection.abort()

    async def _cancel_when_stopped(self, consumer: Consumer) -> None:
        await self._stopping.wait()
        await consumer.cancel()

    async def _settle(self, consumer: Consumer, batch: Sequence[Delivery]) -> None:
        read = [(delivery, read_receipt(delivery.body)) for delivery in batch]
        known = [receipt for _, receipt in read if receipt is not None]
        while known:
            try:
                settled = await self._verdicts.settle_receipts(known)
                break
            except StoreError as error:
                log.warning("receipts.store_away", error=str(error), remedy=error.remedy)
                if self._stopping.is_set():
                    return  # not acked: they are delivered again
                await asyncio.sleep(_STORE_AGAIN)
                consumer.check()
        else:
            settled = []
        for each in settled:
            self._events.tell(LetterChanged(each.letter, each.letter.status, each.reason))
            log.info(
                "letter.verdict",
                letter=each.letter.id,
                queue=each.letter.queue,
                state="resolved",
                resolution="receipt",
            )
        for delivery, receipt in read:
            if receipt is not None:
                consumer.ack(delivery)
        consumer.flush()
        for delivery, receipt in read:
            if receipt is None:
                await self._put_aside(consumer, delivery)

    async def _put_aside(self, consumer: Consumer, delivery: Delivery) -> None:
        """What is no receipt is rejected where that keeps it, and else stays in the queue."""
        parks = await self._parking.keeps(self._queue)
        log.warning(
            "receipts.unreadable", size=len(delivery.body), result="parked" if parks else "stays"
        )
        if parks:
            consumer.reject(delivery)
        else:
            consumer.hold(delivery)


def read_receipt(body: bytes) -> Receipt | None:
    """A receipt; None if it is none."""
    if len(body) > _LONGEST:
        return None
    try:
        document = json.loads(body)
        letter = str(UUID(document["letter"]))
        generation, queue = document["generation"], document.get("queue")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if type(generation) is not int or not 0 < generation < 2**31:
        return None
    if queue is not None and not isinstance(queue, str):
        return None
    return Receipt(letter=letter, generation=generation, queue=queue)
