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
REFUSED = "#.#.#"
"""By RabbitMQ 4.3, which takes two such words at most."""
KEYS = ["", "a", ".", "a.", ".a", "a.a", "a.b", "a..a", "b.a.a", "a.a.a", "...", "*", "#", "a.#"]


def patterns_of(vhost: Vhost) -> list[str]:
    version = vhost.node.api("GET", "overview")["rabbitmq_version"]
    known = tuple(map(int, version.split(".")[:2])) < (4, 3)
    return [pattern for pattern in PATTERNS if known or pattern != REFUSED]


def test_a_pattern_matches_the_keys_that_a_topic_exchange_routes_by_it(vhost: Vhost) -> None:
    patterns = patterns_of(vhost)
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("topics", "topic")
        channel.confirm_delivery()
        queues = [f"q{number}" for number in range(len(patterns))]
        for queue, pattern in zip(queues, patterns, strict=True):
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
            pattern: sorted(drain(queue)) for queue, pattern in zip(queues, patterns, strict=True)
        }
    ours = {
        pattern: sorted(
            key
            for key in KEYS
            if PolicyBook([PolicyRow(id=1, name=pattern, max_retries=1)]).find(key)
        )
        for pattern in patterns
    }
    assert ours == routed
