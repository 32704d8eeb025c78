"""Digests: what tells that a message was seen before.

The digest of an envelope covers all that the publisher sent and where it died, but not what a
broker counts on each delivery: a redelivery of the same message has the same digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from redrive.amqp.fields import octets
from redrive.amqp.properties import Properties
from redrive.domain import headers
from redrive.domain.letter import Envelope
from redrive.errors import MalformedData

_COUNTED: Final = ("x-delivery-count", "x-acquired-count")
_STAMPED: Final = (*_COUNTED, headers.X_DEATH)
_MARK: Final = b"-count"
_HEADERS, _CONTENT_TYPE, _CONTENT_ENCODING = 0x20, 0x80, 0x40  # of the first byte of the flags
_EMPTY: Final = bytes(4)
_SIZE: Final = 16


def body_digest(body: bytes) -> bytes:
    """The digest of a body."""
    return blake2b(body, digest_size=_SIZE).digest()


def envelope_digest(envelope: Envelope) -> bytes:
    """The digest of a whole message."""
    properties = envelope.properties
    if _MARK in properties or _has_empty_table(properties):
        properties = _without(properties, _COUNTED)
    return _digest(envelope, properties)


def content_digest(envelope: Envelope) -> bytes:
    """The digest of a message without its deaths: a broker that is killed while it dead-letters
    makes copies itself, and stamps the time of their deaths anew."""
    return _digest(envelope, _without(envelope.properties, _STAMPED))


def _digest(envelope: Envelope, properties: bytes) -> bytes:
    exchange, key = octets(envelope.exchange), octets(envelope.routing_key)
    lengths = b"%d:%d:%d:" % (len(exchange), len(key), len(properties))
    digest = blake2b(b"".join((lengths, exchange, key, properties)), digest_size=_SIZE)
    digest.update(envelope.body)
    return digest.digest()


def _without(raw: bytes, unwanted: Sequence[str]) -> bytes:
    try:
        properties = Properties.read(raw)
    except MalformedData:
        return raw
    names = properties.header_names
    if names and not any(name in unwanted for name in names):
        return raw
    without = properties.with_headers({}, remove=unwanted)
    # A table that held nothing else was empty on the first delivery, or not there.
    return without.raw if without.header_names else without.without("headers").raw


def _has_empty_table(raw: bytes) -> bool:
    if len(raw) < 6 or not raw[0] & _HEADERS:
        return False
    at = 2
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if raw[0] & flag and at < len(raw):
            at += 1 + raw[at]
    return raw[at : at + 4] == _EMPTY
