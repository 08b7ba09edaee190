"""An agent's runs are remembered: what it is told at the start, what is kept at the end, what its sub-agents know."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, RecordedEvent, SubagentError, ToolCall, UserMessage, errors
from memory_engine.agents import AgentLifecycle, Fact, Finished, MemoryTools, ModelFacts, Said, StatedFacts
from memory_engine.errors import ModelError
from memory_engine.llm.base import Completion, Message

CALL = ToolCall("c1", "search", '{"query":"revenue"}')


async def lifecycle(engine: Engine, *, agent_id: str = "analyst", tenant_id: str = "") -> AgentLifecycle:
    """An agent in a new conversation."""
    thread = await engine.create_thread(user_id="u1", tenant_id=tenant_id)
    return AgentLifecycle(engine, thread, agent_id=agent_id)


async def episodes(engine: Engine, agent_id: str = "analyst", tenant_id: str = "") -> list[str]:
    """The agent's episodic memory."""
    entries = await engine.agent(agent_id, tenant_id=tenant_id).memory.entries("episodic")
    return [entry.content for entry in entries]


async def test_L6_start_and_end_are_remembered(tmp_path: Path) -> None:
    """Task events in the conversation, entries in the agent's episodic memory, with prompt and result."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        run = await lifecycle(engine)
        await run.start("Explain the spike of Nov 3rd")
        await run.end("A campaign went live.")
        types = [event.type async for event in run.thread.events()]
        assert {"task_started", "task_completed", "memory_shared"} <= set(types)
    async with memory_engine.open(path) as engine:
        assert [
            "Started: Explain the spike of Nov 3rd",
            "Completed: Explain the spike of Nov 3rd → A campaign went live.",
        ] == await episodes(engine)
        (_, done) = await engine.agent("analyst").memory.entries("episodic")
        assert ("completed", "analyst", run.thread.id) == (
            done.metadata["event"], done.metadata["agent_id"], done.source_thread
        )  # fmt: skip


async def test_L6_relevant_memories_are_put_into_the_prompt(engine: Engine) -> None:
    """What fits the task is in the model's first messages, marked as memory; the rest is not."""
    memory = engine.agent("analyst").memory
    await memory.learn("dataset-format", "CSV, semicolon-delimited")
    await memory.learn("office-plant", "needs water on Mondays")
    await memory.append("episodic", "The dataset import failed on empty lines")
    prepared = await (await lifecycle(engine)).start("Import the dataset of May")
    assert {"CSV, semicolon-delimited", "The dataset import failed on empty lines"} == {
        hit.content for hit in prepared.memories
    }
    told = str(prepared.messages)
    assert "[From memory, not said now]" in told
    assert ("semicolon" in told, "plant" in told) == (True, False)
    assert "Import the dataset of May" in told


async def test_L6_nothing_known_is_no_note(engine: Engine) -> None:
    """The first task of an agent has an empty prompt and no recalled event."""
    run = await lifecycle(engine)
    assert "" == (await run.start("Something new")).prompt
    assert "memory_recalled" not in [event.type async for event in run.thread.events()]


async def test_L6_rules_that_apply_are_in_the_prompt(engine: Engine) -> None:
    """A rule whose condition the task meets, in any form, and one without a condition."""
    memory = engine.agent("analyst").memory
    await memory.append("procedural", "check the rollback plan", condition="When a deployment is asked for")
    await memory.append("procedural", "ask for the currency", condition="an invoice is written")
    await memory.append("procedural", "answer in French")
    prepared = await (await lifecycle(engine)).start("Deploy the billing service")
    assert ["check the rollback plan", "answer in French"] == [rule.action for rule in prepared.rules]
    assert "- When a deployment is asked for: check the rollback plan" in prepared.prompt
    assert "currency" not in prepared.prompt


async def test_L6_facts_are_learned_from_what_was_said(engine: Engine) -> None:
    """In the request, the user's messages, the scratchpad, the answer; each fact says from which events it is."""
    run = await lifecycle(engine)
    await run.start("Look at the data. Please always round to euros.")
    await run.thread.dispatch(UserMessage(content="My time zone is CET. The weather is nice."))
    await run.thread.scratchpad.write("Remember: our peak hour is 14:00")
    facts = await run.end("Our export format is Parquet. I looked around.\n- **Owner**: Ana\nSee https://example.org")
    assert [
        ("always-round-to-euros", "always round to euros"),
        ("time-zone", "CET"),
        ("peak-hour", "14:00"),
        ("export-format", "Parquet"),
    ] == [(f.key, f.value) for f in facts]
    (task,) = [event.id async for event in run.thread.events() if event.type == "task_started"]
    (message,) = [event.id async for event in run.thread.events() if event.type == "user_message"]
    (done,) = [event.id async for event in run.thread.events() if event.type == "task_completed"]
    assert [(task,), (message,)] == [fact.sources for fact in facts[:2]]
    known = await engine.agent("analyst").memory.recall("export-format")
    assert known is not None
    assert ("Parquet", run.thread.id, (done,)) == (known.value, known.source_thread, known.sources)
    again = await (await lifecycle(engine)).start("Read the export")
    assert "Parquet" in again.prompt


