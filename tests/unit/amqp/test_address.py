"""Broker URLs: read as RabbitMQ's own tools read them, wrong ones named without their password."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import Address, Delivery, Properties, parse_addresses
from redrive.amqp.address import TlsOptions
from redrive.amqp.republish import republished
from redrive.errors import SettingsError

SECRET = "s3cr3t"


def one(url: str) -> Address:
    (address,) = parse_addresses(url)
    return address


def test_a_bare_url_is_the_brokers_defaults() -> None:
    address = one("amqp://")
    assert (address.host, address.port, address.user, address.password, address.vhost) == (
        "127.0.0.1",
        5672,
        "guest",
        "guest",
        "/",
    )


def test_every_part_of_a_url_is_read() -> None:
    address = one(
        "amqp://alice:wonder@rabbit.example:1234/orders?heartbeat=7&connection_timeout=1500"
    )
    assert address == Address(
        host="rabbit.example",
        port=1234,
        user="alice",
        password="wonder",
        vhost="orders",
        heartbeat=timedelta(seconds=7),
        timeout=timedelta(milliseconds=1500),
    )


@pytest.mark.parametrize(
    ("path", "vhost"),
    [
        ("", "/"),
        ("/", "/"),
        ("/%2F", "/"),
        ("/%2Fa%2Fb", "/a/b"),
        ("/a%20b", "a b"),
        ("/%C3%BC", "ü"),
    ],
)
def test_a_vhost_is_percent_decoded(path: str, vhost: str) -> None:
    assert one(f"amqp://host{path}").vhost == vhost


def test_a_slash_in_a_vhost_must_be_encoded() -> None:
    with pytest.raises(SettingsError, match="%2F"):
        parse_addresses("amqp://host/a/b")


def test_user_and_password_are_percent_decoded() -> None:
    address = one("amqp://al%40ice:p%2Fa%3Fs%23s%2C%25@host/")
    assert (address.user, address.password) == ("al@ice", "p/a?s#s,%")


def test_an_ipv6_host_is_read() -> None:
    assert (one("amqp://[::1]:5673/").host, str(one("amqp://[::1]/"))) == (
        "::1",
        "amqp://[::1]:5672/%2F",
    )


def test_tls_has_a_port_of_its_own() -> None:
    assert one("amqps://host").port == 5671


def test_tls_is_verified_unless_told_otherwise() -> None:
    address = one("amqps://host")
    assert address.tls is not None
    context = address.tls.context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_verification_can_be_turned_off() -> None:
    address = one("amqps://host?verify=verify_none")
    assert address.tls is not None
    assert address.tls.context().verify_mode is ssl.CERT_NONE


def test_tls_parameters_are_read() -> None:
    address = one(
        "amqps://host?cacertfile=/ca.pem&certfile=/me.pem&keyfile=/me.key"
        "&server_name_indication=other&auth_mechanism=EXTERNAL"
    )
    assert address.external
    assert address.tls == TlsOptions(
        cacertfile="/ca.pem", certfile="/me.pem", keyfile="/me.key", server_name="other"
    )


USER_ID = b"\x00\x10\x05guest"


def test_where_a_certificate_says_who_we_are_every_user_id_is_set_aside() -> None:
    ours = one("amqps://host?auth_mechanism=external")
    delivery = Delivery(1, False, "", "orders", USER_ID, b"")
    sent = Properties.read(republished(delivery, user=ours.user))
    assert (sent.get("user_id"), sent.header("redrive-user-id")) == (None, "guest")


def test_who_a_certificate_makes_us_may_be_told_by_the_url() -> None:
    assert one("amqps://guest@host?auth_mechanism=external").user == "guest"


def test_several_hosts_are_tried_in_their_order() -> None:
    addresses = parse_addresses("amqp://a/v, amqps://b:1/v ,amqp://c/v")
    assert [(each.host, each.port) for each in addresses] == [("a", 5672), ("b", 1), ("c", 5672)]


def test_the_hosts_of_one_broker_name_one_vhost() -> None:
    with pytest.raises(SettingsError, match="same vhost"):
        parse_addresses("amqp://a/one,amqp://b/two")


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("", "empty"),
        (" , ", "empty"),
        ("http://host/", "amqp:// or amqps://"),
        ("host:5672", "amqp:// or amqps://"),
        ("amqp://host:99999/", "broker URL"),
        ("amqp://host/?heartbeat=soon", "heartbeat"),
        ("amqp://host/?heartbeat=-1", "heartbeat"),
        ("amqp://host/?auth_mechanism=magic", "auth_mechanism"),
        ("amqps://host/?verify=perhaps", "verify"),
        ("amqp://host/?colour=blue", "colour"),
        ("amqp://host/?cacertfile=/x", "cacertfile"),
        ("amqp://[::1/", "broker URL"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, wanted: str) -> None:
    with pytest.raises(SettingsError, match=wanted):
        parse_addresses(url)


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{SECRET}@host/",
        f"amqp://user:{SECRET}@host:port/",
        f"amqp://user:{SECRET}@host/a/b",
        f"amqp://user:{SECRET}@host/?heartbeat=soon",
        f"amqp://user:{SECRET}@[::1/",
        # what stands where the port should, since the host was forgotten or the password unescaped
        f"amqp://user:{SECRET}",
        f"amqp://user:{SECRET}/vhost",
        f"amqp://user:{SECRET}/more@host/",
        f"amqp://user:{SECRET}?more@host/",
        f"amqp://user:{SECRET}#more@host/",
        f"amqp://user:{SECRET},more@host/",
        f"amqp://user:1/{SECRET}@host/",
        f"amqp://user:1?{SECRET}@host/",
        f"amqp://user:1,{SECRET}@host/",
        f"amqp://user:1?heartbeat={SECRET}@host/",
        f"amqp://user:1/{SECRET}@host",
        f"amqp://user:1,{SECRET}:2@host/",
        # the standard library quotes the whole of it
        f"amqp://user:{SECRET}@ho\u2100st/",
    ],
)
def test_an_error_never_shows_the_password(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_addresses(url)
    assert SECRET not in f"{caught.value} {caught.value.remedy}"


def test_an_address_never_shows_its_password() -> None:
    address = one(f"amqp://user:{SECRET}@host/")
    assert SECRET not in f"{address} {address!r}"


@pytest.mark.parametrize("key", ["heartbeat", "connection_timeout"])
@pytest.mark.parametrize("digits", [25, 5000])
def test_a_number_beyond_reason_is_a_settings_error(key: str, digits: int) -> None:
    with pytest.raises(SettingsError, match=key):
        parse_addresses(f"amqp://host/?{key}={'9' * digits}")


URLS = st.one_of(
    st.text(max_size=40),
    st.text(max_size=40).map(lambda rest: f"amqp://{rest}"),
    st.text("ab:@/?#[]%,=&.0159", max_size=30).map(lambda rest: f"amqps://{rest}"),
)


@given(URLS)
def test_any_text_is_addresses_or_a_settings_error(text: str) -> None:
    try:
        addresses = parse_addresses(text)
    except SettingsError:
        return
    assert addresses


# -- TLS files -----------------------------------------------------------------------------------


def test_a_tls_file_that_is_missing_is_named() -> None:
    with pytest.raises(SettingsError, match=r"/no/such\.pem"):
        TlsOptions(cacertfile="/no/such.pem").context()


def test_a_tls_file_that_is_no_pem_is_a_settings_error(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(SettingsError, match="TLS file"):
        TlsOptions(cacertfile=str(nonsense)).context()


def test_a_key_of_another_certificate_is_a_settings_error(tmp_path: Path) -> None:
    authority = trustme.CA()
    mine, other = authority.issue_cert("me"), authority.issue_cert("other")
    certificate, key = tmp_path / "me.pem", tmp_path / "other.key"
    mine.cert_chain_pems[0].write_to_path(certificate)
    other.private_key_pem.write_to_path(key)
    with pytest.raises(SettingsError, match="TLS file"):
        TlsOptions(certfile=str(certificate), keyfile=str(key)).context()


def test_a_client_certificate_is_loaded_with_its_key(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    both = tmp_path / "me.pem"
    authority.issue_cert("me").private_key_and_cert_chain_pem.write_to_path(both)
    options = TlsOptions(cacertfile=str(tmp_path / "ca.pem"), certfile=str(both))
    assert len(options.context().get_ca_certs()) == 1
