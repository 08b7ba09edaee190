"""While something is held nothing of it is destroyed; what only hides goes on."""

import asyncio
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.errors import LegalHold, PastIsReadOnly, ThreadNotFound
from memory_engine.store.acts import Act
from tests.command_line import Run
from tests.trust.test_erasing import SECRET, held, talked


async def test_nothing_of_a_held_thread_is_destroyed_until_it_is_released(engine: Engine) -> None:
    """The error names the hold; nothing is recorded or withdrawn; a forgetting is not a destruction."""
    thread = await engine.create_thread("t")
    event_id = await talked(thread)
    first = await thread.admin.hold(by="counsel", reason="case 12")
    second = await thread.admin.hold(reason="case 13")
    before = (await thread.info()).head_hash
    for destroyed in (thread.admin.erase([event_id]), thread.erase([event_id], dry_run=True), thread.admin.delete()):
        with pytest.raises(LegalHold, match="held by counsel") as raised:
            await destroyed
        assert ("t", first.id, "case 12") == (raised.value.thread_id, raised.value.hold, raised.value.reason)
    assert before == (await thread.info()).head_hash
    assert ["hold", "hold"] == [act.kind for act in await engine.admin.acts()]
    await thread.forget(event_ids=[event_id])
    assert [first, second] == await engine.admin.holds()
    assert [first, second] == list(await thread.admin.release(by="counsel", reason="settled"))
    assert ([], []) == (await engine.admin.holds(), list(await thread.admin.release()))
    assert 1 <= (await thread.admin.erase([event_id])).erased["t"]


async def test_a_user_and_a_tenant_are_held_with_all_their_threads(engine: Engine) -> None:
    """Also those that are made later; a hold of one scope does not end that of another."""
    user, tenant = engine.user("u1", tenant_id="acme"), engine.tenant("acme")
    of_user, of_tenant = await user.admin.hold(reason="a"), await tenant.admin.hold(reason="b")
    mine = await engine.create_thread("mine", user_id="u1", tenant_id="acme")
    theirs = await engine.create_thread("theirs", user_id="u2", tenant_id="acme")
    other = await engine.create_thread("other", user_id="u1")
    await user.preferences.update("name", "Mia")
    await tenant.admin.release()
    assert [of_user] == await engine.admin.holds()
    assert of_tenant.id != of_user.id
    for one in (mine, user):
        with pytest.raises(LegalHold):
            await one.admin.delete()
    for whole in (user.erase_all, tenant.erase_all):
        with pytest.raises(LegalHold):
            await whole()
    await theirs.admin.delete()
    await other.admin.delete()
    await mine.admin.release()
    with pytest.raises(LegalHold):
        await mine.admin.delete()
    await user.admin.release()
    await user.erase_all()


async def test_an_act_that_reaches_a_held_thread_is_refused_whole(engine: Engine) -> None:
    """An event that a held fork shares, and one whose facts went to a held user."""
    thread = await engine.create_thread("t", user_id="u1")
    event_id = await talked(thread)
    fork = await thread.fork(thread_id="fork")
    await fork.admin.hold()
    with pytest.raises(LegalHold) as raised:
        await thread.admin.erase([event_id])
    assert "fork" == raised.value.thread_id
    await fork.admin.release()
    await thread.admin.erase([event_id])


async def test_an_act_under_way_waits_for_a_hold_that_came_since(tmp_path: Path) -> None:
    """It is finished after the release; opening the store goes on with nothing that is held."""
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t")
        event_id = await talked(thread)
        put = kernel_of(engine).store.put_act

        async def dies(act: Act) -> None:
            await put(act)
            raise OSError("cut off")

        kernel_of(engine).store.put_act = dies  # type: ignore[method-assign]
        with pytest.raises(OSError, match="cut off"):
            await thread.admin.erase([event_id])
        kernel_of(engine).store.put_act = put  # type: ignore[method-assign]
        await thread.admin.hold()
    async with memory_engine.open(str(path)) as engine:
        with pytest.raises(LegalHold):
            await engine.admin.finish_acts()
        assert held(path)
        await engine.thread("t").admin.release()
        assert 1 == len(await engine.admin.finish_acts())
        assert not held(path)


async def test_only_what_is_there_now_is_held(engine: Engine) -> None:
    """No thread of an unknown id, and nothing of the past."""
    with pytest.raises(ThreadNotFound):
        await engine.thread("nobody").admin.hold()
    thread = await engine.create_thread("t")
    await thread.dispatch(e.UserMessage(content="Hello"))
    with pytest.raises(PastIsReadOnly):
        await (await thread.at(1)).admin.hold()
    assert [] == await engine.admin.holds()


def test_the_command(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set, listed, in the way of a deletion, released."""
    path = tmp_path / "m.db"
    monkeypatch.setenv("MEMORY_ENGINE_DB", str(path))

    async def write() -> None:
        async with memory_engine.open(str(path)) as engine:
            await talked(await engine.create_thread("t", user_id="u1", tenant_id="acme"))

    asyncio.run(write())
    assert 0 == run("hold", "--user", "u1", "--tenant", "acme", "--by", "counsel", "--reason", "case 12")[0]
    (one,) = json.loads(run("hold", "--json")[1])
    assert ("u1", "acme", "counsel") == (one["scope"]["user_id"], one["scope"]["tenant_id"], one["by"])
    code, _, err = run("delete", "t", "--yes")
    assert (2, True) == (code, one["id"] in err)
    assert held(path, SECRET)
    assert 0 == run("acts")[0]
    assert "there was no hold\n" == run("hold", "t", "--release")[1]
    assert one["id"] in run("hold", "--user", "u1", "--tenant", "acme", "--release")[1]
    assert 0 == run("delete", "t", "--yes")[0]
    for words in (("hold", "--release"), ("hold", "t", "--user", "u1")):
        assert 2 == run(*words)[0]
