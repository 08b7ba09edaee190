"""S1: the scratchpad holds what flows found out, in memory, capped, the least used making room."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, UserMessage, errors
from memory_engine.views.scratchpad.view import Scratchpad

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


async def texts(scratchpad: Scratchpad, *, flow: str | None = None, at: int | None = None) -> list[str]:
    """What a scratchpad's snippets say."""
    return [snippet.text for snippet in await scratchpad.read(flow=flow, at=at)]


async def test_S1_what_is_written_is_read(engine: Engine) -> None:
    """Snippets come back oldest first, each with its flow, its event's seq and its chunk's id."""
    thread = await engine.create_thread()
    said = {"analyze": "Sales dip on Sundays.", "segment": "Three accounts make up half of all churn."}
    written = [await thread.scratchpad.write(text, flow=flow) for flow, text in said.items()]
    assert tuple(written) == await thread.scratchpad.read()
    assert [("analyze", 1, False), ("segment", 2, False)] == [(s.flow, s.seq, s.recalled) for s in written]
    assert "Sales dip on Sundays." == (await thread.replay.chunk(written[0].id)).content


async def test_S1_a_flow_reads_its_own_snippets(engine: Engine) -> None:
    """`flow` chooses the snippets that were written in a flow."""
    scratchpad = (await engine.create_thread()).scratchpad
    for n in range(4):
        await scratchpad.write(f"finding {n}", flow="ab"[n % 2])
    assert ["finding 1", "finding 3"] == await texts(scratchpad, flow="b")


async def test_S1_above_64_snippets_the_oldest_goes(engine: Engine) -> None:
    """The cap is 64, and what nobody read goes in the order of its writing."""
    scratchpad = (await engine.create_thread()).scratchpad
    for n in range(67):
        await scratchpad.write(f"finding {n}")
    assert [f"finding {n}" for n in range(3, 67)] == await texts(scratchpad)


async def test_S1_reading_counts_as_use() -> None:
    """A snippet that was read stays while one that was not read since goes, whoever is older."""
    async with memory_engine.open(":memory:", config=EngineConfig(scratchpad_snippets_max=3)) as engine:
        scratchpad = (await engine.create_thread()).scratchpad
        first = await scratchpad.write("first", flow="a")
        for text in ("second", "third"):
            await scratchpad.write(text)
        assert first == await scratchpad.get(first.id)
        await scratchpad.write("fourth")
        assert ["first", "third", "fourth"] == await texts(scratchpad)
        await scratchpad.read(flow="a")
        await scratchpad.write("fifth")
        assert ["first", "fourth", "fifth"] == await texts(scratchpad)


async def test_S1_use_survives_a_restart_and_a_replay(tmp_path: Path) -> None:
    """The order of use is in the log: it holds after reopening, and verify finds the same evictions."""
    path, config = str(tmp_path / "m.db"), EngineConfig(scratchpad_snippets_max=2)
    async with memory_engine.open(path, config=config) as engine:
        thread = await engine.create_thread("t")
        one = await thread.scratchpad.write("one")
        await thread.scratchpad.write("two")
        await thread.scratchpad.get(one.id)
        await thread.scratchpad.write("three")
    async with memory_engine.open(path, config=config) as engine:
        thread = engine.thread("t")
        assert ["one", "three"] == await texts(thread.scratchpad)
        await thread.scratchpad.write("four")
        assert ["three", "four"] == await texts(thread.scratchpad)
        assert (await thread.replay.verify()).ok


async def test_S1_the_scratchpad_is_in_the_context(engine: Engine) -> None:
    """A model sees the snippets, each marked with its flow, after the conversation."""
    thread = await engine.create_thread()
    await thread.scratchpad.write("Sales dip on Sundays.", flow="analyze")
    await thread.dispatch(UserMessage(content="Why?"))
    context = await thread.context(max_tokens=100)
    assert ["Why?", "[Scratchpad]\n- (analyze) Sales dip on Sundays."] == [m["content"] for m in context.messages]


async def test_S1_an_empty_scratchpad_is_not_in_the_context(engine: Engine) -> None:
    """Nothing is said where there is nothing to say."""
    thread = await engine.create_thread()
    await thread.scratchpad.write("Sales dip on Sundays.")
    await thread.scratchpad.clear()
    assert [] == (await thread.context()).messages


