"""What a query recalls for a request is chosen once, recorded, and stays until the next request."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import (
    CompactionPolicy,
    ContextPolicy,
    Engine,
    EngineConfig,
    Event,
    LlmTextResponse,
    LlmToolCall,
    Thread,
    ToolCall,
    ToolResult,
)
from memory_engine import events as e
from memory_engine.context import Message
from tests.conversations import of_type, turns
from tests.recall.recalled import ASKED, CODE, KEPT, MARK, block_at, content, talk, user

BUDGET = 1_200


def step(n: int, text: str = "") -> list[Event]:
    """A call of the loop and its result."""
    call = LlmToolCall(calls=(ToolCall.create(f"c{n}", "look", {"n": n}),))
    return [call, ToolResult(call_id=f"c{n}", content=text or f"result {n} says nothing about it")]


async def begun(thread: Thread, question: str = ASKED) -> None:
    """A long talk in which the code was said first, and a question about it."""
    await thread.dispatch_all([*talk(40), user(question)])


def block(messages: list[Message]) -> str:
    """The recalled block, empty where there is none."""
    at = block_at(messages)
    return content(messages[at]) if at >= 0 else ""


async def test_each_context_of_a_request_shows_the_same_block_before_its_message() -> None:
    """Whatever the loop adds, even if it answers the query better."""
    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        await begun(thread)
        policy = ContextPolicy(recalled_max=400, blocks=())
        first = await thread.context(BUDGET, query=ASKED, policy=policy)
        for n in range(60):
            await thread.dispatch_all(step(n, "The warehouse code is 1111-AB now."))
            later = await thread.context(BUDGET, query=ASKED, policy=policy)
            assert (block(first.messages), first.recalled) == (block(later.messages), later.recalled)
            assert ASKED == later.messages[block_at(later.messages) + 1]["content"]
            assert later.spent.recalled == first.spent.recalled > 0


async def test_it_is_recorded_before_the_next_event_and_a_past_moment_shows_it(thread: Thread) -> None:
    """Once a request, with its query and its passages; the log verifies."""
    await begun(thread)
    context = await thread.context(BUDGET, query=ASKED)
    assert 42 == (await thread.info()).events
    first, _ = await thread.dispatch_all(step(1))
    await thread.context(BUDGET, query=ASKED)
    await thread.dispatch_all(step(2))
    (recorded,) = await of_type(thread, "context_recalled")
    assert isinstance(recorded, e.ContextRecalled)
    assert (context.recalled_text, ASKED, "42.0", 45) == (recorded.content, recorded.query, recorded.request, first.seq)
    assert [hit.event_id for hit in context.recalled] == [passage.event_id for passage in recorded.passages]
    past = await thread.context(BUDGET, at=first.seq)
    assert block(context.messages) == block(past.messages)
    chunks = [*(await thread.state(at=first.seq)).chunks()]
    assert ["recalled", "user_message"] == [chunk.type for chunk in chunks[-3:-1]]
    assert None is (await thread.replay.verify()).divergence


async def test_a_restart_keeps_it(tmp_path: Path) -> None:
    """The next process shows the same block, with the same passages."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path, config=KEPT) as engine:
        thread = await engine.create_thread("t")
        await begun(thread)
        first = await thread.context(BUDGET, query=ASKED)
        await thread.dispatch_all(step(1, "The warehouse code is 1111-AB now."))
    async with memory_engine.open(path, config=KEPT) as engine:
        again = await engine.thread("t").context(BUDGET, query=ASKED)
        assert block(first.messages) == block(again.messages)
        assert [hit.passage for hit in first.recalled] == [hit.passage for hit in again.recalled]


async def test_two_processes_show_the_choice_that_was_recorded_first(tmp_path: Path) -> None:
    """And record no second one."""
    path = str(tmp_path / "memory.db")
    config = EngineConfig(compaction=KEPT.compaction, follow_s=1e-9)
    async with memory_engine.open(path, config=config) as one, memory_engine.open(path, config=config) as other:
        thread = await one.create_thread("t")
        await begun(thread)
        first = await thread.context(BUDGET, query=ASKED)
        await thread.dispatch_all(step(1))
        there = await other.thread("t").context(BUDGET, query=ASKED)
        await other.thread("t").dispatch_all(step(2))
        assert block(first.messages) == block(there.messages)
        assert 1 == len(await of_type(thread, "context_recalled"))


async def test_the_next_request_recalls_anew(thread: Thread) -> None:
    """And where there is room, what was recalled before stays where it was, so that the prefix does."""
    await begun(thread)
    await thread.context(60_000, query=ASKED)
    await thread.dispatch_all([*step(1), LlmTextResponse(content="Done."), user("What was word3 about?")])
    second = await thread.context(60_000, query="word3")
    await thread.dispatch_all(step(2))
    assert second.messages == (await thread.context(60_000, query="word3")).messages[: len(second.messages)]


