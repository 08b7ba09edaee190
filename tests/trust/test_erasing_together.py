"""Acts that meet: one erases while another does, or has; a thread goes, and another comes by its id."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, NewEvent, RetentionRule, UserMessage
from memory_engine.administration.erasing import ErasurePlan
from memory_engine.store.acts import Act
from tests.scripted_compactors import Scripted, a_line_each

WORDS = ("plum", "quince", "sorrel", "teasel")


def secret(word: str) -> str:
    """A word that only one event says, and what the compactor makes of that event."""
    return f"{word}77412"


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine over a file, with a compactor that repeats the first word of each chunk in one summary."""
    config = EngineConfig(compaction=CompactionPolicy(threshold=len(WORDS), tokens_min=0, keep_recent=1))
    async with memory_engine.open(str(tmp_path / "m.db"), compactor=Scripted(a_line_each), config=config) as opened:
        yield opened


def held(path: Path) -> set[str]:
    """The words whose secrets are in the store's files."""
    content = b"".join(file.read_bytes() for file in path.iterdir())
    return {word for word in WORDS if secret(word).encode() in content}


@pytest.mark.parametrize("first", [0, 1])
async def test_two_acts_at_once_bring_back_nothing(engine: Engine, tmp_path: Path, first: int) -> None:
    """Both erase lines of one summary: whichever writes last has read the summary before the other erased its line."""
    thread = await engine.create_thread("t")
    for word in WORDS:
        await thread.dispatch(UserMessage(content=f"{secret(word)} grows by the river. " * 3), event_id=word)
    await thread.dispatch(UserMessage(content="And what of the rest?"))
    await thread.settle()
    asked = [WORDS[first], WORDS[1 - first]]
    for report in await asyncio.gather(*(thread.erase([word]) for word in asked)):
        assert report.proof is not None
        assert report.proof.ok
    assert (await thread.verify()).ok
    await engine.flush()
    assert set(WORDS[2:]) == held(tmp_path)


async def test_a_thread_with_an_earlier_erasure_is_deleted_without_a_trace(engine: Engine) -> None:
    """Its log names the earlier act, whose record stays with the store: that is no trace of the thread."""
    thread = await engine.create_thread("t")
    receipt = await thread.dispatch(UserMessage(content="My passport is 77412-Osterfeldt"))
    await thread.erase([receipt.event_id], by="the data protection officer", reason="asked for by letter")
    report = await thread.delete()
    assert report.proof is not None
    assert () == report.proof.left


async def test_an_act_on_a_thread_that_has_gone_leaves_its_successor_alone(engine: Engine) -> None:
    """A process died before it had erased an event; the thread was deleted, and another has its id. It is done."""
    thread = await engine.create_thread("t")
    receipt = await thread.dispatch(UserMessage(content="a first word"))
    plan = msgspec.json.encode(ErasurePlan({"t": [receipt.event_id]})).decode()
    await engine.store.put_act(Act(id="left", kind="erase", plan=plan, by="", reason="", asked_at_us=1))
    await thread.delete()
    successor = await engine.create_thread("t")
    await successor.dispatch(UserMessage(content="another first word"))
    reports = await engine.finish_acts()
    assert [("left", {"t": 0})] == [(report.act, dict(report.erased)) for report in reports]
    assert [] == [act for act in await engine.acts() if not act.done_at_us]
    assert ["another first word"] == [chunk.text for chunk in (await successor.state()).chunks()]


async def test_an_act_leaves_events_alone_that_bear_the_ids_of_those_it_was_for(engine: Engine) -> None:
    """In a later thread of the same id, in another thread, and in a fork that had parted before: it is done."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="hello"))
    fork = await thread.fork(at=1)
    other = await engine.create_thread("u")
    for one, text in ((thread, "what is to go"), (fork, "the fork's"), (other, "another's")):
        await one.dispatch(UserMessage(content=text), event_id="order")
    erased = await thread.erase(["order"])
    assert {"t": 1} == erased.erased
    await fork.delete()
    await thread.delete()
    later = await engine.create_thread("t")
    await later.dispatch_all([UserMessage(content="hello"), NewEvent(UserMessage(content="later"), id="order")])
    [act] = [act for act in await engine.acts() if act.id == erased.act]
    await engine.store.put_act(msgspec.structs.replace(act, done_at_us=0, outcome=""))  # as a copy has it
    [report] = await engine.finish_acts()
    assert {"t": 0} == report.erased
    assert ["hello", "later"] == [chunk.text for chunk in (await later.state()).chunks()]
    assert ["another's"] == [chunk.text for chunk in (await other.state()).chunks()]


async def test_retention_erases_events_that_bear_the_ids_of_erased_ones(engine: Engine) -> None:
    """What an act did to an earlier thread of the same id says nothing about this one's."""
    for text in ("the first", "the second"):
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content=text), event_id="order")
        if text == "the first":
            await thread.erase(["order"])
            await thread.delete()
    await engine.retain([RetentionRule(act="erase", older_than=timedelta(microseconds=1))])
    assert [] == [chunk.text for chunk in (await thread.state()).chunks()]
