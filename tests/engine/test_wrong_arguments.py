"""What callers easily give wrongly: a typed error that says what to do, and nothing is written."""

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.agents import MemoryTools
from memory_engine.views.layers.entries import KnowledgeEntry, MemoryEntry
from memory_engine.views.promotion.judge import Placement
from memory_engine.views.promotion.view import Promotion
from memory_engine.views.screen.view import ProactiveTool

MOMENT_MS = 1_763_700_000_000


async def noted(engine: memory_engine.Engine) -> Thread:
    """A conversation with one snippet."""
    thread = await engine.create_thread("t", user_id="u", tenant_id="acme")
    await thread.scratchpad.write("Revenue dips every Sunday")
    return thread


@pytest.mark.parametrize("snippet", [None, 5, b"text"])
async def test_S1_a_snippet_that_is_no_text_is_refused(engine: Engine, snippet: object) -> None:
    """`InvalidEvent`, like every other value that the log could not give back."""
    thread = await engine.create_thread()
    with pytest.raises(errors.InvalidEvent):
        await thread.scratchpad.write(snippet)  # type: ignore[arg-type]
    assert 0 == (await thread.info()).events


async def test_S1_a_long_snippet_leaves_room_for_the_rest(engine: Engine) -> None:
    """The scratchpad keeps to its share of a context."""
    thread = await engine.create_thread()
    await thread.scratchpad.write("a long finding " * 1_000)
    await thread.dispatch(e.UserMessage(content="Hello"))
    messages = (await thread.context(max_tokens=500)).messages
    assert ("Hello", True) == (messages[0]["content"], "characters of" in str(messages[1]["content"]))


async def test_S2_a_value_as_it_was(engine: Engine) -> None:
    """`get` takes the seq of an earlier event, as `find` does."""
    preferences = engine.user("u").preferences
    await preferences.update("tone", "formal")
    await preferences.update("tone", "dry")
    assert ("formal", "dry") == (await preferences.get("tone", at=1), await preferences.get("tone"))


def test_S4_a_rule_that_is_missing_says_where_it_goes() -> None:
    """A TOML file can name a rule only; the function comes with `rules=`."""
    from memory_engine.views.preferences.domain import Domain

    text = "[kinds.period]\nrule = { name = 'fill_slot' }\n"
    with pytest.raises(errors.DomainError, match="no rule 'fill_slot' is registered: give it to the domain"):
        Domain.from_toml(text)
    assert Domain.from_toml(text, rules={"fill_slot": lambda _situation, _arguments: {}}).kind("period")


async def test_S5_a_request_to_an_unknown_target_is_refused(engine: Engine) -> None:
    """A misspelled target is not the preferences: the error names the ones that there are."""
    thread = await noted(engine)
    with pytest.raises(errors.InvalidEvent, match="use one of '', 'preferences', 'agent_md'"):
        await thread.promotion.request("all", target="agent.md")  # type: ignore[arg-type]
    assert (1, 0) == ((await thread.info()).events, len(await engine.user("u", tenant_id="acme").preferences.all()))


async def test_S5_a_route_to_an_unknown_target_is_refused(engine: Engine) -> None:
    """So too where a route of the caller's own chooses."""
    thread = await noted(engine)
    promotion = Promotion(thread, route=lambda _snippet: Placement("preference"))  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidEvent, match="there is no target 'preference'"):
        await promotion.request("all")
    assert 1 == (await thread.info()).events


@pytest.mark.parametrize("answer", ["\ud800", None, 5])
async def test_C5_an_answer_that_cannot_be_recorded_leaves_no_question(engine: Engine, answer: object) -> None:
    """Without an open cycle a whole turn is recorded or nothing: a question alone would refuse all later answers."""
    thread = await engine.create_thread()
    with pytest.raises(errors.InvalidEvent):
        await thread.conversation.finalize_cycle("first", answer)  # type: ignore[arg-type]
    assert (0, None) == ((await thread.info()).events, await thread.conversation.current())
    await thread.conversation.finalize_cycle("second", "fine")


async def test_C5_an_answer_over_the_size_limit_leaves_no_question() -> None:
    """The same for an answer that is too large."""
    async with memory_engine.open(":memory:", config=EngineConfig(event_bytes_max=2_000)) as engine:
        thread = await engine.create_thread()
        with pytest.raises(errors.EventTooLarge):
            await thread.conversation.finalize_cycle("first", "x" * 3_000)
        assert 0 == (await thread.info()).events


@pytest.mark.parametrize("parameters", [None, [], "text", 5])
async def test_C3_parameters_that_are_no_mapping_are_refused(engine: Engine, parameters: object) -> None:
    """A call's parameters have names; a cached result without them could not be reported."""
    thread = await engine.create_thread()
    with pytest.raises(errors.InvalidParameters, match="not a mapping"):
        await thread.tool_cache.add("tool", parameters, "result", duration=2)  # type: ignore[arg-type]
    ahead = ProactiveTool(tool="tool", parameters=parameters, result="result")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidParameters, match="not a mapping"):
        await thread.screen.inject("a page", [ahead])
    assert 0 == (await thread.info()).events


@pytest.mark.parametrize("parameters", ["null", "[]", "not JSON"])
async def test_C6_a_report_survives_parameters_that_are_no_object(engine: Engine, parameters: str) -> None:
    """Whoever dispatches the event by hand may record anything: the report shows the call without parameters."""
    thread = await engine.create_thread()
    await thread.dispatch(e.ToolResultCached(tool="tool", parameters=parameters, result="result", duration=2))
    assert "• tool({}): 2/2 exchanges remaining" in (await thread.views.report()).text


