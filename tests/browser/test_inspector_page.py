"""The inspector's page in a real browser: what a person finds there, clicks, types and reads."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from tests.browser.browsed_logs import CHATS, QUESTION, Facts, make_folds, make_store
from tests.browser.browsing import Window, apart, number
from tests.inspecting import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser


MINUS = "\N{MINUS SIGN}"


@frozen
class Store:
    """A store that is served: where, and what is in it."""

    address: str
    facts: Facts


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, chromium: "Browser") -> Iterator[Store]:
    """The inspector of a store with two agents, a fork, a user and many chats."""
    del chromium  # where there is none, nothing is made
    path = str(tmp_path_factory.mktemp("page") / "agent.db")
    facts = apart(lambda: make_store(path))
    with served(path) as address:
        yield Store(address, facts)


def test_threads_are_listed_filtered_and_opened(window: Window, store: Store) -> None:
    """All threads, the latest used first and open; a filter and a kind narrow them; a click opens one at its end."""
    page = window.go(store.address)
    page.get_by_text(f"{CHATS + 5} threads", exact=True).wait_for()
    assert "coding, without a claim" in (window.threads.first.text_content() or "")
    assert "ago" in window.threads.first.inner_text() or "just now" in window.threads.first.inner_text()
    page.get_by_role("heading", name="coding, without a claim", exact=True).wait_for()
    page.get_by_role("searchbox", name="Filter threads").fill("EVE")
    page.get_by_text(f"{CHATS // 2} threads match").wait_for()
    page.get_by_role("searchbox", name="Filter threads").fill("")
    page.get_by_label("Kind", exact=True).select_option("user")
    page.get_by_text("1 thread match").wait_for()
    page.get_by_label("Kind", exact=True).select_option("")
    page.get_by_role("searchbox", name="Filter threads").fill("coding")
    window.threads.filter(has=page.get_by_text("coding", exact=True)).click()
    page.get_by_role("heading", name="coding", exact=True).wait_for()
    window.event(store.facts.head).wait_for()
    window.is_at(f"{store.facts.head}")
    assert page.get_by_text("read-only").is_visible()


def test_a_click_on_an_event_tells_what_it_said_and_changed(window: Window, store: Store) -> None:
    """The tab shows type, time and payload, the chunk with its sign, and the operation."""
    window.look(store.address, thread="coding", seq=3)
    window.event(2).click()
    window.settled()
    assert "2 user_message" in window.panel.inner_text()
    card = window.panel.get_by_role("article").filter(has=window.page.get_by_label("added"))
    assert "CI is red about one time in four" in card.inner_text()
    assert "1 → 2 chunks, 66 → 104 tokens +38" in window.panel.inner_text()
    window.panel.get_by_text("1 operation", exact=True).click()
    assert "ADD 2.0" in window.panel.get_by_role("listitem").inner_text().upper()


def test_a_compaction_shows_what_came_and_what_went(window: Window, store: Store) -> None:
    """Its event folds chunks: the summary is added, the originals are removed, each with a sign."""
    seq = store.facts.compactions[-1]
    window.look(store.address, thread="coding", seq=seq)
    count = len(store.facts.covers)
    for title in ("Folded by a compaction (1)", "Added (1)", f"Removed ({count})"):
        assert window.panel.get_by_role("heading", name=title).is_visible()
    assert 1 == window.panel.get_by_label("added", exact=True).count()
    assert count == window.panel.get_by_label("removed", exact=True).count()
    before, after = store.facts.tokens[seq - 1], store.facts.tokens[seq]
    assert f"{before:,} → {after:,} tokens {MINUS}{before - after}" in window.panel.inner_text()


def test_a_fold_opens_to_its_originals(window: Window, store: Store) -> None:
    """A compaction's row opens in the timeline, by click or by key; an original leads to where it comes from."""
    seq = store.facts.compactions[-1]
    page = window.look(store.address, thread="coding", seq=seq)
    row = window.event(seq)
    assert "false" == row.get_attribute("aria-expanded")
    row.get_by_role("button", name="Open the fold").click()
    originals = window.timeline.locator("[aria-level='2']")
    originals.filter(has_text=store.facts.covers[0]).wait_for()
    assert "true" == row.get_attribute("aria-expanded")
    window.picture("fold")
    window.timeline.focus()
    window.press("j", "j", "Enter")
    assert page.get_by_role("tab", name="Lineage").get_attribute("aria-selected") == "true"
    assert store.facts.covers[1] in window.panel.get_by_role("heading").first.inner_text()
    window.timeline.focus()
    window.press("k", "k", "ArrowLeft")
    assert "false" == row.get_attribute("aria-expanded")
    assert 0 == originals.count()


