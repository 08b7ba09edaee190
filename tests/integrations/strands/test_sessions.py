"""Sessions of Strands Agents: messages unchanged, their events, agents side by side, interrupts, redaction, storage."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry
from strands.session.file_session_manager import FileSessionManager
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType
from strands.vended_plugins.context_offloader import ContextOffloader

from memory_engine import sync
from memory_engine.integrations.strands import (
    MemoryEngineSessionManager,
    MemoryEngineSessionRepository,
    MemoryEngineStorage,
)
from tests.integrations.examples import printed
from tests.integrations.strands.scripted import ScriptedModel, agent_of, called

THOUGHT = {"reasoningContent": {"reasoningText": {"text": "The depot knows.", "signature": "c2lnbmVk"}}}
PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d49484452")


@tool
def depot(place: str) -> str:
    """What a depot holds."""
    return f"The depot in {place} holds nine pallets."


def messages_of(agent: Agent) -> Any:
    """An agent's messages without what is not sent to a model."""
    return [{key: one[key] for key in ("role", "content")} for one in agent.messages]


def test_a_second_agent_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    """In another engine, with the same messages, state and numbers, and as with the framework's own files."""
    path, given = str(tmp_path / "agent.db"), []
    calls = [THOUGHT, called("depot", "t1", place="Visby"), called("depot", "t2", place="Kiel")]
    for make in ("ours", "files"):
        model = ScriptedModel(calls, "Nine in each.", "You asked about depots.")
        for text in ("What do the depots hold?", "What did I ask?"):
            with sync.open(path) as engine:
                manager: Any = (
                    MemoryEngineSessionManager("chat", engine, user_id="ann")
                    if make == "ours"
                    else FileSessionManager("chat", storage_dir=str(tmp_path / "files"))
                )
                agent = Agent(model=model, session_manager=manager, callback_handler=None, tools=[depot])
                agent.state.set("turns", (agent.state.get("turns") or 0) + 1)
                agent(text)
                assert ("What did I ask?" == text) + 1 == agent.state.get("turns")
        given.append([[{key: one[key] for key in ("role", "content")} for one in call] for call in model.given])
    assert given[0] == given[1]
    assert 5 == len(given[0][-1])


def test_messages_are_a_threads_events() -> None:
    """Thoughts, parallel calls and their results, images; a text is stored once."""
    with sync.open(":memory:") as engine:
        model = ScriptedModel(
            [THOUGHT, called("depot", "t1", place="Visby"), called("depot", "t2", place="Kiel")], "So."
        )
        agent = agent_of(engine, model, tools=[depot])
        image = {"image": {"format": "png", "source": {"bytes": PIXEL}}}
        agent([image, {"text": "Whose depot is this?"}])
        thread = engine.thread("chat")
        types = [event.type for event in thread.events() if event.type != "session_entry_kept"]
        assert "user_message llm_thinking llm_tool_call tool_result tool_result llm_text_response".split() == types
        assert "ann" == thread.info().user_id
        assert "Visby" in thread.search("what does the depot in Visby hold?")[0].text
        assert "image" in str(thread.context().render("anthropic").messages[0]["content"])
        log = [str(event.event) for event in thread.events()]
        assert 1 == sum(text.count("depot in Visby holds") for text in log)
        again = agent_of(engine, ScriptedModel(), tools=[depot])
        assert messages_of(agent) == messages_of(again)
        assert PIXEL == again.messages[0]["content"][0]["image"]["source"]["bytes"]
        assert thread.replay.verify().ok


