"""X4: a thread at any moment of its past: state, context and every view, from the nearest snapshot that fits."""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import (
    CompactionPolicy,
    Engine,
    EngineConfig,
    Event,
    LlmTextResponse,
    MemoryAppended,
    Thread,
    UserMessage,
)
from memory_engine.context.builder import ContextBuilder
from memory_engine.core.clock import to_datetime
from memory_engine.core.state import State
from memory_engine.engine import kernel_of
from memory_engine.errors import EventNotFound, PastIsReadOnly, ReadOnly, SeqNotInLog
from memory_engine.store import snapshots
from memory_engine.store.protocol import ProjectionChange
from memory_engine.store.reader import LogReader
from memory_engine.testing import ManualClock
from memory_engine.thread import Past, handle_of
from memory_engine.wiring import builtin_projections
from tests.views.test_view_laws import EVENTS, Snapshot, recorded_views, views

CONFIG = EngineConfig(compaction=CompactionPolicy(threshold=5, tokens_min=0, keep_recent=1))
NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
SNAPSHOTS = (snapshots.PROJECTION, snapshots.VERSION)
EVERYTHING = (("", "\U0010ffff"),)


@contextlib.contextmanager
def many_snapshots(every: int = 3) -> Iterator[None]:
    """Snapshots at every few events, as a long log has them at every thousand."""
    with (
        mock.patch("memory_engine.store.snapshots.EVERY", every),
        mock.patch("memory_engine.store.reader.FAR", every),
        mock.patch("memory_engine.projections.rebuild.WINDOW", every),
        mock.patch("memory_engine.projections.rebuild.ROWS_SHARE", 0),
    ):
        yield


async def talk(thread: Thread, turns: int) -> None:
    """Some turns of a conversation."""
    for n in range(turns):
        await thread.dispatch(UserMessage(content=f"question {n}: what does part {n * 7} cost, and why?"))
        await thread.dispatch(LlmTextResponse(content=f"answer {n}: part {n * 7} costs {n * 3} euros, since it is new"))
    await thread.compaction.settle()


async def check_past(past: Past, seen: tuple[State, Snapshot]) -> None:
    """A past is recorded as it was seen, and shown without what was forgotten since."""
    state, rows = seen
    reader = handle_of(past).kernel.reader
    forgotten = await reader.forgotten(past.id)
    shown = forgotten.forgettings.hidden_in(state)
    assert (state, shown) == (await reader.state_at(past.id, past.seq), await past.state())
    assert handle_of(past).kernel[ContextBuilder].build(shown, past.id).messages == (await past.context()).messages
    assert rows == await recorded_views(past, past.seq)
    if past.seq >= forgotten.mark:
        assert rows == await views(past)


async def kept(thread: Thread) -> dict[str, bytes]:
    """The snapshots of a thread that are in the store."""
    _, rows = await handle_of(thread).kernel.store.rows(*SNAPSHOTS, thread.id)
    return dict(rows)


