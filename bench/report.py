"""What a bench found, for people (tables) and for machines (JSON)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import rich.table
from rich.console import Console

from bench.figures import Target

_WIDTH = 132
"""Columns that the tables need: a cell cut off is worse than a line wrapped by the terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One bench's figures, and which of its targets they meet."""

    name: str
    tables: Sequence[Table]
    targets: Sequence[Target]
    data: dict[str, Any]
    notes: Sequence[str] = ()


def number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def print_tables(result: Result) -> None:
    """What one bench found, as soon as it has."""
    console = _console()
    for table in result.tables:
        console.print(_grid(table))


def print_targets(results: Sequence[Result], *, broker: str, quick: bool) -> None:
    """What all of them were to show, and what they showed."""
    console = _console()
    note = "; a quick run shows that it works, its figures are no measure" if quick else ""
    console.print(f"RabbitMQ {broker}, {os.cpu_count()} cores shared with it{note}")
    for text in (text for result in results for text in result.notes):
        console.print(f"[yellow]note[/]    {text}")
    if any(result.targets for result in results):
        console.print(_grid(_targets(results)))


def _console() -> Console:
    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, _WIDTH)
    return console


def print_json(results: Sequence[Result], *, broker: str, quick: bool) -> None:
    found = {
        "rabbitmq": broker,
        "cores": os.cpu_count(),
        "quick": quick,
        "benches": {
            result.name: result.data
            | {
                "notes": list(result.notes),
                "targets": [asdict(target) for target in result.targets],
            }
            for result in results
        },
    }
    print(json.dumps(found, indent=2, ensure_ascii=False))


def _targets(results: Sequence[Result]) -> Table:
    """What every bench was to show, and what it showed."""
    return Table(
        title="Targets",
        columns=("bench", "what", "measured", "wanted", ""),
        rows=[
            (
                result.name,
                target.name,
                target.got,
                target.wanted,
                "[green]met[/]" if target.met else "[red]missed[/]",
            )
            for result in results
            for target in result.targets
        ],
    )


def _grid(table: Table) -> rich.table.Table:
    grid = rich.table.Table(title=table.title, title_justify="left")
    words = {i for i, cell in enumerate(table.rows[0]) if not cell[:1].isdigit() and cell != "-"}
    for index, column in enumerate(table.columns):
        grid.add_column(column, justify="left" if index in words else "right")
    section = ""
    for row in table.rows:
        if section and row[0] != section:
            grid.add_section()
        section = row[0]
        grid.add_row(*row)
    return grid
