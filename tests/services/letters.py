"""Arrivals for tests: dead messages as the collector would hand them to the store."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert, text, update

from redrive.amqp import Delivery, Properties, fields
from redrive.broker.own_queues import own_queues
from redrive.domain.letter import Arrival, Result
from redrive.domain.lifecycle import State
from redrive.settings.sections import TopologySettings
from redrive.store.digests import body_digest
from redrive.store.schema import redrive_attempt, redrive_letter
from redrive.store.store import Store, open_letter_store
from redrive.work.system_state import SystemState
from redrive.work.understand import Understanding
from tests.services.empty_stores import prepare

OWN = own_queues(TopologySettings())
BEGAN = datetime(2026, 2, 11, 12, 0, 7, 123456, tzinfo=UTC)
STATE = SystemState(0.25, 0.5)

_numbers = itertools.count(1)
_random = random.Random(20260211)
understanding = Understanding("/", OWN, {"dlq-queue", "redrive-receipts"})


def death(
    queue: str, *, reason: str = "rejected", count: int = 1, key: str = "order.created", at: int = 0
) -> bytes:
    """A raw entry of `x-death`; `at` is seconds after the beginning."""
    return fields.table(
        {
            "count": fields.int64(count),
            "reason": fields.longstr(reason),
            "queue": fields.longstr(queue),
            "time": fields.timestamp(BEGAN + timedelta(seconds=at)),
            "exchange": fields.longstr("shop"),
            "routing-keys": fields.array([fields.longstr(key)]),
        }
    )


def died_in(queue: str, **more: Any) -> dict[str, bytes]:
    """Headers of a message that its consumer rejected."""
    return {"x-death": fields.array([death(queue, **more)])}


def arrival(
    body: bytes = b'{"order": 1}',
    *,
    headers: Mapping[str, bytes] | None = None,
    properties: Mapping[str, str] | None = None,
    queue: str = "dlq-queue",
    redelivered: bool = False,
    at: timedelta | None = None,
    routing_key: str = "dlq-routing-key",
) -> Arrival:
    """A dead message, by default one that was rejected in `orders`. Each is a little later."""
    section = Properties.empty().with_headers(
        died_in("orders") if headers is None else dict(headers)
    )
    for name, value in (properties or {}).items():
        section = section.with_text(name, value)
    delivery = Delivery(1, redelivered, "dlq-exchange", routing_key, section.raw, body)
    later = timedelta(milliseconds=next(_numbers)) if at is None else at
    return understanding.arrival(
        delivery, queue, now=BEGAN + later, random=_random.getrandbits(74), state=STATE
    )


def failed(reason: str, *, error_type: str = "TIMEOUT_ERROR", queue: str = "orders") -> Arrival:
    """A dead message whose consumer said why."""
    said = {
        "redrive-error-type": fields.longstr(error_type),
        "redrive-error-reason": fields.longstr(reason),
    }
    return arrival(headers={**died_in(queue), **said})


@asynccontextmanager
async def letter_store(url: str) -> AsyncIterator[Store]:
    """A store with its tables, closed afterwards."""
    await prepare(url)
    store = await open_letter_store(url)
    try:
        yield store
    finally:
        await store.close()


def replayed(letter: str, generation: int) -> dict[str, bytes]:
    return {
        **died_in("orders"),
        "redrive-letter": fields.longstr(letter),
        "redrive-generation": fields.int32(generation),
    }


async def sent_by_a_worker(
    store: Store,
    kept: Arrival,
    *,
    generation: int = 1,
    before: State = State.PENDING,
    state: State = State.PROCESSING,
) -> None:
    """As if a worker had sent the letter."""
    async with store.database.writing() as connection:
        await connection.execute(
            insert(redrive_attempt).values(
                letter_id=kept.letter.id,
                generation=generation,
                at=BEGAN,
                worker_id="worker-1",
                strategy="immediate",
                result=Result.SENT.value,
                queue=kept.letter.queue,
                body_digest=body_digest(kept.envelope.body),
                before=before.value,
            )
        )
        await connection.execute(
            update(redrive_letter)
            .where(redrive_letter.c.id == kept.letter.id)
            .values(status=state.value, generation=generation, next_retry_at=None)
        )
        await connection.execute(
            text(
                "INSERT INTO redrive_ledger (fingerprint, account, delta) VALUES"
                f" ('{kept.letter.fingerprint}', '{before.value}', -1),"
                f" ('{kept.letter.fingerprint}', '{state.value}', 1)"
            )
        )


async def books_are_exact(store: Store) -> bool:
    return (await store.books.audit()).exact
