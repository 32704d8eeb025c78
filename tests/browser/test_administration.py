"""Policies, topology, audit, access: what is set up, and who did what."""

from __future__ import annotations

from playwright.async_api import expect

from redrive.domain.access import Role
from redrive.work.passwords import PREFIX
from tests.browser.console import Console, accessibility_faults, scrolls_sideways
from tests.browser.lively import topology
from tests.services.eventually import eventually_async

SCREENS = {
    "/policies": "order.*",
    "/topology": "3 parts not as the settings say",
    "/audit": "Nobody has changed anything yet",
    "/access": "There are no users",
}


async def test_the_screens_can_be_read_by_everybody(shop: Console) -> None:
    page = await shop.person("/policies")
    for path, text in SCREENS.items():
        await page.goto(path)
        await expect(page.get_by_text(text).first).to_be_visible()
        assert await accessibility_faults(page) == [], path


async def test_at_phone_width_the_screens_do_not_scroll_sideways(shop: Console) -> None:
    page = await shop.person("/policies", phone=True)
    for path, text in SCREENS.items():
        await page.goto(path)
        await expect(page.get_by_text(text).first).to_be_visible()
        assert not await scrolls_sideways(page), path


# Policies


async def test_a_policy_is_added_changed_in_place_and_deleted(console: Console) -> None:
    page = await console.person("/policies")
    other = await console.person("/policies")
    await expect(page.get_by_text("There are no policies")).to_be_visible()
    await page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="Add a policy")
    await dialog.get_by_label("Routing key").fill("order.*")
    await dialog.get_by_label("Max retries").fill("-1")
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await expect(dialog.get_by_label("Routing key")).to_have_value("order.*")
    await dialog.get_by_label("Max retries").fill("4")
    await page.keyboard.press("Enter")
    retries = page.get_by_label("Max retries of order.*")
    await expect(retries).to_have_value("4")
    await retries.fill("7")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("order.*: 7 retries")).to_be_visible()
    await expect(other.get_by_label("Max retries of order.*")).to_have_value("7")
    assert await accessibility_faults(page) == []
    await page.get_by_role("button", name="Delete order.*").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("There are no policies")).to_be_visible()


async def test_an_override_of_the_files_policy_begins_with_its_values(shop: Console) -> None:
    page = await shop.person("/policies")
    await page.get_by_role("button", name="Override order.*").click()
    dialog = page.get_by_role("dialog", name="Override order.*")
    await expect(dialog.get_by_label("Max retries")).to_have_value("3")
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)


# Topology


async def test_the_topology_has_a_picture_with_counts_and_drift(shop: Console) -> None:
    page = await shop.person("/topology")
    picture = page.get_by_role("img", name="Messages go from your queues")
    await expect(picture).to_be_visible()
    for node in ("retry-exchange", "retry-queue", "route-delay", "queue.delay.1", "redrive-return"):
        await expect(picture.get_by_text(node, exact=True).first).to_be_attached()
    await expect(picture.get_by_text("missing", exact=True)).to_have_count(1)
    await expect(page.get_by_text("Queue queue.delay.3 is missing.")).to_be_visible()
    row = page.get_by_role("row", name="retry-queue 6")
    await expect(row).to_be_visible()


async def test_what_is_mended_is_seen_without_reloading(console: Console) -> None:
    page = await console.person("/topology")
    await expect(page.get_by_text("not as the settings say")).to_be_visible()
    await topology(console.server, holds=[("dlq-queue", 2)])
    await expect(page.get_by_text("Everything is as the settings say")).to_be_visible()
    await expect(page.get_by_role("row", name="dlq-queue 2")).to_be_visible()


# Audit


async def test_the_audit_log_tells_who_did_what_and_is_filtered(console: Console) -> None:
    page = await console.person("/audit")
    async with console.server.client() as client:
        await client.put("/api/v1/policies", json={"name": "a.b", "maxRetries": 2})
        await client.post("/api/v1/breakers/force", json={"queue": "mail", "position": "open"})
        await client.delete("/api/v1/policies?name=none")
    await expect(page.get_by_role("row", name="breakers.force")).to_contain_text("mail")
    await expect(page.get_by_role("row", name="policies.delete")).to_contain_text("refused, 404")
    await page.get_by_label("Action").fill("policies.*")
    await expect(page.get_by_role("row", name="breakers.force")).to_have_count(0)
    await expect(page.get_by_role("row", name="policies.set")).to_be_visible()
    await page.get_by_label("From").fill("yesterday-ish")
    await expect(page.get_by_role("alert")).to_contain_text("expected a time")
    await expect(page.get_by_label("From")).to_have_value("yesterday-ish")
    await page.get_by_label("From").fill("1h")
    await page.get_by_label("Who").fill("nobody")
    await expect(page.get_by_text("No entry matches")).to_be_visible()
    await page.get_by_role("button", name="Clear the filters").click()
    await expect(page.get_by_role("row", name="breakers.force")).to_be_visible()


# Access


async def test_users_and_tokens_are_made_shown_once_and_taken_away(console: Console) -> None:
    page = await console.person("/access")
    await page.get_by_role("button", name="Add a user").click()
    await page.get_by_label("Name").fill("maja")
    await page.get_by_label("Password").fill("long enough")
    await page.keyboard.press("Enter")
    login = page.get_by_role("dialog", name="Log in again")
    await login.get_by_label("Name").fill("maja")
    await login.get_by_label("Password").fill("long enough")
    await page.keyboard.press("Enter")
    await expect(login).to_have_count(0)
    await page.get_by_role("button", name="Make a token").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("deploys")
    await page.keyboard.press("Enter")
    await dialog.get_by_role("button", name="Copy the token").click()

    async def copied() -> str:  # a moment after the click
        text: str = await page.evaluate("navigator.clipboard.readText()")
        return text if text.startswith(PREFIX) else ""

    secret = await eventually_async(copied, what="the token")
    await expect(dialog.get_by_text(secret)).to_be_visible()
    await dialog.get_by_role("button", name="I have kept it").click()
    async with console.server.client(headers={"Authorization": f"Bearer {secret}"}) as client:
        assert (await client.get("/api/v1/letters")).status_code == 200
        await page.get_by_role("button", name="Revoke deploys").click()
        await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        await expect(page.get_by_text("revoked", exact=True)).to_be_visible()
        assert (await client.get("/api/v1/letters")).status_code == 401
    assert await accessibility_faults(page) == []
    await page.get_by_role("button", name="Delete maja").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("alert")).to_contain_text("Nobody deletes themselves")


async def test_a_viewer_is_offered_nothing_that_changes_something(console: Console) -> None:
    await console.server.user("vera", "long enough", Role.VIEWER)
    page = await console.person("/policies")
    await page.get_by_label("Name").fill("vera")
    await page.get_by_label("Password").fill("long enough")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("There are no policies")).to_be_visible()
    for link in ("Audit", "Access"):
        await expect(page.get_by_role("link", name=link)).to_have_count(0)
    await expect(page.get_by_role("button", name="Add a policy")).to_have_count(0)
    await page.goto("/replays")
    await expect(page.get_by_text("Nothing was replayed yet")).to_be_visible()
    await expect(page.get_by_role("button", name="New replay")).to_have_count(0)
    await page.goto("/")
    await expect(page.get_by_text("Every destination is open to letters")).to_be_visible()
    await expect(page.get_by_role("button", name="Hold a queue")).to_have_count(0)
