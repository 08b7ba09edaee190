"""Sessions of ADK in a memory: what is kept, how it comes back, who is refused."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

import memory_engine
from memory_engine.events import SessionEntryKept
from memory_engine.integrations.adk import MARK, MemoryEngineSessionService
from tests.postgres_server import new_url

OWNER: Any = {"app_name": "shop", "user_id": "ann"}
LONG = "My cat is called Tom, and he sleeps on the keyboard whenever I write."


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[memory_engine.Engine]:
    """On a file."""
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        yield engine


async def got(service: MemoryEngineSessionService, **named: Any) -> Any:
    """A session; `None` for none."""
    return await service.get_session(**named)


def said(text: str, *, author: str = "user", invocation: str = "i", **state: Any) -> Event:
    """An event that says something and sets state; `__` of its keys is a colon."""
    content = types.Content(role="user" if author == "user" else "model", parts=[types.Part(text=text)])
    delta = {key.replace("__", ":"): value for key, value in state.items()}
    return Event(author=author, invocation_id=invocation, content=content, actions=EventActions(state_delta=delta))


def parts(*given: types.Part, role: str = "model", author: str = "clerk", **more: Any) -> Event:
    """An event of these parts."""
    return Event(author=author, invocation_id="i", content=types.Content(role=role, parts=list(given)), **more)


CALL = types.Part(function_call=types.FunctionCall(id="c1", name="weather", args={"city": "Rome", "unit": None}))
RESULT = types.Part(function_response=types.FunctionResponse(id="c1", name="weather", response={"result": "12 °C"}))
EVENTS = [
    said(LONG),
    parts(types.Part(text="It is about the weather.", thought=True), types.Part(text="Let me see."), CALL),
    parts(RESULT, role="user"),
    parts(RESULT, role="user"),  # a long-running tool answers twice
    parts(types.Part(text="12 °C, says"), types.Part(text="the station.")),
    parts(types.Part.from_bytes(data=b"\xfb\xff\x00", mime_type="image/png"), role="user", author="user"),
    parts(types.Part.from_uri(file_uri="gs://a/b.pdf", mime_type="application/pdf"), role="user", author="user"),
    parts(types.Part.from_executable_code(code="1 + 1", language=types.Language.PYTHON)),
    Event(author="clerk", error_code="429", error_message="slow down", invocation_id="i"),
    Event(
        author="clerk",
        output={"kept": None, "n": 1.5},
        custom_metadata={"none": None},
        partial=False,
        long_running_tool_ids={"b", "a"},
        branch="a.b",
        grounding_metadata=types.GroundingMetadata(search_entry_point=types.SearchEntryPoint(sdk_blob=b"\x00\xff")),
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=7),
        actions=EventActions(
            state_delta={"a": {"b": [None, 1]}, "user:n": None, "app:x": 2},
            artifact_delta={"f": 0},
            transfer_to_agent="other",
            escalate=True,
            agent_state={"step": None},
            end_of_agent=True,
            route=["x", 1],
        ),
    ),
]


@pytest.mark.parametrize("back_end", ["memory", "sqlite", "postgres"])
async def test_every_event_comes_back_equal(back_end: str, tmp_path: Path) -> None:
    """From every store; and again once it was read again, and all of it verifies."""
    paths = {"memory": ":memory:", "sqlite": str(tmp_path / "agent.db")}
    async with memory_engine.open(paths[back_end] if back_end in paths else new_url()) as engine:
        service = MemoryEngineSessionService(engine)
        session = await service.create_session(**OWNER, session_id="s", state={"begun": [1], "app:x": 1})
        given = [event.model_copy(deep=True) for event in EVENTS]
        for event in given:
            await service.append_event(session, event)
        found = await got(service, **OWNER, session_id="s")
        assert found == session
        assert given == found.events
        assert [one.model_dump_json() for one in given] == [one.model_dump_json() for one in found.events]
        assert {"begun": [1], "a": {"b": [None, 1]}, "user:n": None, "app:x": 2} == found.state
        await service.append_event(found, said("And now?"))
        assert (await engine.thread((await engine.threads(metadata={MARK: "session"}))[0].id).replay.verify()).ok


async def test_messages_are_a_threads_events(engine: memory_engine.Engine) -> None:
    """Contexts, search and `why` know them; a long text stands in the log once."""
    service = MemoryEngineSessionService(engine)
    session = await service.create_session(**OWNER, session_id="s")
    for event in EVENTS:
        await service.append_event(session, event.model_copy(deep=True))
    [info] = await engine.threads(metadata={MARK: "session"}, user_id="ann", agent_id="shop")
    thread = engine.thread(info.id)
    messages = (await thread.context()).messages
    roles = [str(message["role"]) for message in messages]
    assert ["user", "assistant", "tool", "user", "assistant", "user", "user", "assistant"] == roles
    assert "weather" in str(messages[1])
    hit = (await thread.search("what is my cat called?"))[0]
    assert hit.text == LONG
    assert "user_message" in str(await thread.replay.why(f"{hit.seq}.0"))
    entries = [one async for one in thread.events() if isinstance(one.event, SessionEntryKept)]
    assert not [one for one in entries if LONG in str(one.event)]


async def test_one_commit_holds_an_event_its_messages_and_its_state(engine: memory_engine.Engine) -> None:
    """Shared state arrives through the outbox, once, and other sessions see it at once; `temp:` is never kept."""
    service = MemoryEngineSessionService(engine)
    session = await service.create_session(**OWNER, session_id="s")
    other = await service.create_session(**OWNER, session_id="other")
    bob = await service.create_session(app_name="shop", user_id="bob", session_id="s")
    await service.append_event(session, said("Hello", app__a=1, user__b={"c": None}, temp__d=3, e=4))
    assert {"app:a": 1, "user:b": {"c": None}, "temp:d": 3, "e": 4} == session.state
    read = [await got(service, app_name="shop", user_id=one.user_id, session_id=one.id) for one in (other, bob)]
    assert [{"app:a": 1, "user:b": {"c": None}}, {"app:a": 1}] == [one.state for one in read if one]
    assert {"b": {"c": None}} == await service.get_user_state(**OWNER)
    assert {} == await service.get_user_state(app_name="other", user_id="ann")
    listed = (await service.list_sessions(app_name="shop")).sessions
    assert [("ann", "other"), ("bob", "s"), ("ann", "s")] == [(one.user_id, one.id) for one in listed]
    assert {"app:a": 1, "user:b": {"c": None}, "e": 4} == listed[-1].state
    assert [] == (await service.list_sessions(app_name="other")).sessions
    log = [one async for one in engine.thread((await engine.threads(metadata={MARK: "session"}))[0].id).events()]
    assert "temp:d" not in str(log)
    assert log[1].recorded_at == log[2].recorded_at  # one commit
    await service.flush()


async def test_state_of_users_and_apps_outlives_its_session(engine: memory_engine.Engine) -> None:
    """A deleted session is destroyed; its id is free; its object cannot go on in another session."""
    service = MemoryEngineSessionService(engine)
    session = await service.create_session(**OWNER, session_id="s", state={"own": 1, "user:lang": "it"})
    await service.append_event(session, said(LONG, app__rate=2, user__b=3))
    keeper = await service.create_session(**OWNER, session_id="keeper")
    await service.append_event(keeper, said("Hi", user__b=4))
    await service.delete_session(**OWNER, session_id="s")
    await service.delete_session(**OWNER, session_id="s")
    assert await got(service, **OWNER, session_id="s") is None
    found = await got(service, **OWNER, session_id="keeper")
    assert {"app:rate": 2, "user:lang": "it", "user:b": 4} == found.state
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, said("Still there?"))
    again = await service.create_session(**OWNER, session_id="s")
    assert {"app:rate": 2, "user:lang": "it", "user:b": 4} == again.state
    with pytest.raises(StaleSessionError):
        await service.append_event(session, said("Still there?"))
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**OWNER, session_id=" s ")
    assert LONG not in str([hit.text for hit in await engine.search("cat", user_id="ann")])


async def test_a_stale_session_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    """Two engines on one file: who has not seen the other's event gets the session again, and appends to that."""
    path = str(tmp_path / "agent.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as two:
        first, second = MemoryEngineSessionService(one), MemoryEngineSessionService(two)
        ours = await first.create_session(**OWNER, session_id="s")
        theirs = await got(second, **OWNER, session_id="s")
        await first.append_event(ours, said("one", user__n=1))
        with pytest.raises(StaleSessionError, match="get the session again"):
            await second.append_event(theirs, said("two", user__n=2))
        assert [] == theirs.events
        theirs = await got(second, **OWNER, session_id="s")
        await second.append_event(theirs, said("two", user__n=2))
        stale = Session(id="s", **OWNER, last_update_time=ours.last_update_time)  # made by hand
        with pytest.raises(StaleSessionError):
            await first.append_event(stale, said("three"))
        ours = await got(first, **OWNER, session_id="s")
        assert ["one", "two"] == [event.content.parts[0].text for event in ours.events]
        assert {"user:n": 2} == ours.state


async def test_what_else_is_written_to_the_thread_does_not_make_a_session_stale(engine: memory_engine.Engine) -> None:
    """A note of the agent's, a compaction: the session has not changed."""
    service = MemoryEngineSessionService(engine)
    session = await service.create_session(**OWNER, session_id="s")
    [info] = await engine.threads(metadata={MARK: "session"})
    for n in range(3):
        await service.append_event(session, said(f"{n} {LONG}"))
        await engine.thread(info.id).scratchpad.write("He likes his cat.")
    await engine.thread(info.id).compact()
    await service.append_event(session, said("Go on."))
    assert session == await got(service, **OWNER, session_id="s")


async def test_an_event_that_comes_again_is_kept_once(engine: memory_engine.Engine) -> None:
    """Equal under its id; another event under that id is another one. A partial one is not kept."""
    service = MemoryEngineSessionService(engine)
    session = await service.create_session(**OWNER, session_id="s")
    event = parts(CALL, actions=EventActions(state_delta={"n": 1, "temp:t": 1}))
    await service.append_event(session, event)
    await service.append_event(session, event.model_copy(deep=True))
    await service.append_event(session, parts(types.Part(text="Hel"), partial=True))
    assert 1 == len(session.events)
    await service.append_event(session, parts(RESULT, role="user", id=event.id))
    assert session.events == (await got(service, **OWNER, session_id="s")).events
    assert 2 == len(session.events)
    with pytest.raises(SessionNotFoundError):
        await service.append_event(Session(id="none", **OWNER), event)


@pytest.mark.parametrize("recent", [None, 0, 2, 9])
@pytest.mark.parametrize("after", [None, 1.0, 3.0, 9.0])
async def test_a_part_of_a_session_is_what_adks_own_service_gives(
    recent: int | None, after: float | None, engine: memory_engine.Engine
) -> None:
    """The latest events, those since a moment, both."""
    config = GetSessionConfig(num_recent_events=recent, after_timestamp=after)
    found = []
    for service in (MemoryEngineSessionService(engine), InMemorySessionService()):
        session = await service.create_session(**OWNER, session_id="s")
        for n in (1, 2, 3, 3, 4):
            await service.append_event(session, Event(author="user", timestamp=n, invocation_id=f"i{n}"))
        part = await got(service, **OWNER, session_id="s", config=config)
        found.append([(event.invocation_id, event.timestamp) for event in part.events])
    assert found[1] == found[0]


async def test_a_rewind_takes_messages_out_of_the_memory(engine: memory_engine.Engine) -> None:
    """The session keeps all events, of which ADK shows a model those before; the memory shows the same."""
    service = MemoryEngineSessionService(engine)
    session = await service.create_session(**OWNER, session_id="s")
    for n, text in enumerate(("I live in Rome.", "I live in Paris.", "I live in Oslo.")):
        await service.append_event(session, said(text, invocation=f"i{n}", town=text))
    rewind = EventActions(rewind_before_invocation_id="i1", state_delta={"town": "I live in Rome."})
    await service.append_event(session, Event(author="user", invocation_id="i3", actions=rewind))
    await service.append_event(session, said("Where do I live?", invocation="i4"))
    found = await got(service, **OWNER, session_id="s")
    assert session == found
    assert 5 == len(found.events)
    assert "I live in Rome." == found.state["town"]
    [info] = await engine.threads(metadata={MARK: "session"})
    context = await engine.thread(info.id).context()
    assert ["I live in Rome.", "Where do I live?"] == [message["content"] for message in context.messages]
    assert not [hit for hit in await engine.thread(info.id).search("Where do I live?") if "Oslo" in hit.text]


async def test_forgetting_and_erasing(engine: memory_engine.Engine) -> None:
    """A forgotten message leaves the memory and stays in the session; an erased one leaves both."""
    service = MemoryEngineSessionService(engine)
    session = await service.create_session(**OWNER, session_id="s")
    await service.append_event(session, said(LONG))
    [info] = await engine.threads(metadata={MARK: "session"})
    thread = engine.thread(info.id)
    await thread.forget(seqs=[2])
    assert [] == list((await thread.context()).messages)
    found = await got(service, **OWNER, session_id="s")
    assert LONG == found.events[0].content.parts[0].text
    await thread.admin.erase(seqs=[2])
    found = await got(service, **OWNER, session_id="s")
    assert "" == found.events[0].content.parts[0].text
    await thread.forget(seqs=[3])
    assert [] == (await got(service, **OWNER, session_id="s")).events


async def test_names_of_any_kind_are_kept_apart(engine: memory_engine.Engine) -> None:
    """Of tenants too: what one has, another does not see."""
    service, acme = MemoryEngineSessionService(engine), MemoryEngineSessionService(engine, tenant_id="acme")
    for owner in ({"app_name": "a/b", "user_id": "c"}, {"app_name": "a", "user_id": "b/c"}):
        await service.create_session(**owner, session_id="d:é", state={"user:o": str(owner)})
        await acme.create_session(**owner, session_id="d:é", state={"user:o": "acme"})
        found = await got(service, **owner, session_id="d:é")
        assert {"user:o": str(owner)} == found.state
        assert {"o": "acme"} == await acme.get_user_state(**owner)


async def test_times_are_those_of_the_events(engine: memory_engine.Engine) -> None:
    """Not of the clock."""
    service = MemoryEngineSessionService(engine)
    session = await service.create_session(**OWNER)
    moment = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
    await service.append_event(session, Event(author="user", timestamp=moment))
    assert moment == (await service.list_sessions(**OWNER)).sessions[0].last_update_time
