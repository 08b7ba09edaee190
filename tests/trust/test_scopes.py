"""Whose thread an adapter opens: the one door that all have, and what an engine asks that requires a scope."""

import ast
import asyncio
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, UserMessage, errors
from memory_engine.inspector.app import ROUTES
from memory_engine.integrations import owned
from memory_engine.integrations.owned import OwnedThreads
from tests.inspecting import inspected
from tests.integrations.environments import HERE, peers
from tests.places import on_both_back_ends, place_of

USERS, TENANTS, AGENTS = ("", "ann", "bob"), ("", "acme", "umbrella"), ("", "keeper", "clerk")
STORES = (":memory:", "m.db")
ADAPTERS = Path(owned.__file__).parent
OPENERS = {"thread", "threads", "create_thread", "open_thread", "Thread"}
"""Ways from an id to a thread that ask nothing, or only while they make it."""


@pytest.fixture(params=STORES)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine over each store."""
    path = request.param if request.param == ":memory:" else str(tmp_path / request.param)
    async with memory_engine.open(path) as opened:
        yield opened


# the door of adapters


async def test_a_thread_is_its_users_and_its_tenants_alone(engine: Engine) -> None:
    """With every subset of the scopes left out: no user means a thread without one; an agent may be left out."""
    for user, tenant, agent in product(USERS, TENANTS, AGENTS):
        name = f"{user}/{tenant}/{agent}"
        await engine.create_thread(name, user_id=user, tenant_id=tenant, agent_id=agent)
    infos = await engine.threads()
    for user, tenant, agent in product(USERS, TENANTS, AGENTS):
        door = OwnedThreads(engine=engine, user_id=user, tenant_id=tenant, agent_id=agent)
        listed = {info.id for info in await door.list()}
        for info in infos:
            is_mine = (info.user_id, info.tenant_id) == (user, tenant) and agent in ("", info.agent_id)
            assert is_mine == (info.id in listed)
            if is_mine:
                assert [info.id] * 2 == [(await door.open(info.id)).id, getattr(await door.find(info.id), "id", None)]
                continue
            for method in (door.find, door.open):
                with pytest.raises(errors.ThreadDiffers):
                    await method(info.id)
    assert infos == await engine.threads()


async def test_an_id_alone_opens_any_thread_for_the_program_itself(engine: Engine) -> None:
    """`engine.thread` asks nothing, as ever."""
    await engine.create_thread("t", user_id="ann", tenant_id="acme")
    await engine.thread("t").dispatch(UserMessage(content="Hello"))
    assert 1 == (await engine.thread("t").info()).events


async def test_threads_of_other_kinds_are_no_conversations(engine: Engine) -> None:
    """A user's own thread, or the items of a store, are not opened, cleared or deleted through an adapter."""
    await engine.user("ann").preferences.update("verbosity", "concise")
    await engine.create_thread("store:items", kind="store")
    for door, name in (
        (OwnedThreads(engine=engine, user_id="ann"), "user:ann"),
        (OwnedThreads(engine=engine), "store:items"),
    ):
        with pytest.raises(errors.ThreadDiffers, match="kind is"):
            await door.find(name)
        assert [] == await door.list()
    for wrong in ("user:bob", "a\0b", ""):
        with pytest.raises(errors.InvalidIdentifier):
            await OwnedThreads(engine=engine, user_id="bob").open(wrong)
    with pytest.raises(errors.InvalidArgument):
        await OwnedThreads(engine=engine).find(7)  # type: ignore[arg-type]


async def test_what_is_opened_is_made_once(engine: Engine) -> None:
    """By many at once; of two owners one gets it, with its scopes and metadata, and the other is refused."""
    ann = OwnedThreads(engine=engine, user_id="ann", agent_id="keeper", metadata={"adapter": "test"})
    bob = OwnedThreads(engine=engine, user_id="bob")
    assert await ann.find("t") is None
    outcomes = await asyncio.gather(*(door.open("t") for door in (ann, bob) * 4), return_exceptions=True)
    [info] = await engine.threads()
    refused = [type(one) for one in outcomes if isinstance(one, Exception)]
    assert [errors.ThreadDiffers] * 4 == refused
    expected = {"ann": ("keeper", {"adapter": "test"}), "bob": ("", {})}
    assert expected[info.user_id] == (info.agent_id, info.metadata)