async def test_L6_no_secret_comes_back_into_a_prompt(engine: Engine) -> None:
    """Neither as a fact, whoever says that it was learned, nor in the note that the task was done."""

    class Eager:
        async def extract(self, _finished: Finished) -> Sequence[Fact]:
            return [Fact(key="db-password", value="hunter2"), Fact(key="database", value="Postgres 16")]

    thread = await engine.create_thread(user_id="u1")
    run = AgentLifecycle(engine, thread, agent_id="analyst", extractor=Eager())
    await run.start("Find the database's password")
    facts = await run.end("db:\n  password: hunter2\nx: int = 5")
    assert ["database"] == [fact.key for fact in facts]
    again = await (await lifecycle(engine)).start("Use the database's password")
    assert "password: [secret]" in str(await episodes(engine))
    assert "hunter2" not in str(await episodes(engine)) + again.prompt


async def test_L6_forgetting_a_message_forgets_what_it_taught(engine: Engine) -> None:
    """A fact of the user's message goes with the message, in the agent's memory too."""
    run = await lifecycle(engine)
    await run.start("Book a table")
    said = await run.thread.dispatch(UserMessage(content="I'm allergic to nuts."))
    (fact,) = await run.end("Booked.")
    await run.thread.forget(event_ids=[said.event_id])
    assert None is await engine.agent("analyst").memory.recall(fact.key)


async def test_L6_nothing_is_learned_from_recalled_memory(engine: Engine) -> None:
    """An answer that repeats what memory said, or what a memory tool gave, teaches nothing new."""
    agent = engine.agent("analyst")
    await agent.memory.append("episodic", "Our region is North")
    await agent.memory.append("episodic", "Our currency is EUR")
    run = await lifecycle(engine)
    await run.start("Say the region")
    answer = await MemoryTools(agent, run.thread).call("memory_search", {"query": "currency"})
    assert answer.is_recalled
    await run.tool_used(ToolCall("c2", "memory_search", "{}"), answer.text)
    facts = await run.end("Our region is North\nOur currency is EUR\nOur population is 4 million")
    assert ["population"] == [fact.key for fact in facts]


async def test_L6_what_is_known_already_is_not_learned_again(engine: Engine) -> None:
    """No event for a fact that stands; one for a fact that changed."""
    run = await lifecycle(engine)
    for result, learned in (("Our owner is Ana", 1), ("Our owner is Ana", 0), ("Our owner is Bo", 1)):
        await run.start("Who?")
        assert learned == len(await run.end(result))


async def test_L6_forgetting_the_answer_forgets_what_was_drawn_from_it(engine: Engine) -> None:
    """Facts and episodes of the agent go with the conversation's event."""
    run = await lifecycle(engine)
    await run.start("Find the password")
    await run.end("Password: hunter2")
    (done,) = [event.id async for event in run.thread.events() if event.type == "task_completed"]
    await run.thread.forget(event_ids=[done])
    assert (None, ["Started: Find the password"]) == (
        await engine.agent("analyst").memory.recall("password"), await episodes(engine)
    )  # fmt: skip


async def test_L6_a_failure_is_remembered(engine: Engine) -> None:
    """With what went wrong; the task counts as given up."""
    run = await lifecycle(engine)
    await run.start("Divide")
    await run.fail(ZeroDivisionError("division by zero"))
    assert "Failed: Divide → ZeroDivisionError: division by zero" == (await episodes(engine))[-1]
    types = [event.type async for event in run.thread.events()]
    assert {"system_error", "task_abandoned"} <= set(types)
    await run.start("Go on")
    assert "division by zero" in (await (await lifecycle(engine)).start("Divide again")).prompt


