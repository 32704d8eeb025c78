"""The retrier in a process of its own: `python -m bench.movers.retrier URL - - TIERS QUEUE`.

`QUEUE` names the one queue to serve, or is `all`.
"""

from __future__ import annotations

import sys

import uvloop

from bench.movers import PREFETCH
from bench.movers.told import move_until_told
from redrive.amqp import connect, parse_addresses
from redrive.domain.policy import Policy, PolicyBook
from redrive.settings.sections import TopologySettings
from redrive.work.mover import Limits
from redrive.work.retrier import Retrier


def topology(tiers: str, queue_type: str = "quorum") -> TopologySettings:
    """The product's own topology with these tiers."""
    return TopologySettings.model_validate({"queue_type": queue_type, "tiers": tiers.split(",")})


def _retrier(url: str, tiers: str, queue: str) -> Retrier:
    addresses = parse_addresses(url)
    book = PolicyBook(file=[Policy(name="#", max_retries=1_000)])
    retrier = Retrier(
        topology(tiers),
        (),
        lambda: book,
        connect=lambda name: connect(addresses, name=name),
        limits=Limits(prefetch=PREFETCH),
    )
    if queue != "all":
        retrier.movers = [mover for mover in retrier.movers if mover.queue == queue]
    return retrier


if __name__ == "__main__":
    _, url, _, _, tiers, queue = sys.argv
    uvloop.run(move_until_told(lambda stop: _retrier(url, tiers, queue).run(stop)))
