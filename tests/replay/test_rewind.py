"""Rewinding a thread: what a tail has left in it, in other threads and in other processes, goes and comes back."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

import memory_engine
from memory_engine import (
    Destination,
    Engine,
    EngineConfig,
    MemoryShared,
    Plugin,
    RecordedEvent,
    Thread,
    errors,
)
from memory_engine import events as e
from memory_engine.projections.base import Projection, Rows
from memory_engine.testing import FakeCompactor, Hangs
from memory_engine.views.memory_files.fold import MEMORY_FILES
from tests.places import on_both_back_ends, place_of

TASTE = "The user prefers short answers"
RULE = "Revenue dips every Sunday"


async def said(thread: Thread) -> list[str]:
    """The texts of a thread's state."""
    return [chunk.text for chunk in (await thread.state()).chunks()]


async def found(thread: Thread, query: str) -> list[str]:
    """The texts that a search finds."""
    return sorted(hit.text for hit in await thread.search(query))


async def known(engine: Engine, agent: str, tenant_id: str = "") -> list[str]:
    """What an agent remembers."""
    return [entry.content for entry in await engine.agent(agent, tenant_id=tenant_id).memory.entries("episodic")]


def fact(text: str, to: str = "b", tenant_id: str = "") -> MemoryShared:
    """A fact for an agent."""
    return MemoryShared(destination=Destination("agent", to, tenant_id), layer="episodic", content=text)


async def talk(thread: Thread, *texts: str) -> int:
    """Say these things; returns the seq of the last."""
    for text in texts:
        await thread.dispatch(e.UserMessage(content=text))
    return await thread.last_seq()


# in the thread itself


async def test_a_dry_run_tells_what_would_go_and_writes_nothing(thread: Thread) -> None:
    """The same report as the rewind gives, but for the seq of its event."""
    moment = await talk(thread, "one", "two")
    await talk(thread, "three", "four")
    told = await thread.rewind(moment, dry_run=True)
    assert (0, 2, [(3, 4)], ["three", "four"]) == (
        told.seq,
        told.events,
        list(told.hidden),
        [chunk.text for chunk in told.removed],
    )
    assert 4 == await thread.last_seq()
    done = await thread.rewind(moment)
    assert 5 == done.seq
    assert {**told.as_data(), "seq": 5} == done.as_data()


async def test_the_log_keeps_what_was_taken_back(thread: Thread) -> None:
    """Its events, its past, and the reason why its chunks went."""
    moment = await talk(thread, "one")
    await talk(thread, "two")
    await thread.rewind(moment, reason="a wrong turn")
    assert ["one", "two"] == await said(await thread.at(2))
    assert ["one", "two"] == await found(await thread.at(2), "one two")
    assert ["one"] == await found(thread, "one two")
    assert ["user_message", "user_message", "thread_rewound"] == [one.type async for one in thread.events()]
    why = await thread.why("2.0")
    assert {"seq": 3, "to": 1, "reason": "a wrong turn"} == why.facts["rewound"]
    assert None is (await thread.verify()).divergence


@pytest.mark.parametrize("moment", [99, -1, "no such event", True])
async def test_a_moment_that_is_not_in_the_log(thread: Thread, moment: int | str) -> None:
    """It is refused, and nothing is written."""
    await talk(thread, "one")
    with pytest.raises((errors.SeqNotInLog, errors.EventNotFound)):
        await thread.rewind(moment)
    assert 1 == await thread.last_seq()


async def test_a_rewind_that_changes_nothing(thread: Thread) -> None:
    """To the last event, or a second time to the same moment, or the redo of none: it is refused."""
    moment = await talk(thread, "one")
    await talk(thread, "two")
    for moment_or_none, redo in ((2, False), (None, True), (None, False)):
        with pytest.raises(errors.CannotRewind):
            await thread.rewind(moment_or_none, redo=redo)
    await thread.rewind(moment)
    with pytest.raises(errors.InvalidArgument, match="moment cannot be 1: leave it out with redo"):
        await thread.rewind(1, redo=True)
    with pytest.raises(errors.CannotRewind, match="the thread shows the same events already"):
        await thread.rewind(moment)
    assert 3 == await thread.last_seq()


