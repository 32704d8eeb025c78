"""Redrive: dead-letter operations for RabbitMQ.

Importing this package loads nothing but its version, so that `redrive --help` answers at once.
"""

from redrive._version import __version__

__all__ = ["__version__"]
