"""docs/reference/settings.md: the default of every setting, from the settings; the rest is text."""

from __future__ import annotations

import re
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from redrive.domain.durations import format_duration
from redrive.domain.sizes import format_size
from redrive.settings import ConnectionUrl, Settings, load
from redrive.settings.keys import KEYS, Shape, section_in
from redrive.settings.section import Section, fields_of

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"
ROW = re.compile(r"^\| `([a-z_.\[\]]+\.[a-z_]+)` \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
"""A setting, its type, its default, its meaning."""
_STATE = "/state"


def page() -> str:
    """The page with the defaults as they are now."""
    known = defaults()

    def written(found: re.Match[str]) -> str:
        key, kind, shown, meaning = found.groups()
        return f"| `{key}` | {kind} | {known.get(key, shown)} | {meaning} |"

    return ROW.sub(written, PAGE.read_text(encoding="utf-8"))


def lists_of_tables() -> dict[str, type[Section]]:
    """The sections that a file may have any number of, as `[[policy]]`."""
    sections = {
        key: section_in(Settings.model_fields[key])
        for key, shape in KEYS.items()
        if shape is Shape.TABLES
    }
    return {key: section for key, section in sections.items() if section is not None}


def defaults() -> dict[str, str]:
    """The default of every setting, as the page has it."""
    with tempfile.NamedTemporaryFile(suffix=".toml") as empty:
        loaded = load(environ={"XDG_STATE_HOME": _STATE}, config=Path(empty.name))
    tables = lists_of_tables()
    found = {}
    for entry in loaded.entries():
        if entry.key not in tables:
            value: Any = loaded.settings
            for name in entry.key.split("."):
                value = getattr(value, name)
            found[entry.key] = _shown(entry.key, value)
    for key, section in tables.items():
        for name, field in fields_of(section).items():
            shown = "(required)" if field.is_required() else _shown(key, field.default)
            found[f"{key}[].{name}"] = shown
    return found


def _shown(key: str, value: Any) -> str:
    if value is None or value == ():
        return "none"
    return f"`{_text(key, value)}`".replace(_STATE, "$XDG_STATE_HOME")


def _text(key: str, value: Any) -> str:
    if isinstance(value, ConnectionUrl):
        return value.reveal()
    if isinstance(value, tuple):
        return ", ".join(each if isinstance(each, str) else format_duration(each) for each in value)
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, bool):
        return str(value).lower()
    if key == "broker.in_flight":
        return format_size(value)
    return str(value) or '""'
