"""What the inspector tells of rewinds and quarantines."""

import memory_engine
from memory_engine import events as e
from tests.faces.test_inspector_api import get, rows
from tests.inspecting import inspected


async def test_the_outline_tells_what_was_taken_back() -> None:
    """As ranges of seqs, which an undone rewind takes back in its turn."""
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        thread = await engine.create_thread("t")
        for n in range(3):
            await thread.dispatch(e.UserMessage(content=f"word {n}"))
        assert [] == (await get(browser, "outline", {"thread": "t"}))["taken_back"]
        await thread.rewind(1)
        assert [[2, 3]] == (await get(browser, "outline", {"thread": "t"}))["taken_back"]
        await thread.rewind(redo=True)
        assert [[4, 4]] == (await get(browser, "outline", {"thread": "t"}))["taken_back"]


async def test_the_outline_tells_what_is_quarantined() -> None:
    """By whom, since when, and which events are hidden."""
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        thread = await engine.create_thread("t")
        await thread.dispatch(e.ExternalInject(content="It rains.", source="weather"))
        await thread.admin.quarantine("tool:weather", by="ada", reason="wrong")
        (one,) = rows(await get(browser, "outline", {"thread": "t"}), "quarantines")
        assert ("tool:weather", "ada", "wrong", [1]) == (one["source"], one["by"], one["reason"], one["seqs"])
        await thread.admin.quarantine("tool:weather", release=True)
        assert [] == rows(await get(browser, "outline", {"thread": "t"}), "quarantines")
