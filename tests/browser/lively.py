"""A busy day of a shop, as the console sees it: groups, waves, decisions, a replay under way, a
breaker that is open, a topology that has drifted. For pictures, and for tests that want a bit of
everything.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import insert, update

from redrive import runtime
from redrive.amqp import fields
from redrive.broker.site import Site
from redrive.domain.alerting import DEFAULT_RULES
from redrive.domain.breaker import USUAL, Breaker, write_breaker
from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.letter import Arrival, Head, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import Destination, Replay, ReplayOrder
from redrive.store.schema import redrive_breaker, redrive_history
from redrive.store.sendings import Outcome
from tests.services.alerting import desk
from tests.services.letters import BEGAN, arrival, died_in
from tests.services.sending import later
from tests.services.serving import Server
from tests.services.wiring import fill

WORKER = "worker-1"
_LEASE = timedelta(minutes=1)


@dataclass(frozen=True)
class Failure:
    """Something that goes wrong in the shop, how often, and around how many hours ago."""

    error_type: str
    reason: str
    queue: str
    key: str
    letters: int
    hours_ago: float
    spread: float


FAILURES = (
    Failure(
        "TIMEOUT_ERROR", "POST https://pay.example/v2/charges timed out after 5000 ms",
        "payments.charge", "payment.charge.eu", 148, 1.2, 0.7,
    ),
    Failure(
        "ConnectionRefusedError", "connect ECONNREFUSED 10.4.7.21:5432",
        "orders.created", "order.created", 96, 3.5, 1.4,
    ),
    Failure(
        "VALIDATION_ERROR", "order.currency: 'DKK' is not one of EUR, USD, GBP",
        "orders.created", "order.created", 41, 9.0, 6.0,
    ),
    Failure(
        "KeyError", "'customer_id'", "invoices.render", "invoice.requested", 27, 14.0, 5.0,
    ),
    Failure(
        "RateLimited", "429 Too Many Requests: mail gateway, retry after 30 s",
        "mail.outgoing", "mail.order.confirmation", 63, 6.0, 4.0,
    ),
    Failure(
        "REJECTED", "the consumer rejected it", "warehouse.pick", "pick.requested", 18, 11.0, 8.0,
    ),
    Failure(
        "DeadlockDetected", "deadlock detected while updating stock of SKU 48213-B",
        "warehouse.stock", "stock.changed", 12, 2.0, 1.0,
    ),
    Failure(
        "java.lang.NullPointerException",
        'Cannot invoke "Address.getCountry()" because "address" is null',
        "shipping.label", "shipment.created", 33, 16.0, 6.0,
    ),
    Failure("DELIVERY_LIMIT", "it was delivered too often", "search.index", "product.changed",
            9, 20.0, 2.0),
    Failure("EXPIRED", "it waited longer than it was worth", "payments.charge",
            "payment.charge.us", 14, 18.0, 4.0),
)  # fmt: skip


async def busy_day(server: Server) -> None:
    """Fill a server's store and its vhost."""
    chance = random.Random(8)
    now = datetime.now(UTC)
    ids: dict[str, list[str]] = {}
    for failure in FAILURES:
        ago = [
            abs(chance.gauss(failure.hours_ago, failure.spread / 2)) for _ in range(failure.letters)
        ]
        ids[failure.error_type] = await server.add(
            *(
                _dead(failure, number, now - timedelta(hours=hours, seconds=5))
                for number, hours in enumerate(ago)
            )
        )
    await _decide(server, ids, chance)
    await _notes(server, ids)
    vhost = runtime.addresses(server.settings)[0].vhost
    await breaker_opens(server, "payments.charge")
    async with server.store.database.writing() as connection:
        await connection.execute(
            insert(redrive_breaker).values(
                vhost=vhost,
                destination="mail.outgoing",
                value=write_breaker(Breaker(failures=2)),
                updated_at=now,
            )
        )
    done = await replay_of(server, Filters(error_type="DeadlockDetected"), batch_size=20)
    await goes_on(server, done)
    job = await replay_of(server, Filters(error_type="ConnectionRefusedError"), batch_size=40)
    await goes_on(server, job, refused=3)


async def alerts_fire(server: Server) -> None:
    """Alerts of the last minutes, judged as a janitor does. Nobody collects here, so the alert on
    that is left out."""
    rules = [rule for rule in DEFAULT_RULES if rule.name != "CollectorStopped"]
    judging = timedelta(minutes=4)
    later(server.store, -judging)
    await desk(server.store, rules).judge_for(judging)


