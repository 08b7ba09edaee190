"""Conversations of Pydantic AI: messages byte for byte, revisions, branches, forks, budgets, deaths."""

import asyncio
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, ModelRetry
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

import memory_engine
from memory_engine.errors import ContextBudgetError
from memory_engine.integrations.pydantic_ai import MemoryEngineConversationStore, MemoryEngineHistory
from tests.depth import DEEP
from tests.integrations.examples import printed

ANSWERED: list[ModelMessage] = [
    ModelRequest(parts=[SystemPromptPart("Be kind."), UserPromptPart('How is "Rome", åß\n?')], instructions="Now."),
    ModelResponse(
        parts=[
            ThinkingPart("I look it up.", id="rs_1", signature="gAAAAB" * 9, provider_name="openai"),
            TextPart("One moment.", provider_details={"phase": 1.0}),
            ToolCallPart("weather", '{"city": "Rome"}', "c1"),
            ToolCallPart("weather", {"city": "Oslo"}, "c2"),
        ],
        model_name="m",
    ),
    ModelRequest(
        parts=[
            ToolReturnPart("weather", {"sky": "sunny", "at": [1, 1.0, None]}, "c1"),
            ToolReturnPart("weather", "rain", "c2", outcome="failed"),
        ]
    ),
    ModelResponse(parts=[TextPart("Sunny in Rome.")], finish_reason="stop"),
]
ODD: list[ModelMessage] = [
    ModelRequest(parts=[ToolReturnPart("weather", "of no call", "c9")]),
    ModelRequest(parts=[]),
    ModelResponse(parts=[]),
    ModelRequest(
        parts=[
            UserPromptPart(
                ["Look:", BinaryContent(b"\x89PNG\x00", media_type="image/png"), ImageUrl("https://example.org/a.png")]
            )
        ],
        metadata={"n": [None, 1.5, "\u2028"]},
    ),
    ModelResponse(parts=[ToolCallPart("weather", "not JSON", "c3")]),
]
"""Messages that fit no order, or say nothing."""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def exactly(messages: list[ModelMessage]) -> bytes:
    """Messages as their own adapter writes them."""
    return ModelMessagesTypeAdapter.dump_json(messages)


async def saved(store: ConversationStore, messages: list[ModelMessage], name: str = "chat") -> Conversation:
    """A conversation with these messages, saved."""
    conversation = Conversation(messages=list(messages), conversation_id=name)
    await store.save(conversation)
    return conversation


async def test_every_message_comes_back_as_it_was(tmp_path: Path) -> None:
    """After a restart too, however odd; whole, the last few, and one by its id."""
    messages = [*ANSWERED, *ODD]
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        store = MemoryEngineConversationStore(engine)
        assert await store.load("chat") is None
        assert await store.load_entries("chat") is None
        assert not await engine.threads()
        conversation = await saved(store, messages[:3])
        conversation.messages += messages[3:]
        assert len(messages) - 3 == len(await store.save(conversation))
        assert [] == await store.save(conversation)
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        store = MemoryEngineConversationStore(engine)
        loaded = await store.load("chat")
        assert loaded is not None
        assert exactly(messages) == exactly(loaded.messages)
        for limit in (0, 1, 4, 9, 50):
            few = await store.load("chat", limit=limit)
            assert few is not None
            assert exactly(messages[len(messages) - min(limit, 9) :]) == exactly(few.messages)
        entries = await store.load_entries("chat")
        assert entries is not None
        fresh = MemoryEngineConversationStore(engine)  # which has read no record
        assert entries[3] == await fresh.read_entry(entries[3].id)
        with pytest.raises(KeyError):
            await fresh.read_entry("of no conversation")
        assert (await engine.thread("chat").replay.verify()).ok


