"""Threads of another user or tenant: their checkpoints, items and messages are neither read nor changed."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.base import BaseStore, GetOp

import memory_engine
from memory_engine import EngineConfig
from memory_engine.errors import InvalidArgument, ScopeRequired, ThreadDiffers
from memory_engine.integrations.langgraph import MemoryEngineSaver, MemoryEngineStore
from tests.integrations.scoped import SECRET, THREAD, Apart, Asked, Contract, Table, all_of, logs, public

CONFIG: Any = {"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}
OTHER = "owls"
CHECKPOINT: Any = {**empty_checkpoint(), "id": "1f0", "channel_values": {"messages": [HumanMessage(SECRET, id="m1")]}}
CHECKPOINT["channel_versions"] = {"messages": "1"}
AT: Any = {"configurable": {"thread_id": THREAD, "checkpoint_ns": "", "checkpoint_id": "1f0"}}
WRITES: Sequence[tuple[str, Any]] = [("messages", AIMessage("I know it."))]
METADATA: Any = {"source": "loop", "step": 1, "parents": {}, "run_id": "run-1"}


def beside(method: str, *words: Any, shows: bool = False, **named: Any) -> Asked[MemoryEngineSaver]:
    """A blocking method, called from another thread."""

    def called(saver: MemoryEngineSaver) -> object:
        found = getattr(saver, method)(*words, **named)
        return [*found] if method == "list" else found

    return Asked(lambda saver: asyncio.to_thread(called, saver), shows=shows)


def awaited(method: str, *words: Any, shows: bool = False, **named: Any) -> Asked[MemoryEngineSaver]:
    """A method that is awaited."""
    return Asked(lambda saver: getattr(saver, method)(*words, **named), shows=shows)


PUT = (CONFIG, {**CHECKPOINT, "id": "1f1"}, METADATA, {"messages": "2"})
DELTAS: Any = {"config": AT, "channels": ["messages"]}
ASKED = HumanMessage("Where does the spare key of the observatory hang?")
SAVER: Table[MemoryEngineSaver] = {
    "aget": [awaited("aget", CONFIG, shows=True), awaited("aget", AT)],
    "get": [beside("get", CONFIG, shows=True)],
    "aget_tuple": [awaited("aget_tuple", CONFIG, shows=True), awaited("aget_tuple", AT, shows=True)],
    "get_tuple": [beside("get_tuple", CONFIG, shows=True)],
    "alist": [
        Asked(lambda saver: all_of(saver.alist(CONFIG)), shows=True),
        Asked(lambda saver: all_of(saver.alist(None)), "hidden", shows=True),
    ],
    "list": [
        beside("list", CONFIG, shows=True),
        Asked(lambda saver: asyncio.to_thread(lambda: [*saver.list(None)]), "hidden", shows=True),
    ],
    "aget_delta_channel_history": [awaited("aget_delta_channel_history", **DELTAS)],
    "get_delta_channel_history": [beside("get_delta_channel_history", **DELTAS)],
    "aput": [awaited("aput", *PUT)],
    "put": [beside("put", *PUT)],
    "aput_writes": [awaited("aput_writes", AT, WRITES, "task")],
    "put_writes": [beside("put_writes", AT, WRITES, "task")],
    "awith_brief": [awaited("awith_brief", CONFIG, [], shows=True)],
    "awith_recall": [awaited("awith_recall", CONFIG, [ASKED], shows=True)],
    "aprune": [awaited("aprune", [THREAD], strategy="delete"), awaited("aprune", [THREAD])],
    "prune": [beside("prune", [THREAD], strategy="delete")],
    "adelete_thread": [awaited("adelete_thread", THREAD)],
    "delete_thread": [beside("delete_thread", THREAD)],
    "acopy_thread": [awaited("acopy_thread", THREAD, OTHER), awaited("acopy_thread", OTHER, THREAD)],
    "copy_thread": [beside("copy_thread", THREAD, OTHER)],
    "adelete_for_runs": [Asked(lambda saver: saver.adelete_for_runs(["run-1"]), "hidden")],
    "delete_for_runs": [Asked(lambda saver: asyncio.to_thread(saver.delete_for_runs, ["run-1"]), "hidden")],
    "with_allowlist": [Asked(lambda saver: saver.with_allowlist(()).aget_tuple(CONFIG), shows=True)],
    "get_next_version": Apart("it counts"),
}


async def test_every_method_of_a_saver_asks_whose_the_thread_is() -> None:
    """Of each user and tenant, also where one is left out; lists over all threads show only one's own."""

    async def seed(saver: MemoryEngineSaver) -> None:
        await saver.aput(CONFIG, CHECKPOINT, METADATA, {"messages": "1"})

    await Contract(
        methods=public(MemoryEngineSaver),
        make=lambda engine, user, tenant: MemoryEngineSaver(engine, user_id=user, tenant_id=tenant, recall=True),
        seed=seed,
        table=SAVER,
    ).check()
    assert public(BaseCheckpointSaver) <= SAVER.keys()


