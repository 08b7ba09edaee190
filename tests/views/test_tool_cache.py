"""The tool cache: keys, durations in exchanges, single flight, and everything from the log."""

import asyncio
import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.core.tool_calls import cache_key, canonical
from memory_engine.engine import kernel_of
from memory_engine.errors import StorageBusy
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore, ManualClock
from memory_engine.views.tool_cache.view import TOOL_CACHE, Flights

PARAMETERS = {"champion": "droideka", "level": 3}


async def thread_of(engine: Engine) -> Thread:
    """A new thread."""
    return await engine.create_thread("t")


async def finish(thread: Thread, count: int = 1) -> None:
    """End so many exchanges."""
    for n in range(count):
        await thread.dispatch(e.ExchangeFinished(question=f"q{n}", answer="a"))


async def remaining(thread: Thread) -> dict[str, int]:
    """What is cached, with the exchanges that are left."""
    return {entry.tool: entry.remaining for entry in await thread.tool_cache.entries()}


async def test_C3_a_cached_result_is_found() -> None:
    """What was added is found with all that is known of it, and leads back to its event."""
    async with memory_engine.open(":memory:", clock=ManualClock()) as engine:
        thread = await thread_of(engine)
        added = await thread.tool_cache.add("get", PARAMETERS, "a tank", 3, call_id="c1")
        assert added is not None
        found = await thread.tool_cache.lookup("get", PARAMETERS)
        assert found is not None
        assert ("get", '{"champion":"droideka","level":3}', PARAMETERS) == (
            found.tool, found.parameters, found.arguments
        )  # fmt: skip
        assert ("a tank", 3, 3, "c1", 1, False) == (
            found.result, found.remaining, found.duration, found.call_id, found.hits, found.proactive
        )  # fmt: skip
        recorded = (await thread.replay.latest(2))[0]
        assert (recorded.id, recorded.seq, recorded.recorded_at) == (found.event_id, found.seq, found.cached_at)


async def test_C3_the_specification_s_words_name_the_duration(engine: Engine) -> None:
    """A duration is given by either name, and read by either; neither, or both, is refused."""
    cache = (await thread_of(engine)).tool_cache
    added = await cache.add("get", PARAMETERS, "a tank", llm_cache_duration=3)
    assert added is not None
    assert ("get", 3, 3) == (added.tool_name, added.remaining_duration, added.original_duration)
    for both in ({}, {"duration": 1, "llm_cache_duration": 1}, {"llm_cache_duration": "1"}):
        with pytest.raises(errors.InvalidArgument, match="duration"):
            await cache.add("other", {}, "", **both)
    assert await cache.add("none", {}, "", llm_cache_duration=0) is None


async def test_C3_a_function_that_does_not_await_is_called_too(engine: Engine) -> None:
    """Its result is cached as any other; what it raises goes to its caller, and the next one may try again."""
    cache = (await thread_of(engine)).tool_cache
    with pytest.raises(ZeroDivisionError):
        await cache.cached_call("get", PARAMETERS, lambda: str(1 // 0), duration=3)
    first = await cache.cached_call("get", PARAMETERS, lambda: "a tank", duration=3)
    second = await cache.cached_call("get", PARAMETERS, lambda: "another", duration=3)
    assert [("a tank", False), ("a tank", True)] == [(one.result, one.hit) for one in (first, second)]


async def test_C3_parameters_in_another_order_hit(engine: Engine) -> None:
    """The order of keys, inner ones too, is no difference."""
    thread = await thread_of(engine)
    await thread.tool_cache.add("get", {"a": 1, "b": {"x": [1, 2], "y": None}}, "found", 1)
    assert await thread.tool_cache.peek("get", {"b": {"y": None, "x": (1, 2)}, "a": 1}) is not None


@pytest.mark.parametrize(
    "other", [{"a": 1.0}, {"a": True}, {"a": "1"}, {"a": [1]}, {"A": 1}, {"a": 1, "b": None}, {}, {"a": None}]
)
async def test_C3_other_parameters_miss(engine: Engine, other: dict[str, object]) -> None:
    """Values are compared as JSON writes them."""
    thread = await thread_of(engine)
    await thread.tool_cache.add("get", {"a": 1}, "found", 1)
    assert await thread.tool_cache.lookup("get", other) is None
    assert await thread.tool_cache.lookup("got", {"a": 1}) is None


async def test_C3_a_tools_name_and_its_parameters_do_not_run_together() -> None:
    """Where the name ends and the parameters begin is part of the key."""
    assert cache_key("a", "{}{}") != cache_key("a{}", "{}")


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"a": [0, math.nan]}, r"\$\.a\[1\]"),
        ({"a": math.inf}, r"\$\.a"),
        ({1: "a"}, "not a text"),
        ({"a": {2, 3}}, "set"),
        ({"a": "\ud800"}, "surrogate"),
        ({"a": 10**5000}, "digits"),
    ],
)
async def test_C3_parameters_without_a_canonical_form_are_refused(
    engine: Engine, parameters: dict[str, object], where: str
) -> None:
    """The error names the place, and nothing is recorded."""
    thread = await thread_of(engine)
    with pytest.raises(errors.InvalidParameters, match=where):
        await thread.tool_cache.add("get", parameters, "x", 1)
    with pytest.raises(errors.InvalidParameters, match=where):
        await thread.tool_cache.lookup("get", parameters)
    assert 0 == (await thread.info()).events


