"""One letter: what is seen of it, edited, sent and decided on."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from redrive.amqp import fields
from redrive.domain.lifecycle import State
from redrive.work.edit import as_sent
from redrive.work.redact import content_of
from tests.browser.console import Console, accessibility_faults, scrolls_sideways
from tests.browser.replaying import confirm_replay
from tests.services.letters import arrival, died_in, failed
from tests.services.plugin import Vhost
from tests.services.retrying import declare_origin
from tests.services.serving import serving, settings_for

LONG = '{"id":9007199254740993,"price":1.10,"lines":[{"qty":2}]}'
JSON = {"content_type": "application/json"}


async def letter(console: Console, body: bytes = LONG.encode(), **headers: bytes) -> str:
    given = arrival(body, headers={**died_in("orders"), **headers}, properties=JSON)
    (one,) = await console.server.add(given)
    return one


async def sent_of(console: Console, letter_id: str) -> bytes:
    kept = await console.server.store.letters.kept(letter_id)
    assert kept is not None
    return as_sent(kept).body


async def state(console: Console, letter_id: str) -> State:
    found = await console.server.store.letters.get(letter_id)
    assert found is not None
    return found.status


def payload(page: Page) -> Locator:
    return page.get_by_role("region", name="Payload")


async def editor(page: Page) -> Locator:
    await page.get_by_role("button", name="Edit…").click()
    writing = page.get_by_role("textbox", name="New body")
    await expect(writing).to_be_visible()
    return writing


async def write(page: Page, text: str) -> None:
    """Replaces all that is in the editor."""
    writing = page.get_by_role("textbox", name="New body")
    await writing.click()
    await page.keyboard.press("Control+a")
    await page.keyboard.insert_text(text)


# Seen


async def test_a_letter_is_shown_with_all_that_is_known_of_it(console: Console) -> None:
    reason = {
        "redrive-error-type": fields.longstr("ValidationError"),
        "redrive-error-reason": fields.longstr("no such currency"),
        "redrive-error-stack": fields.longstr("Traceback\n  line 1"),
    }
    one = await letter(
        console, **reason, tenant=fields.longstr("acme"), number=fields.int64(9007199254740993)
    )
    await letter(console, b'{"other": 1}', **reason)
    page = await console.person(f"/letters/{one}")
    await expect(page.get_by_role("heading", name=re.compile("ValidationError"))).to_be_visible()
    await expect(page.get_by_role("region", name="Failure")).to_contain_text("no such currency")
    await expect(page.get_by_role("region", name="Failure")).to_contain_text("line 1")
    number = page.get_by_role("row").filter(has_text="number")
    await expect(number).to_contain_text("int64")
    await expect(number).to_contain_text("9007199254740993")
    timeline = page.get_by_role("region", name="Timeline")
    await expect(timeline.get_by_role("listitem").nth(0)).to_contain_text("rejected in orders")
    await expect(timeline).to_contain_text("collected as pending")
    await expect(page.get_by_role("region", name="Facts")).to_contain_text("order.created")
    group = page.get_by_role("region", name="Group")
    await expect(group.get_by_role("link", name="2 letters")).to_be_visible()


async def test_numbers_stay_as_they_were_written_in_every_form_of_the_payload(
    console: Console,
) -> None:
    page = await console.person(f"/letters/{await letter(console)}")
    await expect(payload(page)).to_contain_text('"id": 9007199254740993,')
    await expect(payload(page)).to_contain_text('"price": 1.10,')
    for form in ("Text", "Raw"):
        await page.get_by_role("tab", name=form).click()
        await expect(payload(page)).to_contain_text(LONG)


async def test_encodings_are_undone_and_bytes_are_shown_as_bytes(console: Console) -> None:
    packed, binary = await console.server.add(
        arrival(gzip.compress(LONG.encode()), properties=JSON | {"content_encoding": "gzip"}),
        arrival(b"\x00\x01\xff binary"),
    )
    page = await console.person(f"/letters/{packed}")
    await expect(payload(page)).to_contain_text('"id": 9007199254740993,')
    await expect(payload(page)).to_contain_text("gzip undone")
    await page.get_by_role("tab", name="Raw").click()
    await expect(payload(page)).to_contain_text("00000000  1f 8b")
    await page.goto(f"/letters/{binary}")
    await expect(payload(page)).to_contain_text("00000000  00 01 ff 20 62")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("", ", and are hidden by redaction.headers."),
        ("[redaction]\nheaders = []\n", ". Their bytes, in base64: /w=="),
    ],
    ids=["hidden", "shown"],
)
async def test_properties_that_cannot_be_read_are_shown_as_bytes_or_said_to_be_hidden(
    browser: Browser, vhost: Vhost, tmp_path: Path, rules: str, said: str
) -> None:
    given = arrival()
    given = replace(given, envelope=replace(given.envelope, properties=b"\xff"))
    settings = settings_for(tmp_path, vhost.url, f"sqlite:///{tmp_path}/redrive.db", rules)
    async with serving(settings) as server, Console(browser, server) as console:
        (one,) = await server.add(given)
        page = await console.person(f"/letters/{one}")
        headers = page.get_by_role("region", name="Headers")
        await expect(headers.get_by_role("paragraph")).to_have_text(
            [f"The properties cannot be read{said}"]
        )


async def test_previous_and_next_are_those_of_the_list_by_keyboard(console: Console) -> None:
    first, _, last = await console.server.add(
        failed("a"), failed("b", queue="elsewhere"), failed("c")
    )
    page = await console.person(f"/letters/{last}?queue=orders")
    await expect(page.get_by_role("button", name="Older letter")).to_be_enabled()
    await page.keyboard.press("j")
    await expect(page).to_have_url(re.compile(f"{first}.*queue=orders"))
    await expect(page.get_by_role("button", name="Newer letter")).to_be_enabled()
    await expect(page.get_by_role("button", name="Older letter")).to_be_disabled()
    await page.keyboard.press("k")
    await expect(page).to_have_url(re.compile(last))
    await page.keyboard.press("u")
    await expect(page).to_have_url(re.compile(r"/letters\?queue=orders$"))


# Edited


async def test_a_body_is_edited_after_a_look_at_the_difference(console: Console) -> None:
    one = await letter(console)
    page = await console.person(f"/letters/{one}")
    await editor(page)
    await write(page, LONG.replace("1.10", "2.50"))
    await page.get_by_role("button", name="Review the change").click()
    diff = page.get_by_label("Difference")
    await expect(diff).to_contain_text('-  "price": 1.10,')
    await expect(diff).to_contain_text('+  "price": 2.50,')
    assert await sent_of(console, one) == LONG.encode()
    await page.get_by_label("Reason").fill("the price was wrong")
    await page.get_by_role("button", name="Save the edit").click()
    await expect(page.get_by_role("region", name="Edits")).to_contain_text("the price was wrong")
    assert await sent_of(console, one) == LONG.replace("1.10", "2.50").encode()
    await expect(payload(page)).to_contain_text('"price": 2.50')
    await page.get_by_role("button", name="Original").click()
    await expect(payload(page)).to_contain_text('"price": 1.10')
    await page.get_by_role("button", name="Take edit 1 back").click()
    await expect(page.get_by_role("region", name="Edits")).to_contain_text("taken back")
    assert await sent_of(console, one) == LONG.encode()


async def test_what_is_not_edited_stays_byte_for_byte_line_ends_too(console: Console) -> None:
    body = b'{"a": 12345678901234567890,\r\n\t"b": 1e400,\r\n "c": "\\u00e9"}'
    one = await letter(console, body)
    page = await console.person(f"/letters/{one}")
    writing = await editor(page)
    await writing.click()
    await page.keyboard.press("Control+Home")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.insert_text('"new": true, ')
    await page.get_by_role("button", name="Review the change").click()
    await page.get_by_role("button", name="Save the edit").click()
    await expect(page.get_by_role("region", name="Edits")).to_be_visible()
    assert await sent_of(console, one) == body.replace(b"{", b'{"new": true, ', 1)


async def test_headers_are_set_added_and_removed(console: Console) -> None:
    one = await letter(
        console, tenant=fields.longstr("acme"), level=fields.int32(3), old=fields.longstr("x")
    )
    page = await console.person(f"/letters/{one}")
    await editor(page)
    await page.get_by_role("tab", name="Headers").click()
    await page.get_by_label("Value of tenant").fill("globex")
    await page.get_by_label("Value of level").fill("many")
    await page.get_by_role("button", name="Remove old").click()
    await page.get_by_label("Name of a new header").fill("fixed-by")
    await page.get_by_role("button", name="Add").click()
    await page.get_by_label("Value of fixed-by").fill("ann")
    await page.get_by_role("button", name="Review the change").click()
    await expect(page.get_by_role("alert")).to_contain_text("of type int32")
    await expect(page.get_by_label("Value of tenant")).to_have_value("globex")
    await page.get_by_label("Value of level").fill("4")
    await page.get_by_role("button", name="Review the change").click()
    await expect(page.get_by_label("Difference")).to_contain_text("+header level (int32): 4")
    await page.get_by_role("button", name="Save the edit").click()
    headers = page.get_by_role("table", name="Headers", exact=True)
    await expect(headers.get_by_role("row").filter(has_text="tenant")).to_contain_text("globex")
    await expect(headers.get_by_role("row").filter(has_text="level")).to_contain_text("int32")
    await expect(headers.get_by_role("row").filter(has_text="fixed-by")).to_contain_text("ann")
    await expect(headers.get_by_role("row").filter(has_text="old")).to_have_count(0)


async def test_a_content_type_is_shown_as_it_is_sent_and_can_be_set_back(console: Console) -> None:
    given = arrival(
        b"{}", headers=died_in("orders"), properties={"content_type": "application/json"}
    )
    (one,) = await console.server.add(given)
    async with console.server.client() as client:
        edited = await client.post(f"/api/v1/letters/{one}/edit", json={"contentType": "text/xml"})
        edited.raise_for_status()
    page = await console.person(f"/letters/{one}")
    await expect(payload(page)).to_contain_text("text/xml")
    await page.get_by_role("button", name="Original").click()
    await expect(payload(page)).to_contain_text("application/json")
    await editor(page)
    content_type = page.get_by_label("Content type")
    await expect(content_type).to_have_value("text/xml")
    await content_type.fill("application/json")
    await page.get_by_role("button", name="Review the change").click()
    await expect(page.get_by_label("Difference")).to_contain_text("+contentType: application/json")
    await page.get_by_role("button", name="Save the edit").click()
    await expect(page.get_by_role("region", name="Edits")).to_contain_text("Edit 2")
    kept = await console.server.store.letters.kept(one)
    assert kept is not None
    assert content_of(as_sent(kept))[0] == "application/json"


async def test_an_error_never_loses_what_was_typed(console: Console) -> None:
    one = await letter(console)
    page = await console.person(f"/letters/{one}")
    await editor(page)
    broken = '{"id": 9007199254740993, "broken": '
    await write(page, broken)
    await page.get_by_role("button", name="Review the change").click()
    await expect(page.get_by_role("alert")).to_contain_text("JSON")
    writing = page.get_by_role("textbox", name="New body")
    await expect(writing).to_contain_text('"broken":')
    await page.keyboard.press("Escape")
    await page.get_by_role("link", name="Letters").first.click()
    await page.go_back()
    await editor(page)
    await expect(writing).to_contain_text('"broken":')
    await expect(page.get_by_text("What you had written before is here again.")).to_be_visible()


async def test_of_two_who_edit_at_once_the_second_is_told_and_keeps_the_text(
    console: Console,
) -> None:
    one = await letter(console)
    ann, bob = await console.person(f"/letters/{one}"), await console.person(f"/letters/{one}")
    await editor(bob)
    await write(bob, '{"by": "bob"}')
    await editor(ann)
    await write(ann, '{"by": "ann"}')
    await ann.get_by_role("button", name="Review the change").click()
    await ann.get_by_role("button", name="Save the edit").click()
    await expect(ann.get_by_role("region", name="Edits")).to_be_visible()
    await bob.get_by_role("button", name="Review the change").click()
    await expect(bob.get_by_role("alert")).to_contain_text("changed by somebody else")
    await expect(bob.get_by_role("alert")).to_be_focused()
    await expect(bob.get_by_label("What changed meanwhile")).to_contain_text('+  "by": "ann"')
    assert await accessibility_faults(bob) == []
    await expect(bob.get_by_role("textbox", name="New body")).to_contain_text('{"by": "bob"}')
    await bob.keyboard.press("Escape")
    await expect(bob.get_by_role("region", name="Edits")).to_contain_text("Edit 1")
    assert await sent_of(console, one) == b'{"by": "ann"}'


async def test_what_was_written_goes_on_top_of_what_somebody_else_saved_meanwhile(
    console: Console,
) -> None:
    one = await letter(console, tenant=fields.longstr("acme"))
    page = await console.person(f"/letters/{one}")
    await editor(page)
    await page.get_by_role("tab", name="Headers").click()
    await page.get_by_label("Value of tenant").fill("globex")
    await page.get_by_role("button", name="Review the change").click()
    await page.get_by_label("Reason").fill("the tenant has moved")
    for price in ("2.50", "3.75"):
        async with console.server.client() as client:
            path = f"/api/v1/letters/{one}/edit"
            body = {"encoding": "utf8", "data": LONG.replace("1.10", price)}
            (await client.post(path, json={"body": body})).raise_for_status()
        if price == "2.50":
            await page.get_by_role("button", name="Save the edit").click()
            meanwhile = page.get_by_label("What changed meanwhile")
            await expect(meanwhile).to_contain_text('+  "price": 2.50,')
        else:  # and once more, before the person has decided
            await page.get_by_role("button", name="Put mine on the newest").click()
            await expect(meanwhile).to_contain_text('+  "price": 3.75,')
            await page.get_by_role("button", name="Put mine on the newest").click()
    diff = page.get_by_label("Difference")
    await expect(diff).to_contain_text("+header tenant (longstr): globex")
    await expect(diff).not_to_contain_text("price")
    await expect(page.get_by_label("Reason")).to_have_value("the tenant has moved")
    await page.get_by_role("button", name="Save the edit").click()
    await expect(page.get_by_role("region", name="Edits")).to_contain_text("will be sent")
    assert await sent_of(console, one) == LONG.replace("1.10", "3.75").encode()
    headers = page.get_by_role("table", name="Headers", exact=True)
    await expect(headers.get_by_role("row").filter(has_text="tenant")).to_contain_text("globex")


async def test_of_two_who_take_one_edit_back_the_second_takes_back_no_other(
    console: Console,
) -> None:
    one = await letter(console)
    async with console.server.client() as ann:

        async def overtaken(route: Route) -> None:
            await ann.post(f"/api/v1/letters/{one}/undo", json={"edit": 2})
            await route.continue_()

        for text in ("1", "2"):
            body = {"encoding": "utf8", "data": text}
            await ann.post(f"/api/v1/letters/{one}/edit", json={"body": body})
        bob = await console.person(f"/letters/{one}")
        await bob.route("**/undo", overtaken)
        await bob.get_by_role("button", name="Take edit 2 back").click()
        await expect(bob.get_by_role("alert")).to_contain_text("changed by somebody else")
        await expect(bob.get_by_role("button", name="Take edit 1 back")).to_be_visible()
    assert await sent_of(console, one) == b"1"


async def test_what_is_refused_is_said_where_it_is_seen(console: Console) -> None:
    one = await letter(console)
    page = await console.person(f"/letters/{one}", phone=True)
    await page.set_viewport_size({"width": 375, "height": 480})
    await editor(page)
    await write(page, '{"broken": ')
    await page.get_by_role("button", name="Review the change").click()
    alert = page.get_by_role("alert")
    await expect(alert).to_be_focused()
    await expect(alert).to_be_in_viewport(ratio=0.9)


async def test_typing_over_a_selection_keeps_to_the_policy_and_to_the_editors_ways(
    console: Console,
) -> None:
    one = await letter(console)
    page = await console.person(f"/letters/{one}")
    writing = await editor(page)
    await writing.click()
    for typed, written in (("[", f"[{LONG}]"), ("7", "7"), ("true", "true")):
        await page.keyboard.press("Control+a")
        await page.keyboard.type(typed)
        await expect(writing).to_have_text(written)
        if typed == "[":
            await page.keyboard.press("Control+z")
            await expect(writing).to_have_text(LONG)


# Sent and decided on


async def test_a_letter_is_replayed_to_another_queue_after_a_dry_run_that_looked_at_it(
    console: Console,
) -> None:
    one = await letter(console)
    await declare_origin(console.broker, "repair", "classic", "repair")
    page = await console.person(f"/letters/{one}")
    await expect(page.get_by_role("button", name="Replay…")).to_be_enabled()
    await page.keyboard.press("r")
    dialog = page.get_by_role("dialog")
    run = dialog.get_by_role("region", name="Dry run")
    await expect(run).to_contain_text("queue orders")
    await dialog.get_by_label("Another queue").check()
    await dialog.get_by_role("textbox", name="Queue").fill("nowhere")
    await expect(run).to_contain_text("queue nowhere")
    await expect(run).to_contain_text("1 letter would not be taken")
    await dialog.get_by_role("textbox", name="Queue").fill("repair")
    await expect(run).to_contain_text("queue repair")
    await expect(run).to_contain_text("0 ready")
    await confirm_replay(dialog, "Replay 1 letter")
    await expect(page.get_by_text("Replay of 1 letter begun")).to_be_visible()
    (job,) = (await console.server.store.replays.page(limit=5, after=None)).items
    assert str(job.destination) == "queue:repair"


async def test_a_letter_is_discarded_restored_resolved_and_archived(console: Console) -> None:
    one = await letter(console)
    page = await console.person("/letters")
    await expect(page.get_by_role("row").nth(1)).to_contain_text("pending")
    await page.get_by_role("link", name="REJECTED").click()
    for verb, after in (
        ("Discard", State.ARCHIVED),
        ("Restore", State.MANUAL),
        ("Archive", State.ARCHIVED),
        ("Restore", State.MANUAL),
        ("Resolve", State.RESOLVED),
    ):
        await page.get_by_role("button", name=f"{verb}…").click()
        await page.get_by_role("dialog").get_by_label("Reason").fill(f"why {verb}")
        await page.get_by_role("button", name=f"{verb} 1 letter").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text(after.word)
        assert await state(console, one) is after
    await expect(page.get_by_role("region", name="Timeline")).to_contain_text("why Resolve")
    await page.get_by_role("link", name="Letters").first.click()
    await expect(page.get_by_role("row").nth(1)).to_contain_text("resolved")


async def test_a_letter_is_replayed_however_busy_the_machine_is(console: Console) -> None:
    one = await letter(console)
    page = await console.person("/letters")

    async def is_busy(route: Route) -> None:
        answer = await route.fetch()
        found = {**await answer.json(), "unmet": ["CPU usage is 97 %, not below 80 %"]}
        await route.fulfill(response=answer, json=found)

    await page.route("**/api/v1/replays/preview", is_busy)
    await page.goto(f"/letters/{one}")
    await page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Where it failed")).to_be_checked()
    await expect(dialog.get_by_role("region", name="Dry run")).to_contain_text("queue orders")
    await expect(dialog.get_by_text("even so")).to_have_count(0)
    await dialog.get_by_role("button", name="Replay 1 letter").click()
    await expect(page.get_by_text("Replay of 1 letter begun")).to_be_visible()


async def test_a_letter_that_is_gone_is_said_to_be(console: Console) -> None:
    page = await console.person("/letters/no-id-at-all")
    await expect(page.get_by_role("alert")).to_contain_text("Letter id: expected an id such as")
    await page.goto("/letters/00000000-0000-7000-8000-000000000000")
    await expect(page.get_by_role("alert")).to_contain_text("There is no letter")


# For everybody


async def test_a_letter_and_its_editor_can_be_read_by_everybody(console: Console) -> None:
    one = await letter(console, tenant=fields.longstr("acme"))
    page = await console.person(f"/letters/{one}")
    await expect(payload(page)).to_contain_text("9007199254740993")
    assert await accessibility_faults(page) == []
    await editor(page)
    assert await accessibility_faults(page) == []
    await write(page, '{"id": 1}')
    await page.get_by_role("button", name="Review the change").click()
    await expect(page.get_by_label("Difference")).to_be_visible()
    assert await accessibility_faults(page) == []


async def test_at_phone_width_a_letter_and_its_editor_do_not_scroll_sideways(
    console: Console,
) -> None:
    wide = ("x" * 500).encode()
    one = await letter(console, b'{"wide": "' + wide + b'"}', tenant=fields.longstr("y" * 300))
    page = await console.person(f"/letters/{one}", phone=True)
    await expect(payload(page)).to_contain_text("wide")
    assert not await scrolls_sideways(page)
    await editor(page)
    assert not await scrolls_sideways(page)
