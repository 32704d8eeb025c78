"""A connection and a channel of the test's own vhost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from redrive.amqp import (
    Channel,
    Connection,
)
from redrive.broker.private import PrivateNode
from redrive.broker.processes import free_ports
from tests.services.plugin import Vhost
from tests.services.wiring import (
    TlsBroker,
    connected,
)


@pytest.fixture
async def connection(vhost: Vhost) -> AsyncIterator[Connection]:
    async with connected(vhost.url) as opened:
        yield opened


@pytest.fixture
async def channel(connection: Connection) -> Channel:
    return await connection.channel()


@pytest.fixture(scope="module")
def tls(rabbitmq_root: Path | None) -> Iterator[TlsBroker]:
    broker = TlsBroker(PrivateNode(root=rabbitmq_root), free_ports(1)[0])
    broker.lay_out()
    with broker.node as node:
        node.api("PUT", "users/client", {"password_hash": "", "tags": ""})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        node.api("PUT", "permissions/%2F/client", everything)
        yield broker
