"""What became of a replay, for people and programs: counts, reasons, and the JSON of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from redrive.domain.letter import Result
from redrive.domain.replay import NEEDS_NOBODY, Replay
from redrive.store.replay_looks import ReplayedLetter, ReplayLooks
from redrive.store.replays import Replays
from redrive.work.redact import Redaction
from redrive.work.times import rfc3339, rfc3339_or_none

_CONFIRMED: Final = (Result.SENT, Result.RETURNED, Result.FAILED, Result.RESOLVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A job, what became of its letters, and why some were not sent."""

    replay: Replay
    results: Mapping[Result, int]
    refusals: Counter[str]
    left_out: Counter[str] = field(default_factory=Counter)
    """Why letters were skipped, as far as the process that tells this has seen it."""
    keyless: int = 0
    """Of letters that keep an order: how many have no value there, by the same process."""

    @property
    def sent(self) -> int:
        """Confirmed by the broker, whatever became of them since."""
        return sum(self.results.get(each, 0) for each in _CONFIRMED)

    @property
    def refused(self) -> int:
        return self.results.get(Result.REFUSED, 0)

    @property
    def in_doubt(self) -> int:
        """Published without an answer: they may have been sent."""
        return self.results.get(Result.IN_DOUBT, 0)

    @property
    def sending(self) -> int:
        """Claimed and not recorded: on their way, or in doubt once the lease has ended."""
        return self.results.get(Result.SENDING, 0)

    @property
    def left(self) -> int:
        """Not taken yet."""
        return self.replay.letters - self.replay.position

    @property
    def all_went_well(self) -> bool:
        """Whether every letter was sent, or left out with nothing to do about it. What an earlier
        process left out may have had any reason."""
        fine = sum(number for reason, number in self.left_out.items() if reason in NEEDS_NOBODY)
        unsent = self.refused or self.in_doubt or self.sending
        return bool(self.sent) and not unsent and self.replay.skipped == fine


async def report_of(replays: Replays, looks: ReplayLooks, replay: Replay) -> Report:
    """What became of a job until now. To count that walks through its letters: once, and a second
    time only if there are refusals to tell the reasons of."""
    results = await replays.results(replay.id)
    refused = results.get(Result.REFUSED, 0)
    refusals = await looks.refusals(replay.id) if refused else Counter[str]()
    return Report(replay=replay, results=results, refusals=refusals)


def replay_document(replay: Replay) -> dict[str, Any]:
    """A job as lists have it."""
    return {
        "id": replay.id,
        "state": replay.state.value,
        "reason": replay.reason,
        "actor": replay.actor,
        "filters": replay.filters,
        "destination": replay.destination,
        "batchSize": replay.batch_size,
        "pause": replay.pause,
        "rate": replay.rate,
        "doubtful": replay.doubtful,
        "orderedBy": replay.ordered_by,
        "dropOldest": replay.drop_oldest,
        "letters": replay.letters,
        "position": replay.position,
        "skipped": replay.skipped,
        "lockedBy": replay.locked_by,
        "lockedAt": rfc3339_or_none(replay.locked_at),
        "createdAt": rfc3339(replay.created_at),
        "updatedAt": rfc3339(replay.updated_at),
    }


def report_document(report: Report) -> dict[str, Any]:
    """A job with what became of its letters."""
    return {
        **replay_document(report.replay),
        "sent": report.sent,
        "refused": report.refused,
        "inDoubt": report.in_doubt,
        "sending": report.sending,
        "left": report.left,
        "results": {result.value: number for result, number in sorted(report.results.items())},
        "refusals": reasons_document(report.refusals),
        "leftOut": reasons_document(report.left_out),
    }


def replayed_letter_document(replayed: ReplayedLetter, redaction: Redaction) -> dict[str, Any]:
    """One letter of a job, and what became of it there."""
    letter = None if replayed.letter is None else redaction.letter(replayed.letter)
    return {
        "id": replayed.id,
        "position": replayed.position,
        "result": None if replayed.result is None else replayed.result.value,
        "reason": replayed.reason,
        "at": rfc3339_or_none(replayed.at),
        "status": None if letter is None else letter.status.value,
        "errorType": None if letter is None else letter.error_type,
        "errorReason": None if letter is None else letter.error_reason,
        "queue": None if letter is None else letter.queue,
    }


def reasons_document(reasons: Counter[str]) -> list[dict[str, Any]]:
    """Reasons with how many letters each has, the most frequent first."""
    return [{"reason": reason, "letters": number} for reason, number in reasons.most_common()]
