"""The description has the seeds' names and arguments, and says what each is for."""

from __future__ import annotations

import pytest

from redrive.broker.export import definitions
from redrive.broker.topology import (
    Argument,
    Binding,
    Exchange,
    Topology,
    describe,
    return_key,
    tier_beyond,
    with_tiers_beyond,
)
from redrive.errors import SettingsError
from redrive.settings.sections import QueueSettings, TopologySettings

SAFE: dict[str, Argument] = {
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}
QUORUM: dict[str, Argument] = {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}
PARKS: dict[str, Argument] = {
    "x-dead-letter-exchange": "dlq-exchange",
    "x-dead-letter-routing-key": "dlq-routing-key",
}
CHECKOUT = QueueSettings.model_validate({"name": "orders", "exchange": "shop", "delay": "30s"})


def arguments(topology: Topology) -> dict[str, dict[str, Argument]]:
    return {queue.name: queue.arguments for queue in topology.queues}


def waits(tier: int, milliseconds: int) -> dict[str, Argument]:
    return {
        "x-dead-letter-exchange": f"retry-exchange-{tier}",
        "x-dead-letter-routing-key": f"retry.#.{tier}",
        "x-message-ttl": milliseconds,
    }


def test_the_exchanges_are_those_of_the_seed() -> None:
    shared = ("dlq-exchange", "retry-exchange", "route-delay")
    assert set(describe(TopologySettings()).exchanges) == {
        *(Exchange(name, "topic") for name in shared),
        *(Exchange(f"retry-exchange-{tier}", "topic") for tier in (1, 2, 3)),
        Exchange("redrive-return", "topic"),
    }


def test_the_queues_have_the_seeds_arguments_and_those_that_keep_messages_safe() -> None:
    delays = {1: 10_000, 2: 15_000, 3: 20_000}
    assert arguments(describe(TopologySettings())) == {
        "dlq-queue": QUORUM,
        "retry-queue": QUORUM | PARKS | SAFE,
        "redrive-receipts": QUORUM | PARKS | SAFE,
        **{f"retry-queue-{tier}": QUORUM | PARKS | SAFE for tier in delays},
        **{f"queue.delay.{tier}": QUORUM | waits(tier, ms) | SAFE for tier, ms in delays.items()},
    }


def test_classic_queues_have_no_argument_that_only_quorum_queues_know() -> None:
    classic: dict[str, Argument] = {"x-queue-type": "classic"}
    delays = {1: 10_000, 2: 15_000, 3: 20_000}
    assert arguments(describe(TopologySettings(queue_type="classic"))) == {
        "dlq-queue": classic,
        "retry-queue": classic | PARKS,
        "redrive-receipts": classic | PARKS,
        **{f"retry-queue-{tier}": classic | PARKS for tier in delays},
        **{f"queue.delay.{tier}": classic | waits(tier, ms) for tier, ms in delays.items()},
    }


def test_the_bindings_are_those_of_the_seed_and_catch_every_key_where_it_would_lose_messages() -> (
    None
):
    assert set(describe(TopologySettings()).bindings) == {
        Binding("dlq-exchange", "dlq-queue", "dlq-routing-key"),
        Binding("dlq-exchange", "dlq-queue", "#"),
        Binding("retry-exchange", "retry-queue", "retry-routing-key"),
        Binding("retry-exchange", "retry-queue", "#"),
        *(Binding("route-delay", f"queue.delay.{n}", f"binding.#.{n}") for n in (1, 2, 3)),
        *(Binding(f"retry-exchange-{n}", f"retry-queue-{n}", "#") for n in (1, 2, 3)),
    }


def test_everything_can_be_declared_in_the_order_of_the_description() -> None:
    topology = describe(TopologySettings(), (CHECKOUT,))
    exchanges = {exchange.name for exchange in topology.exchanges}
    queues = {queue.name for queue in topology.queues}
    for binding in topology.bindings:
        assert binding.exchange in exchanges
        assert binding.queue in queues


def test_tiers_names_and_prefix_come_from_the_settings() -> None:
    settings = TopologySettings.model_validate(
        {"tiers": ("1s", "1h"), "prefix": "shop.", "names": {"dlq_queue": "dead"}}
    )
    queues = arguments(describe(settings))
    assert set(queues) == {
        "dead",
        "shop.retry-queue",
        "shop.redrive-receipts",
        *(f"shop.{name}{tier}" for name in ("queue.delay.", "retry-queue-") for tier in (1, 2)),
    }
    assert queues["shop.queue.delay.2"]["x-message-ttl"] == 3_600_000
    assert queues["shop.retry-queue"]["x-dead-letter-exchange"] == "shop.dlq-exchange"


def test_the_per_queue_layout_is_the_seeds_around_the_users_queue_and_exchange() -> None:
    topology = describe(TopologySettings(), (CHECKOUT,))
    shared = describe(TopologySettings())
    added = {queue.name: queue for queue in topology.queues[len(shared.queues) :]}
    assert {name: queue.arguments for name, queue in added.items()} == {
        "orders": {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": "shop.retry",
            "x-dead-letter-routing-key": "orders.retry",
            **SAFE,
        },
        "orders.retry": QUORUM | PARKS | SAFE,
        "orders.delay": QUORUM
        | SAFE
        | {
            "x-dead-letter-exchange": "retry-exchange-1",
            "x-dead-letter-routing-key": "orders.delay",
            "x-message-ttl": 30_000,
        },
    }
    assert set(topology.bindings) - set(shared.bindings) == {
        Binding("shop", "orders", "orders"),
        Binding("shop", "orders.delay", "orders.delay"),
        Binding("shop.retry", "orders.retry", "orders.retry"),
        Binding("redrive-return", "orders", "redrive-queue:orders"),
    }


