"""LangGraph's store on a memory: kept, found, filtered, over; from graphs, batches, loops and threads."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp

import memory_engine
from memory_engine.errors import InvalidArgument, InvalidEvent
from memory_engine.integrations.langgraph_store import MemoryEngineStore
from memory_engine.testing import ManualClock
from memory_engine.thread import handle_of
from tests.integrations.langgraph.test_conformance import BACK_ENDS


@pytest.mark.parametrize("back_end", BACK_ENDS)
async def test_a_graph_keeps_and_finds_items(back_end: str, tmp_path: Path) -> None:
    """On each back end; each change is an event of the tenant's thread of the kind `store`."""

    async def keep(state: dict[str, Any], runtime: Runtime) -> dict[str, Any]:
        assert runtime.store is not None
        await runtime.store.aput(("ann", "facts"), "cat", {"text": "The cat is called Tom.", "year": 2024})
        await runtime.store.aput(("ann", "facts"), "dog", {"text": "The dog is called Rex.", "year": 2025})
        found = await runtime.store.asearch(("ann",), query="what is the cat called?", limit=1)
        return {**state, "found": found[0].value["text"]}

    builder: Any = StateGraph(dict)
    builder.add_node("keep", keep)
    builder.add_edge(START, "keep")
    async with memory_engine.open(BACK_ENDS[back_end](tmp_path)) as engine:
        store = MemoryEngineStore(engine, tenant_id="acme")
        state = await builder.compile(store=store).ainvoke({"asked": True})
        assert "The cat is called Tom." == state["found"]
        assert [] == await MemoryEngineStore(engine).asearch(())
        thread = engine.thread("store:acme/langgraph")
        assert ("store", "acme") == ((await thread.info()).kind, (await thread.info()).tenant_id)
        assert ["item_put", "item_put"] == [event.type async for event in thread.events()]
        assert [("ann", "facts")] == await store.alist_namespaces()
        assert ["dog"] == [one.key for one in await store.asearch(("ann",), query="called", filter={"year": 2025})]


async def test_a_batch_is_one_commit_and_reads_what_was_before_it() -> None:
    """The last put of a name wins; what JSON cannot say leaves all as it was."""
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineStore(engine, thread=engine.user("ann"))
        puts = [PutOp(("a",), "k", {"n": n}) for n in range(3)]
        results = await store.abatch([*puts, GetOp(("a",), "k"), SearchOp(("a",)), PutOp(("a",), "gone", None)])
        assert [None, None, None, None, [], None] == results
        assert 1 == await handle_of(engine.user("ann")).last_seq()
        with pytest.raises(InvalidEvent):
            await store.abatch([PutOp(("a",), "x", {}), PutOp(("a",), "y", {"when": asyncio})])
        with pytest.raises(InvalidArgument, match="ops"):
            await store.abatch(["get"])
        items = await store.asearch(())
        assert [("k", {"n": 2})] == [(item.key, item.value) for item in items]


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ({"n": 2}, ["b"]),
        ({"n": {"$eq": 2}}, ["b"]),
        ({"n": {"$ne": 2}}, ["a", "c", "d"]),
        ({"n": {"$gt": 1, "$lt": 3}}, ["b"]),
        ({"n": {"$gte": 2}}, ["b", "c"]),
        ({"n": {"$lte": 2}}, ["a", "b"]),
        ({"day": {"$gt": "2025-01"}}, ["b"]),
        ({"deep": {"x": {"$gt": 0}}}, ["a"]),
        ({"deep.x": 1}, ["a"]),
        ({"tags": ["x", {"$gt": 1}]}, ["c"]),
        ({"nothing": {"$gt": 1}}, []),
        ({"n": {"$gt": float("nan")}}, []),
    ],
)
async def test_filters_are_those_of_langgraphs_stores(filter: dict[str, Any], found: list[str]) -> None:
    """Numbers as numbers, texts as texts; a field that is not there is neither above nor below."""
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineStore(engine)
        values: dict[str, dict[str, Any]] = {
            "a": {"n": 1, "deep": {"x": 1}, "day": "2024-12-31"},
            "b": {"n": 2, "day": "2025-02-01"},
            "c": {"n": 3, "tags": ["x", 2]},
            "d": {"tags": ["x"]},
        }
        await store.abatch([PutOp(("s",), key, value) for key, value in values.items()])
        assert found == [item.key for item in await store.asearch((), filter=filter)]


async def test_an_unknown_operator_is_refused() -> None:
    """Also where nothing is there to be compared."""
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(InvalidArgument, match=r"\$in"):
            await MemoryEngineStore(engine).asearch((), filter={"n": {"$in": [1]}})
        conditions = (MatchCondition("infix", ("a",)),)
        store = MemoryEngineStore(engine)
        await store.aput(("a",), "k", {})
        with pytest.raises(InvalidArgument, match="infix"):
            await store.abatch([ListNamespacesOp(match_conditions=conditions)])


async def test_an_item_is_kept_for_its_time_after_its_last_read() -> None:
    """A read that does not refresh does not count; a sweep deletes what is over."""
    clock = ManualClock()
    async with memory_engine.open(":memory:", clock=clock) as engine:
        store = MemoryEngineStore(engine, ttl={"default_ttl": 10, "refresh_on_read": True})
        await store.aput(("a",), "k", {"text": "tea"})
        await store.aput(("a",), "ever", {"text": "cat"}, ttl=None)
        for _ in range(3):
            clock.advance(9 * 60)
            assert None is not await store.aget(("a",), "k")
        clock.advance(9 * 60)
        assert ["k"] == [item.key for item in await store.asearch(("a",), query="tea", refresh_ttl=False)]
        clock.advance(60)
        assert (None, []) == (await store.aget(("a",), "k"), await store.asearch(("a",), query="tea"))
        assert ["ever"] == [item.key for item in await store.asearch(("a",))]
        assert (1, 0) == (await store.asweep_ttl(), await store.asweep_ttl())


async def test_calls_without_await_come_from_other_threads_and_loops() -> None:
    """On the engine's own loop such a call could not come to an end."""
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineStore(engine)

        def elsewhere() -> None:
            store.put(("a",), "k", {"n": 1})
            assert {"n": 1} == asyncio.run(store.aget(("a",), "k")).value
            assert 0 == store.sweep_ttl()

        await asyncio.to_thread(elsewhere)
        with pytest.raises(RuntimeError, match="await its twin"):
            store.batch([GetOp(("a",), "k")])
