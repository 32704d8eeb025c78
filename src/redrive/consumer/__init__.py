"""The SDK for Python consumers: handlers that fail well.

A handler is a plain function. What it returns or raises decides what becomes of its message, and
every way ends with an ack after the broker has confirmed whatever had to be published: nothing is
lost, nothing loops, and what fails for good carries its reason into the dead letter queue.
"""

from redrive.consumer.consumer import Consumer
from redrive.consumer.message import Message
from redrive.consumer.queues import Queue
from redrive.consumer.signals import DeadLetter, RetryAfter

__all__ = ["Consumer", "DeadLetter", "Message", "Queue", "RetryAfter"]
