"""The list of letters: filters in the address, search, selection, bulk actions, live."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from playwright.async_api import Locator, Page, Route, expect

from redrive.amqp import fields
from redrive.domain.access import Role
from redrive.domain.lifecycle import State
from tests.browser.console import Console, accessibility_faults, scrolls_sideways
from tests.browser.replaying import confirm_replay
from tests.services.eventually import eventually_async
from tests.services.letters import arrival, died_in, failed
from tests.services.moving import declare
from tests.services.plugin import Vhost


async def some(console: Console, number: int, reason: str = "timed out") -> list[str]:
    return await console.server.add(*(failed(f"{reason} {each}") for each in range(number)))


async def states(console: Console, ids: Sequence[str]) -> set[State]:
    letters = console.server.store.letters
    return {found.status for each in ids if (found := await letters.get(each)) is not None}


async def tick(page: Page, letter_id: str) -> None:
    await page.get_by_role("checkbox", name=f"Select letter {letter_id}").check()


async def scroll_to(page: Page, wanted: Locator) -> None:
    """Scroll down, as far as there are letters, until it is seen."""
    frame = page.get_by_role("table", name="Letters").locator("..")

    async def is_seen() -> bool:
        await frame.evaluate("frame => frame.scrollTo(0, frame.scrollHeight)")
        return await wanted.is_visible()

    await eventually_async(is_seen, what="the end of the list")


async def test_filters_are_in_the_address_and_come_back_with_it(console: Console) -> None:
    await console.server.add(
        failed("no such currency", error_type="ValidationError"),
        failed("gateway away", queue="payments"),
    )
    page = await console.person("/letters")
    await expect(page.get_by_text("gateway away")).to_be_visible()
    await page.get_by_role("button", name="Filters…").click()
    await page.get_by_label("Error type").fill("Valid*")
    await page.get_by_role("button", name="Show letters").click()
    await expect(page.get_by_text("gateway away")).to_have_count(0)
    await expect(page.get_by_text("no such currency")).to_be_visible()
    assert "errorType=Valid*" in page.url
    other = await console.person(page.url)
    await expect(other.get_by_text("no such currency")).to_be_visible()
    await expect(other.get_by_text("gateway away")).to_have_count(0)
    await page.get_by_role("button", name="Remove filter Error type").click()
    await expect(page.get_by_text("gateway away")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_text("gateway away")).to_have_count(0)


async def test_search_looks_into_bodies_and_what_matches_nothing_says_what_to_do(
    console: Console,
) -> None:
    await console.server.add(arrival(b'{"customer": "ann-77"}'), failed("timed out"))
    page = await console.person("/letters")
    await expect(page.get_by_text("timed out")).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("ann-77")
    await expect(page.get_by_text("timed out")).to_have_count(0)
    await expect(page.get_by_role("link", name="REJECTED")).to_be_visible()
    assert "search=ann-77" in page.url
    await page.get_by_role("searchbox", name="Search letters").fill("nowhere to be found")
    await expect(page.get_by_role("heading", name="No letter matches")).to_be_visible()
    await page.get_by_role("group", name="Copies").get_by_role("button").click()
    await expect(page.get_by_text("may be a second copy of another")).to_be_visible()
    await page.get_by_role("button", name="Clear the filters").click()
    await expect(page.get_by_text("timed out")).to_be_visible()


async def test_what_arrives_while_somebody_searches_is_told_and_not_searched_for_again(
    console: Console,
) -> None:
    await some(console, 1, "card declined")
    page = await console.person("/letters?search=declined")
    await expect(page.get_by_text("card declined 0")).to_be_visible()
    await console.server.add(failed("card declined again"))
    notice = page.get_by_role("status").filter(has_text="Letters have come or changed since.")
    await expect(notice).to_be_visible()
    await expect(page.get_by_text("card declined again")).to_have_count(0)
    await notice.get_by_role("button", name="Read again").click()
    await expect(page.get_by_text("card declined again")).to_be_visible()


async def test_a_filter_that_cannot_be_meant_is_refused_beside_the_list(console: Console) -> None:
    await some(console, 1)
    page = await console.person("/letters?minAge=soon")
    await expect(page.get_by_role("alert")).to_contain_text(
        "At least so old: expected a duration such as 10m or 2h."
    )
    await expect(page.get_by_role("row")).to_have_count(0)


NOT_MEANT = {
    "status=banana": 'There is no state "banana": letters are pending,',
    "status=pending&statsu=manual": 'There is no filter "statsu".',
    "queue=": 'The filter "Queue" is empty.',
    "queue=orders&queue=mail": 'The filter "Queue" is there twice.',
    "possibleDuplicate=false": 'The filter "Possible duplicates" can only be "true".',
}


async def test_an_address_that_cannot_be_meant_shows_no_letter_and_says_why(shop: Console) -> None:
    page = await shop.person("/letters")
    for address, words in NOT_MEANT.items():
        await page.goto(f"/letters?{address}")
        await expect(page.get_by_role("status").filter(has_text=words)).to_be_visible()
        await expect(page.get_by_role("main")).to_contain_text("None shown")
        await expect(page.get_by_role("row")).to_have_count(0)
        await page.get_by_role("button", name="Clear the filters").click()
        await expect(page.get_by_role("row").nth(3)).to_be_visible()
    await page.goto(f"/replays/new?{address}")
    said = page.get_by_role("status").filter(has_text=words)
    await expect(said).to_be_visible()
    await page.wait_for_timeout(1000)  # longer than it waits for somebody who types
    await expect(said).to_be_visible()
    await expect(page.get_by_role("button", name="Dry run")).to_be_disabled()


async def test_states_can_be_chosen_and_carry_their_counts(console: Console) -> None:
    ids = await some(console, 3)
    await console.server.store.decisions.archive(ids[:1], "test")
    page = await console.person("/letters")
    archived = page.get_by_role("button", name=re.compile("archived"))
    await expect(archived).to_contain_text("1")
    await archived.click()
    await expect(page.get_by_text("timed out 0")).to_be_visible()
    await expect(page.get_by_text("timed out 1")).to_have_count(0)
    assert page.url.endswith("?status=archived")


async def test_possible_duplicates_can_be_chosen_and_settled_together(console: Console) -> None:
    headers = {**died_in("orders"), "redrive-id": fields.longstr("r-1")}
    first, copy, other = await console.server.add(
        arrival(headers=headers), arrival(headers=headers), failed("timed out")
    )
    page = await console.person("/letters")
    rows = page.get_by_role("table", name="Letters").get_by_role("checkbox", name="Select letter")
    await expect(rows).to_have_count(3)
    choice = page.get_by_role("group", name="Copies").get_by_role("button")
    await choice.click()
    await expect(choice).to_have_attribute("aria-pressed", "true")
    await expect(rows).to_have_count(1)
    assert page.url.endswith("?possibleDuplicate=true")
    assert await accessibility_faults(page) == []
    other_page = await console.person(f"{page.url}&queue=orders", phone=True)
    await expect(other_page.get_by_text("1 match")).to_be_visible()
    assert not await scrolls_sideways(other_page)
    await tick(page, copy)
    await page.get_by_role("button", name="Discard…").click()
    dialog = page.get_by_role("dialog", name="Discard 1 letter")
    await dialog.get_by_role("button", name="Discard 1 letter").click()
    await expect(page.get_by_text("1 letter discarded")).to_be_visible()
    assert await states(console, [copy]) == {State.ARCHIVED}
    assert await states(console, [first, other]) == {State.PENDING}
    await choice.click()
    await expect(rows).to_have_count(3)
    assert page.url.endswith("/letters")


async def test_a_list_longer_than_the_window_is_read_on_as_somebody_scrolls(
    console: Console,
) -> None:
    await some(console, 450)
    page = await console.person("/letters")
    await expect(page.get_by_text("timed out 449", exact=True)).to_be_visible()
    assert await page.get_by_role("row").count() < 60
    await scroll_to(page, page.get_by_text("timed out 0", exact=True))
    await expect(page.get_by_text("timed out 0", exact=True)).to_be_visible()
    assert await page.get_by_role("row").count() < 60


async def test_who_comes_back_from_a_letter_finds_the_list_where_it_was(console: Console) -> None:
    await some(console, 150)
    page = await console.person("/letters")
    await expect(page.get_by_text("timed out 149", exact=True)).to_be_visible()
    frame = page.get_by_role("table", name="Letters").locator("..")
    await frame.evaluate("frame => frame.scrollTo(0, 3000)")
    await expect(page.get_by_text("timed out 149", exact=True)).to_have_count(0)
    shown = page.get_by_role("link", name="TIMEOUT_ERROR").nth(14)
    await shown.click()
    await expect(page.get_by_role("heading", name=re.compile("TIMEOUT_ERROR"))).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("table", name="Letters")).to_be_visible()

    async def is_where_it_was() -> bool:
        return bool(await frame.evaluate("frame => frame.scrollTop > 2500"))

    await eventually_async(is_where_it_was)


@pytest.mark.parametrize(
    ("verb", "done", "before", "after"),
    [
        ("Discard", "discarded", None, State.ARCHIVED),
        ("Archive", "archived", None, State.ARCHIVED),
        ("Restore", "restored", "archive", State.MANUAL),
    ],
)
async def test_letters_that_are_ticked_are_decided_on_with_their_number_and_a_reason(
    console: Console, verb: str, done: str, before: str | None, after: State
) -> None:
    ids = await some(console, 3)
    if before is not None:
        await console.server.store.decisions.archive(ids, "test")
    page = await console.person("/letters")
    await tick(page, ids[0])
    await tick(page, ids[2])
    await page.get_by_role("button", name=f"{verb}…").click()
    dialog = page.get_by_role("dialog", name=f"{verb} 2 letters")
    await dialog.get_by_label("Reason").fill("too old")
    await dialog.get_by_role("button", name=f"{verb} 2 letters").click()
    await expect(page.get_by_text(f"2 letters {done}")).to_be_visible()
    assert await states(console, [ids[0], ids[2]]) == {after}
    assert await states(console, [ids[1]]) != {after}
    history = await console.server.store.letters.history(ids[0])
    assert history[-1].reason.endswith("too old")


async def test_a_range_is_of_the_letters_that_were_meant_also_when_others_come_in_between(
    console: Console,
) -> None:
    ids = await some(console, 4)
    page = await console.person("/letters")
    await tick(page, ids[2])
    (new,) = await some(console, 1, "came meanwhile")
    box = page.get_by_role("checkbox", name=f"Select letter {new}")
    await expect(box).to_be_visible()
    await page.get_by_role("checkbox", name=f"Select letter {ids[1]}").click(modifiers=["Shift"])
    bar = page.get_by_role("toolbar", name="Selected letters")
    await expect(bar.get_by_text("2 letters selected")).to_be_visible()
    for letter, ticked in zip([*ids, new], [False, True, True, False, False], strict=True):
        found = page.get_by_role("checkbox", name=f"Select letter {letter}")
        await expect(found).to_be_checked(checked=ticked)


async def test_a_range_that_is_too_long_says_how_many_are_left_out(console: Console) -> None:
    ids = await some(console, 1003)
    page = await console.person("/letters")
    await tick(page, ids[-1])
    oldest = page.get_by_role("checkbox", name=f"Select letter {ids[0]}")
    await scroll_to(page, oldest)
    await oldest.click(modifiers=["Shift"])
    bar = page.get_by_role("toolbar", name="Selected letters")
    await expect(bar.get_by_text("1,000 letters selected, 3 more not")).to_be_visible()
    await expect(oldest).not_to_be_checked()
    # A row that is half under the head of the table has too little of its checkbox to be clicked.
    await (
        page.get_by_role("table", name="Letters").locator("..").evaluate("to => to.scrollTo(0, 0)")
    )
    assert await accessibility_faults(page) == []


async def test_all_that_match_are_chosen_by_their_exact_number_and_not_if_it_has_changed(
    console: Console,
) -> None:
    ids = await some(console, 120)
    page = await console.person("/letters?queue=orders")
    await page.get_by_role("checkbox", name="Select all letters that are read").check()
    await page.get_by_role("button", name="Select all that match").click()
    await page.get_by_role("button", name="Discard…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Discard 120 letters")).to_be_enabled()
    await dialog.get_by_label("Reason").fill("a reason that took long to write")
    late = await some(console, 1, "late")
    await dialog.get_by_role("button", name="Discard 120 letters").click()
    await expect(dialog.get_by_role("alert")).to_be_visible()
    assert await states(console, [*ids, *late]) == {State.PENDING}
    await expect(dialog.get_by_label("Reason")).to_have_value("a reason that took long to write")
    await dialog.get_by_role("button", name="Show 121 letters instead").click()
    await dialog.get_by_role("button", name="Discard 121 letters").click()
    await expect(page.get_by_text("121 letters discarded")).to_be_visible()
    assert await states(console, [*ids, *late]) == {State.ARCHIVED}


async def test_what_could_not_be_decided_is_said_with_the_reason(console: Console) -> None:
    first, second = await some(console, 2)
    await console.server.store.decisions.archive([first], "test")
    page = await console.person("/letters")
    await tick(page, first)
    await tick(page, second)
    await page.get_by_role("button", name="Archive…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Archive 2 letters").click()
    await expect(page.get_by_role("dialog")).to_contain_text("1 letter archived.")
    await expect(page.get_by_role("dialog")).to_contain_text("cannot become archived")


async def test_letters_are_replayed_after_a_dry_run_with_the_number_that_it_found(
    console: Console,
) -> None:
    ids = await some(console, 3)
    page = await console.person("/letters")
    await page.get_by_role("checkbox", name="Select all letters that are read").check()
    await page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog")
    run = dialog.get_by_role("region", name="Dry run")
    await expect(run).to_contain_text("3 letters")
    await expect(run).to_contain_text("queue orders")
    await dialog.get_by_label("At most a second").fill("50")
    await confirm_replay(dialog, "Replay 3 letters")
    await expect(page.get_by_text("Replay of 3 letters begun")).to_be_visible()
    (job,) = (await console.server.store.replays.page(limit=5, after=None)).items
    assert (job.letters, job.rate) == (3, 50)
    assert len(ids) == 3


async def test_a_full_queue_drops_what_waits_there_only_if_somebody_says_so(
    console: Console, vhost: Vhost
) -> None:
    await declare(vhost.url, "orders", "quorum", x_max_length=1)
    await some(console, 3)
    page = await console.person("/letters")
    await page.get_by_role("checkbox", name="Select all letters that are read").check()
    await page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog")
    run = dialog.get_by_role("region", name="Dry run")
    await expect(run).to_contain_text("2 letters would not be taken")
    await dialog.get_by_label("drops its oldest messages").check()
    await expect(run).not_to_contain_text("would not be taken")
    await expect(run).to_contain_text("drops its oldest messages for the rest")
    assert await accessibility_faults(page) == []
    await confirm_replay(dialog, "Replay 3 letters")
    await expect(page.get_by_text("Replay of 3 letters begun")).to_be_visible()
    (job,) = (await console.server.store.replays.page(limit=5, after=None)).items
    assert job.drop_oldest


async def test_a_ticked_letter_that_has_another_state_by_now_is_not_sent_unseen(
    console: Console,
) -> None:
    decisions = console.server.store.decisions
    first, second = await some(console, 2)
    page = await console.person("/letters")
    # Where nothing tells of changes, the list stays as it was read.
    await page.route("**/api/v1/events", lambda _: None)
    await page.reload()
    await tick(page, first)
    await tick(page, second)
    await decisions.archive([first], "test")
    await decisions.restore([first], "test")
    await decisions.resolve([first], "test")
    await page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog")
    run = dialog.get_by_role("region", name="Dry run")
    await expect(run).to_contain_text(
        "1 of 2 ticked letters is not sent: it has another state by now, or was deleted."
    )
    await expect(dialog.get_by_role("button", name="Replay 1 letter")).to_be_visible()
    assert await accessibility_faults(page) == []
    await dialog.get_by_role("button", name="Cancel").click()
    # Who has seen the new state means it.
    await page.keyboard.press("u")
    await expect(page.get_by_role("row").filter(has_text="resolved")).to_be_visible()
    await page.get_by_role("button", name="Replay…").click()
    await expect(dialog.get_by_role("button", name="Replay 2 letters")).to_be_visible()
    await expect(run).not_to_contain_text("another state")


async def test_ticked_letters_in_doubt_are_sent_only_if_somebody_says_so(console: Console) -> None:
    headers = {**died_in("orders"), "redrive-id": fields.longstr("r-1")}
    first, copy, other = await console.server.add(
        arrival(headers=headers), arrival(headers=headers), failed("timed out")
    )
    page = await console.person("/letters")
    for each in (first, copy, other):
        await tick(page, each)
    await page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog", name="Replay 1 letter")
    run = page.get_by_role("region", name="Dry run")
    await expect(run).to_contain_text("2 letters left out")
    await expect(run).to_contain_text("it may be a second copy of another letter")
    await expect(run).not_to_contain_text("another state")
    await dialog.get_by_label("Also letters in doubt").check()
    await confirm_replay(page.get_by_role("dialog"), "Replay 3 letters")
    await expect(page.get_by_text("Replay of 3 letters begun")).to_be_visible()
    # Who names a single letter means it.
    await page.goto(f"/letters/{copy}")
    await page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog", name="Replay 1 letter")
    await expect(dialog.get_by_role("button", name="Replay 1 letter")).to_be_visible()
    await expect(dialog.get_by_label("Also letters in doubt")).to_have_count(0)


async def test_that_letters_are_wanted_even_so_holds_for_the_reasons_that_were_seen(
    console: Console,
) -> None:
    await some(console, 2)
    reasons = ["the broker is short of memory"]

    async def unwell(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json={**await answer.json(), "unmet": reasons})

    page = await console.person("/letters")
    await page.route("**/api/v1/replays/preview", unwell)
    await page.get_by_role("checkbox", name="Select all letters that are read").check()
    await page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog")
    even_so = dialog.get_by_label("Send them even so")
    send = dialog.get_by_role("button", name="Replay 2 letters")
    await expect(send).to_be_disabled()
    await even_so.check()
    await expect(send).to_be_enabled()
    async with page.expect_response("**/replays/preview"):
        await dialog.get_by_role("button", name="Look again").click()
    await expect(send).to_be_enabled()
    reasons.append("its disk is full")
    await dialog.get_by_role("button", name="Look again").click()
    await expect(dialog.get_by_text("its disk is full")).to_be_visible()
    await expect(even_so).not_to_be_checked()
    await expect(send).to_be_disabled()


async def test_two_people_see_each_others_changes_without_reloading(console: Console) -> None:
    (one,) = await some(console, 1)
    ann, bob = await console.person("/letters"), await console.person("/letters?status=pending")
    row = ann.get_by_role("row").filter(has=ann.get_by_role("link", name="TIMEOUT_ERROR"))
    await expect(row).to_contain_text("pending")
    await tick(bob, one)
    await bob.get_by_role("button", name="Discard…").click()
    await bob.get_by_role("dialog").get_by_role("button", name="Discard 1 letter").click()
    await expect(row).to_contain_text("archived")
    await expect(bob.get_by_role("heading", name="No letter matches")).to_be_visible()
    await console.server.add(failed("a new one"))
    await expect(ann.get_by_text("a new one")).to_be_visible()


async def test_the_list_can_be_used_by_keyboard(console: Console) -> None:
    ids = await some(console, 3)
    page = await console.person("/letters")
    await expect(page.get_by_text("timed out 2")).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    box = page.get_by_role("checkbox", name=f"Select letter {ids[1]}")
    await expect(box).to_be_checked()
    await page.keyboard.press("k")
    await page.keyboard.press("o")
    await expect(page).to_have_url(re.compile(ids[2]))


async def test_the_keyboard_stays_at_its_letter_when_others_come_in_before_it(
    console: Console,
) -> None:
    ids = await some(console, 3)
    page = await console.person("/letters")
    await expect(page.get_by_text("timed out 2")).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    (new,) = await some(console, 1, "came meanwhile")
    await expect(page.get_by_role("checkbox", name=f"Select letter {new}")).to_be_visible()
    await page.keyboard.press("x")
    ticked = page.get_by_role("row", selected=True).get_by_role("checkbox")
    await expect(ticked).to_have_accessible_name(f"Select letter {ids[1]}")
    await page.keyboard.press("o")
    await expect(page).to_have_url(re.compile(ids[1]))


async def test_the_keyboard_goes_on_from_where_its_letter_was_when_that_is_gone(
    console: Console,
) -> None:
    ids = await some(console, 4)
    page = await console.person("/letters?status=pending")
    await expect(page.get_by_text("timed out 3")).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await console.server.store.decisions.archive([ids[2]], "test")
    await expect(page.get_by_text("timed out 2")).to_have_count(0)
    await page.keyboard.press("x")  # there is no letter to act on
    await expect(page.get_by_role("row", selected=True)).to_have_count(0)
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    ticked = page.get_by_role("row", selected=True).get_by_role("checkbox")
    await expect(ticked).to_have_accessible_name(f"Select letter {ids[1]}")


async def test_a_viewer_is_offered_nothing_that_changes_letters(console: Console) -> None:
    await some(console, 1)
    await console.server.user("vera", "correct horse", Role.VIEWER)
    page = await console.person("/letters")
    await page.get_by_label("Name").fill("vera")
    await page.get_by_label("Password").fill("correct horse")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_text("timed out 0")).to_be_visible()
    await expect(page.get_by_role("checkbox")).to_have_count(0)


async def test_every_part_of_the_list_can_be_read_by_everybody(console: Console) -> None:
    ids = await some(console, 4)
    page = await console.person("/letters?queue=orders")
    await tick(page, ids[1])
    assert await accessibility_faults(page) == []
    await page.get_by_role("button", name="Discard…").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await accessibility_faults(page) == []
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Replay…").click()
    await expect(page.get_by_role("region", name="Dry run")).to_contain_text("1 letter")
    assert await accessibility_faults(page) == []


async def test_at_phone_width_letters_can_be_found_ticked_and_decided_on(console: Console) -> None:
    (one, *_) = await some(console, 3)
    page = await console.person("/letters?queue=orders", phone=True)
    await tick(page, one)
    assert not await scrolls_sideways(page)
    await page.get_by_role("button", name="Discard…").click()
    assert not await scrolls_sideways(page)
    await page.get_by_role("button", name="Discard 1 letter").click()
    await expect(page.get_by_text("1 letter discarded")).to_be_visible()
