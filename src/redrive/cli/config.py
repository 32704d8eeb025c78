"""`redrive config`: the settings in force.

Guarantees: every setting is listed, with its source, and no password is shown. Wrong settings are
reported as by any other command, with exit code 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from redrive.cli.app import group
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import print_json, print_table

if TYPE_CHECKING:
    from redrive.settings import Entry

app = group("config")


@app.command()
@invoked
def show(invocation: Invocation) -> None:
    """List every setting, its value and its source; passwords are masked."""
    entries = list(invocation.load().entries())
    if invocation.output is Output.JSON:
        print_json(
            {
                entry.key: {
                    "value": entry.value,
                    "source": {"kind": entry.source.kind, "name": entry.source.name},
                }
                for entry in entries
            }
        )
        return
    sections = groupby(entries, key=lambda entry: entry.key.split(".")[0])
    print_table(
        ("SETTING", "VALUE", "SOURCE"),
        ([row for entry in section for row in _rows(entry)] for _, section in sections),
    )


def _rows(entry: Entry) -> Iterator[tuple[str, str, str]]:
    source = str(entry.source)
    tables = isinstance(entry.value, list) and any(isinstance(item, dict) for item in entry.value)
    if not tables:
        yield entry.key, _text(entry.value), source
        return
    for index, table in enumerate(entry.value):
        for name, value in table.items():
            yield f"{entry.key}[{index}].{name}", _text(value), source


def _text(value: Any) -> str:
    if value is None or value == []:
        return "(none)"
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) or '""'