async def test_S1_compaction_leaves_the_scratchpad_alone(engine: Engine) -> None:
    """Only use removes snippets: a compaction of the conversation around them takes none."""
    thread = await engine.create_thread(policy=CompactionPolicy(threshold=8, tokens_min=0, keep_recent=2))
    for n in range(10):
        await thread.scratchpad.write(f"finding {n}")
        await thread.dispatch(UserMessage(content=f"Order {n} of ten chairs goes to the northern hall."))
    await thread.compaction.settle()
    assert [f"finding {n}" for n in range(10)] == await texts(thread.scratchpad)
    assert any(chunk.type == "compacted" for chunk in (await thread.state()).chunks())


async def test_S1_snippets_are_removed_by_id(engine: Engine) -> None:
    """What is removed is gone from now on, and still there in the past."""
    scratchpad = (await engine.create_thread()).scratchpad
    one, _ = await scratchpad.write("one"), await scratchpad.write("two")
    await scratchpad.remove(one.id, "7.7")
    assert (["two"], ["one", "two"]) == (await texts(scratchpad), await texts(scratchpad, at=2))
    assert [] == await texts(scratchpad, at=0)


async def test_S1_a_forgotten_snippet_is_gone(engine: Engine) -> None:
    """Forgetting the event that wrote it reaches the scratchpad."""
    thread = await engine.create_thread()
    await thread.scratchpad.write("The password is 1234.", event_id="e1")
    await thread.scratchpad.write("Sales dip on Sundays.")
    await thread.forget(event_ids=["e1"])
    assert ["Sales dip on Sundays."] == await texts(thread.scratchpad)


async def test_S1_an_empty_snippet_is_refused(engine: Engine) -> None:
    """A snippet says something."""
    thread = await engine.create_thread()
    with pytest.raises(errors.InvalidEvent, match="says something"):
        await thread.scratchpad.write(" \n")
    assert 0 == (await thread.info()).events


async def test_S1_a_fork_has_the_scratchpad_of_its_past(engine: Engine) -> None:
    """A fork begins with the snippets of its seq and goes its own way."""
    thread = await engine.create_thread()
    for text in ("one", "two"):
        await thread.scratchpad.write(text)
    fork = await thread.fork(at=1)
    await fork.scratchpad.write("three")
    assert (["one", "two"], ["one", "three"]) == (await texts(thread.scratchpad), await texts(fork.scratchpad))


@settings(max_examples=40)
@given(st.lists(st.tuples(TEXTS, st.booleans(), st.integers(0, 5)), max_size=12), st.integers(1, 5))
async def test_S1_the_scratchpad_is_an_lru_cache(steps: list[tuple[str, bool, int]], cap: int) -> None:
    """For any writes and reads it holds what a least-recently-used cache of its cap would."""
    model: dict[str, str] = {}
    async with memory_engine.open(":memory:", config=EngineConfig(scratchpad_snippets_max=cap)) as engine:
        thread = await engine.create_thread()
        for text, reads, which in steps:
            if reads and model:
                key = list(model)[which % len(model)]
                await thread.scratchpad.get(key)
                model[key] = model.pop(key)
            else:
                snippet = await thread.scratchpad.write(text)
                model[snippet.id] = text
                for key in list(model)[: max(0, len(model) - cap)]:
                    del model[key]
        assert {s.id: s.text for s in await thread.scratchpad.read()} == model
        assert (await thread.replay.verify()).ok


async def test_S1_a_retried_write_after_a_restart_is_the_first(tmp_path: Path) -> None:
    """The id decides: what was read in between, and is not remembered any more, makes no conflict."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        scratchpad = (await engine.create_thread("t")).scratchpad
        one = await scratchpad.write("one")
        await scratchpad.get(one.id)
        written = await scratchpad.write("two", event_id="w2")
    async with memory_engine.open(path) as engine:
        scratchpad = engine.thread("t").scratchpad
        assert written == await scratchpad.write("two", event_id="w2")
        assert ["one", "two"] == await texts(scratchpad)