async def test_messages_are_a_threads_events() -> None:
    """What is said is known to contexts and search, kept once, and found by its user."""
    async with memory_engine.open(":memory:") as engine:
        store, thread = MemoryEngineConversationStore(engine, agent_id="guide"), engine.thread("chat")
        conversation = Conversation(messages=list(ANSWERED), conversation_id="chat")
        await store.save(conversation, scope="ann")
        info = await thread.info()
        assert ("ann", "guide") == (info.user_id, info.agent_id)
        roles = [message["role"] for message in (await thread.context()).messages]
        assert ["system", "user", "assistant", "tool", "tool", "assistant"] == roles
        assert "Sunny in Rome." in [hit.text for hit in await engine.search("is it sunny in Rome?", user_id="ann")]
        said = "".join([str(event.event) async for event in thread.events()])
        assert (1, 1, 1) == (said.count("Sunny in Rome."), said.count("I look it up."), said.count("One moment."))
        await saved(store, ODD, "odd")
        assert (await engine.thread("odd").replay.verify()).ok


async def test_it_does_what_the_reference_does() -> None:
    """Of random saves, loads, branches, forks and deletions, the in-memory store of Pydantic AI says the same."""
    async with memory_engine.open(":memory:") as engine:
        for seed in range(5 if DEEP else 2):
            await _compare(
                random.Random(seed), MemoryEngineConversationStore(engine), InMemoryConversationStore(), seed
            )
        for info in await engine.threads():
            assert (await engine.thread(info.id).replay.verify()).ok


async def _compare(rng: random.Random, ours: ConversationStore, theirs: ConversationStore, seed: int) -> None:
    """One script of steps for both, whose entries are the same by their places. Some conversations have a scope."""
    names = [f"{seed}-{n}" for n in range(6)]
    for step in range(30):
        name, other = rng.sample(names, 2)
        kind, draw = rng.choice(["save", "save", "rewrite", "branch", "back", "fork", "delete", "stale"]), rng.random()
        if _scope(name) != _scope(other):
            other = f"{name}-again"
        done = [await _outcome(store, kind, name, other, draw, f"{step}") for store in (ours, theirs)]
        assert done[0] == done[1], (seed, step, kind)
        for one in names:
            assert await _seen(ours, one) == await _seen(theirs, one), (seed, step, kind, one)


def _scope(name: str) -> str | None:
    """The scope of a conversation, as an application knows it."""
    return "s" if int(name.split("-")[1]) % 2 else None


async def _outcome(  # noqa: PLR0917 - a step, as it was drawn
    store: ConversationStore, kind: str, name: str, other: str, draw: float, text: str
) -> object:
    scope = _scope(name)
    elsewhere = scope and "another"
    loaded = await store.load(name, scope=scope)
    given = loaded or Conversation(conversation_id=name)
    asked, answer = UserPromptPart(text, timestamp=NOON), TextPart(f"re {text}")
    new: list[ModelMessage] = [ModelRequest(parts=[asked]), ModelResponse(parts=[answer], timestamp=NOON)]
    at = int(draw * (len(given.messages) + 1))
    try:
        match kind:
            case "save":
                given.messages += new
                return len(await store.save(given, scope=scope if draw < 0.7 else elsewhere))
            case "rewrite":
                again = Conversation(messages=[*given.messages[:at], *new], conversation_id=name)
                again.revision = given.revision
                return len(await store.save(again, scope=scope))
            case "stale":
                stale = Conversation(messages=new, conversation_id=name, revision="no such")
                await store.save(stale, scope=scope)
            case "branch":
                revision = given.revision
                found = await store.branch(name, at=at, expected_revision=revision, scope=scope)
                return len(found.messages)
            case "back":
                record = await _record(store, name)
                tip = record.branches[int(draw * len(record.branches))] if record and record.branches else "none"
                revision = given.revision
                found = await store.branch(name, from_entry=tip, expected_revision=revision, scope=scope)
                return len(found.messages)
            case "fork":
                return len((await store.fork(name, at=at, new_conversation_id=other, source_scope=scope)).messages)
            case "delete":
                await store.delete(name, scope=scope if draw < 0.7 else elsewhere)
    except (UserError, ConversationConflict) as error:
        return type(error).__name__
    return kind


