"""The demo's second act: the payment gateway example, with every card that its API takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from redrive.consumer import Consumer
from redrive.events import Event, Events, LetterCollected
from redrive.examples.payment_gateway import REQUESTED, Api, Gateway, Transaction
from redrive.settings import Settings

_EXPECTED: Final = {
    "good": ("settled", 1),
    "flaky": ("settled", 3),
    "blocked": ("letter", 4),
    "stolen": ("letter", 1),
}


@dataclass(frozen=True, slots=True)
class Payment:
    """One payment, how it should have ended, and whether it did."""

    name: str
    end: str
    tries: int
    well: bool
    routing_key: str = REQUESTED


async def play_gateway(
    settings: Settings, events: Events, say: Callable[[str], None]
) -> list[Payment]:
    """Create a transaction with each card over the API, and wait for the end of all."""
    letters: dict[str, int] = {}
    changed = asyncio.Event()

    def tell(transaction: Transaction) -> None:
        say(f"       {transaction.id} ({transaction.card} card): {transaction.status}")
        changed.set()

    def collected(event: Event) -> None:
        if not isinstance(event, LetterCollected):
            return
        identity, reason = event.letter.message_id, event.letter.error_reason
        letters[identity] = letters.get(identity, 0) + 1
        say(f"       {identity}: a letter, {event.letter.error_type}: {reason}")
        changed.set()

    consumer = Consumer(settings=settings, name="payment gateway")
    gateway = Gateway(consumer, tell)
    hear_no_more = events.listen(collected)
    stopping = asyncio.Event()
    serving = asyncio.create_task(consumer.serve(stopping))
    server = await Api(gateway).start("127.0.0.1", 0)
    try:
        await consumer.ready()
        port = server.sockets[0].getsockname()[1]
        made = {card: (await _post(port, card))["id"] for card in _EXPECTED}
        while not all(_ended(gateway.transactions[each], letters) for each in made.values()):
            changed.clear()
            await changed.wait()
    finally:
        server.close()
        hear_no_more()
        stopping.set()
        await serving
    return [_judged(card, gateway.transactions[made[card]], letters) for card in _EXPECTED]


def _ended(transaction: Transaction, letters: dict[str, int]) -> bool:
    return transaction.status == "settled" or transaction.id in letters


def _judged(card: str, transaction: Transaction, letters: dict[str, int]) -> Payment:
    end, tries = _EXPECTED[card]
    found = "settled" if transaction.status == "settled" else "letter"
    copies = letters.get(transaction.id, 0)
    well = (found, transaction.tries, copies) == (end, tries, int(end == "letter"))
    return Payment(f"gateway: {card} card", end, tries, well)


async def _post(port: int, card: str) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"card": card, "amount": 99.99}).encode()
    writer.write(b"POST /transactions HTTP/1.1\r\nHost: gateway\r\n")
    writer.write(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    made: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return made
