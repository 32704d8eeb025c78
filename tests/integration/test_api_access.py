"""Who may do what: every route, every role and no login; sessions, passwords, tokens, the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive.domain.access import Role
from redrive.server.authentication import COOKIE
from redrive.server.login_limits import LoginLimits
from redrive.server.session import LIMITS
from tests.services.letters import failed
from tests.services.plugin import Vhost
from tests.services.serving import V1, Server, serving, settings_for

SOME_ID = "00000000-0000-7000-8000-00000000beef"
OPEN = {("get", f"{V1}/session"), ("post", f"{V1}/session")}


@pytest.fixture
async def guarded(vhost: Vhost, tmp_path: Path) -> AsyncIterator[Server]:
    """A server that can be reached from elsewhere, so everybody has to log in."""
    more = "[server]\naudit_views = true\n"
    settings = settings_for(tmp_path, vhost.url, f"sqlite:///{tmp_path}/redrive.db", more)
    async with serving(settings, loopback=False) as up:
        yield up


def operations(server: Server) -> list[tuple[str, str, dict[str, Any]]]:
    """Every operation of the API: method, path, description."""
    paths = server.app.api.openapi()["paths"]
    return [
        (method, path, operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
        if path.startswith(V1)
    ]


async def status_of(client: httpx.AsyncClient, method: str, path: str) -> int:
    """What an operation is answered with; the body of what does not end is not waited for."""
    real = path.replace("{fingerprint}", "beef")
    for name in ("letter_id", "replay_id", "token_id"):
        real = real.replace(f"{{{name}}}", SOME_ID)
    more: dict[str, Any] = {} if method in ("get", "delete") else {"json": {}}
    async with client.stream(method.upper(), real, **more) as answer:
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
        return answer.status_code


async def test_every_operation_names_the_role_it_needs(guarded: Server) -> None:
    for method, path, operation in operations(guarded):
        if (method, path) not in OPEN:
            assert operation["x-role"] in list(Role), path
            assert operation["security"]
            if method != "get" and operation["x-role"] == "viewer":
                assert path in (f"{V1}/session", f"{V1}/replays/preview"), path


async def test_every_operation_is_refused_without_a_login_and_to_lower_roles_and_to_no_other(
    guarded: Server,
) -> None:
    async with guarded.client() as nobody:
        for method, path, _ in operations(guarded):
            found = await status_of(nobody, method, path)
            assert (found == 401) is ((method, path) not in OPEN), (method, path)
    for role in Role:
        async with await guarded.client_as(role) as client:
            for method, path, operation in operations(guarded):
                found = await status_of(client, method, path)
                needed = Role(operation.get("x-role", "viewer"))
                assert (found == 403) is not role.covers(needed), (role, method, path, found)
                assert found < 500
                assert found != 401


async def test_wrong_and_revoked_tokens_are_refused(guarded: Server) -> None:
    await guarded.user("ann", "correct horse", Role.ADMIN)
    secret = await guarded.token(Role.ADMIN)
    async with guarded.client() as client:
        for sent in ("Bearer", "Bearer nonsense", f"Basic {secret}", f"Bearer {secret}x"):
            answer = await client.get(f"{V1}/letters", headers={"Authorization": sent})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        allowed = {"Authorization": f"Bearer {secret}"}
        (token,) = (await client.get(f"{V1}/tokens", headers=allowed)).json()["items"]
        assert secret not in json.dumps(token)
        gone = await client.delete(f"{V1}/tokens/{token['id']}", headers=allowed)
        assert gone.json()["revokedAt"] is not None
        assert (await client.get(f"{V1}/tokens", headers=allowed)).status_code == 401


async def test_a_token_is_shown_once_and_its_secret_is_nowhere_in_the_store(
    guarded: Server, tmp_path: Path
) -> None:
    async with await guarded.client_as(Role.ADMIN) as client:
        wanted = {"name": "ci", "role": "viewer", "days": 1}
        made = (await client.post(f"{V1}/tokens", json=wanted)).json()
        listed = (await client.get(f"{V1}/tokens")).text
        assert made["token"] not in listed
        allowed = {"Authorization": f"Bearer {made['token']}"}
        assert (await client.get(f"{V1}/session", headers=allowed)).json()["name"] == "ci"
    for name in ("redrive.db", "redrive.db-wal"):
        content = await asyncio.to_thread((tmp_path / name).read_bytes)
        assert made["token"].encode() not in content


async def test_a_token_that_is_asked_for_twice_with_one_key_is_made_and_told_once(
    guarded: Server, tmp_path: Path
) -> None:
    key = {"Idempotency-Key": "a-token"}
    async with await guarded.client_as(Role.ADMIN) as client:
        before = len((await client.get(f"{V1}/tokens")).json()["items"])
        wanted = {"name": "ci", "role": "viewer"}
        made = await client.post(f"{V1}/tokens", json=wanted, headers=key)
        again = await client.post(f"{V1}/tokens", json=wanted, headers=key)
        assert made.status_code == 201
        assert (again.status_code, again.json()["type"]) == (409, "urn:redrive:problem:told-once")
        assert made.json()["id"] in again.json()["detail"]
        assert len((await client.get(f"{V1}/tokens")).json()["items"]) == before + 1
    for name in ("redrive.db", "redrive.db-wal"):
        content = await asyncio.to_thread((tmp_path / name).read_bytes)
        assert made.json()["token"].encode() not in content


async def test_tokens_of_one_name_do_not_share_their_keys(guarded: Server) -> None:
    (one,) = await guarded.store.letters.add([failed("x")])
    sent = {"ids": [one.letter.id]}
    replayed: list[bool] = []
    for _ in range(2):
        async with await guarded.client_as(Role.OPERATOR) as client:
            for _ in range(2):
                done = await client.post(
                    f"{V1}/letters/discard", json=sent, headers={"Idempotency-Key": "one"}
                )
                replayed.append("idempotency-replayed" in done.headers)
    assert replayed == [False, True, False, True]


# Sessions


async def log_in(client: httpx.AsyncClient, name: str, password: str) -> httpx.Response:
    return await client.post(f"{V1}/session", json={"name": name, "password": password})


async def test_who_is_demoted_hears_nothing_of_changes_that_were_made_with_a_key(
    guarded: Server,
) -> None:
    (one,) = await guarded.store.letters.add([failed("x")])
    for role, expected in ((Role.OPERATOR, 200), (Role.VIEWER, 403)):
        await guarded.user("ann", "correct horse", role)
        async with guarded.client() as client:
            csrf = (await log_in(client, "ann", "correct horse")).json()["csrfToken"]
            answer = await client.post(
                f"{V1}/letters/discard",
                json={"ids": [one.letter.id]},
                headers={"X-CSRF-Token": csrf, "Idempotency-Key": "one"},
            )
            assert answer.status_code == expected


async def test_a_session_changes_things_only_with_its_csrf_token(guarded: Server) -> None:
    await guarded.user("ann", "correct horse", Role.OPERATOR)
    (one,) = await guarded.store.letters.add([failed("x")])
    discard = {"ids": [one.letter.id]}
    async with guarded.client() as client:
        answer = await log_in(client, "ann", "correct horse")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        csrf = answer.json()["csrfToken"]
        assert (await client.get(f"{V1}/session")).json() == answer.json()
        path = f"{V1}/letters/discard"
        for headers in ({}, {"X-CSRF-Token": "wrong"}):
            refused = await client.post(path, json=discard, headers=headers)
            assert (refused.status_code, refused.json()["type"][-4:]) == (403, "csrf")
        elsewhere = {"X-CSRF-Token": csrf, "Origin": "https://evil.example"}
        assert (await client.post(path, json=discard, headers=elsewhere)).status_code == 403
        done = await client.post(path, json=discard, headers={"X-CSRF-Token": csrf})
        assert done.json()["discarded"] == 1
        assert (await guarded.store.letters.history(one.letter.id))[-1].actor == "user:ann"
        out = await client.delete(f"{V1}/session", headers={"X-CSRF-Token": csrf})
        assert out.status_code == 204
        assert (await client.get(f"{V1}/letters")).status_code == 401
        # Also for who has kept the cookie.
        client.cookies.set(COOKIE, answer.cookies[COOKIE])
        assert (await client.get(f"{V1}/letters")).status_code == 401


async def test_who_is_demoted_or_deleted_is_so_at_once(guarded: Server) -> None:
    await guarded.user("ann", "correct horse", Role.ADMIN)
    await guarded.user("eve", "battery staple", Role.ADMIN)
    async with guarded.client() as ann, await guarded.client_as(Role.ADMIN) as admin:
        await log_in(ann, "ann", "correct horse")
        assert (await ann.get(f"{V1}/users")).status_code == 200
        changed = await admin.put(f"{V1}/users", json={"name": "ann", "role": "viewer"})
        assert changed.json()["role"] == "viewer"
        assert (await ann.get(f"{V1}/users")).status_code == 401
        await log_in(ann, "ann", "correct horse")
        assert (await ann.get(f"{V1}/users")).status_code == 403
        assert (await admin.delete(f"{V1}/users", params={"name": "ann"})).status_code == 204
        assert (await ann.get(f"{V1}/letters")).status_code == 401


async def test_the_last_admin_among_the_users_stays_one(guarded: Server) -> None:
    await guarded.user("ann", "correct horse", Role.ADMIN)
    async with await guarded.client_as(Role.ADMIN) as admin:
        for refused in (
            await admin.put(f"{V1}/users", json={"name": "ann", "role": "operator"}),
            await admin.delete(f"{V1}/users", params={"name": "ann"}),
        ):
            assert refused.status_code == 409
            problem = refused.json()
            assert problem["type"] == "urn:redrive:problem:refused"
            assert problem["detail"] == "'ann' is the last user who is admin"
            assert "redrive user set" in problem["remedy"]
        renewed = {"name": "ann", "role": "admin", "password": "battery staple"}
        assert (await admin.put(f"{V1}/users", json=renewed)).status_code == 200


async def test_revoking_the_last_token_does_not_let_everybody_in(server: Server) -> None:
    async with await server.client_as(Role.ADMIN) as admin, server.client() as nobody:
        (token,) = (await admin.get(f"{V1}/tokens")).json()["items"]
        refused = await admin.delete(f"{V1}/tokens/{token['id']}")
        problem = refused.json()
        assert (refused.status_code, problem["type"][-8:]) == (409, ":refused")
        assert "redrive token create" in problem["remedy"]
        assert (await nobody.get(f"{V1}/letters")).status_code == 401
        await server.token(Role.VIEWER)
        assert (await admin.delete(f"{V1}/tokens/{token['id']}")).status_code == 200
        assert (await nobody.get(f"{V1}/letters")).status_code == 401


async def test_who_is_not_logged_in_may_send_a_few_kib_and_no_more(guarded: Server) -> None:
    await guarded.user("ann", "correct horse", Role.ADMIN)
    large, told = b"[" + b"[]," * 10_000 + b"[]]", {"Content-Type": "application/json"}

    async def in_parts() -> AsyncIterator[bytes]:
        yield large

    async with guarded.client() as client:
        for content in (large, in_parts()):
            refused = await client.post(f"{V1}/session", content=content, headers=told)
            assert (refused.status_code, refused.json()["type"][-9:]) == (413, "too-large")
        assert (await log_in(client, "ann", "correct horse")).status_code == 200
        csrf = {"X-CSRF-Token": (await client.get(f"{V1}/session")).json()["csrfToken"]}
        read = await client.post(f"{V1}/letters/discard", content=large, headers=told | csrf)
        assert read.status_code == 422


async def test_wrong_passwords_are_slowed_down_and_tell_nothing(guarded: Server) -> None:
    await guarded.user("ann", "correct horse", Role.ADMIN)
    limits: LoginLimits = getattr(guarded.app.api.state, LIMITS)
    limits._clock = lambda: 0.0  # or the second of waiting is over on a busy machine
    async with guarded.client() as client:
        wrong = await log_in(client, "ann", "battery staple")
        unknown = await log_in(client, "bob", "battery staple")
        assert (wrong.status_code, wrong.json()) == (401, unknown.json())
        for _ in range(3):
            assert (await log_in(client, "ann", "battery staple")).status_code == 401
        limited = await log_in(client, "ann", "correct horse")
        assert limited.status_code == 429
        assert int(limited.headers["retry-after"]) >= 1


async def test_many_tries_at_once_are_no_more_than_many_in_a_row(guarded: Server) -> None:
    await guarded.user("ann", "correct horse", Role.ADMIN)
    async with guarded.client() as client:
        tries = [log_in(client, "ann", f"battery {number}") for number in range(30)]
        answers = await asyncio.gather(*tries)
    found = [answer.status_code for answer in answers]
    assert set(found) == {401, 429}
    # Five are free; on a machine that stalls, one more after each second, two, four, …
    assert 5 <= found.count(401) <= 10


def test_each_wrong_password_beyond_the_fifth_costs_twice_the_wait() -> None:
    now = 0.0
    limits = LoginLimits(lambda: now)
    waits = []
    for _ in range(20):
        now += limits.wait("ann", "1.2.3.4")
        assert limits.begin("ann", "1.2.3.4") == 0
        waits.append(limits.wait("ann", "1.2.3.4"))
    assert waits[:8] == [0, 0, 0, 0, 1, 2, 4, 8]
    assert waits[-1] == limits.begin("ann", "1.2.3.4") == 900
    assert limits.wait("ann", "5.6.7.8") == limits.wait("bob", "1.2.3.4") == 900
    assert limits.wait("bob", "5.6.7.8") == 0
    limits.succeeded("ann", "1.2.3.4")
    assert limits.wait("ann", "1.2.3.4") == 0


async def test_hashing_does_not_stop_other_requests(guarded: Server) -> None:
    await guarded.user("ann", "correct horse", Role.ADMIN)
    async with guarded.client() as client, await guarded.client_as(Role.VIEWER) as viewer:
        logins = [asyncio.create_task(log_in(client, f"u{n}", "wrong pass")) for n in range(4)]
        assert (await viewer.get(f"{V1}/letters")).status_code == 200
        assert {one.status_code for one in await asyncio.gather(*logins)} <= {401, 429}


async def test_who_is_not_logged_in_does_not_learn_where_the_store_is(
    vhost: Vhost, tmp_path: Path
) -> None:
    folder = tmp_path / "hidden-place"
    folder.mkdir()
    settings = settings_for(tmp_path, vhost.url, f"sqlite:///{folder}/redrive.db")
    async with serving(settings, loopback=False) as server:
        await server.user("ann", "correct horse", Role.ADMIN)
        async with server.client() as client:
            await server.store.close()
            folder.rename(tmp_path / "gone")
            answers = [
                await log_in(client, "ann", "correct horse"),
                await client.get(f"{V1}/session", headers={"Cookie": f"{COOKIE}=some"}),
                await client.get(f"{V1}/letters", headers={"Authorization": "Bearer some"}),
            ]
            (tmp_path / "gone").rename(folder)
    for answer in answers:
        assert (answer.status_code, answer.json()["type"][-17:]) == (503, "store-unavailable")
        assert "hidden-place" not in answer.text
        assert "log" in answer.json()["remedy"]


# Without a login


async def test_on_loopback_nobody_has_to_log_in_until_somebody_can(server: Server) -> None:
    async with server.client() as client:
        assert (await client.get(f"{V1}/session")).json() == {
            "name": "local",
            "role": "admin",
            "login": "none",
            "csrfToken": None,
        }
        await server.token(Role.VIEWER)
        assert (await client.get(f"{V1}/letters")).status_code == 401
        assert (await client.get(f"{V1}/session")).json()["login"] == "needed"


async def test_without_a_login_other_names_and_other_pages_are_sent_away(server: Server) -> None:
    async with server.client() as client:
        rebound = await client.get(f"{V1}/letters", headers={"Host": "evil.example"})
        assert (rebound.status_code, rebound.json()["type"][-10:]) == (403, "wrong-host")
        for headers in (
            {"Origin": "https://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Origin": "null"},
            {"Origin": "http://["},
        ):
            answer = await client.put(
                f"{V1}/policies", json={"name": "a", "maxRetries": 1}, headers=headers
            )
            assert (answer.status_code, answer.json()["type"][-12:]) == (403, "wrong-origin")


@pytest.mark.parametrize(
    "header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "Via"]
)
async def test_without_a_login_what_comes_through_a_proxy_is_sent_away(
    server: Server, header: str
) -> None:
    async with server.client(headers={header: "127.0.0.1"}) as client:
        for path in ("/session", "/letters"):
            answer = await client.get(V1 + path)
            assert (answer.status_code, answer.json()["type"][-10:]) == (403, "wrong-host")
            assert "redrive user set" in answer.json()["remedy"]


# The log


async def test_views_of_messages_are_in_the_log_when_that_is_set(guarded: Server) -> None:
    (one,) = await guarded.store.letters.add([failed("x")])
    async with (
        await guarded.client_as(Role.VIEWER) as viewer,
        await guarded.client_as(Role.OPERATOR) as operator,
    ):
        await viewer.get(f"{V1}/letters/{one.letter.id}")
        await viewer.get(f"{V1}/letters/{one.letter.id}/body")
        page = (await operator.get(f"{V1}/audit", params={"action": "letters.view"})).json()
    assert [(entry["actor"], entry["detail"]) for entry in page["items"]] == [
        ("token:viewer", {"id": one.letter.id})
    ] * 2


async def test_logins_are_in_the_log_wrong_ones_too(guarded: Server) -> None:
    await guarded.user("ann", "correct horse", Role.OPERATOR)
    async with guarded.client() as client:
        await log_in(client, "ann", "battery staple")
        await log_in(client, "correct horse", "ann")
        await log_in(client, "ann", "correct horse")
        whole = await client.get(f"{V1}/audit")
        assert "correct horse" not in whole.text
        assert [each["actor"] for each in whole.json()["items"]] == [
            "user:ann",
            "user:?",
            "user:ann",
        ]
        page = (await client.get(f"{V1}/audit", params={"actor": "user:ann"})).json()
    assert [(entry["action"], entry["outcome"], entry["role"]) for entry in page["items"]] == [
        ("session.begin", 200, "operator"),
        ("session.begin", 401, None),
    ]
    assert page["items"][0]["address"] == "127.0.0.1"


async def test_changes_of_users_and_tokens_are_in_the_log_without_their_secrets(
    guarded: Server,
) -> None:
    async with await guarded.client_as(Role.ADMIN) as admin:
        made = (await admin.post(f"{V1}/tokens", json={"name": "ci", "role": "viewer"})).json()
        await admin.delete(f"{V1}/tokens/{made['id']}")
        bob = {"name": "bob", "role": "viewer", "password": "correct horse"}
        assert (await admin.put(f"{V1}/users", json=bob)).status_code == 200
        assert (await admin.delete(f"{V1}/users", params={"name": "bob"})).status_code == 204
        gone = await admin.delete(f"{V1}/users", params={"name": "bob"})
        assert gone.status_code == 404
        answer = await admin.get(f"{V1}/audit")
    assert [(entry["action"], entry["outcome"]) for entry in answer.json()["items"]] == [
        ("users.delete", 404),
        ("users.delete", 200),
        ("users.set", 200),
        ("tokens.revoke", 200),
        ("tokens.create", 200),
    ]
    assert made["token"] not in answer.text
    assert "correct horse" not in answer.text
