"""The console over HTTP: which path gives what, how long it is kept, and what may run in it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.services.serving import Server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client() as opened:
        yield opened


async def test_every_path_of_the_console_is_its_page_which_is_asked_for_each_time(
    client: httpx.AsyncClient,
) -> None:
    page = await client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    for path in ("/letters", "/letters/0190a7c0-0000-7000-8000-000000000000", "/a.b/c"):
        assert (await client.get(path)).content == page.content
    again = await client.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_what_the_page_loads_is_kept_for_ever_and_comes_compressed(
    client: httpx.AsyncClient,
) -> None:
    page = (await client.get("/")).text
    scripts = re.findall(r'src="(/assets/[^"]+\.js)"', page)
    styles = re.findall(r'href="(/assets/[^"]+\.css)"', page)
    assert scripts
    assert styles
    for path in scripts + styles:
        asset = await client.get(path)
        assert asset.status_code == 200
        assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert asset.headers["content-encoding"] == "gzip"
        plain = await client.get(path, headers={"Accept-Encoding": "identity"})
        assert plain.content == asset.content
        assert "content-encoding" not in plain.headers


async def test_nothing_in_the_page_is_inline_and_the_policy_allows_nothing_inline(
    client: httpx.AsyncClient,
) -> None:
    page = await client.get("/letters")
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "script-src 'self';" in policy
    assert "style-src 'self';" in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page.text)
    assert not re.search(r"(src|href)=\"(https?:)?//", page.text)


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/v1/nothing", "/api/v2/letters"])
async def test_what_the_api_does_not_have_is_a_problem_and_not_a_page(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "path", ["/assets/index-gone.js", "/assets/../../app.py", "/assets/%2e%2e/%2e%2e/app.py"]
)
async def test_a_file_that_is_not_of_the_build_is_not_there(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path)
    assert b"FastAPI" not in answer.content
    assert (answer.status_code, answer.headers["content-type"]) in (
        (404, "application/problem+json"),
        (200, "text/html; charset=utf-8"),
    )