def test_the_slider_goes_through_time(window: Window, store: Store) -> None:
    """Its value is the seq, said in words; the state beside it is the one of that moment."""
    page = window.look(store.address, thread="coding", tab="state")
    slider = page.get_by_role("slider", name="Point in time")
    assert str(store.facts.head) == slider.input_value()
    slider.focus()
    window.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
    seq = store.facts.head - 3
    assert f"event {seq} of {store.facts.head}, tool_result" in (slider.get_attribute("aria-valuetext") or "")
    for key, at in (("Home", 0), ("End", store.facts.head)):
        window.press(key)
        assert str(at) == slider.input_value()
    page.get_by_role("button", name="Compaction before").click()
    window.settled()
    at = store.facts.compactions[-1]
    assert f"event {at}" in window.panel.get_by_role("heading", name="State after").inner_text()
    assert store.facts.tokens[at] == number(window.panel.inner_text(), "tokens")
    page.get_by_role("spinbutton", name="Event number").fill("0")
    page.keyboard.press("Enter")
    window.settled()
    assert "The state is empty here" in window.panel.inner_text()


def test_the_state_is_counted_by_type(window: Window, store: Store) -> None:
    """A bar for each type, in tokens that add up, and the chunks themselves below."""
    window.look(store.address, thread="coding", tab="state")
    rows = window.panel.get_by_role("table", name="Tokens by type").get_by_role("row").all_inner_texts()
    assert store.facts.tokens[store.facts.head] == sum(number(row.partition("\t")[2]) for row in rows)
    assert any(row.startswith("compacted") for row in rows)
    summary = window.panel.get_by_role("article").filter(has_text=store.facts.summary).first
    assert f"from {store.facts.covers[0]}" in summary.inner_text()


def test_the_context_is_built_within_a_budget(window: Window, store: Store) -> None:
    """Messages with their tokens; a budget leaves some out; one that is too small is explained in its place."""
    window.forgiven = ["409"]
    page = window.look(store.address, thread="coding", tab="context")
    assert store.facts.context_tokens == number(window.panel.inner_text(), "tokens")
    budget = window.panel.get_by_label("Budget in tokens")
    budget.fill("600")
    left_out = window.panel.get_by_text(re.compile("left out: no room"))
    left_out.wait_for()
    assert 600 >= number(window.panel.inner_text(), "tokens of 600")
    assert window.panel.get_by_role("img", name=re.compile("Spent: pinned .*recent")).is_visible()
    budget.fill("5")
    window.panel.get_by_role("alert").wait_for()
    assert "ContextBudgetError" in window.panel.get_by_role("alert").inner_text()
    assert "5" == budget.input_value()
    budget.fill("")
    window.panel.get_by_role("alert").wait_for(state="detached")
    assert 0 == left_out.count()
    assert page.get_by_role("heading", name="Messages").is_visible()


