"""The API, to read: documents as the reference has them, pages, filters, numbers."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from pydantic import BaseModel

from redrive.amqp import fields
from redrive.domain.access import Role
from redrive.server import documents
from redrive.work.redact import Redaction
from redrive.work.show import letter_document
from tests.services.letters import BEGAN, arrival, died_in, failed
from tests.services.plugin import Vhost
from tests.services.serving import V1, Server, serving, settings_for

EVIL = b"<script>alert(1)</script>\x1b[31m=cmd()"


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client() as opened:
        yield opened


def fits(model: type[BaseModel], answer: httpx.Response) -> None:
    """Whether an answer is exactly what the OpenAPI document says."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    model.model_validate(answer.json())


# Letters


async def test_a_letter_is_the_document_that_the_command_line_shows(
    server: Server, client: httpx.AsyncClient
) -> None:
    (collected,) = await server.store.letters.add([failed("Order 7 not found")])
    answer = await client.get(f"{V1}/letters/{collected.letter.id}")
    fits(documents.LetterDocument, answer)
    kept = await server.store.letters.kept(collected.letter.id)
    assert kept is not None
    redaction = Redaction.by(server.settings.redaction)
    assert answer.json() == json.loads(json.dumps(letter_document(kept, redaction=redaction)))


async def test_pages_go_on_where_the_one_before_ended(
    server: Server, client: httpx.AsyncClient
) -> None:
    added = await server.store.letters.add([failed(f"{n}") for n in range(5)])
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        answer = await client.get(f"{V1}/letters", params={"limit": "2", **after})
        fits(documents.LetterPage, answer)
        page = answer.json()
        found += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert found == [one.letter.id for one in reversed(added)]


async def test_filters_choose_and_are_counted_exactly(
    server: Server, client: httpx.AsyncClient
) -> None:
    added = await server.store.letters.add(
        [failed("a", error_type="TIMEOUT"), failed("b", error_type="OTHER", queue="payments")]
    )
    ids = [one.letter.id for one in added]
    for params, expected in (
        ({"errorType": "TIME*"}, ids[:1]),
        ({"queue": "payments"}, ids[1:]),
        ({"status": "pending"}, ids),
        ({"status": "dlq_manual"}, []),
        ({"id": ids[0].upper()}, ids[:1]),
        ({"search": "b", "errorType": "OTHER"}, ids[1:]),
        ({"group": added[0].letter.fingerprint}, ids[:1]),
        ({"endDate": "2000-01-01"}, []),
        ({"minAge": "1ms", "startDate": "2026-01-01T00:00:00Z"}, ids),
    ):
        listed = (await client.get(f"{V1}/letters", params=params)).json()["items"]
        assert [item["id"] for item in reversed(listed)] == expected, params
        count = await client.get(f"{V1}/letters/count", params=params)
        fits(documents.Count, count)
        assert count.json() == {"letters": len(expected)}


async def test_possible_duplicates_are_chosen_counted_and_settled(
    server: Server, client: httpx.AsyncClient
) -> None:
    headers = {**died_in("orders"), "redrive-id": fields.longstr("r-1")}
    first, copy = await server.add(arrival(headers=headers), arrival(headers=headers))
    await server.add(failed("another"))
    copies = {"possibleDuplicate": "true"}
    listed = await client.get(f"{V1}/letters", params=copies)
    assert [item["id"] for item in listed.json()["items"]] == [copy]
    assert (await client.get(f"{V1}/letters/count", params=copies)).json() == {"letters": 1}
    elsewhere = {**copies, "queue": "billing"}
    assert (await client.get(f"{V1}/letters/count", params=elsewhere)).json() == {"letters": 0}
    beside = await client.get(f"{V1}/letters/{first}/neighbours", params=copies)
    assert beside.json() == {"newer": copy, "older": None}
    stats = await client.get(f"{V1}/stats")
    fits(documents.Stats, stats)
    assert stats.json()["possibleDuplicates"] == 1
    chosen = {"filter": {"possibleDuplicate": True, "queue": "orders"}, "count": 1}
    done = await client.post(f"{V1}/letters/discard", json=chosen)
    assert done.json() == {"discarded": 1, "unchanged": []}


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({"errortype": "x"}, "query.errortype"),
        ({"possibleDuplicate": "false"}, "query.possibleDuplicate"),
        ({"possibleDuplicate": ""}, "query.possibleDuplicate"),
        ({"limit": "0"}, "query.limit"),
        ({"status": "sleeping"}, "query.status.0"),
        ({"id": "1"}, "query.id.0"),
        ({"startDate": "soon"}, "query.startDate"),
        ({"search": "a\0b"}, "query.search"),
        ({"search": ""}, "query.search"),
        ({"errorType": ""}, "query.errorType"),
        ({"queue": ""}, "query.queue"),
        ({"group": ""}, "query.group"),
        ({"source": ""}, "query.source"),
        ({"tag": ""}, "query.tag"),
    ],
)
async def test_what_cannot_be_meant_is_refused_and_never_means_every_letter(
    client: httpx.AsyncClient, params: dict[str, str], where: str
) -> None:
    answer = await client.get(f"{V1}/letters", params=params)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:redrive:problem:invalid"
    assert [fault["where"] for fault in problem["errors"]] == [where]