def test_each_agent_of_a_session_has_its_own_messages() -> None:
    """The default agent's are the session's thread; another's are a child thread."""
    with sync.open(":memory:") as engine:
        manager = MemoryEngineSessionManager("chat", engine, user_id="ann")
        for name, text in ((None, "I keep bees."), ("scout/1", "I count owls.")):
            options = {} if name is None else {"agent_id": name.replace("/", "-")}
            agent = Agent(model=ScriptedModel("Fine."), session_manager=manager, callback_handler=None, **options)
            agent(text)
        child = engine.thread("chat/scout-1")
        assert ("chat", "ann") == (child.info().parent_id, child.info().user_id)
        assert "owls" in str(child.context().messages)
        assert "owls" not in str(engine.thread("chat").context().messages)
        MemoryEngineSessionRepository(engine, user_id="ann").delete_session("chat")
        assert not engine.threads()


def test_an_interrupted_run_goes_on_in_another_engine(tmp_path: Path) -> None:
    """The question is kept, and its answer reaches the tool."""

    class Asks(HookProvider):
        def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
            registry.add_callback(BeforeToolCallEvent, self.ask)

        def ask(self, event: BeforeToolCallEvent) -> None:
            if event.interrupt("allowed", reason="depot") != "yes":
                event.cancel_tool = "no"

    path = str(tmp_path / "agent.db")
    model = ScriptedModel([called("depot", "t1", place="Visby")], "Nine.")
    with sync.open(path) as engine:
        result = agent_of(engine, model, tools=[depot], hooks=[Asks()])("What does the depot hold?")
        assert "interrupt" == result.stop_reason
        assert result.interrupts is not None
        [asked] = result.interrupts
    with sync.open(path) as engine:
        answer: Any = [{"interruptResponse": {"interruptId": asked.id, "response": "yes"}}]
        result = agent_of(engine, model, tools=[depot], hooks=[Asks()])(answer)
        assert "end_turn" == result.stop_reason
        assert "nine pallets" in str(model.given[-1])
        assert "nine pallets" in str(engine.thread("chat").context().messages)


def test_a_redacted_message_leaves_contexts_and_search() -> None:
    """What takes its place is shown; the session gives back what the framework wrote."""
    with sync.open(":memory:") as engine:
        repository = MemoryEngineSessionRepository(engine)
        repository.create_session(Session("chat", SessionType.AGENT))
        with pytest.raises(SessionException):
            repository.create_session(Session("chat", SessionType.AGENT))
        with pytest.raises(SessionException):
            repository.list_messages("chat", "default")
        repository.create_agent("chat", SessionAgent("default", {"a": 1}, {"removed": 0}))
        said = [
            SessionMessage({"role": "user", "content": [{"text": f"The vault opens with {n}."}]}, n) for n in range(3)
        ]
        for one in said:
            repository.create_message("chat", "default", one)
        assert said == repository.list_messages("chat", "default")
        assert said[1:2] == repository.list_messages("chat", "default", limit=1, offset=1)
        said[1].redact_message = {"role": "user", "content": [{"text": "[a guardrail took this out]"}]}
        repository.update_message("chat", "default", said[1])
        assert said == repository.list_messages("chat", "default")
        assert said[1] == repository.read_message("chat", "default", 1)
        assert repository.read_message("chat", "default", 9) is None
        text = str(engine.thread("chat").context().messages)
        assert "opens with 1" not in text
        assert "guardrail" in text
        assert not [hit for hit in engine.thread("chat").search("the vault opens with 1") if "with 1" in hit.text]
        with pytest.raises(SessionException):
            repository.update_message("chat", "default", SessionMessage({"role": "user", "content": []}, 7))
        repository.delete_session("chat")
        with pytest.raises(SessionException):
            repository.delete_session("chat")


