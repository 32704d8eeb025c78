"""The language of conditions: what it takes, what it means, and where it says a slip is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain import metrics
from redrive.domain.alerting import DEFAULT_RULES
from redrive.domain.condition_reader import ConditionRefused, parse
from redrive.domain.measures import COUNTERS, MEASURES, Moment, Past
from redrive.domain.metrics import Readings

NOW = datetime(2026, 2, 11, 12, tzinfo=UTC)


def moment(
    *, pending: int = 0, received: int = 0, before: dict[int, float] | None = None
) -> Moment:
    """A moment with so many letters; `before`: how many had been received, minutes ago."""
    readings = Readings(
        {
            metrics.LETTERS.name: {("pending", "orders"): pending, ("failed", "orders"): 7},
            metrics.RECEIVED.name: {(): received},
        }
    )
    past = [
        Past(NOW - timedelta(minutes=minutes), {"letters_received": number})
        for minutes, number in sorted((before or {}).items(), reverse=True)
    ]
    return Moment(NOW, readings, tuple(past))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("dlq_backlog > 10", True),
        ("dlq_backlog > 11", False),
        ("dlq_backlog >= 11 and dlq_failed == 7", True),
        ("dlq_backlog > 11 or dlq_failed != 7", False),
        ("not dlq_backlog > 11", True),
        ("not (dlq_backlog > 10 and dlq_failed > 1)", False),
        ("dlq_backlog - dlq_failed == 4", True),
        ("dlq_backlog + dlq_failed * 2 == 25", True),
        ("(dlq_backlog + dlq_failed) * 2 == 36", True),
        ("-dlq_backlog < -10", True),
        ("dlq_backlog / (dlq_backlog - dlq_backlog) > 1", False),
        ("dlq_backlog > 10_0", False),
        ("10<dlq_backlog", True),
        ("dlq_failed > 50%", True),
        ("dlq_resolution_rate < 0.5", False),
    ],
)
def test_a_condition_means_what_it_says(text: str, holds: bool) -> None:
    assert parse(text).holds(moment(pending=11)) is holds


def test_rates_are_over_their_window_and_units_are_as_people_write_them() -> None:
    now = moment(received=700, before={5: 100, 60: 0})
    assert parse("dlq_ingestion_rate == 2/s").holds(now)
    assert parse("dlq_ingestion_rate > 119/min and dlq_ingestion_rate < 121/min").holds(now)
    assert parse("rate(letters_received, 5m) == 7200/h").holds(now)
    assert parse("increase(letters_received, 1h) == 700").holds(now)
    assert parse("dlq_oldest_pending < 1h30m").holds(now)


def test_nothing_is_made_up_for_the_time_before_the_first_sample() -> None:
    assert parse("increase(letters_received, 1h) == 50").holds(
        moment(received=150, before={5: 100})
    )
    assert parse("increase(letters_received, 1h) == 0").holds(moment(received=150))


def test_a_share_of_nothing_is_unknown_and_no_comparison_with_it_holds() -> None:
    now = moment(received=100, before={60: 100})
    assert MEASURES["dlq_resolution_rate"].read(now) is None
    for sign in ("<", ">", "==", "!="):
        assert not parse(f"dlq_resolution_rate {sign} 0.5").holds(now)


UNKNOWN, TRUE, FALSE = "dlq_resolution_rate >= 0.5", "dlq_failed == 7", "dlq_failed != 7"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        (f"not {UNKNOWN}", False),
        (f"not not {UNKNOWN}", False),
        (f"not (not {UNKNOWN} or {FALSE})", False),
        (f"{UNKNOWN} or {TRUE}", True),
        (f"{TRUE} or {UNKNOWN}", True),
        (f"{UNKNOWN} or {FALSE}", False),
        (f"not ({UNKNOWN} or {FALSE})", False),
        (f"not ({UNKNOWN} or {TRUE})", False),
        (f"{UNKNOWN} and {TRUE}", False),
        (f"not ({UNKNOWN} and {TRUE})", False),
        (f"not ({UNKNOWN} and {FALSE})", True),
        (f"not ({FALSE} and {UNKNOWN})", True),
        ("not dlq_backlog / (dlq_backlog - dlq_backlog) > 1", False),
    ],
)
def test_what_is_unknown_stays_so_and_a_condition_holds_only_if_it_is_known_to(
    text: str, holds: bool
) -> None:
    assert parse(text).holds(moment(pending=3)) is holds


def test_prometheus_is_asked_for_the_opposite_of_what_is_negated() -> None:
    asked = parse("not (dlq_backlog > 1 and not dlq_failed == 2)").promql()
    assert asked == "((redrive:backlog:letters <= 1) or (redrive:failed:letters == 2))"


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("", 1, "expected a measure or a number"),
        ("dlq_backlog", 12, "expected a comparison"),
        ("dlq_backlog >", 14, "expected a measure or a number"),
        ("dlq_backlock > 1", 1, "there is no measure 'dlq_backlock'; did you mean 'dlq_backlog'?"),
        ("dlq_backlog > 1 and", 20, "expected a measure or a number"),
        ("dlq_backlog > 1 1", 17, "expected nothing after the condition"),
        ("dlq_backlog > 1; x", 16, "expected a measure, a number or a sign"),
        ("(dlq_backlog > 1", 17, "expected ')'"),
        ("rate(dlq_backlog, 5m) > 1", 6, "there is no counter 'dlq_backlog'"),
        ("rate(retries, 5) > 1", 15, "expected a window from 1m to 24h"),
        ("rate(retries, 25h) > 1", 15, "expected a window from 1m to 24h"),
        ("rate(retries 5m) > 1", 14, "expected ','"),
        ("1 < 2", 1, "numbers never change"),
        ("dlq_backlog and dlq_failed > 1", 13, "expected a comparison"),
        ("__import__('os')", 12, "expected a measure, a number or a sign"),
        ("dlq_backlog > 5m5h", 15, "expected a duration"),
        ("dlq_oldest_pending > 5min", 22, "expected a duration such as 5m or 1h30m, got '5min'"),
        ("dlq_backlog / 0 > 1", 15, "nothing can be divided by 0"),
    ],
)
def test_a_slip_is_said_with_its_place(text: str, place: int, problem: str) -> None:
    with pytest.raises(ConditionRefused, match=f"at character {place} ") as refused:
        parse(text)
    assert problem in str(refused.value)


@given(st.text(alphabet="dlq_backog rates()<>=!+-*/%,.0123456789mhnotadr", max_size=60))
def test_whatever_is_written_is_a_condition_or_refused_and_nothing_else(text: str) -> None:
    try:
        found = parse(text)
    except ConditionRefused:
        return
    assert found.holds(moment(pending=3)) in (True, False)
    found.value(moment())
    found.promql()


def test_very_long_and_very_deep_texts_are_refused() -> None:
    for text in ("(" * 100 + "dlq_backlog > 1", "not " * 100 + "dlq_backlog > 1", "1" * 2000):
        with pytest.raises(ConditionRefused):
            parse(text)


def test_prometheus_is_told_the_same() -> None:
    found = parse("dlq_backlog > 10 and not rate(retries, 5m) > 60/min").promql()
    assert found == (
        "((redrive:backlog:letters > 10) and"
        " (max(sum by (instance) (rate(redrive_retries_total[5m]))) <= 1))"
    )


def test_the_names_of_measures_counters_and_default_alerts_are_each_others() -> None:
    assert not set(MEASURES) & set(COUNTERS)
    assert len({measure.record for measure in MEASURES.values()}) == len(MEASURES)
    assert len({rule.name for rule in DEFAULT_RULES}) == len(DEFAULT_RULES)
    conditions = [rule.condition.text for rule in DEFAULT_RULES[:3]]
    assert conditions == [
        "dlq_ingestion_rate > 100/min",
        "dlq_backlog > 10000",
        "dlq_resolution_rate < 0.5",
    ]


@pytest.mark.parametrize(
    ("condition", "unit"),
    [
        ("dlq_backlog > 5 and dlq_oldest_pending > 2h", "letters"),
        ("not (dlq_oldest_pending < 2h)", "seconds"),
        ("dlq_resolution_rate < 50%", "a share"),
        ("rate(reconnects, 5m) > 1/min", "a second"),
        ("increase(letters_failed, 10m) >= 5", None),
        ("dlq_manual + dlq_failed > 5", None),
    ],
)
def test_a_condition_knows_what_its_value_counts(condition: str, unit: str | None) -> None:
    assert parse(condition).unit == unit
