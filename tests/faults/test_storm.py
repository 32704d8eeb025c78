"""The whole system in a short storm, on one broker node (see tests/faults/storm).

`make faults MINUTES=30 SEED=7` is the long one, on a cluster of three.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.storm.plan import Trouble, make_plan
from tests.faults.storm.storm import run

SEED, SECONDS = 3, 20.0
OF_A_CLUSTER = {Trouble.LEADER_LOST, Trouble.MAJORITY_LOST}


@pytest.mark.timeout(240)
async def test_in_a_storm_nothing_is_lost_and_every_duplicate_is_explained_by_a_fault(
    rabbitmq_root: Path | None,
) -> None:
    plan = make_plan(SEED, SECONDS, nodes=1)
    print(plan.command)  # noqa: T201  # shown when it fails
    ended = await run(plan, rabbitmq_root)
    print(ended)  # noqa: T201
    assert ended.problems == [], str(ended)
    out_of_reach = set() if os.geteuid() == 0 else {Trouble.DISK_FULL}
    struck = {each.fault.trouble for each in ended.journal.struck if each.was_struck}
    assert struck >= {*Trouble} - OF_A_CLUSTER - out_of_reach