def test_messages_of_every_kind_come_back() -> None:
    """Also what has no event, or is out of order."""
    odd: list[Any] = [
        [],
        [{"cachePoint": {"type": "default"}}],
        [{"toolResult": {"toolUseId": "of no call", "status": "error", "content": [{"json": {"a": [1.0, None]}}]}}],
        [{"document": {"format": "csv", "name": "stock", "source": {"bytes": b"a,b\n\xff"}}}],
        [{"reasoningContent": {"redactedContent": b"\x00\x01"}}],
        [{"text": "Half: \ud83d"}],
        [{"citationsContent": {"content": [{"text": "Cited."}], "citations": []}}],
    ]
    with sync.open(":memory:") as engine:
        repository = MemoryEngineSessionRepository(engine)
        repository.create_session(Session("chat", SessionType.AGENT))
        repository.create_agent("chat", SessionAgent("default", {}, {}))
        said = [
            SessionMessage({"role": "assistant" if n == 4 else "user", "content": content}, n)
            for n, content in enumerate(odd)
        ]
        for one in said:
            repository.create_message("chat", "default", one)
        assert said == repository.list_messages("chat", "default")
        assert "[stock.csv]" in str(engine.thread("chat").context().messages)
        assert engine.thread("chat").replay.verify().ok


def test_erasing_reaches_the_session() -> None:
    """A text that is erased is in neither."""
    with sync.open(":memory:") as engine:
        agent_of(engine, ScriptedModel("Noted."))("The safe is behind the map.")
        thread = engine.thread("chat")
        thread.admin.erase([event.id for event in thread.events() if event.type == "user_message"])
        again = agent_of(engine, ScriptedModel())
        assert "behind the map" not in json.dumps(messages_of(again))
        assert 2 == len(again.messages)


def test_offloaded_results_are_in_the_memory(tmp_path: Path) -> None:
    """A long result is a preview in the messages; whole, it is found, read again, and deleted with the session."""
    long = "The ledger lists barrels of rye, one by one. " * 400 + "Barrel 401 went to Riga."

    @tool
    def ledger() -> str:
        """The whole ledger."""
        return long

    path = str(tmp_path / "agent.db")
    with sync.open(path) as engine:
        storage = MemoryEngineStorage("chat", engine, user_id="ann")
        offloader = ContextOffloader(storage=storage, max_result_tokens=500, preview_tokens=100)
        model = ScriptedModel([called("ledger", "t1")], "It is long.")
        agent_of(engine, model, tools=[ledger], plugins=[offloader])("Read the ledger.")
        assert "Barrel 401" not in str(model.given[-1])
    with sync.open(path) as engine:
        storage = MemoryEngineStorage("chat", engine, user_id="ann")
        [key] = asyncio.run(storage.list())
        assert long.encode() in (asyncio.run(storage.read(key)) or b"")
        assert [key] == [one.key for one in asyncio.run(storage.search("which barrel went to Riga?"))]
        MemoryEngineSessionRepository(engine, user_id="ann").delete_session("chat")
        assert asyncio.run(storage.read(key)) is None


def test_a_storage_keeps_any_bytes() -> None:
    """Texts, frames, and what only begins like one; written over, listed by prefix, deleted."""
    values = [
        b"",
        b"\x00",
        b"\x00\x03a/b",
        b"\x00\x0atext/plainHi",
        b"\x00\x09image/png\xff\xd8",
        b"\xff" * 9,
        "åß".encode(),
    ]

    async def check(storage: MemoryEngineStorage) -> None:
        assert [] == await storage.list("a")
        for n, value in enumerate(values):
            await storage.write(f"a/{n}", b"before")
            await storage.write(f"a/{n}", value)
        await storage.write("b", b"x")
        assert values == [await storage.read(f"a/{n}") for n in range(len(values))]
        assert [f"a/{n}" for n in range(len(values))] == await storage.list("a/")
        await storage.delete("a/0")
        await storage.delete("none")
        assert await storage.read("a/0") is None

    with sync.open(":memory:") as engine:
        asyncio.run(check(MemoryEngineStorage("chat", engine)))


def test_the_example_runs(tmp_path: Path) -> None:
    """Twice: the second run goes on where the first one ended."""
    first, second = printed("strands", tmp_path), printed("strands", tmp_path)
    assert "given 3 messages" in first
    assert "given 7 messages" in second
