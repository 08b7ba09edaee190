"""The inspector's page shows a log as talk, and what memory answers: as a person reads, opens and clicks it."""

import base64
import re
import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import memory_engine
from memory_engine import LlmTextResponse, UserMessage
from memory_engine.core.events.base import ImagePart, TextPart, ToolCall
from memory_engine.events import LlmThinking, LlmToolCall, ToolResult
from tests.browser.browsed_logs import QUESTION, Facts, make_folds, make_store
from tests.browser.browsing import Window, apart
from tests.inspecting import served
from tests.trust.older_files import contents

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator

ELSEWHERE = "https://example.com/picture.png"
MARKDOWN = """# A plan

It is **bold**, *leaning*, `code` and snake_case_word, with [a link](https://example.com/a?b=1).

1. first
   - within
2. second

| name | size |
|---|---|
| a | 1 |

```py
<b>not bold</b>
```

> said before

![far](https://example.com/picture.png) [bad](javascript:window.ran=1) [data](data:text/html,hi)
<img src=x onerror="window.ran = 1"><script>window.ran = 1</script>"""


def picture_url() -> str:
    """A red picture of 8 × 8."""
    rows = b"".join(b"\0" + b"\xd0\x30\x30" * 8 for _ in range(8))
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    made = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return f"data:image/png;base64,{base64.b64encode(made).decode()}"


