"""Industry patterns are taken back: by hand, and by themselves when what they rested on goes; once, after any crash."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.errors import NotJoined, StorageBusy, UnknownPattern
from memory_engine.projections.outbox import OUTBOX
from memory_engine.runtime.delivery import Relay
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from memory_engine.views.patterns.fold import PATTERNS, shares
from memory_engine.views.patterns.pool import pattern_id
from tests.patterns import approved, joined, promoted, texts, told
from tests.staying import StayOpen


async def gone(engine: Engine, tenant: str = "globex") -> None:
    """Assert that nothing of it is left where anybody looks."""
    await engine.settle()
    industry = engine.industry("retail")
    assert [] == await texts(engine, tenant)
    assert () == await engine.tenant(tenant).patterns.search("returns discounts")
    assert {} == await industry.views.read("pattern_pool")
    head = (await industry.info()).events
    for at in (None, *range(head + 1)):
        assert () == (await industry.search("returns double after discounts", at=at)).hits
    assert all(report.ok for report in await engine.verify())


async def test_S8_a_revoked_pattern_is_gone_from_every_read(engine: Engine) -> None:
    """From the pool, from searches as of any seq; it may be approved again, and others' shares of it stay."""
    await joined(engine, "acme", "globex", "third")
    pattern_id = await approved(engine, "acme", "Returns double after discounts")
    assert 1 == len(await engine.industry("retail").search("returns"))
    await engine.tenant("acme").patterns.revoke(pattern_id, by="ann", reason="wrong")
    await gone(engine)
    with pytest.raises(UnknownPattern):
        await engine.tenant("acme").patterns.revoke(pattern_id, by="ann")
    for tenant in ("acme", "third"):
        assert pattern_id == await approved(engine, tenant, "Returns double after discounts")
    await engine.tenant("acme").patterns.revoke(pattern_id, by="ann")
    assert [1] == [pattern.tenants for pattern in await engine.tenant("globex").patterns.list()]
    assert 1 == len(await engine.tenant("globex").patterns.search("returns"))


async def test_S8_what_a_tenant_shared_is_taken_back_when_its_thread_is_cleared(engine: Engine) -> None:
    """And it can share again."""
    await joined(engine, "acme", "globex")
    shared = await approved(engine, "acme", "Returns double after discounts")
    await engine.thread(engine.tenant("acme").id).admin.clear()
    await gone(engine)
    await joined(engine, "acme")
    assert shared == await approved(engine, "acme", "Returns double after discounts")


async def test_S8_nobody_revokes_what_others_share(engine: Engine) -> None:
    """A pattern's id is known to all who read it, and good for their own share only."""
    await joined(engine, "acme", "globex")
    pattern_id = await approved(engine, "acme", "Returns double")
    with pytest.raises(UnknownPattern):
        await engine.tenant("globex").patterns.revoke(pattern_id, by="eve")
    assert ["Returns double"] == await texts(engine, "globex")


async def test_S8_leaving_withdraws_all_and_ends_reading(engine: Engine) -> None:
    """Proposals go too; another industry's shares stay. Who joins again begins with nothing and another secret."""
    await joined(engine, "acme", "globex")
    acme = engine.tenant("acme").patterns
    await acme.join("fashion")
    for said in ("Returns double after discounts", "Discounts pull returns"):
        await approved(engine, "acme", said)
    await approved(engine, "acme", "Returns double after discounts", industry="fashion")
    (line,) = await promoted(engine, "acme", "Churn is seasonal")
    await acme.propose(line, industry="retail")
    await acme.leave("retail", by="ann", reason="sold")
    await gone(engine)
    assert (("fashion",), ()) == (await acme.joined(), await acme.review())
    assert ["fashion"] == [pattern.industry for pattern in await acme.list()]
    for call in (acme.list("retail"), acme.leave("retail")):
        with pytest.raises(NotJoined):
            await call
    await acme.join("retail")
    assert () == await acme.list("retail")


async def _remove(engine: Engine, line: int) -> None:
    await engine.tenant("acme").agent_md.remove(line)


