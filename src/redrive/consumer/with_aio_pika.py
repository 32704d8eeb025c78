"""For consumers that stay with aio-pika: the same failure headers and retry path, by one call.

    sending = await connection.channel(publisher_confirms=True, on_return_raises=True)

    async def on_message(message):
        try:
            await work(message.body)
        except Exception as error:
            await failed(message, error, channel=sending, queue="settlements", retries=3)
        else:
            await message.ack()

Install with `redrive[aio-pika]`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import aio_pika
from aio_pika.exceptions import ChannelClosed, DeliveryError, PublishError

from redrive.broker.ladder import describe_ladder
from redrive.consumer.foreign import (
    Failed,
    Forward,
    dead_instead,
    forward,
    refuse_wrong,
    usual_settings,
)
from redrive.errors import SettingsError, Unpublishable
from redrive.settings import Settings

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

_one_at_a_time: WeakKeyDictionary[Any, asyncio.Lock] = WeakKeyDictionary()


async def failed(
    message: AbstractIncomingMessage,
    error: BaseException,
    *,
    channel: AbstractChannel,
    queue: str,
    retries: int | None = 3,
    settings: Settings | None = None,
) -> None:
    """Send a failed message to its retry or to the dead letter queue, confirmed, and ack it.

    `error` may be a `RetryAfter` or a `DeadLetter`. `retries=None` leaves it to the policy of the
    routing key. `channel` publishes, with confirms and raising on returns, one copy at a time: with
    several under way, aio-pika may take one that was returned for confirmed. Raises `Unpublishable`
    if no queue takes the copy: then the message is not acked.
    """
    refuse_wrong(queue, error, retries)
    if not getattr(channel, "publisher_confirms", False) or not getattr(
        channel, "on_return_raises", False
    ):
        raise SettingsError(
            "failed(): expected a channel with publisher_confirms and on_return_raises",
            remedy="connection.channel(publisher_confirms=True, on_return_raises=True)",
        )
    settings = settings or usual_settings()
    expiration = message.properties.expiration
    sent = forward(
        Failed(
            queue=queue,
            exchange=message.exchange or "",
            routing_key=message.routing_key or "",
            headers=message.headers,
            body=message.body,
            message_id=message.message_id,
            redelivered=bool(message.redelivered),
            user_id=message.user_id,
            expiration=None if expiration is None else str(expiration),
        ),
        error,
        retries=retries,
        settings=settings,
    )
    async with _one_at_a_time.setdefault(channel, asyncio.Lock()):
        try:
            await _send(channel, sent, message, settings)
        except ChannelClosed as closed:
            raise Unpublishable(
                f"the broker closed the channel on the copy: {closed}",
                remedy="run 'redrive topology apply'; the message is unacked, so it stays",
            ) from closed
    await message.ack()


async def _send(
    channel: AbstractChannel, sent: Forward, message: AbstractIncomingMessage, settings: Settings
) -> None:
    try:
        await _publish_up(channel, sent, message, settings)
    except DeliveryError as trouble:
        why, refused = f"not taken by {sent.routing_key!r}", not isinstance(trouble, PublishError)
        instead = dead_instead(sent, why, settings, refused=refused)
        if instead.exchange == sent.exchange:
            raise _stuck(sent) from trouble
        try:
            await _publish(channel, instead, message)
        except DeliveryError as stuck:
            raise _stuck(instead) from stuck


async def _publish_up(
    channel: AbstractChannel, sent: Forward, message: AbstractIncomingMessage, settings: Settings
) -> None:
    """Publish a copy; one for the ladder may be the first, and have to make it."""
    try:
        await _publish(channel, sent, message)
    except DeliveryError:
        if not sent.rung:
            raise
        await _declare_ladder(channel, settings)
        await _publish(channel, sent, message)


async def _publish(
    channel: AbstractChannel, sent: Forward, message: AbstractIncomingMessage
) -> None:
    again = aio_pika.Message(
        message.body,
        headers=sent.headers,
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        priority=message.priority,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        message_id=message.message_id,
        timestamp=message.timestamp,
        type=message.type,
        app_id=message.app_id,
    )
    exchange = (
        await channel.get_exchange(sent.exchange, ensure=False)
        if sent.exchange
        else channel.default_exchange
    )
    await exchange.publish(again, sent.routing_key, mandatory=True)


async def _declare_ladder(channel: AbstractChannel, settings: Settings) -> None:
    """On channels of its own: a rung that exists otherwise is used as it is, but closes one."""
    connection: Any = channel._connection  # type: ignore[attr-defined]  # no other way
    for rung in describe_ladder(settings.topology):
        try:
            async with connection.channel() as spare:
                await spare.declare_queue(rung.name, durable=True, arguments={**rung.arguments})
        except ChannelClosed:
            continue


def _stuck(sent: Forward) -> Unpublishable:
    return Unpublishable(
        f"the dead letter queue behind {sent.exchange!r} took nothing",
        remedy="run 'redrive topology apply'; the message is unacked, so it stays",
    )
