"""The API, to change things: every action, its entry in the log, and requests sent twice."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from redrive.amqp import fields
from redrive.domain.letter import Arrival
from redrive.domain.lifecycle import State
from redrive.server import documents
from tests.services.letters import BEGAN, arrival, books_are_exact, died_in, failed
from tests.services.serving import V1, Server

JSON = {"content_type": "application/json"}


@pytest.fixture
def server(server_on_each: Server) -> Server:
    """Every change is tried on both engines."""
    return server_on_each


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client(headers={"Origin": server.address}) as opened:
        yield opened


async def add(server: Server, *reasons: str) -> list[str]:
    return await server.add(*(failed(reason) for reason in reasons))


def copied() -> Arrival:
    return arrival(headers={**died_in("orders"), "redrive-id": fields.longstr("r-1")})


async def state_of(server: Server, letter_id: str) -> State:
    letter = await server.store.letters.get(letter_id)
    assert letter is not None
    return letter.status


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["type"].removeprefix("urn:redrive:problem:")


# Every action is in the log


async def test_every_operation_that_changes_something_is_in_the_audit_log(
    server: Server, client: httpx.AsyncClient
) -> None:
    first, second, third = await add(server, "a", "b", "c")
    letter = await server.store.letters.get(first)
    assert letter is not None
    one, note = {"ids": [first]}, {"note": "n", "madeFrom": None}
    body = {"encoding": "utf8", "data": '{"order": 2}'}
    replay = {"filter": {"id": [second]}, "count": 1, "ignoreHealth": True}
    made: dict[str, str] = {}
    calls: list[tuple[str, str, str, Any, int]] = [
        ("edit_letter", "post", f"letters/{first}/edit", {"body": body}, 200),
        ("undo_edit", "post", f"letters/{first}/undo", {"edit": 1}, 200),
        (
            "edit_letters",
            "post",
            "letters/edit",
            {"filter": {"id": [first]}, "count": 1, "setHeaders": {"fixed": "yes"}},
            200,
        ),
        ("discard_letters", "post", "letters/discard", one, 200),
        ("restore_letters", "post", "letters/restore", one, 200),
        ("resolve_letters", "post", "letters/resolve", one, 200),
        ("archive_letters", "post", "letters/archive", {"ids": [third]}, 200),
        ("set_group_note", "put", f"groups/{letter.fingerprint}/note", note, 200),
        ("create_replay", "post", "replays", replay, 201),
        ("pause_replay", "post", "replays/{replay}/pause", {}, 200),
        ("resume_replay", "post", "replays/{replay}/resume", None, 200),
        ("cancel_replay", "post", "replays/{replay}/cancel", {"reason": "enough"}, 200),
        ("force_breaker", "post", "breakers/force", {"queue": "q", "position": "open"}, 200),
        ("release_breaker", "post", "breakers/release", {"queue": "q"}, 200),
        ("silence_alert", "post", "alerts/silence", {"name": "BreakerOpen", "for": "1h"}, 200),
        ("hear_alert", "post", "alerts/hear", {"name": "BreakerOpen"}, 200),
        ("set_policy", "put", "policies", {"name": "order.*", "maxRetries": 5}, 200),
        ("delete_policy", "delete", "policies?name=order.*", None, 200),
    ]
    later = {"create_token", "revoke_token", "set_user", "delete_user", "log_in", "log_out"}
    changing = {
        operation["operationId"]
        for path, methods in server.app.api.openapi()["paths"].items()
        for method, operation in methods.items()
        if path.startswith(V1) and method != "get"
    }
    assert {call[0] for call in calls} | later | {"preview_replay"} == changing
    for name, method, path, sent, expected in calls:
        before = await server.store.audit_log.newest()
        real = path.replace("{replay}", made.get("create_replay", ""))
        more = {} if sent is None else {"json": sent}
        answer = await client.request(method.upper(), f"{V1}/{real}", **more)
        assert answer.status_code == expected, (name, answer.text)
        made[name] = answer.json().get("id", "")
        entries = (await client.get(f"{V1}/audit", params={"limit": "1"})).json()["items"]
        assert entries[0]["id"] > before, name
        assert (entries[0]["actor"], entries[0]["outcome"]) == ("local", 200), name
    assert await books_are_exact(server.store)


async def test_what_was_refused_is_in_the_log_with_its_status(
    server: Server, client: httpx.AsyncClient
) -> None:
    await add(server, "a")
    await client.post(f"{V1}/letters/discard", json={"filter": {}, "count": 7})
    (entry,) = (await client.get(f"{V1}/audit")).json()["items"]
    assert (entry["action"], entry["outcome"]) == ("letters.discard", 409)
    assert entry["detail"] == {"filter": {}, "count": 7, "reason": ""}


async def test_a_decision_on_very_many_ids_is_in_the_log_with_its_reason_and_outcome(
    server: Server, client: httpx.AsyncClient
) -> None:
    ids = [*(await add(server, "a")), *(str(uuid.uuid4()) for _ in range(999))]
    done = await client.post(f"{V1}/letters/discard", json={"ids": ids, "reason": "too old"})
    assert done.json()["discarded"] == 1
    (entry,) = (await client.get(f"{V1}/audit")).json()["items"]
    assert (entry["detail"]["reason"], entry["detail"]["discarded"]) == ("too old", 1)
    assert entry["detail"]["ids"] == [*ids[:100], "and 900 more"]


# Bulk


@pytest.mark.parametrize("verb", ["discard", "archive"])
async def test_a_bulk_decision_is_refused_when_other_letters_match_than_were_counted(
    server: Server, client: httpx.AsyncClient, verb: str
) -> None:
    ids = await add(server, "same", "same", "same")
    filters = {"errorReason": "same"}
    count = (await client.get(f"{V1}/letters/count", params=filters)).json()["letters"]
    await add(server, "same")
    refused = await client.post(f"{V1}/letters/{verb}", json={"filter": filters, "count": count})
    assert problem(refused) == (409, "count-changed")
    assert refused.json()["letters"] == 4
    assert {await state_of(server, each) for each in ids} == {State.PENDING}
    done = await client.post(f"{V1}/letters/{verb}", json={"filter": filters, "count": 4})
    assert done.json() == {f"{verb}ed".replace("ee", "e"): 4, "unchanged": []}
    assert await books_are_exact(server.store)


async def test_a_decision_needs_ids_or_a_filter_with_a_count(client: httpx.AsyncClient) -> None:
    wrong: list[dict[str, Any]] = [
        {},
        {"filter": {}},
        {"ids": []},
        {"filter": {"queu": "x"}, "count": 0},
    ]
    for sent in wrong:
        assert problem(await client.post(f"{V1}/letters/discard", json=sent)) == (422, "invalid")


async def test_letters_that_may_not_change_are_counted_with_the_reason(
    server: Server, client: httpx.AsyncClient
) -> None:
    (one,) = await add(server, "x")
    answer = await client.post(f"{V1}/letters/restore", json={"ids": [one]})
    assert answer.json() == {
        "restored": 0,
        "unchanged": [{"reason": "it is pending, not archived", "letters": 1, "example": one}],
    }


# Edits


async def test_an_edit_is_shown_before_it_is_made_and_keeps_the_original(
    server: Server, client: httpx.AsyncClient
) -> None:
    (one,) = await server.store.letters.add([arrival(b'{"n": 9007199254740993}', properties=JSON)])
    path = f"{V1}/letters/{one.letter.id}/edit"
    patch = {"patchText": '[{"op": "replace", "path": "/n", "value": 9007199254740995}]'}
    shown = await client.post(path, json={**patch, "dryRun": True})
    documents.Edited.model_validate(shown.json())
    assert (shown.json()["edited"], shown.json()["edit"]) == (False, None)
    assert '+  "n": 9007199254740995' in shown.json()["diff"]
    done = await client.post(path, json=patch)
    assert (done.json()["edited"], done.json()["edit"]) == (True, 1)
    body = f"{V1}/letters/{one.letter.id}/body"
    assert (await client.get(body)).content == b'{"n": 9007199254740993}'
    edited = await client.get(body, params={"edited": "true"})
    assert edited.content == b'{"n": 9007199254740995}'


async def test_of_two_people_who_edit_at_once_the_second_is_told(
    server: Server, client: httpx.AsyncClient
) -> None:
    (one,) = await add(server, "x")
    path = f"{V1}/letters/{one}/edit"

    def body(text: bytes) -> dict[str, Any]:
        return {"encoding": "base64", "data": base64.b64encode(text).decode()}

    first = await client.post(path, json={"body": body(b"1"), "madeFrom": 0})
    assert first.json()["edit"] == 1
    second = await client.post(path, json={"body": body(b"2"), "madeFrom": 0})
    assert problem(second) == (409, "edited-meanwhile")
    # With what changed meanwhile, and the edit to make it from instead.
    assert second.json()["edit"] == 1
    assert second.json()["diff"][-1] == "+1"
    again = await client.post(path, json={"body": body(b"2"), "madeFrom": 1})
    assert again.json()["edit"] == 2
    await client.post(f"{V1}/letters/{one}/undo", json={"edit": 2})
    third = await client.post(path, json={"body": body(b"3"), "madeFrom": 2})
    assert (third.json()["edit"], third.json()["diff"][-2:]) == (1, ["-2", "+1"])


async def test_of_two_people_who_take_one_edit_back_the_second_is_told(
    server: Server, client: httpx.AsyncClient
) -> None:
    (one,) = await add(server, "x")
    for text in ("1", "2", "3"):
        body = {"encoding": "utf8", "data": text}
        await client.post(f"{V1}/letters/{one}/edit", json={"body": body})
    path = f"{V1}/letters/{one}/undo"
    assert problem(await client.post(path, json={})) == (422, "invalid")
    assert (await client.post(path, json={"edit": 3})).json()["undone"] == 3
    second = await client.post(path, json={"edit": 3})
    assert problem(second) == (409, "edited-meanwhile")
    assert (second.json()["edit"], second.json()["diff"][-2:]) == (2, ["-3", "+2"])
    sent = await client.get(f"{V1}/letters/{one}/body", params={"edited": "true"})
    assert sent.content == b"2"


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"body": {"encoding": "base64", "data": "%"}},
        {"patch": [{"op": "fly"}]},
        {"patch": [], "patchText": "[]"},
        {"setHeaders": {"x-death": "none"}},
        {"patchText": "nonsense"},
    ],
)
async def test_an_edit_that_cannot_be_meant_is_refused(
    server: Server, client: httpx.AsyncClient, sent: dict[str, Any]
) -> None:
    (one,) = await add(server, "x")
    assert problem(await client.post(f"{V1}/letters/{one}/edit", json=sent))[0] == 422


async def test_a_whole_group_is_edited_by_a_patch_after_a_look_at_one(
    server: Server, client: httpx.AsyncClient
) -> None:
    added = await server.store.letters.add(
        [arrival(b'{"a": 1}', properties=JSON) for _ in range(3)] + [arrival(b"no json")]
    )
    sent: dict[str, Any] = {
        "filter": {"group": added[0].letter.fingerprint},
        "patch": [{"op": "replace", "path": "/a", "value": 2}],
    }
    path = f"{V1}/letters/edit"
    look = (await client.post(path, json={**sent, "dryRun": True})).json()
    documents.EditedMany.model_validate(look)
    assert (look["letters"], look["fit"], look["edited"]) == (4, 3, 0)
    assert '+  "a": 2' in look["sample"]["diff"]
    assert problem(await client.post(path, json={**sent, "count": 3})) == (409, "count-changed")
    assert problem(await client.post(path, json={**sent, "count": 4})) == (409, "unfit")
    done = (await client.post(path, json={**sent, "count": 4, "skipUnfit": True})).json()
    assert (done["edited"], done["unfit"][0]["letters"]) == (3, 1)


# Replays


async def test_a_replay_is_previewed_confirmed_and_followed(
    server: Server, client: httpx.AsyncClient
) -> None:
    await add(server, "x", "y")
    wanted = {"filter": {"queue": "orders"}}
    preview = await client.post(f"{V1}/replays/preview", json=wanted)
    documents.ReplayPreview.model_validate(preview.json())
    assert preview.json()["matched"] == 2
    assert preview.json()["destinations"][0]["obstacles"] == ["there is no such queue"]
    wrong = await client.post(f"{V1}/replays", json={**wanted, "count": 3, "ignoreHealth": True})
    assert problem(wrong) == (409, "count-changed")
    made = await client.post(f"{V1}/replays", json={**wanted, "count": 2, "ignoreHealth": True})
    documents.Replay.model_validate(made.json())
    assert (made.status_code, made.json()["letters"], made.json()["filters"]) == (
        201,
        2,
        "queue orders",
    )
    one = await client.get(f"{V1}/replays/{made.json()['id']}")
    documents.ReplayReport.model_validate(one.json())
    letters = await client.get(f"{V1}/replays/{made.json()['id']}/letters")
    documents.ReplayLetterPage.model_validate(letters.json())
    assert letters.json() == {"items": [], "next": None}  # none was taken yet
    cancelled = await client.post(f"{V1}/replays/{made.json()['id']}/cancel", json={})
    assert cancelled.json()["state"] == "cancelled"
    again = await client.post(f"{V1}/replays/{made.json()['id']}/pause", json={})
    assert problem(again) == (409, "refused")


@pytest.mark.parametrize("given", [{}, {"dropOldest": False}, {"dropOldest": True}])
async def test_a_replay_tells_whether_full_queues_may_drop_their_oldest_messages_for_it(
    server: Server, client: httpx.AsyncClient, given: dict[str, Any]
) -> None:
    await add(server, "x")
    made = await client.post(f"{V1}/replays", json={"count": 1, "ignoreHealth": True, **given})
    documents.Replay.model_validate(made.json())
    assert made.json()["dropOldest"] is given.get("dropOldest", False)
    (entry,) = (await client.get(f"{V1}/audit")).json()["items"]
    assert entry["detail"]["dropOldest"] is made.json()["dropOldest"]
    assert entry["detail"]["ignoreHealth"] is True


@pytest.mark.parametrize("with_doubtful", [None, True, False])
async def test_of_letters_named_by_id_those_in_doubt_are_sent_unless_that_is_refused(
    server: Server, client: httpx.AsyncClient, with_doubtful: bool | None
) -> None:
    first, copy = await server.add(copied(), copied())
    wanted = {"filter": {"id": [first, copy]}, "withDoubtful": with_doubtful}
    found = (await client.post(f"{V1}/replays/preview", json=wanted)).json()
    assert (found["letters"], found["skipped"]) == ((0, 2) if with_doubtful is False else (2, 0))
    made = await client.post(f"{V1}/replays", json={**wanted, "count": 2, "ignoreHealth": True})
    assert made.json()["doubtful"] is (with_doubtful is not False)


@pytest.mark.parametrize(
    "sent", [{"to": "nowhere"}, {"rate": 0}, {"orderedBy": "size"}, {"batchSize": 0}, {"pause": -1}]
)
async def test_a_replay_that_cannot_be_meant_is_refused(
    client: httpx.AsyncClient, sent: dict[str, Any]
) -> None:
    answer = await client.post(f"{V1}/replays", json={"count": 0, **sent})
    assert problem(answer) == (422, "invalid")


async def test_an_order_by_what_may_take_for_ever_is_refused_and_says_what_to_give(
    client: httpx.AsyncClient,
) -> None:
    order = {"orderedBy": "$[?search(@.name, '(a|a)*b')]"}
    for path in ("replays", "replays/preview"):
        count = {"count": 0} if path == "replays" else {}
        answer = await client.post(f"{V1}/{path}", json={**count, **order})
        assert problem(answer) == (422, "invalid")
        (error,) = answer.json()["errors"]
        assert "expected the path of one, such as $.order.id" in error["what"]


async def test_a_replay_of_nothing_is_none(client: httpx.AsyncClient) -> None:
    answer = await client.post(f"{V1}/replays", json={"count": 0, "ignoreHealth": True})
    assert problem(answer) == (409, "nothing-matches")


# Groups and policies


async def test_a_group_is_noted_and_assigned_and_cleared(
    server: Server, client: httpx.AsyncClient
) -> None:
    (one,) = await add(server, "x")
    letter = await server.store.letters.get(one)
    assert letter is not None
    path = f"{V1}/groups/{letter.fingerprint}"
    written = {"note": "<b>known</b>", "assignee": "ann", "madeFrom": None}
    await client.put(f"{path}/note", json=written)
    shown = (await client.get(path)).json()
    documents.GroupDocument.model_validate(shown)
    assert (shown["note"]["note"], shown["note"]["assignee"]) == ("<b>known</b>", "ann")
    assert shown["note"]["updatedBy"] == "local"
    second = await client.put(f"{path}/note", json={"note": "mine", "madeFrom": None})
    assert problem(second) == (409, "noted-meanwhile")
    assert (await client.get(path)).json()["note"] == shown["note"]
    assert problem(await client.put(f"{path}/note", json={})) == (422, "invalid")
    seen = {"madeFrom": shown["note"]["updatedAt"]}
    cleared = await client.put(f"{path}/note", json=seen)
    assert cleared.json()["note"] is None
    gone = await client.put(f"{V1}/groups/abc/note", json=seen)
    assert problem(gone) == (404, "not-found")


async def test_a_policy_is_set_listed_and_deleted(client: httpx.AsyncClient) -> None:
    added = await client.put(f"{V1}/policies", json={"name": "order.#", "maxRetries": 2})
    assert added.json() == {"name": "order.#", "outcome": "added"}
    (listed,) = (await client.get(f"{V1}/policies")).json()["items"]
    assert (listed["name"], listed["maxRetries"], listed["state"]) == ("order.#", 2, "in force")
    gone = await client.delete(f"{V1}/policies", params={"name": "order.#"})
    assert gone.json() == {"name": "order.#", "rows": 1}
    again = await client.delete(f"{V1}/policies", params={"name": "order.#"})
    assert problem(again) == (404, "not-found")


# Requests that are sent twice


async def test_a_request_with_a_key_is_done_once_and_answered_alike(
    server: Server, client: httpx.AsyncClient
) -> None:
    await add(server, "x")
    sent = {"filter": {}, "count": 1, "ignoreHealth": True}
    key = {"Idempotency-Key": "once"}
    first = await client.post(f"{V1}/replays", json=sent, headers=key)
    second = await client.post(f"{V1}/replays", json=sent, headers=key)
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert second.headers["idempotency-replayed"] == "true"
    assert len((await client.get(f"{V1}/replays")).json()["items"]) == 1
    other = await client.post(f"{V1}/replays", json={**sent, "count": 2}, headers=key)
    assert problem(other) == (422, "key-used")
    wrong = await client.post(f"{V1}/replays", json=sent, headers={"Idempotency-Key": "a b"})
    assert problem(wrong) == (422, "invalid")


async def test_of_many_requests_with_one_key_at_once_one_is_done(
    server: Server, client: httpx.AsyncClient
) -> None:
    await add(server, "x")
    sent = {"filter": {}, "count": 1, "ignoreHealth": True}
    key = {"Idempotency-Key": "race"}
    answers = await asyncio.gather(
        *(client.post(f"{V1}/replays", json=sent, headers=key) for _ in range(8))
    )
    assert {one.status_code for one in answers} <= {201, 409}
    assert len({one.json()["id"] for one in answers if one.status_code == 201}) == 1
    page = await server.store.replays.page()
    assert len(page.items) == 1


async def test_a_refusal_is_repeated_too_and_a_request_that_is_not_valid_may_be_mended(
    server: Server, client: httpx.AsyncClient
) -> None:
    key = {"Idempotency-Key": "mend"}
    bad = await client.post(f"{V1}/letters/discard", json={"count": 1}, headers=key)
    assert problem(bad) == (422, "invalid")
    (one,) = await add(server, "x")
    good = await client.post(f"{V1}/letters/discard", json={"ids": [one]}, headers=key)
    assert good.json()["discarded"] == 1
    sent = {"filter": {}, "count": 9}
    for _ in range(2):
        refused = await client.post(
            f"{V1}/letters/discard", json=sent, headers={"Idempotency-Key": "no"}
        )
        assert problem(refused) == (409, "count-changed")


# Odd requests


async def test_a_body_that_is_no_json_or_too_large_is_a_problem_and_not_a_defect(
    client: httpx.AsyncClient,
) -> None:
    path = f"{V1}/letters/discard"
    headers = {"Content-Type": "application/json"}
    broken = await client.post(path, content=b"{", headers=headers)
    assert problem(broken) == (422, "invalid")
    half = await client.post(path, content=b'{"reason": "\\ud800"}', headers=headers)
    assert problem(half)[0] == 422
    deep = await client.post(path, content=b"[" * 100_000, headers=headers)
    assert problem(deep)[0] in (400, 422)
    host, port = client.base_url.host, client.base_url.port
    reader, writer = await asyncio.open_connection(host, port)
    lines = (f"POST {path} HTTP/1.1", f"Host: {host}:{port}", f"Content-Length: {10**9}", "", "{")
    writer.write("\r\n".join(lines).encode())
    assert b" 413 " in await reader.readline()
    writer.close()


async def test_headers_of_every_type_are_answered(
    server: Server, client: httpx.AsyncClient
) -> None:
    odd = {
        **died_in("orders"),
        "nan": b"d\x7f\xf8" + bytes(6),
        "none": b"V",
        "bytes": b"x\x00\x00\x00\x02\xff\xfe",
        "time": fields.timestamp(BEGAN),
    }
    (one,) = await server.store.letters.add([arrival(b"x", headers=odd)])
    answer = await client.get(f"{V1}/letters/{one.letter.id}")
    documents.LetterDocument.model_validate(answer.json())
