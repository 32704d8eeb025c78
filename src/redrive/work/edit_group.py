"""One edit for many letters: first what it would do, then all of it or nothing.

Guarantees: a survey changes nothing, holds a few letters in memory at a time, and counts each that
the edit does not fit with the reason. It leaves the edits ready in a spool: what was shown is what
is stored, and storing them takes so little time that nobody waits long for the locks. A letter that
came since is not among them; one that changed since is found out by the store.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, Self

from redrive.domain.editing import Editable, PreparedEdit
from redrive.domain.filters import Filters
from redrive.domain.letter import Envelope
from redrive.errors import EditRefused
from redrive.work.edit import EditOrder, prepare
from redrive.work.redact import NO_REDACTION, Redaction

_AT_ONCE: Final = 500
_BYTES_AT_ONCE: Final = 16 * 2**20
_MOST_REASONS: Final = 20
_OTHER: Final = "for other reasons"
# The number of the edit before, and how long the id, the properties and the body are.
_FRAME: Final = struct.Struct(">IBIQ")


class Messages(Protocol):
    """Where the messages of letters come from, oldest first: the edits of a store."""

    def editable(self, filters: Filters) -> AsyncIterator[Editable]: ...


@dataclass(frozen=True, slots=True)
class Unfit:
    """Letters that an edit does not fit for one reason."""

    reason: str
    letters: int
    example: str
    """The id of one."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What an edit makes of one letter."""

    letter_id: str
    before: Envelope
    after: Envelope


@dataclass(slots=True)
class Survey:
    """What an edit does, or would do, to letters."""

    fit: int = 0
    unchanged: int = 0
    """Letters that are already as the edit would make them."""
    sample: Sample | None = None
    """The first that it fits."""
    _unfit: dict[str, Unfit] = field(default_factory=dict)

    @property
    def unfit(self) -> list[Unfit]:
        """The reasons, the commonest first."""
        return sorted(self._unfit.values(), key=lambda each: -each.letters)

    @property
    def unfit_letters(self) -> int:
        return sum(each.letters for each in self._unfit.values())

    @property
    def letters(self) -> int:
        return self.fit + self.unchanged + self.unfit_letters

    def judge(
        self, given: Editable, order: EditOrder, redaction: Redaction = NO_REDACTION
    ) -> PreparedEdit | None:
        """Count a letter; its edit, if it is to be made."""
        try:
            prepared = prepare(given, order, redaction)
        except EditRefused as refused:
            self._count(str(refused), given.letter_id)
            return None
        if prepared is None:
            self.unchanged += 1
            return None
        self.fit += 1
        if self.sample is None:
            self.sample = _sample(given, prepared)
        return prepared

    def leave_out(self, letter_id: str, reason: str) -> None:
        """A letter that the edit fitted, and that changed since."""
        self.fit -= 1
        self._count(reason, letter_id)

    def _count(self, reason: str, letter_id: str) -> None:
        if reason not in self._unfit and len(self._unfit) >= _MOST_REASONS:
            reason = _OTHER
        known = self._unfit.get(reason, Unfit(reason, 0, letter_id))
        self._unfit[reason] = Unfit(reason, known.letters + 1, known.example)


def _sample(given: Editable, prepared: PreparedEdit) -> Sample:
    before = given.message
    after = replace(before, properties=prepared.properties, body=prepared.body)
    return Sample(given.letter_id, before, after)


async def survey(
    messages: Messages,
    filters: Filters,
    order: EditOrder,
    spool: Spool,
    limit: int | None = None,
    redaction: Redaction = NO_REDACTION,
) -> Survey:
    """What an order would do to the letters that match; the edits are in the spool then. It shows
    nobody what a redaction hides from them."""
    found = Survey()
    async for given in messages.editable(filters):
        prepared = found.judge(given, order, redaction)
        if prepared is not None:
            spool.add(prepared)
        if found.letters == limit:
            break
    return found


class Spool:
    """Edits that are ready to be stored, on disk where there are many; gone with the block."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_BYTES_AT_ONCE)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, edit: PreparedEdit) -> None:
        parts = (edit.letter_id.encode(), edit.properties, edit.body)
        self._file.write(_FRAME.pack(edit.made_from, *map(len, parts)))
        self._file.writelines(parts)

    async def batches(self) -> AsyncIterator[list[PreparedEdit]]:
        """All of them in the order they came in, some at a time."""
        self._file.seek(0)
        batch: list[PreparedEdit] = []
        held = 0
        while head := self._file.read(_FRAME.size):
            made_from, *sizes = _FRAME.unpack(head)
            letter_id, properties, body = (self._file.read(size) for size in sizes)
            edit = PreparedEdit(
                letter_id=letter_id.decode(), made_from=made_from, properties=properties, body=body
            )
            batch.append(edit)
            held += sum(sizes)
            if len(batch) == _AT_ONCE or held > _BYTES_AT_ONCE:
                yield batch
                batch, held = [], 0
        if batch:
            yield batch
