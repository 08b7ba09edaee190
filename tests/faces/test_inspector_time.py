"""What the inspector tells of time and money: tokens over a log, exchanges, tools, models, one exchange as bars."""

from pathlib import Path
from typing import cast

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, UserMessage
from memory_engine.events import LlmTextResponse, LlmToolCall
from memory_engine.inspector import routes_glance, routes_time
from memory_engine.testing import FakeCompactor
from memory_engine.thread import handle_of
from tests.browser.timed_log import MODEL, calls, make_timed
from tests.inspecting import Browser, inspected

Data = dict[str, object]


async def get(browser: Browser, name: str, **given: object) -> Data:
    """A route's data; it must succeed."""
    answer = await browser.api(name, given)
    assert answer.status == 200, answer.body
    return cast(Data, answer.data())


async def test_tokens_rise_and_fall_as_the_states_do(tmp_path: Path) -> None:
    """Every event of a short log has its own piece; of a longer one a piece keeps what was highest in it."""
    config = EngineConfig(compaction=CompactionPolicy(threshold=5, tokens_min=0, keep_recent=1))
    async with memory_engine.open(str(tmp_path / "a.db"), config=config, compactor=FakeCompactor("Short.")) as engine:
        thread = await engine.create_thread("saw")
        for n in range(12):
            await thread.dispatch(UserMessage(content=f"word{n} and so on " * 30))
            await thread.compaction.settle()
        head = await handle_of(thread).last_seq()
        expected = [(await thread.state(at=seq)).tally.tokens for seq in range(1, head + 1)]
        async with inspected(engine) as browser:
            told = await get(browser, "tokens", thread="saw")
            assert [[seq, now, now] for seq, now in enumerate(expected, 1)] == told["points"]
            assert (head, head, max(expected)) == (told["head"], told["upto"], told["highest"])
            coarse = cast(list[list[int]], (await get(browser, "tokens", thread="saw", bins=2))["points"])
            assert [max(expected[: coarse[0][0]]), max(expected[coarse[0][0] :])] == [high for _, high, _ in coarse]
            assert expected[-1] == coarse[-1][2]
            await thread.dispatch(UserMessage(content="one more"))
            await thread.compaction.settle()
            assert await handle_of(thread).last_seq() == (await get(browser, "tokens", thread="saw"))["upto"]


async def test_a_long_log_is_walked_piece_by_piece() -> None:
    """Each answer says how far it reaches; the one that reaches the end is as if it had been walked at once."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("long")
        await thread.dispatch_all([UserMessage(content=f"word {n}") for n in range(1_300)])
        async with inspected(engine) as browser:
            first = routes_time.WALKED_AT_ONCE
            try:
                routes_time.WALKED_AT_ONCE = 500
                reached = [(await get(browser, "tokens", thread="long"))["upto"] for _ in range(3)]
            finally:
                routes_time.WALKED_AT_ONCE = first
            assert [500, 1_000, 1_300] == reached
            assert 1_300 == (await get(browser, "state", thread="long", seq=1_300, limit=1))["total"]
            assert 700 == (await get(browser, "state", thread="long", seq=700, limit=1))["total"]


async def test_a_log_tells_what_it_waited_for_and_what_models_used() -> None:
    """Parallel calls are timed from call to result, failures counted, providers' and the engine's usage summed up."""
    async with memory_engine.open(":memory:") as engine:
        await make_timed(engine)
        await engine.thread("trip").dispatch(LlmToolCall(calls=calls("weather", first=9)))
        async with inspected(engine) as browser:
            told = await get(browser, "time", thread="trip")
            fall = await get(browser, "waterfall", thread="trip", seq=5)
            late = await get(browser, "waterfall", thread="trip", seq=18)
            none = await browser.api("waterfall", {"thread": "trip", "seq": 0})
    tools = {row["name"]: row for row in cast(list[Data], told["tools"])}
    assert (2, 1, 8_500_000) == tuple(tools["search_places"][name] for name in ("calls", "failed", "longest_us"))
    assert 11_500_000 == tools["book_table"]["total_us"]
    models = {row["model"]: row for row in cast(list[Data], told["models"])}
    assert (6, "answers", 17_410, 10_112, 800) == tuple(
        models[MODEL][name] for name in ("calls", "purpose", "input_tokens", "cached_tokens", "output_tokens")
    )
    assert 0.0008 == models["claude-haiku-4-5"]["cost_usd"]
    assert {"tool_error": 1} == told["failures"]
    exchanges = cast(list[Data], told["exchanges"])
    assert [(1, 10, 3, 4), (11, 14, 2, 1), (15, 18, 2, 0)] == [
        tuple(one[name] for name in ("first", "last", "calls", "tools")) for one in exchanges
    ]
    assert 15_300_000 == cast(int, exchanges[1]["ended_us"]) - cast(int, exchanges[1]["begun_us"])
    assert "Swap day 2" in str(exchanges[1]["said"])
    bars = cast(list[Data], fall["bars"])
    assert "user model tool tool tool model tool model memory".split() == [one["kind"] for one in bars]
    assert (3_300_000, 6_600_000) == (bars[2]["begin_us"], bars[2]["end_us"])
    assert [False, False, True] == [one["failed"] for one in bars[2:5]]
    assert cast(list[Data], late["bars"])[-1]["open"]
    assert 404 == none.status


async def test_a_result_in_a_user_message_begins_no_exchange() -> None:
    """Of a text loop: what the tool gave back belongs to the exchange that the person began."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("loop")
        act, seen = LlmTextResponse(content="ls"), UserMessage(content="a.py", origin="tool")
        await thread.dispatch_all([UserMessage(content="Look."), act, seen, act, seen, UserMessage(content="Stop.")])
        async with inspected(engine) as browser:
            exchanges = cast(list[Data], (await get(browser, "time", thread="loop"))["exchanges"])
            bars = cast(list[Data], (await get(browser, "waterfall", thread="loop", seq=1))["bars"])
    assert [(1, 5), (6, 6)] == [(one["first"], one["last"]) for one in exchanges]
    assert "user model tool model tool".split() == [one["kind"] for one in bars]


