"""What a condition of an alert is: judged at a moment, and written for Prometheus.

Guarantees: judging cannot fail, call anything or run long. A comparison with a measure that is
unknown, or with a division by zero, does not hold. How a condition is written is in
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

    def judge(self, moment: Moment) -> bool:
        left, right = self.left.judge(moment), self.right.judge(moment)
        return left is not None and right is not None and COMPARING[self.sign](left, right)

    def promql(self) -> str:
        return f"({self.left.promql()} {self.sign} {self.right.promql()})"


@dataclass(frozen=True, slots=True)
class Joined:
    """`and` or `or`."""

    word: str
    left: Judged
    right: Judged

    def judge(self, moment: Moment) -> bool:
        left, right = self.left.judge(moment), self.right.judge(moment)
        return (left and right) if self.word == "and" else (left or right)

    def promql(self) -> str:
        return f"({self.left.promql()} {self.word} {self.right.promql()})"


@dataclass(frozen=True, slots=True)
class Not:
    inner: Judged

    def judge(self, moment: Moment) -> bool:
        return not self.inner.judge(moment)

    def promql(self) -> str:
        return f"(vector(1) unless {self.inner.promql()})"


Value = Number | Named | Over | Sum
Judged = Compared | Joined | Not


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that can be judged."""

    text: str
    root: Judged

    def holds(self, moment: Moment) -> bool:
        return self.root.judge(moment)

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
