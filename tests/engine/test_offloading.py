"""Off-loading: large results leave the context but for their beginning, and are read on from the log."""

from pathlib import Path

import pytest

import memory_engine
from memory_engine import ImagePart, LlmToolCall, TextPart, Thread, ToolCall, ToolResult, UserMessage, errors
from memory_engine import events as e
from memory_engine.context.rendering import Message

LARGE = "".join(f"line {n}\n" for n in range(30_000))


async def asked(thread: Thread, content: e.Content = LARGE) -> str:
    """A call with its result; the id of the result's chunk."""
    await thread.dispatch(LlmToolCall(calls=(ToolCall("c1", "read", "{}"),)))
    receipt = await thread.dispatch(ToolResult(call_id="c1", content=content, name="read"))
    return receipt.chunks[0].id


async def messages(thread: Thread) -> list[Message]:
    """What the model sees."""
    return (await thread.context()).messages


async def test_L4_a_large_result_leaves_its_beginning_and_a_reference(thread: Thread) -> None:
    """The message says how much more there is and how to open it; the pair of call and result holds."""
    chunk_id = await asked(thread)
    assert await thread.compaction.offload() is not None
    (call, result) = await messages(thread)
    left = len(LARGE) - 400
    assert f'{LARGE[:400]}\n[… {left:,} more characters: open("{chunk_id}")]' == result["content"]
    assert ("c1", True) == (result["tool_call_id"], "tool_calls" in call)
    (_, shorter) = (await thread.state()).chunks()
    assert (chunk_id,) == shorter.parent_ids
    assert (await thread.replay.verify()).ok


async def test_L4_the_rest_is_read_piece_by_piece(tmp_path: Path) -> None:
    """From the log, after a restart; whatever form of the reference a model sends."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        chunk_id = await asked(thread)
        await thread.compaction.offload()
        new_id = [chunk.id for chunk in (await thread.state()).chunks()][-1]
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        note = str((await messages(thread))[-1]["content"])
        for reference in (chunk_id, f'open("{chunk_id}")', f" '{chunk_id}' ", note, new_id):
            opened = await thread.compaction.open(reference, start=400)
            assert (LARGE[400:4_400], len(LARGE), 4_400) == (opened.text, opened.total_chars, opened.next_start)
        read = ""
        start: int | None = 0
        while start is not None:
            opened = await thread.compaction.open(chunk_id, start=start, chars=100_000)
            read, start = read + opened.text, opened.next_start
        assert LARGE == read
        assert "" == (await thread.compaction.open(chunk_id, start=10**9)).text


async def test_L4_only_large_results_are_shortened(thread: Thread) -> None:
    """Not what a person said, not what is CRITICAL, not what is below the bound; and each only once."""
    await thread.dispatch(UserMessage(content=LARGE))
    await asked(thread, "x" * 19_999)
    assert None is await thread.compaction.offload()
    critical = await asked(thread)
    await thread.compaction.mark_critical(critical)
    assert None is await thread.compaction.offload()
    await asked(thread)
    assert await thread.compaction.offload() is not None
    assert None is await thread.compaction.offload()
    assert await thread.compaction.offload(min_chars=1_000, keep_chars=10) is not None


async def test_L4_images_stay_where_they_are() -> None:
    """Of mixed content the text is shortened."""
    image = ImagePart(url="https://example.org/a.png")
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        chunk_id = await asked(thread, (TextPart(text=LARGE), image))
        await thread.compaction.offload()
        (_, result) = (await thread.state()).chunks()
        assert image == result.content[1]
        assert LARGE[5:15] == (await thread.compaction.open(chunk_id, start=5, chars=10)).text


async def test_L4_a_chunk_that_went_meanwhile_is_skipped(thread: Thread) -> None:
    """An event that names it does no harm."""
    await thread.dispatch(e.ResultsOffloaded(chunk_ids=("77.0",)))
    assert [] == list((await thread.state()).chunks())


async def test_L4_what_was_forgotten_cannot_be_opened(thread: Thread) -> None:
    """Neither by the reference nor by the shortened chunk; what was never there neither."""
    chunk_id = await asked(thread)
    other = await asked(thread)
    await thread.compaction.offload()
    event = [r async for r in thread.events()][1]
    await thread.forget(event_ids=[event.id])
    for reference in (chunk_id, "99.0", "nonsense"):
        with pytest.raises(errors.UnknownChunk):
            await thread.compaction.open(reference)
    assert LARGE[:10] == (await thread.compaction.open(other, chars=10)).text
    assert LARGE[:20] not in str((await messages(thread))[:1])


@pytest.mark.parametrize(("start", "chars"), [(-1, 10), (0, 0)])
async def test_L4_a_piece_that_cannot_be_is_a_typed_error(thread: Thread, start: int, chars: int) -> None:
    """The error names what was wrong."""
    chunk_id = await asked(thread)
    with pytest.raises(errors.InvalidMemory, match="start" if start else "chars"):
        await thread.compaction.open(chunk_id, start=start, chars=chars)
    with pytest.raises(errors.InvalidMemory, match="keep_chars"):
        await thread.compaction.offload(min_chars=10, keep_chars=10)


async def test_L6_recalled_memory_is_a_marked_note(thread: Thread) -> None:
    """It says that nobody said it now, is the first to go, and carries its mark."""
    await thread.dispatch(e.MemoryRecalled(content="The dataset is CSV.", query="dataset"))
    (message,) = await messages(thread)
    (chunk,) = (await thread.state()).chunks()
    assert "[From memory, not said now] The dataset is CSV." == message["content"]
    assert ("recalled", "recalled", "disposable") == (chunk.type, chunk.status, chunk.retention)
