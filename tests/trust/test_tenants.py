"""What keeps tenants and people apart: whose events are found, whose ids can be taken, who can come back."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, UserMessage, correlated, errors
from memory_engine.core.threads import DELETED, Head, ThreadRecord
from memory_engine.engine import kernel_of
from memory_engine.runtime.config import EngineConfig
from memory_engine.store.protocol import ThreadFilter

STORES = (":memory:", "m.db")


@pytest.fixture(params=STORES)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine over each store."""
    path = request.param if request.param == ":memory:" else str(tmp_path / request.param)
    async with memory_engine.open(path) as opened:
        yield opened


# events by correlation


async def test_a_correlation_is_of_one_tenant(engine: Engine) -> None:
    """Two tenants may number their orders alike: each finds its own, and without a tenant those of none."""
    with correlated("order-17"):
        for tenant in ("", "acme", "evil"):
            thread = await engine.create_thread(f"t-{tenant}", tenant_id=tenant)
            await thread.dispatch(UserMessage(content=f"of {tenant or 'nobody'}"))
            await engine.user("u1", tenant_id=tenant).preferences.update("tone", "dry")
    for tenant, prefix in (("", "user:u1"), ("acme", "user:acme/u1"), ("evil", "user:evil/u1")):
        found = await engine.correlated("order-17", tenant_id=tenant)
        assert [f"t-{tenant}", prefix] == [one.thread_id for one in found]
        assert found[-1:] == await engine.correlated("order-17", tenant_id=tenant, limit=1)
    assert ["t-", "user:u1"] == [one.thread_id for one in await engine.correlated("order-17")]
    assert [] == await engine.correlated("order-17", tenant_id="another")


async def test_nobody_asks_all_tenants_for_a_correlation(engine: Engine) -> None:
    """`None` means any elsewhere; here it is refused, as in a search."""
    with pytest.raises(errors.InvalidSearch, match="tenant_id"):
        await engine.correlated("order-17", tenant_id=None)  # type: ignore[arg-type]


# ids of scopes


@pytest.mark.parametrize("name", ["user:u1", "user:acme/u1", "tenant:acme", "agent:a", "industry:retail", "user:"])
async def test_the_id_of_a_scope_cannot_be_taken(engine: Engine, name: str, tmp_path: Path) -> None:
    """By a thread made by hand, a fork or an import: a user would find a stranger's words in the own memory."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="hello"))
    await thread.replay.export(tmp_path / "t.jsonl")
    for take in (
        lambda: engine.create_thread(name),
        lambda: engine.create_thread(name, kind="user", user_id="u1"),
        lambda: thread.fork(1, thread_id=name),
        lambda: engine.transfer.import_log(tmp_path / "t.jsonl", thread_id=name, scopes="as exported"),
    ):
        with pytest.raises(errors.InvalidIdentifier, match="take another"):
            await take()
    assert ["t"] == [info.id for info in await engine.threads()]


async def test_ids_that_only_look_alike_are_free(engine: Engine) -> None:
    """The words before a colon are what counts."""
    for name in ("users:1", "user", "User:u1", "my user:u1", "conversation:1"):
        assert name == (await engine.create_thread(name)).id


async def test_a_scope_can_be_imported_as_itself(tmp_path: Path) -> None:
    """Its own export is no stranger's."""
    async with memory_engine.open(":memory:") as one:
        for scope in (one.user("u1", tenant_id="a b/c"), one.tenant("acme"), one.agent("x")):
            await scope.dispatch(UserMessage(content="hello"))
            await scope.replay.export(tmp_path / f"{scope.kind}.jsonl")
    async with memory_engine.open(":memory:") as other:
        for kind in ("user", "tenant", "agent"):
            await other.transfer.import_log(tmp_path / f"{kind}.jsonl", scopes="as exported")
        await other.user("u1", tenant_id="a b/c").dispatch(UserMessage(content="again"))
        assert 2 == (await other.user("u1", tenant_id="a b/c").info()).events
        with pytest.raises(errors.InvalidIdentifier):
            await other.transfer.import_log(tmp_path / "user.jsonl", thread_id="user:u2", scopes="as exported")


# coming back


async def test_a_deleted_user_can_come_back(engine: Engine) -> None:
    """As a new thread: nothing of the old is in it, and nothing finds the old."""
    user = engine.user("u1", tenant_id="acme")
    for round_ in ("first", "second", "third"):
        assert {} == dict(await user.preferences.all())
        receipt = await user.dispatch(UserMessage(content=f"the {round_} time"))
        assert 1 == receipt.seq
        await user.preferences.update("tone", round_)
        assert [f"the {round_} time"] == [
            one.event.content async for one in user.events() if isinstance(one.event, UserMessage)
        ]
        assert (await user.replay.verify()).ok
        await user.admin.delete()
        assert [] == await engine.threads()
        assert not await user.exists()


async def test_a_deleted_conversation_stays_deleted(engine: Engine) -> None:
    """Whoever makes another of its id finds nothing of the first in it."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="hello"))
    await thread.admin.delete()
    with pytest.raises(errors.ThreadNotFound):
        await engine.thread("t").dispatch(UserMessage(content="again"))
    again = await engine.create_thread("t")
    assert (0, [], []) == ((await again.info()).events, (await again.context()).messages, await again.replay.latest(9))


async def test_an_event_of_a_deleted_user_is_new_again(engine: Engine) -> None:
    """Its id was of another log."""
    user = engine.user("u1")
    await user.dispatch(UserMessage(content="secret"), event_id="e1")
    await user.admin.delete()
    await user.dispatch(UserMessage(content="other"), event_id="e1")
    assert ["other"] == [one.event.content async for one in user.events() if isinstance(one.event, UserMessage)]


async def test_another_process_sees_that_a_user_came_back(tmp_path: Path) -> None:
    """It knew the old thread: it reads and writes the new one, whatever their lengths."""
    path = str(tmp_path / "m.db")
    quick = EngineConfig(follow_s=1e-9)
    async with memory_engine.open(path, config=quick) as one, memory_engine.open(path, config=quick) as other:
        for before, after in ((1, 1), (3, 1), (1, 3)):
            for n in range(before):
                await other.user("u1").dispatch(UserMessage(content=f"old {n}"))
            await other.user("u1").preferences.update("tone", "old")
            assert before + 1 == (await one.user("u1").state()).seq
            await one.user("u1").admin.delete()
            for n in range(after):
                await one.user("u1").dispatch(UserMessage(content=f"new {n}"))
            await other.user("u1").dispatch(UserMessage(content="newest"))
            assert {} == dict(await other.user("u1").preferences.all())
            for engine in (one, other):
                texts = [chunk.content for chunk in (await engine.user("u1").state()).chunks()]
                assert [*(f"new {n}" for n in range(after)), "newest"] == texts
            assert (await other.user("u1").replay.verify()).ok
            await one.user("u1").admin.delete()


async def test_a_user_deleted_by_yesterdays_version_can_come_back(engine: Engine) -> None:
    """Its file holds the id of the deleted thread still; a deleted thread's other names are gone."""
    await engine.user("u1").dispatch(UserMessage(content="hello"))
    await kernel_of(engine).store.delete("user:u1")
    record = ThreadRecord(id="user:u1", kind="user", user_id="u1")
    await kernel_of(engine).store.create(record, Head(), ())
    with pytest.raises(errors.ThreadExists):
        await kernel_of(engine).store.create(record, Head(), ())
    found = await kernel_of(engine).store.threads(ThreadFilter())
    assert [("user:u1", 0)] == [(one.id, head.seq) for one, head in found]
    assert DELETED not in [head.status for _, head in found]
