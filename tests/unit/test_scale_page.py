"""What the page on scale reckons follows from what it says was measured, and that is what the
benchmarks' page says."""

from __future__ import annotations

import math
import re
from typing import Final

import pytest

from tests.services.pages import ROOT

SCALE: Final = (ROOT / "docs" / "explanation" / "scale.md").read_text(encoding="utf-8")
BENCHMARKS: Final = (ROOT / "docs" / "how-to" / "benchmarks.md").read_text(encoding="utf-8")
DAY: Final = 86_400
UNITS: Final = {
    "": 1.0,
    "million": 1e6,
    "billion": 1e9,
    "KB/s": 1e3,
    "MB/s": 1e6,
    "GB/s": 1e9,
    "GB": 1e9,
    "TB": 1e12,
    "TB a day": 1e12,
    "days": 1.0,
}
CLOSE: Final = 0.02
"""Figures on the page have two digits."""


def value(cell: str) -> float:
    """A figure of a table, in its unit: `6.5 billion` is 6.5e9."""
    figure, _, unit = cell.strip().partition(" ")
    return float(figure.replace(",", "")) * UNITS[unit]


def number_in(cell: str) -> float:
    """The figure that a cell begins with, whatever is said of it."""
    return value(re.split(r",? (?=[a-z(])", cell)[0])


def rows_after(heading: str) -> list[list[str]]:
    """The cells of the table whose first heading this is."""
    _, _, table = SCALE.partition(f"| {heading} |")
    lines = table.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def measured(role: str, processes: int) -> list[float]:
    """Messages a second, and µs of Redrive, brokers and PostgreSQL."""
    (row,) = (cells for cells in rows_after("role") if cells[:2] == [role, str(processes)])
    return [float(cell.replace(",", "")) for cell in row[2:6]]


def bytes_of_a_letter() -> float:
    (found,) = re.findall(r"([\d,]+) bytes on PostgreSQL", SCALE)
    return value(found)


def bytes_of_an_identity() -> tuple[float, float]:
    """All of it, and the part that is index."""
    (whole,) = re.findall(r"identity (\d+), rounded", SCALE)
    (again, index, row, same) = re.findall(
        r"Of its (\d+) bytes (\d+) are its index \(.+?: (\d+) for the row, (\d+) for the\s+index",
        SCALE,
    )[0]
    assert (again, same) == (whole, index)
    assert value(row) + value(index) == pytest.approx(value(whole), rel=CLOSE)
    return value(whole), value(index)


def test_what_is_reckoned_a_second_and_a_day_follows_from_what_was_measured() -> None:
    _, *microseconds = measured("collecting", 2)
    rows = rows_after("dead messages a second, all day")
    assert [number_in(row[0]) for row in rows] == [10, 1_000, 7_500, 75_000, 7_500_000]
    for rate, letters, a_second, a_day, *cores in rows:
        number = number_in(rate)
        grows = number * bytes_of_a_letter()
        assert value(letters) == pytest.approx(number * DAY, rel=CLOSE), rate
        assert value(a_second) == pytest.approx(grows, rel=CLOSE), rate
        assert value(a_day) == pytest.approx(grows * DAY, rel=CLOSE), rate
        expected = [number * each / 1e6 for each in microseconds]
        assert [value(each) for each in cores] == pytest.approx(expected, rel=CLOSE), rate


def test_what_the_identities_come_to_follows_from_what_was_measured() -> None:
    whole, index = bytes_of_an_identity()
    rows = rows_after("dead messages a second, all year")
    assert [number_in(row[0]) for row in rows] == [10, 1_000, 7_500, 75_000]
    for rate, a_year, a_day, days, pages, log in rows:
        number = number_in(rate)
        grows = number * DAY * index
        assert value(a_year) == pytest.approx(number * DAY * 365 * whole, rel=CLOSE), rate
        assert value(a_day) == pytest.approx(grows, rel=CLOSE), rate
        assert value(days) == pytest.approx(64e9 / grows, rel=CLOSE), rate
        assert value(pages) == number
        assert value(log) == pytest.approx(number * 8_192, rel=CLOSE), rate


def test_the_pairs_of_a_thousand_times_come_to_a_thousand_times() -> None:
    _, *microseconds = measured("collecting", 2)
    (mover,) = re.findall(r"The Mover took ([\d,]+) messages", SCALE)
    for pairs, rate, queues, *cores, grows, _ in rows_after("pairs"):
        number = value(rate)
        assert value(pairs) * number == 7_500_000
        assert value(queues) == math.ceil(number / value(mover))
        expected = [number * each / 1e6 for each in microseconds]
        assert [value(each) for each in cores] == pytest.approx(expected, rel=CLOSE), rate
        a_second, a_day = grows.split(", ")
        assert value(a_second) == pytest.approx(number * bytes_of_a_letter(), rel=CLOSE)
        assert value(a_day) == pytest.approx(number * bytes_of_a_letter() * DAY, rel=CLOSE)


def test_the_rates_are_those_of_the_benchmarks() -> None:
    (two, one) = re.findall(
        r"^\| scaleout \| collecting by 2 processes \| ([\d,]+)/s \| one ([\d,]+)/s",
        BENCHMARKS,
        re.MULTILINE,
    )[0]
    assert value(one) == measured("collecting", 1)[0]
    assert value(two) == measured("collecting", 2)[0]
    (mover,) = re.findall(r"^\| wire \| quorum queues \| ([\d,]+)/s", BENCHMARKS, re.MULTILINE)
    assert f"The Mover took {mover} messages a second" in SCALE
