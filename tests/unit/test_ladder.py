"""The ladder: any delay as a row of rungs."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from redrive.broker.ladder import RUNGS, describe_ladder, next_rung, rung_name
from redrive.settings.sections import TopologySettings

ODD = timedelta(milliseconds=125)


@given(st.timedeltas(min_value=timedelta(), max_value=timedelta(days=400)))
def test_the_rungs_together_make_the_delay_and_hardly_more(delay: timedelta) -> None:
    left, steps = delay, 0
    while (rung := next_rung(left)) is not None:
        left -= rung
        steps += 1
    assert -ODD <= left < ODD / 2
    assert steps <= len(RUNGS) + delay // RUNGS[-1]


def test_every_rung_has_a_queue_with_one_ttl_of_its_own() -> None:
    settings = TopologySettings(prefix="p-")
    queues = {queue.name: queue for queue in describe_ladder(settings)}
    assert set(queues) == {rung_name("p-", rung) for rung in RUNGS}
    ttls = [queue.arguments["x-message-ttl"] for queue in queues.values()]
    assert ttls == [125 * 2**number for number in range(len(RUNGS))]
    for queue in queues.values():
        assert queue.arguments["x-dead-letter-exchange"] == "p-retry-exchange-1"
        assert queue.arguments["x-dead-letter-strategy"] == "at-least-once"
