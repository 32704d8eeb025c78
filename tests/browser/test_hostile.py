"""What messages may do to a page: scripts, 15 MiB."""

from __future__ import annotations

import time
from pathlib import Path

from playwright.async_api import expect

from redrive.amqp import fields
from tests.browser.console import Console
from tests.services.letters import arrival, died_in

EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>{{7*7}}'


async def test_scripts_and_markup_in_a_message_are_inert_on_every_screen(console: Console) -> None:
    evil = fields.longstr(EVIL)
    said = {"redrive-error-type": evil, "redrive-error-reason": evil, "redrive-error-stack": evil}
    headers = {**died_in(EVIL[:200]), **said, "evil": evil, EVIL[:80]: evil, "redrive-tags": evil}
    properties = {"content_type": "text/html", "message_id": EVIL, "app_id": EVIL}
    (one,) = await console.server.add(
        arrival(EVIL.encode(), headers=headers, properties=properties, routing_key=EVIL)
    )
    page = await console.person("/letters")
    await expect(page.get_by_role("link", name=EVIL)).to_be_visible()
    await page.goto(f"/letters/{one}")
    await expect(page.get_by_role("region", name="Payload")).to_contain_text(EVIL)
    await page.get_by_role("tab", name="Raw").click()
    await expect(page.get_by_role("region", name="Failure")).to_contain_text(EVIL)
    await page.get_by_role("button", name="Edit…").click()
    await expect(page.get_by_role("textbox", name="New body")).to_contain_text(EVIL)
    assert await page.evaluate("window.hacked") is None
    assert await page.locator("img[onerror], script:not([src])").count() == 0


async def test_a_body_of_15_mib_is_opened_in_part_and_downloaded_whole(
    console: Console, tmp_path: Path
) -> None:
    line = b'{"n": 9007199254740993, "text": "' + b"x" * 1000 + b'"},'
    body = b"[" + line * (15 * 2**20 // len(line)) + b"0]"
    (one,) = await console.server.add(
        arrival(body, properties={"content_type": "application/json"})
    )
    began = time.monotonic()
    page = await console.person(f"/letters/{one}")
    payload = page.get_by_role("region", name="Payload")
    await expect(payload).to_contain_text("Only its beginning is shown")
    await expect(payload).to_contain_text("9007199254740993")
    assert time.monotonic() - began < 20
    assert await page.evaluate("document.documentElement.innerHTML.length") < 2_000_000
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="Download the body").click()
    file = tmp_path / "body"
    await (await downloading.value).save_as(file)
    assert file.read_bytes() == body
    await page.get_by_role("button", name="Edit…").click()
    await expect(page.get_by_role("dialog")).to_contain_text("too large to be edited here")