async def _seen(store: ConversationStore, name: str) -> object:
    scope = _scope(name)
    loaded, record = await store.load(name, scope=scope), await _record(store, name)
    if loaded is None or record is None:
        return loaded, record
    assert await store.load(name, scope="another") is None
    branches = []
    for tip in record.branches:
        at_tip = await store.fork(name, from_entry=tip, new_conversation_id=f"{name}-tip", source_scope=scope)
        branches.append(exactly(at_tip.messages))
        await store.delete(f"{name}-tip", scope=scope)
    return exactly(loaded.messages), record.scope, record.forked_from, branches


async def _record(store: ConversationStore, name: str) -> ConversationRecord | None:
    listed = await store.list_conversations(scope=_scope(name))
    return next((record for record in listed if record.conversation_id == name), None)


async def test_contexts_follow_branches() -> None:
    """A context shows the line that the conversation is on, and its end is the latest that was said."""
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineConversationStore(engine)
        conversation = await saved(store, ANSWERED)
        branched = await store.branch("chat", at=1, expected_revision=conversation.revision)
        assert ["Be kind.", 'How is "Rome", åß\n?'] == await shown(engine)
        branched.messages.append(ModelResponse(parts=[TextPart("I do not know.")]))
        await store.save(branched)
        assert "I do not know." == (await shown(engine))[-1]
        [tip] = (await store.list_conversations())[0].branches
        back = await store.branch("chat", from_entry=tip, expected_revision=branched.revision)
        assert exactly(ANSWERED) == exactly(back.messages)
        assert "Sunny in Rome." == (await shown(engine))[-1]
        assert "I do not know." not in await shown(engine)
        assert (await engine.thread("chat").replay.verify()).ok


async def shown(engine: memory_engine.Engine, name: str = "chat") -> list[Any]:
    """The contents that a context shows."""
    return [message["content"] for message in (await engine.thread(name).context()).messages]