@settings(max_examples=40)
@given(EVENTS, st.booleans())
async def test_every_past_is_what_was_there_then(events: Sequence[Event], keep: bool) -> None:
    """At each seq, state, context and views are those that were seen then, with snapshots or without.

    What was forgotten since is recorded there, and not shown.
    """
    with many_snapshots() if keep else contextlib.nullcontext():
        async with memory_engine.open(":memory:", config=CONFIG) as engine:
            thread = await engine.create_thread()
            seen = {0: (await thread.state(), await views(thread))}
            for event in events:
                await thread.dispatch(event)
                await thread.compaction.settle()
                state = await thread.state()
                seen[state.seq] = state, await views(thread)
                assert (await thread.context()).messages == (await thread.context(at=state.seq)).messages
            for _ in range(2):  # the second time with what the first has kept
                for seq, then in seen.items():
                    await check_past(await thread.at(seq), then)
            fork = await thread.fork(max(seen) // 2)
            await fork.dispatch_all([UserMessage(content="another way")] * 4)
            for seq in [seq for seq in seen if seq <= max(seen) // 2]:
                await check_past(await fork.at(seq), seen[seq])
            assert len(await fork.state()) == len(await (await fork.at((await fork.info()).events)).state())


async def test_x4_a_moment_is_a_seq_an_event_or_a_time() -> None:
    """All three name the same past; a time is the last event recorded no later."""
    clock = ManualClock()
    async with memory_engine.open(":memory:", clock=clock) as engine:
        thread = await engine.create_thread()
        receipts = []
        for n in range(5):
            receipts.append(await thread.dispatch(UserMessage(content=f"number {n}")))
            clock.advance(60)
        third = receipts[2]
        for moment in (3, third.event_id, third.recorded_at, third.recorded_at + timedelta(seconds=59)):
            past = await thread.at(moment)
            assert (3, ["number 0", "number 1", "number 2"]) == (
                past.seq,
                [c.text for c in (await past.state()).chunks()],
            )
        assert 0 == (await thread.at(third.recorded_at - timedelta(days=1))).seq
        assert 5 == (await thread.at(datetime(2999, 1, 1, tzinfo=UTC))).seq
        event = await (await thread.at(3)).event()
        assert event is not None
        assert (third.event_id, None) == (event.id, await (await thread.at(0)).event())


async def test_a_clock_that_goes_back_does_not_confuse_times() -> None:
    """The last event that was recorded at a time or before it, by place and not by clock."""
    clock = ManualClock()
    async with memory_engine.open(":memory:", clock=clock) as engine:
        thread = await engine.create_thread()
        first = await thread.dispatch(UserMessage(content="one"))
        clock.advance(-3_600)
        second = await thread.dispatch(UserMessage(content="two, an hour before"))
        assert 2 == (await thread.at(first.recorded_at)).seq
        assert 2 == (await thread.at(to_datetime(second.recorded_at_us))).seq


@pytest.mark.parametrize("moment", [-1, 3, 10**30, True, 1.5, None, b"2", datetime(2026, 1, 1)])  # noqa: DTZ001
async def test_no_such_moment_is_a_typed_error(thread: Thread, moment: object) -> None:
    """What a thread's history does not have is refused, and says what there is."""
    await talk(thread, 1)
    with pytest.raises(SeqNotInLog, match="seqs 1 to 2") as caught:
        await thread.at(moment)  # type: ignore[arg-type]
    assert isinstance(caught.value, ValueError)
    with pytest.raises(EventNotFound):
        await thread.at("no such event")
    assert "no event yet" in str(SeqNotInLog("t", 4, 0))


async def test_the_past_takes_no_writes(thread: Thread) -> None:
    """Whatever would write is refused by name, and the thread is as it was."""
    await talk(thread, 3)
    past = await thread.at(4)
    writes: list[Callable[[], object]] = [
        lambda: past.dispatch(UserMessage(content="x")),
        lambda: past.dispatch_all([UserMessage(content="x")]),
        past.compact,
        past.admin.pause,
        past.admin.resume,
        past.admin.archive,
        past.admin.delete,
        past.replay.rebuild,
        past.compaction.undo,
        past.compaction.redo,
        past.admin.end_session,
        lambda: past.compaction.mark_critical("1.0"),
        lambda: past.forget(chunk_ids=["1.0"]),
        lambda: past.scratchpad.write("x"),
    ]
    for write in writes:
        with pytest.raises(PastIsReadOnly, match="as it was after event 4"):
            await write()  # type: ignore[misc]
    assert (6, False) == ((await thread.info()).events, await past.admin.is_blocked())


async def test_the_handles_of_the_past_read_the_past(engine: Engine) -> None:
    """Scratchpad, events, info, search, report and fork of a past are as of its seq."""
    thread = await engine.create_thread()
    await thread.scratchpad.write("Revenue dips every Sunday")
    seq = (await thread.info()).events
    await talk(thread, 2)
    await thread.scratchpad.write("And on holidays")
    past = await thread.at(seq)
    assert ["Revenue dips every Sunday"] == [snippet.text for snippet in await past.scratchpad.read()]
    assert (seq, seq) == ((await past.info()).events, len([event async for event in past.events()]))
    assert [] == list(await past.search("part costs"))
    assert [] != list(await thread.search("part costs"))
    assert (await (await thread.at(2)).at(1)).seq == 1
    fork = await past.fork()
    assert seq == (await fork.info()).events
    assert "Past(" in repr(past)
    assert (await past.views.report()).text != (await thread.views.report()).text
    assert (await past.context(at=0)).messages == []


async def test_snapshots_are_written_by_commits_and_name_no_content(tmp_path: Path) -> None:
    """One for each thousand seqs (here: ten), found again after reopening; they hold places, not texts."""
    with mock.patch("memory_engine.store.snapshots.EVERY", 10):
        async with memory_engine.open(str(tmp_path / "m.db")) as engine:
            thread = await engine.create_thread("t")
            await talk(thread, 17)
            rows = await kept(thread)
            assert ["state:0000000010", "state:0000000020", "state:0000000030"] == sorted(rows)[:3]
            assert not any(b"euros" in row for row in rows.values())
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        thread = engine.thread("t")
        whole = [await thread.state(at=seq) for seq in range(35)]
        await kernel_of(engine).store.write_projection("t", ProjectionChange(*SNAPSHOTS, {}, 0, EVERYTHING))
        assert whole == [await thread.state(at=seq) for seq in range(35)]


@pytest.mark.parametrize("damage", ["cut", "garbage", "hash", "ids", "tally", "empty"])
async def test_a_damaged_snapshot_is_passed_over(damage: str) -> None:
    """What does not fit the log is not used; the answer comes from the log."""
    with many_snapshots(10):
        async with memory_engine.open(":memory:") as engine:
            thread = await engine.create_thread()
            await talk(thread, 10)
            expected = [await thread.state(at=seq) for seq in range(21)]
            for key, row in (await kept(thread)).items():
                bad = {
                    "cut": row[: len(row) // 2],
                    "garbage": b"\xff" * 40,
                    "hash": row.replace(row[5:9], b"\0\0\0\0", 1),
                    "ids": row.replace(b"1.0", b"2.0"),
                    "tally": row.replace(b"1.0", b"9.9"),
                    "empty": b"",
                }[damage]
                await kernel_of(engine).store.write_projection(thread.id, ProjectionChange(*SNAPSHOTS, {key: bad}, 0))
            assert expected == [await thread.state(at=seq) for seq in range(21)]


async def test_forgetting_reaches_snapshots() -> None:
    """The rows of views that were kept go with the forgetting; those kept afterwards know of it."""
    with many_snapshots(2):
        async with memory_engine.open(":memory:") as engine:
            thread = await engine.create_thread()
            snippet = await thread.scratchpad.write("the code is 4711")
            await talk(thread, 3)
            head = (await thread.info()).events
            for seq in range(head + 1):
                await views(await thread.at(seq))
            await thread.forget(chunk_ids=[snippet.id])
            assert not any(key.startswith("view/") for key in await kept(thread))
            assert not any(b"4711" in row for row in (await kept(thread)).values())
            assert () == await (await thread.at((await thread.info()).events)).scratchpad.read()


async def test_looking_back_writes_nothing_of_what_is_forgotten(tmp_path: Path) -> None:
    """No moment shows it, nor a row of a cache, whenever it was looked at."""
    with many_snapshots(2):
        async with memory_engine.open(str(tmp_path / "log.db")) as engine:
            thread = await engine.create_thread()
            told = await thread.dispatch(MemoryAppended(layer="semantic", content="the code is 4711", key="code"))
            await talk(thread, 3)
            await thread.forget(event_ids=[told.event_id])
            last = (await thread.info()).events
            await talk(thread, 3)
            for seq in range(last + 7):
                assert "4711" not in str(await views(await thread.at(seq)))
            assert not any(b"4711" in row for row in (await kept(thread)).values())
            assert any(key.startswith("view/") for key in await kept(thread))


async def test_deleting_takes_the_snapshots_along(tmp_path: Path) -> None:
    """No row of a deleted thread is left."""
    with many_snapshots(2):
        async with memory_engine.open(str(tmp_path / "m.db")) as engine:
            thread = await engine.create_thread("t")
            await talk(thread, 4)
            await views(await thread.at(7))
            assert await kept(thread)
            await thread.admin.delete()
            assert [] == list(await kernel_of(engine).store.holders(*SNAPSHOTS))


async def test_an_engine_that_only_reads_writes_nothing(tmp_path: Path) -> None:
    """Looking at every past leaves the file byte for byte as it was; dispatching is refused."""
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t")
        await thread.scratchpad.write("Revenue dips every Sunday")
        await talk(thread, 40)
    before = path.read_bytes()
    with many_snapshots(5):
        async with memory_engine.open(str(path), config=EngineConfig(read_only=True)) as engine:
            thread = engine.thread("t")
            for _ in range(2):
                for seq in range(0, (await thread.info()).events + 1, 3):
                    past = await thread.at(seq)
                    await past.context(4_000)
                    await views(past)
            with pytest.raises(ReadOnly, match="only reads"):
                await thread.dispatch(UserMessage(content="no"))
            with pytest.raises(ReadOnly):
                await engine.create_thread()
    assert before == path.read_bytes()


async def test_a_log_without_snapshots_gets_them_where_it_is_read(engine: Engine) -> None:
    """One that was imported, or is older than they are: the first who reads far keeps them for the next."""
    thread = await engine.create_thread()
    await talk(thread, 30)
    assert {} == await kept(thread)
    with mock.patch("memory_engine.store.reader.FAR", 600):
        await thread.state(at=55)
    assert {} == await kept(thread)
    kernel_of(engine).reader.clear()
    with mock.patch("memory_engine.store.reader.FAR", 20), mock.patch("memory_engine.store.reader.PAGE", 20):
        expected = await thread.state(at=55)
    assert 2 == len(await kept(thread))
    assert expected == await thread.state(at=55)


async def test_moments_of_a_log_that_was_never_compacted_are_at_hand() -> None:
    """In any order, each equals the one that is folded from the log's beginning; none outlives what was erased."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await talk(thread, 40)
        await thread.scratchpad.write("the price rises in May")
        await thread.dispatch_all([UserMessage(content=f"and {n}?") for n in range(15)])
        head = await handle_of(thread).last_seq()
        with mock.patch("memory_engine.store.reader.PAGE", 7), mock.patch("memory_engine.store.reader.FAR", 1_000):
            for seq in random.Random(3).sample(range(head + 1), head + 1):
                found = await kernel_of(engine).reader.state_at(thread.id, seq)
                assert await LogReader(kernel_of(engine).store, engine.events).state_at(thread.id, seq) == found
                assert found is await kernel_of(engine).reader.state_at(thread.id, seq) or not seq
            assert any("answer 0:" in chunk.text for chunk in (await thread.state(at=head - 1)).chunks())
            await thread.admin.erase(seqs=[1], reason="asked to", by="me")
            assert not [c for c in (await thread.state(at=head - 1)).chunks() if "question 0:" in c.text]
            assert not [
                c for c in (await kernel_of(engine).reader.state_at(thread.id, 9)).chunks() if "question 0:" in c.text
            ]


async def test_every_view_is_read_in_the_past(engine: Engine) -> None:
    """All registered views, also those that this thread has no event for, at every seq."""
    thread = await engine.create_thread()
    await talk(thread, 2)
    past = await thread.at(3)
    assert isinstance(past, Past)
    for projection in builtin_projections():
        rows = await past.views.rows(projection)
        assert (
            len(rows)
            == (await handle_of(past).measure(projection))[0]
            >= len(await handle_of(past).rows_between(projection, limit=1, latest=True))
        )


async def test_who_only_looks_searches_what_was_never_searched(tmp_path: Path) -> None:
    """With an index that is there it finds, and without one; it writes nothing."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        for name in ("searched", "never"):
            await talk(await engine.create_thread(name), 3)
        await engine.thread("searched").search("part")
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        assert await engine.thread("searched").search("part")
        assert (await (await engine.thread("searched").at(4)).context(query="part")).messages
        assert await engine.thread("never").search("part")
        assert (await (await engine.thread("never").at(4)).context(query="part")).messages
        with pytest.raises(ReadOnly, match="index"):
            await engine.thread("never").admin.prepare_search()
        assert {} == dict(await engine.user("nobody").preferences.all())


async def test_nothing_that_writes_goes_past_an_engine_that_only_reads(tmp_path: Path) -> None:
    """Forks, archiving, deleting and rebuilding are refused as dispatching is."""
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path)) as engine:
        await talk(await engine.create_thread("t"), 2)
    before = path.read_bytes()
    async with memory_engine.open(str(path), config=EngineConfig(read_only=True)) as engine:
        thread = engine.thread("t")
        for write in (
            thread.fork,
            thread.admin.archive,
            thread.admin.delete,
            thread.replay.rebuild,
            thread.compact,
            thread.admin.pause,
        ):
            with pytest.raises(ReadOnly):
                await write()
    assert before == path.read_bytes()
