"""What somebody does not see of a body, and must not come to see by an edit.

Guarantees: a patch that is made under redaction is first applied to the body as its author sees it,
with marks where something is hidden. So whether it applies, and why it does not, tells nothing of
what is hidden; and wherever a mark is found afterwards, the rules must hide that place of the new
body too. Else the edit is refused: a copy to another place, an element that an insertion pushes out
of reach of `$.cards[0]`, a body that is no JSON any more. To replace or remove what is hidden shows
nothing, and is allowed.
"""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

from redrive.domain.json_patch import Operation, Patch
from redrive.domain.letter import Envelope
from redrive.errors import PatchDoesNotApply
from redrive.work.decode import Kind, decode_body, parse_json
from redrive.work.redact import Place, Redaction, content_of, put_at

_REMEDY: Final = (
    "leave that part where it is, or have it changed by 'redrive letters edit'"
    " or by an admin who sees originals (server.originals_for_admin)"
)
_NOT_APART: Final = (
    "its body is hidden whole, has a key twice in one object, or holds a number beyond a double"
)


@dataclass(frozen=True, slots=True)
class HiddenParts:
    """The hidden parts of one body."""

    redaction: Redaction
    mark: str
    """Stands for what is hidden; nobody can guess it."""
    marked: Any
    """The document with the mark at every hidden place; None if it cannot be told apart."""

    @classmethod
    def of(cls, message: Envelope, redaction: Redaction) -> Self | None:
        """None if nothing of it is hidden."""
        if not redaction.hides_in_bodies:
            return None
        decoded = decode_body(message.body, *content_of(message))
        if redaction.body(decoded) is None:
            return None
        mark = secrets.token_hex(16)
        if decoded.kind is not Kind.JSON:
            return cls(redaction, mark, None)
        places = redaction.places(decoded.document)
        if places is None or decoded.repeats_keys:
            return cls(redaction, mark, None)
        marked = copy.deepcopy(decoded.document)
        for place in sorted(places, key=len, reverse=True):
            marked = put_at(marked, place, mark)
        return cls(redaction, mark, marked)

    def patched(self, patch: Patch) -> Self:
        """With a patch applied; `PatchDoesNotApply` as its author may be told."""
        if self.marked is None:
            raise _refused(_NOT_APART)
        try:
            text = patch.apply(json.dumps(self.marked))
        except PatchDoesNotApply:
            for number, operation in enumerate(patch.operations, start=1):
                if self._is_touched_by(operation):
                    place = f"operation {number} ({operation.op} {operation.path})"
                    raise _refused(f"{place} needs to know one") from None
            raise
        parsed = parse_json(text)
        if parsed is None:
            raise _refused("the new body would be too deep, or hold a number beyond a double")
        return type(self)(self.redaction, self.mark, parsed[0])

    def require_hidden_in(self, after: Envelope) -> None:
        """`PatchDoesNotApply` if a message of this shape would show what was hidden."""
        if self.marked is None:
            raise _refused(_NOT_APART)
        places = list(self._marks())
        if not places:
            return
        decoded = decode_body(after.body, *content_of(after))
        if decoded.kind is not Kind.JSON:
            raise _refused("the new body would not be read as JSON, and be shown whole")
        found = self.redaction.places(decoded.document)
        if found is None:
            return
        hidden = set(found)
        for place in places:
            if not any(place[:length] in hidden for length in range(len(place) + 1)):
                shown = "".join(f"/{step}" for step in place) or "the whole body"
                raise _refused(f"at {shown} it would be shown")

    def _is_touched_by(self, operation: Operation) -> bool:
        """Whether an operation reads a hidden part, or goes into one."""
        if operation.op == "test" and self.mark in json.dumps(self._reached(operation.path.steps)):
            return True
        into = (operation.source or operation.path).steps
        return bool(self._reached(into if operation.source else into[:-1]) == self.mark)

    def _reached(self, steps: tuple[str, ...]) -> Any:
        """What stands where the steps lead, or where they end."""
        inner = self.marked
        for step in steps:
            if isinstance(inner, dict) and step in inner:
                inner = inner[step]
            elif isinstance(inner, list) and step.isdecimal() and int(step) < len(inner):
                inner = inner[int(step)]
            else:
                break
        return inner

    def _marks(self) -> Iterator[Place]:
        waiting: list[tuple[Place, Any]] = [((), self.marked)]
        while waiting:
            place, found = waiting.pop()
            if found == self.mark:
                yield place
            elif isinstance(found, dict):
                waiting += [((*place, name), inner) for name, inner in found.items()]
            elif isinstance(found, list):
                waiting += [((*place, index), inner) for index, inner in enumerate(found)]


def _refused(why: str) -> PatchDoesNotApply:
    return PatchDoesNotApply(f"a redaction rule hides parts of the body: {why}", remedy=_REMEDY)