async def test_a_past_thread_and_an_engine_that_only_reads_are_not_rewound(tmp_path: Path) -> None:
    """Each says so by its own error; a dry run is possible."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await talk(thread, "one", "two")
        with pytest.raises(errors.PastIsReadOnly):
            await (await thread.at(2)).rewind(1)
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        with pytest.raises(errors.ReadOnly):
            await engine.thread("t").rewind(1)
        assert 1 == (await engine.thread("t").rewind(1, dry_run=True)).events


async def test_a_rewind_to_before_the_first_event(thread: Thread) -> None:
    """Everything is taken back, and comes back."""
    await talk(thread, "one", "two")
    await thread.rewind(0)
    assert [] == await said(thread)
    await thread.rewind(redo=True)
    assert ["one", "two"] == await said(thread)


async def test_rewinds_are_undone_in_reverse_order(thread: Thread) -> None:
    """Each redo undoes the latest rewind in force; what was said since goes with it, and can come back too."""
    await talk(thread, "one", "two", "three")
    await thread.rewind(2)
    await talk(thread, "another")
    await thread.rewind(1)
    assert ["one"] == await said(thread)
    await thread.rewind(redo=True)
    assert ["one", "two", "another"] == await said(thread)
    report = await thread.rewind(redo=True)
    assert ["one", "two", "three"] == await said(thread)
    with pytest.raises(errors.CannotRewind, match="no rewind is in force"):
        await thread.rewind(redo=True)
    await thread.rewind(report.upto)
    assert ["one", "two", "another"] == await said(thread)
    assert None is (await thread.verify()).divergence


async def test_a_rewind_over_a_compaction_brings_back_what_it_had_replaced(engine: Engine) -> None:
    """And the redo its summary, whose originals can be read, and which can be undone."""
    thread = await engine.create_thread("t")
    moment = await talk(thread, *(f"word {n} and some more words to keep" for n in range(6)))
    before = await said(thread)
    await thread.compact()
    compacted = await said(thread)
    assert before != compacted
    await thread.rewind(moment)
    assert before == await said(thread)
    await thread.rewind(redo=True)
    assert compacted == await said(thread)
    summary = next(chunk for chunk in (await thread.state()).chunks() if chunk.lines)
    assert 5 <= len(await thread.originals(summary.id))
    await thread.undo_compaction()
    assert before == await said(thread)
    assert None is (await thread.verify()).divergence


async def test_the_compactions_of_a_rewound_thread_are_those_of_that_moment(engine: Engine) -> None:
    """One that was undone since is live again, and the latest to undo is the latest that is shown."""
    thread = await engine.create_thread("t")
    await talk(thread, *(f"word {n} and some more words to keep" for n in range(6)))
    said_first = await said(thread)
    await thread.compact()
    moment, compacted = await thread.last_seq(), await said(thread)
    await thread.undo_compaction()
    await thread.compact()
    await talk(thread, "more")
    await thread.rewind(moment)
    assert ["live"] == [one.status for one in await thread.compactions()]
    assert compacted == await said(thread)
    await thread.undo_compaction()
    assert said_first == await said(thread)
    await thread.rewind(redo=True)
    assert ["undone", "live"] == [one.status for one in await thread.compactions()]
    assert None is (await thread.verify()).divergence


async def test_what_was_forgotten_stays_forgotten(thread: Thread) -> None:
    """Whether it was forgotten in the tail, or while the tail was taken back; erased text too."""
    await talk(thread, "the secret is plum", "two")
    await thread.forget(seqs=[1])
    await thread.rewind(1)
    assert [] == await said(thread)
    await talk(thread, "the other secret is pear", "five")
    await thread.rewind(4)
    await thread.admin.erase(seqs=[5])
    for _ in range(2):
        await thread.rewind(redo=True)
        assert not [text for text in await said(thread) if "secret" in text]
        assert [] == await found(thread, "secret plum pear")
    assert None is (await thread.verify()).divergence


async def test_a_rewind_over_a_clear_brings_back_what_it_had_cleared(thread: Thread) -> None:
    """State, views and search; a message that was said before the clear counts as said again."""
    moment = await talk(thread, "apples are red")
    await thread.memory.append("episodic", "We spoke of apples")
    moment = await thread.last_seq()
    await thread.clear()
    await talk(thread, "pears")
    await thread.rewind(moment)
    assert ["apples are red"] == await said(thread)
    assert ["We spoke of apples"] == [one.content for one in await thread.memory.entries("episodic")]
    assert ["We spoke of apples", "apples are red"] == await found(thread, "apples")
    assert () == await thread.record([{"role": "user", "content": "apples are red"}], new_only=True)


async def test_a_list_of_messages_continues_from_where_the_thread_was_taken_back_to(thread: Thread) -> None:
    """What was taken back is not part of the conversation so far."""
    first = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "yes"}]
    await thread.record(first)
    moment = await thread.last_seq()
    await thread.record([{"role": "user", "content": "two"}])
    await thread.rewind(moment)
    await thread.record([*first, {"role": "user", "content": "three"}], new_only=True)
    assert ["one", "yes", "three"] == await said(thread)
    await thread.rewind(moment)
    await thread.record([*first, {"role": "user", "content": "two"}], new_only=True)
    assert ["one", "yes", "two"] == await said(thread)


async def test_a_call_whose_result_was_taken_back_is_open_again(thread: Thread) -> None:
    """The context stays valid, whatever comes next: the result itself, or a person."""
    await talk(thread, "What is the weather?")
    await thread.dispatch(e.LlmToolCall(calls=(e.ToolCall("c1", "weather"),)))
    await thread.dispatch(e.ToolResult(call_id="c1", content="sunny", name="weather"))
    await thread.rewind(2)
    await talk(thread, "Never mind.")
    messages = cast("list[dict[str, Any]]", (await thread.context()).render("openai.chat").messages)
    calls = {call["id"] for one in messages for call in one.get("tool_calls", ())}
    assert calls == {one["tool_call_id"] for one in messages if one["role"] == "tool"}
    await thread.rewind(2)
    await thread.dispatch(e.ToolResult(call_id="c1", content="rainy", name="weather"))
    text = str((await thread.context()).messages)
    assert "rainy" in text
    assert "sunny" not in text


async def test_what_is_asked_and_noted_again_after_a_rewind_is_recorded_again(thread: Thread) -> None:
    """The same question, answer, file and screen: none of them counts as recorded already."""

    async def act() -> None:
        await thread.conversation.prepare_messages("Is it in stock?")
        await thread.conversation.finalize_cycle("Is it in stock?", "Yes.")
        await thread.memory_files.create("notes.md", "in stock")
        await thread.screen.inject("the shop")

    await talk(thread, "hello")
    await act()
    was = await said(thread), await thread.memory_files.read("notes.md")
    exchanges = [(one.question, one.answer) for one in await thread.conversation.exchanges()]
    await thread.rewind(1)
    assert ["hello"] == [one.question for one in await thread.conversation.exchanges()]
    await act()
    assert was == (await said(thread), await thread.memory_files.read("notes.md"))
    assert exchanges == [(one.question, one.answer) for one in await thread.conversation.exchanges()]
    await thread.clear()
    await act()
    assert 1 == len(await thread.conversation.exchanges())


async def test_a_sender_that_had_seen_the_tail_conflicts(thread: Thread) -> None:
    """A rewind changes what it holds."""
    seen = await talk(thread, "one", "two")
    await thread.rewind(1)
    with pytest.raises(errors.Conflict):
        await thread.dispatch(e.UserMessage(content="three"), expected_seq=seen)


async def test_a_rewind_waits_for_a_running_compaction() -> None:
    """Nothing that the compaction has replaced is lost."""
    compactor = FakeCompactor(Hangs("a summary"))
    async with memory_engine.open(":memory:", compactor=compactor) as engine:
        thread = await engine.create_thread("t")
        await talk(thread, *(f"word {n} and some more words to keep" for n in range(6)))
        running = asyncio.create_task(thread.compact())
        await compactor.begun.wait()
        rewinding = asyncio.create_task(thread.rewind(2))
        later = asyncio.create_task(thread.dispatch(e.UserMessage(content="after it")))
        await asyncio.sleep(0)
        assert not rewinding.done()
        compactor.release()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.gather(rewinding, later)
        texts = await said(thread)
        assert ["word 0 and some more words to keep", "word 1 and some more words to keep"] == texts[:2]
        assert texts[2:] in ([], ["after it"])  # it was taken back too, or came after that
        assert None is (await thread.verify()).divergence


class Lengths:
    """A view of every message's length, inline or asynchronous."""

    version = 1
    row = int

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.name = f"lengths_{mode}"

    def apply(self, rows: Rows[int], event: RecordedEvent) -> None:
        """Count the characters of each message."""
        if isinstance(event.event, e.UserMessage):
            rows.put(f"{event.seq:04d}", len(str(event.event.content)))