async def test_upkeep_goes_by_the_clock_of_what_it_follows(tmp_path: Path) -> None:
    """What was recorded long after it occurred is compacted now: that makes no wait of years."""
    config = EngineConfig(compaction=CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0))
    async with memory_engine.open(str(tmp_path / "a.db"), config=config, compactor=FakeCompactor("Short.")) as engine:
        await make_timed(engine)
        await engine.thread("trip").compaction.settle()
        async with inspected(engine) as browser:
            told = await get(browser, "time", thread="trip")
    day_us = 86_400_000_000
    assert cast(int, told["ended_us"]) - cast(int, told["begun_us"]) < day_us
    assert sum(cast(dict[str, int], told["busy_us"]).values()) < day_us


async def test_usage_that_nobody_can_read_is_passed_over() -> None:
    """A provider's words may be anything."""
    odd = ["[1]", '{"x": {"response": 3}}', '{"x": {"response": {"usage": {"prompt_tokens": "many"}}}}', '"response"{']
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("odd")
        for native in odd:
            await thread.dispatch(memory_engine.LlmTextResponse(content="hm", native=native))
        async with inspected(engine) as browser:
            told = await get(browser, "time", thread="odd")
    assert [0] == [row["input_tokens"] for row in cast(list[Data], told["models"])]


async def test_the_store_is_counted_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last used threads first, forks' shared past once; as many events as are asked for."""
    async with memory_engine.open(":memory:") as engine:
        for n in range(4):
            await make_timed(engine, f"trip {n}")
        await (await engine.thread("trip 0").at(9)).fork(thread_id="fork")
        async with inspected(engine) as browser:
            with monkeypatch.context() as patch:
                patch.setattr(routes_glance, "WALKED_AT_ONCE", 30)
                patch.setattr(routes_glance, "LOG_EVENTS", 0)
                told = [await get(browser, "glance") for _ in range(3)]
            some = await get(browser, "glance", most=20)
    assert [(30, False), (60, False), (68, True)] == [(one["counted"], one["is_done"]) for one in told]
    assert [68] == list(cast(dict[str, int], told[-1]["days"]).values())
    assert [{"type": "tool_error", "count": 4}] == told[-1]["failures"]
    assert (17, True) == (some["counted"], some["is_done"])
    models = {row["model"]: row for row in cast(list[Data], told[-1]["models"])}
    assert 4 * 17_410 == models[MODEL]["input_tokens"]
    assert {"trip 0", "trip 1", "trip 2", "trip 3"} == {row["id"] for row in cast(list[Data], told[-1]["spending"])}


async def test_many_short_logs_are_counted_piece_by_piece_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """To begin a log counts as reading some of its events, so that no request reads thousands of logs."""
    monkeypatch.setattr(routes_glance, "WALKED_AT_ONCE", 40)
    async with memory_engine.open(":memory:") as engine:
        for n in range(5):
            await (await engine.create_thread(f"short {n}")).dispatch(memory_engine.UserMessage(content="Hello"))
        async with inspected(engine) as browser:
            told = [await get(browser, "glance") for _ in range(3)]
    assert [(2, False), (4, False), (5, True)] == [(one["counted"], one["is_done"]) for one in told]


async def test_a_response_in_parts_is_counted_once() -> None:
    """Each part reports what all of the response has used so far; an engine's total says what it has used."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("parts")
        await thread.record({"role": "user", "content": "Look."})
        for n, text in enumerate(("One.", "Two.", "Three."), 1):
            usage = {"input_tokens": 100, "output_tokens": 10 * n, "cache_read_input_tokens": 50}
            around = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": None}
            await thread.record({**around, "usage": usage, "content": [{"type": "text", "text": text}]})
        async with inspected(engine) as browser:
            times = await get(browser, "time", thread="parts")
            (used,) = cast(list[Data], times["models"])
        counted = ("calls", "input_tokens", "cached_tokens", "output_tokens")
        assert [1, 150, 50, 30] == [used[key] for key in counted]