async def test_C6_a_report_as_of_an_earlier_seq(engine: Engine) -> None:
    """A report takes `at`, as every other reading does."""
    thread = await engine.create_thread()
    for n in range(2):
        await thread.conversation.finalize_cycle(f"q{n}", f"a{n}")
    assert "Exchanges: 1 |" in (await thread.views.report(at=4)).text
    assert "Exchanges: 2 |" in (await thread.views.report()).text


async def test_L1_a_time_in_milliseconds(engine: Engine) -> None:
    """Milliseconds since 1970 are a time wherever one is given."""
    memory = (await engine.create_thread()).memory
    one = await memory.append("episodic", "analyzed", timestamp=MOMENT_MS)
    two = await memory.append("episodic", {"content": "analyzed", "timestamp": MOMENT_MS})
    given = MemoryEntry(content="analyzed", timestamp=MOMENT_MS)  # type: ignore[arg-type]
    three = await memory.append("episodic", given)
    fact = KnowledgeEntry(key="k", value="v", timestamp=MOMENT_MS)  # type: ignore[arg-type]
    times = [moment.timestamp() for entry in (one, two, three, await memory.learn(fact)) if (moment := entry.timestamp)]
    assert [MOMENT_MS / 1_000] * 4 == times


@pytest.mark.parametrize("timestamp", ["2020-01-01", -5, 10**30])
async def test_L1_a_time_that_is_none_is_refused(engine: Engine, timestamp: object) -> None:
    """Seconds, texts and what no calendar holds are no times."""
    thread = await engine.create_thread()
    with pytest.raises(errors.InvalidMemory, match="timestamp"):
        await thread.memory.append("episodic", "analyzed", timestamp=timestamp)  # type: ignore[arg-type]
    assert 0 == (await thread.info()).events


@pytest.mark.parametrize("entry", [None, 5, b"text", ["text"]])
async def test_L1_an_entry_that_is_none_is_refused(engine: Engine, entry: object) -> None:
    """An entry is a text, a mapping or a `MemoryEntry`."""
    thread = await engine.create_thread()
    with pytest.raises(errors.InvalidMemory, match="it is a text or a mapping"):
        await thread.memory.append("episodic", entry)  # type: ignore[arg-type]
    assert 0 == (await thread.info()).events


async def test_L3_what_stayed_is_counted(engine: Engine) -> None:
    """Where there is nothing to compact, the report says how many entries there are, not how many there may be."""
    memory = (await engine.create_thread()).memory
    for layer in ("working", "episodic"):
        await memory.append(layer, "one")
    assert (1, 1, 0) == (
        (await memory.compact("working")).kept,
        (await memory.compact("episodic")).kept,
        (await memory.compact("procedural")).kept,
    )


async def test_L5_a_model_keeps_its_snippets_short(engine: Engine) -> None:
    """The scratchpad is in every context: a model that writes a whole document to it is told the limit."""
    thread = await engine.create_thread()
    tools = MemoryTools(engine.agent("a"), thread)
    answer = await tools.call("scratchpad_write", {"text": "x" * 4_001})
    assert (True, True, ()) == (answer.is_error, "<= 4000" in answer.text, await thread.scratchpad.read())


@pytest.mark.parametrize("name", [None, 5, b"u1"])
async def test_an_id_that_is_no_text_is_refused(engine: Engine, name: object) -> None:
    """A user that nobody named is not the user "None"."""
    with pytest.raises(errors.InvalidIdentifier, match="is not usable: it is no"):
        engine.user(name)  # type: ignore[arg-type]


async def test_X7_an_event_that_another_log_holds_is_named(engine: Engine) -> None:
    """Forgetting by an id that this thread's log does not hold says so, and forgets nothing."""
    thread, other = await engine.create_thread(), await engine.create_thread()
    receipt = await other.dispatch(e.UserMessage(content="Hello"))
    with pytest.raises(errors.EventNotFound, match=receipt.event_id):
        await thread.forget(event_ids=[receipt.event_id])
    assert 0 == (await thread.info()).events


async def test_a_projection_that_is_not_registered_is_named(engine: Engine) -> None:
    """The error lists those that are."""
    thread = await engine.create_thread()
    with pytest.raises(KeyError, match=r"there is no view 'nope'; there are .*preferences") as raised:
        await thread.views.read("nope")
    assert errors.UnknownView is raised.type


async def test_E5_a_thread_that_exists_is_opened(engine: Engine) -> None:
    """Whoever makes one twice is told how it is opened; an id whose thread was deleted is free."""
    await (await engine.create_thread("t")).admin.delete()
    await engine.create_thread("t")
    with pytest.raises(errors.ThreadExists, match="open_thread"):
        await engine.create_thread("t")


@pytest.mark.parametrize("wrong", ["x.1", ".", "", "-1.0", "1e3.0", "9" * 5_000 + ".0", "\udc00snippet", "\0"])
async def test_a_chunk_id_that_no_event_gave_is_not_there(engine: Engine, wrong: str) -> None:
    """Whatever it looks like: no state has it, and whoever needs it is told which it is."""
    thread = await noted(engine)
    assert None is (await thread.state()).get(wrong)
    for asked in (thread.replay.chunk(wrong), thread.replay.why(wrong), thread.forget(chunk_ids=[wrong])):
        with pytest.raises(errors.MemoryEngineError):
            await asked
    with pytest.raises(errors.MemoryEngineError):
        await thread.compact(chunk_ids=[wrong])
    assert 1 == (await thread.info()).events
