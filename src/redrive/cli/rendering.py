"""Data on stdout, for people (a table) or for programs (JSON).

Guarantees: a value is written as it is: square brackets are no markup, and outside a terminal no
line is cut or wrapped, so that `grep` finds it. On a terminal only columns that say so are cut, and
what messages hold never reaches it as a control sequence. JSON is one document, valid also where a
value is not valid Unicode, and has control characters as escapes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Wider than any line; rich makes a table only as wide as its content.
_UNLIMITED = 1_000_000
_NARROWEST = 6
_READABLE = 18
_PADDING = 2
# What moves the cursor, changes colours, or turns the direction of writing; and halves of pairs.
_RAW_IN_JSON = "\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL = re.compile(f"[\x00-\x1f{_RAW_IN_JSON}]")
_CONTROL_IN_JSON = re.compile(f"[{_RAW_IN_JSON}]")


class Column(NamedTuple):
    """A column of a table: wrapped where a terminal has no room, unless it says otherwise."""

    title: str
    cut: bool = False
    """Cut at its end instead."""
    cut_front: bool = False
    """Cut at its beginning instead, as suits `java.net.SocketTimeoutException`."""
    whole: bool = False
    """Neither cut nor wrapped: made to be copied."""
    spare: bool = False
    """Left out before others would become too narrow to read."""
    right: bool = False
    """Aligned to the right, as suits numbers."""

    @property
    def yields(self) -> bool:
        """Whether it may be cut."""
        return self.cut or self.cut_front


class Marked(NamedTuple):
    """A cell with a colour, or any style of rich's; only a terminal shows it."""

    text: str
    style: str


Cell = str | Marked


def console() -> Console:
    """stdout, for text and tables: no markup, no guessing of what to highlight."""
    from rich.console import Console  # noqa: PLC0415  (slow to import: only where it is used)

    width = None if sys.stdout.isatty() else _UNLIMITED
    return Console(width=width, highlight=False, markup=False, emoji=False)


def print_table(
    columns: Sequence[str | Column],
    groups: Iterable[Iterable[Sequence[Cell]]],
    *,
    out: Console | None = None,
) -> None:
    """Rows under a heading, with an empty line between groups."""
    # Only here: a command's --help and its JSON do without rich, which is slow to import.
    from rich.table import Table  # noqa: PLC0415

    out = out or console()
    texts = [[[_text(cell) for cell in row] for row in group] for group in groups]
    asked = [Column(column) if isinstance(column, str) else column for column in columns]
    natural = [
        max([len(column.title), *(row[index].cell_len for group in texts for row in group)])
        for index, column in enumerate(asked)
    ]
    shown = _shown(asked, natural, out.width)
    room = _shares(asked, natural, shown, out.width)
    table = Table(box=None, pad_edge=False, padding=(0, _PADDING, 0, 0), header_style="bold")
    for index in shown:
        column = asked[index]
        table.add_column(
            column.title,
            overflow="ellipsis" if column.yields else "fold",
            no_wrap=column.yields or column.whole,
            justify="right" if column.right else "left",
            max_width=room.get(index),
            min_width=natural[index] if column.whole else None,
        )
    for number, group in enumerate(texts):
        if number:
            table.add_row()
        for row in group:
            for index in shown:
                if asked[index].cut_front:
                    _cut_front(row[index], room[index])
            table.add_row(*(row[index] for index in shown))
    out.print(table)


def _text(cell: Cell) -> Text:
    from rich.text import Text  # noqa: PLC0415

    return Text(cell) if isinstance(cell, str) else Text(cell.text, cell.style)


def _cut_front(text: Text, width: int) -> None:
    if text.cell_len > width:
        text.plain = "…" + text.plain[len(text.plain) - width + 1 :]


def _shown(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """The columns that there is room for: spare ones only if the others stay readable."""
    shown = list(range(len(columns)))
    for index in [index for index in reversed(shown) if columns[index].spare]:
        least = sum(
            min(natural[one], _READABLE) if columns[one].yields else natural[one] for one in shown
        )
        if least + _PADDING * (len(shown) - 1) > width:
            shown.remove(index)
    return shown


def _shares(
    columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int], width: int
) -> dict[int, int]:
    """How wide each column that may be cut becomes: the room that the others leave, shared."""
    cut = [index for index in shown if columns[index].yields]
    fixed = sum(natural[index] for index in shown if index not in cut)
    left = width - fixed - _PADDING * (len(shown) - 1)
    shares: dict[int, int] = {}
    # The narrow ones first: what they do not need, the wide ones get.
    for number, index in enumerate(sorted(cut, key=lambda index: natural[index])):
        share = max(_NARROWEST, left // (len(cut) - number))
        shares[index] = min(natural[index], share)
        left -= shares[index]
    return shares


def print_json(document: object) -> None:
    """One JSON document."""
    sys.stdout.write(dump_json(document, indent=2) + "\n")


def dump_json(document: object, *, indent: int | None = None) -> str:
    """The text of a document, as it can be written in UTF-8, and harmless to a terminal."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return _CONTROL_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def note(text: str) -> None:
    """A line on stderr, for the person at the terminal."""
    sys.stderr.write(f"redrive: {one_line(text)}\n")


def one_line(text: str) -> str:
    """Text from a message, in one line and harmless to a terminal."""
    return _CONTROL.sub(_escape, " ".join(text.split("\n")))


def lines(text: str) -> list[str]:
    """Text from a message, in its own lines and harmless to a terminal."""
    return [
        _CONTROL.sub(_escape, line.expandtabs(4)) for line in re.split(r"\r\n|\n|\r(?!\n)", text)
    ]


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] in "\t\r":
        return " "
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
