"""Keys of another user or tenant are neither read nor changed, nor listed."""

from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.schema import BaseComponent
from llama_index.core.storage.chat_store.base import BaseChatStore

from memory_engine import EngineConfig, sync
from memory_engine.errors import ScopeRequired
from memory_engine.integrations.llama_index import MemoryEngineChatStore
from tests.integrations.scoped import SECRET, THREAD, Asked, Contract, Table, public

SAID = [ChatMessage(role=MessageRole.USER, content=SECRET), ChatMessage(role=MessageRole.ASSISTANT, content="Noted.")]
MINE = ChatMessage(role=MessageRole.USER, content="Mine.")


def asked(method: str, *words: Any, shows: bool = False) -> Asked[MemoryEngineChatStore]:
    """A method that blocks."""

    async def call(store: MemoryEngineChatStore) -> object:
        return getattr(store, method)(*words)

    return Asked(call, shows=shows)


def awaited(method: str, *words: Any, shows: bool = False) -> Asked[MemoryEngineChatStore]:
    """A method that is awaited."""
    return Asked(lambda store: getattr(store, method)(*words), shows=shows)


async def keys(store: MemoryEngineChatStore) -> object:
    """The keys of a store."""
    return store.get_keys()


ASKED = ChatMessage(content="Where does the spare key of the observatory hang?")
TABLE: Table[MemoryEngineChatStore] = {
    "get_messages": [asked("get_messages", THREAD, shows=True)],
    "aget_messages": [awaited("aget_messages", THREAD, shows=True)],
    "with_brief": [asked("with_brief", THREAD, [MINE], shows=True)],
    "with_recall": [asked("with_recall", THREAD, [ASKED], shows=True)],
    "set_messages": [asked("set_messages", THREAD, [MINE]), asked("set_messages", THREAD, [])],
    "aset_messages": [awaited("aset_messages", THREAD, [MINE])],
    "add_message": [asked("add_message", THREAD, MINE)],
    "async_add_message": [awaited("async_add_message", THREAD, MINE)],
    "delete_messages": [asked("delete_messages", THREAD, shows=True)],
    "adelete_messages": [awaited("adelete_messages", THREAD, shows=True)],
    "delete_message": [asked("delete_message", THREAD, 0, shows=True), asked("delete_message", THREAD, 9)],
    "adelete_message": [awaited("adelete_message", THREAD, 0, shows=True)],
    "delete_last_message": [asked("delete_last_message", THREAD)],
    "adelete_last_message": [awaited("adelete_last_message", THREAD)],
    "get_keys": [Asked(keys, "hidden")],
    "aget_keys": [Asked(lambda store: store.aget_keys(), "hidden")],
}


async def test_every_method_asks_whose_the_key_is(tmp_path: Path) -> None:
    """Of each user and tenant, also where one is left out."""
    places: list[str] = []
    engines: list[sync.Engine] = []

    def place() -> str:
        places.append(str(tmp_path / f"{len(places)}.db"))
        return places[-1]

    def make(_engine: object, user: str, tenant: str) -> MemoryEngineChatStore:
        if len(engines) < len(places):
            engines.append(sync.open(places[-1]))
        return MemoryEngineChatStore(engines[-1], user_id=user, tenant_id=tenant, recall=True)

    async def seed(store: MemoryEngineChatStore) -> None:
        store.set_messages(THREAD, SAID)
        assert [THREAD] == store.get_keys()

    try:
        await Contract(
            methods=public(MemoryEngineChatStore, BaseComponent),
            make=make,
            seed=seed,
            table=TABLE,
            place=place,
        ).check()
    finally:
        for engine in engines:
            engine.close()
    assert public(BaseChatStore, BaseComponent) <= TABLE.keys()


def test_an_engine_that_requires_a_scope_refuses_stores_without_one() -> None:
    """To read, to write and to list."""
    with sync.open(":memory:", config=EngineConfig(scopes_required=True)) as engine:
        store = MemoryEngineChatStore(engine, agent_id="keeper")
        for name, words in (("get_messages", (THREAD,)), ("add_message", (THREAD, MINE)), ("get_keys", ())):
            with pytest.raises(ScopeRequired):
                getattr(store, name)(*words)
        MemoryEngineChatStore(engine, user_id="ann").add_message(THREAD, MINE)
