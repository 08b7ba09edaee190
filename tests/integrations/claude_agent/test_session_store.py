"""Sessions of the Claude Agent SDK: entries unchanged, their events, branches, sub-agents, forgetting and erasing."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import InMemorySessionStore, get_session_messages_from_store, list_sessions_from_store

import memory_engine
from memory_engine import Engine
from memory_engine.integrations.claude_agent import MemoryEngineSessionStore
from tests.integrations.claude_agent.transcripts import AGENT, KEY, PROJECT, SESSION, Writer, call, watering
from tests.integrations.examples import printed


async def shown(engine: Engine, key: Any = KEY) -> str:
    """The context of a key's thread as one text."""
    thread_id = MemoryEngineSessionStore(engine).thread_id(key)
    return json.dumps((await engine.thread(thread_id).context()).messages, ensure_ascii=False)


async def found(engine: Engine, query: str) -> list[str]:
    """What a search of all threads finds."""
    return [hit.text for hit in await engine.search(query)]


async def test_entries_come_back_as_they_were(tmp_path: Path) -> None:
    """Of every kind, whatever is in them, in the batches of a live session and of an import, and in a second engine."""
    odd: list[Any] = [
        {"type": "x"},
        {"type": "user", "message": "no message", "uuid": "o1", "parentUuid": None},
        {"type": "user", "message": {"role": "user", "content": []}, "uuid": "o2"},
        {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "none"}]}},
        {"type": "assistant", "message": {"role": "assistant", "content": "Half a sign: \ud83d"}, "uuid": "o3"},
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "new block", "x": 1.5}]}},
        {"type": "system", "a/b": {"0": ["a text of some length", 1.0, None, True]}, "": {"/": "another text, long"}},
        {"type": "user", "uuid": 7, "parentUuid": 8, "message": {"role": "user", "content": "a number for a name"}},
    ]
    entries = [*watering().entries, *odd]
    path = str(tmp_path / "agent.db")
    async with memory_engine.open(path) as engine:
        store = MemoryEngineSessionStore(engine)
        for entry in entries:
            await store.append(KEY, [entry])
        await store.append({**KEY, "session_id": "imported"}, entries)
    async with memory_engine.open(path) as engine:
        store = MemoryEngineSessionStore(engine)
        for session_id in (SESSION, "imported"):
            loaded = await store.load({**KEY, "session_id": session_id})
            assert [json.dumps(entry) for entry in entries] == [json.dumps(entry) for entry in loaded or []]
        assert all(report.ok for report in await engine.verify())


async def test_a_session_is_read_as_messages() -> None:
    """Prompts, thoughts, parallel calls with their results, and images are the thread's; a response is one message."""
    async with memory_engine.open(":memory:") as engine:
        await MemoryEngineSessionStore(engine, user_id="ann").append(KEY, watering().entries)
        thread = engine.thread(MemoryEngineSessionStore(engine).thread_id(KEY))
        types = [event.type async for event in thread.events() if event.type != "session_entry_kept"]
        expected = "user_message llm_thinking llm_text_response llm_tool_call llm_tool_call tool_result tool_result "
        assert (expected + "llm_text_response user_message llm_text_response").split() == types
        request: Any = (await thread.context()).render("anthropic")
        roles = [message["role"] for message in request.messages]
        assert ["user", "assistant", "user", "assistant", "user", "assistant"] == roles[:6]
        assert ["text", "tool_use", "tool_use"] == [block["type"] for block in request.messages[1]["content"]]
        assert "image" in [block["type"] for block in request.messages[4]["content"]]
        assert "ann" == (await thread.info()).user_id
        assert any("tomatoes: every Tuesday" in text for text in await found(engine, "which day are tomatoes watered"))
        [said] = [chunk for chunk in (await thread.state()).chunks() if "every Tuesday" in str(chunk.content)]
        assert "tomatoes: every Tuesday at six" in str([one.text for one in (await thread.replay.why(said.id)).walk()])


