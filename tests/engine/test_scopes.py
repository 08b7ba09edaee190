"""Users, tenants and agents: threads of their own, made when first needed, apart from each other."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memory_engine
from memory_engine import AgentMdPromoted, Destination, Engine, ExternalInject, MemoryShared, errors
from memory_engine.core.threads import Head, ThreadRecord
from memory_engine.engine import kernel_of
from memory_engine.projections.outbox import OUTBOX
from memory_engine.runtime.scoped import scope_thread_id
from memory_engine.testing.contract_rows import HOSTILE

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


async def test_a_scope_is_made_by_its_first_event(engine: Engine) -> None:
    """Looking makes nothing; the first dispatch makes a thread of the right kind and owner."""
    user = engine.user("u1", tenant_id="acme")
    assert (0, []) == (len(await user.views.rows(OUTBOX)), await engine.threads())
    await user.dispatch(ExternalInject(content="hello"))
    (info,) = await engine.threads(user_id="u1")
    assert ("user", "u1", "acme", user.id, 1) == (info.kind, info.user_id, info.tenant_id, info.id, info.events)


async def test_two_tasks_make_a_scope_once(engine: Engine) -> None:
    """First events that race find one thread."""
    await asyncio.gather(*(engine.tenant("acme").dispatch(ExternalInject(content=str(n))) for n in range(8)))
    assert [8] == [info.events for info in await engine.threads(tenant_id="acme")]


@given(st.tuples(NAMES, NAMES), st.tuples(NAMES, NAMES))
def test_different_scopes_have_different_threads(one: tuple[str, str], other: tuple[str, str]) -> None:
    """No two (tenant, id) pairs share a thread, whatever they are made of."""
    assert (one == other) == (scope_thread_id("user", *one) == scope_thread_id("user", *other))
    assert scope_thread_id("user", one[0]) != scope_thread_id("user", other[0], other[1])


async def test_hostile_ids_stay_apart(engine: Engine) -> None:
    """Ids that look like patterns, paths or statements each have memory of their own."""
    for name in HOSTILE:
        await engine.agent(name, tenant_id=name).dispatch(ExternalInject(content=name))
    threads = await engine.threads(kind="agent")
    assert [(name, name, 1) for name in HOSTILE] == [(t.agent_id, t.tenant_id, t.events) for t in threads]


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 5_000])
async def test_an_impossible_id_is_refused(engine: Engine, name: str) -> None:
    """What cannot be stored and compared exactly is no id."""
    with pytest.raises(errors.InvalidIdentifier):
        engine.user(name)


async def test_a_thread_of_another_kind_in_its_place_is_an_error(engine: Engine) -> None:
    """A conversation that somebody called `user:u1` is never taken for the user."""
    await kernel_of(engine).store.create(ThreadRecord(id="user:u1"), Head(), ())
    with pytest.raises(errors.WrongThreadKind, match="conversation"):
        await engine.user("u1").dispatch(ExternalInject(content="hello"))
    with pytest.raises(errors.WrongThreadKind):
        await engine.user("u1").views.rows(OUTBOX)


async def test_a_thread_of_another_tenant_in_its_place_is_an_error(engine: Engine) -> None:
    """A thread that somebody made for a user of one tenant under the id of another's is never taken for it."""
    mine = engine.user("u1", tenant_id="acme").id
    await kernel_of(engine).store.create(ThreadRecord(id=mine, kind="user", user_id="u1", tenant_id="evil"), Head(), ())
    with pytest.raises(errors.WrongThreadKind):
        await engine.user("u1", tenant_id="acme").preferences.update("tone", "dry")


async def test_scopes_are_found_again(tmp_path: Path) -> None:
    """Another process finds the same thread by the same id."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        await engine.tenant("acme").dispatch(AgentMdPromoted(content="Always show totals."))
    async with memory_engine.open(path) as engine:
        assert 1 == (await engine.tenant("acme").info()).events


async def test_a_refused_first_event_makes_nothing(engine: Engine) -> None:
    """What will not be recorded leaves no empty thread behind."""
    with pytest.raises(errors.InvalidEvent):
        await engine.user("u1").dispatch(ExternalInject(content="\ud800"))
    foreign = MemoryShared(destination=Destination("agent", "a", "other"), layer="episodic", content="x")
    with pytest.raises(errors.InvalidEvent):
        await engine.user("u1").dispatch_all([ExternalInject(content="x"), foreign])
    assert [] == await engine.threads()


async def test_a_deleted_scope_is_gone_and_can_come_back(engine: Engine) -> None:
    """Its memory is gone; what was cached of it too. Its next event makes another."""
    user = engine.user("u1")
    await user.preferences.update("tone", "dry")
    await user.preferences.applicable(query="tone")
    await user.admin.delete()
    assert await engine.user("u1").preferences.get("tone") is None
    await engine.user("u1").preferences.update("length", "short")
    assert await engine.user("u1").preferences.get("tone") is None
    assert 1 == (await engine.user("u1").info()).events
