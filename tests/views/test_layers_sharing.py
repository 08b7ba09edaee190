"""Memory shared between agents: granted layer by layer, within a tenant, ended at once, with provenance."""

from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, errors
from memory_engine import events as e


async def test_L6_nothing_is_shared_without_a_grant(engine: Engine) -> None:
    """The error names who must grant what."""
    lead, helper = engine.agent("lead"), engine.agent("helper")
    await lead.memory.learn("k", "v")
    with pytest.raises(
        errors.NotGranted, match=r"engine\.agent\('lead'\)\.share_with\('helper', layers=\(\"semantic\""
    ):
        await helper.shared("lead").recall("k")
    assert None is await helper.shared("lead").granted()


async def test_L6_a_grant_opens_the_layers_it_names(engine: Engine) -> None:
    """These can be read, the others not; a later grant takes its place."""
    lead, helper = engine.agent("lead"), engine.agent("helper")
    await lead.memory.learn("k", "v")
    await lead.memory.append("episodic", "found an anomaly")
    await lead.memory.append("procedural", "ask", condition="in doubt")
    await lead.share_with("helper", layers=("semantic", "procedural"))
    shared = helper.shared("lead")
    known = await shared.recall("k")
    assert ("v", ["ask"]) == (known.value if known else "", [rule.action for rule in await shared.rules()])
    assert ["v"] == [hit.content for hit in await shared.search("semantic", "k")]
    assert ["v"] == [hit.content for hit in await shared.search(None, "k")]
    for layers in ("episodic", ("semantic", "episodic")):
        with pytest.raises(errors.NotGranted, match="episodic"):
            await shared.search(layers, "anomaly")
    await lead.share_with("helper", layers="episodic")
    assert 1 == len(await shared.search("episodic", "anomaly"))
    with pytest.raises(errors.NotGranted):
        await shared.recall("k")


async def test_L6_a_revocation_holds_at_once(tmp_path: Path) -> None:
    """Also for a handle that was used before, in another engine on the same file."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine, memory_engine.open(path) as other:
        lead, shared = engine.agent("lead"), engine.agent("helper").shared("lead")
        await lead.memory.learn("k", "v")
        await lead.share_with("helper", layers=("semantic",))
        assert await shared.recall("k") is not None
        assert ["helper"] == [grant.agent_id for grant in await lead.grants()]
        await lead.revoke("helper", reason="done")
        with pytest.raises(errors.NotGranted):
            await shared.recall("k")
        with pytest.raises(errors.NotGranted):
            await other.agent("helper").shared("lead").recall("k")
        assert ([], 1) == (await lead.grants(), len(await lead.grants(at=2)))


async def test_L6_writing_needs_a_grant_of_its_own(engine: Engine) -> None:
    """With `write=True` an entry arrives in the owner's memory, once, and says where it is from."""
    lead, helper = engine.agent("lead"), engine.agent("helper")
    await lead.share_with("helper", layers=("semantic", "episodic"))
    with pytest.raises(errors.NotGranted, match="write=True"):
        await helper.shared("lead").learn("k", "v")
    await lead.share_with("helper", layers=("semantic", "episodic"), write=True)
    receipt = await helper.shared("lead").append("episodic", "checked the files", metadata={"n": 3})
    await helper.shared("lead").learn("k", "v")
    (entry,) = await lead.memory.entries("episodic")
    assert ("checked the files", {"n": 3}, helper.id) == (entry.content, entry.metadata, entry.source_thread)
    (arrived,) = [
        r async for r in lead.events() if isinstance(r.event, e.MemoryAppended) and r.event.layer == "episodic"
    ]
    assert receipt.event_id == arrived.causation_id
    known = await lead.memory.recall("k")
    assert ("v", helper.id) == (known.value, known.source_thread) if known else ()


async def test_L6_what_a_helper_forgets_is_forgotten_at_the_owner(engine: Engine) -> None:
    """The shared entry goes with the event that shared it."""
    lead, helper = engine.agent("lead"), engine.agent("helper")
    await lead.share_with("helper", layers=("episodic",), write=True)
    receipt = await helper.shared("lead").append("episodic", "secret")
    await helper.forget(event_ids=[receipt.event_id])
    assert [] == await lead.memory.entries("episodic")


async def test_L6_grants_are_of_one_tenant(engine: Engine) -> None:
    """An agent of the same id in another tenant, or in none, sees nothing."""
    lead = engine.agent("lead", tenant_id="acme")
    await lead.memory.learn("k", "v")
    await lead.share_with("helper", layers=("semantic",))
    assert await engine.agent("helper", tenant_id="acme").shared("lead").recall("k") is not None
    for helper in (engine.agent("helper"), engine.agent("helper", tenant_id="other")):
        with pytest.raises(errors.NotGranted):
            await helper.shared("lead").recall("k")
    assert None is await engine.agent("lead", tenant_id="other").memory.recall("k")


async def test_L6_a_forgotten_grant_does_not_hold(engine: Engine) -> None:
    """Forgetting the event that granted is a way to end it."""
    lead = engine.agent("lead")
    receipt = await lead.share_with("helper", layers=("semantic",))
    await lead.forget(event_ids=[receipt.event_id])
    assert [] == await lead.grants()
    assert (await lead.replay.verify()).ok
