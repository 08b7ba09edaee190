"""Engines and event loops: two loops at once, and loops that end with calls under way. Nothing hangs."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import pytest

import memory_engine
from memory_engine import Engine, Thread, UserMessage
from memory_engine.engine import kernel_of
from memory_engine.errors import EngineClosed, WrongEventLoop
from memory_engine.storage.sqlite.store import SQLiteStore
from memory_engine.thread import handle_of
from tests.cancelling import assert_nobody_writes
from tests.patience import PATIENCE_S

T = TypeVar("T")


def soon(work: Coroutine[object, object, T]) -> T:
    """The result of work on a loop of its own, which ends as loops end."""
    return asyncio.run(asyncio.wait_for(work, PATIENCE_S))


CALLS: dict[str, Callable[[Engine, Thread], Awaitable[object]]] = {
    "dispatch": lambda _, thread: thread.dispatch(UserMessage(content="I count the crates")),
    "dispatch_all": lambda _, thread: thread.dispatch_all([UserMessage(content="one"), UserMessage(content="two")]),
    "a thread nobody has used": lambda engine, _: engine.thread("unused").dispatch(UserMessage(content="Hello")),
    "create_thread": lambda engine, _: engine.create_thread("new"),
    "context": lambda _, thread: thread.context(1000, query="crates"),
    "search": lambda engine, thread: engine.search("crates", thread_ids=[thread.id]),
    "info": lambda _, thread: thread.info(),
    "latest": lambda _, thread: thread.replay.latest(3),
    "compact": lambda _, thread: thread.compact(),
    "settle": lambda engine, _: engine.settle(),
    "verify": lambda engine, _: engine.verify(),
    "erase": lambda _, thread: thread.admin.erase(seqs=[1]),
    "delete": lambda _, thread: thread.admin.delete(),
    "finish_acts": lambda engine, _: engine.admin.finish_acts(),
    "flush": lambda engine, _: engine.flush(),
    "preferences": lambda engine, _: engine.user("u").preferences.update("units", "metric"),
    "close": lambda engine, _: engine.close(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_from_another_loop_is_refused_at_once(tmp_path: Path, name: str) -> None:
    """By an error that names the engine's own loop; the engine goes on there as if nothing had been."""
    async with memory_engine.open(tmp_path / "a.db") as engine:
        thread = await engine.create_thread("shared")
        await engine.create_thread("unused")
        await thread.dispatch(UserMessage(content="We keep crates in hall 4"))

        async def call() -> object:
            return await CALLS[name](engine, thread)

        with pytest.raises(WrongEventLoop, match="run_coroutine_threadsafe") as refused:
            await asyncio.to_thread(soon, call())
        assert (repr(asyncio.get_running_loop()), True) == (refused.value.loop, refused.value.is_running)
        await asyncio.wait_for(thread.dispatch_all([UserMessage(content=f"crate {n}") for n in range(20)]), PATIENCE_S)
        assert 21 == await handle_of(thread).last_seq()


def left(path: Path, *, pending: bool) -> Engine:
    """An engine whose loop was closed without an end to its tasks, with calls under way if they are to be `pending`."""

    async def begin() -> Engine:
        engine = await memory_engine.open(path)
        thread = await engine.create_thread("t", user_id="u")
        await thread.dispatch(UserMessage(content="Crates are green"))
        await engine.settle()
        if pending:
            kept.append(asyncio.ensure_future(thread.dispatch_all([UserMessage(content="late")] * 30)))
            kept.append(asyncio.ensure_future(thread.search("crates")))
            await asyncio.sleep(0)
        return engine

    loop = asyncio.new_event_loop()
    engine = loop.run_until_complete(begin())
    loop.close()
    return engine


kept: list[asyncio.Future[object]] = []
"""Calls that nobody will hear of."""