async def test_L6_a_block_is_a_run(engine: Engine) -> None:
    """Its end completes the task; an exception is recorded as failure and raised; so is a cancellation."""
    run = await lifecycle(engine)
    async with run.run("First") as first:
        await first.tool_used(CALL, "42")
        first.result = "Our quota is 42"
    assert ["quota"] == [fact.key for fact in first.learned]
    with pytest.raises(KeyError, match="missing"):
        async with run.run("Second"):
            raise KeyError("missing")

    async def endless() -> None:
        async with run.run("Third"):
            started.set()
            await asyncio.Event().wait()

    started = asyncio.Event()
    task = asyncio.create_task(endless())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [
        "Completed: First → Our quota is 42",
        "Failed: Second → KeyError: 'missing'",
        "Failed: Third → stopped",
    ] == [text for text in await episodes(engine) if not text.startswith("Started")]
    assert "task_terminated" == (await run.thread.replay.latest(3))[0].type


async def test_L6_tool_calls_are_noted_in_working_memory(engine: Engine) -> None:
    """The conversation has call and result; working memory one line of it, which goes when they are forgotten."""
    run = await lifecycle(engine)
    await run.start("Count")
    await run.tool_used(CALL, "42 rows")
    await run.tool_used(ToolCall("c2", "write", "{}"), error="disk full")
    entries = await run.thread.memory.entries("working")
    assert ['search({"query":"revenue"}) → 42 rows', "write({}) → failed: disk full"] == [e.content for e in entries]
    (result,) = await typed(run, "tool_result")
    await run.thread.forget(event_ids=[result.id])
    assert ["write({}) → failed: disk full"] == [e.content for e in await run.thread.memory.entries("working")]
    with pytest.raises(errors.InvalidMemory):
        await run.tool_used(CALL)


async def typed(run: AgentLifecycle, name: str) -> list[RecordedEvent]:
    """The events of one wire name in a run's conversation."""
    return [event async for event in run.thread.events() if event.type == name]


async def test_L6_a_sub_agent_is_told_what_its_parent_knows(engine: Engine) -> None:
    """Granted layers only; its result answers the call in the parent's conversation."""
    lead = engine.agent("lead", tenant_id="acme")
    await lead.memory.learn("dataset-format", "CSV")
    await lead.memory.append("episodic", "The dataset was lost once")
    run = await lifecycle(engine, agent_id="lead", tenant_id="acme")
    await run.start("Report")
    child = await run.subagent("helper", "Read the dataset")
    assert ["CSV"] == [hit.content for hit in child.preparation.memories]
    assert ["helper"] == [grant.agent_id for grant in await lead.grants()]
    info = await child.thread.info()
    assert (run.thread.id, "acme", "helper", "u1") == (info.parent_id, info.tenant_id, info.agent_id, info.user_id)
    await child.end("12 rows")
    context = (await run.thread.context()).messages
    assert "12 rows" == context[-1 if context[-1]["role"] == "tool" else -2]["content"]
    assert "Completed: Read the dataset → 12 rows" == (await episodes(engine, "helper", "acme"))[-1]


async def test_L6_what_both_know_comes_in_one_order(engine: Engine) -> None:
    """A sub-agent's memories and its lead's are ranked together, all marked as recalled."""
    lead, helper = engine.agent("lead", tenant_id="acme"), engine.agent("helper", tenant_id="acme")
    await lead.memory.learn("harbour-import", "the harbour dataset is imported with semicolons")
    await lead.memory.learn("dataset-owner", "Ana owns the dataset")
    await helper.memory.learn("dataset-place", "The dataset lies on the shared drive")
    run = await lifecycle(engine, agent_id="lead", tenant_id="acme")
    await run.start("Report")
    memories = (await run.subagent("helper", "Import the harbour dataset")).preparation.memories
    assert "harbour-import" == memories[0].entry.key
    assert {"harbour-import", "dataset-owner", "dataset-place"} == {hit.entry.key for hit in memories}
    assert [hit.score for hit in memories] == sorted((hit.score for hit in memories), reverse=True)
    assert all(hit.recalled for hit in memories)


async def test_L6_a_sub_agent_that_fails_answers_too(engine: Engine) -> None:
    """The parent's call has an error for an answer; without layers nothing is granted."""
    run = await lifecycle(engine, agent_id="lead")
    await run.start("Report")
    child = await run.subagent("helper", "Read", layers=())
    await child.fail("no access")
    assert [] == await engine.agent("lead").grants()
    (answer,) = await typed(run, "subagent_error")
    assert isinstance(answer.event, SubagentError)
    assert ("no access", "helper") == (answer.event.content, answer.event.agent_id)


