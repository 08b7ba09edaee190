"""Facts that cross threads: they carry their cause, arrive once, and are forgotten where they went."""

from pathlib import Path

import pytest

import memory_engine
from memory_engine import Destination, Engine, Event, MemoryShared, RecordedEvent
from memory_engine.engine import kernel_of
from memory_engine.errors import InvalidEvent, StorageBusy
from memory_engine.events import MemoryAppended
from memory_engine.projections.outbox import OUTBOX
from memory_engine.runtime.delivery import Relay
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from tests.staying import StayOpen


def shared(text: str, to: str = "b") -> MemoryShared:
    """A fact for an agent."""
    return MemoryShared(destination=Destination("agent", to), layer="episodic", content=text)


async def arrived(engine: Engine, to: str = "b") -> list[RecordedEvent]:
    """What came to an agent."""
    return [event async for event in engine.agent(to).events()]


def contents(events: list[RecordedEvent]) -> list[Event]:
    """What was shared, of events that arrived."""
    return [event.event for event in events if isinstance(event.event, MemoryAppended)]


async def test_a_fact_arrives_with_its_cause(engine: Engine) -> None:
    """The event of the other thread names the event that caused it."""
    sender = engine.agent("a")
    await sender.dispatch(shared("The build needs Java 21."), event_id="e1")
    await sender.views.delivered()
    (event,) = await arrived(engine)
    assert ("e1", "The build needs Java 21.") == (event.causation_id, event.event.content)  # type: ignore[union-attr]


async def test_facts_leave_by_themselves(engine: Engine) -> None:
    """Whoever only dispatches has delivered soon after."""
    await engine.agent("a").dispatch(shared("one"))
    await engine.settle()
    assert 1 == len(await arrived(engine))


@pytest.mark.parametrize("commit", [2, 3])
async def test_a_crash_in_between_delivers_once(commit: int, stay_open: StayOpen) -> None:
    """Whether the fact or the note of its arrival was lost, who opens the store next delivers it once."""
    kept = MemoryStore()
    store = FaultyStore(kept)
    stay_open(store)
    async with memory_engine.open(store) as engine:
        sender = engine.agent("a")
        store.fail(StorageBusy("it died here", 0.0), commit=commit)
        await sender.dispatch(shared("one"), event_id="e1")
        with pytest.raises(StorageBusy):
            await kernel_of(engine)[Relay].deliver(sender.id)
    async with memory_engine.open(kept) as engine:
        await engine.settle()
        assert 1 == len(await arrived(engine))
        assert 0 == len(await engine.agent("a").views.rows(OUTBOX))


async def test_who_reads_first_waits_for_what_was_left(tmp_path: Path) -> None:
    """The first read of a user, tenant or agent sees what a dead process had still to deliver."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        kernel_of(engine)[Relay].touched = lambda thread_id: None  # type: ignore[method-assign]  # it dies before
        await engine.agent("a").dispatch(shared("one"))
        assert [] == await engine.threads(agent_id="b")
    async with memory_engine.open(path) as engine:
        await engine.agent("b").views.rows(OUTBOX)
        assert 1 == len(await arrived(engine))


async def test_facts_keep_their_order(engine: Engine) -> None:
    """Facts of one thread for another arrive in the order in which they were dispatched."""
    sender = engine.agent("a")
    await sender.dispatch_all([shared(str(n)) for n in range(5)])
    await sender.views.delivered()
    assert list("01234") == [event.content for event in contents(await arrived(engine))]  # type: ignore[attr-defined]


@pytest.mark.parametrize("destination", [Destination("agent", "b", "other"), Destination("tenant", "other")])
async def test_no_fact_leaves_its_tenant(engine: Engine, destination: Destination) -> None:
    """A fact for another tenant's thread is refused before anything is written."""
    sender = engine.agent("a", tenant_id="acme")
    await sender.memory.append("working", "hello")
    with pytest.raises(InvalidEvent, match="stay within a tenant"):
        await sender.dispatch(MemoryShared(destination=destination, layer="episodic", content="secret"))
    assert 1 == (await sender.info()).events


async def test_a_fork_does_not_deliver_again(engine: Engine) -> None:
    """A fork that shares the sender's past shares its facts: they arrive once."""
    sender = engine.agent("a")
    await sender.dispatch(shared("one"))
    await sender.views.delivered()
    fork = await sender.fork(at=1)
    await fork.views.delivered()
    assert (1, 0) == (len(await arrived(engine)), len(await fork.views.rows(OUTBOX)))


async def test_forgetting_the_source_reaches_the_fact(engine: Engine) -> None:
    """Where an event is forgotten, what it brought to other threads is forgotten too, with the reason."""
    sender = engine.agent("a")
    await sender.dispatch_all([shared("secret", "b"), shared("secret", "c"), shared("fine")])
    first, second, _ = [event async for event in sender.events()]
    await sender.forget(event_ids=[first.id, second.id], reason="asked to")
    for to in ("b", "c"):
        forgotten = (await engine.agent(to).replay.latest(1))[0].event
        assert isinstance(forgotten, memory_engine.MemoryForget)
        assert ((1,), "asked to") == (forgotten.seqs, forgotten.reason)
    assert all(report.ok for report in await engine.verify())
