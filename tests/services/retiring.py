"""What tests of retention need: letters in every state, and a cold storage to look into."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert

from redrive.amqp import fields
from redrive.domain.lifecycle import State
from redrive.store.changing import Changes, lock_letters
from redrive.store.schema import redrive_edit
from redrive.store.store import Store
from tests.services.letters import BEGAN, arrival, died_in, sent_by_a_worker

PERIODS = {
    State.RESOLVED: timedelta(days=30),
    State.FAILED: timedelta(days=90),
    State.ARCHIVED: timedelta(days=365),
}
CHANGED = BEGAN.replace(microsecond=0) + timedelta(hours=1)
"""When letters came into the state that a test wants them in."""

_WAYS: dict[State, Sequence[State]] = {
    State.PENDING: (State.PENDING,),
    State.PROCESSING: (),
    State.RESOLVED: (State.RESOLVED,),
    State.FAILED: (State.FAILED,),
    State.MANUAL: (State.MANUAL,),
    State.ARCHIVED: (State.MANUAL, State.ARCHIVED),
}


async def letter_in(
    store: Store,
    state: State,
    body: bytes = b'{"order": 1}',
    *,
    at: datetime = CHANGED,
    edits: Sequence[bytes] = (),
    **more: Any,
) -> str:
    """A letter that was sent once, and has been in a state since a moment; its id."""
    headers = {**died_in("orders"), "redrive-tags": fields.longstr("paid,urgent")}
    given = arrival(body, **{"headers": headers, **more})
    await store.letters.add([given])
    await sent_by_a_worker(store, given)
    async with store.database.writing() as connection:
        for number, edited in enumerate(edits, 1):
            await connection.execute(
                insert(redrive_edit).values(
                    letter_id=given.letter.id,
                    number=number,
                    at=BEGAN,
                    actor="me",
                    reason="mended",
                    properties=given.envelope.properties,
                    body=edited,
                    undone=number < len(edits),
                )
            )
        for step in _WAYS[state]:
            changes = Changes(connection, at, "me")
            letters = await lock_letters(connection, [given.letter.id])
            changes.become(letters[given.letter.id], step, "as the test wants it")
            await changes.flush()
    return given.letter.id


async def state_of(store: Store, letter_id: str) -> State | None:
    """None for a letter that is not there."""
    letter = await store.letters.get(letter_id)
    return None if letter is None else letter.status