async def _delete_by_hand(engine: Engine, line: int) -> None:
    agent_md = engine.tenant("acme").agent_md
    file = await agent_md.read()
    await agent_md.upload("".join(one for one in file.splitlines(keepends=True) if f"promoted {line} " not in one))


async def _forget_line(engine: Engine, line: int) -> None:
    tenant = engine.tenant("acme")
    found = next(one for one in await tenant.agent_md.lines() if one.id == line)
    await tenant.forget(event_ids=[found.promotions[0].event_id], reason="asked to by ann")


async def _forget_said(engine: Engine, _line: int) -> None:
    thread = engine.thread("talk")
    await thread.forget(event_ids=[(await thread.replay.latest(9))[0].id], reason="asked to by ann")


async def _forget_approval(engine: Engine, _line: int) -> None:
    tenant = engine.tenant("acme")
    (approval,) = [one async for one in tenant.events() if isinstance(one.event, e.PatternApproved)]
    await tenant.forget(event_ids=[approval.id], reason="asked to by ann")


async def _forget_joining(engine: Engine, _line: int) -> None:
    tenant = engine.tenant("acme")
    await tenant.forget(event_ids=[(await tenant.replay.latest(99))[0].id], reason="asked to by ann")


async def _forget_by_seq(engine: Engine, line: int) -> None:
    await engine.tenant("acme").dispatch(e.MemoryForget(seqs=(line,), reason="asked to by ann"))


async def _delete_tenant(engine: Engine, _line: int) -> None:
    await engine.tenant("acme").admin.delete()


async def _archive_and_delete(engine: Engine, _line: int) -> None:
    await engine.tenant("acme").admin.archive()
    await engine.tenant("acme").admin.delete()


@pytest.mark.parametrize(
    "end",
    [
        _remove, _delete_by_hand, _forget_line, _forget_said, _forget_approval, _forget_joining, _forget_by_seq,
        _delete_tenant, _archive_and_delete,
    ],
    ids=lambda end: end.__name__.strip("_"),
)  # fmt: skip
async def test_S8_what_a_pattern_rested_on_takes_it_along(engine: Engine, end: object) -> None:
    """Its line removed or forgotten here or where it was said, its approval, its joining: the pool tells no reason."""
    await joined(engine, "acme", "globex")
    thread = await engine.create_thread("talk", user_id="u1", tenant_id="acme")
    snippet = await thread.dispatch(e.ScratchpadWritten(content="Returns double after discounts"))
    await thread.promotion.request(snippet.chunks[-1].id, target="agent_md")
    (line,) = await engine.tenant("acme").agent_md.lines()
    patterns = engine.tenant("acme").patterns
    await patterns.approve((await patterns.propose(line.id)).id, by="ann")
    assert 1 == len(await texts(engine, "globex"))
    await end(engine, line.id)  # type: ignore[operator]
    await gone(engine)
    assert "ann" not in await told(engine, "retail")


@pytest.mark.parametrize("end", [_remove, _forget_line])
async def test_S8_a_proposal_goes_with_its_line(engine: Engine, end: object) -> None:
    """There is nothing to decide about any more."""
    await joined(engine, "acme")
    (line,) = await promoted(engine, "acme", "Returns double")
    patterns = engine.tenant("acme").patterns
    proposal = await patterns.propose(line)
    await end(engine, line)  # type: ignore[operator]
    assert () == await patterns.review()
    with pytest.raises(UnknownPattern):
        await patterns.approve(proposal.id, by="ann")


async def test_S8_a_share_stands_while_another_line_says_the_same(engine: Engine) -> None:
    """Only with the last of its approvals it goes."""
    await joined(engine, "acme", "globex")
    for said in ("Returns double", "Returns double in Paris"):
        await approved(engine, "acme", said, text="Returns double")
    one, other = await engine.tenant("acme").agent_md.lines()
    await _remove(engine, one.id)
    await engine.settle()
    assert ["Returns double"] == await texts(engine, "globex")
    await _remove(engine, other.id)
    await gone(engine)


