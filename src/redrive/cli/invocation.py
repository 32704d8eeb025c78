"""What every command is given: `--output`, `--config`, and the settings they lead to.

    @app.command()
    @invoked
    def show(invocation: Invocation, name: str) -> None:
        settings = invocation.load().settings

Guarantees: a command made with `invoked` has the common options beside its own, by the same names
and with the same meaning as every other. Text that is no UTF-8 is wrong use, of every option and
argument; only the name of a file may be any bytes. Settings are read when the command asks for
them; wrong ones raise SettingsError, which `redrive.cli.main` prints.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from redrive.settings import Loaded


class Output(StrEnum):
    """How a command writes its data."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Invocation:
    """The common options, as given on one command line."""

    output: Output
    config: Path | None
    flags: Mapping[str, str | None]

    def load(self) -> Loaded:
        """The settings in force, with their sources."""
        from redrive.settings import load  # noqa: PLC0415  (pydantic is not needed for --help)

        return load(flags=self.flags, config=self.config)


def _common(
    *,
    output: Annotated[Output, typer.Option(help="How to write the result.")] = Output.TABLE,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read this settings file and no other."),
    ] = None,
    broker_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The broker; commas between several hosts' URLs."),
    ] = None,
    store_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where letters are kept.")
    ] = None,
) -> Invocation:
    flags = {"broker.url": broker_url, "store.url": store_url}
    return Invocation(output=output, config=config, flags=flags)


def _require_text(parameters: Iterable[inspect.Parameter], values: Mapping[str, Any]) -> None:
    """A shell hands on any bytes, and Python makes halves of surrogate pairs of them, which neither
    the store nor the broker takes. Names of files are no `str` here, and may be so."""
    for parameter in parameters:
        value = values.get(parameter.name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str) and not _is_utf8(each):
                raise typer.BadParameter(f"{_shown(parameter)}: expected text in UTF-8")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(parameter: inspect.Parameter) -> str:
    """An option as people write it, or the name of an argument as the help has it."""
    for given in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(given, typer.models.ArgumentInfo):
            return str(given.metavar or parameter.name.upper())
    return "--" + parameter.name.strip("_").replace("_", "-")


_COMMON = inspect.signature(_common, eval_str=True).parameters


def invoked(command: Callable[..., None]) -> Callable[..., None]:
    """Add the common options to a command whose first parameter is the `Invocation`."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()

    @functools.wraps(command)
    def run(**values: Any) -> None:
        _require_text(own, values)
        common = {name: values.pop(name) for name in _COMMON}
        command(_common(**common), **values)

    # Typer reads the options from the signature.
    run.__signature__ = inspect.Signature([*own, *_COMMON.values()])  # type: ignore[attr-defined]
    return run
