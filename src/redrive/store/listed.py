"""A list of letters, made at one moment, to decide on or to send: which they were, and in which
states.

Seventeen bytes a letter, so that a list of a million letters is no burden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from redrive.domain.filters import Filters
from redrive.domain.lifecycle import State
from redrive.store.types import of_octets, to_octets

_STATES: Final = tuple(State)
_NUMBERS: Final = {state.value: number for number, state in enumerate(_STATES)}
_AT_ONCE: Final = 500
_OCTETS: Final = 16


@dataclass(frozen=True, slots=True)
class Still:
    """What must hold of letters yet when they are decided on: the filters that chose them, and of
    each the state that it was in."""

    filters: Filters
    states: Mapping[str, State]


class Listed:
    """The letters that matched filters at one moment."""

    def __init__(self, filters: Filters) -> None:
        self._filters = filters
        self._ids = bytearray()
        self._states = bytearray()

    def __len__(self) -> int:
        return len(self._states)

    def add(self, letter_id: str, status: str) -> None:
        self._ids += to_octets(letter_id)
        self._states.append(_NUMBERS[status])

    def chunks(self, at_once: int = _AT_ONCE) -> Iterator[Still]:
        """The letters in the order in which they were listed, some at a time."""
        for start in range(0, len(self), at_once):
            states = self._states[start : start + at_once]
            ids = self._ids[start * _OCTETS : (start + len(states)) * _OCTETS]
            yield Still(
                self._filters,
                {
                    of_octets(bytes(ids[at * _OCTETS : (at + 1) * _OCTETS])): _STATES[number]
                    for at, number in enumerate(states)
                },
            )
