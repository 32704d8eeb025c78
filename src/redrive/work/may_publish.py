"""Whether we may publish to an exchange, found out by a message that no queue ever gets.

Its expiration is no number. A broker looks at the permission first, then for the exchange, then at
the properties, and refuses it for these (406, tried on 3.10.8, 4.0.5 and 4.3.6).
"""

from __future__ import annotations

from redrive.amqp import Properties, Publish
from redrive.amqp.lane import Connect
from redrive.errors import PreconditionFailed


async def assure_that_we_may_publish(connect: Connect, exchange: str) -> None:
    """Raise the broker's refusal unless we may: `AccessRefused`, or `NotFound`."""
    connection = await connect(f"redrive ask whether we may publish to {exchange or 'a queue'}")
    never = Properties.empty().with_text("expiration", "never").raw
    try:
        publisher = await (await connection.channel()).publisher()
        await publisher.ready()
        publisher.publish(Publish(exchange, "", never, b""))
        await publisher.next_outcomes()
    except PreconditionFailed:
        await connection.close()
    finally:
        connection.abort()
