"""What was forgotten is shown at no moment: not in a past state, context or view, and not by its id."""

from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.core.chunks import REDACTED
from memory_engine.thread import Past, handle_of
from tests.scripted_compactors import Scripted

SECRET = "My number is 4711."
NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))


def said(text: str) -> e.UserMessage:
    """A message."""
    return e.UserMessage(content=text)


async def told(thread: Thread) -> str:
    """All that a moment of a thread shows to people and models."""
    views = [await thread.views.read(projection.name) for projection in handle_of(thread).kernel.projections]
    state, context = await thread.state(), await thread.context()
    held = [chunk.text for chunk in state.everything()]
    found = await thread.search("number 4711")
    snippets = await thread.scratchpad.read()
    exchanges = await thread.conversation.exchanges()
    memory = await thread.memory.entries("episodic")
    return str((held, context.messages, views, list(found), snippets, exchanges, memory))


async def secretive(engine: Engine) -> tuple[Thread, list[str]]:
    """A thread in which a secret stands in a message, an exchange, a snippet, a memory and a marked chunk."""
    thread = await engine.create_thread("t")
    await thread.dispatch(said("Hello"))
    note = e.MemoryAppended(layer="episodic", content=SECRET)
    await thread.dispatch_all([said(SECRET), e.ScratchpadWritten(content=SECRET), note])
    await thread.conversation.prepare_messages(SECRET)
    await thread.conversation.finalize_cycle(SECRET, "Noted.")
    ids = [event.id async for event in thread.events() if SECRET in str(event.event)]
    await thread.compaction.mark_critical("2.0")
    await thread.dispatch(said("Bye"))
    return thread, ids


async def test_no_moment_shows_what_was_forgotten(engine: Engine) -> None:
    """State, context, every view and search as of each seq, and a past that was at hand before."""
    thread, ids = await secretive(engine)
    pasts = [await thread.at(seq) for seq in range((await thread.info()).events + 1)]
    assert SECRET in await told(pasts[2])
    early = await thread.dispatch(said("Hello"), event_id="first")
    await thread.forget(event_ids=ids, reason="asked to")
    for past in (*pasts, thread):
        assert SECRET not in await told(past), past
    assert "Hello" in await told(pasts[1])
    again = await thread.dispatch(said("Hello"), event_id="first")
    assert (early, False) == (again, SECRET in str([*(await again.state.load()).everything()]))


async def test_it_stays_forgotten_after_a_restart_and_the_log_is_sound(tmp_path: Path) -> None:
    """Hashes, states and views are what the log makes of them: only what is given out is less."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread, ids = await secretive(engine)
        await thread.forget(event_ids=ids)
        head = (await thread.info()).head_hash
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        assert (await thread.replay.verify()).ok
        assert head == (await thread.replay.rebuild()).head_hash
        assert (await thread.replay.verify()).ok
        assert SECRET not in await told(await thread.at(3))


async def test_a_chunk_that_was_forgotten_is_not_given_by_its_id(thread: Thread) -> None:
    """Nor the marked version of it; another is, and one that never was is another error."""
    receipt = await thread.dispatch(said(SECRET))
    await thread.dispatch(said("Hello"))
    await thread.compaction.mark_critical("1.0")
    await thread.forget(event_ids=[receipt.event_id])
    for chunk_id in ("1.0", "3.0"):
        with pytest.raises(errors.ForgottenChunk, match="was forgotten"):
            await thread.replay.chunk(chunk_id)
        with pytest.raises(errors.UnknownChunk):
            await (await thread.at(3)).replay.chunk(chunk_id)
    assert "Hello" == (await thread.replay.chunk("2.0")).text
    with pytest.raises(errors.UnknownChunk, match="the log has no chunk"):
        await thread.replay.chunk("99.0")


async def test_originals_are_without_what_was_forgotten() -> None:
    """Of a summary, as it stands and as it stood: its forgotten lines and the chunks behind them are left out."""
    async with memory_engine.open(":memory:", compactor=Scripted(), config=NEVER) as engine:
        thread = await engine.create_thread("t")
        receipts = await thread.dispatch_all([said(f"{n}: {SECRET if n == 2 else 'nothing'}") for n in range(6)])
        await thread.dispatch(e.LlmTextResponse(content="5: nothing"))
        report = await thread.compact()
        before = (await thread.info()).events
        assert 7 == len(await thread.compaction.originals(report.new_chunks[0]))
        await thread.forget(event_ids=[receipts[2].event_id])
        summary = next(chunk for chunk in (await thread.state()).chunks() if chunk.lines)
        for chunk_id in (report.new_chunks[0], summary.id):
            assert [f"{n}: nothing" for n in (0, 1, 3, 4, 5, 5)] == [
                c.text for c in await thread.compaction.originals(chunk_id)
            ]
        then = next(chunk for chunk in (await thread.state(at=before)).chunks() if chunk.lines)
        assert (report.new_chunks[0], REDACTED) == (then.id, then.status)
        assert SECRET not in then.text
        assert (await thread.replay.verify()).ok


async def test_differences_and_explanations_of_the_past_do_not_tell_it(thread: Thread) -> None:
    """A diff, a bisection and a why of a moment before the forgetting."""
    receipt = await thread.dispatch(said(SECRET))
    await thread.dispatch(said("Hello"))
    await thread.forget(event_ids=[receipt.event_id])
    past = await thread.at(2)
    assert SECRET not in str((await thread.replay.diff(0, 2)).as_data())
    assert SECRET not in str((await past.replay.why("1.0")).as_data())
    assert SECRET not in str((await past.replay.why(await past.context())).as_data())

    async def tells(then: Past) -> bool:
        return SECRET in str((await then.state()).last())

    with pytest.raises(errors.NothingToBisect):
        await thread.replay.bisect(tells)


async def test_a_forgetting_is_no_longer_seen_by_the_moments_after_it(thread: Thread) -> None:
    """What was said again after it stands, at every moment since."""
    receipt = await thread.dispatch(said(SECRET))
    await thread.forget(event_ids=[receipt.event_id])
    await thread.dispatch(said(SECRET))
    assert [0, 0, 1] == [len(await thread.state(at=seq)) for seq in (1, 2, 3)]
