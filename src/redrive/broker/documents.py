"""The parts of a topology and how they stand, as programs see them."""

from __future__ import annotations

from typing import Any

from redrive.broker.drift import Finding
from redrive.broker.topology import Binding, Exchange, Part, Queue


def part_document(part: Part) -> dict[str, Any]:
    """An exchange, a queue or a binding."""
    match part:
        case Exchange():
            return {"part": "exchange", "name": part.name, "type": part.kind}
        case Queue():
            return {"part": "queue", "name": part.name, "arguments": dict(part.arguments)}
        case Binding():
            return {
                "part": "binding",
                "exchange": part.exchange,
                "queue": part.queue,
                "routingKey": part.routing_key,
            }


def finding_document(finding: Finding) -> dict[str, Any]:
    """A part, and how it stands on the broker."""
    return {
        **part_document(finding.part),
        "standing": finding.standing.value,
        "differences": [
            {"what": one.what, "expected": one.expected, "got": one.got}
            for one in finding.differences
        ],
        "note": finding.note or None,
    }