@pytest.fixture
def _abandoned() -> object:
    """What a loop leaves behind that is closed with calls under way is not this test's fault."""
    yield
    for call in kept:
        call.get_coro().close()  # type: ignore[attr-defined]  # it is a task
        call._log_destroy_pending = False  # type: ignore[attr-defined]
    kept.clear()


@pytest.mark.usefixtures("_abandoned")
def test_a_loop_that_was_closed_with_calls_under_way(tmp_path: Path) -> None:
    """The next one is told at its first call; closing works there, frees everything, and loses nothing."""
    path = tmp_path / "a.db"
    engine = left(path, pending=True)

    async def go_on() -> None:
        for _ in range(2):
            with pytest.raises(WrongEventLoop, match=r"closed=True.*under way") as refused:
                await engine.thread("t").dispatch(UserMessage(content="Next"))
            assert not refused.value.is_running
        await engine.close()
        with pytest.raises(EngineClosed):
            await engine.thread("t").dispatch(UserMessage(content="Next"))
        assert_nobody_writes(str(path))
        async with memory_engine.open(path) as again:
            assert await handle_of(again.thread("t")).last_seq() in (1, 31)
            assert [True] == [report.ok for report in await again.verify()]

    soon(go_on())
    assert [] == [thread.name for thread in threading.enumerate() if "onnection" in thread.name]


def test_a_loop_that_was_closed_at_rest_has_a_next_one(tmp_path: Path) -> None:
    """Where nothing was under way, the engine goes on as it does in the next `asyncio.run`."""
    engine = left(tmp_path / "a.db", pending=False)

    async def go_on() -> int:
        receipt = await engine.thread("t").dispatch(UserMessage(content="Next"))
        assert "Crates are green" == (await engine.thread("t").search("green"))[0].text
        await engine.close()
        return receipt.seq

    assert 2 == soon(go_on())


def test_a_transaction_that_outlives_its_loop(tmp_path: Path) -> None:
    """Nobody hears of its end, and yet the next loop reads, writes, deletes and closes."""
    begun, may_end = threading.Event(), threading.Event()

    def slow(_raw: sqlite3.Connection) -> None:
        begun.set()
        may_end.wait(PATIENCE_S)

    async def begin() -> Engine:
        engine = await memory_engine.open(tmp_path / "a.db")
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="Crates are green"))
        store = kernel_of(engine).store
        assert isinstance(store, SQLiteStore)
        writing = asyncio.ensure_future(store._writer.run(slow))
        await asyncio.to_thread(begun.wait)
        sending = asyncio.ensure_future(thread.dispatch(UserMessage(content="Lost, or not"), event_id="lost"))
        await asyncio.sleep(0)
        assert (False, False) == (writing.done(), sending.done())
        return engine

    async def go_on() -> None:
        thread = engine.thread("t")
        sending = asyncio.ensure_future(thread.dispatch(UserMessage(content="Lost, or not"), event_id="lost"))
        await asyncio.sleep(0.01)
        may_end.set()
        assert 2 == (await sending).seq
        assert ["Crates are green", "Lost, or not"] == [event.event.content async for event in thread.events()]  # type: ignore[union-attr]
        assert (await thread.admin.delete()).is_done
        await engine.close()

    engine = asyncio.run(begin())
    soon(go_on())


@pytest.mark.usefixtures("_abandoned")
def test_closing_that_its_loop_did_not_finish(tmp_path: Path) -> None:
    """Whoever closes in the next loop finishes it; once more does nothing."""
    path = tmp_path / "a.db"

    async def begin() -> Engine:
        engine = await memory_engine.open(path)
        await (await engine.create_thread("t")).dispatch(UserMessage(content="Crates are green"))
        kept.append(asyncio.ensure_future(engine.close()))
        await asyncio.sleep(0)
        return engine

    loop = asyncio.new_event_loop()
    engine = loop.run_until_complete(begin())
    loop.close()
    soon(engine.close())
    soon(engine.close())
    assert_nobody_writes(str(path))
    assert 1 == len(sqlite3.connect(path).execute("SELECT pos FROM events").fetchall())
