"""The commands there are. A command's module is imported when the command is run, not to list it.

Guarantees: `redrive --help` imports neither rich nor pydantic nor any part of Redrive that works. A
new command is a line in `COMMANDS` and a module with an `app` made by `group` or `single`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from redrive._version import __version__

# Command → what the list of commands says of it. Its module is redrive.cli.<command>.
COMMANDS = {
    "demo": "Show Redrive at work on a private broker.",
    "run": "Start the roles: retry what fails until its policy says enough.",
    "topology": "Make and check the queues of Redrive; connect your own.",
    "doctor": "Find what loses or blocks dead messages, and say what mends it.",
    "config": "Show the settings in force and where each came from.",
    "letters": "List, show, edit, discard and export what is kept.",
    "groups": "See which letters failed for the same reason in the same place.",
    "classify": "Explain how letters are revived, by which rule and when.",
    "replay": "Send letters again, one or many, as a job.",
    "replays": "List, show, pause, resume and cancel replays.",
    "breakers": "See which destinations are held back; force or release them.",
    "stats": "Count letters by state, and check the books.",
    "alerts": "See which alerts fire; test sinks, silence alerts.",
    "export": "Write rules for Prometheus and a dashboard for Grafana.",
    "sweep": "Move what was tried too often out of dead letter queues.",
    "move": "Move messages to another queue, or back where they failed.",
    "peek": "Look into a queue, and leave its messages there.",
    "archive": "List and check the files of cold storage; bring letters back.",
    "policy": "Say how often messages of a routing key are retried.",
    "token": "Make and revoke what programs show to the API.",
    "user": "Say who can log in to the API, and as what.",
    "db": "Bring the store to this version of Redrive.",
}


def group(name: str) -> typer.Typer:
    """The app of a command that has commands of its own."""
    app = typer.Typer(help=COMMANDS[name], rich_markup_mode=None, add_completion=False)
    # Typer makes an app of one command into that command; an app with a callback stays a group.
    app.callback()(lambda: None)
    return app


def single(name: str) -> typer.Typer:
    """The app of a command that is one itself: decorate its function with `@app.command(...)`."""
    return typer.Typer(help=COMMANDS[name], rich_markup_mode=None, add_completion=False)


class _LazyCommand(TyperCommand):
    """Stands for a command in the list; becomes the real one when it is run."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        module = import_module(f"redrive.cli.{self.name}")
        return typer.main.get_command(module.app).make_context(*args, **extra)


def build() -> TyperGroup:
    """The whole command line."""
    root = typer.Typer(rich_markup_mode=None, add_completion=False)
    root.callback(invoke_without_command=True)(_redrive)
    commands = typer.main.get_group(root)
    for name, summary in COMMANDS.items():
        commands.add_command(_LazyCommand(name, help=summary, rich_markup_mode=None))
    return commands


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"redrive {__version__}")
        raise typer.Exit


def _redrive(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Dead-letter operations for RabbitMQ: retry, keep, explain, fix and replay dead messages."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)