async def test_of_saves_at_once_one_wins(tmp_path: Path) -> None:
    """In two engines on one file; what else is written to the thread is no conflict, and nothing is lost."""
    path = str(tmp_path / "agent.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as two:
        stores = [MemoryEngineConversationStore(engine) for engine in (one, two)]

        async def save(n: int) -> bool:
            store = stores[n % 2]
            given = await store.load("chat") or Conversation(conversation_id="chat")
            given.messages.append(ModelRequest(parts=[UserPromptPart(f"turn {n}")]))
            await one.thread("chat").scratchpad.write(f"note {n}") if n > 7 else None
            try:
                await store.save(given)
            except ConversationConflict:
                return False
            return True

        won = sum(await asyncio.gather(*map(save, range(8))))
        won += sum(await asyncio.gather(*map(save, range(8, 16))))
        loaded = await stores[1].load("chat")
        assert loaded is not None
        assert 2 <= won == len(loaded.messages)
        record = await stores[0].read_record("chat")
        assert record is not None
        stale = ConversationRecord(conversation_id="chat", head_id="of none")
        with pytest.raises(ConversationConflict):
            await stores[0].write_record(stale, expected_revision=record.revision)
        with pytest.raises(ConversationConflict):
            await stores[0].delete_record("chat", expected_revision="old")
        entry = ConversationEntry(parent_id="of none", message=ANSWERED[0])
        with pytest.raises(ConversationConflict):
            await stores[0].write_record(stale, new_entries=[entry], expected_revision=record.revision)


async def test_a_cancelled_save_is_whole_or_nothing() -> None:
    """Wherever it is cancelled."""
    async with memory_engine.open(":memory:") as engine:
        store, known = MemoryEngineConversationStore(engine), 0
        for steps in range(0, 60, 2):
            given = await store.load("chat") or Conversation(conversation_id="chat")
            given.messages += ANSWERED
            task = asyncio.ensure_future(store.save(given))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            loaded = await store.load("chat")
            count = len(loaded.messages) if loaded is not None else 0
            assert count in (known, known + len(ANSWERED))
            known = count
        assert known


async def test_forgetting_erasing_and_deleting() -> None:
    """What is forgotten stays in the conversation, what is erased does not; a deletion leaves the forks."""
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineConversationStore(engine)
        await saved(store, [ModelRequest(parts=[UserPromptPart(f"Secret {n}.")]) for n in range(3)])
        await store.fork("chat", new_conversation_id="fork", at=1)
        events = [event async for event in engine.thread("chat").events()]
        await engine.thread("chat").forget(event_ids=[events[0].id])
        assert ["Secret 1.", "Secret 2."] == await shown(engine)
        assert 3 == len((await store.load("chat") or Conversation()).messages)
        await engine.thread("chat").admin.erase([events[2].id, events[3].id])
        loaded = await store.load("chat")
        assert loaded is not None
        assert ["Secret 0.", "Secret 2."] == [message.parts[0].content for message in loaded.messages]
        loaded.messages.append(ModelResponse(parts=[TextPart("Noted.")]))
        await store.save(loaded)
        assert b"Secret 1" not in exactly((await store.load("chat") or Conversation()).messages)
        await store.delete("chat")
        assert ["fork"] == [info.id for info in await engine.threads()]
        assert 1 == len((await store.load("fork") or Conversation()).messages)
        await saved(store, ANSWERED)
        assert exactly(ANSWERED) == exactly((await store.load("chat") or Conversation()).messages)


# runs


def answering(seen: list[list[ModelMessage]]) -> FunctionModel:
    """The place of a model that calls two tools at once, then answers."""

    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        seen.append(list(messages))
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse(parts=[ThinkingPart("So it is.", signature="sig"), TextPart("Sunny everywhere.")])
        n = len(seen)
        calls = [ToolCallPart("weather", {"city": city}, f"{city}-{n}") for city in ("Rome", "Oslo")]
        return ModelResponse(parts=[ThinkingPart("I look.", signature="sig"), *calls])

    return FunctionModel(answer)


def check_pairs(messages: list[ModelMessage]) -> None:
    """Each call is answered right after, each result has its call, and each thought stands before what it led to."""
    waiting: set[str] = set()
    for message in messages:
        results = {part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)}
        assert results == (waiting if isinstance(message, ModelRequest) else set())
        if isinstance(message, ModelRequest):
            waiting = set()
            continue
        assert not waiting
        waiting = {part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)}
        assert not any(isinstance(part, ThinkingPart) for part in message.parts) or len(message.parts) > 1
    assert not waiting


async def test_a_history_fits_its_budget() -> None:
    """Compacted or not: whole pairs, messages as they were, the run's own always; the run keeps all."""
    seen: list[list[ModelMessage]] = []
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineConversationStore(engine)
        history = MemoryEngineHistory(store, max_tokens=500)
        agent = Agent(answering(seen), instructions="Be brief.", system_prompt="You guide.", capabilities=[history])

        @agent.tool_plain
        def weather(city: str) -> str:
            return f"sunny in {city} " + "word " * 20

        for turn in range(8):
            conversation = await store.load("chat") or Conversation(conversation_id="chat")
            result = await agent.run(f"Question {turn}: " + "word " * 20, conversation=conversation)
            await store.save(result)
            assert 4 * (turn + 1) == len(result.all_messages())
            assert exactly(result.all_messages()) == exactly((await store.load("chat") or Conversation()).messages)
            if turn == 5:
                await engine.thread("chat").compact()
        for messages in seen:
            check_pairs(messages)
        full = (await store.load("chat") or Conversation()).messages
        assert len(seen[-1]) < len(full) // 2
        assert "Question 7" in str(seen[-1][-3].parts)
        known = {exactly([message]) for message in full}
        assert 5 <= sum(exactly([message]) in known for message in seen[-1])
        assert all("You guide." in str(messages[0].parts) for messages in seen)
        whole = MemoryEngineHistory(store, max_tokens=100_000)
        await Agent(answering(seen), capabilities=[whole], tools=[weather]).run(
            "More?", conversation=await store.load("chat")
        )
        first = str(seen[-1][0].parts)
        assert "You guide." in first
        assert "[Summary" not in str(seen[-1])  # the originals fit, so they are shown and no summary of them
        assert len(full) == sum(exactly([message]) in known for message in seen[-1])
        tight = MemoryEngineHistory(store, max_tokens=30)
        with pytest.raises(ContextBudgetError):
            await Agent(TestModel(), capabilities=[tight]).run("word " * 100, conversation=await store.load("chat"))
        unknown = await Agent(TestModel(), capabilities=[tight]).run(
            "word " * 100
        )  # of no stored conversation: as it is
        assert 2 == len(unknown.all_messages())


