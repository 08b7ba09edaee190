"""A real Chromium that looks at a real inspector, and refuses what the page must never do."""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Page, Request

T = TypeVar("T")

PATIENCE_MS = int(os.environ.get("MEMORY_ENGINE_PATIENCE_MS", "250000"))
"""How long a test waits for what it expects: long, since one core may be shared by many."""
PICTURES = os.environ.get("MEMORY_ENGINE_SCREENSHOTS", "")
"""The folder for pictures of the page; none are made without it."""
COUNTING = """
(() => {
  window.underWay = 0
  const counted = (call) => function (...given) {
    window.underWay += 1
    return call.apply(this, given).finally(() => setTimeout(() => { window.underWay -= 1 }))
  }
  window.fetch = counted(window.fetch)
  for (const read of ["json", "text"]) Response.prototype[read] = counted(Response.prototype[read])
})()
"""
"""Told to every page before its own scripts: it counts the answers that the page still waits for."""
RESTING = """
async () => {
  const frame = () => new Promise((drawn) => { requestAnimationFrame(() => setTimeout(drawn)) })
  await frame()
  while (window.underWay) await frame()
}
"""


class Window:
    """A page of the inspector, and all that went wrong in it. `forgiven` are console messages that a test provokes."""

    def __init__(self, browser: "Browser", *, wide: int = 1440, high: int = 900, dark: bool = False) -> None:
        self.context = browser.new_context(
            viewport={"width": wide, "height": high}, color_scheme="dark" if dark else "light"
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.problems: list[str] = []
        self.forgiven: list[str] = []
        self.context.add_init_script(COUNTING)
        self.page: Page = self.context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", self._asked)
        self.page.on("request", self._sent)

    def _said(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _asked(self, dialog: "Dialog") -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _sent(self, request: "Request") -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.hostname != "127.0.0.1":
            self.problems.append(f"request: {request.url}")

    def close(self) -> None:
        """End it; nothing may have gone wrong but what the test has forgiven."""
        self.context.close()
        problems = [one for one in self.problems if not any(text in one for text in self.forgiven)]
        assert [] == problems, problems

    def go(self, address: str, **where: object) -> "Page":
        """Open the address at a place: `thread`, `seq`, `tab`, as they stand behind the #."""
        self.page.goto(f"{address}#{urlencode(where)}" if where else address)
        return self.page

    def look(self, address: str, **where: object) -> "Page":
        """Open a thread, by default at its event, and wait until its rows and the tab are there."""
        page = self.go(address, **({"tab": "event"} | where))
        self.events.first.wait_for()
        self.settled()
        return page

    def settled(self) -> None:
        """Wait until the tab shows what is chosen, and nothing that the page asked for is still to come."""
        for _ in range(2):  # an answer may lead to the next question
            self.panel.and_(self.page.locator(":not([aria-busy])")).wait_for()
            self.page.evaluate(RESTING)

    @property
    def threads(self) -> "Locator":
        """Those rows of the list of threads that exist."""
        return self.page.get_by_role("listbox", name="Threads").get_by_role("option")

    @property
    def timeline(self) -> "Locator":
        """The list of events."""
        return self.page.get_by_role("treegrid", name="Events")

    @property
    def events(self) -> "Locator":
        """Those of its rows that exist: the ones in view and a few around them."""
        return self.timeline.get_by_role("row")

    @property
    def chosen(self) -> "Locator":
        """The row of the chosen event."""
        return self.timeline.get_by_role("row", selected=True)

    def is_at(self, text: str) -> None:
        """Wait until the chosen event's row holds a text."""
        self.chosen.filter(has_text=text).wait_for()

    def is_on(self, seq: int) -> None:
        """Wait until the chosen event is the one with this seq."""
        self.chosen.filter(has=self.cell(seq)).wait_for()

    def cell(self, seq: int) -> "Locator":
        """The cell of a row that has a seq."""
        return self.page.get_by_role("gridcell", name=f"{seq:,}", exact=True)

    @property
    def panel(self) -> "Locator":
        """What the chosen tab shows."""
        return self.page.get_by_role("tabpanel")

    def event(self, seq: int) -> "Locator":
        """The row of an event, if it is in view; an original below one may have a number like it."""
        return self.timeline.locator("[aria-level='1']").filter(has=self.cell(seq))

    def tab(self, name: str) -> "Locator":
        """Click a tab, and give what it shows."""
        self.page.get_by_role("tab", name=name).click()
        self.settled()
        return self.panel

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.page.keyboard.press(key)
        self.settled()

    def picture(self, name: str) -> None:
        """Keep how it looks now, where pictures are wanted."""
        if PICTURES:
            self.page.mouse.move(0, 0)
            self.page.evaluate("document.getElementById('toast').classList.remove('shown')")
            before = self.page.viewport_size
            self.page.set_viewport_size({"width": 1280, "height": 800})
            self.page.screenshot(path=Path(PICTURES) / f"inspector-{name}.png")
            if before is not None:
                self.page.set_viewport_size(before)


def number(text: str | None, before: str = "") -> int:
    """The first whole number in a text, or the one that stands before some words."""
    found = re.search(rf"([\d,]+)\s*{re.escape(before)}", text or "")
    assert found is not None, f"no number before {before!r} in {text!r}"
    return int(found[1].replace(",", ""))


def apart(work: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run a coroutine in a thread of its own: in this one Playwright's loop runs."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(work()))
        except BaseException as error:  # whatever it is, the test is told
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