@on_both_back_ends
async def test_a_thread_that_got_another_owner_elsewhere_is_refused_at_once(back_end: str, tmp_path: Path) -> None:
    """Another process deleted it and made one of the same id; what this one holds in memory is not asked."""
    place = place_of(back_end, tmp_path)
    async with memory_engine.open(place) as here, memory_engine.open(place) as there:
        ann, bob = (OwnedThreads(engine=here, user_id=user) for user in ("ann", "bob"))
        await (await ann.open("t")).dispatch(UserMessage(content="Mine."))
        await there.thread("t").admin.delete()
        await there.create_thread("t", user_id="bob")
        with pytest.raises(errors.ThreadDiffers):
            await ann.find("t")
        assert await bob.find("t") is not None
        assert [] == await ann.list()


# an engine that requires a scope


async def test_an_engine_may_require_a_scope() -> None:
    """A user or a tenant; an agent alone is nobody. Refusals write nothing."""
    async with memory_engine.open(":memory:", config=EngineConfig(scopes_required=True)) as engine:
        nobodies: list[Any] = [{}, {"agent_id": "keeper"}, {"parent_id": "p", "kind": "task"}]
        for nobody in nobodies:
            for make in (engine.create_thread, engine.open_thread):
                with pytest.raises(errors.ScopeRequired, match="give `user_id`, `tenant_id`, or both"):
                    await make("t", **nobody)
        door = OwnedThreads(engine=engine, agent_id="keeper")
        for call in (door.find("t"), door.open("t"), door.list(), door.list(every_user=True)):
            with pytest.raises(errors.ScopeRequired):
                await call
        assert [] == await engine.threads()
        somebodies: list[Any] = [{"user_id": "ann"}, {"tenant_id": "acme"}, {"user_id": "ann", "tenant_id": "acme"}]
        for n, somebody in enumerate(somebodies):
            thread = await engine.create_thread(f"{n}", **somebody)
            assert thread.id == (await engine.open_thread(f"{n}", **somebody)).id
            assert await OwnedThreads(engine=engine, **somebody).find(f"{n}") is not None
            fork = await thread.fork()
            assert (await thread.info()).user_id == (await fork.info()).user_id


async def test_what_is_there_stays_the_programs_own(tmp_path: Path) -> None:
    """A thread that has no scope is read and written by its id where scopes are required; so are agents."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        await engine.create_thread("t")
    async with memory_engine.open(path, config=EngineConfig(scopes_required=True)) as engine:
        await engine.thread("t").dispatch(UserMessage(content="Hello"))
        assert (await engine.verify())[0].ok
        await engine.agent("keeper").memory.learn("key", "17")
        with pytest.raises(errors.ScopeRequired):
            await OwnedThreads(engine=engine).find("t")


@pytest.mark.parametrize("wrong", [1, "yes", None])
def test_the_flag_is_a_flag(wrong: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(errors.InvalidArgument, match="scopes_required"):
        EngineConfig(scopes_required=wrong)


# every door


def test_no_adapter_opens_a_thread_by_itself() -> None:
    """They take threads from `OwnedThreads`, whichever method they serve."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in sorted(ADAPTERS.glob("*.py"))
        if path.name != "owned.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and _name(node.func) in OPENERS and not _is_of_owned(node.func)
    ]
    assert [] == found


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _is_of_owned(called: ast.expr) -> bool:
    """Whether it is `EntryList.thread()`, which asks."""
    return ast.unparse(called) in ("self.thread", "entries.thread")


def test_every_peer_has_a_table_of_its_methods() -> None:
    """A `test_scopes.py` in its folder, which runs in its environment."""
    assert [] == [name for name in peers() if not (HERE / name / "test_scopes.py").exists()]


async def test_the_inspector_lists_no_other_owner(engine: Engine) -> None:
    """Where it is asked for one user's or tenant's; no other route takes scopes, since it shows the whole store."""
    taking = [route.name for route in ROUTES if route.takes & {"user", "tenant", "user_id", "tenant_id"}]
    assert ["threads"] == taking
    for user, tenant in product(USERS, TENANTS):
        await engine.create_thread(f"of {user}/{tenant}", user_id=user, tenant_id=tenant)
    async with inspected(engine) as browser:
        for user, tenant in product((*USERS, "cleo"), (*TENANTS, "initech")):
            answer = await browser.api("threads", {"user": user, "tenant": tenant})
            found = cast("dict[str, Any]", answer.data())
            shown = {(one["user_id"], one["tenant_id"]) for one in found["threads"]}
            assert len(shown) == found["total"]
            assert all(user in ("", one) and tenant in ("", other) for one, other in shown)
            assert bool(shown) == (user != "cleo" and tenant != "initech")
