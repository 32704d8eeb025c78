"""stdout on which every write is a whole one.

Guarantees: what is written to `sys.stdout`, or to its `buffer`, is written to its end or raises,
however slow the reader is, whether or not Python buffers it.

A write to a full pipe may end early, without any signal: the io_uring that libuv has just closed is
enough. Python goes on with the rest only where it buffers: with `PYTHONUNBUFFERED`, which most
container images set, it drops the rest and says nothing. And a pipe that somebody else made
non-blocking takes what there is room for.
"""

from __future__ import annotations

import io
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class WholeWrites(io.FileIO):
    """A file whose `write` ends when all is written."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all of it, and wait where there is no room."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest:
            written = super().write(rest)
            if written is None:  # non-blocking, and no room
                select.select([], [self], [])
            else:
                rest = rest[written:]
        return size


def write_wholly() -> None:
    """Replace `sys.stdout` by one with whole writes that is buffered as it was."""
    was = sys.stdout
    if not isinstance(was, io.TextIOWrapper):  # closed by who started us
        return
    raw = WholeWrites(was.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        raw if isinstance(was.buffer, io.RawIOBase) else io.BufferedWriter(raw),
        encoding=was.encoding,
        errors=was.errors,
        newline="\n",
        line_buffering=was.line_buffering,
        write_through=was.write_through,
    )