async def test_S8_forgetting_is_done_when_it_returns(engine: Engine) -> None:
    """In the conversation where it was said, through the tenant, to the industry: without waiting for anything else."""
    await joined(engine, "acme", "globex")
    thread = await engine.create_thread("talk", user_id="u1", tenant_id="acme")
    snippet = await thread.dispatch(e.ScratchpadWritten(content="Returns double"))
    await thread.promotion.request(snippet.chunks[-1].id, target="agent_md")
    patterns = engine.tenant("acme").patterns
    await patterns.approve((await patterns.propose("Returns double")).id, by="ann")
    await thread.forget(event_ids=[snippet.event_id])
    assert [] == await texts(engine, "globex")


async def test_S8_what_was_approved_too_late_is_withdrawn(engine: Engine) -> None:
    """An approval that comes after its line or its tenant is gone does not stand."""
    await joined(engine, "acme", "globex")
    late = e.PatternApproved(proposal=99, industry="retail", share="ab", text="Returns double", by="ann")
    await engine.tenant("acme").dispatch(late)
    await gone(engine)


# Once, and after crashes


async def _nothing() -> None:
    """Leave the store open for the next engine."""


@pytest.mark.parametrize("commit", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_S8_a_crash_after_the_approval_publishes_once(commit: int, when: str, stay_open: StayOpen) -> None:
    """Whether the pattern or the note of its arrival was lost, who opens the store next delivers it once."""
    kept = MemoryStore()
    store = FaultyStore(kept)
    stay_open(store)
    async with memory_engine.open(store) as engine:
        await joined(engine, "acme", "globex")
        await approved(engine, "acme", "Something that was shared before")
        (line,) = await promoted(engine, "acme", "Returns double")
        proposal = await engine.tenant("acme").patterns.propose(line)
        await engine.settle()
        store.fail(StorageBusy("it died here", 0.0), commit=1 + commit, when=when)  # type: ignore[arg-type]
        with pytest.raises(StorageBusy):
            await engine.tenant("acme").patterns.approve(proposal.id, by="ann")
    async with memory_engine.open(kept) as engine:
        assert ["Something that was shared before", "Returns double"] == await texts(engine, "globex")
        await engine.settle()
        assert (2, 0) == (
            (await engine.industry("retail").info()).events,
            len(await engine.tenant("acme").views.rows(OUTBOX)),
        )


async def test_S8_who_reads_first_sees_the_withdrawal_that_a_crash_left(tmp_path: Path) -> None:
    """A line was removed and the process died: the first read of the next one does not show the pattern."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        await joined(engine, "acme", "globex")
        await approved(engine, "acme", "Returns double after discounts")
        await engine.settle()
        kernel_of(engine)[Relay].touched = lambda thread_id: None  # type: ignore[method-assign]  # it dies before
        await engine.tenant("acme").agent_md.remove((await engine.tenant("acme").agent_md.lines())[0].id)
        assert 1 == len(await texts(engine, "globex"))
    async with memory_engine.open(path) as engine:
        assert [] == await texts(engine, "globex")
        await gone(engine)
    async with memory_engine.open(path) as engine:
        await gone(engine)
        assert 2 == (await engine.industry("retail").info()).events


async def test_S8_what_is_revoked_before_it_left_never_leaves(engine: Engine) -> None:
    """An industry that takes nothing for a while sees the end of a share and not its text."""
    await joined(engine, "acme", "globex")
    await approved(engine, "globex", "Churn is seasonal")
    await engine.industry("retail").admin.pause()
    (line,) = await promoted(engine, "acme", "Returns double after discounts")
    patterns = engine.tenant("acme").patterns
    proposal = await patterns.propose(line)
    await engine.tenant("acme").dispatch(
        e.PatternApproved(proposal=proposal.id, industry="retail", share="ab", text=proposal.text, by="ann")
    )
    await engine.settle()
    assert ["ab"] == [row.share for row in shares(await engine.tenant("acme").views.rows(PATTERNS))]
    await engine.tenant("acme").agent_md.remove(line)
    await engine.industry("retail").admin.resume()
    await engine.settle()
    assert ["Churn is seasonal"] == await texts(engine, "globex")
    assert "discounts" not in await told(engine, "retail")


async def test_S8_all_of_it_is_seen_as_it_was_and_made_again(tmp_path: Path) -> None:
    """As of any seq, after a reopening, after a rebuild; the logs verify."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        await joined(engine, "acme", "globex")
        await approved(engine, "acme", "Returns double")
    async with memory_engine.open(path) as engine:
        before = [
            await engine.tenant("acme").views.read("patterns"),
            await engine.industry("retail").views.read("pattern_pool"),
        ]
        for thread in (engine.tenant("acme"), engine.industry("retail")):
            await thread.replay.rebuild()
            assert (await thread.replay.verify()).ok
        after = [
            await engine.tenant("acme").views.read("patterns"),
            await engine.industry("retail").views.read("pattern_pool"),
        ]
        assert before == after
        assert {} == await engine.industry("retail").views.read("pattern_pool", at=0)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(("approve", "approve", "approve", "revoke", "remove", "forget", "leave", "reopen")),
        st.sampled_from(("a", "b")),
        st.sampled_from(("Returns double", "Churn is seasonal")),
        st.sampled_from(("Paris", "Rome")),
    ),
    max_size=14,
)


