"""Histories of another user or tenant are neither read nor changed."""

from typing import Any, Literal

import pytest
from agent_framework import AgentResponse, AgentSession, Message, SessionContext

import memory_engine
from memory_engine import EngineConfig
from memory_engine.errors import ScopeRequired
from memory_engine.integrations.agent_framework import MemoryEngineHistoryProvider
from tests.integrations.scoped import SECRET, THREAD, Apart, Asked, Contract, Table, public

SAID = [Message("user", [SECRET]), Message("assistant", ["Noted."])]


async def before_run(provider: MemoryEngineHistoryProvider) -> object:
    """The messages that a run would begin with."""
    context = SessionContext(session_id=THREAD, input_messages=[Message("user", ["Where is the key?"])])
    session: Any = AgentSession(session_id=THREAD)
    await provider.before_run(agent=None, session=session, context=context, state={})
    return [message.text for message in context.get_messages()]


async def after_run(provider: MemoryEngineHistoryProvider) -> object:
    """What a run leaves."""
    context = SessionContext(session_id=THREAD, input_messages=[Message("user", ["Where is the key?"])])
    context._response = AgentResponse(messages=[Message("assistant", ["I do not know."])])
    session: Any = AgentSession(session_id=THREAD)
    await provider.after_run(agent=None, session=session, context=context, state={})
    return None


async def shown(provider: MemoryEngineHistoryProvider) -> object:
    """The texts of the history."""
    return [message.text for message in await provider.get_messages(THREAD)]


TABLE: Table[MemoryEngineHistoryProvider] = {
    "get_messages": [Asked(shown, shows=True)],
    "save_messages": [Asked(lambda provider: provider.save_messages(THREAD, [Message("user", ["Mine."])]))],
    "before_run": [Asked(before_run, shows=True)],
    "after_run": [Asked(after_run)],
    "after_run_once_per_turn": Apart("a flag of the framework"),
}


@pytest.mark.parametrize("history", ["all", "context"])
async def test_every_method_asks_whose_the_session_is(history: Literal["all", "context"]) -> None:
    """Of each user and tenant, also where one is left out."""
    await Contract(
        methods=public(MemoryEngineHistoryProvider) | {"after_run_once_per_turn"},
        make=lambda engine, user, tenant: MemoryEngineHistoryProvider(
            engine, history=history, user_id=user, tenant_id=tenant, recall=True
        ),
        seed=lambda provider: provider.save_messages(THREAD, SAID),
        table=TABLE,
    ).check()


async def test_an_engine_that_requires_a_scope_refuses_providers_without_one() -> None:
    """For sessions that are there, and for new ones."""
    async with memory_engine.open(":memory:", config=EngineConfig(scopes_required=True)) as engine:
        provider = MemoryEngineHistoryProvider(engine)
        with pytest.raises(ScopeRequired):
            await provider.get_messages(THREAD)
        with pytest.raises(ScopeRequired):
            await provider.save_messages(THREAD, SAID)
        await MemoryEngineHistoryProvider(engine, tenant_id="acme").save_messages(THREAD, SAID)