async def make_rich(path: str) -> None:
    """A thread with everything that a talk may hold."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("rich")
        shown = (
            TextPart("What is in it?"),
            ImagePart(picture_url(), alt="a red square"),
            ImagePart(ELSEWHERE, alt="far"),
        )
        await thread.dispatch(UserMessage(content=shown))
        await thread.dispatch(LlmThinking(content="Let me look at the square."))
        call = ToolCall("c1", "look", '{"at": "square", "closely": true}')
        await thread.dispatch(LlmToolCall(content="I look.", calls=(call,)))
        await thread.dispatch(ToolResult(call_id="c1", name="look", content="It is red, all over."))
        await thread.dispatch(LlmTextResponse(content=MARKDOWN))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, chromium: "Browser") -> Iterator[tuple[str, Facts]]:
    """The inspector of a store in use."""
    del chromium  # where there is none, nothing is made
    path = str(tmp_path_factory.mktemp("talk") / "agent.db")
    facts = apart(lambda: make_store(path))
    with served(path) as address:
        yield address, facts


def turns(window: Window) -> "Locator":
    """The turns of the talk that exist."""
    return window.panel.get_by_role("feed").get_by_role("article")


def test_a_conversation_is_read_as_talk(window: Window, store: tuple[str, Facts]) -> None:
    """It is what one sees first: who said what, calls with their results, and a fold that opens to the originals."""
    address, facts = store
    page = window.look(address, thread="coding", tab="")
    assert page.get_by_role("tab", name="Conversation", selected=True).is_visible()
    assert "Can you write the query for that alert?" in turns(window).last.inner_text()
    call = turns(window).filter(has_text="make migrate schema").locator("details").first
    call.locator("summary").click()
    call.get_by_text("3 files changed, 13 insertions").last.wait_for()
    fold = turns(window).filter(has_text=f"{len(facts.covers)} chunks folded")
    fold.locator("summary").first.click()
    fold.get_by_text("the originals", exact=True).wait_for()
    window.picture("conversation")
    fold.get_by_role("article").filter(has_text="Plan, with your January case in it").wait_for()
    fold.get_by_role("button", name=f"Lineage of chunk {facts.summary}").click()
    window.panel.get_by_role("group", name="Lineage").wait_for()


def test_a_turn_leads_to_its_event_and_the_talk_stays(window: Window, store: tuple[str, Facts]) -> None:
    """A click selects the event in the log; the slider takes the talk itself back in time."""
    address, facts = store
    page = window.look(address, thread="coding", tab="conversation")
    turns(window).filter(has_text="150 pass, and 0 of 40").get_by_text("What is missing").click()
    window.is_on(35)
    assert "Can you write the query" in turns(window).last.inner_text()
    assert "The talk as of event 49" in window.panel.inner_text()
    assert 1 == window.panel.locator(".turn.chosen").count()
    window.panel.get_by_role("button", name="as of event 35").click()
    window.settled()
    assert "150 pass" in turns(window).last.inner_text()
    page.get_by_role("slider").fill("12")
    window.settled()
    assert "Sounds right. Mind that a worker may die" in turns(window).last.inner_text()
    assert 0 == window.panel.get_by_text("chunks folded").count()
    assert facts.compactions[0] > 12


@pytest.mark.parametrize(("wide", "dark"), [(1440, False), (1440, True), (390, False)])
def test_markup_pictures_and_thoughts(chromium: "Browser", tmp_path: "Path", wide: int, dark: bool) -> None:
    """Markdown becomes elements and hostile text stays text; pictures of the text are shown, others are links."""
    path = str(tmp_path / "rich.db")
    apart(lambda: make_rich(path))
    window = Window(chromium, wide=wide, dark=dark)
    with served(path) as address:
        page = window.go(address, thread="rich")
        said = turns(window).last
        said.get_by_role("heading", name="A plan").wait_for()
        assert ["bold", "leaning"] == [said.locator(tag).first.inner_text() for tag in ("strong:not(.speaker)", "em")]
        assert "<b>not bold</b>" == said.locator("pre").inner_text()
        assert "within" == said.locator("ol ul li").inner_text()
        assert "size" == said.get_by_role("columnheader").last.inner_text()
        links = said.get_by_role("link").all()
        assert ["https://example.com/a?b=1", ELSEWHERE] == [link.get_attribute("href") for link in links]
        assert {"noopener noreferrer"} == {link.get_attribute("rel") for link in links}
        assert "<script>window.ran = 1</script>" in said.inner_text()
        assert page.evaluate("!window.ran")
        first = turns(window).first
        assert ["a red square"] == [one.get_attribute("alt") for one in first.get_by_role("img").all()]
        assert 8 == first.get_by_role("img").evaluate("image => image.decode().then(() => image.naturalWidth)")
        assert ELSEWHERE == first.get_by_role("link").get_attribute("href")
        thought = turns(window).filter(has_text="thinking").locator("details")
        assert thought.get_attribute("open") is None
        thought.locator("summary").click()
        thought.locator(".markdown").filter(has_text="Let me look at the square.").wait_for()
        call = turns(window).filter(has_text="I look.").locator("details")
        assert re.search(r'look\(at: "square", closely: true\)\s*→ It is red', call.inner_text())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.goto("about:blank")
    window.close()


def test_summaries_of_summaries_open_in_the_talk(window: Window, tmp_path: "Path") -> None:
    """A fold in a fold."""
    path = str(tmp_path / "folds.db")
    apart(lambda: make_folds(path))
    with served(path) as address:
        window.look(address, thread="folds", tab="conversation")
        for text in ("The summary of summaries", "The first summary"):
            window.panel.locator("summary").filter(has_text=text).first.click()
        window.panel.get_by_text("word1 and so on").first.wait_for()
        window.page.goto("about:blank")


def test_memory_is_asked(window: Window, store: tuple[str, Facts]) -> None:
    """The hits with the parts of their scores, and which of them a context of some budget takes in."""
    address, _ = store
    window.look(address, thread="coding", tab="recall")
    assert "Ask a question" in window.panel.inner_text()
    window.panel.get_by_label("Question").fill(QUESTION)
    best = window.panel.get_by_role("article").filter(has_text="place 1:")
    best.get_by_text("came in", exact=True).wait_for()
    assert best.get_by_role("table").get_by_role("row").count() > 1
    window.picture("recall")
    window.panel.get_by_label("Budget of the context").fill("600")
    window.panel.get_by_text("cut", exact=True).first.wait_for()
    window.panel.get_by_text(re.compile("tokens of 600")).wait_for()


def test_memory_is_asked_of_a_database_that_nobody_has_searched(window: Window, tmp_path: "Path") -> None:
    """It has no index, and gets none: the hits are shown all the same, also after a look at the context."""
    path = tmp_path / "folds.db"
    apart(lambda: make_folds(str(path)))
    before = contents(tmp_path)
    with served(str(path)) as address:
        window.look(address, thread="folds", tab="recall")
        window.panel.get_by_label("Question").fill("word3")
        best = window.panel.get_by_role("article").filter(has_text="place 1:")
        best.get_by_text("word3 and so on").first.wait_for()
        assert 0 == window.panel.get_by_role("alert").count()
        window.page.goto("about:blank")
    assert before == contents(tmp_path)


def test_one_column_leads_from_threads_to_events_and_back(chromium: "Browser", store: tuple[str, Facts]) -> None:
    """On a telephone."""
    window = Window(chromium, wide=390, high=844)
    page = window.go(store[0])
    window.panel.get_by_role("heading", name="The store").wait_for()
    page.get_by_role("button", name="← Events").click()
    page.get_by_role("button", name="← Threads").click()
    window.threads.filter(has_text="support").click()
    page.get_by_role("heading", name="support", exact=True).wait_for()
    window.event(41).click()
    turns(window).last.wait_for()
    assert not window.timeline.is_visible()
    page.get_by_role("button", name="← Events").click()
    window.event(41).wait_for()
    window.close()