async def test_C3_parameters_nested_without_end_are_refused() -> None:
    """A structure that holds itself is an error, not an endless loop."""
    loop: dict[str, object] = {}
    loop["self"] = loop
    with pytest.raises(errors.InvalidParameters, match="nested"):
        canonical("get", loop)


async def test_C3_each_finished_exchange_spends_one(engine: Engine) -> None:
    """A result is there for its duration, and gone with the exchange that brings it to 0."""
    thread = await thread_of(engine)
    await thread.tool_cache.add("one", {}, "x", 1)
    await thread.tool_cache.add("three", {}, "x", 3)
    seen = [await remaining(thread)]
    for _ in range(3):
        await finish(thread)
        seen.append(await remaining(thread))
    assert [{"one": 1, "three": 3}, {"three": 2}, {"three": 1}, {}] == seen
    assert await thread.tool_cache.lookup("three", {}) is None


async def test_C3_a_hit_resets_the_duration(engine: Engine) -> None:
    """A result that is used lives on; a look without use changes nothing."""
    thread = await thread_of(engine)
    for tool in ("used", "seen"):
        await thread.tool_cache.add(tool, {}, "x", 2)
    await finish(thread)
    assert await thread.tool_cache.lookup("used", {}) is not None
    assert await thread.tool_cache.peek("seen", {}) is not None
    assert {"used": 2, "seen": 1} == await remaining(thread)
    await finish(thread)
    assert {"used": 1} == await remaining(thread)


@pytest.mark.parametrize(("duration", "failed"), [(0, False), (-1, False), (3, True)])
async def test_C3_what_is_not_to_be_kept_is_not_recorded(engine: Engine, duration: int, failed: bool) -> None:
    """No duration, or a failed call: nothing is cached and the log stays as it is."""
    thread = await thread_of(engine)
    assert await thread.tool_cache.add("get", {}, "x", duration, failed=failed) is None
    assert 0 == (await thread.info()).events


async def test_C3_the_same_call_again_takes_the_place(engine: Engine) -> None:
    """The newer result with its own duration is the one that counts."""
    thread = await thread_of(engine)
    await thread.tool_cache.add("get", {}, "old", 1)
    await thread.tool_cache.add("get", {}, "new", 5)
    await finish(thread)
    found = await thread.tool_cache.peek("get", {})
    assert found is not None
    assert ("new", 4, 1) == (found.result, found.remaining, len(await thread.tool_cache.entries()))


async def test_C3_a_duration_beyond_all_numbers_is_a_long_one(engine: Engine) -> None:
    """No row ever holds a number that the log could not give back."""
    thread = await thread_of(engine)
    await thread.tool_cache.add("get", {}, "x", 2**62)
    await finish(thread)
    assert {"get": 999_999_999} == await remaining(thread)


async def test_C3_results_can_be_dropped(engine: Engine) -> None:
    """One by one, or all."""
    thread = await thread_of(engine)
    for tool in "abc":
        await thread.tool_cache.add(tool, {}, "x", 2)
    assert (True, False) == (await thread.tool_cache.drop("a", {}), await thread.tool_cache.drop("a", {}))
    assert ["b", "c"] == [entry.tool for entry in await thread.tool_cache.entries()]
    await thread.tool_cache.clear()
    await finish(thread, 2)
    assert {} == await remaining(thread)


async def test_C3_the_cache_outlives_the_process(tmp_path: Path) -> None:
    """Durations go on where they stood."""
    path = str(tmp_path / "log.db")
    for expected in (3, 2, 1):
        async with memory_engine.open(path) as engine:
            if expected == 3:
                await (await thread_of(engine)).tool_cache.add("get", PARAMETERS, "x", 3)
            thread = engine.thread("t")
            assert {"get": expected} == await remaining(thread)
            await finish(thread)