def test_a_question_shows_what_it_brings_back(window: Window, store: Store) -> None:
    """Each recalled passage says why it was chosen, and leads to its event."""
    window.look(store.address, thread="coding", tab="context")
    window.panel.get_by_label("Budget in tokens").fill("600")
    window.panel.get_by_label("Question").fill(QUESTION)
    window.panel.get_by_role("heading", name=re.compile(r"Recalled \([1-9]")).wait_for()
    seq, why = store.facts.recalled
    hit = window.panel.get_by_role("article").filter(has_text=f"why: {why}").first
    assert hit.is_visible()
    hit.get_by_role("button", name=f"event {seq}", exact=True).click()
    window.is_at(f"{seq}")


def test_views_show_their_rows(window: Window, store: Store) -> None:
    """A user's preference is a row, from its event on; which views are open is remembered from seq to seq."""
    page = window.go(store.address)
    page.get_by_label("Kind", exact=True).select_option("user")
    window.threads.filter(has_text="user").click()
    preferences = window.tab("Views").get_by_text("preferences", exact=True)
    preferences.click()
    row = window.panel.get_by_text("concise")
    row.wait_for()
    assert "verbosity" in window.panel.inner_text()
    window.panel.get_by_role("button", name="Lineage of verbosity").click()
    window.panel.get_by_role("group", name="Lineage").get_by_role(
        "button", name=re.compile("preference_updated")
    ).wait_for()
    window.tab("Views")
    window.timeline.focus()
    window.press("k")
    assert "No view has a row here" in window.panel.inner_text()
    window.press("j")
    row.wait_for()


