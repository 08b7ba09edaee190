"""The inspector's page asks what if: a change is run in memory, contexts stand side by side; what writes says so."""

import re
from typing import TYPE_CHECKING

import pytest

from tests.browser.browsed_logs import make_store
from tests.browser.browsing import Window, apart
from tests.inspecting import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, chromium: "Browser") -> str:
    """A store in use."""
    del chromium  # where there is none, nothing is made
    path = str(tmp_path_factory.mktemp("what_if") / "agent.db")
    apart(lambda: make_store(path))
    return path


def test_a_change_is_tried_in_memory(window: Window, path: str) -> None:
    """A threshold, another event, a reducer less: each comes with both contexts, and nothing is written."""
    window.forgiven = ["400"]
    with served(path) as address:
        page = window.look(address, thread="coding", seq=12, tab="whatif")
        run = window.panel.get_by_role("button", name="Run again in memory")
        assert "nothing is written" in window.panel.inner_text()
        run.click()
        window.panel.get_by_text("it changes nothing").wait_for()
        window.panel.get_by_label("chunks at least").fill("8")
        run.click()
        came = window.panel.get_by_role("table", name="Result")
        came.wait_for()
        assert re.search(r"compactions\s+2\s+14", came.inner_text())
        window.picture("what-if")
        window.panel.get_by_label("chunks at least").fill("")
        window.panel.get_by_label("Event 12").select_option("replace")
        box = window.panel.get_by_label("The event as JSON")
        page.wait_for_function("() => document.getElementById('whatif-json').value.includes('a worker may die')")
        box.fill('{"type": "user_message", "payload": {"content": "<b onclick=alert(1)>Leave</b> it."}}')
        run.click()
        sides = window.panel.get_by_role("group", name="Contexts side by side")
        sides.get_by_text("<b onclick=alert(1)>Leave</b> it.").wait_for()
        assert "no longer fits" in window.panel.inner_text()
        assert "Started with --write, this page can keep this" in window.panel.inner_text()
        box.fill("not JSON")
        run.click()
        window.panel.get_by_role("alert").filter(has_text="The event is not JSON").wait_for()
        window.panel.get_by_label("Event 12").select_option("")
        window.panel.get_by_text("8 of 8 run").click()
        window.panel.get_by_label("reduce_tool_result").uncheck()
        run.click()
        sides.wait_for()
        assert "7 of 8 run" in window.panel.inner_text()
        page.goto("about:blank")


def test_what_may_be_written_is_written_on_demand(chromium: "Browser", path: str) -> None:
    """Started to write, the page says so; a what-if is kept as a fork, and a compaction is undone in the log."""
    window = Window(chromium, dark=True, wide=1280)
    with served(path, write=True) as address:
        page = window.look(address, thread="coding", tab="whatif")
        assert page.get_by_text("may write", exact=True).is_visible()
        window.panel.get_by_label("Compaction", exact=True).select_option(index=1)
        window.panel.get_by_role("button", name="Run again in memory").click()
        undo = window.panel.get_by_role("button", name="Undo it in the log")
        undo.wait_for()
        window.picture("undo")
        undo.click()
        window.panel.get_by_role("heading", name="50 compaction_undone").wait_for()
        window.event(50).wait_for()
        window.tab("What if")
        window.panel.get_by_label("Compaction", exact=True).locator("option", has_text="event 38").wait_for(
            state="detached"
        )
        window.panel.get_by_label("Compaction", exact=True).select_option("")
        window.panel.get_by_label("never").check()
        window.panel.get_by_role("button", name="Run again in memory").click()
        window.panel.get_by_role("button", name="Keep it as a fork").click()
        page.get_by_role("heading", level=1, name=re.compile("^[0-9a-f-]{36}$")).wait_for()
        window.tab("Forks")
        assert 3 == window.panel.get_by_role("treeitem").count()
        page.goto("about:blank")
    window.close()
