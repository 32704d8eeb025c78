"""Getting in: hosts, credentials, peers that are no brokers."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from redrive.amqp import (
    Connection,
)
from redrive.broker.processes import free_ports
from tests.services.eventually import eventually_async
from tests.services.plugin import Vhost
from tests.services.wiring import (
    connected,
    peer,
    why_not,
    with_password,
)


async def test_a_wrong_password_is_refused_with_the_brokers_reason(vhost: Vhost) -> None:
    why = await why_not(with_password(vhost.url, "s3cr3t"))
    assert "ACCESS_REFUSED" in why
    assert "s3cr3t" not in why


async def test_a_vhost_that_does_not_exist_is_named(vhost: Vhost) -> None:
    why = await why_not(vhost.node.url("no such vhost"))
    assert "no such vhost" in why
    assert "NOT_ALLOWED" in why


async def test_a_vhost_without_permission_is_refused(vhost: Vhost) -> None:
    node = vhost.node
    node.api("PUT", f"users/{vhost.name}", {"password": "s3cr3t", "tags": ""})
    url = f"amqp://{vhost.name}:s3cr3t@127.0.0.1:{node.port}/{quote(vhost.name, safe='')}"
    why = await why_not(url)
    assert ("access" in why, "s3cr3t" in why) == (True, False)
    node.api("DELETE", f"users/{vhost.name}")


async def test_a_closed_port_is_connection_refused() -> None:
    (port,) = free_ports(1)
    assert "connection refused" in await why_not(f"amqp://guest:s3cr3t@127.0.0.1:{port}/")


async def test_a_host_that_does_not_exist_is_named() -> None:
    assert "no such host" in await why_not("amqp://no-such-host.invalid/")


@pytest.mark.parametrize("host", ["a..b", f"{'x' * 64}.invalid"])
async def test_a_host_name_that_cannot_be_is_a_typed_error(host: str) -> None:
    await why_not(f"amqp://{host}/")


async def test_every_host_is_tried_and_every_reason_told(vhost: Vhost) -> None:
    (port,) = free_ports(1)
    wrong = with_password(vhost.url, "s3cr3t")
    closed = wrong.replace(f":{vhost.node.port}/", f":{port}/")
    why = await why_not(f"{closed},{wrong}")
    assert ("connection refused" in why, "ACCESS_REFUSED" in why) == (True, True)


async def test_the_second_host_is_taken_when_the_first_does_not_answer(vhost: Vhost) -> None:
    (port,) = free_ports(1)
    dead = vhost.url.replace(f":{vhost.node.port}/", f":{port}/")
    async with connected(f"{dead},{vhost.url}") as connection:
        assert connection.address.port == vhost.node.port


@pytest.mark.parametrize(
    ("says", "then_closes", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", False, "cannot be read"),
        (b"AMQP\x03\x01\x00\x00", True, "AMQP 1.0.0"),
        (b"", True, "lost"),
        (b"", False, "no answer within 0.3 s"),
        (bytes(4096), False, "cannot be read"),
        (b"\x01\x00\x00\x00\x00\x00\x05\x00\x0a\x00\x29\x00\xce", False, "Connection.OpenOk"),
    ],
)
async def test_a_peer_that_is_no_broker_is_told_apart(
    says: bytes, then_closes: bool, why: str
) -> None:
    async with peer(says, then_closes=then_closes) as port:
        told = await why_not(f"amqp://guest:s3cr3t@127.0.0.1:{port}/?connection_timeout=300")
    assert (why in told, "s3cr3t" in told) == (True, False)


async def test_the_connections_name_is_what_operators_see(vhost: Vhost) -> None:
    async with connected(vhost.url, "redrive retrier on host"):

        def names() -> list[str]:
            listed = vhost.node.api("GET", f"vhosts/{vhost.name}/connections")
            return [each["client_properties"].get("connection_name") for each in listed]

        await eventually_async(
            lambda: asyncio.to_thread(lambda: "redrive retrier on host" in names())
        )


async def test_a_vhost_with_a_slash_and_a_space_is_reached(vhost: Vhost) -> None:
    name = f"{vhost.name}/with a ü"
    vhost.node.create_vhost(name)
    async with connected(vhost.node.url(name)) as connection:
        await (await connection.channel()).declare_queue("q")
    vhost.node.delete_vhost(name)


async def test_the_broker_tells_its_version(connection: Connection) -> None:
    assert str(connection.server_properties["version"])[0] in "34"
