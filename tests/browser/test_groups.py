"""Groups: letters by failure, and what is done with all of a group at once."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

from playwright.async_api import Page, Route, expect

from redrive.amqp import fields
from redrive.domain.filters import Filters
from redrive.domain.lifecycle import State
from tests.browser.console import Console, accessibility_faults, scrolls_sideways
from tests.browser.replaying import confirm_replay
from tests.services.letters import arrival, died_in, failed
from tests.services.serving import Server

PATCH = '[{"op": "replace", "path": "/order", "value": 12345678901234567890}]'


async def group_of(server: Server, *reasons: str) -> str:
    """The fingerprint of letters that fail alike."""
    arrivals = [failed(reason) for reason in reasons]
    await server.add(*arrivals)
    return arrivals[0].letter.fingerprint


async def names(page: Page) -> list[str]:
    links = page.get_by_role("list", name="Groups").locator("a[data-group]")
    return [text.strip() for text in await links.all_inner_texts()]


async def test_groups_are_ordered_and_searched_and_the_address_keeps_it(shop: Console) -> None:
    page = await shop.person("/groups")
    await expect(page.get_by_text("10 groups")).to_be_visible()
    assert (await names(page))[:2] == ["TIMEOUT_ERROR", "ConnectionRefusedError"]
    await expect(page.get_by_role("img", name="148 letters in the last 24 hours")).to_be_visible()
    await expect(page.get_by_role("img", name="22 pending, 19 resolved")).to_be_visible()
    await page.get_by_role("button", name="First seen").click()
    await expect(page).to_have_url(re.compile("order=oldest"))
    await page.keyboard.press("/")
    await page.keyboard.type("monday")
    await expect(page.get_by_text("1 group", exact=True)).to_be_visible()
    await page.reload()
    await expect(page.get_by_text("1 group", exact=True)).to_be_visible()
    assert await names(page) == ["VALIDATION_ERROR"]
    await page.get_by_label("Search groups").fill("nothing like it")
    await page.get_by_role("button", name="Clear the filters").click()
    await expect(page.get_by_text("10 groups")).to_be_visible()


async def test_groups_are_walked_and_opened_by_keyboard(shop: Console) -> None:
    page = await shop.person("/groups")
    await expect(page.get_by_text("10 groups")).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="ConnectionRefusedError")).to_be_visible()
    letters = page.get_by_role("link", name=re.compile("processing"))
    await expect(letters).to_have_attribute("href", re.compile("group=.*&status=processing"))


async def test_groups_can_be_read_by_everybody(shop: Console) -> None:
    page = await shop.person("/groups")
    await expect(page.get_by_role("img", name="148 letters in the last 24 hours")).to_be_visible()
    assert await accessibility_faults(page) == []
    await page.get_by_role("link", name="VALIDATION_ERROR").click()
    await expect(page.get_by_text("41 letters in the last 24 hours").last).to_be_visible()
    assert await accessibility_faults(page) == []
    await page.get_by_role("button", name="Edit").click()
    assert await accessibility_faults(page) == []


async def test_at_phone_width_groups_do_not_scroll_sideways(shop: Console) -> None:
    page = await shop.person("/groups", phone=True)
    await expect(page.get_by_role("link", name="KeyError")).to_be_visible()
    assert not await scrolls_sideways(page)
    await page.get_by_role("link", name="KeyError").click()
    await expect(page.get_by_text("Newest letters").first).to_be_visible()
    assert not await scrolls_sideways(page)


async def test_new_groups_appear_by_themselves(console: Console) -> None:
    page = await console.person("/groups")
    await expect(page.get_by_text("There are no groups")).to_be_visible()
    await console.server.add(failed("no such currency"))
    await expect(page.get_by_text("no such currency")).to_be_visible()


async def test_a_note_is_kept_and_seen_by_others_and_survives_an_error(console: Console) -> None:
    group = await group_of(console.server, "timed out")
    page = await console.person(f"/groups/{group}")
    other = await console.person(f"/groups/{group}")
    await page.get_by_label("What is known").fill("waits for the provider")
    await page.get_by_label("Looked after by").fill("maja")
    await page.context.set_offline(True)
    await page.get_by_role("button", name="Save the note").click()
    await expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    await expect(page.get_by_label("What is known")).to_have_value("waits for the provider")
    await page.context.set_offline(False)
    await page.get_by_role("button", name="Save the note").click()
    await expect(page.get_by_text("Note saved")).to_be_visible()
    await expect(other.get_by_label("What is known")).to_have_value("waits for the provider")
    await page.goto("/groups?assignee=maja")
    await expect(page.get_by_text("1 group", exact=True)).to_be_visible()


async def test_of_two_who_write_a_note_the_second_sees_the_firsts_and_keeps_their_own(
    console: Console,
) -> None:
    group = await group_of(console.server, "timed out")
    notes = console.server.store.notes

    async def overtaken(route: Route) -> None:
        await notes.set(group, "ann's", None, "user:ann", made_from=None)
        await route.continue_()

    bob = await console.person(f"/groups/{group}")
    await bob.get_by_label("What is known").fill("bob's")
    await bob.route("**/note", overtaken)
    async with bob.expect_response("**/note") as answered:
        await bob.get_by_role("button", name="Save the note").click()
    assert (await answered.value).status == 409
    await bob.unroute_all()
    meanwhile = bob.get_by_role("status").filter(has_text="while you were writing")
    await expect(meanwhile).to_contain_text("ann's")
    await expect(bob.get_by_label("What is known")).to_have_value("bob's")
    assert await accessibility_faults(bob) == []
    assert (await notes.of([group]))[group].note == "ann's"
    await bob.get_by_role("button", name="Go on with mine").click()
    await bob.get_by_role("button", name="Save the note").click()
    await expect(bob.get_by_text("Note saved")).to_be_visible()
    assert (await notes.of([group]))[group].note == "bob's"


async def test_a_whole_group_is_edited_after_a_look_at_one(console: Console) -> None:
    group = await group_of(console.server, "timed out", "timed out")
    page = await console.person(f"/groups/{group}")
    await expect(page.get_by_role("heading", name="TIMEOUT_ERROR")).to_be_visible()
    await page.keyboard.press("e")
    dialog = page.get_by_role("dialog")
    edit = dialog.get_by_role("button", name="Edit")
    patch = dialog.get_by_label("JSON Patch")
    await patch.fill("[{")
    await dialog.get_by_role("button", name="Show what it would do").click()
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await expect(patch).to_have_value("[{")
    await patch.fill(PATCH)
    await expect(edit).to_be_disabled()
    await dialog.get_by_role("button", name="Show what it would do").click()
    await expect(dialog.get_by_text('"order": 12345678901234567890')).to_be_visible()
    # One more fails meanwhile: the number no longer holds, and nothing is done.
    await group_of(console.server, "timed out")
    await dialog.get_by_role("button", name="Edit 2 letters").click()
    await dialog.get_by_role("alert").get_by_role("button", name="Try again").click()
    await dialog.get_by_role("button", name="Edit 3 letters").click()
    await expect(page.get_by_text("3 letters edited")).to_be_visible()
    for letter in (await console.server.store.letters.page(Filters())).items:
        kept = await console.server.store.letters.kept(letter.id)
        assert kept is not None
        assert b"12345678901234567890" in kept.edits[-1].body


async def test_a_whole_group_is_discarded_with_its_exact_number(console: Console) -> None:
    group = await group_of(console.server, "timed out", "timed out", "timed out")
    await console.server.add(failed("something else"))
    page = await console.person("/groups")
    row = page.get_by_role("listitem").filter(has_text="timed out")
    await row.get_by_role("button", name="Discard").click()
    dialog = page.get_by_role("dialog", name="Discard 3 letters")
    await dialog.get_by_label("Reason").fill("tests of yesterday")
    await dialog.get_by_role("button", name="Discard 3 letters").click()
    await expect(page.get_by_text("3 letters discarded")).to_be_visible()
    await expect(page.get_by_text("1 group", exact=True)).to_be_visible()
    found = await console.server.store.groups.get(group)
    assert found is not None
    assert found.counts == {State.ARCHIVED: 3}


async def test_a_whole_group_is_replayed_after_a_dry_run(console: Console) -> None:
    await group_of(console.server, "timed out", "timed out")
    page = await console.person("/groups")
    await page.get_by_role("button", name="Replay TIMEOUT_ERROR").click()
    dialog = page.get_by_role("dialog", name="Replay 2 letters")
    await expect(dialog.get_by_text("there is no such queue")).to_be_visible()
    await confirm_replay(dialog, "Replay 2 letters")
    await expect(page).to_have_url(re.compile("/replays/"))
    (job,) = (await console.server.store.replays.page()).items
    assert job.letters == 2


async def test_what_is_about_to_be_confirmed_stays_when_all_is_read_again(
    console: Console,
) -> None:
    group = await group_of(console.server, "timed out", "timed out")
    resync = asyncio.Event()

    async def events(route: Route) -> None:
        await resync.wait()
        body = 'retry: 500\nevent: resync\ndata: {"reason": "too slow"}\n\n'
        await route.fulfill(content_type="text/event-stream", body=body)

    asked: list[str] = []
    people = []
    for verb in ("Discard", "Replay"):
        page = await console.person("/")
        page.on("request", lambda request: asked.append(urlsplit(request.url).path))
        await page.route("**/api/v1/events", events)
        await page.goto(f"/groups/{group}")
        await page.get_by_role("button", name=verb).click()
        dialog = page.get_by_role("dialog", name=f"{verb} 2 letters")
        await expect(dialog).to_be_visible()
        people.append((page, dialog))
    await group_of(console.server, "timed out")
    resync.set()
    for page, dialog in people:
        await expect(page.get_by_text("3 letters", exact=True)).to_be_visible()
        await expect(dialog).to_be_visible()
    assert asked.count("/api/v1/letters/count") == 1
    assert asked.count("/api/v1/replays/preview") == 1
    (page, dialog), (other, _) = people
    await dialog.get_by_role("button", name="Discard 2 letters").click()
    await page.get_by_role("button", name="Show 3 letters instead").click()
    await expect(page.get_by_role("dialog", name="Discard 3 letters")).to_be_visible()
    # Who asks again is told.
    await other.get_by_role("button", name="Look again").click()
    await expect(other.get_by_role("dialog", name="Replay 3 letters")).to_be_visible()


async def test_a_group_leads_to_its_possible_duplicates_and_marks_the_newest(
    console: Console,
) -> None:
    headers = {**died_in("orders"), "redrive-id": fields.longstr("r-1")}
    arrivals = [arrival(headers=headers), arrival(headers=headers), arrival()]
    first, copy, _ = await console.server.add(*arrivals)
    page = await console.person(f"/groups/{arrivals[0].letter.fingerprint}")
    newest = page.get_by_role("table", name="Newest letters")
    await expect(newest.get_by_role("row")).to_have_count(4)
    marked = newest.get_by_role("row").filter(has_text="possible duplicate")
    await expect(marked).to_have_count(1)
    await expect(marked.locator(f'a[href*="{copy}"]')).to_be_visible()
    assert await accessibility_faults(page) == []
    await page.get_by_role("link", name="Possible duplicates").click()
    await expect(page.get_by_role("checkbox", name=f"Select letter {copy}")).to_be_visible()
    await expect(page.get_by_role("checkbox", name=f"Select letter {first}")).to_have_count(0)
    assert page.url.endswith(f"group={arrivals[0].letter.fingerprint}&possibleDuplicate=true")
