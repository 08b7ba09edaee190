"""Events bear what they belong to and what caused them: from blocks around the sender, and from the engine itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

import memory_engine
from memory_engine import (
    AgentLifecycle,
    CompactionPolicy,
    Destination,
    Engine,
    EngineConfig,
    MemoryForget,
    MemoryShared,
    MemoryTools,
    NewEvent,
    Receipt,
    RecordedEvent,
    Thread,
    UserMessage,
    caused_by,
    correlated,
)
from memory_engine import events as e
from memory_engine.errors import InvalidEvent, InvalidIdentifier
from memory_engine.runtime.correlation import UNLINKED, current_links, linked
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FakeCompactor, Hangs
from tests.conversations import LONG, log, opened
from tests.patterns import approved, joined
from tests.staying import StayOpen


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """An engine in memory."""
    async with memory_engine.open(":memory:") as engine:
        yield engine


def links(event: RecordedEvent) -> tuple[str, str]:
    """What caused an event, and what it belongs to."""
    return event.causation_id, event.correlation_id


async def said(thread: Thread) -> dict[str, tuple[str, str]]:
    """The links of a thread's messages, by what they say."""
    return {str(one.event.content): links(one) for one in await log(thread) if isinstance(one.event, UserMessage)}


def message(content: str) -> UserMessage:
    """A message."""
    return UserMessage(content=content)


async def test_all_that_is_dispatched_within_belongs_together(engine: Engine) -> None:
    """One by one or together, by handle or by engine; what is outside does not."""
    thread = await engine.create_thread("t")
    await thread.dispatch(message("before"))
    with correlated("order-17"):
        await thread.dispatch(message("one"))
        await thread.dispatch_all([message("two"), NewEvent(message("three"))])
        await engine.dispatch("t", message("four"))
    await thread.dispatch(message("after"))
    found = await said(thread)
    assert {"before": ("", ""), "after": ("", "")} == {name: found.pop(name) for name in ("before", "after")}
    assert {("", "order-17")} == set(found.values())


async def test_what_the_sender_gives_counts_more(engine: Engine) -> None:
    """Each id alone: the other still comes from the block."""
    thread = await engine.create_thread("t")
    with correlated("order-17"), caused_by("e0"):
        await thread.dispatch(message("a"), correlation_id="own")
        await thread.dispatch_all([NewEvent(message("b"), causation_id="mine")])
    assert {"a": ("e0", "own"), "b": ("mine", "order-17")} == await said(thread)


async def test_the_innermost_block_counts(engine: Engine) -> None:
    """And ends where it ends, also by an error."""
    thread = await engine.create_thread("t")
    with correlated("outer"):
        with suppress(ZeroDivisionError), correlated("inner"):
            await thread.dispatch(message("in"))
            raise ZeroDivisionError
        await thread.dispatch(message("out"))
        with linked(UNLINKED):
            await thread.dispatch(message("neither"))
    assert {"in": ("", "inner"), "out": ("", "outer"), "neither": ("", "")} == await said(thread)
    assert UNLINKED == current_links()


async def test_tasks_started_within_belong_to_it(engine: Engine) -> None:
    """Also while the block has ended; tasks at work beside it do not."""
    thread = await engine.create_thread("t")
    inside, beside = asyncio.Event(), asyncio.Event()

    async def other() -> None:
        await inside.wait()
        await thread.dispatch(message("beside"))
        beside.set()

    async def later() -> None:
        await beside.wait()
        await thread.dispatch(message("later"))

    task = asyncio.create_task(other())
    with correlated("order-17"):
        started = asyncio.create_task(later())
        inside.set()
        await beside.wait()
    await asyncio.gather(task, started)
    assert {"beside": ("", ""), "later": ("", "order-17")} == await said(thread)


async def test_events_that_wait_keep_their_own(engine: Engine) -> None:
    """A queue that is drained by another's commit mixes nothing up."""
    thread = await engine.create_thread("t")
    await thread.admin.pause()
    waiting = []
    for name in ("a", "b", "c"):
        with correlated(name):
            waiting.append(asyncio.create_task(thread.dispatch(message(name))))
    await asyncio.sleep(0)
    with correlated("who resumes"):
        await thread.admin.resume()
    await asyncio.gather(*waiting)
    assert {name: ("", name) for name in "abc"} == await said(thread)


