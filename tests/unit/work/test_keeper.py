"""How long a collector rests after it gave messages back, because its store did not take them."""

from __future__ import annotations

from redrive.work.keeper import rest_after


def test_after_an_outage_it_goes_on_as_soon_as_the_store_answers() -> None:
    assert rest_after(1) == 0


def test_where_the_store_takes_anything_but_the_messages_it_rests_longer_each_time() -> None:
    rests = [rest_after(times) for times in range(2, 8)]
    assert rests == [60, 120, 240, 480, 960, 1920]


def test_it_rests_for_an_hour_at_most() -> None:
    assert rest_after(10_000) == 3600
