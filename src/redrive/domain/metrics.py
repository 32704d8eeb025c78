"""Every metric that Redrive has: its name, what it counts, and its labels.

Guarantees: the page at `/metrics`, the reference page, the Prometheus rules and the dashboard all
come from `METRICS`, and nothing has a metric that is not here. Units are base units (seconds,
letters). No label can have more values than is said here: names of queues and error types are the
`MOST_NAMES` most frequent, and `other` for all the rest, so they are gauges only. As counters they
would seem to begin anew whenever a name comes or goes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from redrive.domain.letter import Result
from redrive.domain.lifecycle import State

PREFIX: Final = "redrive_"
MOST_NAMES: Final = 20
"""Names of queues, or of error types, that have a label of their own."""
OTHER: Final = "other"
UNKNOWN: Final = "unknown"
"""The queue of letters whose origin nothing tells."""
SUM: Final = "sum"
"""Beside the buckets of a histogram: the sum of all that was observed, in milliseconds."""
INFINITE: Final = "+Inf"


class Kind(StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """What each label says."""
    bounds: tuple[float, ...] = ()
    """Of a histogram, in seconds."""
    always: tuple[str, ...] = ()
    """Values of its label that are shown from the first day on: Prometheus sees no increase where
    there was nothing before."""

    def bucket(self, seconds: float) -> str:
        """The bucket of a histogram that an observation falls into, by its upper bound."""
        place = bisect_left(self.bounds, seconds)
        return f"{self.bounds[place]:g}" if place < len(self.bounds) else INFINITE


@dataclass(frozen=True, slots=True)
class Histogram:
    """What was observed, by the upper bound of its bucket, and the sum in seconds."""

    buckets: Mapping[str, int]
    total: float


Samples = Mapping[tuple[str, ...], float]
"""Values by the values of their labels, in the order in which the metric has them."""


@dataclass(frozen=True, slots=True)
class Readings:
    """All metrics at one moment. A metric that is not known is in neither."""

    values: dict[str, Samples] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)

    def total(self, name: str, *labels: str) -> float:
        """The sum of a metric, of some values of its first label or of all; 0 if there is none."""
        found = self.values.get(name, {})
        return sum(value for key, value in found.items() if not labels or key[0] in labels)


def _counter(name: str, text: str, *always: str, **labels: str) -> Metric:
    return Metric(name=PREFIX + name, kind=Kind.COUNTER, help=text, labels=labels, always=always)


def _gauge(name: str, text: str, **labels: str) -> Metric:
    return Metric(name=PREFIX + name, kind=Kind.GAUGE, help=text, labels=labels)


def _histogram(name: str, text: str, bounds: tuple[float, ...]) -> Metric:
    return Metric(name=PREFIX + name, kind=Kind.HISTOGRAM, help=text, bounds=bounds)


_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_RESULTS: Final = tuple(result.value for result in Result if result is not Result.SENDING)
_STATES: Final = ", ".join(state.word for state in State)
_TOP: Final = f"the {MOST_NAMES} with the most open letters, and `{OTHER}`"

# Of the books

RECEIVED: Final = _counter("letters_received_total", "Letters that were made: the ingestion.")
RETURNED: Final = _counter(
    "letters_returned_total", "Deliveries that were letters coming back after they were sent."
)
DELETED: Final = _counter("letters_deleted_total", "Letters that retention has deleted.")
LETTERS: Final = _gauge(
    "letters",
    "Letters in the store.",
    state=_STATES,
    queue=f"the origin: {_TOP}; `{UNKNOWN}` where nothing tells",
)
OPEN: Final = _gauge(
    "open_letters",
    "Letters that somebody may still have to do something about, by error type.",
    error_type=_TOP,
)
GROUPS: Final = _counter("groups_total", "Failure groups that were ever seen.")
OLDEST: Final = _gauge(
    "oldest_letter_age_seconds", "Age of the oldest letter in a state.", state=_STATES
)

# Counted with each change

ENTERED: Final = _counter(
    "letters_entered_total",
    "Letters that went into a state after they were made.",
    *(state.word for state in State),
    state=_STATES,
)
ATTEMPTS: Final = _counter(
    "replay_attempts_total",
    "Sendings of letters, counted again with each thing that became of them.",
    *_RESULTS,
    result=", ".join(_RESULTS),
)
TAKEOVERS: Final = _counter(
    "lease_takeovers_total",
    "Leases that ended before their holder was done.",
    "letter",
    "replay",
    of="letter (the sending is in doubt), replay (another process goes on)",
)
POSSIBLE_DUPLICATES: Final = _counter(
    "possible_duplicates_total",
    "Letters that were marked as possible duplicates when they were collected.",
)
TIME_IN_DLQ: Final = _histogram(
    "time_in_dlq_seconds",
    "From the arrival of a letter until it was resolved.",
    (1, 10, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY),
)

# Counted by each process

RETRIES: Final = _counter(
    "retries_total",
    "Failed messages that the retrier sent to wait.",
    tier="the number of the tier; `own` for the delay queue of a queue, `ladder` for RetryAfter",
)
RETRIED: Final = _counter(
    "messages_returned_total", "Messages that the retrier brought back to their queue."
)
DEAD: Final = _counter(
    "messages_dead_lettered_total", "Messages that the retrier sent to the dead letter queue."
)
COLLECTED: Final = _counter(
    "deliveries_collected_total", "Deliveries that the collector stored and acked."
)
RECONNECTS: Final = _counter(
    "reconnects_total",
    "Sessions with the broker that were lost, or could not be had.",
    "retrier",
    "collector",
    "worker",
    role="retrier, collector, worker",
)
CONFIRMS: Final = _histogram(
    "confirm_seconds",
    "From a publish until the broker confirmed it; of one message at a time.",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
IN_DOUBT: Final = _counter(
    "publishes_in_doubt_total",
    "Publishes whose connection was lost before the confirm: the message may be there twice.",
)
SWEEPS: Final = _counter("sweeps_total", "Queues that `redrive sweep` went through.")
SWEPT: Final = _counter(
    "sweep_messages_total",
    "Messages that `redrive sweep` looked at.",
    "moved",
    "left",
    "failed",
    outcome="moved, left, failed",
)
ALERT_MESSAGES: Final = _counter(
    "alert_messages_total",
    "Messages about alerts.",
    "sent",
    "failed",
    outcome="sent, failed (and tried again)",
)

# How things stand

BREAKERS: Final = _gauge(
    "breakers", "Circuit breakers of destinations.", position="closed, open, half_open"
)
BREAKER_OPEN: Final = _gauge(
    "breaker_open",
    "1 for a destination that nothing is sent to for now.",
    queue=f"{MOST_NAMES} at most; redrive_breakers counts them all",
)
PROCESSES: Final = Metric(
    name=PREFIX + "processes",
    kind=Kind.GAUGE,
    help="Processes that were heard of within 45 s.",
    labels={"role": "as in `redrive run`"},
    always=("retrier", "collector", "worker", "janitor", "server"),
)
COLLECTING: Final = _gauge("collector_queues", "Dead letter queues that are being collected.")
FASTEST: Final = _gauge(
    "fastest_group_letters_per_second",
    "Ingestion of the failure group that grows fastest, over five minutes.",
)
DIFFERENCE: Final = _gauge(
    "ledger_difference_letters", "Letters by which the books differ from the store; 0 is right."
)
CHECKED: Final = _gauge(
    "ledger_checked_timestamp_seconds", "When the books were last compared with the store."
)
FIRING: Final = _gauge(
    "alerts_firing", "1 for an alert that fires.", alert="its name", severity="as its rule says"
)
INFO: Final = _gauge("info", "Always 1.", version="of the process that answers")

METRICS: Final[tuple[Metric, ...]] = (
    RECEIVED,
    RETURNED,
    DELETED,
    LETTERS,
    OPEN,
    GROUPS,
    OLDEST,
    ENTERED,
    ATTEMPTS,
    TAKEOVERS,
    POSSIBLE_DUPLICATES,
    TIME_IN_DLQ,
    RETRIES,
    RETRIED,
    DEAD,
    COLLECTED,
    RECONNECTS,
    CONFIRMS,
    IN_DOUBT,
    SWEEPS,
    SWEPT,
    ALERT_MESSAGES,
    BREAKERS,
    BREAKER_OPEN,
    PROCESSES,
    COLLECTING,
    FASTEST,
    DIFFERENCE,
    CHECKED,
    FIRING,
    INFO,
)
COUNTED: Final = {
    metric.name: metric
    for metric in METRICS
    if metric.kind is not Kind.GAUGE and metric not in (RECEIVED, RETURNED, DELETED, GROUPS)
}
"""Those that are kept as counts, by name and one label."""


def histogram_of(metric: Metric, counts: Mapping[str, int]) -> Histogram:
    """A histogram of the counts that were kept of it."""
    uppers = [*(f"{bound:g}" for bound in metric.bounds), INFINITE]
    return Histogram({upper: counts.get(upper, 0) for upper in uppers}, counts.get(SUM, 0) / 1000)


def most_frequent(numbers: Mapping[str, int], most: int = MOST_NAMES) -> list[str]:
    """The names that have a label of their own: those of the highest numbers."""
    ranked = sorted(numbers, key=lambda name: (-numbers[name], name))
    return ranked[:most]


def fold(numbers: Mapping[str, int], named: Sequence[str]) -> dict[str, int]:
    """Numbers by name, those of all other names together as `other`."""
    folded: dict[str, int] = {}
    for name, number in numbers.items():
        key = name if name in named else OTHER
        folded[key] = folded.get(key, 0) + number
    return folded
