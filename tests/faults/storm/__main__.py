"""`python -m tests.faults.storm --seed 7 --minutes 30 --nodes 3`: what `make faults` runs."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import traceback

from tests.faults.storm.plan import make_plan
from tests.faults.storm.storm import run
from tests.services.chroots import root_of


def main() -> int:
    """Run a storm, print its accounts; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="make faults")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=3)
    chosen = parser.parse_args()
    seed = random.randrange(1 << 16) if chosen.seed is None else chosen.seed
    plan = make_plan(seed, round(chosen.minutes * 60, 3), chosen.nodes)
    print(plan.command, file=sys.stderr)  # noqa: T201
    try:
        ended = asyncio.run(run(plan, root_of(os.environ.get("REDRIVE_TEST_RABBITMQ", ""))))
    except KeyboardInterrupt:
        print(f"interrupted; the same plan again: {plan.command}", file=sys.stderr)  # noqa: T201
        return 130
    except Exception:  # noqa: BLE001 - whatever it was, the last line says how to have it again
        traceback.print_exc()
        print(f"the same plan again: {plan.command}", file=sys.stderr)  # noqa: T201
        return 1
    print(ended)  # noqa: T201
    return 1 if ended.problems else 0


if __name__ == "__main__":
    sys.exit(main())
