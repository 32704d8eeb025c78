"""For consumers that stay with pika: the same failure headers and retry path, by one call.

    def on_message(channel, method, properties, body):
        try:
            work(body)
        except Exception as error:
            failed(channel, method, properties, body, error, queue="settlements", retries=3)
        else:
            channel.basic_ack(method.delivery_tag)

Install with `redrive[pika]`.
"""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any

from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from redrive.broker.ladder import describe_ladder
from redrive.consumer.foreign import (
    Failed,
    Forward,
    dead_instead,
    forward,
    refuse_wrong,
    usual_settings,
)
from redrive.errors import Unpublishable
from redrive.settings import Settings

if TYPE_CHECKING:
    from pika import BasicProperties
    from pika.adapters.blocking_connection import BlockingChannel
    from pika.spec import Basic


def failed(  # noqa: PLR0913  (the first four are what pika gives a callback)
    channel: BlockingChannel,
    method: Basic.Deliver,
    properties: BasicProperties,
    body: bytes,
    error: BaseException,
    *,
    queue: str,
    retries: int | None = 3,
    settings: Settings | None = None,
) -> None:
    """Send a failed message to its retry or to the dead letter queue, confirmed, and ack it.

    `error` may be a `RetryAfter` or a `DeadLetter`. `retries=None` leaves it to the policy of the
    routing key. The channel is put into confirm mode. Raises `Unpublishable` if no queue takes the
    copy: then the message is not acked. Without Redrive's exchanges the broker also closes the
    channel.
    """
    refuse_wrong(queue, error, retries)
    settings = settings or usual_settings()
    message = Failed(
        queue=queue,
        exchange=method.exchange,
        routing_key=method.routing_key,
        headers=properties.headers or {},
        body=body,
        message_id=properties.message_id,
        redelivered=method.redelivered,
        user_id=properties.user_id,
        expiration=properties.expiration,
    )
    if not getattr(channel, "_delivery_confirmation", False):
        channel.confirm_delivery()
    sent = forward(message, error, retries=retries, settings=settings)
    try:
        _send(channel, sent, properties, body, settings)
    except ChannelClosedByBroker as closed:
        raise Unpublishable(
            f"the broker closed the channel on the copy: {closed.reply_text}",
            remedy="run 'redrive topology apply'; the message is unacked, so it comes back",
        ) from closed
    channel.basic_ack(method.delivery_tag)


def _send(
    channel: BlockingChannel,
    sent: Forward,
    properties: BasicProperties,
    body: bytes,
    settings: Settings,
) -> None:
    try:
        _publish_up(channel, sent, properties, body, settings)
    except (UnroutableError, NackError) as trouble:
        why, refused = f"not taken by {sent.routing_key!r}", isinstance(trouble, NackError)
        instead = dead_instead(sent, why, settings, refused=refused)
        if instead.exchange == sent.exchange:
            raise _stuck(sent) from trouble
        try:
            _publish(channel, instead, properties, body)
        except (UnroutableError, NackError) as stuck:
            raise _stuck(instead) from stuck


def _publish_up(
    channel: BlockingChannel,
    sent: Forward,
    properties: BasicProperties,
    body: bytes,
    settings: Settings,
) -> None:
    """Publish a copy; one for the ladder may be the first, and have to make it."""
    try:
        _publish(channel, sent, properties, body)
    except UnroutableError:
        if not sent.rung:
            raise
        _declare_ladder(channel.connection, settings)
        _publish(channel, sent, properties, body)


def _publish(channel: Any, sent: Forward, properties: BasicProperties, body: bytes) -> None:
    again = copy.copy(properties)
    again.headers = sent.headers
    again.delivery_mode = 2
    again.user_id = again.expiration = None
    channel.basic_publish(sent.exchange, sent.routing_key, body, again, mandatory=True)


def _declare_ladder(connection: Any, settings: Settings) -> None:
    """On channels of its own: a rung that exists otherwise is used as it is, but closes one."""
    spare = connection.channel()
    for rung in describe_ladder(settings.topology):
        if not spare.is_open:
            spare = connection.channel()
        with contextlib.suppress(ChannelClosedByBroker):
            spare.queue_declare(rung.name, durable=True, arguments=rung.arguments)
    if spare.is_open:
        spare.close()


def _stuck(sent: Forward) -> Unpublishable:
    return Unpublishable(
        f"the dead letter queue behind {sent.exchange!r} took nothing",
        remedy="run 'redrive topology apply'; the message is unacked, so it stays",
    )
