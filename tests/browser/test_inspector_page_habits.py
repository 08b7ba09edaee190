"""The inspector's page among other things: addresses, themes, keys, hostile content, errors, a log that grows."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import memory_engine
from memory_engine import CompactionPolicy, UserMessage
from memory_engine.core.excerpts import escaped
from tests.browser.browsed_logs import HOSTILE, HOSTILE_ID, Facts, make_hostile, make_store
from tests.browser.browsing import Window, apart
from tests.inspecting import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

PAGE = Path(memory_engine.__file__).parent / "inspector" / "page"


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory, chromium: "Browser") -> tuple[str, Facts]:
    """A database in use, and what is in it."""
    del chromium  # where there is none, nothing is made
    path = str(tmp_path_factory.mktemp("page") / "agent.db")
    return path, apart(lambda: make_store(path))


@pytest.fixture(scope="module")
def address(facts: tuple[str, Facts]) -> Iterator[str]:
    """Its inspector."""
    with served(facts[0]) as address:
        yield address


TABS = "Conversation,Event,State,Context,Views,Lineage,Diff,Forks,Cache,Recall,Brief,Time & cost,What if,Store".split(
    ","
)


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_the_page_is_made_of_its_own_files_and_of_text(path: Path) -> None:
    """No markup is made of content, no code of text, nothing comes from elsewhere, and no file is long."""
    source = path.read_text(encoding="utf-8")
    assert [] == re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", source)
    assert {"http://www.w3.org/2000/svg"} >= set(re.findall(r"\bhttps?://[^\s\"'`]+", source))
    assert [] == re.findall(r" (?:style|on\w+)=\"", source) if path.suffix == ".html" else True
    assert source.count("\n") <= 500


def test_an_address_is_a_place(window: Window, address: str) -> None:
    """Thread, seq, tab, mark and chunk stand behind the #: a reload keeps them, the back button goes back."""
    page = window.look(address, thread="coding", seq=12)
    window.press("d", "j", "j", "7")
    page.wait_for_url(re.compile("tab=diff"))
    page.reload()
    page.get_by_role("heading", name="From event 12 to event 14").wait_for()
    assert "true" == page.get_by_role("tab", name="Diff").get_attribute("aria-selected")
    window.is_at("14")
    window.threads.filter(has_text="support").click()
    page.get_by_role("heading", name="support", exact=True).wait_for()
    page.go_back()
    page.get_by_role("heading", name="coding", exact=True).wait_for()
    page.get_by_role("heading", name="From event 12 to event 14").wait_for()
    assert "token=" not in page.evaluate("location.hash")


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(chromium: "Browser", address: str, dark: bool) -> None:
    """The system's theme is taken; another is chosen with a button and remembered; text can be read in each."""
    window = Window(chromium, dark=dark)
    page = window.look(address, thread="coding", seq=39, tab="event" if dark else "state")
    bright = "document.body.computedStyleMap && getComputedStyle(document.body).backgroundColor"
    grounds = {page.evaluate(bright)}
    window.picture("dark" if dark else "light")
    assert 4.5 <= min(page.evaluate(CONTRASTS))
    for theme in ("light", "dark"):
        page.get_by_role("button", name=re.compile("^Theme")).click()
        assert page.get_by_role("button", name=f"Theme: {theme}").is_visible()
        grounds.add(page.evaluate(bright))
        assert 4.5 <= min(page.evaluate(CONTRASTS))
    assert 2 == len(grounds)
    page.reload()
    assert page.get_by_role("button", name="Theme: dark").is_visible()
    assert "dark" == page.evaluate("document.documentElement.dataset.theme")
    window.close()


CONTRASTS = """() => {
  const light = (channel) => { const c = channel / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4 };
  const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    probe.clearRect(0, 0, 1, 1); probe.fillStyle = colour; probe.fillRect(0, 0, 1, 1);
    return probe.getImageData(0, 0, 1, 1).data };
  const luminance = (colour) => { const [r, g, b] = rgba(colour);
    return 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b) };
  const ground = (element) => { for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor; if (rgba(colour)[3] === 255) return colour } return 'white' };
  return [...document.querySelectorAll('body *')].filter((element) =>
      element.checkVisibility() && !element.closest('svg') &&
      [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()))
    .map((element) => { const a = luminance(getComputedStyle(element).color), b = luminance(ground(element));
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) });
}"""
"""The contrast of every text that is in view with the ground that it stands on, as WCAG counts it."""


