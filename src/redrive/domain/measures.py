"""What a condition can speak of: numbers of this moment, and counters over a stretch of time.

Guarantees: each measure is worked out from the metrics alone, here from what the store has and by
Prometheus from what it scraped, by definitions that stand beside each other. A measure that cannot
be known (nothing came in, so no share of it was resolved) is None, and no condition holds for it.

Several servers show the figures of one store: Prometheus takes the largest, not the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from redrive.domain import metrics
from redrive.domain.lifecycle import BACKLOG, State
from redrive.domain.metrics import Metric, Readings

LONGEST_WINDOW: Final = timedelta(hours=24)
PER_SECOND: Final = "a second"
_GAP: Final = timedelta(minutes=1)
"""A sample may be so much older than its window begins. What is older still, because nobody took
samples meanwhile, would count for more than the window."""


@dataclass(frozen=True, slots=True)
class Counter:
    """Something that only grows; conditions ask by how much, over a window."""

    name: str
    metric: Metric
    labels: tuple[str, ...] = ()
    """Of these values of its first label; all if none is named."""

    def value(self, now: Readings) -> float:
        return now.total(self.metric.name, *self.labels)

    def promql(self, function: str, window: str) -> str:
        return f"max(sum by (instance) ({function}({self.selector}[{window}])))"

    @property
    def selector(self) -> str:
        if not self.labels:
            return self.metric.name
        return f'{self.metric.name}{{{next(iter(self.metric.labels))}=~"{"|".join(self.labels)}"}}'


@dataclass(frozen=True, slots=True)
class Past:
    """What the counters were at one moment."""

    at: datetime
    counters: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Moment:
    """All that a condition is judged by: the metrics now, and what the counters were."""

    now: datetime
    readings: Readings
    past: tuple[Past, ...]
    """The oldest first."""

    def increase(self, counter: Counter, window: timedelta) -> float:
        """By how much a counter grew. A window that reaches back before the first sample counts
        what was seen since: nothing is made up for the time before."""
        begin = self.now - window
        since = [past for past in self.past if begin - _GAP <= past.at]
        before = [past for past in since if past.at <= begin]
        base = before[-1] if before else (since[0] if since else None)
        if base is None:
            return 0.0
        value = counter.value(self.readings)
        return max(0.0, value - base.counters.get(counter.name, value))


def _all() -> tuple[Counter, ...]:
    return (
        Counter("letters_received", metrics.RECEIVED),
        Counter("letters_returned", metrics.RETURNED),
        Counter("letters_resolved", metrics.ENTERED, (State.RESOLVED.word,)),
        Counter("letters_manual", metrics.ENTERED, (State.MANUAL.word,)),
        Counter("letters_failed", metrics.ENTERED, (State.FAILED.word,)),
        Counter("letters_archived", metrics.ENTERED, (State.ARCHIVED.word,)),
        Counter("groups", metrics.GROUPS),
        Counter("replays_sent", metrics.ATTEMPTS, ("sent",)),
        Counter("replays_resolved", metrics.ATTEMPTS, ("resolved",)),
        Counter("replays_failed", metrics.ATTEMPTS, ("returned", "failed", "refused")),
        Counter("replays_in_doubt", metrics.ATTEMPTS, ("in_doubt",)),
        Counter("lease_takeovers", metrics.TAKEOVERS),
        Counter("possible_duplicates", metrics.POSSIBLE_DUPLICATES),
        Counter("retries", metrics.RETRIES),
        Counter("messages_dead_lettered", metrics.DEAD),
        Counter("reconnects", metrics.RECONNECTS),
        Counter("publishes_in_doubt", metrics.IN_DOUBT),
        Counter("sweep_moved", metrics.SWEPT, ("moved",)),
    )


COUNTERS: Final = {counter.name: counter for counter in _all()}


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that a condition can name."""

    name: str
    help: str
    read: Callable[[Moment], float | None]
    promql: str
    record: str
    """What Prometheus records it as."""
    unit: str = "a share"


_RATE, _HOUR = timedelta(minutes=5), timedelta(hours=1)
USUAL_WINDOWS: Final = (_RATE, _HOUR)
"""Those of the measures themselves."""


def _rate(counter: str, window: timedelta) -> Callable[[Moment], float | None]:
    return lambda moment: moment.increase(COUNTERS[counter], window) / window.total_seconds()


def _share(part: str, *of: str) -> Callable[[Moment], float | None]:
    def read(moment: Moment) -> float | None:
        whole = sum(moment.increase(COUNTERS[each], _HOUR) for each in of)
        return moment.increase(COUNTERS[part], _HOUR) / whole if whole else None

    return read


def _share_promql(part: str, *of: str) -> str:
    whole = " + ".join(COUNTERS[each].promql("increase", "1h") for each in of)
    return f"{COUNTERS[part].promql('increase', '1h')} / (({whole}) > 0)"


