"""What suites share: a server, and brokers of others."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from redrive.broker.private import PrivateNode
from tests.services.foreign import Foreign
from tests.services.plugin import Vhost
from tests.services.serving import Server, serving, settings_for


@pytest.fixture
async def server(vhost: Vhost, tmp_path: Path) -> AsyncIterator[Server]:
    """A server on loopback, where nobody has to log in, with an empty SQLite store."""
    settings = settings_for(tmp_path, vhost.url, f"sqlite:///{tmp_path}/redrive.db")
    async with serving(settings) as up:
        yield up


@pytest.fixture(params=["sqlite", "postgresql"])
async def server_on_each(
    request: pytest.FixtureRequest, vhost: Vhost, tmp_path: Path
) -> AsyncIterator[Server]:
    """The same on each engine."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/redrive.db"
    else:
        url = request.getfixturevalue("store_database")
    async with serving(settings_for(tmp_path, vhost.url, url)) as up:
        yield up


@pytest.fixture
def foreign(rabbitmq: PrivateNode) -> Iterator[Foreign]:
    """A vhost with things of others in it."""
    name = f"foreign/{secrets.token_hex(4)}"
    rabbitmq.create_vhost(name)
    yield Foreign(Vhost(rabbitmq, name))
    rabbitmq.delete_vhost(name)
