"""The arithmetic: what was measured, made into medians, ratios and targets. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

Sample = tuple[float, int]
"""When (seconds), and how many messages the target queue had by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One client moved one queue's messages once."""

    round: int
    queue_type: str
    client: str
    messages: int
    per_second: float
    client_cpu_us: float | None
    """CPU of the client's own process per message; None where the client is the broker."""
    broker_cpu_us: float
    client_memory_mb: float | None
    others_share: float
    """How much of the machine's CPU went to neither: more than a little, and the rate is theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One client on one queue type: medians over the rounds."""

    queue_type: str
    client: str
    per_second: float
    client_cpu_us: float | None
    broker_cpu_us: float
    client_memory_mb: float | None
    ratios: dict[str, float | None]
    """How many times as fast as each baseline: the median of the ratios within a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A promise and what came of it."""

    name: str
    wanted: str
    got: str
    met: bool


def pace(samples: Sequence[Sample]) -> float:
    """Messages a second between the first sample that shows any and the last.

    So whatever comes before the first message (connecting, starting a shovel) does not count, for
    any client.
    """
    began, already = next(((at, depth) for at, depth in samples if depth), samples[-1])
    ended, moved = samples[-1]
    if ended <= began or moved <= already:
        raise ValueError("too few messages to measure: they were all there at the first look")
    return (moved - already) / (ended - began)


def others_share(*, busy: float, ours: float, seconds: float, cores: int) -> float:
    """The share of the machine that others used: its busy time without ours."""
    return max(0.0, busy - ours) / (seconds * cores)


def ratio(runs: Iterable[Run], queue_type: str, client: str, baseline: str) -> float | None:
    """How many times as fast as the baseline: each round by itself, then the median."""
    by_round: dict[int, dict[str, float]] = {}
    for run in runs:
        if run.queue_type == queue_type:
            by_round.setdefault(run.round, {})[run.client] = run.per_second
    ratios = [
        speeds[client] / speeds[baseline]
        for speeds in by_round.values()
        if client in speeds and baseline in speeds
    ]
    return median(ratios) if ratios else None


def within_rounds(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The ratio of two things measured once a round: each round by itself, then the median."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def rows(runs: Sequence[Run], baselines: Sequence[str]) -> list[Row]:
    """One row for each client and queue type, in the order they first ran."""
    kinds = sorted({run.queue_type for run in runs})
    clients = list(dict.fromkeys(run.client for run in runs))
    found = []
    for kind in kinds:
        for client in clients:
            mine = [run for run in runs if (run.queue_type, run.client) == (kind, client)]
            if mine:
                found.append(
                    Row(
                        queue_type=kind,
                        client=client,
                        per_second=median(run.per_second for run in mine),
                        client_cpu_us=_median(run.client_cpu_us for run in mine),
                        broker_cpu_us=median(run.broker_cpu_us for run in mine),
                        client_memory_mb=_median(run.client_memory_mb for run in mine),
                        ratios={other: ratio(runs, kind, client, other) for other in baselines},
                    )
                )
    return found


def at_least(name: str, got: float | None, wanted: float) -> Target:
    """A target for a ratio. What was not measured is not met."""
    return Target(
        name=name,
        wanted=f"at least {wanted:g} times",
        got="not measured" if got is None else f"{got:.2f} times",
        met=got is not None and got >= wanted,
    )


def below(name: str, got: float, limit: float, unit: str) -> Target:
    """A target for something that must stay small."""
    return Target(
        name=name,
        wanted=f"less than {limit:g} {unit}",
        got=f"{got:.1f} {unit}",
        met=got < limit,
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