async def test_several_threads_are_asked_for_before_the_first_is_pruned() -> None:
    """One of another user among them, and nothing is dropped."""
    async with memory_engine.open(":memory:") as engine:
        ann, bob = (MemoryEngineSaver(engine, user_id=user) for user in ("ann", "bob"))
        mine: Any = {"configurable": {"thread_id": "mine", "checkpoint_ns": ""}}
        await ann.aput(CONFIG, CHECKPOINT, METADATA, {"messages": "1"})
        await bob.aput(mine, CHECKPOINT, METADATA, {"messages": "1"})
        before = await logs(engine)
        with pytest.raises(ThreadDiffers):
            await bob.aprune(["mine", THREAD], strategy="delete")
        assert before == await logs(engine)


class Talk(TypedDict):
    """The state of the graph."""

    messages: Annotated[list[Any], add_messages]


async def test_a_node_is_given_nothing_of_another_user() -> None:
    """It does not run, and what it is for stays as it was."""
    seen: list[str] = []

    def answer(state: Talk) -> dict[str, Any]:
        seen.append(str(state["messages"]))
        return {"messages": [AIMessage("Noted.")]}

    builder = StateGraph(Talk)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    async with memory_engine.open(":memory:") as engine:
        ann = builder.compile(checkpointer=MemoryEngineSaver(engine, user_id="ann", tenant_id="acme"))
        await ann.ainvoke({"messages": [HumanMessage(SECRET)]}, CONFIG)
        before = await logs(engine)
        for user, tenant in (("bob", "acme"), ("ann", "umbrella"), ("ann", ""), ("", "acme"), ("", "")):
            graph = builder.compile(checkpointer=MemoryEngineSaver(engine, user_id=user, tenant_id=tenant))
            with pytest.raises(ThreadDiffers):
                await graph.ainvoke({"messages": [HumanMessage("Where is the key?")]}, CONFIG)
            with pytest.raises(ThreadDiffers):
                await graph.aget_state(CONFIG)
        assert before == await logs(engine)
    assert 1 == len(seen)


# the store: one thread a tenant, whose id holds the tenant

NAMESPACE, KEY = ("observatory",), "key"


def of_store(method: str, *words: Any, shows: bool = False, **named: Any) -> Sequence[Asked[MemoryEngineStore]]:
    """A method that is awaited, and its blocking twin."""
    blocking = method.removeprefix("a")
    return [
        Asked(lambda store: getattr(store, method)(*words, **named), "hidden", shows),
        Asked(lambda store: asyncio.to_thread(getattr(store, blocking), *words, **named), "hidden", shows),
    ]


STORE: Table[MemoryEngineStore] = {
    name: entry
    for method, entry in {
        "aget": of_store("aget", NAMESPACE, KEY, shows=True),
        "asearch": of_store("asearch", NAMESPACE, query="where is the spare key?", shows=True),
        "alist_namespaces": of_store("alist_namespaces"),
        "aput": of_store("aput", NAMESPACE, "other", {"text": "Mine."}),
        "adelete": of_store("adelete", NAMESPACE, KEY),
        "abatch": of_store("abatch", [GetOp(NAMESPACE, KEY)], shows=True),
        "asweep_ttl": of_store("asweep_ttl"),
    }.items()
    for name in (method, method.removeprefix("a"))
}


async def test_every_method_of_a_store_stays_in_its_tenant() -> None:
    """Another tenant's items are not there."""

    async def seed(store: MemoryEngineStore) -> None:
        await store.aput(NAMESPACE, KEY, {"text": SECRET})

    await Contract(
        methods=public(MemoryEngineStore),
        make=lambda engine, _user, tenant: MemoryEngineStore(engine, tenant_id=tenant),
        seed=seed,
        table=STORE,
        owners=[("", ""), ("", "acme")],
        askers=[("", ""), ("", "acme"), ("", "umbrella")],
    ).check()
    assert public(BaseStore) <= STORE.keys()


async def test_a_store_takes_a_thread_or_a_tenant() -> None:
    """Not both, since the thread has a tenant of its own; and one of them where the engine requires a scope."""
    async with memory_engine.open(":memory:", config=EngineConfig(scopes_required=True)) as engine:
        with pytest.raises(InvalidArgument, match="tenant_id"):
            MemoryEngineStore(engine, thread=engine.user("ann", tenant_id="acme"), tenant_id="umbrella")
        with pytest.raises(ScopeRequired):
            MemoryEngineStore(engine)
        with pytest.raises(ScopeRequired):
            await MemoryEngineSaver(engine).aget_tuple(CONFIG)
        with pytest.raises(ScopeRequired):
            await all_of(MemoryEngineSaver(engine).alist(None))
        store = MemoryEngineStore(engine, thread=engine.user("ann", tenant_id="acme"))
        await store.aput(NAMESPACE, KEY, {"text": SECRET})
        found = await store.aget(NAMESPACE, KEY)
        assert found is not None
        assert {"text": SECRET} == found.value
