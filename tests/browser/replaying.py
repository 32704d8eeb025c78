"""A replay confirmed as a person does it, on a machine that may be too busy to be called well."""

from __future__ import annotations

import re

from playwright.async_api import Locator, expect


async def confirm_replay(dialog: Locator, name: str) -> None:
    """Press the button; where the system is not well, also say that it is wanted even so."""
    even_so = dialog.get_by_label(re.compile("even so"))
    button = dialog.get_by_role("button", name=name)
    if await even_so.count() == 0:
        await button.click()
        refused = dialog.get_by_role("alert")
        await expect(refused.or_(dialog.page.get_by_text("begun"))).to_be_visible()
        if await refused.count() == 0:
            return
    await even_so.check()
    await button.click()
