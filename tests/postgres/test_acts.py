"""An act reaches what the role that asked for it may reach, whoever's engine carries it out."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

import memory_engine
from memory_engine import EngineConfig, RetentionRule, UserMessage
from memory_engine.core.threads import Head, ThreadRecord
from memory_engine.engine import kernel_of
from memory_engine.errors import ActFailed, ActRefused, LegalHold, StorageFailed
from memory_engine.storage.postgres import PostgresStore, schema
from memory_engine.storage.postgres.address import parse
from memory_engine.store.acts import Act
from memory_engine.testing.contract_rows import event, unit
from tests.postgres.test_failures import with_login
from tests.postgres.test_row_security import SCRIPT, secured
from tests.postgres.test_schema import ask

PLANT = (
    "INSERT INTO @.acts (id, kind, plan, asked_by, reason, asked_at_us, done_at_us, outcome) "
    "VALUES ($1, $2, $3, 'x', '', 1, $4, '')"
)
LOOKS = EngineConfig(read_only=True)
UNTOUCHED = {"ours": ["acme wants a lamp"], "theirs": ["other wants a lamp"]}


async def plant(url: str, act: str, kind: str, plan: object, *, done_at_us: int = 0) -> None:
    """Write an act by hand, as the role of a URL. A plan of bytes goes as it is."""
    told = plan if isinstance(plan, bytes) else json.dumps(plan).encode()
    await ask(url, PLANT, act, kind, told, done_at_us)


async def two_tenants(url: str) -> tuple[str, str]:
    """A store with a thread of each of two tenants, each with an event `order`; the roles' URLs."""
    acme, other = await secured(url, "acme", "other")
    async with memory_engine.open(url) as engine:
        for thread_id, tenant_id in (("ours", "acme"), ("theirs", "other")):
            thread = await engine.create_thread(thread_id, tenant_id=tenant_id)
            await thread.dispatch(UserMessage(content=f"{tenant_id} wants a lamp"), event_id="order")
    return acme, other


async def opened_by_the_owner(url: str) -> Sequence[Act]:
    """The acts, once an engine of the owner's was open, which goes on with those that are not done."""
    async with memory_engine.open(url) as engine:
        await kernel_of(engine).tasks.wait()
        return await engine.admin.acts()


async def said(url: str) -> Mapping[str, Sequence[str]]:
    """What the events of each thread say."""
    async with memory_engine.open(url, config=LOOKS) as engine:
        return {
            info.id: [getattr(one.event, "content", one.type) async for one in engine.thread(info.id).events()]
            for info in await engine.threads(kind="conversation")
        }


async def plan_for(url: str, kind: str, *threads: str) -> object:
    """The plan of an act that erases the event `order` of threads, or deletes them."""
    if kind != "delete":
        return {"events": {name: ["order"] for name in threads}}
    rows = await ask(url, "SELECT id, created_at_us FROM @.threads WHERE id = ANY ($1)", threads)
    return {"threads": {row["id"]: row["created_at_us"] for row in rows}}


@pytest.mark.parametrize("kind", ["erase", "delete", "anything"])
@pytest.mark.parametrize("threads", [["theirs"], ["ours", "theirs"]])
async def test_an_act_on_another_tenant_changes_nothing(url: str, kind: str, threads: list[str]) -> None:
    """Nor of its own tenant. It fails three times, is then not tried any more, and is never done."""
    acme, _ = await two_tenants(url)
    await plant(acme, "planted", kind, await plan_for(url, kind, *threads))
    for failures, state in ((1, "pending"), (2, "pending"), (3, "failed"), (3, "failed")):
        [act] = await opened_by_the_owner(url)
        assert (failures, state, 0) == (act.failures, act.state, act.done_at_us)
        assert "'theirs'" in act.error
    assert UNTOUCHED == await said(url)
    async with memory_engine.open(url) as engine:
        with pytest.raises(ActFailed, match=r"'theirs'.*retry_failed") as given_up:
            await engine.admin.finish_acts()
        with pytest.raises(ActFailed) as again:
            await engine.admin.finish_acts(retry_failed=True)
    assert ("planted", 3, True, 4) == (
        given_up.value.act,
        given_up.value.failures,
        given_up.value.is_given_up,
        again.value.failures,
    )
    assert isinstance(again.value.__cause__, ActRefused)
    assert UNTOUCHED == await said(url)


@pytest.mark.parametrize("kind", ["erase", "delete"])
async def test_what_a_role_may_ask_for_the_owner_finishes(url: str, kind: str) -> None:
    """An act of the tenant's own engine, which may not VACUUM, and one that was written by hand."""
    acme, _ = await two_tenants(url)
    async with memory_engine.open(acme) as engine:
        thread = await engine.create_thread("more", tenant_id="acme")
        await thread.dispatch(UserMessage(content="and a chair"), event_id="order")
        with pytest.raises(StorageFailed, match="VACUUM"):
            await (thread.admin.delete() if kind == "delete" else thread.admin.erase(["order"]))
    await plant(acme, "planted", kind, await plan_for(url, kind, "ours"))
    assert ["done", "done"] == [act.state for act in await opened_by_the_owner(url)]
    left = {"ours": ["[redacted]", "memory_forget", "events_erased"]} if kind == "erase" else {}
    assert left | {"theirs": UNTOUCHED["theirs"]} == {k: v for k, v in (await said(url)).items() if k != "more"}