async def test_a_cause_is_a_receipt_a_recorded_event_or_an_id(engine: Engine) -> None:
    """One that was read back brings its correlation id, unless a block around sets one."""
    thread = await engine.create_thread("t")
    receipt = await thread.dispatch(message("cause"), event_id="e0", correlation_id="order-17")
    [recorded] = await log(thread)
    causes: dict[str, Receipt | RecordedEvent | str] = {"receipt": receipt, "recorded": recorded, "id": "e0"}
    for name, cause in causes.items():
        with caused_by(cause):
            await thread.dispatch(message(name))
    with correlated("around"), caused_by(recorded):
        await thread.dispatch(message("within"))
    with caused_by(recorded), correlated("inner"):
        await thread.dispatch(message("inner"))
    assert {
        "cause": ("", "order-17"),
        "receipt": ("e0", ""),
        "recorded": ("e0", "order-17"),
        "id": ("e0", ""),
        "within": ("e0", "around"),
        "inner": ("e0", "inner"),
    } == await said(thread)


@pytest.mark.parametrize("value", ["", "\x00", "\ud800", "x" * 5_000])
def test_an_id_that_no_store_can_hold_is_refused_at_once(value: str) -> None:
    """Before anything is dispatched."""
    with pytest.raises(InvalidIdentifier), correlated(value):
        pass
    with pytest.raises(InvalidIdentifier), caused_by(value):
        pass


def test_what_is_no_event_causes_nothing() -> None:
    """A wrong type is named."""
    with pytest.raises(TypeError, match="a cause is a receipt"), caused_by(3):  # type: ignore[arg-type]
        pass


async def test_views_tools_and_runs_belong_to_it_too(engine: Engine) -> None:
    """Whatever the calls within dispatch, to whichever thread."""
    thread = await engine.create_thread("t")
    tools = MemoryTools(engine.agent("a"), thread)
    with correlated("order-17"):
        await engine.user("u").preferences.update("tone", "dry")
        await thread.scratchpad.write("A finding.")
        await tools.call("memory_append", {"layer": "episodic", "content": "did it", "condition": None})
        run = AgentLifecycle(engine, thread, agent_id="a")
        await run.start("Explain the spike")
        await run.end("A campaign went live.")
        await engine.settle()
    for info in await engine.threads():
        events = [one for one in await log(engine.thread(info.id)) if one.type != "facts_delivered"]
        assert {"order-17"} == {one.correlation_id for one in events}
    assert {"t", "user:u", "agent:a"} == {one.thread_id for one in await engine.correlated("order-17")}


async def test_a_fact_arrives_with_its_cause_and_what_that_belongs_to(engine: Engine) -> None:
    """Not with what its carrier is at: facts of others are delivered by whoever comes first."""
    sender = engine.agent("a")
    for name in ("first", "second"):
        with correlated(name):
            shared = MemoryShared(destination=Destination("agent", "b"), layer="episodic", content=name)
            await sender.dispatch(shared, event_id=f"e-{name}")
    with correlated("the carrier"):
        await sender.views.delivered()
    arrived = {one.causation_id: one.correlation_id for one in await log(engine.agent("b"))}
    assert {"e-first": "first", "e-second": "second"} == arrived
    assert {("", "")} == {links(one) for one in await log(sender) if one.type == "facts_delivered"}


async def test_a_forgetting_elsewhere_belongs_to_the_one_that_caused_it(engine: Engine) -> None:
    """It carries the cause, and the correlation id of the block in which it was asked for."""
    sender = engine.agent("a")
    shared = MemoryShared(destination=Destination("agent", "b"), layer="episodic", content="x")
    await sender.dispatch(shared, event_id="e1")
    with correlated("erasure-3"):
        receipt = await sender.forget(event_ids=["e1"])
    [there] = [one for one in await log(engine.agent("b")) if isinstance(one.event, MemoryForget)]
    assert (receipt.event_id, "erasure-3") == links(there)


async def test_a_compaction_names_the_event_that_made_it_due() -> None:
    """Both of its events, with what that event belongs to; whoever else was at work plays no part."""
    async with opened(FakeCompactor(), CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0)) as engine:
        thread = await engine.create_thread("t")
        for n in range(4):
            with correlated(f"call-{n}"):
                await thread.dispatch(message(f"{n}{LONG}"), event_id=f"e{n}")
        await thread.compaction.settle()
        events = {one.type: links(one) for one in await log(thread)}
        assert ("e3", "call-3") == events["compaction_started"] == events["compaction_completed"]


