"""Data on stdout, for people (a table) or for programs (JSON).

Guarantees: a value is written as it is: square brackets are no markup, and outside a terminal no
line is cut or wrapped, so that `grep` finds it. JSON is one document.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

# Wider than any line; rich makes a table only as wide as its content.
_UNLIMITED = 1_000_000


def print_table(columns: Sequence[str], groups: Iterable[Iterable[Sequence[str]]]) -> None:
    """Rows under a heading, with an empty line between groups."""
    # Only here: a command's --help and its JSON do without rich, which is slow to import.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for index, rows in enumerate(groups):
        if index:
            table.add_row()
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else _UNLIMITED)
    console.print(table)


def print_json(document: object) -> None:
    """One JSON document."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
