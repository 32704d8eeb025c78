"""Where the broker is and how to be let in: `amqp://` and `amqps://` URLs, read into addresses.

    amqp://user:password@host:port/vhost?heartbeat=30&connection_timeout=10000
    amqps://host/vhost?cacertfile=/ca.pem&certfile=/me.pem&keyfile=/me.key&auth_mechanism=external

Several hosts of one cluster are several URLs with commas between them, tried in that order.
The query keys are RabbitMQ's own (its "URI query parameters"). Passwords never appear in a repr
or an error.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from redrive.errors import SettingsError

_PORTS = {"amqp": 5672, "amqps": 5671}
_HEARTBEAT_SECONDS = 30
_TIMEOUT_MILLISECONDS = 10_000
_ENCODE = "write it as amqp://user:password@host:port/vhost, with / ? # , @ of a password as %2F …"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How to trust the broker, and what to show it. Verification is on unless said otherwise."""

    cacertfile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """The TLS context; a file that cannot be used is a `SettingsError` that names it."""
        for path in (self.cacertfile, self.certfile, self.keyfile):
            if path is not None and not Path(path).is_file():
                raise SettingsError(
                    f"broker URL: the TLS file {path} does not exist",
                    remedy="give cacertfile, certfile and keyfile as paths that Redrive can read",
                )
        try:
            context = ssl.create_default_context(cafile=self.cacertfile)
            if self.certfile is not None:
                context.load_cert_chain(self.certfile, self.keyfile)
        except (ssl.SSLError, OSError) as error:
            raise SettingsError(
                f"broker URL: a TLS file cannot be used: {error}",
                remedy="check that the files are PEM and that key and certificate belong together",
            ) from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One host of the broker and the credentials for it."""

    host: str
    port: int
    user: str
    """Whom the broker knows us as; empty if it goes by a certificate and the URL names nobody."""
    password: str = field(repr=False)
    vhost: str
    tls: TlsOptions | None = None
    external: bool = False
    heartbeat: timedelta = timedelta(seconds=_HEARTBEAT_SECONDS)
    timeout: timedelta = timedelta(milliseconds=_TIMEOUT_MILLISECONDS)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}/{quote(self.vhost, safe='')}"
        )


def parse_addresses(urls: str) -> list[Address]:
    """Every URL of a comma-separated list; raises `SettingsError` naming what is wrong."""
    parts = [part.strip() for part in urls.split(",") if part.strip()]
    if not parts:
        raise SettingsError("broker URL: empty", remedy='give one, as "amqp://user:password@host/"')
    addresses = [_parse(part) for part in parts]
    if len({address.vhost for address in addresses}) > 1:
        raise SettingsError(
            "broker URL: the hosts of one broker must name the same vhost",
            remedy="run one Redrive for each vhost",
        )
    return addresses


def _parse(url: str) -> Address:
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError:  # whose text may quote the password
        raise SettingsError("broker URL: its host or port cannot be read", remedy=_ENCODE) from None
    if "@" in url and "@" not in split.netloc:
        raise SettingsError("broker URL: an @ stands behind the host", remedy=_ENCODE)
    if split.scheme not in _PORTS:
        raise SettingsError(
            "broker URL: expected it to begin with amqp:// or amqps://, got "
            + (f"{split.scheme}://" if "://" in url else "no scheme"),
        )
    path = split.path[1:]
    if "/" in path:
        raise SettingsError(
            "broker URL: a vhost that contains a slash must have it written as %2F",
            remedy="the default vhost is amqp://host/ or amqp://host/%2F",
        )
    query = dict(parse_qsl(split.query, keep_blank_values=True))
    external = _take_choice(
        query, "auth_mechanism", {"plain": False, "external": True}, default=False
    )
    address = Address(
        host=split.hostname or "127.0.0.1",
        port=port or _PORTS[split.scheme],
        # By EXTERNAL the certificate says who we are: "guest" would be a guess, and a message with
        # that user_id would be sent on as ours.
        user="" if external and split.username is None else _credential(split.username),
        password=_credential(split.password),
        vhost=unquote(path) or "/",
        tls=_tls(split, query),
        external=external,
        heartbeat=timedelta(seconds=_take_number(query, "heartbeat", _HEARTBEAT_SECONDS)),
        timeout=timedelta(
            milliseconds=_take_number(query, "connection_timeout", _TIMEOUT_MILLISECONDS)
        ),
    )
    if query:
        raise SettingsError(
            f"broker URL: unknown parameter {next(iter(query))!r}",
            remedy="known are heartbeat, connection_timeout, auth_mechanism and, with amqps://, "
            "cacertfile, certfile, keyfile, verify, server_name_indication",
        )
    return address


def _credential(value: str | None) -> str:
    return "guest" if value is None else unquote(value)


def _tls(split: SplitResult, query: dict[str, str]) -> TlsOptions | None:
    if split.scheme != "amqps":
        return None
    return TlsOptions(
        cacertfile=query.pop("cacertfile", None),
        certfile=query.pop("certfile", None),
        keyfile=query.pop("keyfile", None),
        verify=_take_choice(
            query, "verify", {"verify_peer": True, "verify_none": False}, default=True
        ),
        server_name=query.pop("server_name_indication", None),
    )


def _take_choice(
    query: dict[str, str], key: str, choices: dict[str, bool], *, default: bool
) -> bool:
    value = query.pop(key, None)
    if value is None:
        return default
    if value.lower() not in choices:
        raise SettingsError(
            f"broker URL: expected {key} to be {' or '.join(choices)}, got {value!r}"
        )
    return choices[value.lower()]


def _take_number(query: dict[str, str], key: str, default: int) -> int:
    value = query.pop(key, None)
    if value is None:
        return default
    if not value.isdecimal() or len(value) > 9:
        raise SettingsError(f"broker URL: expected {key} to be a whole number, got {value[:20]!r}")
    return int(value)