@pytest.mark.parametrize(("wide", "high"), [(390, 844), (900, 700), (1280, 800), (1920, 1080)])
def test_it_fits_the_window(chromium: "Browser", address: str, wide: int, high: int) -> None:
    """Nothing runs out of the window; where it is narrow, the threads come when they are called."""
    window = Window(chromium, wide=wide, high=high)
    page = window.go(address, thread="coding", seq=39)
    for name in TABS:
        window.tab(name)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert window.panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth")
        box = page.get_by_role("tab", name=name).bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= wide - box["width"] + 1  # a pixel may be cut
    if wide < 1000:
        assert not page.get_by_role("listbox", name="Threads").is_visible()
        page.keyboard.press("t")
    window.threads.filter(has_text="support").click()
    page.get_by_role("heading", name="support", exact=True).wait_for()
    assert (wide >= 1000) == page.get_by_role("listbox", name="Threads").is_visible()
    window.close()


def test_a_tour_by_keyboard_alone(window: Window, facts: tuple[str, Facts], address: str) -> None:
    """From the list of threads to an event, its state, a comparison and the help, without a mouse."""
    head = facts[1].head
    page = window.go(address)
    window.threads.filter(has_text="support").wait_for()
    page.keyboard.press("t")
    page.keyboard.type("coding")
    page.get_by_text("2 threads match").wait_for()
    for key in ("Enter", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.get_by_role("heading", name="coding", exact=True).wait_for()
    window.event(head).wait_for()
    for key, seq in (("k", head - 1), ("ArrowUp", head - 2), ("Home", 1), ("j", 2), ("ArrowDown", 3), ("End", head)):
        window.press(key)
        window.is_on(seq)
    window.press("PageUp")
    window.chosen.filter(has_not=window.cell(head)).wait_for()
    assert 1 < int(window.chosen.get_by_role("gridcell").first.inner_text()) < head - 5
    window.press("3")
    page.get_by_role("tab", name="State", selected=True).wait_for()
    page.keyboard.press("g")
    page.keyboard.type("12")
    page.keyboard.press("Enter")
    window.is_on(12)
    page.keyboard.press("g")
    page.keyboard.type("5")
    page.keyboard.press("Escape")
    window.press("d", "j")
    window.is_on(13)
    window.press("7")
    page.get_by_role("heading", name="From event 12 to event 13").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("january")
    page.get_by_text(re.compile(r"events? found$")).wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("main").get_by_text(f"{head} events", exact=True).wait_for()
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Help")
    assert "next event" in help_.inner_text()
    page.keyboard.press("Escape")
    help_.wait_for(state="hidden")


def test_ids_are_copied(window: Window, address: str) -> None:
    """The button beside an id puts it on the clipboard, and says so."""
    window.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = window.look(address, thread="coding", seq=2)
    window.panel.get_by_text("Ids and hash").click()
    window.panel.get_by_role("button", name=re.compile("Copy event id")).click()
    page.get_by_text(re.compile("^Copied ")).wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied in window.panel.inner_text()
    page.evaluate("navigator.clipboard.writeText('')")
    window.press("c")
    page.wait_for_function("async (id) => await navigator.clipboard.readText() === id", arg=copied)
    window.panel.get_by_role("button", name="Copy this JSON").first.click()
    page.get_by_text("Copied the JSON").wait_for()
    assert "CI is red" in json.loads(page.evaluate("navigator.clipboard.readText()"))["content"]
    page.goto(f"{address}#thread=coding&seq=9&tab=context&budget=700&question=claim")
    window.panel.get_by_text("tokens of 700").wait_for()
    window.press("y")
    page.get_by_text("Copied a link to this view").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(address)
    assert {"thread=coding", "seq=9", "tab=context", "budget=700", "question=claim"} <= set(re.split("[#&]", link))


def test_json_folds(window: Window, address: str) -> None:
    """Arguments of calls are read as JSON too; a fold opens to its members, each value in its colour."""
    window.look(address, thread="coding", seq=39)
    payload = window.panel.get_by_role("heading", name="Payload").locator("..")
    file = payload.locator(".value.string").filter(has_text="tests/test_reminders.py")
    file.wait_for()
    assert payload.get_by_text("as text").is_visible()
    outer = payload.locator("summary").first
    outer.click()
    file.wait_for(state="hidden")
    outer.click()
    file.wait_for()


FOREIGN = """() => { const all = [...document.querySelectorAll('*')];
  return [document.querySelectorAll('script, link, iframe, img, object, base, form, input').length,
    all.flatMap((one) => one.getAttributeNames()).filter((name) => /^on|^src/.test(name)), !window.ran]; }"""
"""What a saved view must not hold: elements that load or run something, attributes that do."""


def test_a_view_is_saved_as_one_file(window: Window, tmp_path: Path) -> None:
    """It opens without a server, holds no script and loads nothing; hostile content is text in it, fields are too."""
    path = str(tmp_path / "hostile.db")
    apart(lambda: make_hostile(path))
    with served(path) as address:
        page = window.go(address, thread=HOSTILE_ID, seq=1)
        for name in ("Conversation", "Event", "Context", "What if"):
            window.tab(name)
            with page.expect_download() as download:
                page.get_by_role("button", name="Save this view").click()
            file = tmp_path / f"{name}.html"
            download.value.save_as(file)
            assert re.fullmatch(r"[\w.-]+\.html", download.value.suggested_filename)
            saved = window.context.new_page()
            saved.goto(file.as_uri())
            assert [0, [], True] == saved.evaluate(FOREIGN)
            assert name in saved.get_by_role("heading", level=1).inner_text()
            if name != "What if":
                assert escaped(HOSTILE[0][:12]) in saved.locator("body").inner_text()
            saved.close()
        page.goto("about:blank")


def test_hostile_content_is_text(window: Window, tmp_path: Path) -> None:
    """Markup, scripts, escapes, bidi controls and a megabyte, in content, names and ids: all of it is only shown."""
    path = str(tmp_path / "hostile.db")
    apart(lambda: make_hostile(path))
    with served(path) as address:
        page = window.go(address)
        window.threads.first.click()
        window.event(1).click()
        assert "alert(1)" in page.get_by_role("heading", level=1).inner_text()
        for seq, text in enumerate(HOSTILE, 1):
            page.get_by_role("slider").fill(str(seq))
            for name in ("Conversation", "Event", "State", "Context"):
                shown = window.tab(name).inner_text()
                assert escaped(text[:12]) in shown
        page.get_by_role("slider").fill(str(len(HOSTILE) + 2))
        for name in TABS:
            window.tab(name)
        assert "\u202e" not in page.locator("body").inner_text()
        assert "\x1b" not in page.locator("body").inner_text()
        window.tab("Event").get_by_role("button", name=re.compile("Show all 1,000,")).first.click()
        window.panel.get_by_text("the end</b>").first.wait_for()
        assert HOSTILE_ID[:20] in page.get_by_role("heading", level=1).inner_text()
        for never in ("window.ran", "document.querySelector('img, [onerror], [onload], #panels script, style')"):
            assert page.evaluate(f"!{never}")
        page.goto("about:blank")


def test_errors_stand_where_they_happen_and_can_be_tried_again(window: Window, address: str) -> None:
    """A tab whose answer does not come says so; the rest goes on, and a second try succeeds."""
    window.forgiven = ["Failed to load resource"]
    page = window.look(address, thread="coding")
    page.route("**/api/state?*", lambda route: route.abort())
    alert = window.tab("State").get_by_role("alert")
    assert "Is `memory-engine inspect` still running?" in alert.inner_text()
    assert window.tab("Event").get_by_role("heading").first.is_visible()
    window.tab("State")
    page.unroute("**/api/state?*")
    alert.get_by_role("button", name="Try again").click()
    window.panel.get_by_role("heading", name="State after").wait_for()


def test_a_place_that_is_not_there_is_said(window: Window, address: str) -> None:
    """A thread that there is none of, and an address without its token."""
    window.forgiven = ["404", "403"]
    page = window.go(address, thread="nobody")
    alert = page.get_by_role("main").get_by_role("alert")
    alert.wait_for()
    assert "ThreadNotFound" in alert.inner_text()
    page.goto(address.partition("?")[0])
    page.get_by_text("Open the whole address that `memory-engine inspect` printed").first.wait_for()


def test_an_empty_store(window: Window, tmp_path: Path) -> None:
    """There is nothing to see, and the page says that."""
    path = str(tmp_path / "empty.db")

    async def make() -> None:
        async with memory_engine.open(path) as engine:
            await engine.create_thread("silent")

    apart(make)
    with served(path) as address:
        page = window.go(address, thread="silent")
        page.get_by_text("Nothing was said yet").wait_for()
        page.get_by_role("main").get_by_text("0 events", exact=True).wait_for()
        for name in TABS:
            window.tab(name)
            assert 0 == window.panel.get_by_role("alert").count()
        page.goto("about:blank")


def test_a_log_that_grows_is_followed(window: Window, tmp_path: Path) -> None:
    """What another process writes appears; whoever looks at the past is told how much is new."""
    path = str(tmp_path / "live.db")

    async def say(first: int, last: int) -> None:
        async with memory_engine.open(path) as engine:
            if first == 1:
                await engine.create_thread("agent", policy=CompactionPolicy(enabled=False))
            thread = engine.thread("agent")
            for n in range(first, last + 1):
                await thread.dispatch(UserMessage(content=f"word {n}"))

    apart(lambda: say(1, 60))
    with served(path) as address:
        page = window.look(address, thread="agent")
        _another_process_says(path, tmp_path, "word 61")
        window.event(61).wait_for()
        window.is_at("word 61")
        window.panel.get_by_role("heading", name="61 user_message").wait_for()
        window.press("Home")
        apart(lambda: say(62, 64))
        pill = page.get_by_role("button", name="3 new")
        pill.wait_for()
        window.is_at("word 1")
        pill.click()
        window.event(64).wait_for()
        pill.wait_for(state="hidden")
        window.is_at("word 64")
        live = page.get_by_role("button", name="live")
        window.press("l")
        assert "false" == live.get_attribute("aria-pressed")
        apart(lambda: say(65, 66))
        page.get_by_role("main").get_by_text("64 events", exact=True).wait_for()
        window.press("l")
        window.event(66).wait_for()
        window.threads.filter(has_text="66 events").wait_for()
        page.goto("about:blank")


def test_a_press_is_a_click_while_the_lists_are_written_anew(window: Window, tmp_path: Path) -> None:
    """News arrive between the press and the release, as they do where an agent is at work."""
    path = str(tmp_path / "busy.db")

    async def say(thread_id: str, *texts: str) -> None:
        async with memory_engine.open(path) as engine:
            await (await engine.open_thread(thread_id)).dispatch_all([UserMessage(content=text) for text in texts])

    apart(lambda: say("quiet", "only"))
    apart(lambda: say("busy", "first", "second", "third"))
    with served(path) as address:
        page = window.look(address, thread="busy")

        def pressed(row: "Locator") -> None:
            row.hover()
            page.mouse.down()
            with page.expect_response(re.compile("/api/threads")):
                apart(lambda: say("busy", "one more"))
            window.settled()
            page.mouse.up()

        pressed(window.event(1))
        window.is_at("first")
        pressed(window.threads.filter(has_text="quiet"))
        window.is_at("only")
        window.threads.filter(has_text="5 events").wait_for()
        page.goto("about:blank")


def _another_process_says(path: str, folder: Path, text: str) -> None:
    """Add a message to the thread "agent" with the command line."""
    file = folder / "agent.jsonl"
    file.write_text(json.dumps({"role": "user", "content": text}) + "\n", encoding="utf-8")
    words = (sys.executable, "-m", "memory_engine", "ingest", str(file), "--db", path, "--thread", "agent")
    root = Path(memory_engine.__file__).parent.parent
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=root)
    assert 0 == done.returncode, done.stderr