async def test_an_act_is_of_the_role_that_writes_it(url: str) -> None:
    """Whatever its row says, when it is written or later."""
    acme, _ = await two_tenants(url)
    owner = (await ask(url, "SELECT current_user"))[0][0]
    plan = json.dumps(await plan_for(url, "erase", "theirs")).encode()
    await ask(
        acme,
        "INSERT INTO @.acts (id, kind, plan, asked_by, reason, asked_at_us, done_at_us, outcome, role) "
        f"VALUES ('a', 'erase', $1, '', '', 1, 0, '', '{owner}')",
        plan,
    )
    await ask(acme, f"UPDATE @.acts SET role = '{owner}'")
    assert ["pending"] == [act.state for act in await opened_by_the_owner(url)]
    assert [f"acme_{parse(url).schema}"] == [row[0] for row in await ask(url, "SELECT role FROM @.acts")]
    assert UNTOUCHED == await said(url)


async def test_rights_count_when_an_act_is_carried_out(url: str) -> None:
    """A role that was given another tenant meanwhile may; one that lost its tenant, or is gone, may not."""
    acme, other = await two_tenants(url)
    await plant(acme, "gained", "erase", await plan_for(url, "erase", "theirs"))
    await plant(other, "lost", "erase", await plan_for(url, "erase", "theirs"))
    await ask(url, "UPDATE @.tenant_roles SET tenant_id = 'other' WHERE role = $1", f"acme_{parse(url).schema}")
    await ask(url, "DELETE FROM @.tenant_roles WHERE role = $1", f"other_{parse(url).schema}")
    assert {"gained": "done", "lost": "pending"} == {act.id: act.state for act in await opened_by_the_owner(url)}
    await ask(url, "UPDATE @.acts SET role = 'nobody_of_that_name' WHERE id = 'lost'")
    assert {"gained": 0, "lost": 2} == {act.id: act.failures for act in await opened_by_the_owner(url)}


