"""Durations and sizes as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.durations import format_duration, parse_duration
from redrive.domain.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("10s", timedelta(seconds=10)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("30d", timedelta(days=30)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("90s", timedelta(seconds=90)),
        ("0s", timedelta()),
    ],
)
def test_a_duration_is_read_as_it_is_written(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    ["", "10", "s", "1.5h", "-1s", "10 s", "30m1h", "5s5s", "1w", "1H", "soon", "\u0661s", "10s\n"],
)
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9999999999d", "9" * 400 + "ms"])
def test_a_duration_beyond_what_python_can_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too long a duration"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**14))
def test_every_duration_of_whole_milliseconds_survives_being_written_and_read(
    milliseconds: int,
) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(days=365), "365d"),
        (timedelta(milliseconds=1, microseconds=999), "1ms"),
    ],
)
def test_a_duration_is_written_in_the_largest_units_that_fit(
    duration: timedelta, text: str
) -> None:
    assert format_duration(duration) == text


def test_a_negative_duration_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="never negative"):
        format_duration(timedelta(seconds=-1))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MB", 64_000_000),
        ("16KiB", 16_384),
        ("1GiB", 1_073_741_824),
        ("512B", 512),
        ("64mb", 64_000_000),
        ("0B", 0),
    ],
)
def test_a_size_is_read_as_it_is_written(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "64", "MB", "1.5MB", "-1MB", "64 MB", "64XB", "9" * 13 + "B"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=10**12 - 1))
def test_every_size_survives_being_written_and_read(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_a_size_is_written_in_the_largest_unit_that_is_exact() -> None:
    assert [format_size(size) for size in (0, 1001, 64_000_000, 16_384)] == [
        "0B",
        "1001B",
        "64MB",
        "16KiB",
    ]


def test_a_negative_size_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="never negative"):
        format_size(-1)
