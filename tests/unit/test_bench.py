"""The benches' own arithmetic: a wrong median would make every figure wrong."""

from __future__ import annotations

import json
import sys

import pytest

from bench import __main__ as command
from bench import consumer, retrier, returns, wire
from bench.clients import CLIENTS, SHOVEL, SHOVEL_INSIDE, SHOVELS, shovel_definition
from bench.figures import Run, at_least, below, others_share, pace, ratio, rows, within_rounds
from bench.messages import BODY, dead_letters
from bench.movers import Order
from bench.options import Options
from bench.report import Result, Table
from bench.stage import BenchFailed
from redrive.amqp import Properties
from redrive.errors import ConnectionLost


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


def test_rates_of_the_same_rounds_are_compared_round_by_round() -> None:
    assert within_rounds([1000, 900, 300], [500, 100, 200]) == 2
    with pytest.raises(ValueError, match="shorter"):
        within_rounds([1000, 900], [500])


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


def test_a_shovel_connects_on_both_sides_as_its_order_says() -> None:
    definition = shovel_definition(Order("amqp://u:p@127.0.0.1:5673/%2F", "from", "to"))
    assert definition["src-uri"] == definition["dest-uri"] == "amqp://u:p@127.0.0.1:5673/%2F"
    assert (definition["src-queue"], definition["dest-queue"]) == ("from", "to")


def test_a_shovel_that_is_given_a_key_publishes_to_an_exchange() -> None:
    definition = shovel_definition(Order("amqp://", "from", "route-delay", key="binding.a.1"))
    assert definition["dest-exchange"] == "route-delay"
    assert definition["dest-exchange-key"] == "binding.a.1"
    assert "dest-queue" not in definition


def test_only_the_shovel_inside_the_broker_connects_elsewhere_than_the_others() -> None:
    assert {client.name: client.url for client in CLIENTS if client.url} == {
        SHOVEL_INSIDE: "amqp://"
    }
    assert [shovel.name for shovel in SHOVELS] == [SHOVEL, SHOVEL_INSIDE]


def test_what_is_wanted_against_the_shovel_is_wanted_against_both_shovels() -> None:
    # Faster than the one over TCP, slower than the one inside: both must be told.
    speeds = {"redrive": 130, SHOVEL: 100, SHOVEL_INSIDE: 200, "aio-pika": 10}
    runs = [a_run(1, client, speed) for client, speed in speeds.items()]
    found = wire.targets(runs, Options(queue_types=("quorum",)))
    assert [(target.name, target.wanted, target.met) for target in found] == [
        ("Redrive against shovel over TCP, quorum queues", "at least 1.2 times", True),
        ("Redrive against shovel inside the broker, quorum queues", "at least 1.2 times", False),
        ("Redrive against aio-pika, quorum queues", "at least 8 times", True),
    ]


def test_one_hop_is_held_against_every_shovel() -> None:
    by_exchange = "shovel, by the exchange before the tiers"
    hops = {"retrier": [130.0], SHOVEL: [100.0], SHOVEL_INSIDE: [200.0], by_exchange: [80.0]}
    found = retrier.hop_targets(hops | {"retrier, full tier": [120.0]})
    assert [(target.name, target.met) for target in found] == [
        ("One hop against shovel over TCP", True),
        ("One hop against shovel inside the broker", False),
        (f"One hop against {by_exchange}", True),
        ("One hop while 100,000 wait against an empty tier", True),
    ]


def test_the_way_back_to_one_of_many_queues_and_to_all_of_them_are_told_apart() -> None:
    rates = {
        returns.ONE: [100.0],
        returns.MANY_TO_ONE: [90.0],
        returns.MANY_SPREAD: [50.0],
        returns.CONTROL_TO_ONE: [200.0],
        returns.CONTROL_SPREAD: [80.0],
    }
    assert [target.met for target in returns.targets(rates)] == [True, False]
    assert list(returns.table(rates).rows) == [
        ("retrier", "1", "it", "100", "10,000.0", "1.00"),
        ("retrier", "1,000", "one of them", "90", "11,111.1", "0.90"),
        ("retrier", "1,000", "all of them", "50", "20,000.0", "0.50"),
        ("publisher alone", "1,000", "one of them", "200", "5,000.0", "1.00"),
        ("publisher alone", "1,000", "all of them", "80", "12,500.0", "0.40"),
    ]


def test_the_consumer_is_held_against_both_others_on_each_queue_type() -> None:
    speeds = {"redrive": 1000, "aio-pika": 100, "faststream": 250}
    runs = [a_run(1, client, speed) for client, speed in speeds.items()]
    found = consumer.targets(runs, Options(queue_types=("quorum",)))
    assert [(target.name, target.met) for target in found] == [
        ("Redrive's consumer against aio-pika's, quorum queues", True),
        ("Redrive's consumer against faststream's, quorum queues", False),
    ]


@pytest.mark.parametrize("output", ["--json", "--quick"])
def test_a_bench_that_cannot_be_finished_does_not_take_the_figures_of_others_along(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    async def measure(name: str, _options: Options, _rabbitmq: str) -> tuple[str, Result]:
        if name == "memory":
            raise BenchFailed("the machine is full")
        table = Table(title=f"what {name} found", columns=("messages",), rows=[("1",)])
        return "3.10.8", Result(name=name, tables=[table], targets=[], data={})

    monkeypatch.setattr(command, "_measure", measure)
    monkeypatch.setattr(sys, "argv", ["bench", output])
    assert command.main() == 2
    shown = capsys.readouterr()
    assert "bench memory: the machine is full" in shown.err
    assert "could not be finished: memory" in shown.err
    others = [name for name in command.BENCHES if name != "memory"]
    if output == "--json":
        assert list(json.loads(shown.out)["benches"]) == others
    else:
        assert [name for name in command.BENCHES if f"what {name} found" in shown.out] == others


def test_a_bench_whose_broker_fails_under_it_is_run_once_more_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: list[str] = []

    async def measure(name: str, _options: Options, _rabbitmq: str) -> tuple[str, Result]:
        runs.append(name)
        if runs == ["wire"]:
            raise ConnectionLost("541 INTERNAL_ERROR")
        return "3.10.8", Result(name=name, tables=[], targets=[], data={})

    monkeypatch.setattr(command, "_measure", measure)
    monkeypatch.setattr(sys, "argv", ["bench", "wire"])
    assert command.main() == 0
    assert runs == ["wire", "wire"]
    assert "wire is a second run" in capsys.readouterr().out.replace("\n", " ")