async def test_views_of_plug_ins_follow(tmp_path: Path) -> None:
    """Those that read every event too, in the same process and in the next, which has read them before."""
    path, views = str(tmp_path / "log.db"), [Lengths("inline"), Lengths("async")]
    plugin = Plugin("lengths", projections=[cast("Projection[object]", view) for view in views])

    async def shown(thread: Thread) -> list[dict[str, object]]:
        await engine.settle()
        return [await thread.view(one.name) for one in views]

    async with memory_engine.open(path, plugins=[plugin]) as engine:
        thread = await engine.create_thread("t")
        await talk(thread, "a", "bb", "ccc")
        assert [{"0001": 1, "0002": 2, "0003": 3}] * 2 == await shown(thread)
    async with memory_engine.open(path) as engine:
        await engine.thread("t").rewind(1)
        await talk(engine.thread("t"), "dddd")
    async with memory_engine.open(path, plugins=[plugin]) as engine:
        thread = engine.thread("t")
        assert [{"0001": 1, "0005": 4}] * 2 == await shown(thread)
        assert [{"0001": 1, "0002": 2}] == [await thread.view("lengths_inline", at=2)]
        await thread.rewind(redo=True)
        await talk(thread, "eeeee")
        assert [{"0001": 1, "0002": 2, "0003": 3, "0007": 5}] * 2 == await shown(thread)
        assert None is (await thread.verify()).divergence


