"""kill -9 of a consumer's process while it handles a message, every time; and SIGTERM amid many."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from redrive.amqp import Properties
from redrive.broker.processes import GuardedProcess
from redrive.consumer import consumer
from redrive.domain import headers
from tests.faults.consumer_process import Scene
from tests.services import scale
from tests.services.consuming import (
    DEAD,
    QUEUE,
    consumed,
    error_of,
    header,
    send,
    settings_for,
)
from tests.services.eventually import DEADLINE, eventually_async
from tests.services.moving import Kind, channel_to, holds, identities, ready, take_all
from tests.services.plugin import Vhost
from tests.services.retrying import retrying

both_kinds = pytest.mark.parametrize("kind", ["classic", "quorum"])


@dataclass
class Lives:
    """The processes of a scene, one after the other; none is left behind."""

    scene: Scene
    log: Path
    processes: list[GuardedProcess] = field(default_factory=list)

    def begin(self) -> None:
        self.processes.append(self.scene.start(self.log))

    @property
    def last(self) -> GuardedProcess:
        return self.processes[-1]

    async def stop(self) -> None:
        """By SIGTERM, which drains it."""
        self.last.send(signal.SIGTERM)
        await eventually_async(lambda: not self.last.alive, what="the end")
        # Else it was ended by force, which comes before the ten seconds that are promised.
        assert self.last.exit_code == 0, self.log.read_text()


@pytest.fixture
def lives(vhost: Vhost, tmp_path: Path) -> Iterator[Callable[..., Lives]]:
    """`lives(kind, …)` begins the first life of a scene."""
    made: list[Lives] = []

    def begin(kind: Kind, **options: float) -> Lives:
        notes = str(tmp_path / "notes")
        scene = Scene(url=vhost.url, kind=kind, notes=notes, **options)  # type: ignore[arg-type]
        made.append(Lives(scene, tmp_path / "log"))
        made[-1].begin()
        return made[-1]

    yield begin
    for each in made:
        for process in each.processes:
            process.kill()


def notes_of(scene: Scene) -> Counter[str]:
    """How often each line was noted."""
    file = Path(scene.notes)
    return Counter(file.read_text().splitlines()) if file.exists() else Counter()


@both_kinds
async def test_a_message_that_kills_its_process_ends_dead_and_its_neighbours_handled(
    vhost: Vhost, kind: Kind, lives: Callable[..., Lives]
) -> None:
    neighbours = [f"n{number}" for number in range(60)]
    settings = settings_for(vhost.url, kind)
    async with retrying(vhost.url, settings.topology, {}):
        led = lives(kind, retries=2)
        await consumed(vhost.url)
        await send(vhost.url, *neighbours[:30], "poison", *neighbours[30:])
        await until_one_is_dead(vhost.url, led)
        await all_handled(led.scene, neighbours)
        await led.stop()
    notes = notes_of(led.scene)
    # Once among others, when nobody could tell which of them it was, and once more among those;
    # then alone, as often as any message is tried that fails.
    assert len(led.processes) == 6
    assert [notes[f"began poison {count}"] for count in range(4)] == [3, 1, 1, 0]
    assert {line for line in notes if line.startswith("handled")} == {
        f"handled {each} 0" for each in neighbours
    }
    (dead,) = await take_all(vhost.url, DEAD)
    assert dead.body == b"poison"
    assert error_of(dead)[0] == "CRASH"
    assert header(dead, headers.ATTEMPT) == 2
    await nothing_is_left(vhost.url)


async def until_one_is_dead(url: str, led: Lives) -> None:
    """Have a new process after each that was killed, until a message is dead."""
    async with channel_to(url) as channel:
        while not (await channel.inspect_queue(DEAD))[0]:
            if not led.last.alive:
                assert led.last.exit_code == -signal.SIGKILL, led.log.read_text()
                assert len(led.processes) < 10, "it loops"
                led.begin()
            await asyncio.sleep(0.02)


@both_kinds
@pytest.mark.parametrize(
    ("how", "most"),
    [
        ({"blocks_for": 0.003}, 1),
        ({"blocks_for": 0.003, "threaded": True, "concurrency": 1}, 1),
        # Some of them in the millisecond before; what comes back of those is written one by one.
        ({"blocks_for": 0.0}, 2),
    ],
    ids=["in the loop", "in a thread", "too quick for a write each"],
)
async def test_what_was_handled_before_a_process_ended_at_once_is_not_handled_over_and_over(
    vhost: Vhost, kind: Kind, lives: Callable[..., Lives], how: dict[str, float], most: int
) -> None:
    before, after = ([f"{name}{number}" for number in range(20)] for name in "ab")
    settings = settings_for(vhost.url, kind)
    async with retrying(vhost.url, settings.topology, {}):
        led = lives(kind, retries=0, works_for=0, **how)
        await consumed(vhost.url)
        await send(vhost.url, *before, "poison", *after)
        await until_one_is_dead(vhost.url, led)
        await all_handled(led.scene, [*before, *after])
        await led.stop()
    notes = notes_of(led.scene)
    assert notes["began poison 0"] == 3
    assert {notes[f"handled {each} 0"] for each in after} == {1}
    assert max(notes[f"handled {each} 0"] for each in before) <= most
    assert [dead.body for dead in await take_all(vhost.url, DEAD)] == [b"poison"]
    await nothing_is_left(vhost.url)


@both_kinds
async def test_what_was_handled_alone_is_not_counted_against_by_who_ends_the_process_next(
    vhost: Vhost, kind: Kind, lives: Callable[..., Lives]
) -> None:
    settings = settings_for(vhost.url, kind)
    async with retrying(vhost.url, settings.topology, {}):
        led = lives(kind, retries=0, works_for=0)
        await consumed(vhost.url)
        await send(vhost.url, "suspect", queue=f"redrive-alone-{QUEUE}")
        await eventually_async(lambda: notes_of(led.scene)["began suspect 0"], what="the suspect")
        await send(vhost.url, "poison")  # it begins as soon as the suspect is done
        await until_one_is_dead(vhost.url, led)
        await led.stop()
    notes = notes_of(led.scene)
    assert notes["began poison 0"] == 3
    assert notes["began suspect 0"] == notes["handled suspect 0"] == 1
    assert [dead.body for dead in await take_all(vhost.url, DEAD)] == [b"poison"]
    await nothing_is_left(vhost.url)


async def nothing_is_left(url: str) -> None:
    for queue in (QUEUE, f"redrive-again-{QUEUE}", f"redrive-alone-{QUEUE}"):
        assert await ready(url, queue) == 0, queue


async def test_what_a_stop_leaves_is_handled_at_full_concurrency_by_the_next_process(
    vhost: Vhost, lives: Callable[..., Lives]
) -> None:
    expected = [f"n{number}" for number in range(100)]
    # None ends within the seconds of a stop: what was begun comes back, and what was not.
    led = lives("quorum", concurrency=10, prefetch=80, works_for=60, marks=True, hurries=True)
    await consumed(vhost.url)
    await send(vhost.url, *expected)
    await eventually_async(lambda: most_at_once(led.scene) == 10, what="ten at once")
    await led.stop()
    await holds(vhost.url, QUEUE, len(expected))
    # The second is stopped as well, while it has those that came back: they stay with the others.
    led.begin()
    await eventually_async(lambda: beginnings(led.scene) == 20, what="ten at once, again")
    await led.stop()
    assert lines(led.scene, b"handled") == 0
    led.scene = replace(led.scene, works_for=0.2, notes=led.scene.notes + "-last")
    led.begin()
    await all_handled(led.scene, expected)
    assert most_at_once(led.scene) == 10
    await led.stop()
    assert notes_of(led.scene) == Counter(
        f"{what} {each} 0" for each in expected for what in ("began", "tried", "handled")
    )
    assert led.log.read_text().count("consumer.set_aside") >= 1
    await nothing_is_left(vhost.url)
    assert await ready(vhost.url, DEAD) == 0


def beginnings(scene: Scene) -> int:
    file = Path(scene.notes)
    return lines(scene, b"began") if file.exists() else 0


def most_at_once(scene: Scene) -> int:
    """The most messages that were begun and not handled at one time."""
    file = Path(scene.notes)
    most = running = 0
    for line in file.read_text().splitlines() if file.exists() else ():
        running += line.startswith("began") - line.startswith("handled")
        most = max(most, running)
    return most


async def all_handled(scene: Scene, expected: list[str], within: float = DEADLINE) -> None:
    def handled() -> bool:
        found = {line.split()[1] for line in notes_of(scene) if line.startswith("handled")}
        return found >= set(expected)

    await eventually_async(handled, within=within, what="every neighbour handled")


async def test_a_handler_that_never_ends_does_not_keep_its_process_alive(
    vhost: Vhost, lives: Callable[..., Lives]
) -> None:
    led = lives("quorum")
    await consumed(vhost.url)
    await send(vhost.url, "hangs")
    await eventually_async(lambda: notes_of(led.scene)["began hangs 0"], what="its beginning")
    led.last.send(signal.SIGTERM)
    # By force, in the ten seconds that are promised.
    await eventually_async(lambda: not led.last.alive, what="the end")
    assert "consumer.ended_by_force" in led.log.read_text()
    assert consumer._GONE_WITHIN < 10
    await holds(vhost.url, QUEUE, 1)


async def test_a_second_signal_waits_for_nothing_and_is_nothing_that_a_message_did(
    vhost: Vhost, lives: Callable[..., Lives]
) -> None:
    led = lives("classic", retries=0, works_for=60, marks=True, patient=True)
    await consumed(vhost.url)
    await send(vhost.url, "alone", queue=f"redrive-alone-{QUEUE}")
    await eventually_async(lambda: notes_of(led.scene)["began alone 0"], what="its beginning")
    led.last.send(signal.SIGTERM)
    await takes_no_more(vhost.url)
    led.last.send(signal.SIGTERM)
    # One signal would give the handler eighty seconds.
    await eventually_async(lambda: not led.last.alive, within=60, what="the end at once")
    assert led.last.exit_code == 0, led.log.read_text()
    led.scene = replace(led.scene, works_for=0)
    led.begin()
    await all_handled(led.scene, ["alone"])
    await led.stop()
    assert await ready(vhost.url, DEAD) == 0
    await nothing_is_left(vhost.url)


async def takes_no_more(url: str) -> None:
    async with channel_to(url) as channel:

        async def unconsumed() -> bool:
            return (await channel.inspect_queue(QUEUE))[1] == 0

        await eventually_async(unconsumed, what="the first signal obeyed")


async def test_a_third_signal_ends_the_process_as_it_is(
    vhost: Vhost, lives: Callable[..., Lives]
) -> None:
    led = lives("classic", patient=True)
    await consumed(vhost.url)
    await send(vhost.url, "hangs")
    await eventually_async(lambda: notes_of(led.scene)["began hangs 0"], what="its beginning")
    led.last.send(signal.SIGINT)
    await takes_no_more(vhost.url)
    led.last.send(signal.SIGINT)
    await eventually_async(
        lambda: "ends_while_handling" in led.log.read_text(), within=60, what="the second obeyed"
    )
    led.last.send(signal.SIGINT)
    # It would have ended by itself, by force, after ninety-five seconds.
    await eventually_async(lambda: not led.last.alive, within=30, what="the end at once")
    assert led.last.exit_code == -signal.SIGINT, led.log.read_text()
    await holds(vhost.url, QUEUE, 1)


async def test_a_handler_that_exits_has_failed_and_one_that_has_its_loop_exit_stops_the_consumer(
    vhost: Vhost, lives: Callable[..., Lives]
) -> None:
    led = lives("classic", retries=0, works_for=0, concurrency=1)
    await consumed(vhost.url)
    await send(vhost.url, "exits", "n0")
    await all_handled(led.scene, ["n0"])
    await holds(vhost.url, DEAD, 1)
    (dead,) = await take_all(vhost.url, DEAD)
    reason = "the handler called sys.exit(3), which ends no consumer"
    assert error_of(dead) == ("SystemExit", reason)
    await send(vhost.url, "leaves", "n1")
    await all_handled(led.scene, ["leaves", "n1"])
    await eventually_async(lambda: not led.last.alive, what="the end")
    assert led.last.exit_code == 4
    said = led.log.read_text()
    assert "consumer.ended_from_within" in said
    assert "Traceback" not in said
    await nothing_is_left(vhost.url)


MESSAGES = scale.messages(100_000)
WITHIN = scale.seconds(900, quick=90)


@pytest.mark.soak
@pytest.mark.timeout(WITHIN * 3)
@both_kinds
async def test_many_messages_are_counted_exactly_through_a_drain_in_the_middle(
    vhost: Vhost, kind: Kind, lives: Callable[..., Lives]
) -> None:
    kinds = {0: "fails", 1: "twice"}
    expected = [f"{kinds.get(number % 10, 'passes')}-{number}" for number in range(MESSAGES)]
    settings = settings_for(vhost.url, kind)
    async with retrying(vhost.url, settings.topology, {}):
        led = lives(kind, concurrency=50, prefetch=500, works_for=0.001)
        scene = led.scene
        await consumed(vhost.url)
        sending = asyncio.create_task(send(vhost.url, *expected))

        def halfway() -> bool:
            return Path(scene.notes).exists() and lines(scene, b"handled") > MESSAGES // 4

        await eventually_async(halfway, within=WITHIN, what="a quarter handled")
        await led.stop()
        before = lines(scene, b"handled")
        led.begin()
        await sending
        await holds(vhost.url, DEAD, MESSAGES // 10, within=WITHIN)
        passing = MESSAGES - MESSAGES // 10
        await eventually_async(
            lambda: lines(scene, b"handled") >= passing, within=WITHIN, what="all handled"
        )
        await led.stop()
    assert before < passing, "the drain was not in the middle"
    notes = notes_of(scene)
    tries = {"fails": 4, "twice": 3, "passes": 1}
    wanted = Counter(
        f"tried {each} {count}" for each in expected for count in range(tries[each.split("-")[0]])
    )
    wanted.update(
        f"handled {each} {tries[each.split('-')[0]] - 1}"
        for each in expected
        if not each.startswith("fails")
    )
    assert notes == wanted
    dead = await take_all(vhost.url, DEAD)
    assert sorted(identities(dead)) == sorted(e for e in expected if e.startswith("fails"))
    assert {Properties.read(each.properties).header(headers.ATTEMPT) for each in dead} == {3}
    await nothing_is_left(vhost.url)


def lines(scene: Scene, begin: bytes) -> int:
    return Path(scene.notes).read_bytes().count(begin)
