"""What a role says of the broker before it begins."""

from __future__ import annotations

from structlog.testing import capture_logs

from redrive.readiness import assure_topology
from tests.services.consuming import settings_for
from tests.services.moving import holds
from tests.services.plugin import Vhost
from tests.services.retrying import publish_one


async def said_with(vhost: Vhost, tiers: str, event: str) -> list[str]:
    """What is said at the start, with these tiers."""
    with capture_logs() as logs:
        await assure_topology(settings_for(vhost.url, "quorum", tiers))
    return [log["finding"] for log in logs if log["event"] == event]


async def test_a_tier_that_the_settings_no_longer_have_is_named_with_what_waits_in_it(
    vhost: Vhost,
) -> None:
    assert not await said_with(vhost, "100ms,200ms,300ms", "topology.left_over")
    await publish_one(vhost.url, "retry-queue-3", "waits", exchange="")
    await holds(vhost.url, "retry-queue-3", 1)
    said = await said_with(vhost, "100ms,200ms", "topology.left_over")
    assert "queue retry-queue-3: 1 messages wait in it" in said


async def test_what_differs_is_named_with_what_was_expected(vhost: Vhost) -> None:
    assert not await said_with(vhost, "100ms,200ms", "topology.differs")
    (said,) = await said_with(vhost, "7s,200ms", "topology.differs")
    assert said.startswith("queue queue.delay.1: ")
    assert "x-message-ttl" in said
