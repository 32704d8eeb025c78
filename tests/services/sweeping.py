"""What tests of sweep, move and peek need: dead messages in a queue, and the command line."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from redrive.amqp import Connection, Properties, Publish, fields
from redrive.amqp.lane import Connect
from redrive.broker.looking import read_version
from tests.services.commands import Redrive
from tests.services.letters import death
from tests.services.moving import Kind, channel_to, connector, identities, publish, take_all
from tests.services.plugin import Vhost

DLQ, FINAL = "dlq.orders", "permanent_failure_queue"
COUNTS = (1, 5, 5, 5, 1)
SPENDS = "--spend-deliveries"
LOOKS, PUBLISHES = "redrive look", "redrive publish"
"""How the names of a pass's two connections begin."""


def dead(
    identity: str | int, count: int, queue: str = DLQ, put: Mapping[str, bytes] | None = None
) -> Publish:
    """A message that died so often in `orders`."""
    properties = Properties.empty().with_text("message_id", str(identity)).persistent()
    headers = {"x-death": fields.array([death("orders", count=count)]), **(put or {})}
    return Publish("", queue, properties.with_headers(headers).raw, b"body of %d" % count)


async def fill(url: str, kind: Kind, counts: Sequence[int] = COUNTS, queue: str = DLQ) -> None:
    """A queue with messages that died so often, by number. Quorum queues as users make them."""
    async with channel_to(url) as channel:
        await channel.declare_queue(queue, arguments={"x-queue-type": kind})
    await publish(url, [dead(number, count, queue) for number, count in enumerate(counts)])


async def in_queue(url: str, queue: str) -> list[str]:
    """The identities of all that is in a queue, in its order; the queue is empty afterwards."""
    return identities(await take_all(url, queue))


def by_another_way(url: str, name: str, through: str) -> Connect:
    """Connects directly, but for the connection whose name begins so."""
    straight, around = connector(url), connector(through)

    async def connect(wanted: str) -> Connection:
        return await (around if wanted.startswith(name) else straight)(wanted)

    return connect


async def version_of(url: str) -> tuple[int, int]:
    async with channel_to(url) as channel:
        return read_version(channel.connection.server_properties.get("version"))


def counts_looks(version: tuple[int, int], kind: Kind) -> bool:
    """Whether a look costs the messages of a plain queue of this type."""
    return kind == "quorum" and (4, 0) <= version < (4, 3)


def without_management(vhost: Vhost, folder: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    """The command line where nobody tells the types and limits of queues."""
    return Redrive(folder, capsys, f'[broker]\nurl = "{vhost.url}"\n')


async def delivery_counts(url: str, queue: str) -> list[int]:
    """How often each message of a quorum queue came back so far; the queue is empty afterwards."""
    found = [Properties.read(each.properties) for each in await take_all(url, queue)]
    return [int(str(each.header("x-delivery-count") or 0)) for each in found]


@contextmanager
def few_permissions(vhost: Vhost, **allowed: str) -> Iterator[str]:
    """The vhost's URL for a user who may `configure`, `write` and `read` no more than is said, and
    see everything."""
    name = f"few-{secrets.token_hex(4)}"
    api = vhost.node.api
    api("PUT", f"users/{name}", {"password": name, "tags": "monitoring"})
    api("PUT", f"permissions/{quote(vhost.name, safe='')}/{name}", allowed)
    try:
        yield vhost.url.replace("guest:guest", f"{name}:{name}")
    finally:
        api("DELETE", f"users/{name}")


def command_line(
    vhost: Vhost, folder: Path, capsys: pytest.CaptureFixture[str], *, url: str = "", more: str = ""
) -> Redrive:
    settings = (
        f'[broker]\nurl = "{url or vhost.url}"\nmanagement_url = "{vhost.management_url}"\n{more}'
    )
    return Redrive(folder, capsys, settings)
