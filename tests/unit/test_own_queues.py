"""Which queues are Redrive's own."""

from __future__ import annotations

import pytest

from redrive import runtime
from redrive.broker.ladder import RUNGS, rung_name
from redrive.broker.own_queues import OwnQueues, own_queues
from redrive.consumer.queues import queue_beside
from redrive.domain.deaths import Death, origin_of
from redrive.settings.sections import QueueSettings, TopologySettings
from tests.services.consuming import settings_for

SHOP = TopologySettings(prefix="shop.")


def test_redrives_own_are_the_topology_the_ladder_and_what_stands_beside_handlers() -> None:
    queue = QueueSettings.model_validate({"name": "q", "exchange": "e", "delay": "1s"})
    own = own_queues(SHOP, (queue,))
    for name in ("retry-queue", "retry-queue-1", "queue.delay.3", "dlq-queue", "redrive-receipts"):
        assert f"shop.{name}" in own
    for name in ("q.retry", "q.delay", *(rung_name("shop.", rung) for rung in RUNGS)):
        assert name in own
    for mark in ("redrive-again-", "redrive-alone-"):
        assert queue_beside(mark, "shop.", "orders") in own
        assert queue_beside(mark, "shop.", "o" * 255) in own


def test_a_tier_that_the_settings_no_longer_have_left_queues_of_redrives_own() -> None:
    assert {"shop.queue.delay.4", "shop.retry-queue-4"} <= set(own_queues(SHOP))


@pytest.mark.parametrize(
    "queue",
    [
        *("q", "orders", "retry-queue", "redrive-after-125ms", "redrive-again-orders"),
        *("other.redrive-alone-orders", "orders-redrive-again-later", "shop.redrive-after-1ms"),
    ],
)
def test_a_queue_of_the_users_or_of_another_prefix_is_not_redrives(queue: str) -> None:
    per_queue = QueueSettings.model_validate({"name": "q", "exchange": "e"})
    assert queue not in own_queues(SHOP, (per_queue,))


def test_all_but_the_dead_letter_queue_is_all_but_that() -> None:
    own = own_queues(SHOP)
    waiting = own.but("shop.dlq-queue")
    assert isinstance(waiting, OwnQueues)
    assert set(own) - set(waiting) == {"shop.dlq-queue"}
    assert "shop.dlq-queue" not in waiting
    assert "shop.redrive-again-orders" in waiting


def test_who_sends_letters_knows_them_all() -> None:
    sender = runtime.sender(settings_for("amqp://localhost/", "quorum"))
    assert {"queue.delay.1", "redrive-after-125ms"} <= set(sender._own_queues)
    assert "redrive-again-orders" in sender._own_queues


def test_nothing_fails_on_the_ladder_or_beside_a_handlers_queue() -> None:
    deaths = [
        Death(queue="retry-queue-1"),
        Death(queue="redrive-after-64000ms", reason="expired"),
        Death(queue="redrive-alone-orders"),
        Death(queue="redrive-again-orders"),
        Death(queue="orders"),
    ]
    assert origin_of(deaths, own_queues(TopologySettings())) == Death(queue="orders")
