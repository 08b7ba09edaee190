"""The inspector's route of the brief, and what its contexts lack of it."""

from pathlib import Path

import memory_engine
from memory_engine import CompactionPolicy
from memory_engine import events as e
from tests.faces.test_inspector_api import READ_ONLY, get, rows
from tests.inspecting import inspected


async def test_the_brief_of_a_seq_and_what_a_context_lacks_of_it(tmp_path: Path) -> None:
    """Statements with what superseded them, and pins; a context marks those that it has no room for."""
    path = str(tmp_path / "agent.db")
    async with memory_engine.open(path) as engine:
        chat = await engine.create_thread("kiln", policy=CompactionPolicy(enabled=False))
        await chat.dispatch(e.UserMessage(content="Batch Q-118 must never be fired above 1180 degrees."))
        await chat.dispatch(e.UserMessage(content="Actually, batch Q-118 no longer has a limit."))
        await chat.pin("Glaze on Fridays only. " * 40)
        await chat.dispatch(e.UserMessage(content="Go on, then."))
    async with memory_engine.open(path, config=READ_ONLY) as engine, inspected(engine, path) as browser:
        then = await get(browser, "brief", {"thread": "kiln", "seq": 1})
        now = await get(browser, "brief", {"thread": "kiln", "seq": 4})
        context = await get(browser, "context", {"thread": "kiln", "seq": 4, "max_tokens": 100})
    assert [(1, "stands", 0)] == [(one["seq"], one["status"], one["by"]) for one in rows(then, "statements")]
    first, *_, pin, _ = rows(now, "statements")
    assert ("superseded", 2, True) == (first["status"], first["by"], pin["pinned"])
    assert {3: True, 4: False}.items() <= {one["seq"]: one["missing"] for one in rows(context, "stood")}.items()
