"""What a condition of an alert is: judged at a moment, and written for Prometheus.

Guarantees: judging cannot fail, call anything or run long. A comparison with a measure that is
unknown, or with a division by zero, is unknown itself (None), and stays so through `not`, `and` and
`or` as in SQL: a condition holds only if it is known to. How it is written is in
`condition_reader`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from redrive.domain.durations import format_duration
from redrive.domain.measures import PER_SECOND, USUAL_WINDOWS, Counter, Measure, Moment

COMPARING: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_OPPOSITES: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_COUNTING: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@dataclass(frozen=True, slots=True)
class Number:
    value: float

    def judge(self, _: Moment) -> float | None:
        return self.value

    def promql(self) -> str:
        return f"{self.value:.12g}"


@dataclass(frozen=True, slots=True)
class Named:
    measure: Measure

    def judge(self, moment: Moment) -> float | None:
        return self.measure.read(moment)

    def promql(self) -> str:
        return self.measure.record


@dataclass(frozen=True, slots=True)
class Over:
    """`rate` or `increase` of a counter."""

    function: str
    counter: Counter
    window: timedelta

    def judge(self, moment: Moment) -> float | None:
        grown = moment.increase(self.counter, self.window)
        return grown / self.window.total_seconds() if self.function == "rate" else grown

    def promql(self) -> str:
        return self.counter.promql(self.function, format_duration(self.window))


@dataclass(frozen=True, slots=True)
class Sum:
    """Two numbers and a sign between them."""

    sign: str
    left: Value
    right: Value

    def judge(self, moment: Moment) -> float | None:
        left, right = self.left.judge(moment), self.right.judge(moment)
        if left is None or right is None:
            return None
        try:
            found = _COUNTING[self.sign](left, right)
        except (ZeroDivisionError, OverflowError):
            return None
        return found if math.isfinite(found) else None

    def promql(self) -> str:
        return f"({self.left.promql()} {self.sign} {self.right.promql()})"


@dataclass(frozen=True, slots=True)
class Compared:
    sign: str
    left: Value
    right: Value

    def judge(self, moment: Moment) -> bool | None:
        left, right = self.left.judge(moment), self.right.judge(moment)
        return None if left is None or right is None else COMPARING[self.sign](left, right)

    def promql(self) -> str:
        return f"({self.left.promql()} {self.sign} {self.right.promql()})"

    def opposite(self) -> Judged:
        return Compared(_OPPOSITES[self.sign], self.left, self.right)


@dataclass(frozen=True, slots=True)
class Joined:
    """`and` or `or`."""

    word: str
    left: Judged
    right: Judged

    def judge(self, moment: Moment) -> bool | None:
        found = {self.left.judge(moment), self.right.judge(moment)}
        decides = self.word == "or"  # one that is true settles an `or`, a false one an `and`
        if decides in found:
            return decides
        return None if None in found else not decides

    def promql(self) -> str:
        return f"({self.left.promql()} {self.word} {self.right.promql()})"

    def opposite(self) -> Judged:
        word = "or" if self.word == "and" else "and"
        return Joined(word, self.left.opposite(), self.right.opposite())


@dataclass(frozen=True, slots=True)
class Not:
    inner: Judged

    def judge(self, moment: Moment) -> bool | None:
        found = self.inner.judge(moment)
        return None if found is None else not found

    def promql(self) -> str:
        # To Prometheus what is unknown and what is false are both nothing, so nothing is negated.
        return self.inner.opposite().promql()

    def opposite(self) -> Judged:
        return self.inner


Value = Number | Named | Over | Sum
Judged = Compared | Joined | Not


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that can be judged."""

    text: str
    root: Judged

    def holds(self, moment: Moment) -> bool:
        return self.root.judge(moment) is True

    def value(self, moment: Moment) -> float | None:
        """The number that its first comparison looks at, to be shown."""
        return self._first.left.judge(moment)

    @property
    def unit(self) -> str | None:
        """What that number counts; None if it is worked out of several, or has no unit."""
        looked_at = self._first.left
        if isinstance(looked_at, Named):
            return looked_at.measure.unit
        if isinstance(looked_at, Over) and looked_at.function == "rate":
            return PER_SECOND
        return None

    @property
    def _first(self) -> Compared:
        node = self.root
        while not isinstance(node, Compared):
            node = node.inner if isinstance(node, Not) else node.left
        return node

    def promql(self) -> str:
        """The same for Prometheus, by the recorded measures."""
        return self.root.promql()

    def windows(self) -> set[timedelta]:
        """How far back it looks."""
        return set(USUAL_WINDOWS) | set(_windows(self.root))


def _windows(node: Value | Judged) -> Iterator[timedelta]:
    if isinstance(node, Over):
        yield node.window
    elif isinstance(node, Not):
        yield from _windows(node.inner)
    elif isinstance(node, Sum | Compared | Joined):
        yield from _windows(node.left)
        yield from _windows(node.right)
