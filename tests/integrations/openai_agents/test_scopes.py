"""Sessions of another user or tenant are neither read nor changed."""

from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner
from agents.run_config import CallModelData, ModelInputData
from agents.testing import ScriptedModel, assistant_message

import memory_engine
from memory_engine import EngineConfig
from memory_engine.errors import InvalidIdentifier, ScopeRequired, ThreadDiffers
from memory_engine.integrations.openai_agents import History, MemoryEngineSession
from tests.integrations.scoped import SECRET, THREAD, Apart, Asked, Contract, Table, logs, public

ITEMS: Any = [{"role": "user", "content": SECRET}, {"role": "assistant", "content": "Noted."}]


async def recalled(session: MemoryEngineSession) -> object:
    """The input of a call that asks something."""
    data: Any = ModelInputData(input=[{"role": "user", "content": "Where does the spare key hang?"}], instructions=None)
    agent: Any = Agent(name="keeper")
    return (await session.with_recall(CallModelData(model_data=data, agent=agent, context=None))).input


TABLE: Table[MemoryEngineSession] = {
    "get_items": [
        Asked(lambda session: session.get_items(), shows=True),
        Asked(lambda session: session.get_items(1)),
        Asked(lambda session: session.get_items(0)),
    ],
    "add_items": [Asked(lambda session: session.add_items([{"role": "user", "content": "Me too."}]))],
    "pop_item": [Asked(lambda session: session.pop_item())],
    "clear_session": [Asked(lambda session: session.clear_session())],
    "with_recall": [Asked(recalled, shows=True)],
    "close": Apart("it ends the session's own engine"),
}


@pytest.mark.parametrize("history", ["all", "context"])
async def test_every_method_asks_whose_the_session_is(history: History) -> None:
    """Of each user and tenant, also where one is left out."""
    await Contract(
        methods=public(MemoryEngineSession),
        make=lambda engine, user, tenant: MemoryEngineSession(
            THREAD, engine, history=history, user_id=user, tenant_id=tenant, recall=True
        ),
        seed=lambda session: session.add_items(ITEMS),
        table=TABLE,
    ).check()


async def test_a_model_is_sent_nothing_of_another_user() -> None:
    """The run ends before the model is called."""
    async with memory_engine.open(":memory:") as engine:
        await MemoryEngineSession(THREAD, engine, user_id="ann", tenant_id="acme").add_items(ITEMS)
        before, model = await logs(engine), ScriptedModel()
        model.enqueue([assistant_message("I do not know.")])
        session = MemoryEngineSession(THREAD, engine, user_id="bob", tenant_id="acme")
        with pytest.raises(ThreadDiffers):
            await Runner.run(Agent(name="keeper", model=model), "Where is the key?", session=session)
        assert not model.calls
        assert before == await logs(engine)


async def test_a_session_that_opens_its_engine_asks_too(tmp_path: Path) -> None:
    """It names no other engine's user by its path."""
    path = str(tmp_path / "agent.db")
    ann, bob = (MemoryEngineSession(THREAD, path, user_id=user) for user in ("ann", "bob"))
    await ann.add_items(ITEMS)
    for method in (bob.get_items, bob.pop_item, bob.clear_session):
        with pytest.raises(ThreadDiffers):
            await method()
    assert ITEMS == await ann.get_items()
    ann.close()
    bob.close()


async def test_a_session_cannot_be_the_thread_of_a_user_or_of_another_agent() -> None:
    """A user's own thread has another kind; an agent that is named must be the thread's, one that is not may be any."""
    async with memory_engine.open(":memory:") as engine:
        await engine.user("ann").preferences.update("verbosity", "concise")
        before = await logs(engine)
        with pytest.raises(ThreadDiffers, match="kind is 'user', not 'conversation'"):
            await MemoryEngineSession("user:ann", engine, user_id="ann").clear_session()
        with pytest.raises(InvalidIdentifier):
            await MemoryEngineSession("user:bob", engine, user_id="bob").add_items(ITEMS)
        assert before == await logs(engine)
        await MemoryEngineSession(THREAD, engine, agent_id="keeper").add_items(ITEMS)
        assert ITEMS == await MemoryEngineSession(THREAD, engine).get_items()
        with pytest.raises(ThreadDiffers, match="agent_id is 'keeper', not 'thief'"):
            await MemoryEngineSession(THREAD, engine, agent_id="thief").get_items()


async def test_an_engine_that_requires_a_scope_refuses_sessions_without_one() -> None:
    """A user or a tenant is enough."""
    async with memory_engine.open(":memory:", config=EngineConfig(scopes_required=True)) as engine:
        nobody = MemoryEngineSession(THREAD, engine, agent_id="keeper")
        for name in ("get_items", "pop_item", "clear_session"):
            with pytest.raises(ScopeRequired, match=f"thread '{THREAD}' was not opened"):
                await getattr(nobody, name)()
        with pytest.raises(ScopeRequired):
            await nobody.add_items(ITEMS)
        assert not await engine.threads()
        somebody: list[Any] = [{"user_id": "ann"}, {"tenant_id": "acme"}]
        for scopes in somebody:
            session = MemoryEngineSession(f"of {scopes}", engine, **scopes)
            await session.add_items(ITEMS)
            assert ITEMS == await session.get_items()