async def test_an_engine_that_only_reads_shows_views_that_nobody_has_read_since_the_rewind(tmp_path: Path) -> None:
    """Also views of plug-ins, by each way to read rows; it follows what another one writes."""
    path = str(tmp_path / "log.db")
    views = [cast("Projection[object]", Lengths(mode)) for mode in ("inline", "async")]
    plugin = Plugin("lengths", projections=views)
    async with memory_engine.open(path, plugins=[plugin]) as engine:
        thread = await engine.create_thread("t")
        await thread.memory_files.create("a.md", "kept")
        await talk(thread, "bb")
        await thread.memory_files.create("c.md", "gone")
        await talk(thread, "dddd")
        await engine.settle()
    config = EngineConfig(read_only=True, follow_s=1e-6)
    async with memory_engine.open(path) as engine:
        await engine.thread("t").rewind(2)
        async with memory_engine.open(path, plugins=[plugin], config=config) as reading:
            shown = reading.thread("t")
            assert ["a.md"] == [one.path for one in await shown.memory_files.list()]
            assert "gone" not in str(rows_of_files := await shown.views.rows_between(MEMORY_FILES))
            assert len(rows_of_files) == (await shown.measure(MEMORY_FILES))[0]
            assert "dddd" not in str((await shown.context()).messages)
            for _ in range(2):
                rows = {"0002": 2} if 5 == await shown.last_seq() else {"0002": 2, "0006": 3}
                for view in views:
                    assert rows == await shown.views.read(view.name)
                    assert rows == dict(await shown.views.rows_between(view))
                    assert 2 == await shown.views.row(view, "0002")
                await talk(engine.thread("t"), "eee")


async def test_a_search_as_of_a_moment_finds_what_was_shown_then(thread: Thread) -> None:
    """Within a tail that was taken back and brought back, and within what was said in its stead."""
    await talk(thread, "apple one", "apple two")
    assert ["apple one", "apple two"] == await found(thread, "apple")
    await thread.rewind(1)
    await talk(thread, "apple three")
    await thread.rewind(redo=True)
    for moment, texts in ((2, ["one", "two"]), (3, ["one"]), (4, ["one", "three"]), (5, ["one", "two"])):
        assert [f"apple {text}" for text in texts] == await found(await thread.at(moment), "apple")
    assert ["apple one", "apple two"] == await found(thread, "apple")
    assert None is (await thread.verify()).divergence


# other processes


