"""docs/reference/cli.md: how each command is called, below its heading, from the commands."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from redrive.cli.app import COMMANDS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
OF_EVERY_COMMAND = {"--output", "--config", "--broker-url", "--store-url"}
_WIDTH = 100
_SECTION = re.compile(
    r"^## (redrive [^\n]+)\n\n(?:```usage\n.*?```\n\n)?", re.DOTALL | re.MULTILINE
)


@cache
def all_commands() -> dict[str, Any]:
    """Every command by the words that run it."""
    found: dict[str, Any] = {}
    for name in COMMANDS:
        app = typer.main.get_command(import_module(f"redrive.cli.{name}").app)
        inner = getattr(app, "commands", None)
        if inner is None:
            found[f"redrive {name}"] = app
        else:
            found |= {f"redrive {name} {each}": command for each, command in inner.items()}
    return found


@cache
def filter_options() -> set[str]:
    """The options of every command that takes filters."""
    export = all_commands()["redrive letters export"]
    own = {"--to", "--exact"}
    options = {parameter.opts[0] for parameter in export.params}
    return options - own - OF_EVERY_COMMAND


def page() -> str:
    """The page with the lines on how commands are called as they are now."""
    commands = all_commands()

    def written(found: re.Match[str]) -> str:
        return f"## {found[1]}\n\n```usage\n{_usage(found[1], commands[found[1]])}\n```\n\n"

    return _SECTION.sub(written, PAGE.read_text(encoding="utf-8"))


def _usage(name: str, command: Any) -> str:
    words = "\0".join(_words(command))  # what belongs together is not parted
    lines = textwrap.wrap(
        words.replace(" ", "\1").replace("\0", " "),
        _WIDTH,
        initial_indent=f"{name} ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\1", " ") or name


def _words(command: Any) -> Iterator[str]:
    filters = filter_options()
    parameters = [each for each in command.params if each.opts[0] not in OF_EVERY_COMMAND]
    has_filters = filters <= {each.opts[0] for each in parameters}
    for each in sorted(parameters, key=lambda each: each.opts[0].startswith("-")):
        if not (has_filters and each.opts[0] in filters):
            yield _word(each)
    if has_filters:
        yield "[filters]"


def _word(parameter: Any) -> str:
    name = parameter.opts[0]
    value = (parameter.metavar or _choices(parameter) or parameter.name.upper()).strip("[]")
    if not name.startswith("-"):
        text = value
    elif parameter.is_flag:
        text = " | ".join((name, *parameter.secondary_opts))
    else:
        text = f"{name} {value}"
    text = text if parameter.required else f"[{text}]"
    return f"{text}…" if parameter.multiple else text


def _choices(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(each.value) for each in kind)
    return ""
