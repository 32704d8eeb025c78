"""The receipt of a handled replay: by it, the letter is resolved at once."""

from __future__ import annotations

import json

from redrive.amqp import Delivery, Properties, Publish
from redrive.amqp.fields import text_of
from redrive.domain import headers
from redrive.errors import MalformedData


class Receipts:
    """Makes the receipts of one queue's messages."""

    def __init__(self, to: str, queue: str) -> None:
        """`to` is the queue that receipts go to, `queue` the one that messages come from."""
        self.to = to
        self._queue = queue

    def of(self, delivery: Delivery) -> Publish | None:
        """The receipt for a message that was handled; None if it is no replay for this queue.

        Consumers copy headers onto what they publish themselves: what names another queue is not
        the letter that was sent.
        """
        try:
            properties = Properties.read(delivery.properties)
        except MalformedData:
            return None
        letter = properties.header(headers.LETTER)
        generation = properties.header(headers.GENERATION)
        noted = text_of(properties.header_field(headers.QUEUE))
        if not isinstance(letter, str) or type(generation) is not int:
            return None  # headers of our names can be anybody's
        if noted not in (None, self._queue):
            return None
        receipt = {"letter": letter, "generation": generation, "queue": self._queue}
        plain = Properties.empty().with_text("content_type", "application/json").persistent()
        return Publish("", self.to, plain.raw, json.dumps(receipt).encode())
