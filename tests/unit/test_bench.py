"""The benches' own arithmetic: a wrong median would make every figure wrong."""

from __future__ import annotations

import pytest

from bench.figures import Run, at_least, below, others_share, pace, ratio, rows
from bench.messages import BODY, dead_letters
from redrive.amqp import Properties


def a_run(round_: int, client: str, per_second: float, **changes: float | None) -> Run:
    costs: dict[str, float | None] = {"client_cpu_us": 10.0, "client_memory_mb": 30.0}
    costs |= changes
    return Run(
        round=round_,
        queue_type="quorum",
        client=client,
        messages=1000,
        per_second=per_second,
        client_cpu_us=costs["client_cpu_us"],
        broker_cpu_us=50.0,
        client_memory_mb=costs["client_memory_mb"],
        others_share=0.0,
    )


def test_the_time_before_the_first_message_does_not_count() -> None:
    samples = [(0.0, 0), (5.0, 0), (6.0, 100), (7.0, 600), (8.0, 1100)]
    assert pace(samples) == 500


def test_messages_that_were_all_there_at_the_first_look_cannot_be_measured() -> None:
    with pytest.raises(ValueError, match="too few messages"):
        pace([(0.0, 0), (1.0, 1000)])


def test_a_ratio_is_the_median_of_the_ratios_within_each_round() -> None:
    # The machine was busier in some rounds than in others: the ratio of the medians would be 4.5.
    speeds = {1: (1000, 500), 2: (900, 100), 3: (300, 200)}
    runs = [
        run
        for round_, (ours, theirs) in speeds.items()
        for run in (a_run(round_, "redrive", ours), a_run(round_, "shovel", theirs))
    ]
    assert ratio(runs, "quorum", "redrive", "shovel") == 2


def test_a_ratio_without_a_common_round_is_not_known() -> None:
    runs = [a_run(1, "redrive", 100), a_run(2, "shovel", 100)]
    assert ratio(runs, "quorum", "redrive", "shovel") is None
    assert ratio(runs, "classic", "redrive", "redrive") is None


def test_a_row_holds_the_medians_of_a_client_on_a_queue_type() -> None:
    runs = [
        a_run(n, "redrive", speed, client_cpu_us=speed / 10) for n, speed in enumerate((9, 1, 5))
    ]
    (row,) = rows(runs, ["shovel"])
    assert (row.per_second, row.client_cpu_us, row.ratios) == (5, 0.5, {"shovel": None})


def test_a_client_within_the_broker_has_no_cpu_of_its_own() -> None:
    (row,) = rows([a_run(1, "shovel", 5, client_cpu_us=None, client_memory_mb=None)], ["shovel"])
    assert row.client_cpu_us is None
    assert row.client_memory_mb is None
    assert row.ratios == {"shovel": 1}


@pytest.mark.parametrize(("got", "met"), [(1.2, True), (1.19, False), (None, False)])
def test_a_ratio_target_is_met_from_its_value_on_and_not_when_unmeasured(
    got: float | None, met: bool
) -> None:
    assert at_least("speed", got, 1.2).met is met


def test_a_limit_is_met_below_it_only() -> None:
    assert below("growth", 49.9, 50, "MB").met
    assert not below("growth", 50.0, 50, "MB").met


def test_what_others_use_is_the_machines_busy_time_without_ours() -> None:
    assert others_share(busy=15.0, ours=5.0, seconds=10.0, cores=2) == 0.5
    # The clocks tick in hundredths of a second: ours may seem to be more than all.
    assert others_share(busy=4.99, ours=5.0, seconds=10.0, cores=2) == 0


def test_the_bench_message_looks_like_a_dead_letter() -> None:
    first, second = dead_letters("q", 2, first=7)
    properties = Properties.read(first.properties)
    assert (first.exchange, first.routing_key, len(first.body)) == ("", "q", len(BODY))
    assert len(BODY) == 1024
    assert properties.get("delivery_mode") == 2
    assert properties.get("message_id") == "bench-000000000007"
    assert properties.header_names == ["x-death", "tenant"]
    assert Properties.read(second.properties).get("message_id") == "bench-000000000008"