async def test_without_room_the_next_choice_takes_the_place_of_the_one_before() -> None:
    """A chat with a query each turn keeps one block."""
    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        await begun(thread)
        for n in range(5):
            context = await thread.context(BUDGET, query=f"word{n + 3}")
            assert 1 == sum(content(message).startswith(MARK) for message in context.messages)
            await thread.dispatch_all([LlmTextResponse(content=f"answer {n}"), user(f"And word{n + 4}?")])
        assert 1 == sum(chunk.type == "recalled" for chunk in (await thread.state()).chunks())
        assert 5 == len(await of_type(thread, "context_recalled"))


async def test_another_query_of_the_same_request_is_appended() -> None:
    """What was sent stays: the further block stands at the end, and stays there too."""
    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        await begun(thread)
        policy = ContextPolicy(recalled_max=400)
        await thread.context(BUDGET, query=ASKED, policy=policy)
        await thread.dispatch_all(step(1))
        second = await thread.context(3_000, query="word7", policy=policy)
        await thread.dispatch_all(step(2))
        third = await thread.context(3_000, query="word7", policy=policy)
        blocks = [n for n, message in enumerate(third.messages) if content(message).startswith(MARK)]
        assert (2, second.recalled_text) == (len(blocks), content(third.messages[blocks[1]]).removeprefix(MARK))
        assert second.messages[-1] == third.messages[blocks[1]]
        assert 2 == len(await of_type(thread, "context_recalled"))


async def test_before_it_is_recorded_another_budget_or_query_chooses_anew(thread: Thread) -> None:
    """Contexts that nobody answers leave the last choice only."""
    await begun(thread)
    small = await thread.context(400, query=ASKED)
    large = await thread.context(BUDGET, query=ASKED)
    assert small.spent.recalled < large.spent.recalled
    last = await thread.context(BUDGET, query="word9")
    await thread.dispatch_all(step(1))
    (recorded,) = await of_type(thread, "context_recalled")
    assert isinstance(recorded, e.ContextRecalled)
    assert last.recalled_text == recorded.content