async def test_C3_time_travel_and_forks_have_their_own_cache(engine: Engine) -> None:
    """As of an earlier seq the cache is what it was; a fork spends its own exchanges."""
    thread = await thread_of(engine)
    await thread.tool_cache.add("get", {}, "x", 2)
    fork = await thread.fork(thread_id="f")
    await finish(thread, 2)
    await finish(fork)
    assert ({}, {"get": 1}) == (await remaining(thread), await remaining(fork))
    past = await thread.tool_cache.peek("get", {}, at=2)
    assert past is not None
    assert (1, []) == (past.remaining, await thread.tool_cache.entries(at=0))
    assert (await thread.replay.verify()).ok


async def test_C3_forgetting_reaches_the_cache(engine: Engine) -> None:
    """By the event that cached it, and by the call that it answered."""
    thread = await thread_of(engine)
    by_event = await thread.tool_cache.add("by event", {}, "secret", 5)
    await thread.dispatch(e.LlmToolCall(calls=(e.ToolCall("c1", "by call"),)))
    await thread.tool_cache.add("by call", {}, "secret", 5, call_id="c1")
    result = await thread.dispatch(e.ToolResult(call_id="c1", content="secret"))
    await thread.tool_cache.add("other", {}, "open", 5, call_id="c2")
    assert by_event is not None
    await thread.forget(event_ids=[by_event.event_id, result.event_id])
    assert {"other": 5} == await remaining(thread)


class Tool:
    """A tool that counts its runs, and that may wait and fail."""

    def __init__(self, *outcomes: str | Exception, gate: asyncio.Event | None = None) -> None:
        self.outcomes = list(outcomes)
        self.gate = gate
        self.begun = asyncio.Event()
        self.runs = 0

    async def __call__(self) -> str:
        """The next outcome."""
        self.runs += 1
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_C3_a_cached_call_runs_once(engine: Engine) -> None:
    """The second call finds the first one's result."""
    thread, tool = await thread_of(engine), Tool("a", "b")
    first = await thread.tool_cache.cached_call("get", PARAMETERS, tool, duration=2)
    second = await thread.tool_cache.cached_call("get", PARAMETERS, tool, duration=2)
    assert [("a", False), ("a", True), 1] == [(first.result, first.hit), (second.result, second.hit), tool.runs]
    assert first.entry is not None
    assert second.entry is not None
    assert first.entry.key == second.entry.key


async def test_C3_equal_calls_at_once_run_the_tool_once(engine: Engine) -> None:
    """One runs, through whichever handle; the others get its result as a hit."""
    await thread_of(engine)
    gate = asyncio.Event()
    tool = Tool("a", gate=gate)
    calls = [
        asyncio.create_task(engine.thread("t").tool_cache.cached_call("get", {}, tool, duration=1)) for _ in range(20)
    ]
    await tool.begun.wait()
    gate.set()
    made = await asyncio.gather(*calls)
    assert (1, ["a"] * 20, 19) == (tool.runs, [c.result for c in made], sum(c.hit for c in made))
    assert {} == kernel_of(engine).made(Flights)


async def test_C3_calls_with_other_parameters_do_not_wait_for_each_other(engine: Engine) -> None:
    """A slow call holds up its likes only, and another thread's not at all."""
    thread, other = await thread_of(engine), await engine.create_thread("u")
    gate = asyncio.Event()
    slow = Tool("slow", gate=gate)
    waiting = asyncio.create_task(thread.tool_cache.cached_call("get", {"n": 1}, slow, duration=1))
    await slow.begun.wait()
    made = [
        await thread.tool_cache.cached_call("get", {"n": 2}, Tool("b"), duration=1),
        await other.tool_cache.cached_call("get", {"n": 1}, Tool("c"), duration=1),
    ]
    assert ["b", "c"] == [call.result for call in made]
    gate.set()
    assert "slow" == (await waiting).result


async def test_C3_a_failed_call_is_not_cached_and_harms_nobody_else(engine: Engine) -> None:
    """Its caller gets the exception; the next of those who wait runs the tool."""
    thread, gate = await thread_of(engine), asyncio.Event()
    tool = Tool(LookupError("no"), "b", gate=gate)
    calls = [asyncio.create_task(thread.tool_cache.cached_call("get", {}, tool, duration=1)) for _ in range(3)]
    await tool.begun.wait()
    gate.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(outcomes[0], LookupError)
    assert ["b", "b"] == [o.result for o in outcomes if not isinstance(o, BaseException)]
    assert 2 == tool.runs


