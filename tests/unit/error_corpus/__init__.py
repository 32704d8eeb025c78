"""Consumer errors as real logs show them, to judge what groups dead messages by cause.

A kind is one failure in one place; its variants differ only in what is incidental: ids, times,
hosts, amounts, line numbers of another build, depth of library frames. `seen` and `once_held_out`
are the seen half, which whoever writes the grouping rules may read; `held_out` may not be, or it
measures nothing. The same seed gives the same samples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

VARIANTS = 100
SEED = 20260211


@dataclass(frozen=True, slots=True)
class Sample:
    """One dead message's error, as its consumer reported it."""

    kind: str
    queue: str
    error_type: str
    reason: str
    stack: str | None


@dataclass(frozen=True, slots=True)
class Kind:
    """One failure in one place; `near` names the kind of its half it is easily mistaken for."""

    name: str
    language: str
    make: Callable[[random.Random], Sample]
    near: str | None = None


def samples(kinds: Iterable[Kind], variants: int = VARIANTS, seed: int = SEED) -> Iterator[Sample]:
    """Every kind has its own stream of randomness: adding a kind leaves the others as they were."""
    for kind in kinds:
        rng = random.Random(f"{seed}:{kind.name}")
        for _ in range(variants):
            yield kind.make(rng)
