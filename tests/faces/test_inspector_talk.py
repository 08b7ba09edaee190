"""The inspector's routes for talk and recall: turns in pages, what a summary covers, the parts of a score."""

from pathlib import Path
from typing import cast

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, LlmTextResponse, UserMessage
from memory_engine.core.events.base import ImagePart, TextPart, ToolCall
from memory_engine.core.events.tasks import TodoItem
from memory_engine.engine import kernel_of
from memory_engine.events import LlmToolCall, TodoSet, ToolResult
from memory_engine.inspector import talk_end
from memory_engine.inspector.states import turns_of
from memory_engine.testing import FakeCompactor
from memory_engine.thread import handle_of
from tests.browser.browsed_logs import make_folds
from tests.inspecting import Browser, inspected

Data = dict[str, object]


async def get(browser: Browser, name: str, **given: object) -> Data:
    """The data of a route that must answer."""
    answer = await browser.api(name, given)
    assert 200 == answer.status, answer.body
    return cast(Data, answer.data())


def turns(data: Data) -> list[list[Data]]:
    """The turns of an answer, each with its lines."""
    return cast(list[list[Data]], data["turns"])


async def test_calls_stand_with_their_results_and_notes_stand_aside() -> None:
    """A turn is a message, or calls and what follows them; pictures beyond what a page may hold are only named."""
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        thread = await engine.create_thread("t")
        large = f"data:image/png;base64,{'A' * 5_000_000}"
        await thread.dispatch(UserMessage(content=(TextPart("see"), ImagePart(large, alt="large"))))
        await thread.scratchpad.write("a note")
        calls = tuple(ToolCall(f"c{n}", "look") for n in (1, 2))
        await thread.dispatch(LlmToolCall(content="I look.", calls=calls))
        for call in calls:
            await thread.dispatch(ToolResult(call_id=call.id, name="look", content=f"seen by {call.id}"))
        await thread.dispatch(LlmTextResponse(content="x" * 30_000))
        found = await get(browser, "talk", thread="t", seq=6)
        said = turns(found)
        assert [[1], [3, 4, 5], [6]] == [[line["seq"] for line in turn] for turn in said]
        assert [{"text": "see", "chars": 3}, {"image": "", "alt": "large"}] == said[0][0]["parts"]
        assert ["", "c1", "c2"] == [line["call_id"] for line in said[1]]
        (cut,) = cast(list[Data], said[2][0]["parts"])
        assert (20_000, 30_000) == (len(cast(str, cut["text"])), cut["chars"])
        assert ([], 0) == (turns(empty := await get(browser, "talk", thread="t", seq=0)), empty["total"])


async def test_the_last_page_comes_first_and_folds_open(tmp_path: Path) -> None:
    """Pages by offset; a summary tells how many it covers, and gives them as talk; before it, there is none."""
    path = str(tmp_path / "folds.db")
    await make_folds(path)
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine, inspected(engine) as browser:
        head = (await engine.thread("folds").info()).events
        found = await get(browser, "talk", thread="folds", seq=head, limit=2)
        assert (cast(int, found["total"]) - 1) // 2 * 2 == found["offset"]
        first = turns(await get(browser, "talk", thread="folds", seq=head, offset=0, limit=1))[0][0]
        assert "compacted" == first["type"]
        behind = await get(browser, "talk", thread="folds", seq=head, chunk=first["id"], offset=0)
        assert first["covers"] == behind["total"] == len(turns(behind))
        early = await get(browser, "talk", thread="folds", seq=1)
        assert (1, "agent_response") == (early["total"], turns(early)[0][0]["type"])


async def test_recall_tells_what_each_signal_adds() -> None:
    """The parts of a hit's score sum up to it, and nothing that was said later is found."""
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        thread = await engine.create_thread("t")
        for text in ("The launch is in May.", "Lunch was good.", "The launch is in June."):
            await thread.dispatch(UserMessage(content=text))
        found = await get(browser, "recall", thread="t", seq=2, query="When is the launch?")
        hits = cast(list[Data], found["hits"])
        assert 1 == hits[0]["seq"]
        assert 3 not in [hit["seq"] for hit in hits]
        parts = cast(dict[str, float], hits[0]["parts"])
        assert abs(sum(parts.values()) - cast(float, hits[0]["score"])) < 0.01
        assert [] == (await get(browser, "recall", thread="t", seq=0, query="launch"))["hits"]
        assert 400 == (await browser.api("recall", {"thread": "t", "seq": 1})).status


async def test_a_ledger_says_how_many_calls_there_are() -> None:
    """Also of those that it does not look at."""
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        thread = await engine.create_thread("t")
        for n in range(4):
            await thread.dispatch_all([UserMessage(content=f"ask {n}"), LlmTextResponse(content=f"say {n}")])
        found = await get(browser, "ledger", thread="t", after=4)
        assert (2, 4) == (len(cast(list[Data], found["calls"])), found["all_calls"])


async def test_the_end_of_a_talk_is_told_without_what_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever one looks, the last events give the turns that the whole state ends with, or say that they cannot."""
    monkeypatch.setattr(talk_end, "EVENTS", 9)
    config = EngineConfig(compaction=CompactionPolicy(threshold=8, tokens_min=0, keep_recent=2))
    async with memory_engine.open(":memory:", config=config, compactor=FakeCompactor("Short.")) as engine:
        thread = await engine.create_thread("t")
        for n in range(30):
            match n % 6:
                case 0:
                    await thread.dispatch(TodoSet(items=(TodoItem(id=str(n), text="do it"),)))
                case 1:
                    await thread.dispatch(LlmToolCall(calls=(ToolCall(f"c{n}", "look", "{}"),)))
                    await thread.dispatch(ToolResult(call_id=f"c{n}", name="look", content=f"seen {n}"))
                case 2:
                    await thread.compaction.mark_critical(f"{await handle_of(thread).last_seq()}.0")
                case 3:
                    await thread.scratchpad.write(f"note {n}")
                case _:
                    await thread.dispatch(UserMessage(content=f"word {n} and so on " * 5))
            await thread.compaction.settle()
        reader, told = kernel_of(engine).reader, 0
        for seq in range(1, await handle_of(thread).last_seq() + 1):
            whole = turns_of(placed.chunk for placed in (await thread.state(at=seq)).placed())
            last = await talk_end.last_turns(reader, "t", seq, 3)
            told += last is not None
            assert last is None or list(last) == list(whole)[-len(last) :]
    assert told > 20
