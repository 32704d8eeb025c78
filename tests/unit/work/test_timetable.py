"""The schedule of `scheduled`, over days on which the clock is changed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.strategy import Strategy
from redrive.settings.sections import WorkerSettings
from redrive.work.timetable import Cron, timetable_by

# Each with a day on which the clock jumps ahead and one on which it is turned back.
BERLIN = "Europe/Berlin"
NEW_YORK = "America/New_York"
LORD_HOWE = "Australia/Lord_Howe"  # by half an hour
CHANGES = {
    BERLIN: (date(2026, 3, 29), date(2026, 10, 25)),
    NEW_YORK: (date(2026, 3, 8), date(2026, 11, 1)),
    LORD_HOWE: (date(2026, 10, 4), date(2026, 4, 5)),
}
SHORT_DAYS = [(zone, days[0]) for zone, days in CHANGES.items()]
LONG_DAYS = [(zone, days[1]) for zone, days in CHANGES.items()]


def day_of(cron: Cron, day: date) -> list[str]:
    """What fires on a day, in wall times with their offsets."""
    moment = datetime(day.year, day.month, day.day, tzinfo=cron.zone) - timedelta(seconds=1)
    fired = []
    while (moment := cron.after(moment)).astimezone(cron.zone).date() == day:
        fired.append(moment.astimezone(cron.zone).strftime("%H:%M%z"))
    return fired


def test_hours_fire_in_their_zone() -> None:
    fired = day_of(Cron("0 2,3,4 * * *", BERLIN), date(2026, 7, 1))
    assert fired == ["02:00+0200", "03:00+0200", "04:00+0200"]


def test_what_is_returned_is_utc() -> None:
    after = Cron("0 2 * * *", BERLIN).after(datetime(2026, 7, 1, tzinfo=UTC))
    assert after == datetime(2026, 7, 2, tzinfo=UTC)
    assert after.tzinfo is UTC


def test_it_is_later_than_what_was_asked_for_by_however_little() -> None:
    cron = Cron("0 2 * * *")
    two = datetime(2026, 7, 1, 2, tzinfo=UTC)
    assert cron.after(two - timedelta(microseconds=1)) == two
    assert cron.after(two) == two + timedelta(days=1)


@pytest.mark.parametrize(
    ("zone", "fired"),
    [
        # 2:00 does not exist, and 3:00 is when the clock has jumped over it.
        (BERLIN, ["03:00+0200", "04:00+0200"]),
        (NEW_YORK, ["03:00-0400", "04:00-0400"]),
        (LORD_HOWE, ["02:30+1100", "03:00+1100", "04:00+1100"]),
    ],
)
def test_an_hour_that_does_not_exist_fires_once_when_the_clock_has_jumped(
    zone: str, fired: list[str]
) -> None:
    assert day_of(Cron("0 2,3,4 * * *", zone), CHANGES[zone][0]) == fired


@pytest.mark.parametrize(
    ("zone", "expression", "fired"),
    [
        (BERLIN, "0 2,3,4 * * *", ["02:00+0200", "03:00+0100", "04:00+0100"]),
        (NEW_YORK, "0 1,2 * * *", ["01:00-0400", "02:00-0500"]),
        (LORD_HOWE, "45 1 * * *", ["01:45+1100"]),
    ],
)
def test_an_hour_that_exists_twice_fires_once(zone: str, expression: str, fired: list[str]) -> None:
    assert day_of(Cron(expression, zone), CHANGES[zone][1]) == fired


def test_in_the_second_of_two_equal_hours_it_is_not_due_again() -> None:
    cron = Cron("30 2 * * *", BERLIN)
    second = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=ZoneInfo(BERLIN))
    assert cron.after(second) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def test_every_hour_fires_in_both_of_two_equal_hours() -> None:
    fired = day_of(Cron("15 * * * *", BERLIN), CHANGES[BERLIN][1])
    assert len(fired) == 25
    assert fired[2:4] == ["02:15+0200", "02:15+0100"]


def test_every_hour_fires_as_often_as_hours_pass_on_a_short_day() -> None:
    assert len(day_of(Cron("15 * * * *", BERLIN), CHANGES[BERLIN][0])) == 23


@pytest.mark.parametrize(
    "expression", ["", "0 2 * *", "0 0 2 * * *", "0 24 * * *", "@daily", "a b c d e"]
)
def test_what_is_no_expression_of_five_fields_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="not a cron expression"):
        Cron(expression)


def test_the_timetable_has_the_delays_schedule_and_zone_of_the_settings() -> None:
    settings = WorkerSettings.model_validate(
        {"schedule": [5], "zone": BERLIN, "delays": ["2s", "3s"]}
    )
    timetable = timetable_by(settings)
    now = datetime(2026, 7, 1, tzinfo=UTC)
    assert timetable.next_try(Strategy.SCHEDULED, 0, now) == now + timedelta(hours=3)
    assert timetable.next_try(Strategy.IMMEDIATE, 9, now) == now + timedelta(seconds=3)


# Any hours, on any day around a change

_hours = st.sets(st.integers(0, 23), min_size=1)
_minutes = st.integers(0, 59)
_seconds = st.integers(-2 * 86400, 2 * 86400)


def _cron(hours: set[int], minute: int, zone: str) -> Cron:
    return Cron(f"{minute} {','.join(map(str, sorted(hours)))} * * *", zone)


def _passings(cron: Cron, day: date, hours: set[int], minute: int) -> set[datetime]:
    """When it should fire on a day, found the slow way: by a look at every minute of it."""
    start = datetime(day.year, day.month, day.day, tzinfo=cron.zone).astimezone(UTC)
    end = datetime(day.year, day.month, day.day, 23, 59, tzinfo=cron.zone).astimezone(UTC)
    minutes = [
        start + timedelta(minutes=number)
        for number in range((end - start) // timedelta(minutes=1) + 1)
    ]
    walls = {each: each.astimezone(cron.zone).replace(tzinfo=None, fold=0) for each in minutes}
    expected = set()
    for hour in hours:
        wanted = datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001
        expected.add(min(each for each, wall in walls.items() if wall >= wanted))
    return expected


@given(st.sampled_from(SHORT_DAYS + LONG_DAYS), _hours, _minutes)
def test_every_hour_that_is_named_fires_once_on_a_day_of_change(
    where: tuple[str, date], hours: set[int], minute: int
) -> None:
    zone, day = where
    cron = _cron(hours, minute, zone)
    moment = datetime(day.year, day.month, day.day, tzinfo=cron.zone).astimezone(UTC)
    end = datetime(day.year, day.month, day.day, 23, 59, tzinfo=cron.zone).astimezone(UTC)
    moment -= timedelta(seconds=1)
    fired = set()
    while (moment := cron.after(moment)) <= end:
        fired.add(moment)
    assert fired == _passings(cron, day, hours, minute)


@given(st.sampled_from(SHORT_DAYS + LONG_DAYS), _hours, _minutes, _seconds)
def test_the_next_one_is_the_same_whenever_it_is_asked_for_before_it(
    where: tuple[str, date], hours: set[int], minute: int, seconds: int
) -> None:
    zone, day = where
    cron = _cron(hours, minute, zone)
    asked = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(seconds=seconds)
    due = cron.after(asked)
    assert asked < due <= asked + timedelta(hours=26)
    between = asked + (due - asked) / 2
    assert cron.after(between) == due


@given(
    st.sampled_from(SHORT_DAYS + LONG_DAYS),
    st.sampled_from(["*/15 * * * *", "7 * * * *", "0 */2 * * *", "* 2 * * *", "0 3 * * SUN"]),
    _seconds,
)
def test_any_expression_goes_ahead_in_time(
    where: tuple[str, date], expression: str, seconds: int
) -> None:
    zone, day = where
    cron = Cron(expression, zone)
    moment = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(seconds=seconds)
    moments = [moment]
    for _ in range(100):
        moments.append(cron.after(moments[-1]))
    assert all(earlier < later for earlier, later in pairwise(moments))
