"""Screen context: told once a session, with the results of tools that were run ahead of the question."""

import asyncio
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Event, Thread, errors
from memory_engine import events as e
from memory_engine.context import Message
from memory_engine.views.screen.view import ProactiveTool

TOOLS = (
    ProactiveTool(tool="details", parameters={"champion": "droideka"}, result="a tank", duration=2, call_id="c1"),
    ProactiveTool(tool="help", parameters={"screen": 7}, result="press X"),
)


def contents(messages: list[Message]) -> list[tuple[object, object]]:
    """Role and content of each message."""
    return [(message["role"], message["content"]) for message in messages]


async def injections(thread: Thread) -> int:
    """How many injections the log holds."""
    return len([event async for event in thread.events() if isinstance(event.event, e.ScreenInjected)])


async def test_C4_the_screen_is_told_with_its_results(thread: Thread) -> None:
    """An assistant's message, then each call directly followed by its result."""
    messages = await thread.screen.inject("The champion page is open.", TOOLS)
    assert [
        ("assistant", "I can see you're on a specific screen. The champion page is open."),
        ("assistant", None),
        ("tool", "a tank"),
        ("assistant", None),
        ("tool", "press X"),
    ] == contents(messages)
    call = messages[1]["tool_calls"]
    assert [
        {"id": "c1", "type": "function", "function": {"name": "details", "arguments": '{"champion":"droideka"}'}}
    ] == call
    assert messages == (await thread.context()).messages


async def test_C4_proactive_results_with_a_duration_are_cached(thread: Thread) -> None:
    """They are found as if the agent had called the tool itself; the others are not."""
    await thread.screen.inject("x", TOOLS)
    (entry,) = await thread.tool_cache.entries()
    assert ("details", "a tank", 2, 2, "c1", True) == (
        entry.tool, entry.result, entry.remaining, entry.duration, entry.call_id, entry.proactive
    )  # fmt: skip


async def test_C4_a_session_is_told_once(tmp_path: Path) -> None:
    """A second call gives nothing and records nothing, also after a restart."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.screen.inject("first")
        assert [] == await thread.screen.inject("second", TOOLS)
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        assert [] == await thread.screen.inject("third")
        current = await thread.screen.current()
        assert current is not None
        assert ("first", True, 1) == (current.content, await thread.screen.is_injected(), await injections(thread))


async def test_C4_of_two_calls_at_once_one_tells(thread: Thread) -> None:
    """The other gets nothing, even where both say the same."""
    told = await asyncio.gather(*(thread.screen.inject("same") for _ in range(5)))
    assert ([1, 0, 0, 0, 0], 1) == (sorted(map(len, told), reverse=True), await injections(thread))


async def test_C4_two_processes_tell_once(tmp_path: Path) -> None:
    """An engine that has not seen the other's event is told by the log."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as two:
        await one.create_thread("t")
        assert not await two.thread("t").screen.is_injected()
        assert 1 == len(await one.thread("t").screen.inject("screen"))
        assert [] == await two.thread("t").screen.inject("screen")
        assert 1 == await injections(two.thread("t"))


@pytest.mark.parametrize(
    "between",
    [
        [e.SessionEnded()],
        [e.SessionStarted(session_id="s2")],
        [e.SessionStarted()],
        [e.SessionEnded(session_id="s1"), e.SessionStarted(session_id="s1")],
    ],
)
async def test_C4_a_new_session_is_told_anew(thread: Thread, between: list[Event]) -> None:
    """The end of a session, or the start of another, allows one more."""
    await thread.dispatch(e.SessionStarted(session_id="s1"))
    await thread.screen.inject("first")
    await thread.dispatch_all(between)
    assert (False, None) == (await thread.screen.is_injected(), await thread.screen.current())
    assert (1, []) == (len(await thread.screen.inject("second")), await thread.screen.inject("third"))


async def test_C4_a_session_that_goes_on_is_not_told_again(thread: Thread) -> None:
    """A start under the same id is no new session, also where the id was known before the log knew it."""
    await thread.screen.inject("first", session_id="s1")
    await thread.dispatch(e.SessionStarted(session_id="s1"))
    await thread.dispatch(e.SessionStarted(session_id="s1"))
    assert [[], []] == [await thread.screen.inject("x", session_id=name) for name in ("", "s1")]


async def test_C4_sessions_may_be_named_by_the_caller(thread: Thread) -> None:
    """Each id is told once, in whatever order they come."""
    told = [len(await thread.screen.inject("x", session_id=name)) for name in ("s1", "s2", "s1", "s2")]
    assert [1, 1, 0, 0] == told


async def test_C4_the_words_go_with_the_session(thread: Thread) -> None:
    """What was seen on the screen is no longer in the context; the tools' results stay, as results do."""
    await thread.screen.inject("here", TOOLS[:1])
    await thread.admin.end_session()
    assert [("assistant", None), ("tool", "a tank")] == contents((await thread.context()).messages)


async def test_C4_results_under_one_call_id_are_refused(thread: Thread) -> None:
    """No provider could tell them apart; nothing is recorded."""
    with pytest.raises(errors.InvalidParameters, match="another result"):
        await thread.screen.inject("x", [TOOLS[0], TOOLS[0]])
    assert 0 == (await thread.info()).events


async def test_C4_equal_calls_without_ids_get_ids_of_their_own(thread: Thread) -> None:
    """Ids follow from place and content, so that they are the same on every machine."""
    messages = await thread.screen.inject("x", [TOOLS[1], TOOLS[1]])
    ids = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert 2 == len(set(ids))


async def test_C4_a_forgotten_screen_is_gone_and_not_told_again(thread: Thread) -> None:
    """It leaves context and cache; the session was told all the same."""
    await thread.screen.inject("secret", TOOLS)
    current = await thread.screen.current()
    assert current is not None
    await thread.forget(event_ids=[current.event_id])
    assert (None, [], [], []) == (
        await thread.screen.current(),
        await thread.tool_cache.entries(),
        (await thread.context()).messages,
        await thread.screen.inject("again"),
    )


async def test_C4_forks_and_the_past_have_their_own_screen(thread: Thread) -> None:
    """A fork from before is told for itself; as of an earlier seq nobody was."""
    await thread.dispatch(e.UserMessage(content="hello"))
    fork = await thread.fork(thread_id="f")
    await thread.screen.inject("here")
    assert [False, True] == [await thread.screen.is_injected(at=seq) for seq in (1, 2)]
    assert 1 == len(await fork.screen.inject("there"))
    assert (True, True) == ((await thread.replay.verify()).ok, (await fork.verify()).ok)


@pytest.mark.parametrize("text", ["", "\x00", "😀" * 10_000, "\u202eright to left\u202c", "x" * 1_000_000])
async def test_C4_any_text_may_stand_on_a_screen(thread: Thread, text: str) -> None:
    """It comes back as it was."""
    await thread.screen.inject(text, [ProactiveTool(tool="t", result=text, duration=1)])
    (entry,) = await thread.tool_cache.entries()
    current = await thread.screen.current()
    assert current is not None
    assert (text, text) == (current.content, entry.result)
    assert (await thread.replay.verify()).ok
