"""From layers to `Settings`: flags > `REDRIVE_*` > `RABBITMQ_URL` and its kin > files > defaults.

Guarantees: key by key, the nearest layer that has a value wins, and `Loaded` knows which it was.
Everything that is wrong is reported in one SettingsError, a line each; nothing is loaded by halves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from redrive.errors import SettingsError
from redrive.settings import layers
from redrive.settings.keys import KEYS
from redrive.settings.layers import Layer, Source
from redrive.settings.problems import describe
from redrive.settings.sections import Settings

_DEFAULT = Source("default")
_ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting, fit to be shown: `value` is made of JSON's types, its passwords are masked."""

    key: str
    value: Any
    source: Source


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, and the source of each that is not a default."""

    settings: Settings
    sources: Mapping[str, Source]

    def entries(self) -> Iterator[Entry]:
        """Every setting in the order of the sections."""
        shown = self.settings.model_dump(mode="json", by_alias=True)
        for key in KEYS:
            value: Any = shown
            for name in key.split("."):
                value = value[name]
            yield Entry(key, value, self.sources.get(key, _DEFAULT))


def load(
    *,
    flags: Mapping[str, str | None] | None = None,
    called: str | None = None,
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Loaded:
    """Read all layers; SettingsError with a line for each thing that is wrong.

    `flags` are values by key (`{"broker.url": …}`, None where not given); `called` is what they are
    called where they are no flags. `config` is read instead of the usual files.
    """
    if config is None:
        from_files = [
            layers.read_file(path, required=False) for path in layers.files(environ, Path.cwd())
        ]
    else:
        from_files = [layers.read_file(config, required=True)]
    nearest_first = [
        layers.read_flags(flags or {}, called=called),
        layers.read_environment(environ),
        layers.read_conventional(environ),
        *from_files,
        _defaults(environ),
    ]
    values: dict[str, tuple[object, Source]] = {}
    for layer in reversed(nearest_first):
        values.update(layer.values)
    _place_cold_storage(values, environ)
    problems = [problem for layer in nearest_first for problem in layer.problems]
    sources = {key: source for key, (_, source) in values.items()}
    try:
        settings = Settings.model_validate(_nested(values))
    except ValidationError as error:
        problems += [describe(detail, sources) for detail in error.errors(include_url=False)]
    if problems:
        # Outside the handler: the ValidationError holds the values as they are, passwords included,
        # and must not become the context of what is raised.
        raise SettingsError("\n".join(dict.fromkeys(problems)))
    return Loaded(settings, sources)


def _defaults(environ: Mapping[str, str]) -> Layer:
    """The defaults that depend on who runs Redrive; the others stand beside their fields."""
    layer = Layer()
    state = layers.user_folder(environ, "XDG_STATE_HOME", ".local/state")
    if state is not None:
        layer.add("store.url", f"sqlite:///{state / 'redrive' / 'redrive.db'}", _DEFAULT)
    return layer


def _place_cold_storage(
    values: dict[str, tuple[object, Source]], environ: Mapping[str, str]
) -> None:
    """A relative folder is beside the file that names it; one that nothing names is beside the
    SQLite store, else in the user's state folder."""
    key = "retention.cold_storage"
    given, source = values.get(key, (None, _DEFAULT))
    if isinstance(given, str) and given.strip() and source.kind == "file":
        values[key] = (str(Path(source.name).absolute().parent / given.strip()), source)
    if key in values:
        return
    url = values.get("store.url", ("", _DEFAULT))[0]
    state = layers.user_folder(environ, "XDG_STATE_HOME", ".local/state")
    if isinstance(url, str) and url.startswith("sqlite:///"):
        file = Path(urlsplit(url).path.removeprefix("/"))
        values[key] = (str(file.absolute().parent / _ARCHIVE), _DEFAULT)
    elif state is not None:
        values[key] = (str(state / "redrive" / _ARCHIVE), _DEFAULT)


def _nested(values: Mapping[str, tuple[object, Source]]) -> dict[str, Any]:
    tree: dict[str, Any] = {"store": {}}
    for key, (value, _) in values.items():
        *path, name = key.split(".")
        table = tree
        for step in path:
            table = table.setdefault(step, {})
        table[name] = value
    return tree
