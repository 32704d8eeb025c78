"""A message as it came from the broker."""

from __future__ import annotations

_BOOKKEEPING = 256
"""Bytes that a delivery costs beside its content, roughly; counted so that a million empty
messages do not look like none."""


class Delivery:
    """One delivery: raw properties and body, where it was published, and its tag on the channel."""

    __slots__ = ("body", "exchange", "properties", "redelivered", "routing_key", "size", "tag")

    def __init__(
        self,
        tag: int,
        redelivered: bool,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
    ) -> None:
        self.tag = tag
        self.redelivered = redelivered
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.body = body
        self.size = len(body) + len(properties) + _BOOKKEEPING  # what it counts against a budget

    def unload(self) -> int:
        """Forget the content; how many bytes that frees."""
        freed = self.size
        self.properties, self.body, self.size = b"", b"", 0
        return freed

    def __repr__(self) -> str:
        return (
            f"Delivery(tag={self.tag}, exchange={self.exchange!r}, "
            f"routing_key={self.routing_key!r}, {len(self.body)} bytes)"
        )