async def test_L6_steps_at_the_wrong_moment_are_errors(engine: Engine) -> None:
    """Without a task, or with two at once; and in a conversation of another tenant."""
    run = await lifecycle(engine, tenant_id="acme")
    with pytest.raises(errors.TaskNotRunning, match="start one first"):
        await run.end("x")
    await run.start("a")
    with pytest.raises(errors.TaskNotRunning, match="end it"):
        await run.start("b")
    stranger = AgentLifecycle(engine, run.thread, agent_id="analyst", tenant_id="other")
    with pytest.raises(errors.InvalidMemory, match="tenant"):
        await stranger.start("a")


STATED = [
    ("My time zone is CET.", [("time-zone", "CET")]),
    ("1. Our peak hour is 14:00.", [("peak-hour", "14:00")]),
    ("Hi! My name is Ana and I live in Graz, thanks.", [("name", "Ana"), ("live-in-graz", "I live in Graz")]),
    ("My user ID is mia_li_3668, and the reservation is H8Q05L.", [("user-id", "mia_li_3668")]),
    ("Call me Jo.", [("call-me", "Jo")]),
    ("Please use metric units from now on.", [("use-metric-units-from-now-on", "use metric units from now on")]),
    ("Remember that the staging server is rebuilt daily.", [("staging-server", "rebuilt daily")]),
    ("Unser Lager ist in Bremen.", [("lager", "in Bremen")]),
    ("Nunca me llames por la noche.", [("nunca-me-llames-por-la-noche", "Nunca me llames por la noche")]),
    ("Je préfère le train.", [("préfère-le-train", "Je préfère le train")]),
    ("My size is M. My size is L.", []),
    ("My size is M. My size is M.", [("size", "M")]),
    ("Dataset format: CSV", []),
    ("The peak hour is 14:00.", []),
    ("timeout = 30 s", []),
    ("It is late. This is wrong.", []),
    ("Is my time zone CET?", []),
    ("If I were you, my choice would be Rust.", []),
    ("She prefers tea.", []),
    ('He said: "My time zone is CET."', []),
    ("> My time zone is CET.", []),
    ("```\nmy time zone is CET\n```", []),
    ("My order is late.", []),
    ("I prefer the second one.", []),
    ("Your shed is green. Please look whether my oven is off.", []),
    ("db:\n  user: app\n  password: hunter2", []),
    ("My password is sunshine.", []),
    ("x: int = 5", []),
    ("My key is `abc`.", []),
    ("https://example.org/a", []),
    ("", []),
]


@pytest.mark.parametrize(("text", "facts"), STATED)
async def test_L6_facts_by_their_form(text: str, facts: list[tuple[str, str]]) -> None:
    """What counts as a statement, and what does not."""
    found = await StatedFacts().extract(Finished(task="t", said=(Said(text=text, sources=("e",)),)))
    assert facts == [(fact.key, fact.value) for fact in found]


class Answering:
    """A model with one answer."""

    name = "answering"

    def __init__(self, answer: str | Exception) -> None:
        self._answer = answer

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """Answer."""
        assert messages
        assert (0.0, 1_000, 60.0) == (temperature, max_tokens, timeout_s)
        if isinstance(self._answer, Exception):
            raise self._answer
        return Completion(text=self._answer, model="m")

    async def aclose(self) -> None:
        """Nothing is open."""


SAID = Finished(
    task="t",
    said=(Said(text="Our owner is Ana", sources=("a",)), Said(text="b", sources=("b",))),
    recalled=("x: known",),
)
ASKED: list[tuple[str | Exception, list[Fact]]] = [
    ('{"key": "Data Set", "value": "CSV", "said": [2]}', [Fact(key="data-set", value="CSV", sources=("b",))]),
    ('{"key": "k", "value": "v"}\nnoise', [Fact(key="k", value="v", sources=("a", "b"))]),
    ('{"key": "x", "value": "known"}', []),
    ('{"key": "db password", "value": "hunter2"}', []),
    ('{"key": "deploying", "value": "with ghp_16C7e42F292c6912E7710c838347Ae178B4a"}', []),
    ("NONE", []),
    ("I am sorry", [Fact(key="owner", value="Ana", sources=("a",))]),
    (ModelError("m", "timeout", "late"), [Fact(key="owner", value="Ana", sources=("a",))]),
]


@pytest.mark.parametrize(("answer", "facts"), ASKED)
async def test_L6_facts_by_a_model(answer: str | Exception, facts: list[Fact]) -> None:
    """Its lines, with what they cite; facts by their form where its answer is of no use."""
    assert facts == list(await ModelFacts(Answering(answer)).extract(SAID))
