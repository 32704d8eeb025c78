"""What is wrong with settings, in words.

    broker.prefetch (from --broker-prefetch): expected a whole number from 1 to 65535, got 'many'
    unknown setting 'borker.url' in /etc/redrive/redrive.toml; did you mean 'broker.url'?

Guarantees: one line for each wrong setting, that names its key, where it came from, what was
expected and what was got; no password in it, whatever was put where; no text of pydantic's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from pydantic_core import ErrorDetails

from redrive.domain.masking import mask_url
from redrive.settings.keys import expectation, is_secret, section_in
from redrive.settings.section import Section, fields_of
from redrive.settings.sections import Settings

_LONGEST = 120


def wrong(key: str, source: object, expected: str, value: str) -> str:
    """A key is known, its value is not what it takes. `source` is None where nothing was given."""
    place = f" (from {source})" if source else ""
    return f"{key}{place}: expected {expected}, got {value}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    return next(iter(get_close_matches(name, list(known), n=1)), None)


def unknown(name: str, place: object, meant: str | None) -> str:
    """A name is not known."""
    hint = f"did you mean '{meant}'?" if meant else "no setting has a similar name"
    return f"unknown setting '{name}' in {place}; {hint}"


def got(value: object, *, secret: bool = False) -> str:
    """A wrong value, as far as it is good to show."""
    if isinstance(value, dict):
        return "a table"
    if secret:
        return "something else, which is not shown because it may hold a secret"
    if isinstance(value, list):
        shown = "[" + ", ".join(got(item) for item in value) + "]"
    elif isinstance(value, str):
        shown = repr(mask_url(value))
    elif isinstance(value, bool):
        shown = str(value).lower()
    else:
        shown = str(value)
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"


def describe(detail: ErrorDetails, sources: Mapping[str, object]) -> str:
    """One finding of pydantic, in our words."""
    key = ""
    expected: str | None = None
    secret = False
    section: type[Section] | None = Settings
    for part in detail["loc"]:
        if isinstance(part, int):
            key += f"[{part}]"
            continue
        fields = fields_of(section) if section else {}
        inner = f"{key}.{part}" if key else part
        if part not in fields:
            meant = nearest(part, fields)
            return unknown(inner, _source(key, sources), meant and f"{key}.{meant}")
        key, expected, section = inner, expectation(fields[part]), section_in(fields[part])
        secret = is_secret(fields[part])
    if expected is None:
        # Of a whole section only its own validators complain; they write the sentence themselves.
        return str(detail["ctx"]["error"])
    value = "nothing" if detail["type"] == "missing" else got(detail["input"], secret=secret)
    return wrong(key, _source(key, sources), expected, value)


def _source(key: str, sources: Mapping[str, object]) -> object:
    return sources.get(key.split("[", maxsplit=1)[0])
