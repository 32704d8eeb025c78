"""The payment gateway of seed 001, on the consumer SDK.

    API ─▶ transaction.created ─▶ transaction worker ─▶ settlement.requested ─▶ settlement worker
                                                                                │
                                                dead letter queue ◀─ after 4 tries, or at once

Run it beside `redrive run`, and create transactions:

    python -m redrive.examples.payment_gateway --url amqp://guest:guest@127.0.0.1:5672/
    curl -d '{"card": "flaky", "amount": 12.5}' http://127.0.0.1:8080/transactions
    curl http://127.0.0.1:8080/transactions/tx-1

The card chooses how the settlement fails: `good` does not, `flaky` fails twice, `blocked` fails for
ever, `stolen` is a case for people at once.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from redrive.consumer import Consumer, DeadLetter, Message, Queue

CREATED: Final = "transaction.created"
REQUESTED: Final = "settlement.requested"
CARDS: Final = ("good", "flaky", "blocked", "stolen")
_LONGEST_REQUEST: Final = 64 * 1024


@dataclass
class Transaction:
    """What travels through the queues, and what the API shows."""

    id: str
    card: str
    amount: float
    status: str = "created"
    tries: int = 0


class CardBlocked(Exception):
    """The bank refuses this card, today."""


Tell = Callable[[Transaction], None]


class Gateway:
    """The gateway: an API's side that creates transactions, and two workers."""

    def __init__(self, consumer: Consumer, tell: Tell = lambda _: None) -> None:
        self._consumer = consumer
        self._tell = tell
        self._numbers = itertools.count(1)
        self.transactions: dict[str, Transaction] = {}
        # Auto-named queues, each bound to the exchange of its topic, as the seed has them.
        consumer.handler(Queue(exchange=CREATED), retries=3)(self.process)
        consumer.handler(Queue(exchange=REQUESTED, ttl="5m"), retries=3, timeout="30s")(self.settle)

    async def create(self, card: str, amount: float) -> Transaction:
        """The API: note the transaction, and tell the workers."""
        transaction = Transaction(f"tx-{next(self._numbers)}", card, amount)
        self.transactions[transaction.id] = transaction
        await self._publish(CREATED, transaction)
        return transaction

    async def process(self, transaction: Transaction) -> None:
        """The transaction worker: update the status, and ask for the settlement."""
        self._note(transaction.id, "processing")
        await self._publish(REQUESTED, transaction)

    async def settle(self, transaction: Transaction, message: Message) -> None:
        """The settlement worker: fails by choice, and says so by raising."""
        tries = message.retry_count + 1
        self._note(transaction.id, "settling", tries)
        if transaction.card == "stolen":
            self._note(transaction.id, "dead", tries)
            raise DeadLetter(f"card of {transaction.id} is stolen", error_type="STOLEN_CARD")
        if transaction.card == "blocked" or (transaction.card == "flaky" and tries < 3):
            self._note(transaction.id, "failed", tries)
            raise CardBlocked(f"the bank refused {transaction.amount:.2f} of {transaction.id}")
        self._note(transaction.id, "settled", tries)

    async def _publish(self, topic: str, transaction: Transaction) -> None:
        body = json.dumps(asdict(transaction))
        await self._consumer.publish(topic, topic, body, message_id=transaction.id)

    def _note(self, identity: str, status: str, tries: int = 0) -> None:
        transaction = self.transactions.setdefault(identity, Transaction(identity, "?", 0.0))
        transaction.status, transaction.tries = status, tries
        self._tell(transaction)


class Api:
    """POST /transactions creates one, GET /transactions/ID shows it. Just enough of HTTP."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def start(self, host: str, port: int) -> asyncio.Server:
        """Listen; the server is the caller's to close."""
        return await asyncio.start_server(self._serve, host, port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status, answer = await self._answer(reader)
        except (ValueError, TypeError, KeyError, asyncio.IncompleteReadError) as error:
            status, answer = "400 Bad Request", {"error": f"{type(error).__name__}: {error}"}
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
        writer.write(body)
        await writer.drain()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]]:
        method, path, _ = (await reader.readline()).decode().split(" ", 2)
        length = 0
        while line := (await reader.readline()).decode().strip():
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                length = min(int(value), _LONGEST_REQUEST)
        if (method, path) == ("POST", "/transactions"):
            asked = json.loads(await reader.readexactly(length))
            card = str(asked["card"])
            if card not in CARDS:
                raise ValueError(f"card: expected one of {', '.join(CARDS)}, got {card!r}")
            made = await self._gateway.create(card, float(asked["amount"]))
            return "201 Created", asdict(made)
        found = self._gateway.transactions.get(path.removeprefix("/transactions/"))
        if method != "GET" or found is None:
            return "404 Not Found", {"error": f"no {path}"}
        return "200 OK", asdict(found)


async def serve(url: str | None, host: str, port: int) -> None:
    """The API and both workers, until SIGTERM or Ctrl-C; then the workers drain."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    consumer = Consumer(url, name="payment gateway")
    server = await Api(Gateway(consumer, tell=_print)).start(host, port)
    async with server:
        await consumer.serve(stopping)


def _print(transaction: Transaction) -> None:
    print(f"{transaction.id}: {transaction.status}, try {transaction.tries}", flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description="The payment gateway of seed 001.")
    parser.add_argument("--url", help="the broker; else as Redrive's settings say")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()
    asyncio.run(serve(options.url, options.host, options.port))


if __name__ == "__main__":
    main()