@on_both_back_ends
async def test_a_process_that_writes_at_the_same_time(back_end: str, tmp_path: Path) -> None:
    """Its events are before the rewind or after it; both processes show the same, and so does one that opens later."""
    place = place_of(back_end, tmp_path)
    config = EngineConfig(follow_s=0.001)
    async with memory_engine.open(place, config=config) as one, memory_engine.open(place, config=config) as other:
        await talk(await one.create_thread("t"), "one", "two", "three")
        assert ["one", "three", "two"] == await found(other.thread("t"), "one two three")
        writes = (other.thread("t").dispatch(e.UserMessage(content=f"crate {n}")) for n in range(4))
        rewinding = asyncio.create_task(one.thread("t").rewind(1))
        receipts = await asyncio.gather(*writes)
        report = await rewinding
        after = [f"crate {n}" for n, receipt in enumerate(receipts) if receipt.seq > report.seq]
        for engine in (one, other):
            assert ["one", *after] == await said(engine.thread("t"))
            assert sorted(["one", *after]) == await found(engine.thread("t"), "one two three crate")
        await one.thread("t").memory.append("episodic", "noted")
        assert ["noted"] == [entry.content for entry in await other.thread("t").memory.entries("episodic")]
        await other.thread("t").rewind(1)
        assert [] == await one.thread("t").memory.entries("episodic")
        await one.thread("t").rewind(redo=True)
        assert ["noted"] == [entry.content for entry in await other.thread("t").memory.entries("episodic")]
        assert sorted(["noted", "one", *after]) == await found(other.thread("t"), "one two three crate noted")
    async with memory_engine.open(place) as engine:
        assert ["one", *after] == await said(engine.thread("t"))
        assert None is (await engine.thread("t").verify()).divergence


# forks, exports


async def test_a_fork_goes_on_from_what_it_shares(engine: Engine) -> None:
    """Rewinding it, or its origin, changes nothing in the other; a fork of a rewound thread is rewound too."""
    thread = await engine.create_thread("t", user_id="u", tenant_id="acme")
    await talk(thread, "one", "two")
    await thread.dispatch(fact("learned", tenant_id="acme"))
    await thread.delivered()
    fork = await thread.fork(3)
    report = await fork.rewind(1)
    assert () == report.learned
    assert (["one"], ["one", "two"]) == (await said(fork), await said(thread))
    assert ["learned"] == await known(engine, "b", "acme")
    report = await thread.rewind(1)
    assert [("fork", fork.id)] == [(one.type, one.thread_id) for one in report.built_on]
    assert [] == await known(engine, "b", "acme")
    await fork.rewind(redo=True)
    assert ["one", "two"] == await said(fork)
    of_rewound = await thread.fork()
    assert ["one"] == await said(of_rewound)
    await of_rewound.rewind(redo=True)
    assert (["one", "two"], ["one"]) == (await said(of_rewound), await said(thread))
    before = await thread.fork(2)
    assert ["one", "two"] == await said(before)
    assert ["one", "two"] == await found(before, "one two")


async def test_an_exported_thread_is_rewound_where_it_is_imported(engine: Engine, tmp_path: Path) -> None:
    """With the same hashes; there, too, it can be undone."""
    thread = await engine.create_thread("t")
    await talk(thread, "one", "two")
    await thread.memory.append("episodic", "noted")
    await thread.rewind(1)
    await thread.replay.export(tmp_path / "log.jsonl")
    async with memory_engine.open(":memory:") as there:
        await there.import_log(tmp_path / "log.jsonl")
        copy = there.thread("t")
        assert (await thread.info()).head_hash == (await copy.info()).head_hash
        assert (["one"], []) == (await said(copy), await copy.memory.entries("episodic"))
        await copy.rewind(redo=True)
        assert (["one", "two"], 1) == (await said(copy), len(await copy.memory.entries("episodic")))
        assert None is (await copy.verify()).divergence


# searches and forgettings


async def test_a_search_as_of_a_moment_finds_as_many_as_it_is_asked_for(thread: Thread) -> None:
    """Of what was shown then, although more of what was taken back at that time ranks before it."""
    await talk(thread, "The gate is open", *(f"gate gate {n}" for n in range(20)))
    await thread.rewind(1)
    moment = await talk(thread, "Is the gate open?")
    await thread.rewind(redo=True)
    hits = await thread.search("gate gate", limit=2, at=moment)
    assert ["Is the gate open?", "The gate is open"] == sorted(hit.text for hit in hits)
    assert 1 == len(await thread.search("gate gate", limit=1, at=moment))


async def test_a_forgotten_redo_takes_its_words_out_of_the_search(thread: Thread) -> None:
    """The event holds copies of what it brought back: these words are not found by their first events either."""
    moment = await talk(thread, "one")
    await talk(thread, "two")
    await thread.rewind(moment)
    redo = await thread.rewind(redo=True)
    await thread.forget(seqs=[redo.seq])
    assert ["one"] == await said(thread)
    assert ["one"] == await found(thread, "one two")
    assert None is (await thread.verify()).divergence