async def test_only_the_loops_own_handle_records_it(tmp_path: Path) -> None:
    """A past moment and an engine that only reads recall now, and leave nothing."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path, config=KEPT) as engine:
        thread = await engine.create_thread("t")
        await begun(thread)
        await thread.context(BUDGET, query=ASKED, at=42)
        async with memory_engine.open(path, config=EngineConfig(read_only=True)) as reader:
            assert (await reader.thread("t").context(BUDGET, query=ASKED)).recalled
        await thread.dispatch_all(step(1))
        assert [] == await of_type(thread, "context_recalled")


async def test_where_nothing_is_found_nothing_is_recorded(thread: Thread) -> None:
    """All of the talk is in the context already."""
    await thread.dispatch_all([user("Hello"), LlmTextResponse(content="Hello."), user("And now?")])
    await thread.context(8_000, query="now")
    await thread.dispatch_all(step(1))
    assert [] == await of_type(thread, "context_recalled")


async def test_a_message_of_which_the_brief_shows_a_sentence_is_recalled_whole() -> None:
    """What answers is beside what stands of it; a message that the brief shows whole is not there twice."""
    rest = "Somebody painted the shed green, and the key of the cellar lies below the third stone."
    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([user(f"Never open the cellar at night. {rest}"), *talk(40)])
        await thread.dispatch(user("Where does the key of the cellar lie?"))
        context = await thread.context(BUDGET, query="Where does the key of the cellar lie?")
        short = await engine.create_thread()
        await short.dispatch_all([user("Never open the cellar at night."), *talk(40), user("May I open the cellar?")])
        once = await short.context(BUDGET, query="May I open the cellar at night?")
    assert rest in block(context.messages)
    assert 1 == str(once.messages).count("Never open the cellar at night.")


async def test_no_search_finds_it_and_nothing_recalls_it_again(thread: Thread) -> None:
    """The words are found where they were said."""
    await begun(thread)
    await thread.context(BUDGET, query=ASKED)
    await thread.dispatch_all(step(1))
    assert {"user_message"} == {hit.event_type for hit in await thread.search(ASKED) if CODE in hit.text}


async def test_what_the_application_keeps_itself_is_not_recorded_twice() -> None:
    """It dispatches the block as recalled memory: that is shown from then on."""
    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        await begun(thread)
        context = await thread.context(BUDGET, query=ASKED)
        sources = tuple(hit.event_id for hit in context.recalled)
        await thread.dispatch(e.MemoryRecalled(content=context.recalled_text, query=ASKED, sources=sources))
        await thread.dispatch_all(step(1))
        again = await thread.context(2_400, query=ASKED)
        assert 1 == str(again.messages).count(CODE)
        assert [] == await of_type(thread, "context_recalled")


async def test_a_compaction_leaves_it_while_its_request_is_in_work_and_drops_it_after() -> None:
    """It belongs to the message: what is worked on is not compacted, what is done goes with it."""
    policy = CompactionPolicy(threshold=6, tokens_min=0, keep_recent=0)
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=policy)) as engine:
        thread = await engine.create_thread()
        for event in [*talk(12), user(ASKED)]:
            await thread.dispatch(event)
            await thread.compaction.settle()
        first = await thread.context(BUDGET, query="word3")
        assert first.recalled
        for n in range(20):
            await thread.dispatch_all(step(n, f"result {n}: " + "all is well. " * 30))
            await thread.compaction.settle()
        assert block(first.messages) == block((await thread.context(4_000, query="word3")).messages)
        for event in [LlmTextResponse(content="Done."), *turns(12, start=90), user("Next?")]:
            await thread.dispatch(event)
            await thread.compaction.settle()
        assert not [chunk for chunk in (await thread.state()).chunks() if chunk.type == "recalled"]


# Forgetting and erasing reach each copy.


async def test_forgetting_a_source_takes_the_block_along(thread: Thread) -> None:
    """The next context of the request recalls without it."""
    await begun(thread)
    await thread.context(BUDGET, query=ASKED)
    await thread.dispatch_all(step(1))
    await thread.forget(seqs=[1])
    again = await thread.context(BUDGET, query=ASKED)
    assert CODE not in str(again.messages)
    assert CODE not in str([*(await thread.state()).chunks()])


async def test_what_is_forgotten_before_it_is_recorded_is_not_recorded(thread: Thread) -> None:
    """Neither with the forgetting nor after it."""
    await begun(thread)
    await thread.context(BUDGET, query=ASKED)
    await thread.forget(seqs=[1])
    await thread.dispatch_all(step(1))
    assert [] == await of_type(thread, "context_recalled")
    assert CODE not in str((await thread.context(BUDGET, query=ASKED)).messages)


@pytest.mark.parametrize("waits", [True, False])
async def test_forgetting_in_another_thread_reaches_what_was_recalled_from_it(engine: Engine, waits: bool) -> None:
    """Whether the copy is in the log or waits to be recorded."""
    mine = engine.user("u1", tenant_id="acme")
    kept = await mine.memory.append("semantic", CODE, key="code")
    thread = await engine.create_thread(user_id="u1", tenant_id="acme")
    await thread.dispatch_all([*turns(30), user(ASKED)])
    context = await thread.context(BUDGET, query=ASKED, recall_from=[mine])
    assert CODE in context.recalled_text
    if not waits:
        await thread.dispatch_all(step(1))
    await mine.forget(event_ids=[kept.event_id])
    await thread.dispatch_all(step(2))
    assert CODE not in str([*(await thread.state()).chunks()])
    assert CODE not in str((await thread.context(BUDGET, query=ASKED, recall_from=[mine])).messages)


async def test_erasing_destroys_the_copies_in_other_threads_too(tmp_path: Path) -> None:
    """No byte of it stays in the file, nor of a query that repeats the message."""
    path = tmp_path / "memory.db"
    async with memory_engine.open(str(path)) as engine:
        mine = engine.user("u1", tenant_id="acme")
        kept = await mine.memory.append("semantic", "The code is Osterfeldt-77412.", key="code")
        thread = await engine.create_thread(user_id="u1", tenant_id="acme")
        asked = "Tell me the code for Quernheim-5513."
        await thread.dispatch_all([*turns(30), user(asked)])
        context = await thread.context(BUDGET, query=asked, recall_from=[mine])
        assert "Osterfeldt-77412" in context.recalled_text
        await thread.dispatch_all(step(1))
        await mine.admin.erase(event_ids=[kept.event_id])
        await thread.admin.erase(seqs=[31])
        assert None is (await thread.replay.verify()).divergence
    found = b"".join(file.read_bytes() for file in tmp_path.iterdir())  # noqa: ASYNC240 - a test waits for nobody
    assert (False, False) == (b"Osterfeldt-77412" in found, b"Quernheim-5513" in found)


async def test_clearing_the_thread_takes_it_along(thread: Thread) -> None:
    """What waits is not recorded in the new life either."""
    await begun(thread)
    await thread.context(BUDGET, query=ASKED)
    await thread.admin.clear()
    await thread.dispatch(user(ASKED))
    assert [] == await of_type(thread, "context_recalled")
    assert () == (await thread.context(BUDGET, query=ASKED)).recalled


# A law.


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 3))
async def test_the_block_of_a_request_never_changes(seed: int, requests: int, forgotten: int) -> None:
    """Over random loops, budgets and restarts of the query; unless one of its sources is forgotten."""
    chance = random.Random(seed)
    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(talk(30))
        for number in range(requests):
            (asked,) = await thread.dispatch_all([user(f"Request {number} about word{chance.randrange(30)}?")])
            query, budget = f"word{chance.randrange(30)}", chance.choice((900, 1_500, 6_000))
            first = await thread.context(budget, query=query)
            sources = {hit.seq for hit in first.recalled}
            for n in range(chance.randrange(1, 6)):
                await thread.dispatch_all(step(number * 10 + n))
                gone = chance.randrange(2, asked.seq) if forgotten and chance.random() < 0.2 else 0
                if gone and gone not in sources and (await thread.state()).made_by([gone]):
                    await thread.forget(seqs=[gone])
                later = await thread.context(8_000, query=query)
                assert block(first.messages) in [content(m) for m in later.messages] or not first.recalled
            assert None is (await thread.replay.verify()).divergence
            await thread.dispatch(LlmTextResponse(content=f"Answer {number}."))
