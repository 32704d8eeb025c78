"""Getting in by TLS: authorities, client certificates, names."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.services.eventually import eventually_async
from tests.services.wiring import (
    MIB,
    TlsBroker,
    connected,
    fill,
    peer,
    why_not,
)


async def test_tls_with_the_brokers_authority_connects(tls: TlsBroker) -> None:
    async with connected(tls.url(f"cacertfile={tls.folder}/ca.pem")) as connection:
        await (await connection.channel()).declare_queue("q", exclusive=True)


async def test_bodies_pass_intact_over_tls(tls: TlsBroker) -> None:
    async with connected(tls.url(f"cacertfile={tls.folder}/ca.pem")) as connection:
        channel = await connection.channel()
        await channel.declare_queue("large", exclusive=True)
        body = random.Random(1).randbytes(3 * MIB)
        await fill(connection, "large", [body])
        got = await eventually_async(lambda: channel.get("large"))
        assert got is not None
        assert got.body == body


async def test_a_client_certificate_logs_in_by_itself(tls: TlsBroker) -> None:
    files = "&".join(f"{key}={tls.folder}/{name}" for key, name in CLIENT_FILES.items())
    async with connected(tls.url(f"{files}&auth_mechanism=external")) as connection:
        await connection.channel()

        def users() -> list[str | None]:
            return [each.get("user") for each in tls.node.api("GET", "connections")]

        # the management API tells late, and of connections that are no more as well
        await eventually_async(lambda: asyncio.to_thread(lambda: "client" in users()))


CLIENT_FILES = {"cacertfile": "ca.pem", "certfile": "client.pem", "keyfile": "client.key"}


async def test_external_without_a_certificate_is_refused(tls: TlsBroker) -> None:
    query = f"cacertfile={tls.folder}/ca.pem&auth_mechanism=external"
    assert "ACCESS_REFUSED" in await why_not(tls.url(query))


@pytest.mark.parametrize("authority", ["", "other-ca.pem"])
async def test_a_certificate_of_an_unknown_authority_is_not_trusted(
    tls: TlsBroker, authority: str
) -> None:
    query = f"cacertfile={tls.folder}/{authority}" if authority else ""
    assert "certificate not trusted" in await why_not(tls.url(query))


async def test_a_certificate_for_another_host_is_not_trusted(tls: TlsBroker) -> None:
    url = tls.url(f"cacertfile={tls.folder}/ca.pem", host="127.0.0.1")
    assert "certificate not trusted" in await why_not(url)


async def test_the_name_to_look_for_in_the_certificate_can_be_given(tls: TlsBroker) -> None:
    query = f"cacertfile={tls.folder}/ca.pem&server_name_indication=localhost"
    async with connected(tls.url(query, host="127.0.0.1")) as connection:
        assert connection.is_open


async def test_any_certificate_will_do_when_verification_is_off(tls: TlsBroker) -> None:
    async with connected(tls.url("verify=verify_none")) as connection:
        assert connection.is_open


async def test_tls_to_the_plain_port_of_a_broker_is_a_typed_error(tls: TlsBroker) -> None:
    await why_not(f"amqps://guest:guest@localhost:{tls.node.port}/?connection_timeout=3000")


async def test_an_orderly_close_over_tls_leaves_no_socket_open(tls: TlsBroker) -> None:
    async with connected(tls.url(f"cacertfile={tls.folder}/ca.pem")) as connection:
        transport = connection._wire._transport
        assert transport is not None
        handle = transport.get_extra_info("socket")
    assert handle.fileno() == -1


async def test_a_plain_peer_that_stays_silent_on_tls_is_given_up_in_time() -> None:
    async with peer(b"") as port:
        why = await why_not(f"amqps://127.0.0.1:{port}/?connection_timeout=300")
    assert "no answer within 0.3 s" in why


async def test_a_plain_peer_that_talks_on_tls_is_a_typed_error() -> None:
    async with peer(b"not a handshake at all\r\n") as port:
        await why_not(f"amqps://127.0.0.1:{port}/?connection_timeout=2000")
