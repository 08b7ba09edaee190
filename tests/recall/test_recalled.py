"""Recalled memory is marked: nothing is learned from it a second time."""

import memory_engine
from memory_engine import Chunk, CompactionContext, MemoryRecalled, UserMessage
from memory_engine.compactors import EmbeddedCompactor
from memory_engine.compactors.history_prompt import entries_of
from memory_engine.core.chunks import RECALLED

SAID = Chunk(id="1.0", type="user_message", content="Order A-117 of twelve oak chairs goes to hall seven.")
FROM_MEMORY = Chunk(id="2.0", type="recalled", content="The warehouse code is 9921-KX.", status=RECALLED)


async def test_the_embedded_compactor_leaves_it_out() -> None:
    """A summary holds what was said now, and cites nothing that came out of memory."""
    context = CompactionContext(thread_id="t", budget_tokens=400)
    result = await EmbeddedCompactor().compact([SAID, FROM_MEMORY], context)
    assert "A-117" in " ".join(line.text for line in result.lines)
    assert {"1.0"} == {source for line in result.lines for source in line.sources}


def test_a_model_is_not_shown_it() -> None:
    """The working history that a model summarises is without it."""
    entries = entries_of([SAID, FROM_MEMORY], CompactionContext(thread_id="t", budget_tokens=400))
    assert [("1.0",)] == [entry.sources for entry in entries]


async def test_a_model_sees_what_it_is() -> None:
    """In the context it stands as recalled memory, not as somebody's word."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([UserMessage(content="hi"), MemoryRecalled(content="The warehouse code is 9921-KX.")])
        chunk = [*(await thread.state()).chunks()][-1]
        assert (RECALLED, "disposable") == (chunk.status, chunk.retention)
        assert "[From memory, not said now] The warehouse code" in str((await thread.context()).messages[-1]["content"])


async def test_the_embedded_compactor_reads_of_a_huge_text_its_beginning_and_end() -> None:
    """A megabyte costs no more than what is read of it, and is cited like any other."""
    middle = " ".join(f"filler{n}" for n in range(120_000))
    huge = Chunk(id="1.0", type="action_result", content=f"Invoice 4711 was paid.\n{middle}\nRefund 4712 was refused.")
    result = await EmbeddedCompactor().compact([huge], CompactionContext(thread_id="t", budget_tokens=200))
    assert result.lines
    assert "filler60000" not in " ".join(line.text for line in result.lines)
