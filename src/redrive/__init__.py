"""Redrive: dead-letter operations for RabbitMQ.

The public Python surface is the consumer SDK:

    from redrive import Consumer, DeadLetter, Message, Queue, RetryAfter

Importing this package loads nothing but its version, so that `redrive --help` answers at once; the
SDK is loaded with the first of its names.
"""

from typing import TYPE_CHECKING, Any

from redrive._version import __version__

if TYPE_CHECKING:
    from redrive.consumer import Consumer, DeadLetter, Message, Queue, RetryAfter

__all__ = ["Consumer", "DeadLetter", "Message", "Queue", "RetryAfter", "__version__"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from redrive import consumer  # noqa: PLC0415

        return getattr(consumer, name)
    raise AttributeError(f"module 'redrive' has no attribute {name!r}")
