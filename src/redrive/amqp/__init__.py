"""The wire: an AMQP 0-9-1 client made for moving messages.

It keeps properties as raw bytes, pipelines publishes with an outcome for each, takes deliveries in
batches, and bounds memory by bytes. It is not a general client: every publish is mandatory, none
is immediate, and transactions are for answers to deliveries only.
"""

from redrive.amqp.address import Address, parse_addresses
from redrive.amqp.budget import Budget
from redrive.amqp.channel import Channel
from redrive.amqp.confirms import Confirmed, Outcome, Publish, Refused, Returned
from redrive.amqp.connection import Connection, connect
from redrive.amqp.consumer import Consumer
from redrive.amqp.delivery import Delivery
from redrive.amqp.properties import Properties
from redrive.amqp.publisher import Publisher

__all__ = [
    "Address",
    "Budget",
    "Channel",
    "Confirmed",
    "Connection",
    "Consumer",
    "Delivery",
    "Outcome",
    "Properties",
    "Publish",
    "Publisher",
    "Refused",
    "Returned",
    "connect",
    "parse_addresses",
]
