"""Whether a queue is classic, where no management API tells.

A prefetch for a whole channel, and not for one consumer, is known to classic queues only: RabbitMQ
refuses the consumer of any other (540, tried on 3.10.8 and 4.0.5), before it is given a message. So
asking harms nothing: a classic queue gives its first message and has it back, at the head, where
classic queues put what comes back; and they count nothing.

The refusal ends the connection, so it has one of its own.
"""

from __future__ import annotations

from redrive.amqp.lane import Connect
from redrive.errors import ConnectionClosed


async def is_classic(connect: Connect, queue: str) -> bool:
    """Whether a queue is known to be classic. Raises the refusal if we may not read it."""
    connection = await connect(f"redrive ask for the type of {queue}")
    try:
        channel = await connection.channel()
        consumer = await channel.consume(queue, prefetch=1, for_channel=True)
        await consumer.cancel()
        consumer.return_everything()
        await channel.close()
        await connection.close()
    except ConnectionClosed:
        return False
    finally:
        connection.abort()
    return True
