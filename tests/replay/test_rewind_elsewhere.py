"""What other threads have learned from a rewound thread goes and comes back with it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, Thread, errors
from memory_engine import events as e
from memory_engine.runtime.delivery import Relay
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from tests.patterns import joined, texts
from tests.replay.test_rewind import fact, known, talk
from tests.staying import StayOpen

TASTE = "The user prefers short answers"
RULE = "Revenue dips every Sunday"


async def promoted(engine: Engine) -> Thread:
    """A conversation of which a preference and a rule were promoted, from event 2 on."""
    thread = await engine.create_thread("t", user_id="u", tenant_id="acme")
    await talk(thread, "hello")
    for n, text in enumerate((TASTE, RULE)):
        await thread.scratchpad.write(text, flow=f"flow {n}")
    await thread.promotion.evaluate(trigger="report_saved")
    await thread.delivered()
    return thread


async def learned(engine: Engine) -> tuple[Sequence[object], Sequence[str]]:
    """The promoted preferences and rules."""
    preferences = await engine.user("u", tenant_id="acme").preferences.all()
    lines = await engine.tenant("acme").agent_md.lines()
    return [one.value for one in preferences.values()], [line.text for line in lines]


async def test_what_was_learned_elsewhere_goes_and_comes_back(engine: Engine) -> None:
    """Preferences of the user and rules of the tenant, in their views; each is listed, with its text."""
    thread = await promoted(engine)
    was = await learned(engine)
    assert was[0]
    assert was[1]
    told = await thread.rewind(1, dry_run=True)
    assert was == await learned(engine)
    assert {"hidden"} == {one.change for one in told.learned}
    assert any(RULE in one.text for one in told.learned)
    await thread.rewind(1)
    assert ([], []) == await learned(engine)
    await thread.rewind(redo=True)
    assert was == await learned(engine)
    assert [] == [report for report in await engine.verify() if not report.ok]


@pytest.mark.parametrize("name", ["", "log.db"])
async def test_a_thread_that_is_archived_is_named_when_its_facts_cannot_go(name: str, tmp_path: Path) -> None:
    """All else is taken back; once it is unarchived, a further rewind reaches it."""
    async with memory_engine.open(str(tmp_path / name) if name else ":memory:") as engine:
        thread = await promoted(engine)
        user = engine.user("u", tenant_id="acme")
        await user.admin.archive()
        with pytest.raises(errors.ThreadClosed, match="user:acme/u"):
            await thread.rewind(1)
        assert ["hello"] == [chunk.text for chunk in (await thread.state()).chunks()]
        assert ([TASTE], []) == await learned(engine)
        await user.admin.unarchive()
        await thread.rewind(redo=True)
        await thread.rewind(1)
        assert ([], []) == await learned(engine)


@pytest.mark.parametrize("commit", [1, 2, 3])
async def test_a_crash_on_the_way_takes_a_fact_back_once(commit: int, stay_open: StayOpen) -> None:
    """Whether the arrival or the note of it was lost: who opens the store next delivers it once."""
    kept = MemoryStore()
    store = FaultyStore(kept)
    stay_open(store)
    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread("t")
        await talk(thread, "one")
        await thread.dispatch(fact("learned"))
        await thread.delivered()
        assert ["learned"] == await known(engine, "b")
        engine.kernel[Relay].touched = lambda thread_id: None  # type: ignore[method-assign]  # it dies before
        store.fail(errors.StorageBusy("it died here", 0.0), commit=commit)
        with pytest.raises(errors.StorageBusy):
            await thread.rewind(1)
    async with memory_engine.open(kept) as engine:
        expected = ["learned"] if commit == 1 else []  # the rewind itself was not committed
        assert expected == await known(engine, "b")
        types = [one.type async for one in engine.agent("b").events()]
        assert ([] if commit == 1 else ["facts_rewound"]) == types[1:]
        assert [] == [report for report in await engine.verify() if not report.ok]


async def test_a_fact_that_had_not_left_yet_is_taken_back_behind_it(engine: Engine) -> None:
    """It arrives and is hidden, in this order; brought back, it is shown."""
    engine.kernel[Relay].touched = lambda thread_id: None  # type: ignore[method-assign]  # only when it is asked to
    thread = await engine.create_thread("t")
    await talk(thread, "one")
    await thread.dispatch(fact("learned"))
    report = await thread.rewind(1)
    assert [0] == [one.seq for one in report.learned]
    assert [] == await known(engine, "b")
    await thread.rewind(redo=True)
    assert ["learned"] == await known(engine, "b")


async def test_what_others_have_built_on_it_is_listed_and_stays(engine: Engine) -> None:
    """A compaction of an agent's entries names the facts that it was made of."""
    thread = await engine.create_thread("t")
    await talk(thread, "one")
    await thread.dispatch(fact("learned"))
    await thread.delivered()
    (arrived,) = [one async for one in engine.agent("b").events()]
    await engine.agent("b").dispatch(
        e.MemoryAppended(layer="semantic", content="built", key="k", sources=(arrived.id,))
    )
    report = await thread.rewind(1)
    assert [("agent:b", "stays")] == [(one.thread_id, one.change) for one in report.built_on]


async def test_copies_recalled_by_other_threads_go(tmp_path: Path) -> None:
    """From their contexts and states: what was taken back is found nowhere."""
    async with memory_engine.open(str(tmp_path / "log.db")) as engine:
        first = await engine.create_thread("t", user_id="u", tenant_id="acme")
        await talk(first, "hello", "The gate code of the warehouse is 4711.")
        second = await engine.create_thread("s", user_id="u", tenant_id="acme")
        await talk(second, "What is the gate code of the warehouse?")
        query = "gate code of the warehouse"
        context = await second.context(2_000, query=query, recall_from=[first])
        assert "4711" in str(context.messages)
        await second.dispatch(e.LlmTextResponse(content="I shall look."))
        await first.rewind(1)
        assert "4711" not in str((await second.state()).everything())
        assert "4711" not in str((await second.context(2_000, query=query, recall_from=[first])).messages)
        await first.rewind(redo=True)
        await talk(second, "And now, the gate code of the warehouse?")
        assert "4711" in str((await second.context(2_000, query=query, recall_from=[first])).messages)
        assert [] == [report for report in await engine.verify() if not report.ok]


async def test_a_policy_and_metadata_stay(engine: Engine) -> None:
    """They are of the thread's record, which no rewind changes."""
    thread = await engine.create_thread("t", metadata={"a": "1"})
    await talk(thread, "one")
    await thread.update(metadata={"a": "2"}, policy=CompactionPolicy(threshold=77))
    await talk(thread, "two")
    await thread.rewind(1)
    assert "2" == (await thread.info()).metadata["a"]


async def test_what_a_tenant_shared_of_it_is_withdrawn(engine: Engine) -> None:
    """A pattern that rests on no other line; brought back, the line can be shared again."""
    await joined(engine, "acme", "globex")
    thread = await promoted(engine)

    async def share() -> None:
        patterns = engine.tenant("acme").patterns
        (line,) = await engine.tenant("acme").agent_md.lines()
        await patterns.approve((await patterns.propose(line.id, industry="retail")).id, by="a person")
        await engine.settle()

    await share()
    assert [RULE] == await texts(engine, "globex")
    await thread.rewind(1)
    await engine.settle()
    assert [] == await texts(engine, "globex")
    await thread.rewind(redo=True)
    assert [] == await texts(engine, "globex")
    await share()
    assert [RULE] == await texts(engine, "globex")
    assert [] == [report for report in await engine.verify() if not report.ok]
