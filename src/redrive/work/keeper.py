"""The collector's side of the store: a batch is kept, whatever the store thinks of it.

- While the store is away a batch is tried again, for as long as there is patience; then the caller
  gives the messages back and waits, without any in hand, until the store takes as much again.
  Messages that are held for hours, or returned at every try, would use up their queue's delivery
  limit, and a broker deletes what is over it. Where the store takes that and not the messages, the
  caller waits longer each time.
- What the store refuses is found by storing one at a time, and stored with its bytes only; what it
  refuses even so is left with the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from redrive.domain.backoff import Backoff
from redrive.domain.letter import Arrival, Collected
from redrive.errors import StoreError, StoreRefused
from redrive.work.system_state import SystemWatch
from redrive.work.understand import bare

PATIENCE: Final = 30.0
"""Seconds for which messages are held while the store is away."""
_OF_A_LETTER: Final = 4096
"""Bytes that a letter takes beside its message, as a rule."""
_LONGEST_REST: Final = 3600.0
_STEADY: Final = 300.0
"""Seconds without giving anything up after which the next time is the first one again."""


class LetterStore(Protocol):
    """Where letters go."""

    @property
    def writers(self) -> int:
        """How many batches at a time it is of use to add."""

    async def add(self, arrivals: Sequence[Arrival], *, again: bool = False) -> list[Collected]: ...

    async def prove_writable(self, room: int = 0) -> None:
        """Write something, of so many bytes, so that whoever waits knows."""


class Answer(NamedTuple):
    """What became of a batch."""

    stored: list[Collected | None]
    """In order, with None for what the store does not take. If patience ended, of as many as came
    before."""
    gave_up: bool = False
    """Whether patience ended: the others stay with the broker, and nothing more is taken."""


class Keeper:
    """Keeps batches for one collector."""

    def __init__(
        self,
        letters: LetterStore,
        stopping: asyncio.Event,
        system: SystemWatch,
        logger: structlog.stdlib.BoundLogger,
    ) -> None:
        self._letters = letters
        self._stopping = stopping
        self._system = system
        self._log = logger
        self._away = ""  # why the store is away, if it is
        self._failing: set[str] = set()  # first letters of batches that are tried again
        self._room = 0  # bytes that the store should have for what was given up
        self._in_vain = 0  # how often that was in a row
        self._resumed = 0.0  # when the store was last known to answer
        self.refused = 0
        """Messages that the store does not take at all."""

    async def store_answers(self) -> bool:
        """Wait until the store takes something; False if it is time to stop before it does."""
        failures, backoff = 0, Backoff()
        clock = asyncio.get_running_loop().time
        if self._room:
            # Not only if nothing was stored meanwhile: one message may be what the store fails on.
            self._in_vain = 1 if clock() - self._resumed > _STEADY else self._in_vain + 1
            await self._rest_after_vain_tries()
        while not self._stopping.is_set():
            try:
                await self._letters.prove_writable(self._room)
            except StoreError as error:
                failures += 1
                self._on_away(error)
            else:
                self._room, self._resumed = 0, clock()
                self._on_back()
                return True
            await self._wait(backoff, failures)
        return False

    async def keep(self, arrivals: Sequence[Arrival], check: Callable[[], None]) -> Answer:
        """Store a batch. `check` raises if the messages are void by now."""
        try:
            return await self._keep(arrivals, check)
        finally:
            self._failing.difference_update(arrival.letter.id for arrival in arrivals)

    async def _keep(
        self,
        arrivals: Sequence[Arrival],
        check: Callable[[], None],
        *,
        again: bool = False,
        bytes_only: bool = False,
    ) -> Answer:
        failures, backoff = 0, Backoff()
        give_up_at = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                kept = await self._letters.add(arrivals, again=again)
            except StoreRefused as error:
                return await self._find_refused(arrivals, check, error, bytes_only=bytes_only)
            except StoreError as error:
                check()  # a query that is cancelled because the broker is lost may end like this
                failures += 1
                self._failing.add(arrivals[0].letter.id)
                self._on_away(error)
            except Exception as error:  # a defect must not end the process  # noqa: BLE001
                self._log.exception("collector.store_failed")
                return await self._find_refused(
                    arrivals,
                    check,
                    StoreRefused(f"{type(error).__name__}: {error}"),
                    bytes_only=bytes_only,
                )
            else:
                self._failing.discard(arrivals[0].letter.id)
                self._on_back()
                return Answer(list(kept))
            again = True  # the answer to a commit may be what was lost
            await self._wait(backoff, failures)
            if self._stopping.is_set():
                return Answer([], gave_up=True)
            if asyncio.get_running_loop().time() > give_up_at:
                self._give_up(arrivals)
                return Answer([], gave_up=True)
            check()

    def _give_up(self, arrivals: Sequence[Arrival]) -> None:
        envelopes = [arrival.envelope for arrival in arrivals]
        size = sum(len(each.body) + len(each.properties) + _OF_A_LETTER for each in envelopes)
        self._room = max(self._room, 2 * size)

    async def _wait(self, backoff: Backoff, failures: int) -> None:
        delay = backoff.delay(failures, random.random())  # noqa: S311  # spreads load, no secret
        await self._rest(delay.total_seconds())

    async def _rest_after_vain_tries(self) -> None:
        if seconds := rest_after(self._in_vain):
            self._log.warning(
                "collector.rests",
                seconds=seconds,
                because="the store answers, but has not taken what was collected",
                remedy="look into the store; start anew to have it tried at once",
            )
            await self._rest(seconds)

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def _on_away(self, error: StoreError) -> None:
        if not self._away:  # one line for an outage, not one for every try
            self._away = str(error)
            self._log.warning("collector.store_away", error=str(error), remedy=error.remedy)

    def _on_back(self) -> None:
        if self._away and not self._failing:  # not while another batch is still refused
            self._away = ""
            self._log.info("collector.store_back")

    # What the store refuses

    async def _find_refused(
        self,
        arrivals: Sequence[Arrival],
        check: Callable[[], None],
        error: StoreRefused,
        *,
        bytes_only: bool,
    ) -> Answer:
        if len(arrivals) > 1:
            return await self._one_by_one(arrivals, check)
        if bytes_only:
            self._leave(arrivals[0], error)
            return Answer([None])
        plain = self._bare(arrivals[0], error)
        return await self._keep([plain], check, again=True, bytes_only=True)

    async def _one_by_one(self, arrivals: Sequence[Arrival], check: Callable[[], None]) -> Answer:
        found: list[Collected | None] = []
        for arrival in arrivals:
            stored, gave_up = await self._keep([arrival], check, again=True)
            found += stored
            if gave_up:
                return Answer(found, gave_up=True)
        return Answer(found)

    def _bare(self, arrival: Arrival, error: StoreRefused) -> Arrival:
        letter = arrival.letter
        return bare(
            arrival.envelope,
            letter.id,
            letter.created_at,
            self._system.state(),
            f"the store refused what was read of the message: {error}",
        )

    def _leave(self, arrival: Arrival, refusal: StoreRefused) -> None:
        self.refused += 1
        self._log.error(
            "collector.held",
            error=str(refusal),
            routing_key=arrival.letter.routing_key,
            size=arrival.letter.size,
            remedy="the message stays in its queue: move it elsewhere, or raise the limit",
        )


def rest_after(in_vain: int) -> float:
    """Seconds for which nothing is taken after messages were given back so often in a row, although
    the store took something as large each time but the first."""
    return 0.0 if in_vain == 1 else min(PATIENCE * 2 ** min(in_vain, 20) / 2, _LONGEST_REST)