async def test_a_cursor_that_no_page_gave_is_refused(client: httpx.AsyncClient) -> None:
    for path in ("letters", "groups", "replays", "audit"):
        answer = await client.get(f"{V1}/{path}", params={"after": "nonsense"})
        assert (answer.status_code, answer.json()["status"]) == (422, 422)
        assert "'next'" in answer.json()["remedy"]


async def test_what_is_not_there_is_a_problem_too(client: httpx.AsyncClient) -> None:
    none = "00000000-0000-7000-8000-000000000000"
    for path in (
        f"letters/{none}",
        f"letters/{none}/content",
        "groups/abc",
        f"replays/{none}",
        "nix",
    ):
        answer = await client.get(f"{V1}/{path}")
        assert answer.status_code == 404
        assert answer.json()["type"] == "urn:redrive:problem:not-found"


# A body, for people


async def test_a_body_is_read_without_its_encodings_and_its_numbers_stay_as_written(
    server: Server, client: httpx.AsyncClient
) -> None:
    written = '{"id":9007199254740993,"price":1.10,"name":"é"}'
    kinds = {"content_type": "application/json"}
    plain, packed, other = await server.add(
        arrival(written.encode(), properties=kinds),
        arrival(gzip.compress(written.encode()), properties=kinds | {"content_encoding": "gzip"}),
        arrival("é".encode("latin-1"), properties={"content_type": "text/plain; charset=latin-1"}),
    )
    for one, undone, editable in ((plain, [], True), (packed, ["gzip"], False)):
        answer = await client.get(f"{V1}/letters/{one}/content")
        fits(documents.Content, answer)
        content = answer.json()
        assert (content["text"], content["undone"]) == (written, undone)
        assert content["pretty"].splitlines()[1:3] == [
            '  "id": 9007199254740993,',
            '  "price": 1.10,',
        ]
        assert (content["kind"], content["editable"]) == ("json", editable)
    latin = (await client.get(f"{V1}/letters/{other}/content")).json()
    assert (latin["kind"], latin["text"], latin["editable"]) == ("text", "é", True)


async def test_what_is_no_text_is_read_as_its_first_bytes_and_a_large_body_is_cut(
    server: Server, client: httpx.AsyncClient
) -> None:
    binary, large = await server.add(arrival(bytes(range(256)) * 200), arrival(b"x" * 600_000))
    shown = (await client.get(f"{V1}/letters/{binary}/content")).json()
    assert (shown["kind"], shown["text"], shown["truncated"]) == ("binary", None, True)
    assert shown["hex"].startswith("00000000  00 01 02 03")
    cut = (await client.get(f"{V1}/letters/{large}/content", params={"limit": 1000})).json()
    assert (len(cut["text"]), cut["truncated"], cut["editable"]) == (1000, True, False)
    assert cut["size"] == 600_000


async def test_an_edited_body_is_read_as_it_would_be_sent(
    server: Server, client: httpx.AsyncClient
) -> None:
    (one,) = await server.add(arrival(b'{"order": 1}'))
    edit = {"body": {"encoding": "utf8", "data": '{"order": 2}'}}
    assert (await client.post(f"{V1}/letters/{one}/edit", json=edit)).status_code == 200
    path = f"{V1}/letters/{one}/content"
    assert (await client.get(path)).json()["text"] == '{"order": 1}'
    assert (await client.get(path, params={"edited": "true"})).json()["text"] == '{"order": 2}'


async def test_the_letters_beside_one_are_found_by_the_filters_of_the_list(
    server: Server, client: httpx.AsyncClient
) -> None:
    first, other, last = await server.add(
        failed("a", queue="orders"), failed("b", queue="mails"), failed("c", queue="orders")
    )
    answer = await client.get(f"{V1}/letters/{first}/neighbours", params={"queue": "orders"})
    fits(documents.Neighbours, answer)
    assert answer.json() == {"newer": last, "older": None}
    every = (await client.get(f"{V1}/letters/{other}/neighbours")).json()
    assert every == {"newer": last, "older": first}


