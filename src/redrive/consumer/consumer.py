"""The consumer: handlers registered on it, served until it is told to stop.

from redrive import Consumer, DeadLetter, RetryAfter

consumer = Consumer("amqp://guest:guest@127.0.0.1:5672/")

@consumer.handler("settlement.requested", retries=3, immediate=2, timeout="30s")
async def settle(message):
    ...

consumer.run()
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop

from redrive import amqp
from redrive.amqp import Properties, Publish, fields
from redrive.amqp.confirms import CONFIRMED
from redrive.amqp.lane import Poison
from redrive.amqp.supervision import supervise
from redrive.broker.own_queues import own_queues
from redrive.consumer import wishes
from redrive.consumer.arguments import arguments_of
from redrive.consumer.logs import log
from redrive.consumer.queues import Queue
from redrive.consumer.running import Limits, in_a_loop, remember_limits
from redrive.consumer.sending import Sending
from redrive.consumer.serving import Known, Registered
from redrive.consumer.session import Session
from redrive.consumer.signals import Duration, read_duration
from redrive.consumer.telling import Told
from redrive.consumer.threads import Threads
from redrive.errors import BrokerError, ConnectionLost, SettingsError, Unpublishable
from redrive.settings import Settings, load

_CONCURRENCY: Final = 20
_PREFETCH: Final = 200
_GONE_WITHIN: Final = 9.5
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_Handler = TypeVar("_Handler", bound=Callable[..., Any])
HeaderValue = str | int | bool | bytes


class Consumer:
    """Consumes queues with handlers, and sees to what becomes of every message.

    `url` is the broker's, as in `[broker] url`; several hosts with commas between. Everything else
    that is not said here comes from where Redrive's settings come from: `REDRIVE_*` and
    `redrive.toml`, or the file `config`. So a consumer knows the names and tiers that
    `redrive run` uses. `name` is what operators see of its connections.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        config: str | Path | None = None,
        name: str = "redrive consumer",
        settings: Settings | None = None,
    ) -> None:
        if settings is None:
            file = None if config is None else Path(config)
            # A consumer has no store: one without a home directory needs none for it.
            environ = {"HOME": "/", **os.environ}
            settings = load(
                flags={"broker.url": url},
                called="the address given to Consumer",
                config=file,
                environ=environ,
            ).settings
            url = None
        self._settings = settings
        self._addresses = amqp.parse_addresses(url or settings.broker.url.reveal())
        self._name = name
        self._registered: list[Registered] = []
        self._session: Session | None = None
        self._known = Known()
        self._outage = Told()
        self._last_resort: threading.Timer | None = None
        self._ready = asyncio.Event()

    def handler(
        self,
        queue: str | Queue,
        *,
        retries: int | None = 3,
        immediate: int = 0,
        timeout: Duration | None = None,
        concurrency: int | None = None,
        prefetch: int | None = None,
    ) -> Callable[[_Handler], _Handler]:
        """Register a function as the handler of a queue; use it as a decorator.

        The function takes the `Message`, a typed body, or both. An async function runs in the event
        loop, a sync one in a thread. When it returns, the message is acked. When it raises, it is
        tried again: `immediate` times at once, then by the retrier's tiers, `retries` times; then
        the message goes to the dead letter queue with error type, reason and stack in its headers.

        - `retries=0`: no retry. `retries=None`: what the policy of the routing key says. A dead
          letter in Redrive's store is revived by its strategy: one that timed out, of itself.
        - `timeout`: a handler that takes longer has failed, also if it returns in the end. For a
          sync function, its thread goes on by itself, and as many may as `concurrency` says. A
          text such as "30s", "5m", "1h30m", "250ms", or a `timedelta`; no number.
        - `concurrency`: how many messages are handled at a time; 20, if `prefetch` is not less.
        - `prefetch`: how many of them and of those that wait the broker hands out, up to 65535;
          200, if `concurrency` is not more. Where so many do not fit in memory it is lowered.
        """
        wishes.a_queue(queue, Queue)
        if retries is not None:
            wishes.whole_number("retries", retries, least=0)
        wishes.whole_number("immediate", immediate, least=0)
        at_a_time, ahead = _widths(concurrency, prefetch)
        limits = Limits(retries=retries, immediate=immediate, timeout=_timeout(timeout))
        source = Queue(queue) if isinstance(queue, str) else queue

        def register(function: _Handler) -> _Handler:
            arguments_of(function)  # what is wrong with it is told here, not at the first message
            name = getattr(function, "__name__", type(function).__name__)
            self._refuse_own(source, name)
            self._refuse_twice(source, name)
            remember_limits(function, limits)
            self._registered.append(
                Registered(
                    name=name,
                    handler=function,
                    queue=source,
                    limits=limits,
                    concurrency=at_a_time,
                    prefetch=ahead,
                    threads=Threads(name, at_a_time),
                )
            )
            return function

        return register

    def _refuse_own(self, queue: Queue, name: str) -> None:
        if queue.name in own_queues(self._settings.topology, self._settings.queue):
            raise SettingsError(
                f"handler {name}: the queue {queue.name!r} is Redrive's own",
                remedy="what dies becomes a letter; handle the queue where it was published to",
            )

    def _refuse_twice(self, queue: Queue, name: str) -> None:
        for other in self._registered:
            same = queue.name == other.queue.name
            if (same and queue.name) or (
                same and queue.exchange == other.queue.exchange and name == other.name
            ):
                shared = queue.name or f"{queue.exchange}.{name}"
                raise SettingsError(
                    f"handlers {other.name} and {name} would share a queue, {shared!r}",
                    remedy="a queue has one handler: name another, or call one from the other",
                )

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C, then drain, within ten seconds. At a second one no
        handler is waited for: what is being handled goes back to its queue. A third ends the
        process as it is.

        In the main thread, where no event loop runs. Elsewhere: `await consumer.serve(stopping)`.
        """
        _refuse_elsewhere()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._run(runner)
        finally:
            if self._last_resort is not None:  # what the caller does now has time
                self._last_resort.cancel()
            if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # and may be interrupted
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def _run(self, runner: asyncio.Runner) -> None:
        stopping, ended = asyncio.Event(), None
        serving = runner.get_loop().create_task(self._until_signalled(stopping))
        while not serving.done():
            try:
                runner.run(_ended(serving))
            except (SystemExit, KeyboardInterrupt) as error:
                # In a task or callback that a handler left behind: no message is to blame.
                log.error("consumer.ended_from_within", error=repr(error))
                ended = ended or error
                self._stop(stopping)
        if ended is not None:
            raise ended

    async def serve(self, stopping: asyncio.Event) -> None:
        """Serve in a loop that is yours, until the event is set; then drain. Signals are yours too:
        have them set the event.

        Through every loss of the broker: it connects again, with growing waits.
        """
        if not self._registered:
            raise SettingsError(
                "the consumer has no handler", remedy="register one with @consumer.handler(queue)"
            )

        async def session() -> None:
            self._session = Session(
                self._registered,
                self._settings,
                connect=self._connect,
                name=self._name,
                known=self._known,
            )
            await self._session.run(stopping, self._on_serving)

        await supervise(session, on_lost=self._on_lost, stopping=stopping)

    async def ready(self) -> None:
        """Wait until every queue is declared and consumed."""
        await self._ready.wait()

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes | str,
        *,
        message_id: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> None:
        """Publish a persistent message, as handlers do that hand work on, and wait until the broker
        has it. Raises `Unpublishable` if no queue takes it, and `ConnectionLost` if the consumer
        ends, or loses the broker, before that is known. Only while the consumer serves."""
        sending = self._serving()
        properties = Properties.empty()
        if message_id is not None:
            properties = properties.with_text("message_id", message_id)
        if headers:
            properties = properties.with_headers(
                {name: _field(name, value) for name, value in headers.items()}
            )
        answer = await sending.send(
            Publish(exchange, routing_key, properties.persistent().raw, _content(body)),
            by_handler=True,
        )
        if answer is not CONFIRMED:
            why = str(answer.error) if isinstance(answer, Poison) else str(answer)
            raise Unpublishable(
                f"no queue took the message: exchange {exchange!r}, routing key {routing_key!r}:"
                f" {why}",
                remedy="bind a queue with that key, or correct the exchange and the key",
            )

    def _serving(self) -> Sending:
        if self._session is None or self._session.sending is None:
            raise ConnectionLost("the consumer has no connection", remedy="publish while it serves")
        return self._session.sending

    async def _until_signalled(self, stopping: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()

        def signalled() -> None:
            if not stopping.is_set():
                self._stop(stopping)
                return
            if self._session is not None:
                self._session.hurry()
            for number in _SIGNALS:  # a third one ends the process as it is
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)  # Python's own for Ctrl-C would raise

        for number in _SIGNALS:
            loop.add_signal_handler(number, signalled)
        await self.serve(stopping)

    def _stop(self, stopping: asyncio.Event) -> None:
        stopping.set()
        self._last_resort = self._last_resort or _end_at_the_latest()

    async def _connect(self, name: str) -> amqp.Connection:
        return await amqp.connect(self._addresses, name=name)

    def _on_serving(self, waiting: int) -> None:
        if waiting:
            self._ready.clear()
        else:
            self._ready.set()
        if self._outage.is_over():
            log.info("consumer.back")

    def _on_lost(self, error: BrokerError, delay: timedelta) -> None:
        self._ready.clear()
        if not self._outage.is_news(str(error)):
            return
        log.warning(
            "consumer.lost",
            error=str(error),
            remedy=error.remedy,
            retry_in_s=round(delay.total_seconds(), 3),
        )


def _refuse_elsewhere() -> None:
    if in_a_loop():
        raise SettingsError(
            "consumer.run() starts an event loop, and one is running here",
            remedy="use 'await consumer.serve(stopping)', with an asyncio.Event that ends it",
        )
    if threading.current_thread() is not threading.main_thread():
        raise SettingsError(
            "consumer.run() listens to signals, which only the main thread can",
            remedy="use 'await consumer.serve(stopping)' in a loop of that thread's own",
        )


async def _ended(task: asyncio.Task[None]) -> None:
    await task


def _end_at_the_latest() -> threading.Timer:
    """SIGTERM promises ten seconds: a handler that blocks the loop, or does not let itself be
    cancelled, ends with the process. What it had goes back to its queue."""

    def end() -> None:
        log.error("consumer.ended_by_force", after_s=_GONE_WITHIN)
        os._exit(1)

    timer = threading.Timer(_GONE_WITHIN, end)
    timer.daemon = True
    timer.start()
    return timer


def _timeout(wanted: Duration | None) -> timedelta | None:
    if wanted is None:
        return None
    timeout = read_duration("timeout", wanted)
    if not timeout:
        raise SettingsError(
            "timeout: expected more than no time at all", remedy="for no timeout, leave it out"
        )
    return timeout


def _widths(concurrency: int | None, prefetch: int | None) -> tuple[int, int]:
    """How many at a time, and how many ahead."""
    if concurrency is not None:
        wishes.whole_number("concurrency", concurrency, least=1, most=wishes.MOST_PREFETCH)
    if prefetch is not None:
        wishes.whole_number("prefetch", prefetch, least=1, most=wishes.MOST_PREFETCH)
    if concurrency is None:
        concurrency = _CONCURRENCY if prefetch is None else min(_CONCURRENCY, prefetch)
    if prefetch is None:
        prefetch = max(_PREFETCH, concurrency)
    if concurrency > prefetch:
        raise SettingsError(
            f"concurrency: {concurrency} at a time, but with prefetch={prefetch} the broker never"
            " hands out as many",
            remedy=f"give a prefetch of {concurrency} or more, or leave it out",
        )
    return concurrency, prefetch


def _content(body: bytes | str) -> bytes:
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    raise Unpublishable(
        f"the body of a message is bytes or text, not {type(body).__name__}",
        remedy="make it that first, with json.dumps for example",
    )


def _field(name: str, value: HeaderValue) -> bytes:
    if isinstance(value, bool):
        return fields.boolean(value)
    if isinstance(value, int):
        return fields.int64(value)
    if isinstance(value, (str, bytes)):
        return fields.longstr(value)
    raise SettingsError(f"header {name!r}: expected text, bytes, a number or a bool, got {value!r}")
