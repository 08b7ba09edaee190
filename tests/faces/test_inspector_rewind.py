"""What the inspector tells of rewinds."""

import memory_engine
from memory_engine import events as e
from tests.faces.test_inspector_api import get
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
