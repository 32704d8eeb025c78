"""A replay that waits stays the job of its process, by signs of life, and stops when told."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
import uvloop

from redrive.domain.letter import Arrival, Claim, Result
from redrive.domain.replay import Replay, ReplayState
from redrive.store.replays import Batch, Replays
from redrive.work import replay as running
from redrive.work.replay import Progress, ReplayRunner
from redrive.work.sender import Sender, Sent
from tests.services.letters import arrival

NOW = datetime(2026, 2, 11, tzinfo=UTC)
JOB = Replay(
    id="job",
    created_at=NOW,
    updated_at=NOW,
    vhost="/",
    actor="ann",
    state=ReplayState.RUNNING,
    reason="",
    filters="",
    destination=None,
    batch_size=1,
    pause=60.0,
    rate=None,
    doubtful=False,
    ordered_by=None,
    letters=2,
    position=0,
)
JOB_IN_ORDER = replace(JOB, letters=5, batch_size=5, pause=0.0, ordered_by="$.customer")


class Jobs:
    """Gives one batch, then none; or what a breaker holds, for ever. Counts signs of life, and may
    say that the job is another's."""

    def __init__(self, *, on_sign: Callable[[int], bool], held_by: str | None = None) -> None:
        self.signs: list[str] = []
        self._on_sign = on_sign
        self._held_by = held_by
        self._batches = [Batch(claims=[cast("Claim", _Anything())])]

    async def take_batch(self, *_: object, **__: object) -> Batch:
        if self._held_by is not None:
            return Batch(held_by=self._held_by)
        return self._batches.pop() if self._batches else Batch(ended=True)

    async def record(self, *_: object, **__: object) -> None: ...

    async def renew(self, _replay: str, _worker: str, reason: str) -> bool:
        self.signs.append(reason)
        return self._on_sign(len(self.signs))


class Sends:
    def __init__(self, *, is_ready: bool = True, seconds: float = 0.0) -> None:
        self.sent: list[Claim] = []
        self._seconds = seconds
        self._ready = asyncio.Event()
        if is_ready:
            self._ready.set()

    async def ready(self) -> None:
        await self._ready.wait()

    async def send(self, claims: list[Claim]) -> list[Sent]:
        await asyncio.sleep(self._seconds)
        self.sent += claims
        return [Sent(claim=claim, result=Result.SENT) for claim in claims]


class _Anything:
    """A claim, as far as the log asks for one."""

    def __getattr__(self, _: str) -> Any:
        return _Anything()


def claim_of(given: Arrival) -> Claim:
    return Claim(
        letter=given.letter, generation=1, envelope=given.envelope, queue="orders", exchange=None
    )


async def run(
    jobs: Jobs, sends: Sends, stopping: asyncio.Event, job: Replay = JOB, *, lease: float = 60.0
) -> Progress:
    runner = ReplayRunner(
        "cli-1",
        cast("Replays", jobs),
        cast("Sender", sends),
        verdict_after=timedelta(minutes=10),
        lease=timedelta(seconds=lease),
        stopping=stopping,
    )
    return await asyncio.wait_for(runner.run(job, lambda _: None), 10)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_RENEW", 0.01)
    monkeypatch.setattr(running, "log_sent", lambda *_: None)  # there is no letter to tell of


async def test_a_long_pause_has_signs_of_life_and_ends_when_told_to_stop() -> None:
    stopping = asyncio.Event()

    def on_sign(number: int) -> bool:
        if number == 3:
            stopping.set()
        return True

    jobs = Jobs(on_sign=on_sign)
    progress = await run(jobs, Sends(), stopping)
    assert jobs.signs == ["", "", ""]
    assert progress.results == {Result.SENT: 1}


async def test_a_job_that_another_has_taken_does_not_wait_for_its_pause() -> None:
    jobs = Jobs(on_sign=lambda _: False)
    progress = await run(jobs, Sends(), asyncio.Event())
    assert (len(jobs.signs), progress.done) == (1, 1)


async def test_while_the_broker_takes_nothing_nothing_is_claimed_and_the_job_says_why() -> None:
    stopping = asyncio.Event()

    def on_sign(number: int) -> bool:
        if number == 2:
            stopping.set()
        return True

    jobs = Jobs(on_sign=on_sign)
    progress = await run(jobs, Sends(is_ready=False), stopping)
    assert set(jobs.signs) == {"the broker takes nothing for now"}
    assert progress.done == 0


def test_while_a_breaker_holds_it_every_sign_of_life_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It seems longer once it is added to a clock that stands still within a turn, by rounding.
    monkeypatch.setattr(running, "_RENEW", math.nextafter(1 / 64, 0))

    async def held() -> Jobs:
        stopping = asyncio.Event()

        def on_sign(number: int) -> bool:
            if number == 50:
                stopping.set()
            return True

        jobs = Jobs(on_sign=on_sign, held_by="orders")
        await run(jobs, Sends(), stopping)
        return jobs

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert set(runner.run(held()).signs) == {"the breaker of orders is open"}


class InOrder(Jobs):
    """Letters of one key, taken from where the job is."""

    def __init__(self, letters: int) -> None:
        super().__init__(on_sign=lambda _: True)
        self.claims = [claim_of(arrival(b'{"customer": 7}')) for _ in range(letters)]
        self.position = 0
        self.given_back: list[int] = []

    async def take_batch(self, *_: object, **__: object) -> Batch:
        first, self.position = self.position, len(self.claims)
        ids = [claim.letter.id for claim in self.claims]
        return Batch(
            claims=self.claims[first:],
            first=first,
            positions={id_: place for place, id_ in enumerate(ids)},
            ended=first == len(self.claims),
        )

    async def give_back(self, *given: object) -> None:
        self.position = cast("int", given[-1])
        self.given_back.append(self.position)


async def test_a_batch_in_order_is_cut_before_anybody_could_take_its_letters_for_lost() -> None:
    jobs, sends = InOrder(5), Sends(seconds=0.2)
    progress = await run(jobs, sends, asyncio.Event(), JOB_IN_ORDER, lease=1.0)
    assert jobs.given_back  # in how many parts depends on the machine
    assert [claim.letter.id for claim in sends.sent] == [each.letter.id for each in jobs.claims]
    assert progress.results == {Result.SENT: 5}