async def test_a_run_that_waits_for_approval_goes_on() -> None:
    """After a restart of the store: its deferred requests are there, and so are retries of tools."""
    async with memory_engine.open(":memory:") as engine:
        agent = Agent(TestModel(), output_type=[str, DeferredToolRequests])
        tries: list[int] = []

        @agent.tool_plain(requires_approval=True)
        def book(city: str) -> str:
            return f"booked {city}"

        @agent.tool_plain(retries=2)
        def weather(city: str) -> str:
            tries.append(1)
            if len(tries) == 1:
                raise ModelRetry("Ask again.")
            return f"sunny in {city}"

        result = await agent.run("Book", conversation=Conversation(conversation_id="chat"))
        await MemoryEngineConversationStore(engine).save(result)
        loaded = await MemoryEngineConversationStore(engine).load("chat")
        assert loaded is not None
        assert loaded.deferred_tool_requests is not None
        approved = loaded.deferred_tool_requests.build_results(approve_all=True)
        ended = await agent.run(conversation=loaded, deferred_tool_results=approved)
        await MemoryEngineConversationStore(engine).save(ended)
        assert "booked a" in str(await shown(engine))
        assert (await engine.thread("chat").replay.verify()).ok


def test_a_conversation_goes_on_after_a_kill(tmp_path: Path) -> None:
    """A run calls a tool, is saved and dies; the next process knows the turn."""
    killed = subprocess.run([sys.executable, "-c", DYING, str(tmp_path / "agent.db")], check=False, capture_output=True)
    assert -9 == killed.returncode, killed.stderr

    async def go_on() -> None:
        async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
            store = MemoryEngineConversationStore(engine)
            loaded = await store.load("chat")
            assert loaded is not None
            result = await Agent(TestModel(custom_output_text="Rome.")).run("What did I ask?", conversation=loaded)
            await store.save(result)
            assert "sunny in a" in str(await shown(engine))
            assert 6 == len((await store.load("chat") or Conversation()).messages)
            assert (await engine.thread("chat").replay.verify()).ok

    asyncio.run(go_on())


DYING = """
import asyncio, os, signal, sys
import memory_engine
from memory_engine.integrations.pydantic_ai import MemoryEngineConversationStore
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.test import TestModel

agent = Agent(TestModel())

@agent.tool_plain
def weather(city: str) -> str:
    return f"sunny in {city}"

async def main():
    async with memory_engine.open(sys.argv[1]) as engine:
        result = await agent.run("How is Rome?", conversation=Conversation(conversation_id="chat"))
        await MemoryEngineConversationStore(engine).save(result)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_the_example_runs(tmp_path: Path) -> None:
    """Twice: the second run goes on where the first one ended."""
    first, second = printed("pydantic_ai", tmp_path), printed("pydantic_ai", tmp_path)
    assert "has 4 messages" in first
    assert "has 8 messages" in second