@settings(max_examples=40)
@given(OPERATIONS)
async def test_S8_the_pool_holds_what_is_approved_and_still_stands(operations: list[tuple[str, str, str, str]]) -> None:
    """Whatever is approved, revoked, removed, forgotten and left in whichever order, in one process or several."""
    standing: dict[tuple[str, str], set[str]] = {}
    kept = MemoryStore()
    close, kept.close = kept.close, _nothing  # type: ignore[method-assign]
    stack = AsyncExitStack()
    engine = await stack.enter_async_context(memory_engine.open(kept))
    await joined(engine, "a", "b", "reader")
    for operation, tenant, said, city in operations:
        if operation == "reopen":
            await stack.aclose()
            engine = await stack.enter_async_context(memory_engine.open(kept))
        else:
            await _done(engine, standing, operation, (tenant, said, city))
    counts = {said: sum((tenant, said) in standing for tenant in "ab") for _, said in standing}
    seen = {one.text: one.tenants for one in await engine.tenant("reader").patterns.list()}
    assert counts == seen
    hits = await engine.industry("retail").search("returns double, churn is seasonal", limit=100)
    assert sorted(said for _, said in standing) == sorted(hit.text for hit in hits)
    assert all(report.ok for report in await engine.verify())
    await stack.aclose()
    await close()


async def _done(
    engine: Engine, standing: dict[tuple[str, str], set[str]], operation: str, what: tuple[str, str, str]
) -> None:
    """Do it, and to the model what it should do."""
    tenant, said, city = what
    patterns = engine.tenant(tenant).patterns
    line = f"{said} in {city}"
    lines = {one.text: one for one in await engine.tenant(tenant).agent_md.lines()}
    match operation:
        case "approve" if city not in standing.get((tenant, said), ()):
            await approved(engine, tenant, line, text=said)
            standing.setdefault((tenant, said), set()).add(city)
        case "revoke" if (tenant, said) in standing:
            await patterns.revoke(pattern_id(said), by="p")
            del standing[tenant, said]
        case "remove" | "forget" if line in lines:
            if operation == "remove":
                await engine.tenant(tenant).agent_md.remove(lines[line].id)
            else:
                await engine.tenant(tenant).forget(event_ids=[one.event_id for one in lines[line].promotions])
            standing.get((tenant, said), set()).discard(city)
            if not standing.get((tenant, said), {""}):
                del standing[tenant, said]
            await engine.settle()
        case "leave":
            await patterns.leave("retail")
            await patterns.join("retail")
            for key in [key for key in standing if key[0] == tenant]:
                del standing[key]
