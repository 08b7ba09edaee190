"""Sessions of another user or tenant are neither read nor changed, nor listed."""

from typing import Any

import pytest

import memory_engine
from memory_engine import EngineConfig
from memory_engine.errors import ScopeRequired
from memory_engine.integrations.claude_agent import MemoryEngineSessionStore
from tests.integrations.claude_agent.transcripts import AGENT, KEY, PROJECT, Writer
from tests.integrations.scoped import SECRET, Apart, Asked, Contract, Table, public


def talk(text: str) -> Writer:
    """A prompt with its answer."""
    writer = Writer(text[:4])
    writer.said(text)
    writer.answered("Noted.")
    return writer


async def seed(store: MemoryEngineSessionStore) -> None:
    """A session with a sub-agent."""
    await store.append(KEY, talk(SECRET).entries)
    await store.append(AGENT, talk(SECRET).entries)


def asked(method: str, key: Any, *words: Any, shows: bool = False) -> Asked[MemoryEngineSessionStore]:
    """A method with a key."""
    return Asked(lambda store: getattr(store, method)(key, *words), shows=shows)


TABLE: Table[MemoryEngineSessionStore] = {
    "append": [asked("append", key, talk("Mine too.").entries) for key in (KEY, AGENT)],
    "load": [asked("load", key, shows=True) for key in (KEY, AGENT)],
    "delete": [asked("delete", key) for key in (KEY, AGENT)],
    "list_sessions": [Asked(lambda store: store.list_sessions(PROJECT), "hidden")],
    "list_session_summaries": [Asked(lambda store: store.list_session_summaries(PROJECT), "hidden", shows=True)],
    "list_subkeys": [Asked(lambda store: store.list_subkeys(KEY), "hidden")],
    "thread_id": Apart("it makes a name"),
}


async def test_every_method_asks_whose_the_session_is() -> None:
    """Of each user and tenant, also where one is left out."""
    await Contract(
        methods=public(MemoryEngineSessionStore),
        make=lambda engine, user, tenant: MemoryEngineSessionStore(engine, user_id=user, tenant_id=tenant),
        seed=seed,
        table=TABLE,
    ).check()


async def test_an_engine_that_requires_a_scope_refuses_stores_without_one() -> None:
    """Before anything is read."""
    async with memory_engine.open(":memory:", config=EngineConfig(scopes_required=True)) as engine:
        store = MemoryEngineSessionStore(engine)
        for work in (store.append(KEY, talk("Mine.").entries), store.load(KEY), store.list_sessions(PROJECT)):
            with pytest.raises(ScopeRequired):
                await work
