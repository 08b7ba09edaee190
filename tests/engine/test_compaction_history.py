"""The compactions of a thread as a list: those that stand, those that came to nothing, and the one that is due."""

import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, UserMessage
from memory_engine import events as e
from memory_engine.errors import CompactorFailed
from memory_engine.reports import WIDTH
from tests.conversations import NEVER, opened, turns
from tests.scripted_compactors import Scripted, raises


async def test_a_list_of_every_try() -> None:
    """In the order of their beginnings, with why, how many tokens before and after, and what became of each."""
    async with opened(Scripted(raises(RuntimeError("no quota"))), NEVER) as engine:
        thread = await engine.create_thread("t")
        assert [] == list(await thread.compaction.history())
        await thread.dispatch_all(turns(4))
        with pytest.raises(CompactorFailed):
            await thread.compact()
        engine.register_compactor(Scripted())
        await thread.compact()
        await thread.compaction.undo(reason="too short")
        await thread.compaction.redo()
        found = await thread.compaction.history()
        assert ["failed", "undone", "live"] == [one.status for one in found]
        failed, undone, live = found
        assert ("", 0, 0) == (failed.model, failed.tokens_before, failed.tokens_after)
        assert "no quota" in failed.error
        assert not failed.is_completed
        assert ({"manual"}, {"it was asked for"}) == ({one.trigger for one in found}, {one.why for one in found})
        assert (4, ()) == (failed.chunks, failed.covered)
        assert undone.tokens_before > undone.tokens_after
        assert 4 == len(undone.covered) == undone.chunks
        assert live.summaries
        assert (live, 3) == (found[-1], len(found))
        assert found.as_data() == json.loads(json.dumps(found.as_data()))


async def test_a_list_of_the_past() -> None:
    """As of a moment: a try that had begun was running, what was undone later stood."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(4))
        report = await thread.compact()
        await thread.compaction.undo()
        [now] = await thread.compaction.history()
        [then] = await (await thread.at(now.seq)).compaction.history()
        [begun] = await (await thread.at(now.started)).compaction.history()
        assert ("undone", "live", "running") == (now.status, then.status, begun.status)
        assert report.new_chunks == then.summaries
        assert (0, 4) == (begun.seq, begun.chunks)


async def test_one_that_is_due(tmp_path: Path) -> None:
    """What the thresholds ask for, and how much there is; a policy that asks for nothing has none."""
    path = str(tmp_path / "m.db")
    async with opened(Scripted(), NEVER, path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(4))
        assert None is (await thread.compaction.history()).due
    for policy, trigger in (
        (CompactionPolicy(threshold=4, tokens_min=0), "auto"),
        (CompactionPolicy(soft_tokens=10, hard_tokens=20), "hard"),
    ):
        config = EngineConfig(read_only=True, compaction=policy)
        async with memory_engine.open(path, config=config) as reading:
            due = (await reading.thread("t").compaction.history()).due
            assert due is not None
            assert (trigger, 4) == (due.trigger, due.chunks)


async def test_one_left_behind_is_abandoned(engine: Engine) -> None:
    """A start without an end, of which the thread knows nothing any more, is not said to run."""
    thread = await engine.create_thread("t", policy=NEVER)
    await thread.dispatch(UserMessage(content="Hello"))
    started = e.CompactionStarted(
        compaction_id="c1", trigger="hard", chunk_ids=("1.0",), compactor="x", owner="o", deadline_us=0
    )
    await thread.dispatch(started)
    [running] = await thread.compaction.history()
    assert ("running", "a context was over the hard limit", 2, 0) == (
        running.status, running.why, running.started, running.seq
    )  # fmt: skip
    await thread.dispatch(e.CompactionAbandoned(compaction_id="c1", reason="its owner died"))
    [abandoned] = await thread.compaction.history()
    assert ("abandoned", "its owner died", 3) == (abandoned.status, abandoned.reason, abandoned.seq)


async def test_a_list_is_printed_as_a_table() -> None:
    """A row for each, plain and short; nothing at all is said too."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread("t")
        assert "nothing was compacted" == str(await thread.compaction.history())
        await thread.dispatch_all(turns(4))
        await thread.compact()
        heads, row = str(await thread.compaction.history()).split("\n")
        assert heads.split()[0] == "COMPACTION"
        assert "live" == row.split()[-1]
        assert len(row) <= WIDTH
