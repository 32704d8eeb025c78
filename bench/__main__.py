"""`python -m bench [NAME]`: measure, print ratios, and say which targets are met.

Exits 1 when a full run misses a target, 2 when one could not be finished; the others are run and
shown all the same. One whose broker fails under it is run a second time, from its beginning: 3.10.8
answers 541 INTERNAL_ERROR now and then to who declares and deletes quorum queues in turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import uvloop

from bench import (
    api,
    collector,
    consumer,
    memory,
    metrics,
    replay,
    report,
    retrier,
    scaleout,
    sweep,
    wire,
)
from bench.options import QUEUE_TYPES, Options
from bench.report import Result
from bench.stage import BenchFailed, Stage, open_stage, say
from redrive.errors import BrokerError, RedriveError

BENCHES: dict[str, Callable[[Stage, Options], Awaitable[Result]]] = {
    "wire": wire.run,
    "memory": memory.run,
    "retrier": retrier.run,
    "collector": collector.run,
    "replay": replay.run,
    "sweep": sweep.run,
    "consumer": consumer.run,
    "api": api.run,
    "metrics": metrics.run,
    "scaleout": scaleout.run,
}


def main() -> int:
    arguments = _parser().parse_args()
    options = Options(
        quick=arguments.quick,
        queue_types=(arguments.queue,) if arguments.queue else QUEUE_TYPES,
    )
    names = [arguments.name] if arguments.name else list(BENCHES)
    results: list[Result] = []
    unfinished: list[str] = []
    broker = ""
    for name in names:
        try:
            broker, result = _measured(name, options, arguments.rabbitmq)
        except (BenchFailed, RedriveError) as error:
            say(f"bench {name}: {error}")
            unfinished.append(name)
            continue
        results.append(result)
        if not arguments.json:
            report.print_tables(result)
    if results:
        conclude = report.print_json if arguments.json else report.print_targets
        conclude(results, broker=broker, quick=options.quick)
    if unfinished:
        say(f"bench: could not be finished: {', '.join(unfinished)}")
        return 2
    missed = any(not target.met for result in results for target in result.targets)
    return 1 if missed and not options.quick else 0


def _measured(name: str, options: Options, rabbitmq: str) -> tuple[str, Result]:
    try:
        return uvloop.run(_measure(name, options, rabbitmq))
    except BrokerError as error:
        say(f"bench {name}: {error}; once more, from its beginning")
        broker, result = uvloop.run(_measure(name, options, rabbitmq))
        again = f"{name} is a second run: in the first one, {error}"
        return broker, replace(result, notes=(*result.notes, again))


async def _measure(name: str, options: Options, rabbitmq: str) -> tuple[str, Result]:
    """One bench, on a broker of its own: what it leaves behind, or breaks, is no other's."""
    async with open_stage(_root(rabbitmq)) as stage:
        return stage.version, await BENCHES[name](stage, options)


def _root(version: str) -> Path | None:
    if not version:
        return None
    from tests.services.chroots import root_of  # noqa: PLC0415 - only who asks for it needs it

    return root_of(version)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Redrive against the alternatives on a private RabbitMQ.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="wire    messages a second and CPU per message, against shovel and Python clients\n"
        "memory  growth of memory while a million messages are moved\n"
        "retrier each hop against the shovel, many queues, lateness\n"
        "collector  into the store against the shovel, memory, reading a million letters\n"
        "replay  letters back to a queue against the shovel, choosing 10,000 of a million\n"
        "sweep   a dead letter queue, half over the limit, against a loop with pika\n"
        "consumer  a handler that does nothing, against aio-pika and FastStream\n"
        "api     answers with a million letters against few, and what live clients cost\n"
        "metrics  what metrics and alerts cost the collector, /metrics at a million letters\n"
        "scaleout  redrive run in 1, 2 and 4 processes on a cluster, and the cost of a message",
    )
    parser.add_argument(
        "name", nargs="?", choices=BENCHES, help="which one; all of them if none is named"
    )
    parser.add_argument("--quick", action="store_true", help="few messages, one round")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--queue", choices=QUEUE_TYPES, help="on one queue type only")
    parser.add_argument(
        "--rabbitmq", default="", choices=("4.0", "4.3"), help="instead of the machine's own"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