def _increase(counter: str, window: timedelta) -> Callable[[Moment], float | None]:
    return lambda moment: moment.increase(COUNTERS[counter], window)


def _now(metric: Metric, *labels: str) -> Callable[[Moment], float | None]:
    def read(moment: Moment) -> float | None:
        if metric.name not in moment.readings.values:
            return None
        return moment.readings.total(metric.name, *labels)

    return read


def _now_promql(metric: Metric, *labels: str) -> str:
    return f"max(sum by (instance) ({Counter('', metric, labels).selector}))"


def _oldest(*labels: str) -> Callable[[Moment], float | None]:
    def read(moment: Moment) -> float | None:
        found = moment.readings.values.get(metrics.OLDEST.name, {})
        return max((age for key, age in found.items() if key[0] in labels), default=0.0)

    return read


_WAITING: Final = tuple(state.word for state in BACKLOG)

_LIST: Final = (
    Measure(
        "dlq_ingestion_rate",
        "Letters that come in, over five minutes.",
        _rate("letters_received", _RATE),
        COUNTERS["letters_received"].promql("rate", "5m"),
        "redrive:ingestion:rate5m",
        PER_SECOND,
    ),
    Measure(
        "dlq_backlog",
        f"Letters that are not decided yet: {', '.join(_WAITING)}.",
        _now(metrics.LETTERS, *_WAITING),
        _now_promql(metrics.LETTERS, *_WAITING),
        "redrive:backlog:letters",
        "letters",
    ),
    Measure(
        "dlq_resolution_rate",
        "Letters that were resolved, for each that came in, over an hour; above 1 while a backlog"
        " shrinks. Unknown while nothing comes in.",
        _share("letters_resolved", "letters_received"),
        _share_promql("letters_resolved", "letters_received"),
        "redrive:resolution:ratio1h",
    ),
    Measure(
        "dlq_replay_success_rate",
        "Sendings that were resolved, of all with a verdict, over an hour. Unknown without any.",
        _share("replays_resolved", "replays_resolved", "replays_failed"),
        _share_promql("replays_resolved", "replays_resolved", "replays_failed"),
        "redrive:replay_success:ratio1h",
    ),
    Measure(
        "dlq_manual_entered",
        "Letters that were left to a person, over five minutes.",
        _increase("letters_manual", _RATE),
        COUNTERS["letters_manual"].promql("increase", "5m"),
        "redrive:manual_entered:increase5m",
        "letters",
    ),
    Measure(
        "dlq_manual",
        "Letters that wait for a person.",
        _now(metrics.LETTERS, State.MANUAL.word),
        _now_promql(metrics.LETTERS, State.MANUAL.word),
        "redrive:manual:letters",
        "letters",
    ),
    Measure(
        "dlq_failed",
        "Letters that failed too often.",
        _now(metrics.LETTERS, State.FAILED.word),
        _now_promql(metrics.LETTERS, State.FAILED.word),
        "redrive:failed:letters",
        "letters",
    ),
    Measure(
        "dlq_new_groups",
        "Failure groups that were never seen before, over five minutes.",
        _increase("groups", _RATE),
        COUNTERS["groups"].promql("increase", "5m"),
        "redrive:new_groups:increase5m",
        "groups",
    ),
    Measure(
        "dlq_fastest_group_rate",
        "Letters that come into the failure group that grows fastest, over five minutes.",
        _now(metrics.FASTEST),
        f"max({metrics.FASTEST.name})",
        "redrive:fastest_group:rate5m",
        PER_SECOND,
    ),
    Measure(
        "dlq_oldest_pending",
        "Age of the oldest letter that is pending.",
        _oldest(State.PENDING.word),
        f'(max({metrics.OLDEST.name}{{state="{State.PENDING.word}"}}) or vector(0))',
        "redrive:oldest_pending:seconds",
        "seconds",
    ),
    Measure(
        "dlq_oldest_manual",
        "Age of the oldest letter that waits for a person.",
        _oldest(State.MANUAL.word),
        f'(max({metrics.OLDEST.name}{{state="{State.MANUAL.word}"}}) or vector(0))',
        "redrive:oldest_manual:seconds",
        "seconds",
    ),
    Measure(
        "ledger_difference",
        "Letters by which the books differ from the store.",
        _now(metrics.DIFFERENCE),
        f"max({metrics.DIFFERENCE.name})",
        "redrive:ledger_difference:letters",
        "letters",
    ),
    Measure(
        "collecting_queues",
        "Dead letter queues that are being collected, by all processes.",
        _now(metrics.COLLECTING),
        f"max({metrics.COLLECTING.name})",
        "redrive:collecting:queues",
        "queues",
    ),
    Measure(
        "open_breakers",
        "Destinations that nothing is sent to for now.",
        _now(metrics.BREAKERS, "open"),
        _now_promql(metrics.BREAKERS, "open"),
        "redrive:open_breakers:count",
        "breakers",
    ),
)

MEASURES: Final = {measure.name: measure for measure in _LIST}
