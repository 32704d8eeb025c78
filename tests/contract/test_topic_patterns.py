"""Names with wildcards mean what they mean to a topic exchange of the real broker."""

from __future__ import annotations

from itertools import product

import pika

from redrive.domain.policy import PolicyBook, PolicyRow
from tests.services.plugin import Vhost

WORDS = ("a", "", "*", "#")
PATTERNS = sorted(
    {".".join(words) for size in (1, 2, 3) for words in product(WORDS, repeat=size)}
    - {".".join(words) for size in (1, 2, 3) for words in product(("a", ""), repeat=size)}
)
KEYS = ["", "a", ".", "a.", ".a", "a.a", "a.b", "a..a", "b.a.a", "a.a.a", "...", "*", "#", "a.#"]


def test_a_pattern_matches_the_keys_that_a_topic_exchange_routes_by_it(vhost: Vhost) -> None:
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("topics", "topic")
        channel.confirm_delivery()
        queues = [f"q{number}" for number in range(len(PATTERNS))]
        for queue, pattern in zip(queues, PATTERNS, strict=True):
            channel.queue_declare(queue)
            channel.queue_bind(queue, "topics", pattern)
        for key in KEYS:
            channel.basic_publish("topics", key, key.encode())

        def drain(queue: str) -> list[str]:
            keys = []
            while (answer := channel.basic_get(queue, auto_ack=True))[0] is not None:
                keys.append(answer[2].decode())
            return keys

        routed = {
            pattern: sorted(drain(queue)) for queue, pattern in zip(queues, PATTERNS, strict=True)
        }
    ours = {
        pattern: sorted(
            key
            for key in KEYS
            if PolicyBook([PolicyRow(id=1, name=pattern, max_retries=1)]).find(key)
        )
        for pattern in PATTERNS
    }
    assert ours == routed
