"""A consumer of the SDK whose user may do what docs/how-to/least-privilege.md names: no more."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from redrive import Consumer, Message, RetryAfter
from tests.services.consuming import DEAD, QUEUE, consumed, eventually, send, serving, settings_for
from tests.services.moving import holds
from tests.services.plugin import Vhost
from tests.services.retrying import retrying

BESIDE = (QUEUE, "redrive-again-.*", "redrive-alone-.*", "redrive-after-.*")
PERMISSIONS = {
    "configure": BESIDE,
    "write": (QUEUE, "route-delay", "dlq-exchange", "amq[.]default", "retry-exchange-1"),
    "read": (*BESIDE, "redrive-return"),
}


@pytest.fixture
def little(vhost: Vhost) -> Iterator[str]:
    """The URL of a user with the documented permissions."""
    user, node = f"little-{secrets.token_hex(4)}", vhost.node
    node.api("PUT", f"users/{user}", {"password": user, "tags": ""})
    patterns = {what: f"^({'|'.join(names)})$" for what, names in PERMISSIONS.items()}
    node.api("PUT", f"permissions/{quote(vhost.name)}/{user}", patterns)
    yield vhost.url.replace("guest:guest", f"{user}:{user}")
    node.api("DELETE", f"users/{user}")


async def test_a_consumer_declares_its_queues_and_retries_with_the_documented_permissions(
    vhost: Vhost, little: str
) -> None:
    settings = settings_for(little, "quorum")
    consumer, seen = Consumer(settings=settings), []

    @consumer.handler(QUEUE, retries=2)
    async def settle(message: Message) -> None:
        seen.append(message.retry_count)
        if message.retry_count == 0:
            raise RetryAfter("10ms")
        raise ValueError("no")

    async with retrying(vhost.url, settings.topology, {}), serving(consumer):
        await consumed(vhost.url)
        await send(vhost.url, "m", queue=f"redrive-again-{QUEUE}")
        await holds(vhost.url, DEAD, 1)
        await send(vhost.url, "n", queue=f"redrive-alone-{QUEUE}")
        await holds(vhost.url, DEAD, 2)
    await eventually(lambda: seen == [0, 1, 2, 0, 1, 2], "all tries")
