"""A dead message's property section, read for the collector in one pass.

It says what `Properties` says of the same bytes, of the few things that a letter needs. Headers are
taken out by the shapes of sections seen before (`amqp/surgery.py`). A section in which anything is
wrong is left to `Properties`, which alone says what; a property test holds the two together.
"""

from __future__ import annotations

from typing import Final

from redrive.amqp import Properties, fields
from redrive.amqp.properties import NAMES
from redrive.amqp.surgery import Opener
from redrive.errors import MalformedData

Section = tuple[dict[bytes, bytes], str | None, str | None, int | None, str | None, str | None]
"""Of a section, each as `Properties` gives it; a plain tuple because one is made for every message:

0. the headers that were asked for, as raw fields; of repeated names the first,
1. content type,
2. content encoding,
3. priority,
4. message id,
5. application id.
"""

_REMEMBERED: Final = 512
"""How many beginnings are kept in mind. Beyond it all are forgotten: what repeats comes back."""
_HEADERS: Final = NAMES.index("headers")
_PRIORITY: Final = NAMES.index("priority")
_MESSAGE_ID: Final = NAMES.index("message_id")
_APP_ID: Final = NAMES.index("app_id")
_SIZES: Final = {NAMES.index("delivery_mode"): 1, _PRIORITY: 1, NAMES.index("timestamp"): 8}
"""By index, the sizes of properties that are no texts."""
_UNKNOWN_FLAGS: Final = 0b11

_layouts: dict[int, tuple[int, ...]] = {}  # flags to what follows the headers; 2 ** 14 at most


class SectionReader:
    """Reads sections, and of each the headers of some names."""

    def __init__(self, names: frozenset[bytes]) -> None:
        self._opener = Opener(names)
        self._beginnings: dict[bytes, tuple[str | None, str | None]] = {}

    def read(self, raw: bytes) -> Section:
        """Raises `MalformedData` as `Properties.read` does."""
        try:
            flags, before, _, taken, after = self._opener.open_up(raw)
            priority, message_id, app_id = None, None, None
            at = 0
            for index in _layouts.get(flags) or _layout(flags):
                size = _SIZES.get(index)
                stop = at + (1 + after[at] if size is None else size)
                if index == _MESSAGE_ID:
                    message_id = fields.text(after[at + 1 : stop])
                elif index == _APP_ID:
                    app_id = fields.text(after[at + 1 : stop])
                elif index == _PRIORITY:
                    priority = after[at]
                at = stop
        except (IndexError, MalformedData):
            Properties.read(raw)
            raise  # a defect: what is wrong here is right there
        if at != len(after):
            Properties.read(raw)
            raise MalformedData("a property section does not end where its content does")
        beginning = self._beginnings.get(before) or self._begin(before)
        return taken, *beginning, priority, message_id, app_id

    def _begin(self, before: bytes) -> tuple[str | None, str | None]:
        """Content type and encoding. Few pairs of them are in use."""
        texts: list[str | None] = []
        at = 2
        for flag in (0x80, 0x40):
            if before[0] & flag:
                stop = at + 1 + before[at]
                texts.append(fields.text(before[at + 1 : stop]))
                at = stop
            else:
                texts.append(None)
        if len(self._beginnings) >= _REMEMBERED:
            self._beginnings.clear()
        beginning = self._beginnings[before] = (texts[0], texts[1])
        return beginning


def _layout(flags: int) -> tuple[int, ...]:
    if flags & _UNKNOWN_FLAGS:
        raise MalformedData("a property section has unknown flags")
    announced = [index for index in range(len(NAMES)) if flags & 1 << (15 - index)]
    layout = _layouts[flags] = tuple(index for index in announced if index > _HEADERS)
    return layout
