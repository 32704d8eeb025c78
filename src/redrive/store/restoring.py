"""Exported letters come back as they were: ids, states, history, attempts and bytes.

Only what would strand a letter is mended: one that is pending is due at some time, and nobody holds
one that comes from a file, so what was being sent is in doubt.

The books receive them like any other, so they stay exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.amqp.properties import Properties
from redrive.domain import headers
from redrive.domain.deaths import read_deaths
from redrive.domain.failure import MAX_NAME, failed_queue
from redrive.domain.letter import Kept, Result
from redrive.domain.lifecycle import State
from redrive.domain.texts import storable
from redrive.errors import MalformedData
from redrive.store.books import Deltas, book
from redrive.store.bulk import insert_envelopes, insert_letters, insert_many
from redrive.store.digests import envelope_digest
from redrive.store.groups import add_groups
from redrive.store.identity import claim_identities, identity_of
from redrive.store.schema import (
    RECEIVED,
    redrive_attempt,
    redrive_edit,
    redrive_history,
    redrive_letter,
    redrive_tag,
)


async def restore(connection: AsyncConnection, kept: Sequence[Kept], now: datetime) -> int:
    """Add the letters whose ids are not there; how many."""
    ids = [each.letter.id for each in kept]
    there = set(
        (
            await connection.execute(
                select(redrive_letter.c.id).where(redrive_letter.c.id.in_(ids))
            )
        ).scalars()
    )
    absent = {each.letter.id: each for each in kept if each.letter.id not in there}
    new = [_unstranded(each, now) for each in absent.values()]
    if not new:
        return 0
    # In the order of the collectors, or the two could wait for each other.
    await claim_identities(connection, _identities(new))
    await add_groups(connection, [each.letter for each in new])
    await insert_letters(
        connection, [(each.letter, envelope_digest(each.envelope)) for each in new]
    )
    await insert_envelopes(connection, [(each.letter.id, each.envelope) for each in new])
    await _add_details(connection, new)
    deltas: Deltas = Counter()
    for each in new:
        deltas[each.letter.fingerprint, RECEIVED] += 1
        deltas[each.letter.fingerprint, each.letter.status.value] += 1
    await book(connection, deltas)
    return len(new)


def _unstranded(kept: Kept, now: datetime) -> Kept:
    letter = kept.letter
    verdict_due_at = letter.verdict_due_at
    attempts = tuple(
        replace(each, result=Result.IN_DOUBT) if each.result is Result.SENDING else each
        for each in kept.attempts
    )
    if letter.status is State.PROCESSING:
        newest = [each for each in attempts if each.generation == letter.generation]
        if any(each.queue is None for each in newest):  # no look at a queue will start its clock
            verdict_due_at = verdict_due_at or now
    restored = replace(
        letter,
        next_retry_at=(letter.next_retry_at or now) if letter.status is State.PENDING else None,
        verdict_due_at=verdict_due_at,
        locked_by=None,
        locked_at=None,
    )
    return replace(kept, letter=restored, attempts=attempts)


async def _add_details(connection: AsyncConnection, new: Sequence[Kept]) -> None:
    await insert_many(
        connection,
        redrive_tag,
        [
            {"tag": tag, "letter_id": each.letter.id}
            for each in new
            for tag in dict.fromkeys(each.letter.tags)
        ],
    )
    changes = [
        {
            "letter_id": each.letter.id,
            "at": change.at,
            "actor": change.actor,
            "before": change.before,
            "after": change.after,
            "reason": change.reason,
        }
        for each in new
        for change in each.history
        # The arrival needs no row, nor does a claim: the attempt tells it.
        if change.before is not None and change.after is not State.PROCESSING
    ]
    if changes:
        await connection.execute(insert(redrive_history), changes)
    await insert_many(
        connection,
        redrive_attempt,
        [
            {
                "letter_id": each.letter.id,
                "generation": attempt.generation,
                "at": attempt.at,
                "worker_id": attempt.worker_id,
                "strategy": attempt.strategy,
                "result": attempt.result.value,
                "queue": attempt.queue,
                "body_digest": attempt.body_digest,
                "before": attempt.before.value,
                "reason": attempt.reason,
                "replay_id": attempt.replay_id,
            }
            for each in new
            for attempt in each.attempts
        ],
    )
    await insert_many(
        connection,
        redrive_edit,
        [
            {
                "letter_id": each.letter.id,
                "number": edit.number,
                "at": edit.at,
                "actor": edit.actor,
                "reason": edit.reason,
                "properties": edit.properties,
                "body": edit.body,
                "undone": edit.undone,
            }
            for each in new
            for edit in each.edits
        ],
    )


def _identities(new: Sequence[Kept]) -> list[tuple[bytes, str]]:
    """So that a second copy of an imported letter is recognised."""
    found: list[tuple[bytes, str]] = []
    for each in new:
        try:
            properties = Properties.read(each.envelope.properties)
            said = properties.headers()
        except MalformedData:
            continue
        name, letter = said.get(headers.ID), each.letter
        if isinstance(name, str) and letter.parent_id is None and letter.previous_id is None:
            named = bool(properties.get("message_id")) and said.get(headers.UNNAMED) is not True
            then = replace(letter, queue=_failed_in(said, letter.queue))
            keys = identity_of(name, then, named=named)
            found += keys.wanted(letter.id, marked=said.get(headers.REDELIVERED) is True)
    return found


def _failed_in(said: Mapping[str, object], queue: str | None) -> str | None:
    """The queue where a message says that it failed. Its letter's, `queue`, is another one if a
    person has sent it to an exchange since, and a queue of that rejected it.

    What the broker wrote last counts before what is noted, as when it was collected."""
    noted = said.get(headers.QUEUE)
    told = noted if isinstance(noted, str) and noted else failed_queue(said)
    told = None if told is None else storable(told, MAX_NAME)
    died_in = [storable(death.queue, MAX_NAME) for death in read_deaths(said.get(headers.X_DEATH))]
    return next((name for name in died_in if name in (told, queue)), told)