# Messages that mean harm


async def test_a_malicious_body_is_downloaded_as_bytes_that_no_browser_runs(
    server: Server, client: httpx.AsyncClient
) -> None:
    (one,) = await server.store.letters.add(
        [arrival(EVIL, properties={"content_type": "text/html"})]
    )
    answer = await client.get(f"{V1}/letters/{one.letter.id}/body")
    assert answer.content == EVIL
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"


async def test_a_malicious_letter_is_inert_in_json(
    server: Server, client: httpx.AsyncClient
) -> None:
    said = {"redrive-error-reason": fields.longstr(EVIL.decode())}
    (one,) = await server.store.letters.add([arrival(EVIL, headers={**died_in("orders"), **said})])
    for path in ("letters", f"letters/{one.letter.id}", "groups"):
        answer = await client.get(f"{V1}/{path}")
        assert "<" not in answer.text
        assert "\x1b" not in answer.text
        assert answer.headers["content-type"] == "application/json"


async def test_bodies_that_json_libraries_choke_on_are_answered(
    server: Server, client: httpx.AsyncClient
) -> None:
    bodies = [
        b'{"n": 123456789012345678901234567890}',
        b'"\\ud800"',
        b"[" * 900 + b"]" * 900,
        b'{"n": 1e999}',
        bytes(range(256)),
    ]
    added = await server.store.letters.add([arrival(body) for body in bodies])
    for one, body in zip(added, bodies, strict=True):
        answer = await client.get(f"{V1}/letters/{one.letter.id}")
        fits(documents.LetterDocument, answer)
        raw = await client.get(f"{V1}/letters/{one.letter.id}/body")
        assert raw.content == body


async def test_of_a_large_body_only_as_much_is_shown_as_was_asked_for(
    server: Server, client: httpx.AsyncClient
) -> None:
    body = b"x" * (15 * 2**20)
    (one,) = await server.store.letters.add([arrival(body)])
    shown = (await client.get(f"{V1}/letters/{one.letter.id}", params={"bodyLimit": "10"})).json()
    assert shown["body"] == {"encoding": "utf8", "data": "x" * 10, "truncated": True}
    assert (await client.get(f"{V1}/letters/{one.letter.id}/body")).content == body


# Redaction


async def test_rules_hide_and_only_an_admin_sees_originals_and_only_if_set(
    vhost: Vhost, tmp_path: Path
) -> None:
    rules = '[redaction]\njson_paths = ["$.card"]\n[server]\noriginals_for_admin = '
    for allowed in (False, True):
        url = f"sqlite:///{tmp_path}/{allowed}.db"
        settings = settings_for(tmp_path, vhost.url, url, rules + str(allowed).lower() + "\n")
        async with serving(settings) as server:
            (one,) = await server.store.letters.add([arrival(b'{"card": "4111"}')])
            for role in Role:
                async with await server.client_as(role) as client:
                    shown = await client.get(f"{V1}/letters/{one.letter.id}")
                    raw = await client.get(f"{V1}/letters/{one.letter.id}/body")
                    sees = allowed and role is Role.ADMIN
                    assert ("4111" in shown.text) is ("4111" in raw.text) is sees, role


# The rest


async def test_groups_have_counts_and_their_newest_letters(
    server: Server, client: httpx.AsyncClient
) -> None:
    added = await server.store.letters.add(
        [failed("same"), failed("same"), failed("other 1 thing")]
    )
    listed = await client.get(f"{V1}/groups")
    fits(documents.GroupPage, listed)
    assert sorted(item["letters"] for item in listed.json()["items"]) == [1, 2]
    one = await client.get(f"{V1}/groups/{added[0].letter.fingerprint}")
    fits(documents.GroupDocument, one)
    assert [item["id"] for item in one.json()["newest"]] == [
        added[1].letter.id,
        added[0].letter.id,
    ]


async def test_numbers_say_where_letters_are(server: Server, client: httpx.AsyncClient) -> None:
    added = await server.store.letters.add(
        [failed("x", error_type="A"), failed("y", error_type="B")]
    )
    await server.store.decisions.discard([added[0].letter.id], "t")
    stats = await client.get(f"{V1}/stats")
    fits(documents.Stats, stats)
    found = stats.json()
    assert (found["received"], found["states"]["dlq_pending"], found["balanced"]) == (2, 1, True)
    assert found["errorTypes"] == [{"name": "B", "letters": 1}]
    assert found["queues"] == [{"name": "orders", "letters": 1}]
    assert set(found["oldest"]) == {"dlq_pending", "dlq_archived"}
    ledger = await client.get(f"{V1}/stats/ledger")
    fits(documents.LedgerCheck, ledger)
    assert ledger.json()["exact"]


