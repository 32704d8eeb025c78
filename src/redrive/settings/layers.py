"""Where settings come from: flags, environment, files. A layer is what one of them says.

Guarantees: every value knows its source. Nothing that looks like a setting is ignored: an unknown
or misspelt key, an unreadable file, broken TOML each become a problem, a line of text that names
the place; reading goes on, so that all are reported together. A file of the usual places that does
not exist, or is in a folder that the user may not enter, is no problem; one named by `--config` is.

Two things in the environment are no settings: an empty variable, because Compose and Kubernetes
make those of unset ones; and variables with a single underscore, because Kubernetes makes
`REDRIVE_PORT` and `REDRIVE_SERVICE_HOST` for a service called redrive. Of the latter only the exact
spelling of a setting with `_` for `__` is taken for a slip and reported.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from redrive.settings.keys import KEYS, SECRETS, TABLES, VARIABLES, Shape, variable
from redrive.settings.problems import got, nearest, unknown, wrong

SYSTEM_FILE = Path("/etc/redrive/redrive.toml")
# What hosting platforms and other tools call the broker's URL, the most specific first.
CONVENTIONAL_VARIABLES = ("RABBITMQ_URL", "AMQP_URL", "CLOUDAMQP_URL")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value came from; `str()` names it as the user would: a flag, a variable, a path."""

    kind: Literal["flag", "env", "file", "default"]
    name: str = "default"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Layer:
    """What one place says: values by key, and what is wrong with it."""

    values: dict[str, tuple[object, Source]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, key: str, value: object, source: Source) -> None:
        self.values[key] = (value, source)

    def add_text(self, key: str, text: str, source: Source) -> None:
        """A value that came as one line of text: a flag or a variable."""
        match KEYS[key]:
            case Shape.VALUE:
                self.add(key, text, source)
            case Shape.LIST:
                self.add(key, [item.strip() for item in text.split(",")], source)
            case Shape.TABLES:
                try:
                    self.add(key, json.loads(text), source)
                except ValueError:
                    self.problems.append(
                        wrong(key, source, "JSON", got(text, secret=key in SECRETS))
                    )


def read_flags(flags: Mapping[str, str | None], *, called: str | None = None) -> Layer:
    """Flags by key; None is a flag that was not given. `called` is where they are no flags."""
    layer = Layer()
    for key, text in flags.items():
        if text is not None:
            flag = called or "--" + key.replace(".", "-").replace("_", "-")
            layer.add_text(key, text, Source("flag", flag))
    return layer


def read_environment(environ: Mapping[str, str]) -> Layer:
    """Variables `REDRIVE_<SECTION>__<KEY>`."""
    layer = Layer()
    slips = {name.replace("__", "_"): name for name in VARIABLES}
    for name in sorted(environ):
        if not name.startswith("REDRIVE_") or not environ[name]:
            continue
        if name in VARIABLES:
            layer.add_text(VARIABLES[name], environ[name], Source("env", name))
        elif "__" in name or name in slips:
            layer.problems.append(_unknown_variable(name))
    return layer


def _unknown_variable(name: str) -> str:
    # Compared as keys: as variables, all are alike by their prefix.
    key = nearest(name.removeprefix("REDRIVE_").lower().replace("__", "."), KEYS)
    return unknown(name, "the environment", variable(key) if key else None)


def read_conventional(environ: Mapping[str, str]) -> Layer:
    """The broker's URL, from the first of the variables that others set."""
    layer = Layer()
    for name in CONVENTIONAL_VARIABLES:
        if environ.get(name):
            layer.add("broker.url", environ[name], Source("env", name))
            break
    return layer


def read_file(path: Path, *, required: bool) -> Layer:
    """One TOML file."""
    layer = Layer()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if required:
            layer.problems.append(f"{path}: no such file")
    except OSError as error:
        # A service's user that is lent a shell (`sudo -u redrive …`) stands in somebody's folder.
        if required or os.access(path.parent, os.X_OK, effective_ids=True):
            layer.problems.append(f"{path}: cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        layer.problems.append(f"{path}: expected UTF-8 text")
    except tomllib.TOMLDecodeError as error:
        layer.problems.append(f"{path}: expected TOML: {error}")
    else:
        _add_table(layer, tables, "", Source("file", str(path)))
    return layer


def _add_table(layer: Layer, table: Mapping[str, object], path: str, source: Source) -> None:
    for name, value in table.items():
        key = path + name
        if key in KEYS:
            layer.add(key, value, source)
        elif key in TABLES:
            if isinstance(value, dict):
                _add_table(layer, value, f"{key}.", source)
            else:
                layer.problems.append(wrong(key, source, "a table", got(value)))
        else:
            for leaf in _leaves(key, value):
                layer.problems.append(unknown(leaf, source, nearest(leaf, [*KEYS, *TABLES])))


def _leaves(key: str, value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner)
    else:
        yield key


def files(environ: Mapping[str, str], working_directory: Path) -> list[Path]:
    """The usual places, the nearest first."""
    home = user_folder(environ, "XDG_CONFIG_HOME", ".config")
    return [
        working_directory / "redrive.toml",
        *([home / "redrive" / "redrive.toml"] if home else []),
        SYSTEM_FILE,
    ]


def user_folder(environ: Mapping[str, str], name: str, fallback: str) -> Path | None:
    """A folder of the XDG base directory specification; None for a user without a home.

    The specification asks to ignore a relative path.
    """
    folder = Path(environ.get(name, ""))
    if folder.is_absolute():
        return folder
    home = Path(environ.get("HOME", ""))
    return home / fallback if home.is_absolute() else None
