"""A broker of others: queues, policies and messages that Redrive did not make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.services.eventually import eventually
from tests.services.plugin import Vhost


class Foreign:
    """A vhost with things of others in it."""

    def __init__(self, vhost: Vhost) -> None:
        self.vhost = vhost
        self._path = quote(vhost.name, safe="")

    @contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        with pika.BlockingConnection(pika.URLParameters(self.vhost.url)) as connection:
            yield connection.channel()

    def declare(self, name: str, kind: str = "quorum", **arguments: Any) -> None:
        keys = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        with self.channel() as channel:
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind, **keys})

    def policy(
        self, name: str, definition: dict[str, Any], *, pattern: str = ".*", priority: int = 0
    ) -> None:
        body = {
            "pattern": pattern,
            "definition": definition,
            "apply-to": "queues",
            "priority": priority,
        }
        self.vhost.node.api("PUT", f"policies/{self._path}/{name}", body)

    def delete_policy(self, name: str) -> None:
        self.vhost.node.api("DELETE", f"policies/{self._path}/{name}")

    def operator_policy(self, name: str, definition: dict[str, Any]) -> None:
        body = {"pattern": ".*", "definition": definition, "apply-to": "queues"}
        self.vhost.node.api("PUT", f"operator-policies/{self._path}/{name}", body)

    def queue(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.vhost.node.api(
            "GET", f"queues/{self._path}/{quote(name, safe='')}"
        )
        return found

    def queues(self) -> list[dict[str, Any]]:
        """Every queue, asked one by one: the list leaves out policies on RabbitMQ 4."""
        listed = self.vhost.node.api("GET", f"queues/{self._path}?columns=name")
        return [self.queue(found["name"]) for found in listed]

    def in_force(self, name: str) -> tuple[str | None, dict[str, Any]]:
        """The policy that a queue shows, and its definition."""
        found = eventually(lambda: (queue := self.queue(name)) and "policy" in queue and queue)
        assert found
        return found["policy"], found["effective_policy_definition"] or {}

    def view(self) -> dict[str, Any]:
        """All that the management API says of queues, policies and bindings, but for counters."""
        kept = ("name", "type", "arguments", "durable", "policy", "effective_policy_definition")
        queues = self.queues()
        bindings = self.vhost.node.api("GET", f"bindings/{self._path}")
        return {
            "queues": {q["name"]: {key: q.get(key) for key in kept} for q in queues},
            "policies": self.vhost.node.api("GET", f"policies/{self._path}"),
            "bindings": sorted(bindings, key=str),
        }

    def settled_view(self) -> dict[str, Any]:
        """The view, once every queue shows which policy is in force."""

        def shown() -> bool:
            return all("policy" in queue for queue in self.queues())

        eventually(shown)
        return self.view()

    def reject_one(self, queue: str, body: bytes, routing_key: str = "") -> None:
        """Publish one message, confirmed, and reject it as a consumer would."""
        with self.channel() as channel:
            channel.confirm_delivery()
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", routing_key or queue, body, properties, mandatory=True)
            tag = eventually(lambda: channel.basic_get(queue)[0]).delivery_tag
            channel.basic_reject(tag, requeue=False)

    def work_at(self, queue: str, bodies: list[bytes]) -> None:
        """Handle a message, and leave these: once the statistics show it, a queue that works."""
        with self.channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish("", queue, b"handled", mandatory=True)
            tag = eventually(lambda: channel.basic_get(queue)[0]).delivery_tag
            channel.basic_ack(tag)
            for body in bodies:
                properties = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", queue, body, properties, mandatory=True)

            def shown() -> bool:
                found = self.queue(queue)
                acked = (found.get("message_stats") or {}).get("ack")
                return bool(acked) and found.get("messages") == len(bodies)

            eventually(shown)

    def shows(self, queue: str, messages: int) -> None:
        """Wait until the statistics say that it holds so many."""
        eventually(lambda: self.queue(queue).get("messages") == messages)

    def take(self, queue: str) -> bytes:
        with self.channel() as channel:
            got = eventually(lambda: channel.basic_get(queue, auto_ack=True)[2])
            assert isinstance(got, bytes)
            return got
