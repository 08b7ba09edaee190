"""The inspector's page over time: tokens above the slider, and what things took and cost."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.browsed_logs import Facts, make_store
from tests.browser.browsing import Window, apart, number
from tests.inspecting import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, chromium: "Browser") -> Iterator[tuple[str, Facts]]:
    """The inspector of a store in use."""
    del chromium  # where there is none, nothing is made
    path = str(tmp_path_factory.mktemp("time") / "agent.db")
    facts = apart(lambda: make_store(path))
    with served(path) as address:
        yield address, facts


def test_tokens_are_drawn_over_the_whole_log(window: Window, store: tuple[str, Facts]) -> None:
    """The curve says how many there are, falls where a compaction was, marks broken caches, and a click goes there."""
    address, facts = store
    page = window.look(address, thread="coding", tab="state")
    curve = page.get_by_role("img", name=re.compile("Tokens of the state"))
    page.get_by_role("img", name=re.compile(r"2 compactions, \d breaks? of the prompt cache")).wait_for()
    assert facts.tokens[facts.head] == number(curve.get_attribute("aria-label"), "now")
    assert max(facts.tokens.values()) == number(curve.get_attribute("aria-label"), "at most")
    assert "sent anew" in (page.locator("#curve .broke").first.get_attribute("title") or "")
    assert len(facts.compactions) == (page.locator("#curve .drops").get_attribute("d") or "").count("M")
    box = curve.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 20 / facts.head, box["y"] + 20)
    window.settled()
    window.is_on(20)
    assert facts.tokens[20] == number(page.locator("#curve-note").text_content(), "tokens")


@pytest.mark.parametrize("dark", [False, True])
def test_an_exchange_is_a_waterfall(chromium: "Browser", store: tuple[str, Facts], dark: bool) -> None:
    """Each wait is a bar from its beginning to its end; a bar leads to its event; sums and costs stand below."""
    window = Window(chromium, dark=dark, wide=1280 if dark else 1440)
    window.look(store[0], thread="trip", seq=6, tab="time")
    fall = window.panel.get_by_role("group", name="Waterfall")
    assert "failed, 8.5 s" in fall.get_by_role("button").filter(has_text="search_places").first.inner_text()
    window.picture("time-dark" if dark else "time")
    fall.get_by_role("button", name="tool find_trains").click()
    window.is_on(5)
    exchanges = window.panel.get_by_role("table", name="Exchanges").get_by_role("row")
    exchanges.filter(has_text="Swap day 2").get_by_role("button").click()
    window.is_on(14)
    window.panel.get_by_role("heading", name="Exchange 2 of 3").wait_for()
    used = window.panel.get_by_role("table", name="Models").get_by_role("row")
    assert "$0.0008" in used.filter(has_text="claude-haiku-4-5").inner_text()
    assert "17,410" in used.filter(has_text="gpt-5-mini").inner_text()
    tools = window.panel.get_by_role("table", name="Tools")
    assert "11.5 s" in tools.get_by_role("row").filter(has_text="book_table").inner_text()
    window.close()


@pytest.mark.parametrize("dark", [False, True])
def test_the_store_is_seen_at_a_glance(chromium: "Browser", store: tuple[str, Facts], dark: bool) -> None:
    """It is what one sees first: days, compactions, the largest threads, failures, models; a thread leads to itself."""
    window = Window(chromium, dark=dark)
    page = window.go(store[0])
    window.panel.get_by_role("heading", name="The store").wait_for()
    assert "Events a day: 150 today" in (window.panel.get_by_role("img").first.get_attribute("aria-label") or "")
    assert re.search(r"\d compactions: \d+ % of their tokens saved", window.panel.inner_text())
    assert "1 tool error" in window.panel.inner_text()
    window.picture("store-dark" if dark else "store")
    largest = window.panel.get_by_role("table", name="Largest threads").get_by_role("row").nth(1)
    assert "1,338" in largest.inner_text()
    window.event(28).wait_for()
    window.event(28).click()
    page.get_by_role("tab", name="Conversation", selected=True).wait_for()
    window.press("s")
    spent = window.panel.get_by_role("table", name="Models by thread").get_by_role("row").filter(has_text="trip")
    assert "$0.0008" in spent.inner_text()
    spent.get_by_role("button").click()
    page.get_by_role("heading", level=1, name="trip").wait_for()
    page.get_by_role("tab", name="Conversation", selected=True).wait_for()
    window.close()
