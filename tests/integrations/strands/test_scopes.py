"""Sessions of another user or tenant are neither read nor changed."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from memory_engine import EngineConfig, sync
from memory_engine.errors import ScopeRequired, ThreadDiffers
from memory_engine.integrations.strands import (
    MemoryEngineSessionManager,
    MemoryEngineSessionRepository,
    MemoryEngineStorage,
)
from tests.integrations.scoped import SECRET, THREAD, Asked, Contract, Table, public


def message(number: int, text: str = "Mine.") -> SessionMessage:
    """A message of a person."""
    return SessionMessage({"role": "user", "content": [{"text": text}]}, number)


class Together:
    """A graph of agents, for what a repository needs of it."""

    id = "graph"

    def serialize_state(self) -> dict[str, Any]:
        """Its state."""
        return {"type": "graph", "note": SECRET}


class Both(NamedTuple):
    """What an owner has."""

    repository: MemoryEngineSessionRepository
    storage: MemoryEngineStorage


def asked(name: str, *words: Any, shows: bool = False) -> Asked[Both]:
    """A method of the repository."""

    async def call(both: Both) -> object:
        return getattr(both.repository, name)(THREAD, *words)

    return Asked(call, shows=shows)


def stored(name: str, *words: Any, shows: bool = False) -> Asked[Both]:
    """A method of the storage."""
    return Asked(lambda both: getattr(both.storage, name)(*words), shows=shows)


async def searched(both: Both) -> object:
    """What a search finds."""
    return [one.data for one in await both.storage.search("where does the spare key of the observatory hang?")]


AGENT = SessionAgent("default", {}, {})
SCOUT = SessionAgent("scout", {}, {})


TABLE: Table[Both] = {
    "read_session": [asked("read_session")],
    "create_agent": [asked("create_agent", AGENT)],
    "read_agent": [asked("read_agent", "default"), asked("read_agent", "scout")],
    "update_agent": [asked("update_agent", AGENT), asked("update_agent", SCOUT)],
    "create_message": [asked("create_message", "default", message(1)), asked("create_message", "scout", message(1))],
    "read_message": [asked("read_message", "default", 0, shows=True), asked("read_message", "scout", 0, shows=True)],
    "update_message": [asked("update_message", "default", message(0)), asked("update_message", "scout", message(0))],
    "list_messages": [asked("list_messages", "default", shows=True), asked("list_messages", "scout", shows=True)],
    "create_multi_agent": [asked("create_multi_agent", Together())],
    "read_multi_agent": [asked("read_multi_agent", "graph", shows=True)],
    "update_multi_agent": [asked("update_multi_agent", Together())],
    "delete_session": [asked("delete_session")],
    "write": [stored("write", "k", b"mine")],
    "read": [stored("read", "k", shows=True)],
    "delete": [stored("delete", "k")],
    "list": [stored("list", "")],
    "search": [Asked(searched, shows=True)],
}


async def test_every_method_asks_whose_the_session_is(tmp_path: Path) -> None:
    """Of each user and tenant, also where one is left out; of each agent's thread, and of the storage."""
    places: list[str] = []
    engines: list[sync.Engine] = []

    def place() -> str:
        places.append(str(tmp_path / f"{len(places)}.db"))
        return places[-1]

    def make(_engine: object, user: str, tenant: str) -> Both:
        if len(engines) < len(places):
            engines.append(sync.open(places[-1]))
        return Both(
            MemoryEngineSessionRepository(engines[-1], user_id=user, tenant_id=tenant),
            MemoryEngineStorage(THREAD, engines[-1], user_id=user, tenant_id=tenant),
        )

    async def seed(both: Both) -> None:
        both.repository.create_session(Session(THREAD, SessionType.AGENT))
        for agent in (AGENT, SCOUT):
            both.repository.create_agent(THREAD, agent)
            both.repository.create_message(THREAD, agent.agent_id, message(0, SECRET))
        both.repository.create_multi_agent(THREAD, Together())
        await both.storage.write("k", SECRET.encode())

    try:
        await Contract(
            methods=(public(MemoryEngineSessionRepository) | public(MemoryEngineStorage)) - {"create_session"},
            make=make,
            seed=seed,
            table=TABLE,
            place=place,
        ).check()
    finally:
        for engine in engines:
            engine.close()


def test_another_users_session_is_not_opened() -> None:
    """Before the model is asked; nor without a scope where the engine requires one."""
    with sync.open(":memory:") as engine:
        MemoryEngineSessionManager("chat", engine, user_id="ann")
        for scopes in ({}, {"user_id": "bob"}, {"user_id": "ann", "tenant_id": "acme"}):
            with pytest.raises(ThreadDiffers):
                MemoryEngineSessionManager("chat", engine, **scopes)
    with sync.open(":memory:", config=EngineConfig(scopes_required=True)) as engine, pytest.raises(ScopeRequired):
        MemoryEngineSessionManager("chat", engine)
