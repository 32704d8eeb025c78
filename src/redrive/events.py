"""What happens in this process, for whoever wants to know: alerts, live pages, tests.

| event | when | with |
|---|---|---|
| `LetterCollected` | a dead message was stored | the letter, and what it turned out to be |
| `LetterChanged` | a letter went to another state | the letter, that state, and why |

A listener is called at once and must not wait; one that raises is a defect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redrive.domain.letter import Fate, Head, Letter
from redrive.domain.lifecycle import State


@dataclass(frozen=True, slots=True)
class LetterCollected:
    """A dead message was stored: as a new letter, or as one that came back."""

    fate: Fate
    letter: Letter


@dataclass(frozen=True, slots=True)
class LetterChanged:
    """A letter went to another state, by a worker, a verdict or a person."""

    letter: Letter | Head
    state: State
    """Where it is now."""
    reason: str


Event = LetterCollected | LetterChanged
Listener = Callable[[Event], None]


class Events:
    """Tells listeners."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have a listener told of every event from now on; call the result to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            listener(event)
