"""The kinds of value a setting can have, and how each is read, shown and asked for.

Guarantees: a `ConnectionUrl` gives its password to nobody who does not call `reveal()`: not to
`str`, `repr`, a dump or an error. A value of the wrong kind raises ValueError, which
`redrive.settings.problems` turns into "expected …, got …" with the field's `Expected`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.errors import NonASCIILocalPartDefect
from email.policy import EmailPolicy
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, GetCoreSchemaHandler, PlainSerializer
from pydantic_core import CoreSchema, core_schema

from redrive.domain.durations import format_duration, parse_duration
from redrive.domain.masking import mask_url
from redrive.domain.sizes import format_size, parse_size


@dataclass(frozen=True, slots=True)
class Expected:
    """What a setting takes, to complete the sentence "expected …". Every field carries one."""

    text: str


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionUrl:
    """One URL, or several with commas between, that may hold a password."""

    _text: str

    def reveal(self) -> str:
        """The URL with its password, for whoever connects."""
        return self._text

    def __str__(self) -> str:
        return mask_url(self._text)

    def __repr__(self) -> str:
        return f"ConnectionUrl({str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.is_instance_schema(
            cls, serialization=core_schema.to_string_ser_schema(when_used="always")
        )


class SinkUrl(ConnectionUrl):
    """A URL whose path may be a secret, as Slack's is: only where it leads is shown."""

    def __str__(self) -> str:
        parts = urlsplit(self.reveal())
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}" + ("/****" if parts.path.strip("/") else "")

    def __repr__(self) -> str:
        return f"SinkUrl({str(self)!r})"


class Secret(ConnectionUrl):
    """Text that is shown nowhere."""

    def __str__(self) -> str:
        return "****"

    def __repr__(self) -> str:
        return "Secret('****')"


def read_broker_url(value: object) -> ConnectionUrl:
    """`amqp://` or `amqps://`, with a host; several with commas between."""
    text = _text(value)
    for url in text.split(","):
        _require_host(url.strip(), {"amqp", "amqps"})
    return ConnectionUrl(text)


def read_management_url(value: object) -> ConnectionUrl:
    """`http://` or `https://`, with a host."""
    text = _text(value)
    _require_host(text, {"http", "https"})
    return ConnectionUrl(text)


def read_public_url(value: object) -> str:
    """`http://` or `https://`, with a host and no password, as people see it."""
    text = _text(value).rstrip("/")
    _require_host(text, {"http", "https"})
    if "@" in urlsplit(text).netloc:
        raise ValueError("it is shown to people")
    return text


def read_sink_url(value: object) -> SinkUrl:
    """Where messages about alerts go: `http(s)://` or `smtp(s)://`, with a host.

    What would fail only when it is used, with the URL in the reason, is refused here.
    """
    text = _text(value)
    if any(each.isspace() or not each.isprintable() for each in text):
        raise ValueError("not such a URL")
    _require_host(text, {"http", "https", "smtp", "smtps"})
    if text.lower().startswith("http") and "@" in urlsplit(text).netloc:
        raise ValueError("nobody would send the password")
    return SinkUrl(text)


def mail_address(text: str) -> str:
    """One address, as the parser that writes the headers of a mail reads it."""
    try:
        header = EmailPolicy().header_factory("To", text)
    except Exception:  # noqa: BLE001  (it fails in ways of its own, such as AttributeError)
        raise ValueError("not an address") from None
    odd = [each for each in header.defects if not isinstance(each, NonASCIILocalPartDefect)]
    if odd or [bool(each.username and each.domain) for each in header.addresses] != [True]:
        raise ValueError("not an address")
    return text


def read_secret(value: object) -> Secret:
    """Something that only its user may see."""
    text = _text(value)
    if not 1 <= len(text) <= 1000:
        raise ValueError("not such a secret")
    return Secret(text)


def read_store_url(value: object) -> ConnectionUrl:
    """`sqlite:///` and a file, or `postgresql://`. A store in memory would lose letters."""
    text = _text(value)
    url = urlsplit(text)
    is_file = url.scheme == "sqlite" and not url.netloc and len(url.path) > 1
    if not is_file and url.scheme not in {"postgresql", "postgres"}:
        raise ValueError("neither a SQLite file nor PostgreSQL")
    return ConnectionUrl(text)


def read_absolute_path(value: object) -> Path:
    """A file by its absolute path: services start in folders that nobody thinks of."""
    path = Path(_text(value))
    if not path.is_absolute():
        raise ValueError("not absolute")
    return path


def read_name(value: object) -> str:
    """A name the broker takes: at most 255 bytes, and `amq.` is reserved to it."""
    name = _text(value)
    if not 1 <= len(name.encode()) <= 255 or name.startswith("amq.") or "{" in name or "}" in name:
        raise ValueError("not such a name")
    return name


def read_base_name(value: object) -> str:
    """A name of the users' own, to which Redrive appends (`.retry`, `.delay`), so with room left.

    As it is, braces and blanks too. `amq.` is refused: the broker lets nobody declare such names.
    """
    if not isinstance(value, str):
        raise ValueError("not text")  # noqa: TRY004  (pydantic collects only ValueError)
    if not 1 <= len(value.encode()) <= 240 or value.startswith("amq."):
        raise ValueError("not such a name")
    return value


def read_numbered_name(value: object) -> str:
    """A name for one of a row: `{n}` stands for its number."""
    name = _text(value)
    if name.count("{n}") != 1:
        raise ValueError("not one number")
    read_name(name.replace("{n}", "999"))
    return name


def read_prefix(value: object) -> str:
    """Short enough that every default name still fits behind it."""
    prefix = _text(value)
    if prefix:
        read_name(prefix)
    if len(prefix.encode()) > 100:
        raise ValueError("too long")
    return prefix


def read_header_pattern(value: object) -> str:
    """A header's name, or a glob of names."""
    pattern = _text(value)
    if not 1 <= len(pattern) <= 255:
        raise ValueError("not such a name")
    return pattern


def read_limit_of(value: object) -> str:
    """A queue's name or glob, and its limit: `dlq.orders=5`."""
    name, _, number = _text(value).rpartition("=")
    if not name or not number.isdecimal() or int(number) >= 2**31:
        raise ValueError("not such a limit")
    return f"{name}={int(number)}"


def read_schedule(value: object) -> str:
    """A cron expression of five fields that fires; or hours, which are made one."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415  (few commands have a use for it)

    if isinstance(value, list):
        value = ",".join(str(hour) for hour in value)
    expression = " ".join(_text(value).split())
    if re.fullmatch(r"\d+(, ?\d+)*", expression, re.ASCII):
        expression = f"0 {expression.replace(' ', '')} * * *"
    if len(expression.split()) != 5:
        raise ValueError("not five fields")
    try:
        if next(CronSim(expression, datetime(2026, 1, 1)), None) is None:  # noqa: DTZ001
            raise ValueError("never")
    except CronSimError:
        raise ValueError("not a cron expression") from None
    return expression


def read_zone(value: object) -> str:
    """A time zone by its name."""
    name = _text(value)
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("not a time zone") from None


def read_json_path(value: object) -> str:
    """A JSONPath query, as RFC 9535 has them."""
    import jsonpath  # noqa: PLC0415  (slow to import, and few files have such a setting)

    path = _text(value)
    try:
        jsonpath.compile(path, strict=True)
    except Exception:  # noqa: BLE001  (of many kinds, and not all are the library's own)
        raise ValueError("not a JSONPath") from None
    return path


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not text")  # noqa: TRY004  (pydantic collects only ValueError)
    return value.strip()


def _require_host(text: str, schemes: set[str]) -> None:
    url = urlsplit(text)
    _ = url.port  # raises ValueError where the port is no number
    if url.scheme not in schemes or not url.hostname:
        raise ValueError("not such a URL")


def _read_duration(value: object) -> timedelta:
    return parse_duration(_text(value))


def _read_size(value: object) -> int:
    return parse_size(_text(value))


def _read_whole_number(value: object) -> object:
    # `true` is a number to Python, and 3.0 is one to pydantic; neither is what anybody means here.
    if isinstance(value, bool | float):
        raise ValueError("not a whole number")  # noqa: TRY004  (pydantic collects only ValueError)
    return value


Duration = Annotated[
    timedelta, BeforeValidator(_read_duration), PlainSerializer(format_duration, return_type=str)
]
ByteSize = Annotated[
    int, BeforeValidator(_read_size), PlainSerializer(format_size, return_type=str)
]
WholeNumber = Annotated[int, BeforeValidator(_read_whole_number)]
