"""What enroll says where the broker does not make a binding, or nobody knows whether it did."""

from __future__ import annotations

from typing import Any, cast

import pytest

from redrive.amqp import Connection
from redrive.broker.enroll import Enroller
from redrive.broker.enrollment import Intent
from redrive.broker.management import Management
from redrive.broker.topology import Binding, describe
from redrive.errors import AccessRefused, BrokerError, ConnectionLost, NotFound
from redrive.settings.sections import TopologyNames, TopologySettings

FORBIDDEN = AccessRefused(403, "ACCESS_REFUSED - write access to queue 'orders' refused")
MISSING = NotFound(404, "NOT_FOUND - no queue 'orders' in vhost '/'")
LOST = ConnectionLost("the connection to the broker was lost")


class Refusing:
    """A connection and its channel: what is asked for one queue is answered by an error."""

    error = None

    def __init__(self, queue: str, answer: BrokerError) -> None:
        self.queue = queue
        self.answer = answer
        self.unbound: list[str] = []

    async def channel(self) -> Refusing:
        return self

    async def close(self) -> None: ...

    async def bind_queue(self, queue: str, *_: object) -> None:
        if queue == self.queue:
            raise self.answer

    async def unbind_queue(self, queue: str, *_: object) -> None:
        self.unbound.append(queue)
        if queue == self.queue:
            raise self.answer


class Nothing:
    """A management API of a broker on which nothing is enrolled."""

    async def policy(self, _name: str) -> None: ...

    async def bindings_of(self, _queue: str) -> list[dict[str, Any]]:
        return []


async def enroll(connection: Refusing, *queues: str) -> BrokerError:
    enroller = Enroller(
        describe(TopologySettings()),
        TopologyNames(),
        cast("Connection", connection),
        cast("Management", Nothing()),
    )
    bindings = [Binding("redrive-return", queue, f"redrive-queue:{queue}") for queue in queues]
    with pytest.raises(BrokerError) as raised:
        await enroller.enroll([Intent(each.queue, None, None, (each,)) for each in bindings])
    return raised.value


@pytest.mark.parametrize("refusal", [FORBIDDEN, MISSING])
async def test_a_binding_that_the_broker_refused_is_not_taken_back_and_the_remedy_is_told(
    refusal: BrokerError,
) -> None:
    connection = Refusing("orders", refusal)
    error = await enroll(connection, "first", "orders", "last")
    assert str(error) == f"{refusal}; nothing was changed"
    assert error.remedy == refusal.remedy
    assert connection.unbound == ["first"]


async def test_a_binding_that_may_have_been_made_before_the_connection_was_lost_is_in_doubt() -> (
    None
):
    connection = Refusing("orders", LOST)
    error = await enroll(connection, "orders")
    assert "these queues are left changed: 'orders'" in str(error)
    assert "redrive topology unenroll orders" in error.remedy
    assert connection.unbound == ["orders"]
