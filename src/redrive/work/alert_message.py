"""What a message about an alert says: what is the matter, since when, the three largest groups, and
where to look.

The document is what programs get; `title` and `text` are for people. Reasons of failures may hold
what must not be shown: they go through the redaction, as everywhere.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from redrive.domain.alerting import GroupAtFault, Telling, Told
from redrive.domain.masking import mask_text
from redrive.work.redact import Redaction
from redrive.work.times import rfc3339

_LONGEST_REASON: Final = 200


class AlertWords:
    """Writes messages."""

    def __init__(self, redaction: Redaction, public_url: str | None) -> None:
        """`public_url`: where the console is; without it a message has no links."""
        self._redaction = redaction
        self._url = public_url

    def document(self, told: Told) -> dict[str, Any]:
        """A message as programs get it; its id comes with it."""
        return {
            "alert": told.alert,
            "status": told.telling.value,
            "severity": told.severity.value,
            "summary": told.summary,
            "condition": told.condition,
            "value": told.value,
            "since": rfc3339(told.since),
            "at": rfc3339(told.at),
            "groups": [self._group(group) for group in told.groups],
            "link": self._url and f"{self._url}/",
        }

    def _group(self, group: GroupAtFault) -> dict[str, Any]:
        return {
            "fingerprint": group.fingerprint,
            "errorType": group.error_type,
            "reason": mask_text(self._redaction.reason(group.reason))[:_LONGEST_REASON],
            "queue": group.queue,
            "letters": group.letters,
            "link": self._url and f"{self._url}/groups/{group.fingerprint}",
        }


def title(document: dict[str, Any]) -> str:
    """One line."""
    return f"[{document['status']}] {document['alert']} ({document['severity']})"


def lines(document: dict[str, Any]) -> list[str]:
    """All that it says, for people."""
    found = [document["summary"]]
    if document["status"] == Telling.RESOLVED.value:
        found.append(f"It held from {document['since']} until {document['at']}.")
    else:
        found.append(f"Since {document['since']}.")
    value = document["value"]
    known = "unknown" if value is None else f"{value:.6g}"
    if document["condition"]:
        found.append(f"Condition: {document['condition']} (now {known})")
    if document["groups"]:
        found.append("Largest groups:")
    for group in document["groups"]:
        queue = group["queue"] or "unknown queue"
        line = f"- {group['letters']:,} letters in {queue}: {group['errorType']}: {group['reason']}"
        found.append(f"{line} {group['link']}" if group["link"] else line)
    if document["link"]:
        found.append(document["link"])
    return found


def read_time(text: str) -> datetime:
    """A time of a document."""
    return datetime.fromisoformat(text)