async def test_a_compaction_that_is_asked_for_belongs_to_the_one_who_asks() -> None:
    """As every other event that a call dispatches."""
    async with opened(FakeCompactor(), CompactionPolicy(enabled=False, keep_recent=0)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([message(f"{n}{LONG}") for n in range(4)])
        with correlated("nightly"), caused_by("cron"):
            await thread.compact()
        assert {("cron", "nightly")} == {links(one) for one in await log(thread) if one.type.startswith("compaction")}


async def test_an_abandoned_compaction_names_its_start(tmp_path: Path) -> None:
    """Who finds it when opening the thread is not what it belongs to."""
    path = str(tmp_path / "m.db")
    started = e.CompactionStarted(
        compaction_id="c", trigger="manual", chunk_ids=(), compactor="x", owner="0@nowhere", deadline_us=0
    )
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(started, event_id="s", correlation_id="nightly")
    async with memory_engine.open(path) as engine:
        with correlated("the finder"):
            await engine.thread("t").state()
        [end] = [one for one in await log(engine.thread("t")) if one.type == "compaction_abandoned"]
        assert ("s", "nightly") == links(end)


async def test_a_cancelled_compaction_keeps_its_cause(stay_open: StayOpen) -> None:
    """An engine that closes ends it; the log says what had begun it."""
    store = MemoryStore()
    stay_open(store)
    config = EngineConfig(compaction=CompactionPolicy(threshold=2, tokens_min=0, keep_recent=0))
    async with memory_engine.open(store, compactor=FakeCompactor(Hangs()), config=config) as engine:
        thread = await engine.create_thread("t")
        begun = asyncio.Event()
        engine.observe(lambda event: begun.set() if event.type == "compaction_started" else None)
        await thread.dispatch(message(f"a{LONG}"))
        await thread.dispatch(e.LlmTextResponse(content=f"b{LONG}"), event_id="e1", correlation_id="k")
        await begun.wait()
    async with memory_engine.open(store, config=config) as engine:
        found = [links(one) for one in await log(engine.thread("t")) if one.type.startswith("compaction")]
        assert [("e1", "k")] * 2 == found


async def test_an_industry_keeps_neither(engine: Engine) -> None:
    """Within a block its events are taken, bare; ids that the sender gives by hand are still refused."""
    await joined(engine, "acme")
    with correlated("order-17"), caused_by("e0"):
        await approved(engine, "acme", "Returns double")
        await engine.industry("retail").dispatch(e.PatternWithdrawn(share="ab"))
        with pytest.raises(InvalidEvent, match="no cause"):
            await engine.industry("retail").dispatch(e.PatternWithdrawn(share="ab"), correlation_id="k")
    events = await log(engine.industry("retail"))
    assert (2, {("", "")}) == (len(events), {links(one) for one in events})
    assert {"acme"} == {
        one.thread_id.removeprefix("tenant:") for one in await engine.correlated("order-17", tenant_id="acme")
    }


async def test_observers_are_at_nobodys_call(engine: Engine) -> None:
    """What they dispatch belongs to what they say: several senders' events may come in one commit."""
    thread, other = await engine.create_thread("t"), await engine.create_thread("other")
    tasks: list[asyncio.Task[object]] = []

    def observe(event: RecordedEvent) -> None:
        if event.thread_id == "t":
            tasks.append(asyncio.ensure_future(other.dispatch(message("seen"))))

    engine.observe(observe)
    with correlated("order-17"):
        await thread.dispatch(message("x"))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert {"seen": ("", "")} == await said(other)


async def test_events_are_found_across_threads(tmp_path: Path) -> None:
    """In the order of their recording, forks once, the latest with a limit; by engines that only read too."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        a, b = await engine.create_thread("a"), await engine.create_thread("b")
        with correlated("k"):
            for n, thread in enumerate((a, b, a, b)):
                await thread.dispatch(message(str(n)))
            fork = await a.fork(thread_id="fork")
            await fork.dispatch(message("own"))
        await a.dispatch(message("no"))
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        found = await engine.correlated("k")
        assert [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("fork", 3)] == [(one.thread_id, one.seq) for one in found]
        assert ["2", "3", "own"] == [one.event.content for one in await engine.correlated("k", limit=3)]  # type: ignore[union-attr]
        assert [] == await engine.correlated("K")
