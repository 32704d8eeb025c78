"""What users say about handlers and queues, checked where they say it.

Whatever is wrong is a `SettingsError` at once, that says what was expected and what was given: a
broker would tell of it at the first start only, in its own words, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from redrive.errors import SettingsError

_LONGEST_NAME: Final = 255
MOST_PREFETCH: Final = 65_535


def whole_number(what: str, value: object, *, least: int, most: int | None = None) -> None:
    """Refuse what is no whole number in those bounds."""
    if type(value) is not int or value < least or (most is not None and value > most):
        bounds = f"from {least} on" if most is None else f"from {least} to {most}"
        raise SettingsError(f"{what}: expected a whole number {bounds}, got {value!r}")


def short_text(what: str, value: object) -> None:
    """Refuse what a broker takes for no name and no routing key."""
    if not isinstance(value, str):
        raise SettingsError(f"{what}: expected text, got {value!r}")
    octets = len(value.encode("utf-8", "replace"))
    if octets > _LONGEST_NAME:
        raise SettingsError(f"{what}: expected at most {_LONGEST_NAME} bytes, got {octets}")


def arguments(what: str, value: object) -> None:
    """Refuse what cannot be the arguments of a queue."""
    if not isinstance(value, Mapping):
        raise SettingsError(
            f"{what}: expected a mapping such as {{'x-max-length': 10_000}}, got {value!r}"
        )
    for name, each in value.items():
        short_text(f"{what}: a name", name)
        if not isinstance(each, (str, int)):
            raise SettingsError(f"{what}: {name}: expected text or a whole number, got {each!r}")


def a_queue(value: Any, kind: type) -> None:
    """Refuse what is neither the name of a queue nor a `kind`; above all a function, which
    `@consumer.handler` without parentheses would give."""
    if isinstance(value, (str, kind)):
        return
    if callable(value) and not isinstance(value, type):
        name = getattr(value, "__name__", repr(value))
        raise SettingsError(
            f"handler {name} has no queue: @consumer.handler was written without one",
            remedy=f'write @consumer.handler("its queue") above {name}',
        )
    raise SettingsError(f"handler: expected the name of a queue or a Queue, got {value!r}")


def an_error(value: object) -> None:
    """Refuse what is no exception."""
    if not isinstance(value, BaseException):
        raise SettingsError(
            f"error: expected the exception that was raised, got {value!r}",
            remedy="for a text of your own, pass DeadLetter(text)",
        )
