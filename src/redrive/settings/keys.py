"""The keys of all settings (`broker.url`, `topology.tiers`), read from the sections' classes.

Guarantees: nothing is listed by hand, so a field that is added to a section has its key, its
environment variable, its check for misspelling and its line in `redrive config show`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from redrive.settings.section import Section, fields_of
from redrive.settings.sections import Settings
from redrive.settings.values import Expected, Secret, SinkUrl


class Shape(Enum):
    """What a key holds, which decides how one line of text, from a variable or flag, is read."""

    VALUE = "the text itself"
    LIST = "comma separated"
    TABLES = "JSON"


def section_in(field: FieldInfo) -> type[Section] | None:
    """The section that a field holds, be it one or a list of them."""
    annotation: Any = field.annotation
    if get_origin(annotation) is tuple:
        annotation = get_args(annotation)[0]
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def expectation(field: FieldInfo) -> str | None:
    """What a field takes; None for a section, which takes a table."""
    return next((item.text for item in field.metadata if isinstance(item, Expected)), None)


def is_secret(field: FieldInfo) -> bool:
    """Whether nothing of a field, or of one in its sections, is shown, however wrong it is."""
    inner = section_in(field)
    if inner is not None:
        return any(is_secret(each) for each in fields_of(inner).values())
    kinds = (field.annotation, *get_args(field.annotation))
    return any(isinstance(kind, type) and issubclass(kind, SinkUrl | Secret) for kind in kinds)


def _walk(section: type[Section], path: str = "") -> Iterator[tuple[str, Shape]]:
    for name, field in fields_of(section).items():
        inner = section_in(field)
        is_list = get_origin(field.annotation) is tuple
        if inner is None:
            yield path + name, Shape.LIST if is_list else Shape.VALUE
        elif is_list:
            yield path + name, Shape.TABLES
        else:
            yield from _walk(inner, f"{path}{name}.")


def variable(key: str) -> str:
    """The environment variable of a key: `REDRIVE_BROKER__URL`."""
    return "REDRIVE_" + key.upper().replace(".", "__")


KEYS: dict[str, Shape] = dict(_walk(Settings))
SECRETS: frozenset[str] = frozenset(
    name for name, field in fields_of(Settings).items() if name in KEYS and is_secret(field)
)
VARIABLES: dict[str, str] = {variable(key): key for key in KEYS}
# `topology` and `topology.names` hold keys and are none themselves.
TABLES: frozenset[str] = frozenset(
    key[:end] for key in KEYS for end in range(len(key)) if key[end] == "."
)
