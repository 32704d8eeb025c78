"""One tries a way that took nothing, and the more get through, the more may try."""

from __future__ import annotations

from datetime import timedelta

from redrive.work.turns import Turns

FIRST, LONGEST = timedelta(seconds=5), timedelta(minutes=1)
NOW = timedelta()


class Watch:
    """A way, its turns, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.turns = Turns(lambda: self.now)

    def fails(self) -> None:
        self.turns.failed(FIRST, LONGEST)

    def may_try(self, waiting: int = 5000) -> int:
        """How many of those who wait may try now."""
        return sum(self.turns.take() == NOW for _ in range(waiting))


def test_all_may_try_until_one_failed() -> None:
    watch = Watch()
    assert watch.may_try() == 5000
    watch.fails()
    assert watch.may_try() == 0


def test_one_tries_at_intervals_that_double_up_to_the_longest() -> None:
    watch, pauses = Watch(), []
    for _ in range(7):
        watch.fails()
        pauses.append(watch.turns.take().total_seconds())
        watch.now += pauses[-1]
        assert watch.may_try() == 1
    assert pauses == [5, 10, 20, 40, 60, 60, 60]


def test_many_that_fail_together_are_one_failure() -> None:
    watch = Watch()
    for _ in range(1000):
        watch.fails()
    assert watch.turns.take() == FIRST


def test_the_more_get_through_the_more_may_try_until_all_may() -> None:
    watch, tried = Watch(), []
    watch.fails()
    while not watch.turns.is_open:
        watch.now += 5
        tried.append(watch.may_try())
    assert tried == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 5000]


def test_a_failure_among_some_that_got_through_begins_anew() -> None:
    watch = Watch()
    watch.fails()
    for _ in range(4):
        watch.now += 5
        watch.may_try()
    watch.fails()
    assert watch.turns.take() == 2 * FIRST
    watch.now += 10
    assert watch.may_try() == 1


def test_whoever_asks_too_early_by_a_hair_waits() -> None:
    watch = Watch()
    watch.fails()
    watch.now += 5 - 1e-9
    assert watch.turns.take() > NOW
