"""The process of a consumer: `python -m bench.consumers URL SOURCE TARGET NAME`."""

from __future__ import annotations

import importlib
import sys

import uvloop

from bench.movers import Order
from bench.movers.told import move_until_told

if __name__ == "__main__":
    client = importlib.import_module(f"bench.consumers.by_{sys.argv[4]}")
    order = Order(*sys.argv[1:4])
    uvloop.run(move_until_told(lambda stop: client.consume(order, stop)))