def test_lineage_is_a_picture_from_summary_to_events(window: Window, store: Store) -> None:
    """A chunk leads through its compaction to originals and their events; many are folded until they are asked for."""
    page = window.look(store.address, thread="coding", seq=store.facts.compactions[-1], tab="state")
    window.panel.get_by_role("button", name=f"Lineage of chunk {store.facts.summary}").first.click()
    picture = window.panel.get_by_role("group", name="Lineage")
    boxes = picture.get_by_role("button")
    boxes.first.wait_for()
    window.picture("lineage")
    names = [name or "" for name in boxes.evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")]
    assert names[0].startswith(f"chunk {store.facts.summary}")
    assert any(name.startswith("compaction ") for name in names)
    shown = [chunk for chunk in store.facts.covers if any(name.startswith(f"chunk {chunk}:") for name in names)]
    assert 0 < len(shown) < len(store.facts.covers)
    picture.get_by_role("button", name=f"Show {len(store.facts.covers) - len(shown)} chunks more").click()
    last = picture.get_by_role("button", name=f"chunk {store.facts.covers[-1]}:")
    last.focus()
    page.keyboard.press("Enter")
    details = window.panel.get_by_text("retention", exact=True)
    details.wait_for()
    seq = int(store.facts.covers[-1].partition(".")[0])
    window.panel.get_by_role("button", name=f"event {seq}", exact=True).last.click()
    window.settled()
    window.is_at(str(seq))


def test_two_points_are_compared(window: Window, store: Store) -> None:
    """One is marked, another is chosen: chunks with signs, the context by line. Without a mark: the event before."""
    seq = store.facts.compactions[-1]
    page = window.look(store.address, thread="coding", seq=seq - 3)
    window.press("d", "]", "7")
    window.panel.get_by_role("heading", name=f"From event {seq - 3} to event {seq}").wait_for()
    window.panel.get_by_role("heading", name="Folded by a compaction (1)").wait_for()
    lines = window.panel.get_by_role("group", name="Context, line by line").inner_text()
    assert re.search(r"^\+\s*\S", lines, re.MULTILINE)
    assert re.search(rf"^{MINUS}\s*\S", lines, re.MULTILINE)
    window.picture("diff")
    window.panel.get_by_role("button", name="swap").click()
    page.get_by_role("heading", name=f"From event {seq} to event {seq - 3}").wait_for()
    window.panel.get_by_role("button", name="clear").click()
    page.get_by_role("heading", name=f"From event {seq - 4} to event {seq - 3}").wait_for()


def test_forks_are_a_tree_and_are_compared(window: Window, store: Store) -> None:
    """The fork stands below its origin and in the timeline where it began; it is compared with what went on there."""
    page = window.look(store.address, thread="coding", tab="forks")
    tree = window.panel.get_by_role("treeitem")
    assert ["1", "2"] == [one.get_attribute("aria-level") for one in tree.all()]
    window.panel.get_by_role("button", name=f"at {store.facts.forked_at}").click()
    mark = window.event(store.facts.forked_at).get_by_role("button", name="Forked here")
    assert "without a claim" in (mark.get_attribute("aria-label") or "")
    window.panel.get_by_role("button", name="Compare with coding, without a claim").click()
    page.get_by_role("spinbutton", name="B (chosen)").fill(str(store.facts.head))
    page.keyboard.press("Enter")
    window.panel.get_by_role("heading", name=f"to event {store.facts.head}").wait_for()
    assert "Try an advisory lock instead." in window.panel.inner_text()
    window.tab("Forks")
    window.panel.get_by_role("button", name="coding, without a claim", exact=True).click()
    page.get_by_role("heading", name="coding, without a claim", exact=True).wait_for()
    window.event(store.facts.forked_at + 2).wait_for()


def test_the_ledger_leads_to_what_broke_the_cache(window: Window, store: Store) -> None:
    """Calls as bars, breaks in a table; the compaction is among them, and a click goes there."""
    window.look(store.address, thread="coding", tab="cache")
    assert re.search(r"\d+ calls?, [\d,]+ tokens sent: [\d,]+ kept", window.panel.inner_text())
    assert window.panel.get_by_role("img", name=re.compile("tokens kept, fresh and lost")).is_visible()
    window.picture("cache")
    breaks = window.panel.get_by_role("table", name="Breaks of the cache")
    breaks.get_by_role("row").filter(has_text="compaction").first.get_by_role("button").click()
    window.settled()
    window.is_at("compaction_completed")


def test_events_are_searched_by_words_and_type(window: Window, store: Store) -> None:
    """Only what was found is listed, wherever it is; arrows go from one to the next; Escape shows all again."""
    page = window.look(store.address, thread="coding")
    page.get_by_role("searchbox", name="Search events").fill("ADVISORY")
    page.get_by_text("No event matches").first.wait_for()
    page.get_by_role("searchbox", name="Search events").fill("january")
    found = page.get_by_text(re.compile(r"^\d+ events? found$"))
    found.wait_for()
    assert number(found.inner_text()) == window.events.count() > 0
    assert "January" == window.events.first.locator("mark").inner_text()
    page.keyboard.press("Enter")
    window.press("Home")
    first = window.chosen.text_content()
    window.press("ArrowDown")
    assert first != window.chosen.text_content()
    page.get_by_label("Type of event").fill("compaction_completed")
    page.get_by_role("searchbox", name="Search events").fill("")
    page.get_by_text(re.compile(rf"^{len(store.facts.compactions)} events? found$")).wait_for()
    page.get_by_label("Type of event").press("Escape")
    page.get_by_role("main").get_by_text(f"{store.facts.head} events", exact=True).wait_for()


def test_summaries_of_summaries_open_one_by_one(window: Window, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A fold in a fold."""
    path = str(tmp_path_factory.mktemp("folds") / "folds.db")
    apart(lambda: make_folds(path))
    with served(path) as address:
        window.look(address, thread="folds")
        window.timeline.focus()
        window.press("End")
        outer = window.chosen
        outer.get_by_role("button", name="Open the fold").click()
        inner = window.timeline.locator("[aria-level='2']")
        inner.filter(has_text="The first summary").get_by_role("button", name="Open the fold").click()
        window.timeline.locator("[aria-level='3']").filter(has_text="word1").wait_for()
        outer.get_by_role("button", name="Close the fold").click()
        assert 0 == inner.count()
        window.page.goto("about:blank")
