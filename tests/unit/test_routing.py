"""Which routing keys find a queue behind an exchange, as RabbitMQ decides it."""

from __future__ import annotations

import pytest

from redrive.broker.routing import is_routed, matches_any


def binding(key: str, kind: str = "queue") -> dict[str, str]:
    return {"routing_key": key, "destination_type": kind}


@pytest.mark.parametrize(
    ("pattern", "key", "means"),
    [
        ("order.created", "order.created", True),
        ("order.created", "order-created", False),
        ("order.*", "order.created", True),
        ("order.*", "order", False),
        ("order.*", "order.created.eu", False),
        ("order.#", "order", True),
        ("order.#", "order.created.eu", True),
        ("#.eu", "eu", True),
        ("#.eu", "order.created.eu", True),
        ("a.#.b", "a.b", True),
        ("a.#.b", "a.x.y.b", True),
        ("#.#", "a", True),
        ("*", "", False),
        ("#", "", True),
        ("", "", True),
        ("*", "a", True),
        ("*.*", "a.", True),
        ("a..b", "a..b", True),
        ("order.?", "order.?", True),
    ],
)
def test_a_topic_pattern_means_words(pattern: str, key: str, means: bool) -> None:
    assert matches_any([pattern], key) is means


def test_a_direct_exchange_takes_equal_keys_only() -> None:
    assert is_routed("direct", [binding("a"), binding("b")], "b") is True
    assert is_routed("direct", [binding("a.*")], "a.b") is False


def test_a_fanout_exchange_takes_every_key_if_anything_is_bound() -> None:
    assert is_routed("fanout", [binding("")], "x") is True
    assert is_routed("fanout", [], "x") is False


def test_what_headers_or_further_exchanges_decide_is_not_known() -> None:
    assert is_routed("headers", [binding("")], "x") is None
    assert is_routed("topic", [binding("#", "exchange")], "x") is None
    assert is_routed("topic", [binding("y", "exchange")], "x") is False
