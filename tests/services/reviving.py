"""What tests of revival need: a broker with its topology, the retrier and the collector running,
and a worker that does one round when told to, on a store whose clock is set by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from redrive.amqp import Delivery, Properties, Publish
from redrive.broker.topology import describe
from redrive.domain.builtin_rules import BUILTIN_RULES
from redrive.domain.filters import Filters
from redrive.domain.letter import Attempt, Change, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.policy import Policy, PolicyBook
from redrive.domain.strategy import IMMEDIATE_DELAYS, Rule, Rules, Strategy, Timetable
from redrive.settings.sections import TopologySettings
from redrive.store.capacity import Capacity
from redrive.store.store import Store
from redrive.work.conditions import Conditions
from redrive.work.destinations import destinations
from redrive.work.room_ahead import RoomAhead
from redrive.work.sender import Sender
from redrive.work.system_state import system_watch
from redrive.work.timetable import Cron
from redrive.work.verdict_watch import VerdictWatch
from redrive.work.worker import Worker
from tests.services.collecting import collecting
from tests.services.eventually import eventually_async
from tests.services.moving import connector, publish
from tests.services.retrying import DEAD, declare_origin, declare_topology, retrying, topology

VHOST = "/"
"""As the letters of these tests have it, whatever the broker calls it."""
VERDICT_AFTER = timedelta(minutes=10)
LEASE = timedelta(seconds=60)
QUEUE, KEY = "orders", "order.created"


@dataclass
class Site:
    """A broker, a store, and what revives letters between them."""

    url: str
    store: Store
    settings: TopologySettings
    rules: Rules
    policies: PolicyBook
    sender: Sender
    worker: Worker
    watch: VerdictWatch

    # What happens on the broker

    async def fail(self, *bodies: str, put: dict[str, bytes] | None = None) -> None:
        """Publish messages that the consumer of `orders` will reject."""
        properties = Properties.empty().persistent()
        if put:
            properties = properties.with_headers(put)
        await publish(
            self.url, [Publish("work", KEY, properties.raw, body.encode()) for body in bodies]
        )

    # What Redrive does

    async def round(self) -> int:
        """The worker looks once; how many letters it looked at."""
        await self.sender.ready()
        return await self.worker.round(self.sender)

    def later(self, **time: float) -> None:
        """Let time pass."""
        self.store.clock.ahead += timedelta(**time)

    # What is known

    async def letters(self) -> list[Letter]:
        """All letters, oldest first."""
        found = await self.store.letters.page(Filters(), limit=1000)
        return list(reversed(found.items))

    async def letter(self) -> Letter:
        """The only letter."""
        (found,) = await self.letters()
        return found

    async def becomes(self, state: State, *, revivals: int | None = None) -> Letter:
        """Wait until the only letter is in a state."""

        async def is_there() -> Letter | None:
            found = await self.letters()
            if len(found) != 1 or found[0].status is not state:
                return None
            fits = revivals is None or found[0].dlq_retry_count == revivals
            return found[0] if fits else None

        found = await eventually_async(is_there, what=f"the letter is {state.word}")
        assert found is not None
        return found

    async def attempts(self) -> list[Attempt]:
        return await self.store.letters.attempts((await self.letter()).id)

    async def results(self) -> list[Result]:
        return [attempt.result for attempt in await self.attempts()]

    async def history(self) -> list[Change]:
        return await self.store.letters.history((await self.letter()).id)

    async def arrows(self) -> list[tuple[State | None, State]]:
        return [(change.before, change.after) for change in await self.history()]


@dataclass(frozen=True)
class Parts:
    """What revives letters, not connected yet."""

    sender: Sender
    worker: Worker
    rules: Rules
    policies: PolicyBook
    make_sender: Callable[[], Sender]
    """One for each session of whoever works through losses of the broker."""


def reviver(
    url: str,
    store: Store,
    *,
    strategy: Strategy = Strategy.IMMEDIATE,
    users: Sequence[Rule] = (),
    name: str = "worker-1",
    delays: tuple[timedelta, ...] = IMMEDIATE_DELAYS,
    room: RoomAhead | None = None,
) -> Parts:
    """A worker and its sender; letters without another rule have `strategy`."""
    settings = topology("quorum")
    book = PolicyBook(file=[Policy(name=KEY, max_retries=0)])
    rules = Rules(users, BUILTIN_RULES, strategy)

    def make_sender() -> Sender:
        return Sender(
            connector(url), settings.names.return_exchange, describe(settings).queue_names()
        )

    worker = Worker(
        name,
        VHOST,
        store.sendings,
        make_sender,
        rules=rules,
        timetable=Timetable(Cron("0 2,3,4 * * *"), delays),
        conditions=Conditions(
            system=system_watch(), capacity=Capacity(store.database), most_cpu=2.0
        ),
        destination_of=destinations(lambda: book),
        max_revivals=5,
        batch=10,
        poll=timedelta(seconds=30),
        verdict_after=VERDICT_AFTER,
        make_room=None if room is None else lambda: room,
    )
    return Parts(make_sender(), worker, rules, book, make_sender)


@asynccontextmanager
async def revival(
    url: str,
    store: Store,
    *,
    strategy: Strategy = Strategy.IMMEDIATE,
    users: Sequence[Rule] = (),
) -> AsyncIterator[Site]:
    """All of it. Messages that fail are dead at once."""
    settings = topology("quorum")
    async with AsyncExitStack() as stack:
        await declare_topology(url, settings)
        await declare_origin(url, QUEUE, "quorum", KEY)
        await stack.enter_async_context(retrying(url, settings, {KEY: 0}))
        await stack.enter_async_context(collecting(url, store.letters, DEAD))
        parts = reviver(url, store, strategy=strategy, users=users)
        watch = VerdictWatch(
            VHOST,
            store.verdicts,
            connector(url),
            None,
            lease=LEASE,
            verdict_after=VERDICT_AFTER,
        )
        await parts.sender.open()
        try:
            yield Site(
                url, store, settings, parts.rules, parts.policies, parts.sender, parts.worker, watch
            )
        finally:
            parts.sender.abort()
            watch.close()


def is_replay(delivery: Delivery) -> bool:
    """Whether a message was sent for a letter."""
    return Properties.read(delivery.properties).header("redrive-letter") is not None


def accepts_replays(delivery: Delivery) -> bool:
    """A consumer that was mended after a message had failed."""
    return is_replay(delivery)


def rejects(_: Delivery) -> bool:
    """A consumer that cannot do it."""
    return False
