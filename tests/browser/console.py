"""The console as somebody sees it: browsers on a server, and what a page must never do.

Each page is watched: an error in its script, or something that the content security policy had to
stop, fails the test that opened it.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from playwright.async_api import Browser, BrowserContext, Page

from tests.services.serving import Server

ROOT = Path(__file__).parents[2]
AXE = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
Theme = Literal["light", "dark"]
PHONE = {"width": 375, "height": 740}
DESK = {"width": 1280, "height": 800}
THEMES: tuple[Theme, ...] = ("light", "dark")

# A server that refuses or is away is told by the browser itself; that is no defect of the page.
_OF_THE_NETWORK = "Failed to load resource"
# A dialog that is still rising is paler than it will be: what ends by itself is waited for.
_AXE = """async () => {
  const ending = (each) => Number.isFinite(each.effect.getComputedTiming().endTime);
  await Promise.allSettled(
    document.getAnimations().filter(ending).map((each) => each.finished));
  const found = await axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
  });
  return found.violations.map((each) => [
    each.id, each.help, each.nodes.map((node) => node.html.slice(0, 200) + " | "
      + node.any.map((check) => check.message).join("; ")).slice(0, 4),
  ]);
}"""


# What the page does every so often by its own clock, it does ten times as often.
_HASTY = """{
  const every = window.setInterval;
  window.setInterval = (what, pause, ...more) => every(what, pause / 10, ...more);
}"""


class People:
    """One or more people at once, each with a browser of their own, at one address."""

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser = browser
        self._address = address
        self._contexts: list[BrowserContext] = []
        self.complaints: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for context in self._contexts:
            await context.close()
        if error is None:
            assert not self.complaints, self.complaints

    async def person(
        self,
        path: str = "/",
        *,
        theme: Theme = "light",
        phone: bool = False,
        hasty: bool = False,
    ) -> Page:
        """Somebody with a browser of their own, at a page of the console.

        `hasty` for a page that looks ten times as often for what it is not told of: every second
        instead of every ten.
        """
        context = await self._browser.new_context(
            base_url=self._address,
            color_scheme=theme,
            viewport=PHONE if phone else DESK,  # type: ignore[arg-type]
            has_touch=phone,
            locale="en-GB",
            timezone_id="UTC",
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(90_000)
        if hasty:
            await context.add_init_script(_HASTY)
        self._contexts.append(context)
        page = await self.another_window(context)
        await page.goto(path)
        return page

    async def another_window(self, context: BrowserContext) -> Page:
        """A window of a browser that somebody has, at no page yet: it has the cookies of the others
        of that browser."""
        page = await context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", lambda said: self._heard(said.type, said.text))
        return page

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and _OF_THE_NETWORK not in text:
            self.complaints.append(text)


class Console(People):
    """The console of a server in this process."""

    def __init__(self, browser: Browser, server: Server) -> None:
        super().__init__(browser, server.address)
        self.server = server

    @property
    def broker(self) -> str:
        """The URL of the vhost that the server works on."""
        return self.server.settings.broker.url.reveal()


async def accessibility_faults(page: Page) -> list[Any]:
    """What axe-core finds wrong on a page as it is now, in both themes."""
    # By evaluation, not as a script of the page: its content security policy would not have it.
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text(encoding="utf-8"))
    faults: list[Any] = []
    for theme in THEMES:
        await page.emulate_media(color_scheme=theme)
        faults += [[theme, *fault] for fault in await page.evaluate(_AXE)]
    return faults


async def scrolls_sideways(page: Page) -> bool:
    """Whether the page is wider than its window."""
    wider: bool = await page.evaluate(
        "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    )
    return wider
