"""The inspector on logs that are long, broken, forked two hundred times, or written by somebody newer."""

import asyncio
import sqlite3
import threading
from collections.abc import Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec
import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Plugin
from memory_engine import events as e
from memory_engine.context.builder import ContextBuilder
from memory_engine.context.context import Context
from memory_engine.core.events.base import Event, event
from tests.inspecting import Browser, inspected

Data = dict[str, object]
READ_ONLY = EngineConfig(read_only=True)
UNCHECKED = EngineConfig(read_only=True, check_hashes=False)
NEVER = CompactionPolicy(enabled=False)
EVENTS = 8_800
"""More than a snapshot may hold, and than are kept in one stretch of a fold."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with one log that was never compacted: every event is a chunk of the state."""
    path = str(tmp_path_factory.mktemp("long") / "agent.db")

    async def make() -> None:
        async with memory_engine.open(path) as engine:
            thread = await engine.create_thread("long", policy=NEVER)
            for first in range(0, EVENTS // 2, 100):
                turns = range(first, first + 100)
                said = [(e.UserMessage(content=f"ask {n}"), e.LlmTextResponse(content=f"say {n}")) for n in turns]
                await thread.dispatch_all([one for pair in said for one in pair])
            await thread.scratchpad.write("Sundays dip")
            await thread.compaction.mark_critical("5.0")
            await thread.fork(EVENTS - 10, thread_id="fork")
            await engine.thread("fork").dispatch(e.UserMessage(content="elsewhere"))

    asyncio.run(make())
    return path


async def get(browser: Browser, name: str, given: Mapping[str, object] | None = None) -> Data:
    """The data of a route that must answer."""
    answer = await browser.api(name, given)
    assert 200 == answer.status, answer.body
    return cast(Data, answer.data())


def rows(data: Data, name: str) -> list[Data]:
    """A list in an answer."""
    return cast(list[Data], data[name])


async def test_a_state_of_very_many_chunks_is_told_in_pages(long: str) -> None:
    """Forwards and backwards through the log, each page is that of the engine's own state, and so are the totals."""
    async with memory_engine.open(long, config=READ_ONLY) as engine, inspected(engine) as browser:
        thread = engine.thread("long")
        head = (await thread.info()).events
        for seq in (head, head - 1, 6_500, 8_500, 300, head):
            state = await thread.state(at=seq)
            placed = list(state.placed())
            for offset in (0, len(placed) - 3, len(placed)):
                page = await get(browser, "state", {"thread": "long", "seq": seq, "offset": offset, "limit": 5})
                assert [
                    (p.chunk.id, p.container, p.chunk.text, p.chunk.retention) for p in placed[offset : offset + 5]
                ] == [(row["id"], row["container"], row["text"], row["retention"]) for row in rows(page, "chunks")]
            found = await get(browser, "state", {"thread": "long", "seq": seq, "limit": 1})
            assert (len(placed), state.tally.tokens) == (found["total"], found["tokens"])
            sums = {row["type"]: row["chunks"] for row in rows(found, "by_type")}
            assert {kind: sum(p.chunk.type == kind for p in placed) for kind in {p.chunk.type for p in placed}} == sums


async def test_a_context_of_very_many_chunks_is_that_of_the_engine(long: str) -> None:
    """What fits into a budget, of thousands of chunks."""
    async with memory_engine.open(long, config=READ_ONLY) as engine, inspected(engine) as browser:
        built = await (await engine.thread("long").at(8_500)).context(500)
        found = await get(browser, "context", {"thread": "long", "seq": 8_500, "max_tokens": 500})
        assert (built.tokens, list(built.included)) == (found["tokens"], found["included"])
        assert [message["content"] for message in built.messages] == [m["content"] for m in rows(found, "messages")]


async def test_a_change_among_very_many_chunks_is_told_alone(long: str) -> None:
    """What was added, and what became another version; contexts are not compared, and say so."""
    async with memory_engine.open(long, config=READ_ONLY) as engine, inspected(engine) as browser:
        head = (await engine.thread("long").info()).events
        added = cast(Data, (await get(browser, "event", {"thread": "long", "seq": 8_000}))["change"])
        assert (["8000.0"], [], [], None) == (
            [chunk["id"] for chunk in rows(added, "added")], added["removed"], added["changed"], added["context"]
        )  # fmt: skip
        marked = await get(browser, "diff", {"thread": "long", "a": head - 1, "b": head})
        (change,) = rows(marked, "changed")
        assert ("5.0", {"retention"}, []) == (change["before"], {*cast(Data, change["fields"])}, marked["added"])
        back = await get(browser, "diff", {"thread": "long", "a": head, "b": head - 1})
        assert [(change["after"], change["before"])] == [(one["before"], one["after"]) for one in rows(back, "changed")]
        parted = await get(browser, "diff", {"thread": "long", "a": EVENTS - 10, "b": EVENTS - 9, "other": "fork"})
        assert ["elsewhere"] == [chunk["text"] for chunk in rows(parted, "added")]
        far = await get(browser, "diff", {"thread": "long", "a": 0, "b": 8_000})
        assert (2_000, [0, 6_000]) == (len(rows(far, "added")), far["left_out"])


async def test_a_long_log_tells_its_end_at_once(long: str) -> None:
    """With `quick` neither talk nor event wait for the log to be read; once it was, they are as without it."""
    async with memory_engine.open(long, config=READ_ONLY) as engine, inspected(engine) as browser:
        at = {"thread": "long", "seq": EVENTS}
        quick = await get(browser, "talk", at | {"quick": 1})
        event = await get(browser, "event", at | {"quick": 1})
        whole = await get(browser, "talk", at)
        again = await get(browser, "talk", at | {"quick": 1})
        after = await get(browser, "event", at | {"quick": 1})
    assert (True, False, False) == (quick["partial"], whole["partial"], again["partial"])
    assert (40, EVENTS) == (quick["total"], whole["total"])
    assert rows(quick, "turns") == rows(whole, "turns")
    assert (True, None, False) == (event["is_later"], event["change"], "is_later" in after)


async def test_small_and_large_are_told_apart_by_nothing_else(long: str) -> None:
    """Where the engine's own difference is at hand, the narrow one agrees with it about the chunks."""
    async with memory_engine.open(long, config=READ_ONLY) as engine, inspected(engine) as browser:
        thread = engine.thread("long")
        whole = (await thread.replay.diff(8_000, 8_010)).as_data()
        found = await get(browser, "diff", {"thread": "long", "a": 8_000, "b": 8_010})
        for name in ("a", "b", "added", "removed", "changed", "moved", "compacted", "restored", "tokens", "chunks"):
            assert msgspec.json.decode(msgspec.json.encode(whole[name])) == found[name], name


async def test_what_takes_minutes_is_refused(long: str) -> None:
    """A ledger of contexts of thousands of chunks each is cut short; where a state has too many, there is none."""
    async with memory_engine.open(long, config=READ_ONLY) as engine, inspected(engine) as browser:
        found = await get(browser, "ledger", {"thread": "long", "after": 0})
        assert cast(int, found["upto"]) - cast(int, found["after"]) < 300
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        thread = await engine.create_thread("t", policy=NEVER)
        for _ in range(11):
            await thread.dispatch(
                e.ThreadSeeded(chunks=tuple(e.InitialChunk(type="note", content="x") for _ in range(1_000)))
            )
        answer = await browser.api("ledger", {"thread": "t"})
        assert (409, "TooMuch") == (answer.status, cast(dict[str, Data], answer.data())["error"]["type"])


async def test_others_are_served_while_one_waits(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that takes long holds up no other: a short one that comes later is answered before it."""
    begun, go_on = threading.Event(), threading.Event()

    build = ContextBuilder.build

    @wraps(build)
    def slowly(*given: Any, **named: Any) -> Context:
        begun.set()
        go_on.wait()
        return build(*given, **named)

    monkeypatch.setattr(ContextBuilder, "build", slowly)
    async with memory_engine.open(long, config=READ_ONLY) as engine, inspected(engine) as browser:
        order: list[str] = []

        async def ask(name: str, given: Mapping[str, object]) -> None:
            await get(browser, name, given)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            group.create_task(ask("context", {"thread": "long", "seq": EVENTS}))
            await asyncio.to_thread(begun.wait)
            for _ in range(5):
                await ask("threads", {})
            go_on.set()
        assert ["threads"] * 5 + ["context"] == order


async def test_a_log_is_paged_and_searched_to_its_end(long: str) -> None:
    """Each event once; what is rare is found at any distance; a type alone is found without reading the rest."""
    async with memory_engine.open(long, config=READ_ONLY) as engine, inspected(engine) as browser:
        head = (await engine.thread("long").info()).events
        found: list[object] = []
        while page := rows(
            await get(browser, "timeline", {"thread": "long", "after": len(found), "limit": 1_000}), "events"
        ):
            found += [row["seq"] for row in page]
        assert [*range(1, head + 1)] == found
        rare = await get(browser, "find", {"thread": "long", "q": "SAY 4321"})
        assert ([8_644], None) == ([row["seq"] for row in rows(rare, "events")], rare["next"])
        kind = await get(browser, "find", {"thread": "long", "type": "memory_mark_critical"})
        assert [head] == [row["seq"] for row in rows(kind, "events")]


# forks


async def test_a_tree_of_two_hundred_forks() -> None:
    """All of them, each at its point, whichever thread is asked about."""
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        root = await engine.create_thread("root")
        for n in range(4):
            await root.dispatch(e.UserMessage(content=f"line {n}"))
        for n in range(200):
            origin = engine.thread("root" if n % 3 or not n else f"fork {n - 3}")
            at = n % (1 + (await origin.info()).events)
            await origin.fork(at, thread_id=f"fork {n}")
        tree = await get(browser, "forks", {"thread": "fork 198"})
        expected = {info.id: (info.forked_from.seq if info.forked_from else None) for info in await engine.threads()}
        assert expected == _flat(tree)
        outline = await get(browser, "outline", {"thread": "root"})
        assert len(rows(tree, "children")) == len(rows(outline, "forks"))


def _flat(tree: Data) -> dict[object, object]:
    found: dict[object, object] = {}
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        found[node["id"]] = node["seq"]
        waiting += rows(node, "children")
    return found


async def test_a_chain_of_forks_may_be_deep() -> None:
    """A fork of a fork of a fork, deeper than Python's stack: the tree is told, and the log of the last one read."""
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        thread = await engine.create_thread("0")
        await thread.dispatch(e.UserMessage(content="Hello"))
        for n in range(1, 700):
            thread = await thread.fork(thread_id=str(n))
        answer = await browser.api("forks", {"thread": "350"})
        assert (200, 700, 700) == (answer.status, answer.body.count(b'"children"'), answer.body.count(b'"seq"'))
        assert [1] == [row["seq"] for row in rows(await get(browser, "timeline", {"thread": "699"}), "events")]


# logs that are not as they should be


async def make_log(path: str) -> None:
    """Six lines, the fourth of which becomes unreadable."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        for n in range(1, 7):
            await thread.dispatch(e.UserMessage(content=f"line {n}"))


def _write(path: str, statement: str, values: tuple[object, ...] = ()) -> None:
    raw = sqlite3.connect(path)
    with raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        assert 1 == raw.execute(statement, values).rowcount
    raw.close()


async def test_an_event_that_cannot_be_read_is_shown_as_such(tmp_path: Path) -> None:
    """The timeline goes on behind it; what asks for it alone says what is wrong, and where."""
    path = str(tmp_path / "agent.db")
    await make_log(path)
    _write(path, "UPDATE events SET payload = ? WHERE pos & 4294967295 = 4", (b'{"content":',))
    async with memory_engine.open(path, config=READ_ONLY) as engine, inspected(engine) as browser:
        page = rows(await get(browser, "timeline", {"thread": "t"}), "events")
        assert [(n, n == 4) for n in range(1, 7)] == [(row["seq"], row.get("broken", False)) for row in page]
        assert str(page[3]["said"]).startswith("cannot be read: ")
        assert [3] == [row["seq"] for row in rows(await get(browser, "find", {"thread": "t", "q": "line 3"}), "events")]
        answer = await browser.api("event", {"thread": "t", "seq": 4})
        assert (500, "IntegrityError") == (answer.status, cast(dict[str, Data], answer.data())["error"]["type"])
        assert 500 == (await browser.api("state", {"thread": "t", "seq": 6})).status
        assert "line 3" == rows(await get(browser, "state", {"thread": "t", "seq": 3}), "chunks")[2]["text"]


async def test_a_gap_is_named(tmp_path: Path) -> None:
    """No empty page in place of what is missing."""
    path = str(tmp_path / "agent.db")
    await make_log(path)
    _write(path, "DELETE FROM events WHERE pos & 4294967295 = 4")
    async with memory_engine.open(path, config=READ_ONLY) as engine, inspected(engine) as browser:
        asked: list[tuple[str, Data]] = [
            ("timeline", {}), ("find", {"q": "x"}), ("state", {"seq": 6}), ("event", {"seq": 4})
        ]  # fmt: skip
        for name, given in asked:
            answer = await browser.api(name, {"thread": "t", **given})
            error = cast(dict[str, Data], answer.data())["error"]
            assert (500, "IntegrityError") == (answer.status, error["type"])
            assert "4" in str(error["message"])


@event("inspector_newer")
class Newer(Event):
    """An event of a program that the inspector does not know."""

    words: dict[str, str]
    event_tracked: ClassVar[bool] = False


async def test_events_of_another_program_are_shown(tmp_path: Path) -> None:
    """Their type and payload, found by their words, though nobody knows what they mean; what is no JSON as text."""
    path = str(tmp_path / "agent.db")
    async with memory_engine.open(path, plugins=[Plugin("newer", events=[Newer])]) as engine:
        thread = await engine.create_thread("t")
        for n in range(2):
            await thread.dispatch(Newer(words={"note": f"unheard of {n}"}))
    _write(path, "UPDATE events SET payload = ? WHERE pos & 4294967295 = 2", (b'{"words": "\\ud800"}',))
    # unchecked: the other program would have written it so
    async with memory_engine.open(path, config=UNCHECKED) as engine, inspected(engine) as browser:
        page = rows(await get(browser, "timeline", {"thread": "t"}), "events")
        assert [("inspector_newer", "other")] * 2 == [(row["type"], row["role"]) for row in page]
        assert [1] == [
            row["seq"] for row in rows(await get(browser, "find", {"thread": "t", "q": "Unheard"}), "events")
        ]
        first, second = [await get(browser, "event", {"thread": "t", "seq": seq}) for seq in (1, 2)]
        assert ({"words": {"note": "unheard of 0"}}, '{"words": "\\ud800"}') == (first["payload"], second["payload"])


async def test_a_store_that_is_written_to_is_shown_as_it_is_now() -> None:
    """An inspector in the very process that writes: what is asked next is there."""
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        thread = await engine.create_thread("t", policy=NEVER)
        for n in range(1, 40):
            await thread.dispatch(e.UserMessage(content=f"line {n}"))
            assert n == (await get(browser, "timeline", {"thread": "t", "after": n - 1}))["head"]
            assert n == (await get(browser, "state", {"thread": "t", "seq": n}))["total"]
        await thread.forget(chunk_ids=["3.0"])
        found = await get(browser, "state", {"thread": "t", "seq": 40})
        assert "3.0" not in [row["id"] for row in rows(found, "chunks")]
        await get(browser, "why", {"thread": "t", "chunk": "4.0"})
        await thread.admin.delete()
        asked: list[tuple[str, Data]] = [
            ("timeline", {}), ("state", {"seq": 40}), ("outline", {}), ("chunk", {"id": "1.0"})
        ]  # fmt: skip
        for name, given in asked:
            assert 404 == (await browser.api(name, {"thread": "t", **given})).status
