"""What redaction rules hide stays hidden from who may edit, search and count."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive.amqp import fields
from redrive.domain.access import Role
from tests.services.letters import arrival, failed
from tests.services.plugin import Vhost
from tests.services.serving import V1, Server, serving, settings_for

SECRET = "4111-2222"
RULES = """
[redaction]
json_paths = ["$.card", "$.pins[0]", "$.people[?@.kind == 'client'].name"]
headers = ["api-key", "x-exception-message"]
[server]
originals_for_admin = true
"""
BODY = {
    "order": "one-7",
    "card": {"number": SECRET},
    "pins": [SECRET, "0000"],
    "people": [{"kind": "client", "name": SECRET}],
    "x": 1,
}


@pytest.fixture
async def server(vhost: Vhost, tmp_path: Path) -> AsyncIterator[Server]:
    url = f"sqlite:///{tmp_path}/redrive.db"
    async with serving(settings_for(tmp_path, vhost.url, url, RULES)) as up:
        yield up


@pytest.fixture
async def operator(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with await server.client_as(Role.OPERATOR) as client:
        yield client


async def add(server: Server, body: Any = BODY, **headers: bytes) -> str:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    (one,) = await server.add(arrival(json.dumps(body).encode(), headers=named))
    return one


async def edit(client: httpx.AsyncClient, letter: str, **order: Any) -> httpx.Response:
    return await client.post(f"{V1}/letters/{letter}/edit", json=order)


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "copy", "from": "/card", "path": "/seen"}],
        [{"op": "copy", "from": "/card/number", "path": "/seen"}],
        [{"op": "move", "from": "/card", "path": "/seen"}],
        [{"op": "copy", "from": "", "path": "/seen"}],
        [
            {"op": "copy", "from": "/card", "path": "/y"},
            {"op": "move", "from": "/y", "path": "/z"},
        ],
        [{"op": "add", "path": "/pins/0", "value": "before it"}],
        [{"op": "replace", "path": "/people/0/kind", "value": "other"}],
        [{"op": "add", "path": "/x", "value": 1e400}],
        [{"op": "add", "path": "/x", "value": json.loads("[" * 150 + "]" * 150)}],
        [{"op": "test", "path": "/card/number", "value": SECRET}],
        [{"op": "test", "path": "/card", "value": {"number": SECRET}}],
        [{"op": "test", "path": "", "value": BODY}],
    ],
    ids=lambda patch: patch[-1]["op"] + patch[-1]["path"],
)
async def test_a_patch_that_would_show_what_is_hidden_is_refused(
    server: Server, operator: httpx.AsyncClient, patch: list[dict[str, Any]]
) -> None:
    letter = await add(server)
    text = json.dumps(patch).replace("Infinity", "1e400")
    for dry_run in (True, False):
        refused = await edit(operator, letter, patchText=text, dryRun=dry_run)
        assert refused.status_code == 422, refused.text
        assert refused.json()["type"] == "urn:redrive:problem:edit-refused"
        assert "redaction rule" in refused.json()["detail"]
        assert SECRET not in refused.text
    many = {"filter": {"id": [letter]}, "patchText": text, "dryRun": True}
    surveyed = await operator.post(f"{V1}/letters/edit", json=many)
    assert surveyed.json()["fit"] == 0
    assert SECRET not in surveyed.text
    for path in (f"/letters/{letter}", f"/letters/{letter}/body?edited=true"):
        assert SECRET not in (await operator.get(V1 + path)).text
    async with await server.client_as(Role.ADMIN) as admin:
        allowed = await edit(admin, letter, patchText=text, dryRun=True)
        assert "redaction" not in allowed.text


async def test_a_guess_is_answered_the_same_whether_it_is_right_or_wrong(
    server: Server, operator: httpx.AsyncClient
) -> None:
    letter = await add(server, {"card": SECRET}, api_key=fields.longstr(SECRET))
    for order in (
        {"patch": [{"op": "replace", "path": "/card", "value": "?"}]},
        {"patch": [{"op": "test", "path": "/card", "value": "?"}]},
        {"setHeaders": {"api-key": "?"}},
    ):
        many = {"filter": {"id": [letter]}, "dryRun": True, **order}
        answers = []
        for guess in (SECRET, "4111-3333"):
            sent = json.loads(json.dumps(many).replace('"?"', json.dumps(guess)))
            answers.append((await operator.post(f"{V1}/letters/edit", json=sent)).text)
        assert answers[0] == answers[1], order


async def test_a_content_type_that_would_show_the_body_is_refused(
    server: Server, operator: httpx.AsyncClient
) -> None:
    body = json.dumps({"card": SECRET})
    (letter,) = await server.add(arrival(body.ljust(len(body) // 2 * 2 + 2).encode()))
    refused = await edit(operator, letter, contentType="text/plain; charset=utf-16-le")
    assert (refused.status_code, refused.json()["type"]) == (
        422,
        "urn:redrive:problem:edit-refused",
    )
    assert (await edit(operator, letter, contentType="application/json")).status_code == 200


async def test_other_parts_are_edited_as_ever_and_hidden_ones_are_replaced_unseen(
    server: Server, operator: httpx.AsyncClient
) -> None:
    letter = await add(server)
    patch = [
        {"op": "test", "path": "/order", "value": "one-7"},
        {"op": "move", "from": "/order", "path": "/number"},
        {"op": "replace", "path": "/card", "value": {"number": "4000"}},
        {"op": "remove", "path": "/pins"},
    ]
    shown = await edit(operator, letter, patch=patch)
    assert shown.status_code == 200, shown.text
    assert '+  "number": "one-7"' in "\n".join(shown.json()["diff"])
    assert SECRET not in shown.text
    assert "4000" not in shown.text
    async with await server.client_as(Role.ADMIN) as admin:
        sent = (await admin.get(f"{V1}/letters/{letter}/body?edited=true")).json()
    assert sent == {
        "card": {"number": "4000"},
        "people": BODY["people"],
        "x": 1,
        "number": "one-7",
    }


async def test_nobody_searches_where_they_may_not_look(server: Server) -> None:
    letter = await add(server)
    (other,) = await server.add(failed(f"Card {SECRET} refused", error_type="DECLINED"))
    admin, viewer = await server.client_as(Role.ADMIN), await server.client_as(Role.VIEWER)
    async with admin, viewer:
        for path in ("/letters/count", "/letters"):
            for search, by_viewer, by_admin in ((SECRET, 0, 2), ("declined", 1, 1)):
                found = []
                for client in (viewer, admin):
                    answer = (await client.get(V1 + path, params={"search": search})).json()
                    found.append(answer["letters"] if "letters" in answer else len(answer["items"]))
                assert found == [by_viewer, by_admin], (path, search)
        for reason in ("Card 4*", f"Card {SECRET} refused"):
            filtered = {"errorReason": reason}
            for client, status in ((viewer, 422), (admin, 200)):
                answer = await client.get(f"{V1}/letters/count", params=filtered)
                assert answer.status_code == status, answer.text
                preview = await client.post(f"{V1}/replays/preview", json={"filter": filtered})
                assert preview.status_code == status
            neighbours = await viewer.get(f"{V1}/letters/{letter}/neighbours", params=filtered)
            assert "redaction rule" in neighbours.json()["detail"]
    async with await server.client_as(Role.OPERATOR) as operator:
        chosen = {"filter": {"search": SECRET}, "count": 2}
        refused = await operator.post(f"{V1}/letters/discard", json=chosen)
        assert (refused.status_code, refused.json()["letters"]) == (409, 0)
    kept = await server.store.letters.get(other)
    assert kept is not None
    assert kept.error_reason.endswith("refused")