async def test_C3_a_cancelled_call_harms_nobody_else(engine: Engine) -> None:
    """Neither the runner's end nor a waiter's touches the others."""
    thread, gate = await thread_of(engine), asyncio.Event()
    tool = Tool("b", gate=gate)
    calls = [asyncio.create_task(thread.tool_cache.cached_call("get", {}, tool, duration=1)) for _ in range(4)]
    await tool.begun.wait()
    calls[3].cancel()
    calls[0].cancel()
    await asyncio.wait([calls[0], calls[3]])
    gate.set()
    assert ["b", "b"] == [(await call).result for call in calls[1:3]]
    assert 2 == tool.runs


async def test_C3_a_call_without_a_duration_is_not_cached(engine: Engine) -> None:
    """It runs each time, unless the result is there from before."""
    thread, tool = await thread_of(engine), Tool("a", "b")
    made = [await thread.tool_cache.cached_call("get", {}, tool, duration=0) for _ in range(2)]
    assert [("a", None), ("b", None)] == [(call.result, call.entry) for call in made]
    await thread.tool_cache.add("get", {}, "kept", 1)
    assert (await thread.tool_cache.cached_call("get", {}, tool, duration=0)).hit


async def test_C3_a_result_too_large_to_record_is_returned_all_the_same() -> None:
    """The tool ran; what it gave is not lost because it cannot be cached."""
    async with memory_engine.open(":memory:", config=EngineConfig(event_bytes_max=1000)) as engine:
        thread = await thread_of(engine)
        call = await thread.tool_cache.cached_call("get", {}, Tool("x" * 2000), duration=1)
        assert ("x" * 2000, False, None) == (call.result, call.hit, call.entry)


async def test_C3_the_end_of_an_exchange_touches_what_expires_and_nothing_else(engine: Engine) -> None:
    """With thousands of results the rows of an exchange's end, and of a hit, are as few as with one."""
    thread = await thread_of(engine)
    await thread.dispatch_all(
        [e.ToolResultCached(tool="t", parameters=f'{{"n":{n}}}', result="r", duration=99) for n in range(3000)]
    )
    await thread.tool_cache.add("short", {}, "r", 1)
    before = dict((await thread.views.rows(TOOL_CACHE)).encoded())
    await finish(thread)
    after = dict((await thread.views.rows(TOOL_CACHE)).encoded())
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert 4 == len(changed)  # the count, and the three rows of what expired
    await thread.tool_cache.lookup("t", {"n": 7})
    hit = dict((await thread.views.rows(TOOL_CACHE)).encoded())
    assert 3 == len({key for key in hit.keys() | after.keys() if hit.get(key) != after.get(key)})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4))
def test_C3_the_canonical_form_reads_back_as_itself(parameters: Mapping[str, object]) -> None:
    """What a key was made of is what the parameters say, whatever the order they came in."""
    text = canonical("t", parameters)
    turned = dict(reversed(list(parameters.items())))
    assert text == canonical("t", turned)
    assert text == canonical("t", json.loads(text))


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "hit", "finish", "drop"]), st.sampled_from("abc"), st.integers(1, 4)), max_size=30
)


@settings(max_examples=30)
@given(STEPS)
async def test_C3_the_cache_does_what_a_simple_one_does(steps: list[tuple[str, str, int]]) -> None:
    """Against a model that counts every entry down at every exchange."""
    expected: dict[str, tuple[int, int]] = {}
    async with memory_engine.open(":memory:") as engine:
        thread = await thread_of(engine)
        for what, tool, duration in steps:
            if what == "add":
                expected[tool] = (duration, duration)
                await thread.tool_cache.add(tool, {}, "x", duration)
            elif what == "hit":
                found = await thread.tool_cache.lookup(tool, {})
                assert (tool in expected) == (found is not None)
                if found is not None:
                    expected[tool] = (expected[tool][1], expected[tool][1])
            elif what == "drop":
                assert (expected.pop(tool, None) is not None) == await thread.tool_cache.drop(tool, {})
            else:
                await finish(thread)
                expected = {t: (left - 1, whole) for t, (left, whole) in expected.items() if left > 1}
            assert {t: left for t, (left, _) in expected.items()} == await remaining(thread)
        assert (await thread.replay.verify()).ok


async def test_C3_a_result_that_could_not_be_cached_is_not_lost() -> None:
    """Where the store is busy, the caller has the result all the same, and the next call runs the tool."""
    store, ran = FaultyStore(MemoryStore()), []

    async def tool() -> str:
        ran.append("tool")
        return "42"

    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread()
        store.fail(StorageBusy("busy", 0.0))
        first = await thread.tool_cache.cached_call("t", {}, tool, duration=2)
        second = await thread.tool_cache.cached_call("t", {}, tool, duration=2)
        third = await thread.tool_cache.cached_call("t", {}, tool, duration=2)
        assert [("42", False), ("42", False), ("42", True)] == [(c.result, c.hit) for c in (first, second, third)]
        assert ["tool", "tool"] == ran
