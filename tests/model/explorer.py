"""Every state that a protocol can get into, by trying every step in every order.

A protocol is a function from a state to the steps that can be taken in it. `explore` visits each
state once, in the order of their distance from the first, so a way to a wrong state is a shortest
one. States are values that can be hashed. Nothing is random, and nothing is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")


@dataclass(frozen=True)
class Explored(Generic[S]):
    """What was found: how many states, how many of them are ends, and what is wrong."""

    states: int
    ends: int
    wrong: str | None
    """None: nothing."""
    way: tuple[str, ...]
    """The steps that lead to the wrong state."""

    def __str__(self) -> str:
        steps = "".join(f"\n  {number}. {step}" for number, step in enumerate(self.way, 1))
        return f"{self.wrong}, after{steps}" if self.wrong else f"{self.states} states, all right"


def explore(
    first: S,
    steps: Callable[[S], Iterable[tuple[str, S]]],
    wrong_in: Callable[[S], str | None],
    wrong_at_end: Callable[[S], str | None],
    *,
    most: int = 2_000_000,
) -> Explored[S]:
    """Visit every state. `wrong_in` judges each; `wrong_at_end` those that no step leads out of."""
    came: dict[S, tuple[S, str] | None] = {first: None}
    waiting = deque([first])
    ends = 0
    while waiting:
        state = waiting.popleft()
        wrong = wrong_in(state)
        following = list(steps(state))
        if not following:
            ends += 1
            wrong = wrong or wrong_at_end(state)
        if wrong is not None:
            return Explored(len(came), ends, wrong, _way_to(state, came))
        for step, then in following:
            if then not in came:
                came[then] = state, step
                waiting.append(then)
        assert len(came) <= most, "the model is too large to be explored"
    return Explored(len(came), ends, None, ())


def _way_to(state: S, came: dict[S, tuple[S, str] | None]) -> tuple[str, ...]:
    way = []
    while (before := came[state]) is not None:
        state, step = before
        way.append(step)
    return tuple(reversed(way))