async def test_thoughts_of_a_loop_under_way_are_in_its_context() -> None:
    """With their signatures, in the message of the call that they led to."""
    talk = watering()
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineSessionStore(engine)
        await store.append(KEY, talk.entries[:8])
        request: Any = (await engine.thread(store.thread_id(KEY)).context()).render("anthropic")
        blocks = request.messages[1]["content"]
        assert ["thinking", "text", "tool_use", "tool_use"] == [block["type"] for block in blocks]
        assert talk.entries[2]["message"]["content"] == blocks[:1]


async def test_a_text_is_stored_once() -> None:
    """The client keeps a tool's output twice in its entry; the log keeps it once."""
    talk = Writer()
    talk.said("Read the log.")
    talk.answered(call("t1", "cat log"))
    talk.result("t1", "the cistern overflowed at noon " * 40)
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineSessionStore(engine)
        await store.append(KEY, talk.entries)
        stored = [str(event.event) async for event in engine.thread(store.thread_id(KEY)).events()]
        assert 40 == sum(text.count("the cistern overflowed") for text in stored)
        assert talk.entries == await store.load(KEY)


async def test_an_entry_is_stored_once() -> None:
    """Whether a batch is sent again, holds an entry twice, or comes from several tasks at once."""
    talk = watering()
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineSessionStore(engine)
        named = [entry for entry in talk.entries if "uuid" in entry]
        await asyncio.gather(*(store.append(KEY, [*named[:6], *named[:6]]) for _ in range(4)))
        await store.append(KEY, named)
        assert named == await store.load(KEY)


async def test_a_prompt_from_an_earlier_entry_leaves_the_branch_after_it() -> None:
    """The session keeps what was left; contexts and search do not show it. Parallel results are not a branch."""
    for in_one in (True, False):
        talk = watering()
        back = talk.at
        talk.said("Tell me about the orchids instead.")
        talk.answered("Orchids bloom in the east wing.", name="msg_4")
        talk.said("And the figs?", parent=back)
        talk.answered("Figs stand by the south wall.", name="msg_5")
        async with memory_engine.open(":memory:") as engine:
            store = MemoryEngineSessionStore(engine)
            for batch in [talk.entries] if in_one else [[entry] for entry in talk.entries]:
                await store.append(KEY, batch)
            text = await shown(engine)
            assert "orchids" not in text.lower()
            assert "tomatoes: every Tuesday" in text
            assert "Monday, the fourth" in text
            assert "south wall" in text
            assert not [hit for hit in await found(engine, "orchids bloom in the east wing") if "rchids" in hit]
            assert talk.entries == await store.load(KEY)


async def test_a_prompt_from_the_beginning_leaves_everything() -> None:
    """As when its first message is edited. A summary of the client's own compaction leaves nothing."""
    talk = Writer()
    talk.said("How deep is the old well?")
    talk.answered("Nine metres.")
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineSessionStore(engine)
        await store.append(KEY, talk.entries)
        boundary = talk.add("system", parent=None, subtype="compact_boundary", logicalParentUuid=talk.at)
        talk.said("This session continues: a well was asked about.", parent=boundary, isCompactSummary=True)
        await store.append(KEY, talk.entries)
        assert "Nine metres" in await shown(engine)
        talk.said("How wide is the old well?", parent=None)
        await store.append(KEY, talk.entries)
        text = await shown(engine)
        assert "Nine metres" not in text
        assert "How wide" in text
        assert talk.entries == await store.load(KEY)


async def test_a_sub_agent_is_a_child_thread() -> None:
    """Its prompt is not a person's; it is searched, listed and deleted with its session."""
    talk = Writer("s", sidechain=True)
    talk.said("Count the beehives on the terrace.")
    talk.answered("There are fourteen beehives.")
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineSessionStore(engine, user_id="ann")
        await store.append(KEY, watering().entries)
        await store.append(AGENT, talk.entries)
        child = await engine.thread(store.thread_id(AGENT)).info()
        assert (store.thread_id(KEY), "ann") == (child.parent_id, child.user_id)
        types = [event.type async for event in engine.thread(child.id).events()]
        assert ["parent_agent_message", "llm_text_response"] == types[::2]
        assert "beehives" not in await shown(engine)
        assert any("fourteen" in text for text in await found(engine, "how many beehives"))
        assert [AGENT["subpath"]] == await store.list_subkeys(KEY)
        assert talk.entries == await store.load(AGENT)
        await store.delete(KEY)
        assert not await engine.threads()