def test_a_queue_without_a_delay_has_no_delay_queue() -> None:
    queue = QueueSettings(name="orders", exchange="shop")
    assert "orders.delay" not in arguments(describe(TopologySettings(), (queue,)))


def test_a_death_in_the_users_own_queue_is_a_failure_and_in_redrives_is_not() -> None:
    topology = describe(TopologySettings(), (CHECKOUT,))
    assert "orders" not in topology.queue_names()
    assert {"orders.retry", "orders.delay", "retry-queue"} <= topology.queue_names()
    assert Exchange("shop", "topic", users=True) in topology.exchanges


@pytest.mark.parametrize(
    "queues",
    [
        (CHECKOUT, CHECKOUT),
        (QueueSettings(name="retry-queue", exchange="shop"),),
        (QueueSettings(name="orders", exchange="redrive-return"),),
        (
            QueueSettings(name="a", exchange="shop"),
            QueueSettings(name="b", exchange="shop.retry"),
        ),
    ],
)
def test_one_name_for_two_things_is_refused(queues: tuple[QueueSettings, ...]) -> None:
    with pytest.raises(SettingsError, match="declared twice"):
        describe(TopologySettings(), queues)


def test_two_queues_may_share_an_exchange() -> None:
    queues = tuple(QueueSettings(name=name, exchange="shop") for name in "ab")
    assert {"a", "b", "a.retry", "b.retry"} <= set(arguments(describe(TopologySettings(), queues)))


def test_what_a_tier_left_over_is_known_by_its_names() -> None:
    settings = TopologySettings()
    beyond = tier_beyond(settings, 4)
    assert [queue.name for queue in beyond.queues] == ["retry-queue-4", "queue.delay.4"]
    assert [exchange.name for exchange in beyond.exchanges] == ["retry-exchange-4"]
    widened = with_tiers_beyond(describe(settings), settings)
    assert "queue.delay.100" in widened.queue_names()
    chosen = widened.only({"queue.delay.4", "retry-queue"})
    assert chosen.queue_names() == {"queue.delay.4", "retry-queue"}
    assert {binding.queue for binding in chosen.bindings} == {"retry-queue"}


def test_the_return_key_names_the_queue() -> None:
    assert return_key("orders") == "redrive-queue:orders"


def test_the_return_key_is_one_word_without_wildcards_and_differs_for_every_queue() -> None:
    names = ["a.b", "a%2Eb", "a*b", "a#b", "#", "*", "%", "%25", "a.b.c"]
    keys = [return_key(name) for name in names]
    assert len(set(keys)) == len(names)
    assert not any(set(key) & set(".*#") for key in keys)
    assert return_key("a.b") == "redrive-queue:a%2Eb"


def test_the_return_key_of_a_long_name_fits_and_is_its_own() -> None:
    names = [
        "q" * 241,
        "q" * 242,
        "q" * 254 + "a",
        "q" * 254 + "b",
        "é" * 127,
        "q" * 241 + "\udce9",
    ]
    keys = {return_key(name).encode("utf-8", "surrogateescape") for name in names}
    assert len(keys) == len(names)
    assert all(len(key) <= 255 for key in keys)
    assert return_key("q" * 241) == f"redrive-queue:{'q' * 241}"


READ = {"retry-queue", "retry-queue-1", "retry-queue-2", "retry-queue-3", "orders.retry"}


def test_the_queues_that_the_retrier_reads_park_where_everything_is_as_described() -> None:
    topology = describe(TopologySettings(), (CHECKOUT,))
    # The delay queues dead-letter soundly too, if not by a reject.
    assert topology.parking(topology.parts()) >= READ
    assert not {"orders", "dlq-queue"} & topology.parking(topology.parts())


@pytest.mark.parametrize(
    ("unsound", "still"),
    [
        ("retry-queue", READ - {"retry-queue"}),
        ("orders.retry", READ - {"orders.retry"}),
        ("dlq-queue", set()),
        ("dlq-exchange", set()),
    ],
)
def test_a_queue_does_not_park_where_something_on_the_way_is_not_as_described(
    unsound: str, still: set[str]
) -> None:
    topology = describe(TopologySettings(), (CHECKOUT,))
    sound = [part for part in topology.parts() if isinstance(part, Binding) or part.name != unsound]
    assert topology.parking(sound) & READ == still


def test_a_queue_does_not_park_where_nothing_is_bound_behind_its_exchange() -> None:
    topology = describe(TopologySettings())
    sound = [part for part in topology.parts() if part not in topology.bindings]
    assert topology.parking(sound) == frozenset()


def test_the_definitions_name_every_part_in_the_vhost() -> None:
    topology = describe(TopologySettings(), (CHECKOUT,))
    exported = definitions(topology, "v")
    assert [queue["name"] for queue in exported["queues"]] == [q.name for q in topology.queues]
    assert len(exported["exchanges"]) == len(topology.exchanges)
    assert len(exported["bindings"]) == len(topology.bindings)
    assert {part["vhost"] for parts in exported.values() for part in parts} == {"v"}