async def test_without_row_security_an_act_needs_the_right_to_delete(url: str) -> None:
    """A role that may write acts, and delete nothing, has nothing deleted for it; it may set a hold."""
    role, name = f"w_{parse(url).schema}", parse(url).schema
    async with memory_engine.open(url) as engine:
        for thread_id in ("t", "u"):
            await (await engine.create_thread(thread_id)).dispatch(UserMessage(content="a lamp"), event_id="order")
    await ask(url, f"CREATE ROLE {role} LOGIN")
    await ask(url, f"GRANT USAGE ON SCHEMA {name} TO {role}")
    await ask(url, f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {name} TO {role}")
    await plant(with_login(url, role), "planted", "erase", await plan_for(url, "erase", "t"))
    assert ["pending"] == [act.state for act in await opened_by_the_owner(url)]
    await ask(url, f"GRANT DELETE ON {name}.events TO {role}")
    assert ["done"] == [act.state for act in await opened_by_the_owner(url)]
    await ask(url, f"REVOKE DELETE ON {name}.events FROM {role}")
    await plant(with_login(url, role), "held", "hold", {"thread_id": "u"}, done_at_us=1)
    async with memory_engine.open(url) as engine:
        with pytest.raises(LegalHold):
            await engine.thread("u").admin.delete()


@pytest.mark.parametrize("kind", ["erase", "hold", "release", "delete"])
@pytest.mark.parametrize("done_at_us", [0, 1, (1 << 63) - 1])
async def test_bytes_that_a_role_writes_keep_nobody_from_acting(url: str, kind: str, done_at_us: int) -> None:
    """No act, hold or list of acts of the owner's depends on whether a role's row can be read."""
    acme, _ = await two_tenants(url)
    for n, plan in enumerate((b"\xff\xfe", b"", b"{", b"[1]", b'{"threads": 7, "holds": 1, "user_id": []}')):
        await plant(acme, f"junk-{n}", kind, plan, done_at_us=done_at_us)
    await ask(
        acme, "UPDATE @.acts SET reason = '\\xff', asked_by = '\\xff', outcome = '\\xff', asked_at_us = $1", 1 << 62
    )
    for _ in range(3):
        await opened_by_the_owner(url)
    acts = await opened_by_the_owner(url)
    assert {"done" if done_at_us else "failed"} == {act.state for act in acts}
    async with memory_engine.open(url) as engine:
        assert [] == await engine.admin.holds()
        await engine.thread("theirs").admin.hold()
        with pytest.raises(LegalHold):
            await engine.thread("theirs").admin.delete()
        assert (await engine.thread("ours").admin.erase(["order"])).is_done


async def test_a_role_holds_and_releases_its_own_alone(url: str) -> None:
    """Its hold on another tenant is none, and it ends no hold of the owner's. Its own count."""
    acme, _ = await two_tenants(url)
    async with memory_engine.open(url) as engine:
        kept = await engine.thread("ours").admin.hold(by="counsel")
        await plant(acme, "h1", "hold", {"tenant_id": "other"}, done_at_us=1)
        await plant(acme, "h2", "hold", {"thread_id": "theirs"}, done_at_us=1)
        await plant(acme, "h3", "hold", {"tenant_id": "acme"}, done_at_us=1)
        await plant(acme, "r1", "release", {"holds": [kept.id]}, done_at_us=1)
        assert ["h3", kept.id] == [one.id for one in await engine.admin.holds()]
        await plant(acme, "r2", "release", {"holds": ["h3"]}, done_at_us=1)
        assert [kept.id] == [one.id for one in await engine.admin.holds()]
        assert (await engine.thread("theirs").admin.erase(["order"])).is_done
        with pytest.raises(LegalHold):
            await engine.thread("ours").admin.delete()


async def test_what_a_role_says_is_done_retention_does(url: str) -> None:
    """The row of an act that never was does not keep the texts of another tenant."""
    acme, _ = await two_tenants(url)
    await plant(acme, "planted", "erase", await plan_for(url, "erase", "theirs"), done_at_us=1)
    async with memory_engine.open(url) as engine:
        await engine.admin.retain([RetentionRule(act="erase", older_than=timedelta(microseconds=1), tenant_id="other")])
    assert "[redacted]" == (await said(url))["theirs"][0]


async def test_an_act_beyond_its_asker_is_not_copied(url: str, tmp_path: Path) -> None:
    """In a file it would be anybody's. Those that its asker may have go along, and are finished there."""
    acme, _ = await two_tenants(url)
    async with memory_engine.open(url) as source:
        kept = await source.thread("theirs").admin.hold(by="counsel")
        await plant(acme, "h", "hold", {"tenant_id": "other"}, done_at_us=1)
        await plant(acme, "r", "release", {"holds": [kept.id]}, done_at_us=1)
        await plant(acme, "foreign", "delete", await plan_for(url, "delete", "theirs"))
        await plant(acme, "junk", "erase", b"\xff")
        await plant(acme, "own", "erase", await plan_for(url, "erase", "ours"))
        async with memory_engine.open(str(tmp_path / "copy.db")) as target:
            await source.copy_to(target)
            assert {"own", kept.id} == {act.id for act in await target.admin.acts()}
            assert 1 == len(await target.admin.finish_acts())
            assert [kept.id] == [one.id for one in await target.admin.holds()]
            [first] = [one async for one in target.thread("ours").events(upto=1)]
            assert UserMessage(content="[redacted]") == first.event


async def older(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of the schema before acts had a role, with threads of two tenants."""
    with monkeypatch.context() as patched:
        patched.setattr(schema, "VERSION", 2)
        store = await PostgresStore.open(url)
        for thread_id, tenant_id in (("ours", "acme"), ("theirs", "other")):
            await store.create(ThreadRecord(id=thread_id, tenant_id=tenant_id), Head(), ())
            await store.commit(unit(thread_id, event(1, id="order")))
        await store.close()


@pytest.mark.parametrize("is_secured", [False, True])
async def test_acts_of_an_older_schema_are_of_whoever_asked(
    url: str, monkeypatch: pytest.MonkeyPatch, *, is_secured: bool
) -> None:
    """The owner's pending acts are carried out after the migration; a role's on another tenant are not."""
    await older(url, monkeypatch)
    if is_secured:
        name = parse(url).schema
        await run(url, f"SET search_path = {name}; {SCRIPT.read_text(encoding='utf-8')}")
        await run(url, f"CREATE ROLE acme_{name} LOGIN; GRANT USAGE ON SCHEMA {name} TO acme_{name}")
        await run(url, f"GRANT ALL ON ALL TABLES IN SCHEMA {name} TO acme_{name}")
        await ask(url, "INSERT INTO @.tenant_roles VALUES ($1, 'acme')", f"acme_{name}")
        acme = with_login(url, f"acme_{name}")
        await plant(acme, "foreign", "delete", await plan_for(url, "delete", "theirs"))
    await plant(url, "owners", "delete", await plan_for(url, "delete", "ours"))
    acts = {act.id: act.state for act in await opened_by_the_owner(url)}
    assert {"owners": "done", **({"foreign": "pending"} if is_secured else {})} == acts
    async with memory_engine.open(url) as engine:
        assert ["theirs"] == [info.id for info in await engine.threads()]


async def run(url: str, sql: str) -> None:
    """Run a script."""
    connection = await asyncpg.connect(parse(url).dsn)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()
