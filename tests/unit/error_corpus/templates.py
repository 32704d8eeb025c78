"""Errors written as templates: a log's text with `{{value:argument#label}}` where it changes.

A label repeats one value within a sample; `{{reason}}` in a stack is the sample's own reason, as
languages print it there. `{{tail:name}}` is some of the library frames of that name.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.unit.error_corpus import Kind, Sample
from tests.unit.error_corpus.frames import FRAMES, LINES_A_FRAME
from tests.unit.error_corpus.values import VALUES

PLACEHOLDER = re.compile(r"\{\{([a-z]\w*)(?::([^{}#]*))?(?:#(\w+))?\}\}")
# What a language puts before a frame that starts with "at".
INDENT = {"java": "\t", "dotnet": "   ", "node": "    "}


@dataclass(slots=True)
class Renderer:
    rng: random.Random
    known: dict[str, str] = field(default_factory=dict)

    def render(self, template: str) -> str:
        return PLACEHOLDER.sub(self._value, template)

    def _value(self, match: re.Match[str]) -> str:
        name, arg, label = match[1], match[2] or "", match[3]
        if name == "reason":
            return self.known["reason"]
        key = f"{name}:{arg}#{label}"
        if label and key in self.known:
            return self.known[key]
        text = self._tail(arg) if name == "tail" else VALUES[name](self.rng, arg)
        if label:
            self.known[key] = text
        return text

    def _tail(self, name: str) -> str:
        lines, step = FRAMES[name].split("\n"), LINES_A_FRAME.get(name, 1)
        frames = len(lines) // step
        return self.render("\n".join(lines[: step * self.rng.randint(min(2, frames), frames)]))


def kind(
    name: str,
    *,
    queue: str,
    error_type: str,
    reason: str | Callable[[random.Random], str],
    stack: str | Callable[[random.Random], str] | None = None,
    near: str | None = None,
) -> Kind:
    """A kind from its templates; its name starts with its language."""
    language = name.partition("-")[0]

    def make(rng: random.Random) -> Sample:
        renderer = Renderer(rng)
        renderer.known["reason"] = rendered = renderer.render(
            reason if isinstance(reason, str) else reason(rng)
        )
        if stack is None:
            return Sample(name, queue, error_type, rendered, None)
        trace = renderer.render(stack if isinstance(stack, str) else stack(rng))
        return Sample(name, queue, error_type, rendered, _indented(trace, language))

    return Kind(name, language, make, near)


def _indented(stack: str, language: str) -> str:
    return re.sub(r"^(?=at )", INDENT.get(language, ""), stack, flags=re.MULTILINE)
