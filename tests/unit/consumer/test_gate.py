"""The gate: many at a time, or one alone."""

from __future__ import annotations

import asyncio

import pytest

from redrive.consumer.gate import Gate


async def test_who_is_to_be_alone_waits_for_all_that_run_and_nothing_begins_meanwhile() -> None:
    gate, opened = Gate(), []
    gate.when_open(lambda: opened.append(True))
    gate.running = 2
    inside, leave = asyncio.Event(), asyncio.Event()

    async def alone() -> None:
        async with gate.alone_inside():
            inside.set()
            await leave.wait()

    entering = asyncio.create_task(alone())
    await asyncio.sleep(0)
    assert gate.closed
    waiting = asyncio.create_task(gate.open())
    gate.left()
    await asyncio.sleep(0)
    assert not inside.is_set()
    gate.left()
    await inside.wait()
    assert gate.alone
    assert not gate.idle
    assert not waiting.done()
    leave.set()
    await entering
    await waiting
    assert (gate.closed, gate.alone, gate.idle, opened) == (False, False, True, [True])


async def test_only_one_at_a_time_is_alone() -> None:
    gate, inside, most = Gate(), 0, 0

    async def alone() -> None:
        nonlocal inside, most
        async with gate.alone_inside():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(alone() for _ in range(5)))
    assert most == 1


async def test_who_fails_alone_opens_the_gate_again() -> None:
    gate = Gate()
    with pytest.raises(ValueError, match="no"):
        async with gate.alone_inside():
            raise ValueError("no")
    await gate.open()
    assert gate.idle


async def test_who_waits_for_one_that_hangs_gives_up_rests_and_tries_again() -> None:
    gate = Gate(patience=0.3)
    gate.running = 1
    began = asyncio.get_running_loop().time()
    async with gate.alone_inside() as alone:
        assert not alone
    assert not gate.closed
    entering = asyncio.create_task(gate.alone_inside().__aenter__())
    await asyncio.sleep(0.05)
    assert not gate.closed  # it rests
    gate.left()
    assert await entering
    assert asyncio.get_running_loop().time() - began >= 0.9


async def test_who_stops_waits_for_nobody_to_end() -> None:
    gate = Gate(patience=60)
    gate.running = 1

    async def alone() -> bool:
        async with gate.alone_inside() as is_alone:
            return is_alone

    entering = asyncio.create_task(alone())
    await asyncio.sleep(0.01)
    assert gate.closed
    gate.give_up()
    assert await entering is False
    assert not gate.closed
