"""Users, tokens, sessions, the audit log, notes and repeated requests, on both engines."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from redrive.domain.access import Role, why_not_user
from redrive.domain.filters import GroupNote
from redrive.errors import CursorRefused, LastOneRefused, NotedMeanwhile
from redrive.store.requests import KEPT
from redrive.store.store import Store
from tests.services.letters import failed

TOKEN = "00000000-0000-7000-8000-000000000001"
HOUR = timedelta(hours=1)


async def add_token(store: Store, number: int) -> str:
    """The id of a new token."""
    one = f"00000000-0000-7000-8000-{number:012x}"
    digest = number.to_bytes(32, "big")
    await store.access.add_token(one, digest, name="ci", role=Role.VIEWER, by="t", lasts=None)
    return one


async def usable(store: Store) -> list[str]:
    """The ids of the tokens that are not revoked."""
    return [token.id for token in await store.access.tokens() if token.revoked_at is None]


async def test_once_somebody_can_log_in_the_last_user_or_token_stays(store: Store) -> None:
    assert not await store.access.anybody()
    await store.access.set_user("ann", Role.VIEWER, "hash")
    assert await store.access.anybody()
    with pytest.raises(LastOneRefused, match="last who can log in"):
        await store.access.delete_user("ann")
    first = await add_token(store, 1)
    assert await store.access.delete_user("ann")
    with pytest.raises(
        LastOneRefused, match="token 'ci' is the last that is not revoked"
    ) as refused:
        await store.access.revoke(first)
    assert "a user or another token first" in refused.value.remedy
    assert await usable(store) == [first]
    second = await add_token(store, 2)
    assert await store.access.revoke(first)
    assert await store.access.revoke(first), "a second time it changes nothing"
    assert await usable(store) == [second]
    await store.access.set_user("ann", Role.VIEWER, "hash")
    assert await store.access.revoke(second)
    assert await store.access.anybody()


async def test_the_last_token_stays_also_when_two_are_revoked_at_once(store: Store) -> None:
    left = await add_token(store, 0)
    for number in range(1, 6):
        other = await add_token(store, number)
        outcomes = await asyncio.gather(
            store.access.revoke(left), store.access.revoke(other), return_exceptions=True
        )
        assert [type(one) for one in outcomes].count(LastOneRefused) == 1, outcomes
        (left,) = await usable(store)


async def test_the_last_user_and_the_last_token_do_not_go_at_once(store: Store) -> None:
    for number in range(5):
        await store.access.set_user("ann", Role.VIEWER, "hash")
        tokens = await usable(store) or [await add_token(store, number)]
        outcomes = await asyncio.gather(
            store.access.delete_user("ann"),
            store.access.revoke(tokens[0]),
            return_exceptions=True,
        )
        assert [type(one) for one in outcomes].count(LastOneRefused) == 1, outcomes
        assert await store.access.anybody()


async def test_the_last_admin_stays_one_also_when_two_go_at_once(store: Store) -> None:
    await store.access.add_token(TOKEN, b"d" * 32, name="ci", role=Role.ADMIN, by="t", lasts=HOUR)
    await store.access.set_user("viewer", Role.VIEWER, "hash")
    for _ in range(5):
        for name in ("ann", "bob"):
            await store.access.set_user(name, Role.ADMIN, "hash")
        outcomes = await asyncio.gather(
            store.access.delete_user("ann"),
            store.access.set_user("bob", Role.OPERATOR, None),
            return_exceptions=True,
        )
        assert [type(one) for one in outcomes].count(LastOneRefused) == 1, outcomes
        roles = [user.role for user in await store.access.users()]
        assert roles.count(Role.ADMIN) == 1
    assert await store.access.delete_user("viewer")
    (last,) = [user for user in await store.access.users() if user.role is Role.ADMIN]
    with pytest.raises(LastOneRefused, match="last user who is admin"):
        await store.access.delete_user(last.name)
    assert not await store.access.set_user(last.name, Role.ADMIN, "another hash")


async def test_a_token_is_valid_until_it_expires_or_is_revoked(store: Store) -> None:
    made = await store.access.add_token(
        TOKEN, b"d" * 32, name="ci", role=Role.OPERATOR, by="t", lasts=HOUR
    )
    await store.access.set_user("ann", Role.VIEWER, "hash")
    assert await store.access.token(b"d" * 32) == made
    assert await store.access.token(b"e" * 32) is None
    store.clock.ahead = HOUR
    assert await store.access.token(b"d" * 32) is None
    store.clock.ahead = timedelta(0)
    revoked = await store.access.revoke(TOKEN)
    assert revoked is not None
    assert revoked.revoked_at is not None
    assert await store.access.token(b"d" * 32) is None
    assert await store.access.revoke(TOKEN.replace("1", "2")) is None


async def test_a_session_ends_by_itself_and_with_every_change_of_its_user(store: Store) -> None:
    await store.access.set_user("bob", Role.ADMIN, "hash")
    assert await store.access.set_user("ann", Role.VIEWER, "hash")
    await store.access.begin(b"s" * 32, "ann", "csrf", HOUR)
    session = await store.access.session(b"s" * 32)
    assert session is not None
    assert (session.user, session.role, session.csrf) == ("ann", Role.VIEWER, "csrf")
    store.clock.ahead = HOUR
    assert await store.access.session(b"s" * 32) is None
    assert await store.access.forget() == 1
    store.clock.ahead = timedelta(0)
    for change in (
        store.access.set_user("ann", Role.ADMIN, None),
        store.access.delete_user("ann"),
    ):
        await store.access.set_user("ann", Role.ADMIN, "hash")
        await store.access.begin(b"s" * 32, "ann", "csrf", HOUR)
        await change
        assert await store.access.session(b"s" * 32) is None


async def test_a_new_user_needs_a_password(store: Store) -> None:
    with pytest.raises(LookupError):
        await store.access.set_user("ann", Role.VIEWER, None)
    assert await store.access.users() == []


def test_names_and_passwords_that_cannot_be_meant_are_refused() -> None:
    assert why_not_user("ann", "long enough") is None
    for name, password in (("", "long enough"), (" ann", "long enough"), ("a\nb", "long enough")):
        assert why_not_user(name, password)
    assert why_not_user("ann", "short")
    assert why_not_user("a" * 101, "long enough")


async def test_the_audit_log_is_read_in_pages_newest_first(store: Store) -> None:
    for number in range(5):
        entry = await store.audit_log.begin("a", Role.ADMIN, "::1", f"x.{number % 2}", "{}")
        await store.audit_log.end(entry, 200, '{"n": 1}')
    await store.audit_log.begin("b", Role.VIEWER, "::1", "y", "{}")
    page = await store.audit_log.page(limit=4)
    rest = await store.audit_log.page(limit=4, after=page.next)
    found = [*page.items, *rest.items]
    assert [entry.action for entry in found] == ["y", "x.0", "x.1", "x.0", "x.1", "x.0"]
    assert [entry.outcome for entry in found] == [None, 200, 200, 200, 200, 200]
    assert rest.next is None
    assert len((await store.audit_log.page(actor="a", action="x.0")).items) == 3
    assert len((await store.audit_log.page(action="x.*")).items) == 5
    assert len((await store.audit_log.page(actor="?", from_=found[0].at)).items) >= 1
    assert not (await store.audit_log.page(until=found[-1].at - timedelta(seconds=1))).items
    for wrong in ("x", "-1", "9" * 40):
        with pytest.raises(CursorRefused):
            await store.audit_log.page(after=wrong)


async def test_of_requests_with_one_key_the_first_is_carried_out(store: Store) -> None:
    begun = await asyncio.gather(*(store.requests.begin("a", "key", b"d" * 32) for _ in range(5)))
    assert [known is None for known in begun].count(True) == 1
    assert {known.status for known in begun if known is not None} == {None}
    await store.requests.end("a", "key", 201, b"{}")
    again = await store.requests.begin("a", "key", b"d" * 32)
    assert again is not None
    assert (again.same, again.status, again.body) == (True, 201, b"{}")
    other = await store.requests.begin("a", "key", b"e" * 32)
    assert other is not None
    assert not other.same
    assert await store.requests.begin("b", "key", b"e" * 32) is None
    store.clock.ahead = KEPT
    assert await store.requests.begin("a", "key", b"e" * 32) is None
    store.clock.ahead = 2 * KEPT
    assert await store.requests.forget() == 2


async def test_a_note_is_written_over_and_gone_when_it_is_empty(store: Store) -> None:
    first = await store.notes.set("f1", "first", None, "ann", made_from=None)
    assert first is not None
    second = await store.notes.set("f1", "second", "bob", "ann", made_from=first.updated_at)
    assert second is not None
    await store.notes.set("f2", "", "bob", "ann", made_from=None)
    found = await store.notes.of(["f1", "f2", "f3"])
    assert found["f1"] == second
    assert (second.note, second.assignee) == ("second", "bob")
    assert set(found) == {"f1", "f2"}
    assert await store.notes.set("f1", "", None, "ann", made_from=second.updated_at) is None
    assert set(await store.notes.of(["f1", "f2"])) == {"f2"}


async def test_a_note_replaces_the_one_that_its_writer_saw_and_no_other(store: Store) -> None:
    async def write(note: str, made_from: datetime | None) -> GroupNote | None:
        try:
            return await store.notes.set("f1", note, None, "ann", made_from=made_from)
        except NotedMeanwhile:
            return None

    made_from: datetime | None = None
    for _ in range(5):  # also within one millisecond
        written = [
            note for note in await asyncio.gather(*(write(x, made_from) for x in "abcd")) if note
        ]
        assert len(written) == 1
        assert (await store.notes.of(["f1"]))["f1"] == written[0]
        made_from = written[0].updated_at


async def test_series_and_ages_are_told_by_indexes(store: Store) -> None:
    added = await store.letters.add([failed("x"), failed("y")])
    at = added[0].letter.created_at
    edges = [at - HOUR, at + HOUR, at + 2 * HOUR]
    assert await store.series.arrivals(edges) == [2, 0]
    assert await store.series.arrivals(edges, added[0].letter.fingerprint) == [1, 0]
    await store.decisions.discard([added[0].letter.id], "t")
    await store.decisions.restore([added[0].letter.id], "t")
    await store.decisions.resolve([added[0].letter.id], "t")
    now = await store.series.now()
    assert await store.series.resolutions([now - HOUR, now + HOUR]) == [1]
    ages = await store.series.ages()
    assert len(ages.waited) == 1
    assert {state.word for state in ages.oldest} == {"pending", "resolved"}