async def test_the_time_series_counts_arrivals_and_resolutions_in_their_buckets(
    server: Server, client: httpx.AsyncClient
) -> None:
    now = datetime.now(UTC)
    hour_ago = (now - timedelta(minutes=30)) - BEGAN
    old, new, resolved = await server.store.letters.add(
        [arrival(b"1", at=hour_ago), arrival(b"2", at=now - BEGAN), arrival(b"3", at=now - BEGAN)]
    )
    ids = [resolved.letter.id]
    await server.store.decisions.discard(ids, "t")
    await server.store.decisions.restore(ids, "t")
    await server.store.decisions.resolve(ids, "t")
    for span, buckets in (("1h", 60), ("6h", 72), ("24h", 72), ("7d", 84), ("30d", 90)):
        answer = await client.get(f"{V1}/stats/series", params={"span": span})
        fits(documents.Series, answer)
        series = answer.json()
        assert len(series["arrivals"]) == len(series["resolutions"]) == buckets
        assert (sum(series["arrivals"]), sum(series["resolutions"])) == (3, 1), span
    hour = (await client.get(f"{V1}/stats/series", params={"span": "1h"})).json()
    begins = datetime.fromisoformat(hour["start"])
    at = int((old.letter.created_at - begins) / timedelta(seconds=hour["seconds"]))
    assert hour["arrivals"][at] == 1
    one = await client.get(
        f"{V1}/stats/series", params={"span": "1h", "group": new.letter.fingerprint}
    )
    fits(documents.Series, one)
    assert sum(one.json()["arrivals"]) == 3
    groups = [new.letter.fingerprint, "0123456789abcdef"]
    for span, buckets in (("1h", 30), ("6h", 24), ("24h", 24), ("7d", 28), ("30d", 30)):
        trends = await client.get(f"{V1}/stats/trends", params={"span": span, "group": groups})
        fits(documents.Trends, trends)
        counts = {item["group"]: item["arrivals"] for item in trends.json()["items"]}
        assert {len(each) for each in counts.values()} == {buckets}
        assert [sum(counts[group]) for group in groups] == [3, 0], span


async def test_breakers_policies_topology_replays_and_audit_are_listed(
    client: httpx.AsyncClient,
) -> None:
    for path, model in (
        ("breakers", documents.Breakers),
        ("policies", documents.Policies),
        ("topology", documents.Topology),
        ("replays", documents.ReplayPage),
        ("audit", documents.AuditPage),
        ("tokens", documents.Tokens),
        ("users", documents.Users),
        ("session", documents.Me),
        ("health", documents.Health),
    ):
        fits(model, await client.get(f"{V1}/{path}"))


async def test_a_letter_is_classified_as_a_worker_would(
    server: Server, client: httpx.AsyncClient
) -> None:
    (one,) = await server.store.letters.add([failed("timed out", error_type="TIMEOUT_ERROR")])
    answer = await client.get(f"{V1}/classifications", params={"id": one.letter.id})
    fits(documents.Classifications, answer)
    (found,) = answer.json()["items"]
    assert (found["id"], found["strategy"]) == (one.letter.id, "immediate")


async def test_machines_are_told_whether_it_is_up_and_ready(client: httpx.AsyncClient) -> None:
    fits(documents.Alive, await client.get("/healthz"))
    ready = await client.get("/readyz")
    fits(documents.Ready, ready)
    assert ready.json() == {"status": "ready", "store": True, "broker": True}


async def test_without_a_broker_it_is_up_and_not_ready(tmp_path: Path) -> None:
    settings = settings_for(
        tmp_path, "amqp://guest:guest@127.0.0.1:9/", f"sqlite:///{tmp_path}/redrive.db"
    )
    async with serving(settings) as server, server.client() as client:
        assert (await client.get("/healthz")).status_code == 200
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["store"], ready.json()["broker"]) == (
            503,
            True,
            False,
        )
        topology = await client.get(f"{V1}/topology")
        assert topology.status_code == 503
        assert topology.json()["type"] == "urn:redrive:problem:broker-unavailable"
        assert "guest:guest" not in topology.text


async def test_every_answer_carries_the_security_headers(client: httpx.AsyncClient) -> None:
    for path in ("/healthz", f"{V1}/letters", f"{V1}/letters/nonsense", "/api/nowhere"):
        headers = (await client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "unsafe" not in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers
