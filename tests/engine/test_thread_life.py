"""The life of a thread: opened by its id, changed, found again, archived and opened, deleted and its id used again."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, Thread, ThreadInfo, errors
from memory_engine import events as e
from memory_engine.replay.anchors import Anchor
from memory_engine.testing import ManualClock
from tests.places import on_both_back_ends, place_of

SAID = e.UserMessage(content="Hello")


# Opened by an id.


async def test_a_thread_is_opened_or_made(engine: Engine) -> None:
    """Twice the same; what is for a new one changes nothing of one that is there."""
    thread = await engine.open_thread("t", user_id="u", metadata={"a": "1"})
    await thread.dispatch(SAID)
    again = await engine.open_thread("t", user_id="u", metadata={"b": "2"}, policy=CompactionPolicy(threshold=5))
    info = await again.info()
    assert (1, "u", {"a": "1"}, None) == (info.events, info.user_id, info.metadata, info.policy)


async def test_a_thread_of_other_scopes_is_not_opened(engine: Engine) -> None:
    """The error names each difference; a scope that is left out is one too."""
    await engine.create_thread("t", user_id="u", tenant_id="acme")
    with pytest.raises(errors.ThreadDiffers) as refused:
        await engine.open_thread("t", user_id="other")
    assert (("user_id", "u", "other"), ("tenant_id", "acme", "")) == refused.value.differences
    assert "user_id is 'u', not 'other'" in str(refused.value)
    with pytest.raises(errors.ThreadDiffers):
        await engine.open_thread("t", user_id="u", tenant_id="acme", kind="task")
    for wrong in ("user:u", ""):
        with pytest.raises(errors.InvalidIdentifier):
            await engine.open_thread(wrong)


@on_both_back_ends
async def test_of_many_who_open_a_thread_at_once_each_gets_the_same(back_end: str, tmp_path: Path) -> None:
    """Tasks and engines that share a store: one thread, with the first chunks once."""
    place = place_of(back_end, tmp_path)
    seeds = [e.InitialChunk("Be kind.")]
    async with memory_engine.open(place) as one, memory_engine.open(place) as other:
        opened = [engine.open_thread("t", initial_chunks=seeds) for engine in (one, other) for _ in range(5)]
        threads = await asyncio.gather(*opened)
        await asyncio.gather(*(thread.dispatch(SAID) for thread in threads))
        assert 11 == (await one.thread("t").info()).events
        assert ["t"] == [info.id for info in await other.threads()]


# Changed.


@on_both_back_ends
async def test_metadata_and_policy_change_by_recorded_events(back_end: str, tmp_path: Path) -> None:
    """Keys are merged, `None` removes one, a policy is replaced; other processes see it, and the next one too."""
    place = place_of(back_end, tmp_path)
    policy = CompactionPolicy(threshold=7)
    async with memory_engine.open(place) as one, memory_engine.open(place) as other:
        here = await one.create_thread("t", metadata={"title": "Old", "draft": "yes"}, policy=policy)
        there = other.thread("t")
        await there.dispatch(SAID)
        receipt = await here.admin.update(metadata={"title": "New", "draft": None, "colour": "blue"})
        await there.admin.update(metadata={"colour": "red"}, policy=CompactionPolicy(threshold=9))
        assert {"title": "New", "colour": "red"} == (await here.info()).metadata
        assert 2 == receipt.seq
        await here.admin.update(metadata={"by": "one"})
        await there.admin.update(metadata={"by": "other"}, policy="default")
        assert (await here.replay.verify()).ok
    async with memory_engine.open(place) as engine:
        info = await engine.thread("t").info()
        assert ({"title": "New", "colour": "red", "by": "other"}, None) == (info.metadata, info.policy)
        assert ["thread_updated"] * 4 == [one.type async for one in engine.thread("t").events(after=1)]


async def test_a_policy_counts_from_its_event_on(engine: Engine, thread: Thread) -> None:
    """The thread's next event is the first that it concerns."""
    await thread.dispatch_all([e.UserMessage(content=f"Word {n} of a long talk. " * 20) for n in range(6)])
    await thread.admin.update(policy=CompactionPolicy(threshold=4, tokens_min=0, keep_recent=1))
    await thread.dispatch(SAID)
    await engine.settle()
    assert "compaction_completed" in [one.type async for one in thread.events()]


@pytest.mark.parametrize(
    ("metadata", "policy", "error"),
    [
        ({"": "x"}, None, errors.InvalidIdentifier),
        ({"k": 5}, None, errors.InvalidIdentifier),
        ("k", None, errors.InvalidArgument),
        (None, "other", errors.InvalidPolicy),
    ],
)
async def test_what_a_record_cannot_hold_is_refused(
    thread: Thread, metadata: object, policy: object, error: type[Exception]
) -> None:
    """And nothing is recorded."""
    with pytest.raises(error):
        await thread.admin.update(metadata=metadata, policy=policy)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidEvent):
        await thread.dispatch(e.ThreadUpdated(policy="{}}"))
    with pytest.raises(errors.InvalidIdentifier):
        await thread.dispatch(e.ThreadUpdated(metadata=(e.MetadataEntry("\x00"),)))
    assert 0 == (await thread.info()).events


async def test_an_export_brings_its_metadata(engine: Engine, tmp_path: Path) -> None:
    """To a new thread, and to one that holds a beginning of the log."""
    thread = await engine.create_thread("t", metadata={"n": "1"})
    await thread.replay.export(tmp_path / "first.jsonl")
    await thread.admin.update(metadata={"n": "2"})
    await thread.dispatch(SAID)
    await thread.replay.export(tmp_path / "second.jsonl")
    async with memory_engine.open(":memory:") as other:
        for name, number in (("first", "1"), ("second", "2")):
            await other.transfer.import_log(tmp_path / f"{name}.jsonl", scopes="as exported")
            assert {"n": number} == (await other.thread("t").info()).metadata
        await other.transfer.import_log(tmp_path / "second.jsonl", thread_id="copy", scopes="as exported")
        assert {"n": "2"} == (await other.thread("copy").info()).metadata
        assert (await other.thread("t").replay.verify()).ok


# Found again.


async def test_threads_are_listed_by_metadata_and_by_their_last_events() -> None:
    """The time of the last event says how recent a thread is; a page goes on behind the last one that was shown."""
    clock = ManualClock(1_000_000)
    async with memory_engine.open(":memory:", clock=clock) as engine:
        made = await engine.create_thread("a", metadata={"k": "v"})
        for name in "bcd":
            clock.advance(1)
            await engine.create_thread(name, metadata={"k": "v"} if name != "c" else {})
        clock.advance(1)
        await made.dispatch(SAID)
        info = await made.info()
        assert timedelta(seconds=4) == info.updated_at - info.created_at
        assert ["a", "d", "c", "b"] == [one.id for one in await engine.threads(order="updated")]
        shown: list[ThreadInfo] = await engine.threads(order="updated", metadata={"k": "v"}, limit=1)
        clock.advance(1)
        await made.dispatch(SAID)
        shown += await engine.threads(order="updated", metadata={"k": "v"}, limit=5, after=shown[-1])
        assert ["a", "d", "b"] == [one.id for one in shown]
        assert ["b", "d"] == [one.id for one in await engine.threads(metadata={"k": "v"}, limit=2)]
        assert ["b", "d"] == [one.id for one in await engine.threads(metadata={"k": "v"}, after=info, limit=2)]
        assert info.updated_at == (await (await made.at(1)).info()).updated_at
        with pytest.raises(errors.InvalidArgument):
            await engine.threads(order="size")  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidIdentifier):
            await engine.threads(metadata={"": "v"})


# Archived, and opened again.


@on_both_back_ends
async def test_an_archived_thread_takes_events_again(back_end: str, tmp_path: Path) -> None:
    """Once it is unarchived, in every process; what is not archived stays as it is."""
    place = place_of(back_end, tmp_path)
    async with memory_engine.open(place) as one, memory_engine.open(place) as other:
        here = await one.create_thread("t")
        there = other.thread("t")
        await there.dispatch(SAID)
        await here.admin.archive()
        with pytest.raises(errors.ThreadClosed):
            await there.dispatch(SAID)
        await there.admin.unarchive()
        await there.admin.unarchive()
        assert [2, 3] == [(await there.dispatch(SAID)).seq, (await here.dispatch(SAID)).seq]
        assert "active" == (await here.info()).status
        assert (await here.replay.verify()).ok


async def test_a_thread_that_was_paused_is_paused_again(thread: Thread) -> None:
    """The log says so, and what is dispatched waits."""
    await thread.admin.pause("for now")
    await thread.admin.archive()
    await thread.admin.unarchive()
    waiting = asyncio.ensure_future(thread.dispatch(SAID))
    assert "paused" == (await thread.info()).status
    await thread.admin.resume()
    assert 3 == (await waiting).seq


# Forgotten by seq.


async def test_events_are_forgotten_by_their_seqs(thread: Thread) -> None:
    """As by their ids; a seq that is not there is named, and nothing is forgotten."""
    await thread.dispatch_all([e.UserMessage(content=text) for text in ("one", "two", "three")])
    for wrong in (9, 0, -1, True):
        with pytest.raises(errors.SeqNotInLog):
            await thread.forget(seqs=[1, wrong])
    await thread.forget(seqs=[1, 3])
    assert ["two"] == [chunk.text for chunk in (await thread.state()).chunks()]


# Deleted, and the id used again.


@on_both_back_ends
async def test_the_id_of_a_deleted_thread_is_another_threads(back_end: str, tmp_path: Path) -> None:
    """Nothing of the first is in it; a receipt, an anchor or a view of the first is not taken for it."""
    place = place_of(back_end, tmp_path)
    async with memory_engine.open(place) as one, memory_engine.open(place) as other:
        first = await one.create_thread("t", user_id="u", metadata={"k": "v"})
        events = [memory_engine.NewEvent(e.UserMessage(content=f"{n}"), id=f"id-{n}") for n in range(4)]
        receipts = await first.dispatch_all(events)
        anchor, info = await first.replay.anchor(), await first.info()
        assert 4 == (await other.thread("t").state()).seq
        await first.admin.delete(by="ann", reason="asked")
        assert [] == await one.threads()
        second = await other.open_thread("t")
        assert 1 == (await second.dispatch(e.UserMessage(content="new"), event_id="id-0")).seq
        assert ["new"] == [chunk.text for chunk in (await one.thread("t").state()).chunks()]
        now = await first.info()
        assert (1, {}, "") == (now.events, now.metadata, now.user_id)
        assert now.generation > info.generation
        with pytest.raises(errors.ThreadNotFound):
            await receipts[0].state.load()
        [contradicted] = await one.admin.check_anchors([anchor])
        assert "another thread bears this id now" in contradicted.why
        assert (await second.replay.verify()).ok
        await second.admin.delete()
        assert 1 == (await (await one.create_thread("t", initial_chunks=[e.InitialChunk("Hi")])).info()).events


async def test_a_deleted_threads_export_does_not_come_back_as_another(engine: Engine, tmp_path: Path) -> None:
    """Neither under its id nor onto the thread that has it now; under another id it does."""
    thread = await engine.create_thread("t")
    await thread.dispatch(SAID)
    await thread.replay.export(tmp_path / "t.jsonl")
    await thread.admin.delete()
    for make in (False, True):
        if make:
            await engine.create_thread("t")
        with pytest.raises(errors.ThreadExists):
            await engine.transfer.import_log(tmp_path / "t.jsonl", scopes="as exported")
    await engine.transfer.import_log(tmp_path / "t.jsonl", thread_id="other", scopes="as exported")
    assert [0, 1] == [info.events for info in await engine.threads()]


async def test_an_anchor_is_contradicted_by_a_change_as_before(engine: Engine) -> None:
    """Only a deletion that was recorded after it was made says why."""
    first = await engine.create_thread("t")
    await first.dispatch(SAID)
    lost = await first.replay.anchor()
    await first.admin.delete()
    [gone] = await engine.admin.check_anchors([lost])
    assert "deleted" in gone.why
    assert "another thread" not in gone.why
    second = await engine.create_thread("t")
    await second.dispatch(SAID)
    anchor = await second.replay.anchor()
    assert [] == await engine.admin.check_anchors([anchor])
    wrong = Anchor("t", 1, "00" * 32, anchor.recorded_at)
    [contradicted] = await engine.admin.check_anchors([wrong])
    assert "" == contradicted.why
