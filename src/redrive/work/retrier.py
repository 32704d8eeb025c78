"""The retrier: what failed waits in a tier and returns to its queue, until its policy says enough.

    retry-queue, Q.retry  → policy → route-delay (a tier) or dlq-exchange
    retry-queue-N         → redrive-return → the one queue where it failed, original routing key

Every hop is the Mover's: a message is where it was, or twice with the same `redrive-id`, never
nowhere. What cannot go on (no origin, origin gone, tier full, headers broken) goes to the dead
letter queue with a `redrive-error-reason`; if not even that takes it, it stays where it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from redrive.amqp import Budget
from redrive.amqp.lane import Connect
from redrive.broker.own_queues import own_exchanges, own_queues
from redrive.broker.topology import delay_queue_of, retry_queue_of
from redrive.domain import metrics
from redrive.domain.metrics import Metric
from redrive.settings.sections import QueueSettings, TopologySettings
from redrive.tally import Tally
from redrive.work.awaited import Awaited
from redrive.work.dead_letters import Parks, Route
from redrive.work.meter import Meter, Place
from redrive.work.mover import Limits, Mover
from redrive.work.parking import Parking
from redrive.work.retry_plan import Policies, RetryNames, RetryPlan
from redrive.work.return_path import ReturnPath
from redrive.work.return_plan import ReturnPlan


class Retrier:
    """The role: a Mover for every queue that the retrier reads."""

    def __init__(  # noqa: PLR0913  (what it works with, each by its name)
        self,
        topology: TopologySettings,
        queues: Sequence[QueueSettings],
        policies: Policies,
        *,
        connect: Connect,
        limits: Limits,
        parking: Parking | None = None,
        tally: Tally | None = None,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        """`parking` tells which queues keep what is rejected; in others, which somebody made
        differently, poison stays. `on_ready` is called once, when every queue is consumed."""
        names = retry_names(topology, queues)
        last_tier = Route(exchange=names.route_delay, routing_key=f"binding.{names.tiers}")
        self._path = ReturnPath(names.return_exchange, connect)
        shared = topology.names.retry_queue

        def parks(queue: str) -> Parks | None:
            return None if parking is None else partial(parking.keeps, queue)

        plans: dict[str, RetryPlan | ReturnPlan] = {
            shared: RetryPlan(names, policies, self._path, parks=parks(shared))
        }
        for queue in queues:
            own, wait = retry_queue_of(queue.name), _wait_of(queue, topology)
            plans[own] = RetryPlan(names, policies, self._path, delay=wait, parks=parks(own))
        for waited in topology.of_each_tier(topology.names.delayed_queue):
            plans[waited] = ReturnPlan(
                names, policies, self._path, tier_again=last_tier, parks=parks(waited)
            )
        tally, place = tally or Tally(), _places(names, topology, queues)
        share = limits.budget.size // len(plans)
        awaited = Awaited(plans, on_ready)
        self.movers = [
            Mover(
                queue,
                plan,
                connect=connect,
                # Not one budget for all: what waits for room in one must not stop the others.
                limits=replace(limits, budget=Budget(share)),
                prepare=plan.prepare,
                meter=Meter(
                    tally, role="retrier", place=place, on_ready=partial(awaited.here, queue)
                ),
            )
            for queue, plan in plans.items()
        ]

    async def run(self, stopping: asyncio.Event) -> None:
        """Retry until told to stop, then drain."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for mover in self.movers:
                    tasks.create_task(mover.run())
                await stopping.wait()
                for mover in self.movers:
                    mover.stop()
        finally:
            self._path.abort()


def retry_names(topology: TopologySettings, queues: Sequence[QueueSettings]) -> RetryNames:
    """What the retrier needs to know of the broker's names."""
    names = topology.names
    return RetryNames(
        own_queues=own_queues(topology, tuple(queues)),
        own_exchanges=own_exchanges(topology, tuple(queues)),
        route_delay=names.route_delay,
        dead=Route(exchange=names.dlq_exchange, routing_key=names.dlq_routing_key),
        dead_queue=names.dlq_queue,
        return_exchange=names.return_exchange,
        tiers=len(topology.tiers),
        prefix=topology.prefix,
    )


def _places(
    names: RetryNames, topology: TopologySettings, queues: Sequence[QueueSettings]
) -> Place:
    """What a message that the retrier sent somewhere counts as."""
    own = {_wait_of(queue, topology) for queue in queues}

    def place(exchange: str, key: str) -> tuple[Metric, str] | None:
        if exchange == names.route_delay:
            return metrics.RETRIES, key.rpartition(".")[2]
        if exchange == names.dead.exchange or (exchange, key) == ("", names.dead_queue):
            return metrics.DEAD, ""
        if (exchange, key) in own:
            return metrics.RETRIES, "own"
        if exchange:  # its own exchange too, where the policy says so
            return metrics.RETRIED, ""
        return metrics.RETRIES, "ladder"

    return place


def _wait_of(queue: QueueSettings, topology: TopologySettings) -> Route:
    """Where messages of a per-queue layout wait; without a delay, straight to the way back."""
    if queue.delay is not None:
        # Not by the users' exchange: a queue bound to it with '#' would see every retry.
        return Route(exchange="", routing_key=delay_queue_of(queue.name))
    way_back = topology.names.delayed_exchange.replace("{n}", "1")
    return Route(exchange=way_back, routing_key=queue.name)