@pytest.mark.parametrize("act", ["forget", "erase"])
async def test_what_is_forgotten_or_erased_does_not_come_back(act: str) -> None:
    """Not by loading, summaries, nor a second import; the rest is a chain that can go on, with whole calls only."""
    talk = watering()
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineSessionStore(engine)
        await store.append(KEY, talk.entries)
        thread = engine.thread(store.thread_id(KEY))
        secret = [event.id async for event in thread.events() if "every Tuesday" in str(event.event)]
        assert secret
        if act == "forget":
            await thread.forget(event_ids=secret)
        else:
            await thread.admin.erase(secret)
        await store.append(KEY, talk.entries[1:-1])
        loaded: Any = await store.load(KEY)
        assert "every Tuesday" not in json.dumps(loaded)
        assert "every Tuesday" not in await shown(engine)
        assert "cat schedule" not in json.dumps(loaded)
        assert "Monday, the fourth" in json.dumps(loaded)
        known = {entry["uuid"] for entry in loaded if "uuid" in entry} | {None}
        assert all(entry.get("parentUuid") in known for entry in loaded)
        messages = await get_session_messages_from_store(store, SESSION, directory="/home/ann/greenhouse")
        assert ["user", "assistant"] == [messages[0].type, messages[-1].type]
        assert (await thread.replay.verify()).ok


async def test_a_forgotten_prompt_is_not_repeated_by_what_the_client_keeps_beside_it() -> None:
    """Queues and titles hold prompts too."""
    talk = watering()
    talk.entries.append({"type": "last-prompt", "lastPrompt": "When are the tomatoes watered?", "sessionId": SESSION})
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineSessionStore(engine)
        await store.append(KEY, talk.entries)
        thread = engine.thread(store.thread_id(KEY))
        await thread.forget(event_ids=[event.id async for event in thread.events() if event.type == "user_message"][:1])
        assert "When are the tomatoes" not in json.dumps(await store.load(KEY))
        [summary] = await store.list_session_summaries(PROJECT)
        assert "When are the tomatoes" not in json.dumps(summary)
        await thread.admin.clear()
        assert await store.load(KEY) is None


async def test_the_sdk_lists_sessions_as_from_its_own_store() -> None:
    """Titles, first prompts and times; a session that has changed is summed up again."""
    async with memory_engine.open(":memory:") as engine:
        ours, own = MemoryEngineSessionStore(engine), InMemorySessionStore()
        for store in (ours, own):
            for session_id in (SESSION, SESSION.replace("5", "6")):
                await store.append({"project_key": PROJECT, "session_id": session_id}, watering().entries)
        for _ in range(2):
            listed = [
                {(one.session_id, one.summary, one.first_prompt, one.custom_title, one.created_at) for one in found}
                for found in [
                    await list_sessions_from_store(store, directory="/home/ann/greenhouse") for store in (ours, own)
                ]
            ]
            assert listed[0] == listed[1]
            assert 2 == len(listed[0])
            for store in (ours, own):
                await store.append(KEY, [{"type": "custom-title", "customTitle": "Watering", "sessionId": SESSION}])


async def test_another_process_may_write_to_the_same_session(tmp_path: Path) -> None:
    """Nothing is lost, and each batch stays in its order."""
    path = str(tmp_path / "agent.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as two:
        stores = [MemoryEngineSessionStore(engine) for engine in (one, two)]
        batches = [[{"type": "mode", "n": n, "k": k} for k in range(3)] for n in range(12)]
        await asyncio.gather(*(stores[n % 2].append(KEY, batch) for n, batch in enumerate(batches)))
        loaded: Any = await stores[0].load(KEY)
        assert 36 == len(loaded)
        assert all([0, 1, 2] == [entry["k"] for entry in loaded if entry["n"] == n] for n in range(12))


def test_the_example_runs(tmp_path: Path) -> None:
    """Twice: the second run goes on where the first one ended."""
    first, second = printed("claude_agent", tmp_path), printed("claude_agent", tmp_path)
    assert "has 2 entries" in first
    assert "has 4 entries" in second