def _dead(failure: Failure, number: int, at: datetime) -> Arrival:
    said = {
        "redrive-error-type": fields.longstr(failure.error_type),
        "redrive-error-reason": fields.longstr(failure.reason),
    }
    body = f'{{"order": {48000 + number}, "currency": "DKK", "total": {number * 7 + 990}}}'
    when = int((at - BEGAN).total_seconds())
    return arrival(
        body.encode(),
        headers={**died_in(failure.queue, key=failure.key, at=when - 3), **said},
        properties={"content_type": "application/json", "app_id": "shop"},
        at=at - BEGAN,
    )


async def _decide(server: Server, ids: dict[str, list[str]], chance: random.Random) -> None:
    """Some are put away, some were resolved over the day."""
    store = server.store
    await store.decisions.discard(ids["EXPIRED"][:9], "user:maja", "too old to charge")
    resolved = ids["VALIDATION_ERROR"][:19] + ids["RateLimited"][:38] + ids["KeyError"][:6]
    await store.decisions.discard(resolved, "user:maja")
    await store.decisions.restore(resolved, "user:maja")
    await store.decisions.resolve(resolved, "user:maja", "corrected by hand")
    now = datetime.now(UTC)
    async with store.database.writing() as connection:
        for each in resolved:
            at = now - timedelta(hours=abs(chance.gauss(4, 3)))
            await connection.execute(
                update(redrive_history)
                .where(redrive_history.c.letter_id == each)
                .where(redrive_history.c.after == State.RESOLVED.value)
                .values(at=at)
            )


async def _notes(server: Server, ids: dict[str, list[str]]) -> None:
    for error_type, note, assignee in (
        ("TIMEOUT_ERROR", "The provider has an incident. Replay once their page is green.", "maja"),
        ("VALIDATION_ERROR", "DKK goes live on Monday; patch the currency until then.", "tom"),
    ):
        letter = await server.store.letters.kept(ids[error_type][0])
        assert letter is not None
        await server.store.notes.set(
            letter.letter.fingerprint, note, assignee, "user:maja", made_from=None
        )


async def breaker_opens(server: Server, queue: str) -> None:
    """As if seven letters in a row had failed there."""
    now = datetime.now(UTC)
    async with server.store.database.writing() as connection:
        await connection.execute(
            insert(redrive_breaker).values(
                vhost=runtime.addresses(server.settings)[0].vhost,
                destination=queue,
                value=write_breaker(Breaker(limits=USUAL).on_failure(now, 7)),
                updated_at=now,
            )
        )


async def replay_of(
    server: Server, filters: Filters, *, batch_size: int = 10, actor: str = "user:maja"
) -> Replay:
    """A job that nobody runs yet."""
    words = f"error type {filters.error_type}" if filters.error_type else "every open letter"
    made = await server.store.replays.create(
        letter_id(datetime.now(UTC), secrets.randbits(74)),
        runtime.addresses(server.settings)[0].vhost,
        filters,
        ReplayOrder(actor=actor, described=words, batch_size=batch_size),
    )
    assert made is not None
    return made


async def goes_on(server: Server, replay: Replay, *, refused: int = 0) -> None:
    """A worker sends one more batch; some of it the broker does not take."""
    store = server.store
    held = await store.replays.begin(replay.id, WORKER, _LEASE)
    batch = await store.replays.take_batch(held, WORKER, _to_origin)
    outcomes = [
        Outcome(
            claim=claim,
            result=Result.REFUSED if number < refused else Result.SENT,
            reason="there is no such queue" if number < refused else "",
        )
        for number, claim in enumerate(batch.claims)
    ]
    await store.sendings.record(WORKER, outcomes, verdict_after=timedelta(minutes=10))


def _to_origin(one: Letter | Head) -> Destination | None:
    return None if one.queue is None else Destination(queue=one.queue)


async def topology(server: Server, *, holds: Sequence[tuple[str, int]] = ()) -> None:
    """Redrive's exchanges and queues; some hold so many messages."""
    async with site(server) as made:
        await made.apply()
        for queue, number in holds:
            await fill(made.connection, queue, [b"%d" % each for each in range(number)])


async def drift_apart(server: Server) -> None:
    """Somebody deletes a tier, and takes a binding away."""
    async with site(server) as made:
        channel = await made.connection.channel()
        await channel.delete_queue("queue.delay.3")
        await channel.unbind_queue("retry-queue", "retry-exchange", "#")
        await channel.close()


@asynccontextmanager
async def site(server: Server) -> AsyncIterator[Site]:
    """The broker of a server."""
    connection = await runtime.connect(server.settings, "test")
    try:
        yield Site(server.settings, connection, runtime.management(server.settings))
    finally:
        await connection.close()
