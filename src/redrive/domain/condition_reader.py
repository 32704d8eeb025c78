"""Conditions of alerts as people write them: a small language over the measures.

    dlq_ingestion_rate > 100/min
    dlq_backlog > 10_000 and dlq_oldest_pending > 2h
    increase(letters_failed, 10m) >= 5 or rate(reconnects, 5m) > 1/min

Guarantees: `parse` either gives a condition that can be judged at any moment, or raises
`ConditionRefused` with the place of what is wrong. There are numbers, measures, `rate` and
`increase` of a counter over a window, arithmetic, comparisons, `and`, `or`, `not` and parentheses,
and nothing else.

Rates are per second; `100/min` is a rate, `2h` is 7,200 seconds, `50%` is 0.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Final

from redrive.domain.condition import (
    COMPARING,
    Compared,
    Condition,
    Joined,
    Judged,
    Named,
    Not,
    Number,
    Over,
    Sum,
    Value,
)
from redrive.domain.durations import parse_duration
from redrive.domain.measures import COUNTERS, LONGEST_WINDOW, MEASURES

_SHORTEST_WINDOW: Final = timedelta(minutes=1)
_LONGEST_TEXT: Final = 1000
_DEEPEST: Final = 40
_PER: Final = {
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("min", "minute"), 60),
    **dict.fromkeys(("h", "hour"), 3600),
    **dict.fromkeys(("d", "day"), 86400),
}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<duration>(?:\d+(?:ms|[dhms]))+(?![\w.]))"
    r"|(?P<number>\d[\d_]*(?:\.\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><=|>=|==|!=|[<>+\-*/%(),]))",
    re.ASCII,
)


class ConditionRefused(ValueError):
    """A condition that is none: what is wrong, and where."""

    def __init__(self, text: str, place: int, problem: str) -> None:
        shown = text[place : place + 20] or "its end"
        super().__init__(f"{problem}, at character {place + 1} ({shown!r})")
        self.place = place


def parse(text: str) -> Condition:
    """Read a condition; `ConditionRefused` if it is none."""
    return Condition(text, _Reader(text).read())


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    place: int


class _Reader:
    """Reads from left to right, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > _LONGEST_TEXT:
            raise ConditionRefused(text, _LONGEST_TEXT, "expected a shorter condition")
        self._tokens = _tokens(text)
        self._position = 0
        self._depth = 0

    def read(self) -> Judged:
        found = self._judged(self._either())
        if self._next.kind != "end":
            raise self._refused(f"expected nothing after the condition, got {self._next.text!r}")
        return found

    # Words

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _take(self, *texts: str) -> str | None:
        if self._next.kind in ("sign", "name") and self._next.text in texts:
            self._position += 1
            return self._tokens[self._position - 1].text
        return None

    def _expect(self, text: str) -> None:
        if self._take(text) is None:
            raise self._refused(f"expected {text!r}")

    def _refused(self, problem: str, place: int | None = None) -> ConditionRefused:
        return ConditionRefused(self._text, self._next.place if place is None else place, problem)

    # The grammar, from what binds least to what binds most

    def _either(self) -> Value | Judged:
        found = self._both()
        while self._next.text == "or":
            left = self._judged(found)
            self._position += 1
            found = Joined("or", left, self._judged(self._both()))
        return found

    def _both(self) -> Value | Judged:
        found = self._negated()
        while self._next.text == "and":
            left = self._judged(found)
            self._position += 1
            found = Joined("and", left, self._judged(self._negated()))
        return found

    def _negated(self) -> Value | Judged:
        if self._take("not"):
            with self._deeper():
                return Not(self._judged(self._negated()))
        return self._comparison()

    def _comparison(self) -> Value | Judged:
        began = self._next.place
        left = self._total()
        sign = self._take(*COMPARING)
        if sign is None:
            return left
        compared = Compared(sign, self._number(left), self._number(self._total()))
        if not (_speaks(compared.left) or _speaks(compared.right)):
            raise self._refused("expected a measure to compare: numbers never change", began)
        return compared

    def _total(self) -> Value | Judged:
        found = self._product()
        while sign := self._take("+", "-"):
            found = Sum(sign, self._number(found), self._number(self._product()))
        return found

    def _product(self) -> Value | Judged:
        found = self._single()
        while sign := self._take("*", "/"):
            place, by = self._next.place, self._number(self._single())
            if sign == "/" and by == Number(0):
                raise self._refused("nothing can be divided by 0", place)
            found = Sum(sign, self._number(found), by)
        return found

    def _single(self) -> Value | Judged:
        token = self._next
        with self._deeper():
            if self._take("-"):
                return Sum("-", Number(0), self._number(self._single()))
            if self._take("("):
                found = self._either()
                self._expect(")")
                return found
        if token.kind == "end":
            raise self._refused("expected a measure or a number")
        self._position += 1
        if token.kind == "number":
            self._stands_alone(token)
            return self._unit(float(token.text.replace("_", "")))
        if token.kind == "duration":
            return Number(self._duration(token).total_seconds())
        if token.kind == "name":
            return self._named(token)
        raise self._refused("expected a measure or a number", token.place)

    def _stands_alone(self, number: _Token) -> None:
        after = self._next
        if after.kind == "name" and after.place == number.place + len(number.text):
            raise self._refused(
                f"expected a duration such as 5m or 1h30m, got {number.text + after.text!r}",
                number.place,
            )

    def _unit(self, number: float) -> Number:
        if self._take("%"):
            return Number(number / 100)
        after = self._tokens[self._position + 1] if self._next.text == "/" else None
        if after is not None and after.kind == "name" and after.text in _PER:
            self._position += 2
            return Number(number / _PER[after.text])
        return Number(number)

    def _named(self, token: _Token) -> Named | Over:
        if token.text in ("rate", "increase"):
            self._expect("(")
            counter = self._next
            self._position += counter.kind == "name"
            if counter.text not in COUNTERS:
                raise self._unknown("counter", counter, COUNTERS)
            self._expect(",")
            window = self._window()
            self._expect(")")
            return Over(token.text, COUNTERS[counter.text], window)
        if token.text not in MEASURES:
            raise self._unknown("measure", token, MEASURES)
        return Named(MEASURES[token.text])

    def _window(self) -> timedelta:
        token = self._next
        if token.kind == "duration":
            self._position += 1
            window = self._duration(token)
            if _SHORTEST_WINDOW <= window <= LONGEST_WINDOW:
                return window
        raise self._refused("expected a window from 1m to 24h, such as 5m", token.place)

    def _duration(self, token: _Token) -> timedelta:
        try:
            return parse_duration(token.text)
        except ValueError:
            raise self._refused("expected a duration such as 1h30m", token.place) from None

    def _unknown(self, what: str, token: _Token, known: Iterable[str]) -> Exception:
        meant = get_close_matches(token.text, known, n=1)
        hint = f"did you mean {meant[0]!r}?" if meant else f"there are {', '.join(sorted(known))}"
        return self._refused(f"there is no {what} {token.text!r}; {hint}", token.place)

    # What fits where

    def _number(self, found: Value | Judged) -> Value:
        if isinstance(found, Compared | Joined | Not):
            raise self._refused("expected a number here, not a condition")
        return found

    def _judged(self, found: Value | Judged) -> Judged:
        if not isinstance(found, Compared | Joined | Not):
            raise self._refused("expected a comparison such as dlq_backlog > 10000")
        return found

    def _deeper(self) -> _Depth:
        return _Depth(self)

    def enter(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._refused("expected fewer parentheses")

    def leave(self) -> None:
        self._depth -= 1


class _Depth:
    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def __enter__(self) -> None:
        self._reader.enter()

    def __exit__(self, *_: object) -> None:
        self._reader.leave()


def _speaks(value: Value) -> bool:
    """Whether a number can change."""
    if isinstance(value, Sum):
        return _speaks(value.left) or _speaks(value.right)
    return not isinstance(value, Number)


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    place = 0
    end = len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            at = place + len(text[place:]) - len(text[place:].lstrip())
            raise ConditionRefused(text, at, "expected a measure, a number or a sign")
        kind = match.lastgroup or ""
        found.append(_Token(kind, match.group(kind), match.start(kind)))
        place = match.end()
    found.append(_Token("end", "", len(text)))
    return found
